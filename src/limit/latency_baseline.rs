//! Latency baseline of an agent, and the adaptive limit that follows from it, window by window. Latencies are binary
//! logarithms (octaves above a microsecond). If an agent has two kinds of calls, one a hundred times as long as the
//! other, the spread yields a large standard error, where an arithmetic mean would jump.

use super::concurrency_range::ConcurrencyRange;
use std::time::Duration;

/// Octaves above the baseline beyond which the limit falls (1.5 times the latency), and up to which it rises (1.2
/// times).
const DECREASE_THRESHOLD: f64 = 0.585;
const INCREASE_THRESHOLD: f64 = 0.29;
/// Additional latency that is always tolerated, in microseconds, because the gateway's own scheduling may cause it.
const SLACK_MICROS: f64 = 5_000.0;
/// Standard errors of a window's mean that count as noise.
const NOISE_STANDARD_ERRORS: f64 = 3.0;
/// Bounds of the factor by which the limit falls in one window.
const MIN_DECREASE_FACTOR: f64 = 0.1;
const MAX_DECREASE_FACTOR: f64 = 0.9;
/// Factor by which the limit falls if the agent fails one call in [`FAILURE_RATIO`].
const FAILURE_DECREASE_FACTOR: f64 = 0.7;
const FAILURE_RATIO: u32 = 10;
/// Octaves by which the latency must improve with half as many calls; otherwise load is not the cause.
const MIN_IMPROVEMENT: f64 = 0.25;
/// A limit that is not reached does not fall below this.
const MIN_UNREACHED_LIMIT: u32 = 64;
/// Windows after which the baseline is measured again, and the minimum time in between.
const EPOCH_WINDOWS: u32 = 40;
const MIN_EPOCH_LENGTH: Duration = Duration::from_secs(10);
/// Share of the limit that stays for the window that measures the baseline.
const PROBE_SHARE: f64 = 0.6;

/// Samples that suffice for a window of an agent with few calls.
pub(super) const SPARSE_WINDOW_SAMPLES: u32 = 8;

/// Number of samples in a window, and the mean and deviation of their latencies, in octaves above a microsecond.
#[derive(Clone, Copy, Debug)]
pub(super) struct SampleStatistics {
    pub(super) samples: u32,
    pub(super) mean_level: f64,
    pub(super) deviation: f64,
}

/// A window of latency samples.
#[derive(Clone, Copy, Debug)]
pub(super) struct SampleWindow {
    samples: u32,
    /// Mean latency, in octaves above a microsecond.
    level: f64,
    /// Standard error of the level.
    standard_error: f64,
    failures: u32,
    /// Whether at least half of the limit was in use.
    reached: bool,
    /// Calls that wait for a response at the end of the window.
    waiting: u32,
    /// End of the window.
    now: Duration,
}

impl SampleWindow {
    pub(super) fn new(statistics: SampleStatistics, failures: u32, reached: bool, waiting: u32, now: Duration) -> Self {
        let SampleStatistics { samples, mean_level: level, deviation } = statistics;
        let standard_error = deviation / f64::from(samples.max(1)).sqrt();
        Self { samples, level, standard_error, failures, reached, waiting, now }
    }

    fn is_failing(&self) -> bool {
        self.failures > 0 && self.failures.saturating_mul(FAILURE_RATIO) >= self.samples.saturating_add(self.failures)
    }
}

/// Latency baseline of an agent, and the adaptive limit.
#[derive(Debug)]
pub(super) struct LatencyBaseline {
    range: ConcurrencyRange,
    limit: u32,
    /// Lowest level of a window in this epoch.
    current: Option<f64>,
    /// Lowest level of a window in the previous epoch.
    previous: Option<f64>,
    /// Number of windows in this epoch.
    windows: u32,
    epoch_start: Duration,
    /// Limit in use when the limit started to fall, and the latency level at that time.
    decrease_start: Option<(u32, f64)>,
    /// Limit to restore after this window, if the window measures the baseline.
    limit_after_probe: Option<u32>,
}

impl LatencyBaseline {
    pub(super) fn new(range: ConcurrencyRange, now: Duration) -> Self {
        Self {
            range,
            limit: range.max,
            current: None,
            previous: None,
            windows: 0,
            epoch_start: now,
            decrease_start: None,
            limit_after_probe: None,
        }
    }

    /// Returns the latency level of the agent without load, once it is known.
    pub(super) fn baseline_level(&self) -> Option<f64> {
        match (self.current, self.previous) {
            (Some(current), Some(previous)) => Some(current.min(previous)),
            (current, previous) => current.or(previous),
        }
    }

    /// Updates the baseline and the limit from a window; returns the new limit.
    pub(super) fn update(&mut self, window: &SampleWindow) -> u32 {
        if let Some(limit) = self.limit_after_probe.take() {
            self.limit = limit;
            if window.samples >= SPARSE_WINDOW_SAMPLES {
                self.start_epoch(window.now, Some(window.level + window.standard_error));
            }
            return self.limit;
        }
        if window.samples >= SPARSE_WINDOW_SAMPLES {
            // The minimum of many means is below the true mean by chance; the standard error compensates.
            let level = window.level + window.standard_error;
            self.current = Some(self.current.map_or(level, |current| current.min(level)));
        }
        self.windows = self.windows.saturating_add(1);
        if window.reached {
            self.limit = self.range.clamp(self.next_limit(window));
        } else {
            self.decrease_start = None;
            // This limit refuses no call yet, but is near if calls continue to accumulate.
            if self.is_slower(window) {
                self.limit =
                    self.range.clamp(window.waiting.saturating_mul(2).max(MIN_UNREACHED_LIMIT).min(self.limit));
            }
        }
        if self.windows >= EPOCH_WINDOWS && window.now.saturating_sub(self.epoch_start) >= MIN_EPOCH_LENGTH {
            self.end_epoch(window);
        }
        self.limit
    }

    fn is_slower(&self, window: &SampleWindow) -> bool {
        self.slowdown(window)
            .is_some_and(|slowdown| slowdown > DECREASE_THRESHOLD + NOISE_STANDARD_ERRORS * window.standard_error)
    }

    /// Returns by how many octaves the responses are slower than the baseline.
    fn slowdown(&self, window: &SampleWindow) -> Option<f64> {
        let baseline = self.baseline_level().filter(|_| window.samples >= SPARSE_WINDOW_SAMPLES)?;
        Some(window.level - (baseline.exp2() + SLACK_MICROS).log2())
    }

    /// Computes the limit after a window in which the limit was reached.
    fn next_limit(&mut self, window: &SampleWindow) -> u32 {
        let limit_in_use = self.limit.min(window.waiting.max(self.limit / 2));
        if window.is_failing() {
            self.decrease_start = None;
            return scale(limit_in_use, FAILURE_DECREASE_FACTOR);
        }
        let Some(slowdown) = self.slowdown(window) else { return self.limit };
        if !self.is_slower(window) {
            self.decrease_start = None;
            let may_rise = slowdown <= INCREASE_THRESHOLD + NOISE_STANDARD_ERRORS / 2.0 * window.standard_error;
            return if may_rise { self.limit.saturating_add((self.limit / 8).max(1)) } else { self.limit };
        }
        match self.decrease_start {
            // Responses are as slow with fewer calls: the agent became slower, and load is not the cause.
            Some((start_limit, start_level))
                if limit_in_use <= scale(start_limit, PROBE_SHARE) && start_level - window.level < MIN_IMPROVEMENT =>
            {
                self.decrease_start = None;
                self.start_epoch(window.now, Some(window.level + window.standard_error));
                return start_limit;
            }
            Some((start_limit, _)) if limit_in_use <= scale(start_limit, PROBE_SHARE) => {
                self.decrease_start = Some((limit_in_use, window.level));
            }
            Some(_) => {}
            None => self.decrease_start = Some((limit_in_use, window.level)),
        }
        scale(limit_in_use, (INCREASE_THRESHOLD - slowdown).exp2().clamp(MIN_DECREASE_FACTOR, MAX_DECREASE_FACTOR))
    }

    /// Ends an epoch. While the limit is reached, every window may be slow; a window with a lower limit then measures
    /// the baseline.
    fn end_epoch(&mut self, window: &SampleWindow) {
        if window.reached && self.limit < self.range.max && !window.is_failing() {
            self.limit_after_probe = Some(self.limit);
            self.limit = self.range.clamp(scale(self.limit, PROBE_SHARE));
        } else {
            self.previous = self.current;
            self.start_epoch(window.now, None);
        }
    }

    fn start_epoch(&mut self, now: Duration, baseline: Option<f64>) {
        if baseline.is_some() {
            self.previous = None;
        }
        (self.current, self.windows, self.epoch_start) = (baseline, 0, now);
    }
}

/// Returns a share of a limit, rounded down.
fn scale(limit: u32, share: f64) -> u32 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 ≤ share ≤ 1")]
    let scaled = (f64::from(limit) * share) as u32;
    scaled
}
