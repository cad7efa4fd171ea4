//! In-memory store of idempotency keys and the responses to their first calls.

use super::IdempotencyConfig;
use crate::fault::{Fault, FaultCode, Result};
use arc_swap::ArcSwap;
use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use parking_lot::{Mutex, MutexGuard};
use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::sync::watch;

/// Approximate size of an entry besides its response, in bytes.
const ENTRY_OVERHEAD: usize = 512;

/// Outcome of the first call.
#[derive(Clone, Debug)]
pub enum FirstOutcome {
    /// A complete response.
    Response {
        /// HTTP status.
        status: StatusCode,
        /// Headers, as the caller received them.
        headers: HeaderMap,
        /// Body.
        body: Bytes,
    },
    /// A failure after which the agent may have executed the call.
    Failed(Fault),
    /// The response was a stream, or too large to be stored.
    NotStored,
}

impl FirstOutcome {
    fn size(&self) -> usize {
        match self {
            Self::Response { headers, body, .. } => {
                headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum::<usize>() + body.len()
            }
            _ => 0,
        }
    }
}

/// Caller, agent and key.
type ScopedKey = (Arc<str>, Arc<str>, Box<str>);

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
    number: u64,
}

#[derive(Debug, Default)]
struct KeyTable {
    entries: HashMap<ScopedKey, KeyEntry>,
    /// Completed calls, in the order of completion.
    completed: VecDeque<(Instant, ScopedKey, u64)>,
    /// The completed calls whose responses are stored, in the same order.
    with_response: VecDeque<(ScopedKey, u64)>,
    size: usize,
    last_number: u64,
}

/// The idempotency keys and the state of their first calls.
#[derive(Debug, Default)]
pub struct IdempotencyStore {
    config: ArcSwap<IdempotencyConfig>,
    table: Mutex<KeyTable>,
}

/// Result of looking up a key.
#[derive(Debug)]
pub enum KeyLookup {
    /// The key is new: the call is the first one.
    Claimed(FirstCallClaim),
    /// The first call is complete.
    Completed(FirstOutcome),
    /// The first call is in progress.
    InProgress(FirstCallWaiter),
}

/// The claim on a key for making its first call. Dropping it without a response releases the key.
#[derive(Debug)]
pub struct FirstCallClaim {
    store: Arc<IdempotencyStore>,
    name: ScopedKey,
    number: u64,
}

/// Waits for the first call with the same key.
#[derive(Debug)]
pub struct FirstCallWaiter(watch::Receiver<FirstCallState>);

impl FirstCallWaiter {
    /// Waits for the outcome of the first call; `None` if that call did not reach the agent.
    pub async fn wait(mut self) -> Option<FirstOutcome> {
        match self.0.wait_for(|state| !matches!(state, FirstCallState::Running)).await {
            Ok(state) => match &*state {
                FirstCallState::Done(outcome) => Some(outcome.clone()),
                _ => None,
            },
            Err(_) => None,
        }
    }
}

impl IdempotencyStore {
    /// Creates an empty store.
    pub fn new(config: &IdempotencyConfig) -> Arc<Self> {
        Arc::new(Self { config: ArcSwap::from_pointee(config.clone()), table: Mutex::default() })
    }

    /// Applies a changed configuration; stored entries stay.
    pub fn reconfigure(&self, config: &IdempotencyConfig) {
        self.config.store(Arc::new(config.clone()));
    }

    /// Whether idempotency keys are in use.
    pub fn is_enabled(&self) -> bool {
        self.config.load().is_enabled()
    }

    /// Looks up a key of this caller for this agent, and claims it if it is new.
    ///
    /// # Errors
    /// `IdempotencyMismatch` if the key was used with another `digest`; `Overloaded` if too many calls with keys are in
    /// progress.
    pub fn look_up_or_claim(
        self: &Arc<Self>,
        caller_and_agent: (&Arc<str>, &Arc<str>),
        key: &str,
        digest: [u8; 32],
    ) -> Result<KeyLookup> {
        let config = self.config.load();
        let name: ScopedKey = (Arc::clone(caller_and_agent.0), Arc::clone(caller_and_agent.1), key.into());
        let mut table = self.lock();
        table.remove_expired(Instant::now(), config.ttl.get());
        if let Some(entry) = table.entries.get(&name) {
            if entry.digest != digest {
                let message = "The Idempotency-Key was already used with another body or operation (send a new key)";
                return Err(Fault::new(FaultCode::IdempotencyMismatch, message));
            }
            let receiver = entry.state.subscribe();
            let state = receiver.borrow().clone();
            return Ok(match state {
                FirstCallState::Done(outcome) => KeyLookup::Completed(outcome),
                _ => KeyLookup::InProgress(FirstCallWaiter(receiver)),
            });
        }
        if !table.make_room(1, ENTRY_OVERHEAD, &config) {
            let fault = Fault::new(FaultCode::Overloaded, "Too many calls with an Idempotency-Key are in progress");
            return Err(fault.with_retry_after(Duration::from_secs(1)));
        }
        table.last_number += 1;
        let number = table.last_number;
        table.size += ENTRY_OVERHEAD;
        let state = watch::Sender::new(FirstCallState::Running);
        table.entries.insert(name.clone(), KeyEntry { digest, state, size: ENTRY_OVERHEAD, number });
        drop(table);
        Ok(KeyLookup::Claimed(FirstCallClaim { store: Arc::clone(self), name, number }))
    }

    /// Maximum size of one response, in bytes.
    pub fn max_response_size(&self) -> usize {
        self.config.load().max_response_size.get()
    }

    fn lock(&self) -> MutexGuard<'_, KeyTable> {
        self.table.lock()
    }

    #[cfg(test)]
    pub(super) fn entry_count_and_size(&self) -> (usize, usize) {
        let table = self.lock();
        (table.entries.len(), table.size)
    }
}

impl KeyTable {
    fn remove_expired(&mut self, now: Instant, ttl: Duration) {
        while self.completed.front().is_some_and(|(ended, ..)| now.duration_since(*ended) >= ttl) {
            self.remove_oldest();
        }
    }

    fn remove_oldest(&mut self) -> bool {
        let Some((_, name, number)) = self.completed.pop_front() else { return false };
        if self.with_response.front().is_some_and(|(_, other)| *other == number) {
            self.with_response.pop_front();
        }
        if self.entries.get(&name).is_some_and(|entry| entry.number == number)
            && let Some(entry) = self.entries.remove(&name)
        {
            self.size -= entry.size;
        }
        true
    }

    /// Drops the oldest response and keeps its key, so that its call is not repeated.
    fn drop_oldest_response(&mut self) -> bool {
        let Some((name, number)) = self.with_response.pop_front() else { return false };
        if let Some(entry) = self.entries.get_mut(&name).filter(|entry| entry.number == number) {
            self.size -= entry.size - ENTRY_OVERHEAD;
            entry.size = ENTRY_OVERHEAD;
            entry.state.send_replace(FirstCallState::Done(FirstOutcome::NotStored));
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
}

impl FirstCallClaim {
    /// Completes the first call, for waiting and later calls. A response that is too large is not stored.
    pub fn complete(self, outcome: FirstOutcome) {
        let config = self.store.config.load_full();
        let size = outcome.size();
        let mut table = self.store.lock();
        let is_stored = size <= config.max_response_size.get() && table.make_room(0, size, &config);
        let stored = if is_stored { outcome } else { FirstOutcome::NotStored };
        let size = if is_stored { size } else { 0 };
        table.size += size;
        if let Some(entry) = table.entries.get_mut(&self.name) {
            entry.size += size;
            entry.state.send_replace(FirstCallState::Done(stored));
        }
        table.completed.push_back((Instant::now(), self.name.clone(), self.number));
        if size > 0 {
            table.with_response.push_back((self.name.clone(), self.number));
        }
    }
}

impl Drop for FirstCallClaim {
    fn drop(&mut self) {
        let mut table = self.store.lock();
        let is_own_entry =
            |entry: &KeyEntry| entry.number == self.number && matches!(*entry.state.borrow(), FirstCallState::Running);
        if table.entries.get(&self.name).is_some_and(is_own_entry)
            && let Some(entry) = table.entries.remove(&self.name)
        {
            table.size -= entry.size;
            entry.state.send_replace(FirstCallState::Abandoned);
        }
    }
}
