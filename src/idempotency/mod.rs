//! Idempotency keys (draft-ietf-httpapi-idempotency-key-header): stores the first response to a key for its caller and
//! agent, and replays it; a repeated call waits for the first one. The keys are in an [`IdempotencyStore`], which may be
//! in this process or shared.

mod config;
mod first_call_claim;
mod first_call_waiter;
mod first_outcome;
mod idempotency_keys;
mod idempotency_store;
mod in_process;
mod key_hash;
mod key_header;

pub use config::IdempotencyConfig;
pub use first_call_claim::FirstCallClaim;
pub use first_call_waiter::FirstCallWaiter;
pub use first_outcome::FirstOutcome;
pub use idempotency_keys::{IdempotencyKeys, KeyLookup, KeyedRequest};
pub use idempotency_store::{ClaimedKey, IdempotencyStore, KeyRefusal, StoredKey};
pub use key_hash::{KeyHash, request_digest};
pub use key_header::{IDEMPOTENCY_KEY, parse_key};

#[cfg(test)]
mod tests;
