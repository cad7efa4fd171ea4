//! Tests of the crate against other people's material: the official test suite, other validators, and real schemas.

mod differential;
mod external;
