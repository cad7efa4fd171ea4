//! Adaptive concurrency limit of one agent, derived from the latency of its responses by Little's law: an agent with
//! spare capacity responds as fast at any concurrency; a saturated agent queues calls, so half as many calls take half
//! as long. The limit falls only when it is reached and responses are slower than the baseline. It rises again if fewer
//! calls did not make responses faster: then the agent itself became slower, and the gateway's load is not the cause.
//!
//! A call adds to one atomic number here. Only the call that completes a window of samples evaluates the window, under
//! a lock that no call waits for. Callers pass the time in.

use super::usual::{Memory, Seen};
use std::{
    num::NonZeroU32,
    sync::{
        Mutex, PoisonError, TryLockError,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

/// Samples that complete a window, and the minimum length of such a window.
const ENOUGH: u32 = 32;
const SHORTEST: Duration = Duration::from_millis(100);
/// Samples that suffice for an agent with few calls, and the minimum length of such a window.
pub(super) const FEW: u32 = 8;
const LONG: Duration = Duration::from_secs(1);
/// Samples that complete a window of any length; the packed window has room for as many again while it is closed.
const MOST: u32 = 2_048;
/// One call in this many is sampled while the agent is far from its limit.
const SPARSE: u32 = 16;

/// Bounds of the adaptive limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) least: u32,
    pub(super) most: u32,
}

impl Range {
    /// Returns the range, or `None` if its bounds leave nothing to adapt.
    pub(super) fn of(least: u32, most: NonZeroU32) -> Option<Self> {
        (least < most.get()).then(|| Self { least: least.max(1), most: most.get() })
    }

    pub(super) fn clamp(self, bound: u32) -> u32 {
        bound.clamp(self.least, self.most)
    }
}

/// The adaptive concurrency limit of one agent.
#[derive(Debug)]
pub(super) struct Learner {
    bound: AtomicU32,
    /// Whether the baseline latency is known.
    knows: AtomicBool,
    turn: AtomicU32,
    /// Start of the window, in microseconds.
    since: AtomicU64,
    window: AtomicU64,
    failures: AtomicU32,
    reached: AtomicBool,
    memory: Mutex<Memory>,
}

impl Learner {
    /// Starts at the upper bound: no call is refused without evidence.
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

    /// Returns how many calls may wait for a response at once.
    pub(super) fn bound(&self) -> u32 {
        self.bound.load(Relaxed)
    }

    /// Decides whether to sample a call that starts now, with `waiting` calls pending. Other calls do not read the
    /// clock.
    pub(super) fn wants(&self, waiting: u32) -> bool {
        !self.knows.load(Relaxed) || self.is_reached(waiting) || self.turn.fetch_add(1, Relaxed).is_multiple_of(SPARSE)
    }

    /// Records the latency of a response, with `waiting` calls pending; returns the limit if it changed.
    pub(super) fn answered(&self, (began, now): (Duration, Duration), waiting: u32) -> Option<u32> {
        // A call that began under another limit says nothing about this one.
        if micros(began) < self.since.load(Relaxed) {
            return None;
        }
        self.note(waiting);
        let one = packed(level(now.saturating_sub(began)));
        let window = self.window.fetch_add(one, Relaxed).wrapping_add(one);
        self.close(window, now, waiting)
    }

    /// Records that the agent is overloaded or timed out; returns the limit if it changed.
    pub(super) fn failed(&self, now: Duration, waiting: u32) -> Option<u32> {
        self.note(waiting);
        self.failures.fetch_add(1, Relaxed);
        self.close(self.window.load(Relaxed), now, waiting)
    }

    /// Returns the baseline latency, once it is known.
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
            // Another call closes the window.
            Err(TryLockError::WouldBlock) => return None,
        };
        // Another call may have closed the window between the two checks.
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

// A window is packed into one number, so that a call adds its sample atomically: from the top, 16 bits count the
// samples, 20 bits sum their levels and 28 bits sum the squares of the levels, which is room for 4095 samples.
const SUM: u32 = 28;
const COUNT: u32 = 48;

/// Returns a latency as its binary logarithm, in eighths above 8 microseconds; 0 to 247, which is more than four hours.
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

/// Unpacks a window: the number of samples, and the mean and deviation of their octaves above one microsecond.
fn window_of(window: u64) -> (u32, f64, f64) {
    let count = count(window);
    let many = f64::from(count.max(1));
    let part = |shift: u32, bits: u32| ((window >> shift) & ((1 << bits) - 1)) as f64 / many;
    let (mean, square) = (part(SUM, COUNT - SUM), part(0, SUM));
    (count, mean / 8.0 + 3.0, (square - mean * mean).max(0.0).sqrt() / 8.0)
}
