//! The claims of this gateway: those whose calls are in progress, and those whose outcomes are not stored yet.

use crate::{
    idempotency::{
        first_call_waiter::FirstCallWaiter,
        first_outcome::FirstOutcome,
        idempotency_store::{ClaimedKey, KeyRefusal, NewKey, StoredKey},
        key_hash::KeyHash,
    },
    store::KeyClaim,
};
use std::{collections::HashMap, time::Duration};
use tokio::{sync::watch, time::Instant};

/// Approximate size of an outcome that waits to be stored, besides its response.
pub(super) const PENDING_OVERHEAD: usize = 1_024;

#[derive(Clone, Debug)]
enum CallState {
    Running,
    Done(FirstOutcome),
    /// The call did not reach the agent: a waiting call may be made instead.
    Abandoned,
}

/// A claim that the server has confirmed.
#[derive(Debug)]
struct OwnClaim {
    claim: KeyClaim,
    state: watch::Sender<CallState>,
    /// When the request was sent by which the server confirmed the lease last.
    confirmed_at: Instant,
    /// Whether the key belongs to another claim now.
    is_lost: bool,
    /// What the outcome counts while it waits to be stored.
    pending_size: usize,
}

/// The bounds of outcomes that wait to be stored.
#[derive(Clone, Copy, Debug)]
pub(super) struct PendingBounds {
    /// Bytes of all, and of one client.
    pub(super) max_size: usize,
    pub(super) max_client_size: usize,
}

/// An outcome that is to be stored.
#[derive(Debug)]
pub(super) struct PendingOutcome {
    pub(super) claim: KeyClaim,
    pub(super) outcome: FirstOutcome,
}

/// The claims, and what their outcomes count.
#[derive(Debug, Default)]
pub(super) struct ClaimTable {
    claims: HashMap<KeyHash, OwnClaim>,
    pending_size: usize,
    pending_by_client: HashMap<u64, usize>,
}

impl ClaimTable {
    /// Adds a claim that the server confirmed to a request that was sent at `confirmed_at`.
    pub(super) fn add(&mut self, key: KeyHash, claim: KeyClaim, confirmed_at: Instant) {
        let state = watch::Sender::new(CallState::Running);
        let added = OwnClaim { claim, state, confirmed_at, is_lost: false, pending_size: 0 };
        if let Some(previous) = self.claims.insert(key, added) {
            // The server gave the key to the new claim, so the previous one was lost.
            self.subtract_pending(&previous);
        }
    }

    /// Answers for a key of this gateway; `None` if it has no claim of the key.
    pub(super) fn find(&self, new_key: &NewKey) -> Option<Result<StoredKey, KeyRefusal>> {
        let own = self.claims.get(&new_key.key).filter(|own| !own.is_lost)?;
        if own.claim.digest != new_key.digest {
            return Some(Err(KeyRefusal::DifferentRequest));
        }
        let state = own.state.borrow();
        Some(Ok(match &*state {
            CallState::Done(outcome) => StoredKey::Completed(outcome.clone()),
            _ => StoredKey::InProgress(FirstCallWaiter::new(wait_for_outcome(own.state.subscribe()))),
        }))
    }

    /// Returns a waiter for a claim of this gateway; `None` if it is not in the table.
    pub(super) fn waiter(&self, key: &KeyHash, number: u64) -> Option<FirstCallWaiter> {
        let own = self.claims.get(key).filter(|own| own.claim.number == number)?;
        Some(FirstCallWaiter::new(wait_for_outcome(own.state.subscribe())))
    }

    /// Completes a call, and returns what is to be stored. An outcome for which there is no room until it is stored is
    /// replaced by [`FirstOutcome::NotStored`].
    pub(super) fn complete(
        &mut self,
        claimed: ClaimedKey,
        outcome: FirstOutcome,
        bounds: PendingBounds,
    ) -> Option<PendingOutcome> {
        let client = self.running(claimed)?.claim.client;
        let size = outcome.response_size() + PENDING_OVERHEAD;
        let of_client = self.pending_by_client.get(&client).copied().unwrap_or_default();
        let has_room = self.pending_size + size <= bounds.max_size && of_client + size <= bounds.max_client_size;
        let (kept, size) = if has_room { (outcome.clone(), size) } else { (FirstOutcome::NotStored, PENDING_OVERHEAD) };
        self.pending_size += size;
        *self.pending_by_client.entry(client).or_default() += size;
        let own = self.running(claimed)?;
        own.pending_size = size;
        own.state.send_replace(CallState::Done(kept.clone()));
        Some(PendingOutcome { claim: own.claim, outcome: kept })
    }

    /// Removes a claim whose outcome was stored or given up.
    pub(super) fn remove(&mut self, claim: &KeyClaim) {
        let key = KeyHash::from_bytes(claim.key);
        if self.claims.get(&key).is_some_and(|own| own.claim.number == claim.number)
            && let Some(own) = self.claims.remove(&key)
        {
            self.subtract_pending(&own);
        }
    }

    /// Releases a claim: its waiting calls look the key up again. Returns it if it was in progress.
    pub(super) fn release(&mut self, claimed: ClaimedKey) -> Option<KeyClaim> {
        self.running(claimed)?;
        let own = self.claims.remove(&claimed.key)?;
        own.state.send_replace(CallState::Abandoned);
        Some(own.claim)
    }

    /// Returns the claims whose leases were confirmed at `before` or earlier.
    pub(super) fn due_claims(&self, before: Instant) -> Vec<KeyClaim> {
        let is_due = |own: &&OwnClaim| !own.is_lost && own.confirmed_at <= before;
        self.claims.values().filter(is_due).map(|own| own.claim).collect()
    }

    /// Records that the server extended the lease of a claim. Returns whether the claim is still in the table.
    pub(super) fn record_extension(&mut self, claim: &KeyClaim, confirmed_at: Instant) -> bool {
        let Some(own) = self.claims.get_mut(&KeyHash::from_bytes(claim.key)) else { return false };
        if own.claim.number != claim.number {
            return false;
        }
        own.confirmed_at = confirmed_at;
        true
    }

    /// Records that the key belongs to another claim.
    pub(super) fn record_loss(&mut self, claim: &KeyClaim) {
        if let Some(own) = self.claims.get_mut(&KeyHash::from_bytes(claim.key))
            && own.claim.number == claim.number
        {
            own.is_lost = true;
        }
    }

    /// Returns whether the server confirmed the claim less than `validity` ago, and has not given the key away.
    pub(super) fn is_valid(&self, claimed: ClaimedKey, validity: Duration) -> bool {
        self.claims.get(&claimed.key).is_some_and(|own| {
            own.claim.number == claimed.claim_number && !own.is_lost && own.confirmed_at.elapsed() < validity
        })
    }

    /// Returns whether there is no claim.
    pub(super) fn is_empty(&self) -> bool {
        self.claims.is_empty()
    }

    fn running(&mut self, claimed: ClaimedKey) -> Option<&mut OwnClaim> {
        let own = self.claims.get_mut(&claimed.key)?;
        let is_running = matches!(*own.state.borrow(), CallState::Running);
        (is_running && own.claim.number == claimed.claim_number).then_some(own)
    }

    fn subtract_pending(&mut self, own: &OwnClaim) {
        self.pending_size = self.pending_size.saturating_sub(own.pending_size);
        if let Some(size) = self.pending_by_client.get_mut(&own.claim.client) {
            *size = size.saturating_sub(own.pending_size);
            if *size == 0 {
                self.pending_by_client.remove(&own.claim.client);
            }
        }
    }
}

/// Waits until the call is complete, or did not reach the agent. A claim that is dropped without either was lost.
async fn wait_for_outcome(mut state: watch::Receiver<CallState>) -> Option<FirstOutcome> {
    match state.wait_for(|state| !matches!(state, CallState::Running)).await {
        Ok(state) => match &*state {
            CallState::Done(outcome) => Some(outcome.clone()),
            _ => None,
        },
        Err(_) => None,
    }
}
