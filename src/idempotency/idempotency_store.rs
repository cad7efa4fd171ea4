//! The store behind which idempotency keys and the outcomes of their first calls are kept.

use super::{
    config::IdempotencyConfig, first_call_waiter::FirstCallWaiter, first_outcome::FirstOutcome, key_hash::KeyHash,
};
use crate::values::{ClientKey, StoreAnswer};
use std::{fmt::Debug, time::Duration};

/// A key that a call looks up, and claims if it is new.
#[derive(Clone, Copy, Debug)]
pub struct NewKey {
    /// The key.
    pub key: KeyHash,
    /// Identifies the request.
    pub digest: [u8; 32],
    /// The client whose share the key counts against.
    pub client: ClientKey,
}

/// A key that a call has claimed, and the claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClaimedKey {
    /// The key.
    pub key: KeyHash,
    /// Number that no other claim of the key has. A call whose claim was lost cannot change the claim of another call.
    pub claim_number: u64,
}

/// State of a key that was looked up.
#[derive(Debug)]
pub enum StoredKey {
    /// The key was new, and now belongs to the call.
    Claimed(ClaimedKey),
    /// The first call is complete.
    Completed(FirstOutcome),
    /// The first call is in progress.
    InProgress(FirstCallWaiter),
}

/// Reason why a key was not looked up or claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyRefusal {
    /// The key was used with another request.
    DifferentRequest,
    /// The client has its share, and all of its first calls are in progress.
    TooManyOfClient,
    /// The store has no room, because too many first calls are in progress.
    TooManyInProgress,
    /// The store cannot tell whether the key was used. The call is refused, because it might be made twice.
    StoreUnavailable,
    /// The store has lost its data, and cannot tell whether the key was used before.
    DataLost {
        /// Time until keys are claimed again.
        retry_after: Duration,
    },
}

/// Stores idempotency keys. One store serves a gateway from its start to its end; a reload reconfigures it.
///
/// # Contract
/// - Of the calls that look up one key at once, at any gateway that uses the store, one claims it.
/// - A key is dropped to make room for a key of the same client, or if its client has the most keys of all.
/// - A key in progress is never dropped to make room, because its call could then be made twice. A shared store gives a
///   claim a lease that the gateway extends; after a lost lease the outcome of the call is unknown, and its key stays
///   until `ttl` has passed.
/// - An answer that is dropped before it is ready leaves no claim behind. A store that sends its requests elsewhere
///   releases a claim that no call waited for.
pub trait IdempotencyStore: Debug + Send + Sync {
    /// Looks up a key, and claims it if it is new.
    fn look_up_or_claim(&self, key: NewKey) -> StoreAnswer<'_, Result<StoredKey, KeyRefusal>>;

    /// Completes the first call, for calls that wait and for later calls. The store may keep
    /// [`FirstOutcome::NotStored`] instead of a response that is too large. Has no effect if the claim was lost.
    ///
    /// The answer is ready when every gateway sees the outcome. It owns what it needs. If it is dropped earlier, the key
    /// is completed or stays in progress, and is never released.
    fn complete(&self, claimed: ClaimedKey, outcome: FirstOutcome) -> StoreAnswer<'static, ()>;

    /// Returns whether a call may be sent now: its claim is still its own, as far as this gateway knows. A claim can be lost
    /// while its gateway was suspended.
    fn may_begin(&self, _claimed: ClaimedKey) -> bool {
        true
    }

    /// Releases a key whose call certainly did not reach the agent: a waiting or later call becomes the first one. Has no
    /// effect if the claim was lost or is complete.
    ///
    /// Runs when a claim is dropped, which may be outside the runtime, so that it must not wait. A shared store hands the
    /// release to its own task; if the release is lost, the lease of the claim ends.
    fn release(&self, claimed: ClaimedKey);

    /// Applies a changed configuration; stored keys stay.
    fn reconfigure(&self, config: &IdempotencyConfig);

    /// Waits until no claim of this gateway is in progress, and every outcome and release has reached the other gateways:
    /// before the process ends.
    fn settle(&self) -> StoreAnswer<'static, ()> {
        StoreAnswer::Ready(())
    }
}
