//! Gatepost: one endpoint in front of many AI agents.
//!
//! # A call, in order
//! 1. **Arrive.** A `Call` exists from the first byte; its guard counts and logs it however it ends.
//! 2. **Hygiene.** Ambiguous framing, look-alike headers, a missing or doubled `Host`, oversized heads: refused.
//! 3. **Target.** Path and method become what is asked.
//! 4. **Limit by address**, before any credential is looked at.
//! 5. **Find** the agent and operation in the snapshot; a miss is answered only after authentication.
//! 6. **Authenticate**, as the agent's `authentication` decides, then **authorise** by grants and scopes.
//! 7. **Limit** by caller, caller × agent, agent, quota and concurrency, before a byte of input is read.
//! 8. **Contract.** Bounded read, parsed once, checked against the schema; an array becomes a batch.
//! 9. **`Admitted`** is made, by `gateway` alone: what was not admitted cannot be forwarded.
//! 10. **Once.** A call with an idempotency key that was made before is answered as it was, and stops here.
//! 11. **Transport.** Our credential instead of the caller's, within the deadline, retried only when safe.
//! 12. **Reply.** Streamed through, or normalised: every fault leaves through one function and one table.
//! 13. **Record.** One access-log line, counters by code.
//!
//! # Rooms
//! A room is a module here, and may name only rooms above it: `tests/it/tidy.rs` holds the table.

pub mod admin;
pub mod agent;
pub mod app;
pub mod auth;
pub mod cli;
pub mod config;
pub mod contract;
pub mod demo;
pub mod directory;
pub mod fault;
pub mod gateway;
pub mod idempotency;
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
pub mod transport;
pub mod values;
