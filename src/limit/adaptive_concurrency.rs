//! Adaptive concurrency limit of one agent, derived from the latency of its responses by Little's law. An agent with
//! spare capacity responds equally fast at any concurrency; a saturated agent queues calls, so that half as many calls
//! take half as long. The limit falls only if it is reached and responses are slower than the baseline. It rises again
//! if fewer calls do not make responses faster: then the agent itself became slower, and load is not the cause.
//!
//! A call adds its sample to one atomic number. The call that completes a window of samples evaluates the window, under
//! a lock that no call waits for. Callers of this module pass the time.

use super::{
    clock::as_micros,
    concurrency_range::ConcurrencyRange,
    latency_baseline::{LatencyBaseline, SPARSE_WINDOW_SAMPLES, SampleStatistics, SampleWindow},
};
use parking_lot::Mutex;
use std::{
    sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed},
    time::Duration,
};

/// Samples that complete a window, and the minimum length of such a window.
const FULL_WINDOW_SAMPLES: u32 = 32;
const FULL_WINDOW_MIN_LENGTH: Duration = Duration::from_millis(100);
/// Minimum length of a window with [`SPARSE_WINDOW_SAMPLES`].
const SPARSE_WINDOW_MIN_LENGTH: Duration = Duration::from_secs(1);
/// Samples that complete a window of any length. The packed window has room for twice as many, because calls add
/// samples while it is evaluated.
const MAX_WINDOW_SAMPLES: u32 = 2_048;
/// One call in this many is sampled while the agent is far from its limit.
const SAMPLE_ONE_IN: u32 = 16;

/// The adaptive concurrency limit of one agent.
#[derive(Debug)]
pub(super) struct AdaptiveLimit {
    current: AtomicU32,
    /// Whether the baseline latency is known.
    has_baseline: AtomicBool,
    sample_counter: AtomicU32,
    /// Start of the window, in microseconds.
    window_start: AtomicU64,
    window: AtomicU64,
    failures: AtomicU32,
    reached: AtomicBool,
    baseline: Mutex<LatencyBaseline>,
}

impl AdaptiveLimit {
    /// Creates the limit at its upper bound, so that no call is refused without evidence.
    pub(super) fn new(range: ConcurrencyRange, now: Duration) -> Self {
        Self {
            current: AtomicU32::new(range.max),
            has_baseline: AtomicBool::new(false),
            sample_counter: AtomicU32::new(0),
            window_start: AtomicU64::new(as_micros(now)),
            window: AtomicU64::new(0),
            failures: AtomicU32::new(0),
            reached: AtomicBool::new(false),
            baseline: Mutex::new(LatencyBaseline::new(range, now)),
        }
    }

    /// Returns how many calls may wait for a response at once.
    pub(super) fn current(&self) -> u32 {
        self.current.load(Relaxed)
    }

    /// Counts a call that starts now, while `waiting` calls wait for a response, and decides whether it is sampled. Calls
    /// that are not sampled do not read the clock.
    pub(super) fn select_for_sampling(&self, waiting: u32) -> bool {
        !self.has_baseline.load(Relaxed)
            || self.is_limit_reached(waiting)
            || self.sample_counter.fetch_add(1, Relaxed).is_multiple_of(SAMPLE_ONE_IN)
    }

    /// Records the latency of a response, while `waiting` calls wait for a response. Returns the limit if it changed.
    pub(super) fn record_response(&self, started_at: Duration, now: Duration, waiting: u32) -> Option<u32> {
        // A call that started in an earlier window, under another limit, is no sample of this window.
        if as_micros(started_at) < self.window_start.load(Relaxed) {
            return None;
        }
        self.record_reached(waiting);
        let sample = pack_sample(latency_level(now.saturating_sub(started_at)));
        let window = self.window.fetch_add(sample, Relaxed).wrapping_add(sample);
        self.close_window_if_complete(window, now, waiting)
    }

    /// Records that the agent is overloaded or timed out. Returns the limit if it changed.
    pub(super) fn record_overload(&self, now: Duration, waiting: u32) -> Option<u32> {
        self.record_reached(waiting);
        self.failures.fetch_add(1, Relaxed);
        self.close_window_if_complete(self.window.load(Relaxed), now, waiting)
    }

    /// Returns the baseline latency, once it is known.
    pub(super) fn baseline_latency(&self) -> Option<Duration> {
        let baseline = self.baseline.lock();
        baseline.baseline_level().map(|octaves| Duration::from_secs_f64(octaves.exp2() / 1e6))
    }

    fn is_limit_reached(&self, waiting: u32) -> bool {
        waiting.saturating_mul(2) >= self.current()
    }

    fn record_reached(&self, waiting: u32) {
        if self.is_limit_reached(waiting) && !self.reached.load(Relaxed) {
            self.reached.store(true, Relaxed);
        }
    }

    fn is_window_complete(&self, window: u64, now: Duration) -> bool {
        let samples = sample_count(window).saturating_add(self.failures.load(Relaxed));
        let length = as_micros(now).saturating_sub(self.window_start.load(Relaxed));
        let is_at_least = |duration: Duration| length >= as_micros(duration);
        samples >= MAX_WINDOW_SAMPLES
            || samples >= FULL_WINDOW_SAMPLES && is_at_least(FULL_WINDOW_MIN_LENGTH)
            || samples >= SPARSE_WINDOW_SAMPLES && is_at_least(SPARSE_WINDOW_MIN_LENGTH)
    }

    fn close_window_if_complete(&self, window: u64, now: Duration, waiting: u32) -> Option<u32> {
        if !self.is_window_complete(window, now) {
            return None;
        }
        // While the lock is held, another call closes the window.
        let mut baseline = self.baseline.try_lock()?;
        // Another call may have closed the window between the two checks.
        if !self.is_window_complete(self.window.load(Relaxed), now) {
            return None;
        }
        let window = self.window.swap(0, Relaxed);
        let (failures, reached) = (self.failures.swap(0, Relaxed), self.reached.swap(false, Relaxed));
        self.window_start.store(as_micros(now), Relaxed);
        let limit = baseline.update(&SampleWindow::new(unpack_window(window), failures, reached, waiting, now));
        self.has_baseline.store(baseline.baseline_level().is_some(), Relaxed);
        (self.current.swap(limit, Relaxed) != limit).then_some(limit)
    }
}

// A window is packed into one number, so that a call adds its sample atomically: from the top, 16 bits count the
// samples, 20 bits sum their levels and 28 bits sum the squares of the levels, which is room for 4095 samples.
const SUM_SHIFT: u32 = 28;
const COUNT_SHIFT: u32 = 48;

/// Returns the level of a latency: its binary logarithm in eighths of an octave above 8 microseconds, from 0 to 247,
/// which is more than four hours.
fn latency_level(latency: Duration) -> u64 {
    let micros = as_micros(latency).clamp(1 << 3, (1 << 34) - 1);
    let octave = micros.ilog2();
    u64::from(octave - 3) * 8 + ((micros >> (octave - 3)) & 7)
}

fn pack_sample(level: u64) -> u64 {
    (1 << COUNT_SHIFT) | (level << SUM_SHIFT) | (level * level)
}

fn sample_count(window: u64) -> u32 {
    u32::try_from(window >> COUNT_SHIFT).unwrap_or(u32::MAX)
}

/// Unpacks a window.
fn unpack_window(window: u64) -> SampleStatistics {
    let samples = sample_count(window);
    let divisor = f64::from(samples.max(1));
    let mean_of = |shift: u32, bits: u32| ((window >> shift) & ((1 << bits) - 1)) as f64 / divisor;
    let (mean, square) = (mean_of(SUM_SHIFT, COUNT_SHIFT - SUM_SHIFT), mean_of(0, SUM_SHIFT));
    let deviation = (square - mean * mean).max(0.0).sqrt() / 8.0;
    SampleStatistics { samples, mean_level: mean / 8.0 + 3.0, deviation }
}
