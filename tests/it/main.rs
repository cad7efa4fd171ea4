//! One integration binary: the real gateway, real servers, agents that misbehave.
#![allow(missing_docs, unreachable_pub)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod agents;
mod bridge;
mod callers;
mod calls;
mod commands;
mod configuration;
mod cors;
mod demo;
mod directory;
mod examples;
mod failures;
mod feeds;
mod idempotency;
mod issuers;
mod limits;
mod living;
mod local;
mod malformed;
mod matrix;
mod mqtt;
mod mqtt_feed;
mod names;
mod operators;
mod pipelines;
mod pitfalls;
mod readme;
mod registry_store;
mod resume;
mod streams;
mod support;
mod tasks;
mod tidy;
mod websocket;
mod websocket_callers;
