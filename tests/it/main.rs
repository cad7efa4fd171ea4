//! One integration binary: the real gateway, real servers, agents that misbehave.
#![allow(missing_docs, unreachable_pub)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod agents;
mod callers;
mod calls;
mod configuration;
mod issuers;
mod limits;
mod living;
mod operators;
mod support;
mod tidy;
