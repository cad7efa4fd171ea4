//! Table of idempotency keys. A call in progress is never dropped, because it could then be made twice; nor is a key
//! dropped to make room for the keys of a client that has more of them.

use super::client_table::ClientTable;
use crate::{
    idempotency::{
        config::IdempotencyConfig,
        first_call_waiter::FirstCallWaiter,
        first_outcome::FirstOutcome,
        idempotency_store::{ClaimedKey, KeyRefusal, NewKey, StoredKey},
        key_hash::KeyHash,
    },
    values::ClientKey,
};
use std::{
    collections::{BTreeMap, HashMap},
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
    client: ClientKey,
    claim_number: u64,
    /// The number of the completion, in the order of completion; `None` while the call is in progress.
    completion: Option<u64>,
}

#[derive(Debug)]
struct CompletedCall {
    ended_at: Instant,
    key: KeyHash,
}

/// The keys, and the completed calls in the order in which they are dropped.
#[derive(Debug, Default)]
pub(super) struct KeyTable {
    entries: HashMap<KeyHash, KeyEntry>,
    /// Completed calls, in the order of completion.
    completed: BTreeMap<u64, CompletedCall>,
    clients: ClientTable,
    size: usize,
    /// The number of the last claim or completion.
    last_number: u64,
}

impl KeyTable {
    /// Looks up a key, and claims it if it is new and there is room.
    pub(super) fn look_up_or_claim(
        &mut self,
        new_key: NewKey,
        config: &IdempotencyConfig,
    ) -> Result<StoredKey, KeyRefusal> {
        let NewKey { key, digest, client } = new_key;
        if let Some(entry) = self.entries.get(&key) {
            if entry.digest != digest {
                return Err(KeyRefusal::DifferentRequest);
            }
            return Ok(match &*entry.state.borrow() {
                FirstCallState::Done(outcome) => StoredKey::Completed(outcome.clone()),
                _ => StoredKey::InProgress(FirstCallWaiter::new(wait_for_outcome(entry.state.subscribe()))),
            });
        }
        self.make_room(client, 1, ENTRY_OVERHEAD, config)?;
        let claim_number = self.next_number();
        let state = watch::Sender::new(FirstCallState::Running);
        self.size += ENTRY_OVERHEAD;
        self.clients.add(client, 1, ENTRY_OVERHEAD);
        let entry = KeyEntry { digest, state, size: ENTRY_OVERHEAD, client, claim_number, completion: None };
        self.entries.insert(key, entry);
        Ok(StoredKey::Claimed(ClaimedKey { key, claim_number }))
    }

    /// Completes a call. A response that is too large is not stored.
    pub(super) fn complete(&mut self, claimed: ClaimedKey, outcome: FirstOutcome, config: &IdempotencyConfig) {
        let Some(client) = self.running_entry(claimed).map(|entry| entry.client) else { return };
        let size = outcome.response_size();
        let is_stored = size <= config.max_response_size.get() && self.make_room(client, 0, size, config).is_ok();
        let stored = if is_stored { outcome } else { FirstOutcome::NotStored };
        let size = if is_stored { size } else { 0 };
        let completion = self.next_number();
        self.size += size;
        self.clients.add(client, 0, size);
        if let Some(entry) = self.running_entry(claimed) {
            entry.size += size;
            entry.completion = Some(completion);
            entry.state.send_replace(FirstCallState::Done(stored));
        }
        self.completed.insert(completion, CompletedCall { ended_at: Instant::now(), key: claimed.key });
        self.clients.record_completion(client, completion, size > 0);
    }

    /// Releases the key of a call that did not reach its agent.
    pub(super) fn release(&mut self, claimed: ClaimedKey) {
        if self.running_entry(claimed).is_some()
            && let Some(entry) = self.remove(&claimed.key)
        {
            entry.state.send_replace(FirstCallState::Abandoned);
        }
    }

    /// Drops the keys whose calls ended `ttl` ago.
    pub(super) fn remove_expired(&mut self, now: Instant, ttl: Duration) {
        while let Some(oldest) = self.completed.first_entry()
            && now.duration_since(oldest.get().ended_at) >= ttl
        {
            let key = oldest.get().key;
            self.remove(&key);
        }
    }

    fn next_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    fn running_entry(&mut self, claimed: ClaimedKey) -> Option<&mut KeyEntry> {
        let entry = self.entries.get_mut(&claimed.key)?;
        (entry.claim_number == claimed.claim_number && entry.completion.is_none()).then_some(entry)
    }

    /// Drops a key.
    fn remove(&mut self, key: &KeyHash) -> Option<KeyEntry> {
        let entry = self.entries.remove(key)?;
        self.size -= entry.size;
        if let Some(completion) = entry.completion {
            self.completed.remove(&completion);
            self.clients.forget_completion(entry.client, completion);
        }
        self.clients.subtract(entry.client, 1, entry.size);
        Some(entry)
    }

    /// Drops the key of a completed call. Returns whether there is one.
    fn remove_completed(&mut self, completion: Option<u64>) -> bool {
        let key = completion.and_then(|completion| self.completed.get(&completion)).map(|call| call.key);
        key.is_some_and(|key| self.remove(&key).is_some())
    }

    /// Drops the response of a completed call and keeps its key, so that its call is not repeated. Returns whether there
    /// is one.
    fn drop_response(&mut self, completion: Option<u64>) -> bool {
        let Some(call) = completion.and_then(|completion| self.completed.get(&completion)) else { return false };
        let Some(entry) = self.entries.get_mut(&call.key) else { return false };
        let response_size = entry.size - ENTRY_OVERHEAD;
        entry.size = ENTRY_OVERHEAD;
        entry.state.send_replace(FirstCallState::Done(FirstOutcome::NotStored));
        self.size -= response_size;
        self.clients.forget_response(entry.client, completion.unwrap_or_default());
        self.clients.subtract(entry.client, 0, response_size);
        true
    }

    /// Makes room for new entries and bytes of a client: drops old responses, and for an entry old entries, of the client
    /// if it has its share, otherwise of the client that has the most.
    fn make_room(
        &mut self,
        client: ClientKey,
        entries: usize,
        bytes: usize,
        config: &IdempotencyConfig,
    ) -> Result<(), KeyRefusal> {
        let (max_keys, max_size) = (config.max_keys as usize, config.max_size.get());
        let (own_keys, own_size) = (config.max_share.of(max_keys), config.max_share.of(max_size));
        if bytes > own_size {
            return Err(KeyRefusal::TooManyOfClient);
        }
        while self.clients.size_of(client) + bytes > own_size
            && self.drop_response(self.clients.oldest_response(client))
        {}
        while self.clients.keys_of(client) + entries > own_keys || self.clients.size_of(client) + bytes > own_size {
            // A key is worth more than a response: without it a call is repeated.
            if entries == 0 || !self.remove_completed(self.clients.oldest_completion(client)) {
                let is_share = !config.max_share.is_unlimited();
                return Err(if is_share { KeyRefusal::TooManyOfClient } else { KeyRefusal::TooManyInProgress });
            }
        }
        while self.size + bytes > max_size && self.drop_response(self.clients.oldest_response_of_largest()) {}
        while self.entries.len() + entries > max_keys || self.size + bytes > max_size {
            if entries == 0 || !self.remove_completed(self.clients.oldest_completion_of_largest(client)) {
                return Err(KeyRefusal::TooManyInProgress);
            }
        }
        Ok(())
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
