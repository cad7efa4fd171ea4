//! One integration binary: the real gateway, real servers, agents that misbehave.
#![allow(missing_docs, unreachable_pub)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod agents;
mod callers;
mod calls;
mod commands;
mod configuration;
mod demo;
mod directory;
mod examples;
mod failures;
mod feeds;
mod idempotency;
mod issuers;
mod limits;
mod living;
mod malformed;
mod mqtt_feed;
mod operators;
mod pitfalls;
mod readme;
mod registry_store;
mod resume;
mod streams;
mod support;
mod tasks;
mod tidy;
