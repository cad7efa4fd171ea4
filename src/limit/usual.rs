//! What is remembered of an agent from window to window: how fast it usually is, and what became of its bound. Spans are
//! binary logarithms here (octaves above a microsecond): an agent with two kinds of calls, one a hundred times as long as
//! the other, has a wide spread there, and the doubt that comes with it, instead of a mean that jumps.

use super::learn::{FEW, Range};
use std::time::Duration;

/// An answer may take half as long again as usual before the bound falls, and a fifth before it no longer rises.
const SLOWER: f64 = 0.585;
const AS_USUAL: f64 = 0.29;
/// What an answer may always take longer, in microseconds: less than that, and it may be the gateway's own scheduling.
const SLACK: f64 = 5_000.0;
/// How many standard errors of a window's mean are chance.
const CHANCE: f64 = 3.0;
/// The most by which a bound falls at once, and at least.
const STEEPEST: f64 = 0.1;
const GENTLEST: f64 = 0.9;
/// By how much it falls when the agent fails one call in [`FAILING`].
const FALLS: f64 = 0.7;
const FAILING: u32 = 10;
/// Half as many calls that are not this much faster: it is not the calls.
const FASTER: f64 = 0.25;
/// No bound falls below this that is not reached.
const ROOM: u32 = 64;
/// What is usual is found out anew after so many windows, and so long.
const EPOCH: u32 = 40;
const EPOCH_LASTS: Duration = Duration::from_secs(10);
/// How much of the bound is left for the window that finds it out.
const PROBE: f64 = 0.6;

/// A window of answers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    answers: u32,
    level: f64,
    /// The standard error of the level.
    doubt: f64,
    failures: u32,
    /// Whether half of the bound, or more, was in use.
    reached: bool,
    waiting: u32,
    now: Duration,
}

impl Seen {
    /// Answers with mean and deviation of their octaves; failures, and whether the bound was reached; calls that wait
    /// now, and when that is.
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

/// What is remembered.
#[derive(Debug)]
pub(super) struct Memory {
    range: Range,
    bound: u32,
    /// The fastest window of this epoch, and of the one before.
    now: Option<f64>,
    before: Option<f64>,
    windows: u32,
    epoch: Duration,
    /// Where the bound began to fall, and the level there.
    fall: Option<(u32, f64)>,
    /// The bound that comes back after this window, which finds out what is usual.
    probing: Option<u32>,
}

impl Memory {
    pub(super) fn new(range: Range, now: Duration) -> Self {
        Self { range, bound: range.most, now: None, before: None, windows: 0, epoch: now, fall: None, probing: None }
    }

    /// The level of an agent that has calls to spare.
    pub(super) fn usual(&self) -> Option<f64> {
        match (self.now, self.before) {
            (Some(now), Some(before)) => Some(now.min(before)),
            (now, before) => now.or(before),
        }
    }

    /// Learns from a window; the bound from now on.
    pub(super) fn learn(&mut self, seen: &Seen) -> u32 {
        if let Some(back) = self.probing.take() {
            self.bound = back;
            if seen.answers >= FEW {
                self.begin(seen.now, Some(seen.level + seen.doubt));
            }
            return self.bound;
        }
        if seen.answers >= FEW {
            // The least of many means is less than any of them by chance: the doubt makes up for that.
            let level = seen.level + seen.doubt;
            self.now = Some(self.now.map_or(level, |now| now.min(level)));
        }
        self.windows = self.windows.saturating_add(1);
        if seen.reached {
            self.bound = self.range.clamp(self.next(seen));
        } else {
            self.fall = None;
            // Nobody is refused for it yet: but should the calls go on to gather, the bound is near.
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

    /// By how many octaves the answers are slower than usual.
    fn slower(&self, seen: &Seen) -> Option<f64> {
        let usual = self.usual().filter(|_| seen.answers >= FEW)?;
        Some(seen.level - (usual.exp2() + SLACK).log2())
    }

    /// The bound after a window in which it was reached.
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
            // Fewer calls, and each as long as before: so it is now, and the calls were not to blame.
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

    /// Ends an epoch. Where the bound holds calls back, all that was seen may be slow: a window with fewer calls tells.
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

/// A part of a bound, rounded down.
fn scaled(bound: u32, part: f64) -> u32 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 ≤ part ≤ 1")]
    let scaled = (f64::from(bound) * part) as u32;
    scaled
}
