//! One integration binary: the real gateway, real servers, agents that misbehave.
#![allow(missing_docs, unreachable_pub)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod agents;
mod callers;
mod calls;
mod commands;
mod configuration;
mod delegation;
mod demo;
mod directory;
mod endpoints;
mod examples;
mod failures;
mod feeds;
mod issuers;
mod limits;
mod living;
mod malformed;
mod mqtt_feed;
mod operators;
mod pitfalls;
mod readme;
mod registry_store;
mod streams;
mod support;
mod tidy;
