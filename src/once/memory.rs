//! In-memory store of idempotency keys and the responses to their first calls.

use super::Config;
use crate::fault::{Code, Fault, Result};
use arc_swap::ArcSwap;
use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};
use tokio::sync::watch;

/// Approximate size of an entry besides its response, in bytes.
const OVERHEAD: usize = 512;

/// Outcome of the first call.
#[derive(Clone, Debug)]
pub enum Answer {
    /// A complete response.
    Whole {
        /// HTTP status.
        status: StatusCode,
        /// Headers, as the caller received them.
        headers: HeaderMap,
        /// Body.
        body: Bytes,
    },
    /// A failure after which the agent may have done its work.
    Failed(Fault),
    /// The response was a stream, or too large to be stored.
    Unkept,
}

impl Answer {
    fn size(&self) -> usize {
        match self {
            Self::Whole { headers, body, .. } => {
                headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum::<usize>() + body.len()
            }
            _ => 0,
        }
    }
}

/// Caller, agent and key.
type Name = (Arc<str>, Arc<str>, Box<str>);

#[derive(Clone, Debug)]
enum State {
    Running,
    Done(Answer),
    /// The call did not reach the agent: a waiting call may be made instead.
    Dropped,
}

#[derive(Debug)]
struct Entry {
    digest: [u8; 32],
    state: watch::Sender<State>,
    size: usize,
    number: u64,
}

#[derive(Debug, Default)]
struct Memory {
    entries: HashMap<Name, Entry>,
    /// Completed calls in the order of completion.
    ended: VecDeque<(Instant, Name, u64)>,
    /// Those of them whose responses are stored, in the same order.
    kept: VecDeque<(Name, u64)>,
    size: usize,
    number: u64,
}

/// The idempotency keys and the state of their first calls.
#[derive(Debug, Default)]
pub struct Once {
    config: ArcSwap<Config>,
    memory: Mutex<Memory>,
}

/// Result of looking up a key.
#[derive(Debug)]
pub enum Entered {
    /// The key is new: the call is the first one.
    First(Ticket),
    /// The first call is complete.
    Known(Answer),
    /// The first call is in progress.
    Waits(Waiting),
}

/// The claim on a key for making its first call. Dropping it without a response releases the key.
#[derive(Debug)]
pub struct Ticket {
    once: Arc<Once>,
    name: Name,
    number: u64,
}

/// Waits for the first call with the same key.
#[derive(Debug)]
pub struct Waiting(watch::Receiver<State>);

impl Waiting {
    /// Waits for the outcome of the first call; `None` if that call did not reach the agent.
    pub async fn answer(mut self) -> Option<Answer> {
        match self.0.wait_for(|state| !matches!(state, State::Running)).await {
            Ok(state) => match &*state {
                State::Done(answer) => Some(answer.clone()),
                _ => None,
            },
            Err(_) => None,
        }
    }
}

impl Once {
    /// Creates an empty store.
    pub fn new(config: &Config) -> Arc<Self> {
        Arc::new(Self { config: ArcSwap::from_pointee(config.clone()), memory: Mutex::default() })
    }

    /// Applies a changed configuration; stored entries stay.
    pub fn reconfigure(&self, config: &Config) {
        self.config.store(Arc::new(config.clone()));
    }

    /// Whether idempotency keys are in use.
    pub fn is_on(&self) -> bool {
        self.config.load().is_on()
    }

    /// Looks up a key and claims it if it is new. `whose` is the caller and the agent.
    ///
    /// # Errors
    /// `IdempotencyMismatch` if the key was used with another `digest`; `Overloaded` if too many calls with keys are in
    /// progress.
    pub fn enter(self: &Arc<Self>, whose: (&Arc<str>, &Arc<str>), key: &str, digest: [u8; 32]) -> Result<Entered> {
        let config = self.config.load();
        let name: Name = (Arc::clone(whose.0), Arc::clone(whose.1), key.into());
        let mut table = self.lock();
        table.forget(Instant::now(), config.keep.get());
        if let Some(entry) = table.entries.get(&name) {
            if entry.digest != digest {
                let text = "The Idempotency-Key was already used with another body or operation (send a new key)";
                return Err(Fault::new(Code::IdempotencyMismatch, text));
            }
            let receiver = entry.state.subscribe();
            let state = receiver.borrow().clone();
            return Ok(match state {
                State::Done(answer) => Entered::Known(answer),
                _ => Entered::Waits(Waiting(receiver)),
            });
        }
        if !table.make_room((1, OVERHEAD), &config) {
            let busy = Fault::new(Code::Overloaded, "Too many calls with an Idempotency-Key are in progress");
            return Err(busy.retry_after(Duration::from_secs(1)));
        }
        table.number += 1;
        let number = table.number;
        table.size += OVERHEAD;
        let state = watch::Sender::new(State::Running);
        table.entries.insert(name.clone(), Entry { digest, state, size: OVERHEAD, number });
        drop(table);
        Ok(Entered::First(Ticket { once: Arc::clone(self), name, number }))
    }

    /// Maximum size of one response, in bytes.
    pub fn max_answer(&self) -> usize {
        self.config.load().max_answer.get()
    }

    fn lock(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    pub(super) fn held(&self) -> (usize, usize) {
        let table = self.lock();
        (table.entries.len(), table.size)
    }
}

impl Memory {
    fn forget(&mut self, now: Instant, keep: Duration) {
        while self.ended.front().is_some_and(|(ended, ..)| now.duration_since(*ended) >= keep) {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) -> bool {
        let Some((_, name, number)) = self.ended.pop_front() else { return false };
        if self.kept.front().is_some_and(|(_, kept)| *kept == number) {
            self.kept.pop_front();
        }
        if self.entries.get(&name).is_some_and(|entry| entry.number == number)
            && let Some(entry) = self.entries.remove(&name)
        {
            self.size -= entry.size;
        }
        true
    }

    /// Drops the oldest response and keeps its key, so that its call is not repeated.
    fn strip_oldest(&mut self) -> bool {
        let Some((name, number)) = self.kept.pop_front() else { return false };
        if let Some(entry) = self.entries.get_mut(&name).filter(|entry| entry.number == number) {
            self.size -= entry.size - OVERHEAD;
            entry.size = OVERHEAD;
            entry.state.send_replace(State::Done(Answer::Unkept));
        }
        true
    }

    /// Makes room for that many entries and bytes by dropping old responses, then old entries; whether that succeeded.
    fn make_room(&mut self, (entries, bytes): (usize, usize), config: &Config) -> bool {
        if bytes > config.size.get() {
            return false;
        }
        while self.size + bytes > config.size.get() && self.strip_oldest() {}
        while self.entries.len() + entries > config.most as usize || self.size + bytes > config.size.get() {
            if !self.forget_oldest() {
                return false;
            }
        }
        true
    }
}

impl Ticket {
    /// Completes the first call, for waiting and later calls. A response that is too large is not stored.
    pub fn answered(self, answer: Answer) {
        let config = self.once.config.load_full();
        let size = answer.size();
        let mut table = self.once.lock();
        let fits = size <= config.max_answer.get() && table.make_room((0, size), &config);
        let kept = if fits { answer } else { Answer::Unkept };
        let size = if fits { size } else { 0 };
        table.size += size;
        if let Some(entry) = table.entries.get_mut(&self.name) {
            entry.size += size;
            entry.state.send_replace(State::Done(kept));
        }
        table.ended.push_back((Instant::now(), self.name.clone(), self.number));
        if size > 0 {
            table.kept.push_back((self.name.clone(), self.number));
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut table = self.once.lock();
        let mine = |entry: &Entry| entry.number == self.number && matches!(*entry.state.borrow(), State::Running);
        if table.entries.get(&self.name).is_some_and(mine)
            && let Some(entry) = table.entries.remove(&self.name)
        {
            table.size -= entry.size;
            entry.state.send_replace(State::Dropped);
        }
    }
}
