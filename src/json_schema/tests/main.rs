//! Tests of the crate against other people's material: the official test suite, other validators, and real schemas.
#![allow(missing_docs, unreachable_pub)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod differential;
mod external;
