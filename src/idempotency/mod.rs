//! Idempotency keys (draft-ietf-httpapi-idempotency-key-header): stores the first response to a key for its caller and
//! agent, and replays it; a repeated call waits for the first one. The keys are in an [`IdempotencyStore`]: in this process,
//! or in the state that gateways share.

mod config;
mod first_call_claim;
mod first_call_waiter;
mod first_outcome;
mod idempotency_keys;
mod idempotency_store;
mod in_process;
mod key_hash;
mod shared;

pub use config::{IdempotencyConfig, OnDataLoss};
pub use first_call_claim::FirstCallClaim;
pub use first_call_waiter::FirstCallWaiter;
pub use first_outcome::FirstOutcome;
pub use idempotency_keys::{IDEMPOTENCY_KEY, IdempotencyKeys, KeyLookup, KeyedRequest, parse_key};
pub use idempotency_store::{ClaimedKey, IdempotencyStore, KeyRefusal, NewKey, StoredKey};
pub use key_hash::{KeyHash, request_digest};

#[cfg(test)]
mod tests;
