//! One integration binary: the real gateway, real servers, agents that misbehave.
#![allow(missing_docs, unreachable_pub)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod calls;
mod commands;
mod demo;
mod examples;
mod issuers;
mod readme;
mod support;
mod tidy;
