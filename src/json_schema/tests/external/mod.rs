//! The tests that fetch their material from package registries. `make test-unit` leaves them out.

mod official_suite;
mod real_schemas;
