//! What is remembered of calls that are made once.

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

/// What an entry costs besides its answer, about.
const OVERHEAD: usize = 512;

/// A first answer.
#[derive(Clone, Debug)]
pub enum Answer {
    /// A whole answer.
    Whole {
        /// The status.
        status: StatusCode,
        /// The fields that the caller read.
        headers: HeaderMap,
        /// The body.
        body: Bytes,
    },
    /// A failure that says the agent may have done its work.
    Failed(Fault),
    /// It was a stream, or too large to be kept.
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

/// Whose key, for which agent.
type Name = (Arc<str>, Arc<str>, Box<str>);

#[derive(Clone, Debug)]
enum State {
    Running,
    Done(Answer),
    /// The call never reached the agent: whoever waits may make it.
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
    /// Ended calls in the order of their ends.
    ended: VecDeque<(Instant, Name, u64)>,
    /// Those of them whose answers are kept, in the same order.
    kept: VecDeque<(Name, u64)>,
    size: usize,
    number: u64,
}

/// The calls that are remembered.
#[derive(Debug, Default)]
pub struct Once {
    config: ArcSwap<Config>,
    memory: Mutex<Memory>,
}

/// What a key leads to.
#[derive(Debug)]
pub enum Entered {
    /// This is the first call.
    First(Ticket),
    /// The first call has this answer.
    Known(Answer),
    /// The first call is under way.
    Waits(Waiting),
}

/// The right to make a call; dropped without an answer, another may make it.
#[derive(Debug)]
pub struct Ticket {
    once: Arc<Once>,
    name: Name,
    number: u64,
}

/// A call that waits for the first.
#[derive(Debug)]
pub struct Waiting(watch::Receiver<State>);

impl Waiting {
    /// The first call's answer; none where it never reached the agent.
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
    /// A memory with nothing in it.
    pub fn new(config: &Config) -> Arc<Self> {
        Arc::new(Self { config: ArcSwap::from_pointee(config.clone()), memory: Mutex::default() })
    }

    /// Puts a changed configuration in force; what is remembered stays.
    pub fn reconfigure(&self, config: &Config) {
        self.config.store(Arc::new(config.clone()));
    }

    /// Whether keys count.
    pub fn is_on(&self) -> bool {
        self.config.load().is_on()
    }

    /// Looks a key up, and takes it where it is new. `whose` is the caller and the agent.
    ///
    /// # Errors
    /// `IdempotencyMismatch` where the key was sent with another `digest`; `Overloaded` where too many calls with keys
    /// are under way.
    pub fn enter(self: &Arc<Self>, whose: (&Arc<str>, &Arc<str>), key: &str, digest: [u8; 32]) -> Result<Entered> {
        let config = self.config.load();
        let name: Name = (Arc::clone(whose.0), Arc::clone(whose.1), key.into());
        let mut memory = self.lock();
        memory.forget(Instant::now(), config.keep.get());
        if let Some(entry) = memory.entries.get(&name) {
            if entry.digest != digest {
                let text = "the Idempotency-Key was sent before with another body or operation (send a new key)";
                return Err(Fault::new(Code::IdempotencyMismatch, text));
            }
            let receiver = entry.state.subscribe();
            let state = receiver.borrow().clone();
            return Ok(match state {
                State::Done(answer) => Entered::Known(answer),
                _ => Entered::Waits(Waiting(receiver)),
            });
        }
        if !memory.make_room((1, OVERHEAD), &config) {
            let busy = Fault::new(Code::Overloaded, "too many calls with an Idempotency-Key are under way");
            return Err(busy.retry_after(Duration::from_secs(1)));
        }
        memory.number += 1;
        let number = memory.number;
        memory.size += OVERHEAD;
        let state = watch::Sender::new(State::Running);
        memory.entries.insert(name.clone(), Entry { digest, state, size: OVERHEAD, number });
        drop(memory);
        Ok(Entered::First(Ticket { once: Arc::clone(self), name, number }))
    }

    /// Bytes that one answer may have.
    pub fn max_answer(&self) -> usize {
        self.config.load().max_answer.get()
    }

    fn lock(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    pub(super) fn held(&self) -> (usize, usize) {
        let memory = self.lock();
        (memory.entries.len(), memory.size)
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

    /// Lets go of the oldest answer, and remembers that there was one: its call is not made again for want of room.
    fn strip_oldest(&mut self) -> bool {
        let Some((name, number)) = self.kept.pop_front() else { return false };
        if let Some(entry) = self.entries.get_mut(&name).filter(|entry| entry.number == number) {
            self.size -= entry.size - OVERHEAD;
            entry.size = OVERHEAD;
            entry.state.send_replace(State::Done(Answer::Unkept));
        }
        true
    }

    /// Whether there is room for so many entries and bytes more, once old answers are let go, and then forgotten.
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
    /// The answer of the first call, for whoever waits and whoever comes. One that is too large is not kept.
    pub fn answered(self, answer: Answer) {
        let config = self.once.config.load_full();
        let size = answer.size();
        let mut memory = self.once.lock();
        let fits = size <= config.max_answer.get() && memory.make_room((0, size), &config);
        let kept = if fits { answer } else { Answer::Unkept };
        let size = if fits { size } else { 0 };
        memory.size += size;
        if let Some(entry) = memory.entries.get_mut(&self.name) {
            entry.size += size;
            entry.state.send_replace(State::Done(kept));
        }
        memory.ended.push_back((Instant::now(), self.name.clone(), self.number));
        if size > 0 {
            memory.kept.push_back((self.name.clone(), self.number));
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut memory = self.once.lock();
        let mine = |entry: &Entry| entry.number == self.number && matches!(*entry.state.borrow(), State::Running);
        if memory.entries.get(&self.name).is_some_and(mine)
            && let Some(entry) = memory.entries.remove(&self.name)
        {
            memory.size -= entry.size;
            entry.state.send_replace(State::Dropped);
        }
    }
}
