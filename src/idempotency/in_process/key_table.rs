//! Table of idempotency keys. A call in progress is never dropped, because it could then be made twice.

use crate::idempotency::{
    config::IdempotencyConfig,
    first_call_waiter::FirstCallWaiter,
    first_outcome::FirstOutcome,
    idempotency_store::{ClaimedKey, KeyRefusal, StoredKey},
    key_hash::KeyHash,
};
use std::{
    collections::{HashMap, VecDeque},
    time::{Duration, Instant},
};
use tokio::sync::watch;

/// Approximate size of an entry besides its response, in bytes.
const ENTRY_OVERHEAD: usize = 512;

#[derive(Clone, Debug)]
enum FirstCallState {
    Running,
    Done(FirstOutcome),
    /// The call did not reach the agent: a waiting call may be made instead.
    Abandoned,
}

#[derive(Debug)]
struct KeyEntry {
    digest: [u8; 32],
    state: watch::Sender<FirstCallState>,
    size: usize,
    claim_number: u64,
}

#[derive(Debug)]
struct CompletedCall {
    ended_at: Instant,
    claimed: ClaimedKey,
}

/// The keys, and the completed calls in the order in which they are dropped.
#[derive(Debug, Default)]
pub(super) struct KeyTable {
    entries: HashMap<KeyHash, KeyEntry>,
    /// Completed calls, in the order of completion.
    completed: VecDeque<CompletedCall>,
    /// The completed calls whose responses are stored, in the same order.
    with_response: VecDeque<ClaimedKey>,
    size: usize,
    last_claim_number: u64,
}

impl KeyTable {
    /// Looks up a key, and claims it if it is new and there is room.
    pub(super) fn look_up_or_claim(
        &mut self,
        key: KeyHash,
        digest: [u8; 32],
        config: &IdempotencyConfig,
    ) -> Result<StoredKey, KeyRefusal> {
        if let Some(entry) = self.entries.get(&key) {
            if entry.digest != digest {
                return Err(KeyRefusal::DifferentRequest);
            }
            return Ok(match &*entry.state.borrow() {
                FirstCallState::Done(outcome) => StoredKey::Completed(outcome.clone()),
                _ => StoredKey::InProgress(FirstCallWaiter::new(wait_for_outcome(entry.state.subscribe()))),
            });
        }
        if !self.make_room(1, ENTRY_OVERHEAD, config) {
            return Err(KeyRefusal::TooManyInProgress);
        }
        self.last_claim_number += 1;
        let claim_number = self.last_claim_number;
        self.size += ENTRY_OVERHEAD;
        let state = watch::Sender::new(FirstCallState::Running);
        self.entries.insert(key, KeyEntry { digest, state, size: ENTRY_OVERHEAD, claim_number });
        Ok(StoredKey::Claimed(ClaimedKey { key, claim_number }))
    }

    /// Completes a call. A response that is too large is not stored.
    pub(super) fn complete(&mut self, claimed: ClaimedKey, outcome: FirstOutcome, config: &IdempotencyConfig) {
        if self.running_entry(claimed).is_none() {
            return;
        }
        let size = outcome.response_size();
        let is_stored = size <= config.max_response_size.get() && self.make_room(0, size, config);
        let stored = if is_stored { outcome } else { FirstOutcome::NotStored };
        let size = if is_stored { size } else { 0 };
        self.size += size;
        if let Some(entry) = self.running_entry(claimed) {
            entry.size += size;
            entry.state.send_replace(FirstCallState::Done(stored));
        }
        self.completed.push_back(CompletedCall { ended_at: Instant::now(), claimed });
        if size > 0 {
            self.with_response.push_back(claimed);
        }
    }

    /// Releases the key of a call that did not reach its agent.
    pub(super) fn release(&mut self, claimed: ClaimedKey) {
        if self.running_entry(claimed).is_some()
            && let Some(entry) = self.entries.remove(&claimed.key)
        {
            self.size -= entry.size;
            entry.state.send_replace(FirstCallState::Abandoned);
        }
    }

    /// Drops the keys whose calls ended `ttl` ago.
    pub(super) fn remove_expired(&mut self, now: Instant, ttl: Duration) {
        while self.completed.front().is_some_and(|call| now.duration_since(call.ended_at) >= ttl) {
            self.remove_oldest();
        }
    }

    fn running_entry(&mut self, claimed: ClaimedKey) -> Option<&mut KeyEntry> {
        let is_running = |entry: &&mut KeyEntry| matches!(*entry.state.borrow(), FirstCallState::Running);
        self.claimed_entry(claimed).filter(is_running)
    }

    fn claimed_entry(&mut self, claimed: ClaimedKey) -> Option<&mut KeyEntry> {
        self.entries.get_mut(&claimed.key).filter(|entry| entry.claim_number == claimed.claim_number)
    }

    /// Drops the key of the call that ended first. Returns whether there was one.
    fn remove_oldest(&mut self) -> bool {
        let Some(CompletedCall { claimed, .. }) = self.completed.pop_front() else { return false };
        self.with_response.pop_front_if(|oldest| *oldest == claimed);
        if self.claimed_entry(claimed).is_some()
            && let Some(entry) = self.entries.remove(&claimed.key)
        {
            self.size -= entry.size;
        }
        true
    }

    /// Drops the oldest response and keeps its key, so that its call is not repeated. Returns whether there was one.
    fn drop_oldest_response(&mut self) -> bool {
        let Some(claimed) = self.with_response.pop_front() else { return false };
        if let Some(entry) = self.claimed_entry(claimed) {
            let response_size = entry.size - ENTRY_OVERHEAD;
            entry.size = ENTRY_OVERHEAD;
            entry.state.send_replace(FirstCallState::Done(FirstOutcome::NotStored));
            self.size -= response_size;
        }
        true
    }

    /// Makes room for new entries and bytes: drops old responses, then old entries. Returns whether there is room.
    fn make_room(&mut self, entries: usize, bytes: usize, config: &IdempotencyConfig) -> bool {
        if bytes > config.max_size.get() {
            return false;
        }
        while self.size + bytes > config.max_size.get() && self.drop_oldest_response() {}
        while self.entries.len() + entries > config.max_keys as usize || self.size + bytes > config.max_size.get() {
            if !self.remove_oldest() {
                return false;
            }
        }
        true
    }

    #[cfg(test)]
    pub(super) fn entry_count_and_size(&self) -> (usize, usize) {
        (self.entries.len(), self.size)
    }
}

/// Waits until the first call is complete, or did not reach the agent.
async fn wait_for_outcome(mut state: watch::Receiver<FirstCallState>) -> Option<FirstOutcome> {
    match state.wait_for(|state| !matches!(state, FirstCallState::Running)).await {
        Ok(state) => match &*state {
            FirstCallState::Done(outcome) => Some(outcome.clone()),
            _ => None,
        },
        Err(_) => None,
    }
}
