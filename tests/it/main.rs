//! Integration tests in one binary: the real gateway, real servers, and agents that misbehave.
#![allow(missing_docs, unreachable_pub)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod adversity;
mod agents;
#[path = "../attacks/mod.rs"]
mod attacks;
mod callers;
mod calls;
mod code_structure;
mod commands;
mod configuration;
mod connection_handling;
mod cors;
mod delegation;
mod demo;
mod directory;
mod docs;
mod endpoints;
mod examples;
mod external;
mod failures;
mod feeds;
mod front_ends;
mod idempotency;
mod key_migration;
mod lifecycle;
mod limits;
mod local_runtimes;
mod malformed_requests;
mod observability;
mod overload;
mod pipelines;
mod readme;
mod requirements;
mod resolver;
mod stream_resumption;
mod streaming;
mod support;
mod tasks;
mod test_groups;
mod threat_model;
mod websocket_agents;
mod websocket_callers;
mod websocket_limits;
