//! Latency baseline of an agent, and the adaptive limit derived from it, window by window. Latencies are binary
//! logarithms (octaves above a microsecond): for an agent with two kinds of calls, one a hundred times as long as the
//! other, the wide spread yields a large standard error, where an arithmetic mean would jump.

use super::learn::{FEW, Range};
use std::time::Duration;

/// Octaves above the baseline beyond which the limit falls (1.5 times as slow), and up to which it rises (1.2 times).
const SLOWER: f64 = 0.585;
const AS_USUAL: f64 = 0.29;
/// Extra latency that is always tolerated, in microseconds: the gateway's own scheduling may cause it.
const SLACK: f64 = 5_000.0;
/// Standard errors of a window's mean that count as noise.
const CHANCE: f64 = 3.0;
/// Bounds of the factor by which the limit falls at once.
const STEEPEST: f64 = 0.1;
const GENTLEST: f64 = 0.9;
/// Factor by which the limit falls when the agent fails one call in [`FAILURE_RATIO`].
const FALLS: f64 = 0.7;
const FAILING: u32 = 10;
/// Octaves by which latency must improve with half as many calls; otherwise load is not the cause.
const FASTER: f64 = 0.25;
/// A limit that is not reached does not fall below this.
const ROOM: u32 = 64;
/// Windows after which the baseline is measured again, and the minimum time in between.
const EPOCH: u32 = 40;
const EPOCH_LASTS: Duration = Duration::from_secs(10);
/// Share of the limit that stays for the window that measures the baseline.
const PROBE: f64 = 0.6;

/// A window of latency samples.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    answers: u32,
    level: f64,
    /// Standard error of the level.
    doubt: f64,
    failures: u32,
    /// Whether at least half of the limit was in use.
    reached: bool,
    waiting: u32,
    now: Duration,
}

impl Seen {
    /// Builds a window from its samples (count, mean and deviation in octaves), its failures and whether the limit was
    /// reached, and the calls that wait for a response now.
    pub(super) fn new(
        (answers, level, spread): (u32, f64, f64),
        (failures, reached): (u32, bool),
        (waiting, now): (u32, Duration),
    ) -> Self {
        let doubt = spread / f64::from(answers.max(1)).sqrt();
        Self { answers, level, doubt, failures, reached, waiting, now }
    }

    fn fails(&self) -> bool {
        self.failures > 0 && self.failures.saturating_mul(FAILING) >= self.answers.saturating_add(self.failures)
    }
}

/// Latency baseline and limit.
#[derive(Debug)]
pub(super) struct Memory {
    range: Range,
    bound: u32,
    /// Lowest level of a window in this epoch, and in the previous one.
    now: Option<f64>,
    before: Option<f64>,
    windows: u32,
    epoch: Duration,
    /// Limit at which it began to fall, and the level there.
    fall: Option<(u32, f64)>,
    /// Limit to restore after this window, which measures the baseline.
    probing: Option<u32>,
}

impl Memory {
    pub(super) fn new(range: Range, now: Duration) -> Self {
        Self { range, bound: range.most, now: None, before: None, windows: 0, epoch: now, fall: None, probing: None }
    }

    /// Returns the latency level of the agent without load.
    pub(super) fn usual(&self) -> Option<f64> {
        match (self.now, self.before) {
            (Some(now), Some(before)) => Some(now.min(before)),
            (now, before) => now.or(before),
        }
    }

    /// Updates the baseline and the limit from a window; returns the new limit.
    pub(super) fn learn(&mut self, seen: &Seen) -> u32 {
        if let Some(back) = self.probing.take() {
            self.bound = back;
            if seen.answers >= FEW {
                self.begin(seen.now, Some(seen.level + seen.doubt));
            }
            return self.bound;
        }
        if seen.answers >= FEW {
            // The minimum of many means is below the true mean by chance: the standard error makes up for that.
            let level = seen.level + seen.doubt;
            self.now = Some(self.now.map_or(level, |now| now.min(level)));
        }
        self.windows = self.windows.saturating_add(1);
        if seen.reached {
            self.bound = self.range.clamp(self.next(seen));
        } else {
            self.fall = None;
            // No call is refused for this yet; if calls keep accumulating, the limit is near.
            if self.is_slower(seen) {
                self.bound = self.range.clamp(seen.waiting.saturating_mul(2).max(ROOM).min(self.bound));
            }
        }
        if self.windows >= EPOCH && seen.now.saturating_sub(self.epoch) >= EPOCH_LASTS {
            self.turn(seen);
        }
        self.bound
    }

    fn is_slower(&self, seen: &Seen) -> bool {
        self.slower(seen).is_some_and(|slower| slower > SLOWER + CHANCE * seen.doubt)
    }

    /// Returns by how many octaves the responses are slower than the baseline.
    fn slower(&self, seen: &Seen) -> Option<f64> {
        let usual = self.usual().filter(|_| seen.answers >= FEW)?;
        Some(seen.level - (usual.exp2() + SLACK).log2())
    }

    /// Computes the limit after a window in which the limit was reached.
    fn next(&mut self, seen: &Seen) -> u32 {
        let had = self.bound.min(seen.waiting.max(self.bound / 2));
        if seen.fails() {
            self.fall = None;
            return scaled(had, FALLS);
        }
        let Some(slower) = self.slower(seen) else { return self.bound };
        if !self.is_slower(seen) {
            self.fall = None;
            let rises = slower <= AS_USUAL + CHANCE / 2.0 * seen.doubt;
            return if rises { self.bound.saturating_add((self.bound / 8).max(1)) } else { self.bound };
        }
        match self.fall {
            // Fewer calls, each as slow as before: the agent became slower, and load is not the cause.
            Some((from, level)) if had <= scaled(from, PROBE) && level - seen.level < FASTER => {
                self.fall = None;
                self.begin(seen.now, Some(seen.level + seen.doubt));
                return from;
            }
            Some((from, _)) if had <= scaled(from, PROBE) => self.fall = Some((had, seen.level)),
            Some(_) => {}
            None => self.fall = Some((had, seen.level)),
        }
        scaled(had, (AS_USUAL - slower).exp2().clamp(STEEPEST, GENTLEST))
    }

    /// Ends an epoch. While the limit holds calls back, every window may be slow: a window with fewer calls measures
    /// the baseline.
    fn turn(&mut self, seen: &Seen) {
        if seen.reached && self.bound < self.range.most && !seen.fails() {
            self.probing = Some(self.bound);
            self.bound = self.range.clamp(scaled(self.bound, PROBE));
        } else {
            self.before = self.now;
            self.begin(seen.now, None);
        }
    }

    fn begin(&mut self, at: Duration, usual: Option<f64>) {
        if usual.is_some() {
            self.before = None;
        }
        (self.now, self.windows, self.epoch) = (usual, 0, at);
    }
}

/// Returns a share of a limit, rounded down.
fn scaled(bound: u32, part: f64) -> u32 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 ≤ part ≤ 1")]
    let scaled = (f64::from(bound) * part) as u32;
    scaled
}
