//! The idempotency store in the state that gateways share. A key is claimed there before its call is sent; the claims of
//! this gateway are also in a table of its own, by which their leases are extended and its own repeated calls answered.

mod claim_attempt;
mod claim_table;
mod outcome_encoding;
mod outcome_poll;
mod outcome_writer;
mod release_queue;
mod shard_history;
mod shared_idempotency_store;
mod shared_keys;
mod upkeep;

pub(super) use shared_idempotency_store::SharedIdempotencyStore;

#[cfg(test)]
mod tests;
