//! One integration binary: the real gateway, real servers, agents that misbehave.
#![allow(missing_docs, unreachable_pub)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod callers;
mod calls;
mod commands;
mod configuration;
mod demo;
mod examples;
mod issuers;
mod limits;
mod readme;
mod support;
mod tidy;
