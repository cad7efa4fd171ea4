//! Load shedding: refuses calls while the gateway itself is the bottleneck. A probe passes through the runtime's run
//! queue as every call does and measures the delay. While even the shortest delays are too long, the gateway refuses a
//! growing share of calls: all of the lowest priority before any of the next, and never all of the highest. A call only
//! reads one atomic number here.

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

/// Priority of callers without a tier, and of tiers without a priority.
pub(super) const USUAL: u8 = 5;
/// Pause between two probes, and probes per measurement.
const PAUSE: Duration = Duration::from_millis(10);
const PROBES: u32 = 10;
/// Level at which all calls of the lowest priority are refused; twice this level refuses the two lowest, and so on.
const ALL: u32 = 1 << 16;
/// How often the configuration is checked while load shedding is disabled.
const OFF: Duration = Duration::from_secs(1);
/// Run queue delay that makes every agent look slow.
const LATE: Duration = Duration::from_millis(3);
/// Bits of the priority in the number that identifies a connection's last caller; the hash is above them.
const PRIORITY: u32 = 8;
/// Calls in flight below which no load is shed.
const FEW: usize = 32;
/// Share of the highest priority that is always admitted: these calls show when the overload ends.
const SPARED: u32 = ALL / 16;

/// Share of calls to refuse.
#[derive(Debug, Default)]
pub(super) struct Shed {
    level: AtomicU32,
    turn: AtomicU32,
    late: AtomicBool,
}

impl Shed {
    /// Returns the level in ranks of priorities: 1.5 refuses all calls of the lowest rank and half of the next.
    pub(super) fn level(&self) -> f64 {
        f64::from(self.level.load(Relaxed)) / f64::from(ALL)
    }

    /// Decides whether the next call of this rank is refused; rank 0 is refused first.
    pub(super) fn refuses(&self, rank: u32) -> bool {
        let share = self.level.load(Relaxed).saturating_sub(rank.saturating_mul(ALL)).min(ALL);
        // Multiples of the golden ratio: the refused calls are spread evenly.
        let turn = self.turn.fetch_add(1, Relaxed).wrapping_mul(0x9E37_79B9) >> 16;
        turn < share
    }

    /// Updates the level after a measurement: `waited` is the delay, `above` the threshold, `ranks` the number of
    /// ranks.
    pub(super) fn step(&self, waited: Duration, above: Option<Duration>, ranks: u32) {
        let level = self.level.load(Relaxed);
        let next = match above {
            None => 0,
            Some(above) if waited > above => {
                let times =
                    u32::try_from(waited.as_micros() / above.as_micros().max(1)).unwrap_or(u32::MAX).clamp(1, 4);
                level.saturating_add(times * (ALL / 16)).min(ranks.max(1).saturating_mul(ALL).saturating_sub(SPARED))
            }
            // The level decays linearly near zero, where halving would never end.
            Some(_) => level.saturating_sub((level / 16).max(ALL / 64)),
        };
        self.level.store(next, Relaxed);
    }
}

/// Rank of each priority in use; the lowest is 0.
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
    /// Returns whether the gateway sheds load now.
    pub fn is_shedding(&self) -> bool {
        self.shed.level.load(Relaxed) > 0
    }

    /// Returns whether the run queue delay is so long that the latency of agents cannot be measured.
    pub fn is_late(&self) -> bool {
        self.shed.late.load(Relaxed)
    }

    /// Checks a call of this tier against load shedding.
    ///
    /// # Errors
    /// 503 when the call is shed.
    pub fn let_in(&self, tier: Option<&str>) -> Result<(), Fault> {
        if !self.is_shedding() {
            return Ok(());
        }
        let plan = self.plan.load();
        self.pass(&plan, plan.tier(tier).priority)
    }

    /// Sheds load before authentication when a request carries the same credentials as the previous request on this
    /// connection. Returns whether it does; `last` is what [`CallLimiter::remember_connection_caller`] stores.
    ///
    /// # Errors
    /// 503 when the call is shed.
    pub fn turn_away(&self, last: &AtomicU64, shows: impl Hash) -> Result<bool, Fault> {
        let known = last.load(Relaxed);
        if known == 0 || (known ^ self.seed.hash_one(shows)) >> PRIORITY != 0 {
            return Ok(false);
        }
        let priority = u8::try_from(known & ((1 << PRIORITY) - 1)).unwrap_or(USUAL);
        self.pass(&self.plan.load(), priority).map(|()| true)
    }

    /// Stores the connection's last caller in `last`: a keyed hash of its credentials, and the priority of its tier.
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
        let text = "The gateway is overloaded and refuses a share of calls from all callers";
        Fault::new(Code::Overloaded, text)
            .member("overloaded", "gateway".into())
            .detail(format_args!("load shedding: priority {priority} refused at level {:.2}", self.shed.level()))
            .retry_after(Duration::from_secs(1))
    }

    /// Measures the run queue delay in a loop, and updates the load shedding level.
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
            // With few calls in flight, other processes use the CPU: refusing calls would not help.
            let waited = if self.metrics.in_flight() < FEW { Duration::ZERO } else { waited };
            self.shed.step(waited, above, ranks);
            self.metrics.load(waited, self.shed.level());
        }
    }
}

/// Measures the run queue delay: the shortest of several passes.
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

/// Moves this task to the end of the run queue once, behind all ready tasks. A task that a timer woke may run first.
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
