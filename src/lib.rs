//! Gatepost: one endpoint in front of many AI agents.
//!
//! # The life of a call
//! The HTTP server (`http_server`) accepts the connection and reads the request head. Then
//! `gateway/request_handler.rs` runs these steps in order. Steps 3, 5 to 8 and 10 are the admission: one list of checks
//! for every front end, in `gateway/admission/pipeline.rs`.
//!
//! 1. **Start.** Each request has a `Call` (`gateway/call.rs`). When it is dropped, it counts the call and writes the
//!    access-log entry, however the call ended: answered, refused, panicked, cancelled, or left by its caller.
//! 2. **Validate the head.** Ambiguous framing, look-alike header names, a missing or repeated `Host` and oversized
//!    heads are refused before the request reaches the handler (`http_server/request_validation/`).
//! 3. **Limit the address**, before any credential is read (`limit::CallLimiter::acquire_for_address`). While load is
//!    shed, a request with the credentials of the connection's previous request may end here
//!    (`gateway/caller_connection.rs`).
//! 4. **Route the path.** Method and path select a call, a directory request, a pipeline or a task
//!    (`gateway/path_router.rs`); the following steps apply to each of them.
//! 5. **Find the agent** and its operation in the snapshot, without I/O or locks (`registry::Catalogue`). Agents of a
//!    registry that is queried on demand are looked up (`registry::OnDemandCatalogue`). A miss is answered only after
//!    authentication.
//! 6. **Authenticate** as the agent's `authentication` requires, then **authorise** by grants and scopes
//!    (`auth::Authorizer`, `gateway/admission/agent_authorization.rs`).
//! 7. **Limit** by caller, pair of caller and agent, agent and quota (`limit::CallLimiter::acquire_for_calls`).
//!    Operation, version and deadline are selected; an `AuthorizedCall` holds the result.
//! 8. **Check the contract.** The body is read within bounds of size, memory (`limit::MemoryReservation`) and rate, parsed
//!    once and validated against the operation's schema; an array becomes a batch
//!    (`gateway/admission/input_validation.rs`, `contract::OperationContract`). Of a body that passes unchecked only the
//!    first bytes are read. A `CheckedCall` holds the input.
//! 9. **Look up the idempotency key.** A call with a key that was used before gets the stored response and ends here
//!    (`gateway/background/idempotency_claim.rs`, `idempotency::IdempotencyKeys`).
//! 10. **Admit.** The concurrency permit is acquired (`limit::Permit`), so that neither a slow body nor the wait for
//!     another call holds one. Only `AdmissionPipeline::admit` makes an `Admitted`. Every function that sends to an agent
//!     takes one, so a call that was not admitted cannot be forwarded.
//! 11. **Call the agent** (`gateway/upstream/upstream_request.rs`, `transport::UpstreamClient`): with the gateway's
//!     credential instead of the caller's, within the deadline, and with retries only where they are safe.
//! 12. **Respond** (`gateway/response/responder.rs`). The reply is streamed (`gateway/response/streamed_response.rs`) or
//!     normalised (`gateway/response/response_normalization/`). Every fault leaves through one function
//!     (`respond_with_fault` in `gateway/exchange.rs`) and one table (`fault::FaultCode`).
//! 13. **Record** one access-log entry and the metrics by code (`telemetry::AccessLog`, `telemetry::Metrics`).
//!
//! Pipeline steps, WebSocket messages and tasks from the MQTT bridge take the same steps as subrequests
//! (`gateway/subrequest.rs`). Tasks and calls with an idempotency key go on without their caller
//! (`gateway/background/background_call.rs`).
//!
//! # Modules
//! A module imports only modules that the table in `tests/it/code_structure.rs` lists for it, so modules form no cycles.

pub mod admin;
pub mod agent;
pub mod app;
pub mod audit;
pub mod auth;
pub mod cli;
pub mod config;
pub mod console;
pub mod contract;
pub mod demo;
pub mod directory;
pub mod doctor;
pub mod explain;
pub mod fault;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
pub mod gateway;
pub mod http_server;
pub mod idempotency;
pub mod key_management;
pub mod limit;
pub mod mqtt_bridge;
pub mod mqtt_client;
pub mod net;
pub mod registry;
pub mod resolver;
pub mod search;
pub mod signing;
pub mod store;
pub mod task;
pub mod telemetry;
pub mod trace;
pub mod transport;
pub mod values;
pub mod web_page;
