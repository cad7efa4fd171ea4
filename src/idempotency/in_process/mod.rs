//! The idempotency store of one process: in memory, bounded in number, bytes and time.

mod client_table;
mod in_process_idempotency_store;
mod key_table;

pub(super) use in_process_idempotency_store::InProcessIdempotencyStore;
