//! What an agent's answers say of how many calls it has in good time. Little's law is the whole idea: an agent with
//! calls to spare answers as fast whatever it has; one that is full has them wait, so half as many calls take half as
//! long. The bound falls only where it is reached and the answers are slower than usual, and comes back where fewer
//! calls did not make them faster: then the agent has become slower by nature, and not by what it was sent.
//!
//! A call adds to one number here. Only what closes a window of calls thinks, under a lock that nobody waits for. There
//! is no clock in here.

use super::usual::{Memory, Seen};
use std::{
    num::NonZeroU32,
    sync::{
        Mutex, PoisonError, TryLockError,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

/// Answers that are worth a thought, and how long they are gathered at least.
const ENOUGH: u32 = 32;
const SHORTEST: Duration = Duration::from_millis(100);
/// Answers that have to do where an agent gives few, and for how long more are waited for.
pub(super) const FEW: u32 = 8;
const LONG: Duration = Duration::from_secs(1);
/// Answers that a window has room for, with as much again for those that come while it is closed.
const MOST: u32 = 2_048;
/// One call in so many is looked at while an agent is far from its bound.
const SPARSE: u32 = 16;

/// The least and the most that may be learnt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) least: u32,
    pub(super) most: u32,
}

impl Range {
    /// None where there is nothing to learn.
    pub(super) fn of(least: u32, most: NonZeroU32) -> Option<Self> {
        (least < most.get()).then(|| Self { least: least.max(1), most: most.get() })
    }

    pub(super) fn clamp(self, bound: u32) -> u32 {
        bound.clamp(self.least, self.most)
    }
}

/// The bound of one agent, learnt.
#[derive(Debug)]
pub(super) struct Learner {
    bound: AtomicU32,
    /// Whether it is known how fast the agent usually is.
    knows: AtomicBool,
    turn: AtomicU32,
    /// When the window began, in microseconds.
    since: AtomicU64,
    window: AtomicU64,
    failures: AtomicU32,
    reached: AtomicBool,
    memory: Mutex<Memory>,
}

impl Learner {
    /// Begins with the most: without evidence nobody is refused.
    pub(super) fn new(range: Range, now: Duration) -> Self {
        Self {
            bound: AtomicU32::new(range.most),
            knows: AtomicBool::new(false),
            turn: AtomicU32::new(0),
            since: AtomicU64::new(micros(now)),
            window: AtomicU64::new(0),
            failures: AtomicU32::new(0),
            reached: AtomicBool::new(false),
            memory: Mutex::new(Memory::new(range, now)),
        }
    }

    /// Calls that may wait for an answer at once.
    pub(super) fn bound(&self) -> u32 {
        self.bound.load(Relaxed)
    }

    /// Whether a call that begins now, as one of so many that wait, is to be looked at. Others save the clock.
    pub(super) fn wants(&self, waiting: u32) -> bool {
        !self.knows.load(Relaxed) || self.is_reached(waiting) || self.turn.fetch_add(1, Relaxed).is_multiple_of(SPARSE)
    }

    /// An answer has begun, as one of so many that were waited for. The bound, where that changes it.
    pub(super) fn answered(&self, (began, now): (Duration, Duration), waiting: u32) -> Option<u32> {
        // What began under another bound says nothing of this one.
        if micros(began) < self.since.load(Relaxed) {
            return None;
        }
        self.note(waiting);
        let one = packed(level(now.saturating_sub(began)));
        let window = self.window.fetch_add(one, Relaxed).wrapping_add(one);
        self.close(window, now, waiting)
    }

    /// The agent said that it has too much to do, or nothing in its time. The bound, where that changes it.
    pub(super) fn failed(&self, now: Duration, waiting: u32) -> Option<u32> {
        self.note(waiting);
        self.failures.fetch_add(1, Relaxed);
        self.close(self.window.load(Relaxed), now, waiting)
    }

    /// How fast the agent usually is, once that is known.
    pub(super) fn usual(&self) -> Option<Duration> {
        let memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        memory.usual().map(|octaves| Duration::from_secs_f64(octaves.exp2() / 1e6))
    }

    fn is_reached(&self, waiting: u32) -> bool {
        waiting.saturating_mul(2) >= self.bound()
    }

    fn note(&self, waiting: u32) {
        if self.is_reached(waiting) && !self.reached.load(Relaxed) {
            self.reached.store(true, Relaxed);
        }
    }

    fn is_due(&self, window: u64, now: Duration) -> bool {
        let answers = count(window).saturating_add(self.failures.load(Relaxed));
        let lasts = micros(now).saturating_sub(self.since.load(Relaxed));
        let for_long = |span: Duration| lasts >= micros(span);
        answers >= MOST || answers >= ENOUGH && for_long(SHORTEST) || answers >= FEW && for_long(LONG)
    }

    fn close(&self, window: u64, now: Duration, waiting: u32) -> Option<u32> {
        if !self.is_due(window, now) {
            return None;
        }
        let mut memory = match self.memory.try_lock() {
            Ok(memory) => memory,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            // Another closes it.
            Err(TryLockError::WouldBlock) => return None,
        };
        // Another may have closed it between the two looks.
        if !self.is_due(self.window.load(Relaxed), now) {
            return None;
        }
        let window = self.window.swap(0, Relaxed);
        let (failures, reached) = (self.failures.swap(0, Relaxed), self.reached.swap(false, Relaxed));
        self.since.store(micros(now), Relaxed);
        let bound = memory.learn(&Seen::new(window_of(window), (failures, reached), (waiting, now)));
        self.knows.store(memory.usual().is_some(), Relaxed);
        (self.bound.swap(bound, Relaxed) != bound).then_some(bound)
    }
}

pub(super) fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}

// A window is one number, so that a call adds to it at once: from the top, 16 bits count the answers, 20 hold the sum of
// their levels and 28 that of the squares, which is room for 4095 answers.
const SUM: u32 = 28;
const COUNT: u32 = 48;

/// A span as its binary logarithm, in eighths above that of 8 microseconds; 0 to 247, which is four hours and more.
fn level(span: Duration) -> u64 {
    let micros = micros(span).clamp(1 << 3, (1 << 34) - 1);
    let octave = micros.ilog2();
    u64::from(octave - 3) * 8 + ((micros >> (octave - 3)) & 7)
}

fn packed(level: u64) -> u64 {
    (1 << COUNT) | (level << SUM) | (level * level)
}

fn count(window: u64) -> u32 {
    u32::try_from(window >> COUNT).unwrap_or(u32::MAX)
}

/// How many answers, and mean and deviation of their octaves above one microsecond.
fn window_of(window: u64) -> (u32, f64, f64) {
    let count = count(window);
    let many = f64::from(count.max(1));
    let part = |shift: u32, bits: u32| ((window >> shift) & ((1 << bits) - 1)) as f64 / many;
    let (mean, square) = (part(SUM, COUNT - SUM), part(0, SUM));
    (count, mean / 8.0 + 3.0, (square - mean * mean).max(0.0).sqrt() / 8.0)
}
