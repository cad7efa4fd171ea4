//! Concurrent calls to an agent of all gateways together. The server of the shared state leases slots to gateways
//! ([`lease_server`]); a call takes a slot that its gateway has, or draws one. Each gateway has an account of each agent's
//! slots ([`lease_account`]). One task renews the leases of all agents, draws, and gives slots back
//! ([`lease_exchanger`]).
//!
//! # How exact it is
//! While the server answers and keeps its data, the slots of all gateways never exceed the maximum of an agent, and each
//! call has a slot. A gateway keeps slots for its next calls only while the gateways together use at most half of the
//! maximum. A slot that a gateway wants to give back is not used again before the server has taken note of it. A gateway
//! whose leases have ended, because the server could not be reached, goes on with the calls in progress; they count first
//! when it is reached again.

mod lease_account;
mod lease_context;
mod lease_exchanger;
mod lease_server;
mod shared_concurrency_limiter;
mod shared_slots;

pub(super) use lease_server::LeaseServer;
pub(super) use shared_concurrency_limiter::{SharedConcurrencyLimiter, SharedSlot};
pub(super) use shared_slots::SharedSlots;
