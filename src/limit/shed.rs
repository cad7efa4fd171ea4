//! Whether the gateway itself is what everybody waits for, and whose calls are refused then. A probe goes through the
//! run queue like any call and says how long that took; while even its quickest passes take too long, a growing share of
//! the calls is refused: all of the lowest priority before any of the next, and never all of the highest.
//! A call reads one number here.

use super::{Limits, config::Tier, plan::Plan};
use crate::{
    fault::{Code, Fault},
    telemetry::Limit,
};
use std::{
    convert::Infallible,
    hash::{BuildHasher as _, Hash},
    sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed},
    time::Duration,
};
use tokio::time::Instant;

/// Priority of who has none.
pub(super) const USUAL: u8 = 5;
/// The pause between two probes, and how many make one measurement.
const PAUSE: Duration = Duration::from_millis(10);
const PROBES: u32 = 10;
/// The level at which all calls of the lowest priority are refused; twice that: of the two lowest, and so on.
const ALL: u32 = 1 << 16;
/// How often it is looked whether to measure at all, where nothing is to be refused.
const OFF: Duration = Duration::from_secs(1);
/// Work that waits so long makes every agent look slow.
const LATE: Duration = Duration::from_millis(3);
/// The bits of a priority, below those of whose it is.
const PRIORITY: u32 = 8;
/// Calls in flight that are worth a thought.
const FEW: usize = 32;
/// Of the highest priority some calls are always let through: they show when it is over.
const SPARED: u32 = ALL / 16;

/// How much is refused.
#[derive(Debug, Default)]
pub(super) struct Shed {
    level: AtomicU32,
    turn: AtomicU32,
    late: AtomicBool,
}

impl Shed {
    /// The level, in ranks of priorities: 1.5 refuses all of the lowest and half of the next.
    pub(super) fn level(&self) -> f64 {
        f64::from(self.level.load(Relaxed)) / f64::from(ALL)
    }

    /// Whether a call of this rank is refused; rank 0 is first.
    pub(super) fn refuses(&self, rank: u32) -> bool {
        let share = self.level.load(Relaxed).saturating_sub(rank.saturating_mul(ALL)).min(ALL);
        // Multiples of the golden ratio: any few in a row are spread evenly.
        let turn = self.turn.fetch_add(1, Relaxed).wrapping_mul(0x9E37_79B9) >> 16;
        turn < share
    }

    /// The next level, after a measurement: how long the work waited, where it may wait for `above`, with so many ranks.
    pub(super) fn step(&self, waited: Duration, above: Option<Duration>, ranks: u32) {
        let level = self.level.load(Relaxed);
        let next = match above {
            None => 0,
            Some(above) if waited > above => {
                let times =
                    u32::try_from(waited.as_micros() / above.as_micros().max(1)).unwrap_or(u32::MAX).clamp(1, 4);
                level.saturating_add(times * (ALL / 16)).min(ranks.max(1).saturating_mul(ALL).saturating_sub(SPARED))
            }
            // It ends sooner than it would halve for ever.
            Some(_) => level.saturating_sub((level / 16).max(ALL / 64)),
        };
        self.level.store(next, Relaxed);
    }
}

/// The rank of each priority that somebody has: the lowest is 0.
#[derive(Debug)]
pub(super) struct Ranks(Vec<u8>);

impl Ranks {
    pub(super) fn new<'a>(tiers: impl Iterator<Item = &'a Tier>) -> Self {
        let mut all: Vec<u8> = tiers.map(|tier| tier.priority.unwrap_or(USUAL)).chain([USUAL]).collect();
        all.sort_unstable();
        all.dedup();
        Self(all)
    }

    pub(super) fn of(&self, priority: u8) -> u32 {
        u32::try_from(self.0.iter().filter(|other| **other < priority).count()).unwrap_or_default()
    }

    pub(super) fn count(&self) -> u32 {
        u32::try_from(self.0.len()).unwrap_or(u32::MAX)
    }
}

impl Limits {
    /// Whether calls are refused now because the gateway has too much to do.
    pub fn is_shedding(&self) -> bool {
        self.shed.level.load(Relaxed) > 0
    }

    /// Whether the gateway's own work waits for so long that no agent can be called slow now.
    pub fn is_late(&self) -> bool {
        self.shed.late.load(Relaxed)
    }

    /// Lets a call of this tier pass, unless the gateway has too much to do and it is one of those that are refused.
    ///
    /// # Errors
    /// 503.
    pub fn let_in(&self, tier: Option<&str>) -> Result<(), Fault> {
        if !self.is_shedding() {
            return Ok(());
        }
        let plan = self.plan.load();
        self.pass(&plan, plan.tier(tier).priority)
    }

    /// The same before it is known who calls, where that is who called last over this connection: whoever shows the same
    /// again need not be authenticated to be refused. Whether that was so; `last` is what [`Limits::remember`] keeps.
    ///
    /// # Errors
    /// 503.
    pub fn turn_away(&self, last: &AtomicU64, shows: impl Hash) -> Result<bool, Fault> {
        let known = last.load(Relaxed);
        if known == 0 || (known ^ self.seed.hash_one(shows)) >> PRIORITY != 0 {
            return Ok(false);
        }
        let priority = u8::try_from(known & ((1 << PRIORITY) - 1)).unwrap_or(USUAL);
        self.pass(&self.plan.load(), priority).map(|()| true)
    }

    /// Keeps in `last` who has called: by a number of what was shown, which nobody can find another thing for.
    pub fn remember(&self, last: &AtomicU64, shows: impl Hash, tier: Option<&str>) {
        let priority = self.plan.load().tier(tier).priority;
        last.store((self.seed.hash_one(shows) >> PRIORITY) << PRIORITY | u64::from(priority), Relaxed);
    }

    fn pass(&self, plan: &Plan, priority: u8) -> Result<(), Fault> {
        if self.shed.refuses(plan.ranks.of(priority)) { Err(self.shed(priority)) } else { Ok(()) }
    }

    #[cold]
    fn shed(&self, priority: u8) -> Fault {
        self.metrics.limited(Limit::Gateway);
        self.metrics.shed(priority);
        let text = "The gateway has more to do than it can, for all callers together.";
        Fault::new(Code::Overloaded, text)
            .member("overloaded", "gateway".into())
            .detail(format_args!("calls of priority {priority} are shed; level {:.2}", self.shed.level()))
            .retry_after(Duration::from_secs(1))
    }

    /// Measures how long the gateway's own work waits, over and over, and refuses as much as that asks for.
    pub async fn watch_load(&self) -> Infallible {
        loop {
            let above = self.plan.load().config().shed_above.map(|above| above.get());
            let waited = match above {
                Some(_) => measure().await,
                None => {
                    tokio::time::sleep(OFF).await;
                    Duration::ZERO
                }
            };
            self.shed.late.store(waited > LATE, Relaxed);
            let ranks = self.plan.load().ranks.count();
            // With few calls, others keep the gateway from its core: refusing would not help.
            let waited = if self.metrics.in_flight() < FEW { Duration::ZERO } else { waited };
            self.shed.step(waited, above, ranks);
            self.metrics.load(waited, self.shed.level());
        }
    }
}

/// How long the runtime's work waits now: the quickest of some passes through its run queue.
async fn measure() -> Duration {
    let mut quickest = Duration::MAX;
    for _ in 0..PROBES {
        let due = Instant::now() + PAUSE;
        tokio::time::sleep_until(due).await;
        pass().await;
        quickest = quickest.min(due.elapsed());
    }
    quickest
}

/// Goes to the end of the run queue once, behind all that is ready. A task that a timer has woken may be let in first.
async fn pass() {
    let mut passed = false;
    std::future::poll_fn(|context| {
        if std::mem::replace(&mut passed, true) {
            return std::task::Poll::Ready(());
        }
        context.waker().wake_by_ref();
        std::task::Poll::Pending
    })
    .await;
}
