//! The claim on a key for its first call.

use super::{
    first_outcome::FirstOutcome,
    idempotency_store::{ClaimedKey, IdempotencyStore},
};
use crate::values::StoreAnswer;
use std::sync::Arc;

/// The claim on a key for making its first call. Dropping it without an outcome releases the key.
#[derive(Debug)]
pub struct FirstCallClaim {
    store: Arc<dyn IdempotencyStore>,
    /// `None` as soon as the call is complete.
    claimed: Option<ClaimedKey>,
}

impl FirstCallClaim {
    pub(super) fn new(store: Arc<dyn IdempotencyStore>, claimed: ClaimedKey) -> Self {
        Self { store, claimed: Some(claimed) }
    }

    /// Completes the first call, for waiting and later calls. A response that is too large is not stored.
    ///
    /// The answer is ready when later calls find the outcome. From now on the key is never released, also if the answer
    /// is dropped: the agent may have executed the call.
    pub fn complete(mut self, outcome: FirstOutcome) -> StoreAnswer<'static, ()> {
        match self.claimed.take() {
            Some(claimed) => self.store.complete(claimed, outcome),
            None => StoreAnswer::Ready(()),
        }
    }

    /// Releases the key: the call certainly did not reach the agent, and a retry may make it.
    pub fn release(self) -> StoreAnswer<'static, ()> {
        drop(self);
        StoreAnswer::Ready(())
    }
}

impl Drop for FirstCallClaim {
    fn drop(&mut self) {
        if let Some(claimed) = self.claimed.take() {
            self.store.release(claimed);
        }
    }
}
