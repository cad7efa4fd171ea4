//! The claim on a key for its first call.

use super::{
    first_outcome::FirstOutcome,
    idempotency_store::{ClaimedKey, IdempotencyStore},
};
use crate::{
    fault::{Fault, FaultCode, Result},
    values::StoreAnswer,
};
use std::{sync::Arc, time::Duration};

/// The claim on a key for making its first call. Dropping it releases the key, unless the call has begun: then its outcome
/// is unknown.
#[derive(Debug)]
pub struct FirstCallClaim {
    store: Arc<dyn IdempotencyStore>,
    /// `None` as soon as the call is complete.
    claimed: Option<ClaimedKey>,
    has_begun: bool,
}

impl FirstCallClaim {
    pub(super) fn new(store: Arc<dyn IdempotencyStore>, claimed: ClaimedKey) -> Self {
        Self { store, claimed: Some(claimed), has_begun: false }
    }

    /// Begins the call: from now on the agent may receive it, and the key is released only by [`FirstCallClaim::release`].
    /// A call that is dropped because the process ends, or because of a defect, is not made again.
    ///
    /// # Errors
    /// `Overloaded`: the claim was lost, because this gateway was suspended for longer than the store keeps a claim.
    pub fn begin(&mut self) -> Result<()> {
        if self.claimed.is_some_and(|claimed| !self.store.may_begin(claimed)) {
            let message = "The gateway was suspended, and lost the claim on the Idempotency-Key";
            return Err(Fault::new(FaultCode::Overloaded, message).with_retry_after(Duration::from_secs(1)));
        }
        self.has_begun = true;
        Ok(())
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
    pub fn release(mut self) -> StoreAnswer<'static, ()> {
        self.has_begun = false;
        drop(self);
        StoreAnswer::Ready(())
    }
}

impl Drop for FirstCallClaim {
    fn drop(&mut self) {
        let Some(claimed) = self.claimed.take() else { return };
        if self.has_begun {
            // The store completes it without being waited for.
            drop(self.store.complete(claimed, FirstOutcome::Unknown));
        } else {
            self.store.release(claimed);
        }
    }
}
