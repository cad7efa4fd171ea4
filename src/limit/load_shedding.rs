//! Load shedding: refuses calls while the gateway itself is the bottleneck. A probe passes through the runtime's run
//! queue as every call does and measures the delay. While even the shortest delays are too long, the gateway refuses a
//! growing share of calls: all of the lowest priority before any of the next, and never all of the highest. A call only
//! reads one atomic number here.

use super::{CallLimiter, config::TierConfig, limit_policy::LimitPolicy};
use crate::{
    fault::{Fault, FaultCode},
    telemetry::LimitKind,
};
use std::{
    convert::Infallible,
    hash::{BuildHasher as _, Hash},
    sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed},
    time::Duration,
};
use tokio::time::Instant;

/// Priority of callers without a tier, and of tiers without a priority.
pub(super) const DEFAULT_PRIORITY: u8 = 5;
/// Pause between two probes, and probes per measurement.
const PROBE_INTERVAL: Duration = Duration::from_millis(10);
const PROBES_PER_MEASUREMENT: u32 = 10;
/// Level at which all calls of the lowest priority are refused; twice this level refuses the two lowest, and so on.
const LEVEL_PER_RANK: u32 = 1 << 16;
/// How often the configuration is checked while load shedding is disabled.
const DISABLED_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Run queue delay that makes every agent look slow.
const DELAY_THRESHOLD: Duration = Duration::from_millis(3);
/// Bits of the priority in the number that identifies a connection's last caller; the hash is above them.
const PRIORITY_BITS: u32 = 8;
/// Calls in flight below which no load is shed.
const MIN_CALLS_IN_FLIGHT: usize = 32;
/// Share of the highest priority that is always admitted: these calls show when the overload ends.
const ALWAYS_ADMITTED_SHARE: u32 = LEVEL_PER_RANK / 16;

/// Share of calls to refuse.
#[derive(Debug, Default)]
pub(super) struct LoadShedder {
    level: AtomicU32,
    call_counter: AtomicU32,
    runtime_delayed: AtomicBool,
}

impl LoadShedder {
    /// Returns the level in ranks of priorities: 1.5 refuses all calls of the lowest rank and half of the next.
    pub(super) fn level(&self) -> f64 {
        f64::from(self.level.load(Relaxed)) / f64::from(LEVEL_PER_RANK)
    }

    /// Decides whether the next call of this rank is refused; rank 0 is refused first.
    pub(super) fn decide_refusal(&self, rank: u32) -> bool {
        let share = self.level.load(Relaxed).saturating_sub(rank.saturating_mul(LEVEL_PER_RANK)).min(LEVEL_PER_RANK);
        // Multiples of the golden ratio: the refused calls are spread evenly.
        let position = self.call_counter.fetch_add(1, Relaxed).wrapping_mul(0x9E37_79B9) >> 16;
        position < share
    }

    /// Updates the level after a measurement: `waited` is the delay, `above` the threshold, `ranks` the number of
    /// ranks.
    pub(super) fn update_level(&self, delay: Duration, threshold: Option<Duration>, ranks: u32) {
        let level = self.level.load(Relaxed);
        let next = match threshold {
            None => 0,
            Some(above) if delay > above => {
                let times = u32::try_from(delay.as_micros() / above.as_micros().max(1)).unwrap_or(u32::MAX).clamp(1, 4);
                level
                    .saturating_add(times * (LEVEL_PER_RANK / 16))
                    .min(ranks.max(1).saturating_mul(LEVEL_PER_RANK).saturating_sub(ALWAYS_ADMITTED_SHARE))
            }
            // The level decays linearly near zero, where halving would never end.
            Some(_) => level.saturating_sub((level / 16).max(LEVEL_PER_RANK / 64)),
        };
        self.level.store(next, Relaxed);
    }
}

/// Rank of each priority in use; the lowest is 0.
#[derive(Debug)]
pub(super) struct PriorityRanks(Vec<u8>);

impl PriorityRanks {
    pub(super) fn new<'a>(tiers: impl Iterator<Item = &'a TierConfig>) -> Self {
        let mut all: Vec<u8> =
            tiers.map(|tier| tier.priority.unwrap_or(DEFAULT_PRIORITY)).chain([DEFAULT_PRIORITY]).collect();
        all.sort_unstable();
        all.dedup();
        Self(all)
    }

    pub(super) fn rank_of(&self, priority: u8) -> u32 {
        u32::try_from(self.0.iter().filter(|other| **other < priority).count()).unwrap_or_default()
    }

    pub(super) fn count(&self) -> u32 {
        u32::try_from(self.0.len()).unwrap_or(u32::MAX)
    }
}

impl CallLimiter {
    /// Returns whether the gateway sheds load now.
    pub fn is_shedding(&self) -> bool {
        self.load_shedder.level.load(Relaxed) > 0
    }

    /// Returns whether the run queue delay is so long that the latency of agents cannot be measured.
    pub fn is_runtime_delayed(&self) -> bool {
        self.load_shedder.runtime_delayed.load(Relaxed)
    }

    /// Checks a call of this tier against load shedding.
    ///
    /// # Errors
    /// 503 when the call is shed.
    pub fn shed_by_tier(&self, tier: Option<&str>) -> Result<(), Fault> {
        if !self.is_shedding() {
            return Ok(());
        }
        let policy = self.policy.load();
        self.shed_by_priority(&policy, policy.tier(tier).priority)
    }

    /// Sheds load before authentication when a request carries the same credentials as the previous request on this
    /// connection. Returns whether it does; `last` is what [`CallLimiter::remember_connection_caller`] stores.
    ///
    /// # Errors
    /// 503 when the call is shed.
    pub fn shed_before_authentication(&self, last_caller: &AtomicU64, credentials: impl Hash) -> Result<bool, Fault> {
        let previous = last_caller.load(Relaxed);
        if previous == 0 || (previous ^ self.hash_seed.hash_one(credentials)) >> PRIORITY_BITS != 0 {
            return Ok(false);
        }
        let priority = u8::try_from(previous & ((1 << PRIORITY_BITS) - 1)).unwrap_or(DEFAULT_PRIORITY);
        self.shed_by_priority(&self.policy.load(), priority).map(|()| true)
    }

    /// Stores the connection's last caller in `last`: a keyed hash of its credentials, and the priority of its tier.
    pub fn remember_connection_caller(&self, last_caller: &AtomicU64, credentials: impl Hash, tier: Option<&str>) {
        let priority = self.policy.load().tier(tier).priority;
        last_caller.store(
            (self.hash_seed.hash_one(credentials) >> PRIORITY_BITS) << PRIORITY_BITS | u64::from(priority),
            Relaxed,
        );
    }

    fn shed_by_priority(&self, policy: &LimitPolicy, priority: u8) -> Result<(), Fault> {
        if self.load_shedder.decide_refusal(policy.ranks.rank_of(priority)) {
            Err(self.load_shedding_fault(priority))
        } else {
            Ok(())
        }
    }

    #[cold]
    fn load_shedding_fault(&self, priority: u8) -> Fault {
        self.metrics.record_limited_request(LimitKind::LoadShedding);
        self.metrics.record_load_shed_request(priority);
        let text = "The gateway is overloaded and refuses a share of calls from all callers";
        Fault::new(FaultCode::Overloaded, text)
            .with_member("overloaded", "gateway".into())
            .with_detail(format_args!(
                "load shedding: priority {priority} refused at level {:.2}",
                self.load_shedder.level()
            ))
            .with_retry_after(Duration::from_secs(1))
    }

    /// Measures the run queue delay in a loop, and updates the load shedding level.
    pub async fn monitor_load(&self) -> Infallible {
        loop {
            let threshold = self.policy.load().config().load_shedding_threshold.map(|above| above.get());
            let delay = match threshold {
                Some(_) => measure_run_queue_delay().await,
                None => {
                    tokio::time::sleep(DISABLED_CHECK_INTERVAL).await;
                    Duration::ZERO
                }
            };
            self.load_shedder.runtime_delayed.store(delay > DELAY_THRESHOLD, Relaxed);
            let ranks = self.policy.load().ranks.count();
            // With few calls in flight, other processes use the CPU: refusing calls would not help.
            let waited = if self.metrics.calls_in_flight() < MIN_CALLS_IN_FLIGHT { Duration::ZERO } else { delay };
            self.load_shedder.update_level(waited, threshold, ranks);
            self.metrics.set_load(waited, self.load_shedder.level());
        }
    }
}

/// Measures the run queue delay: the shortest of several passes.
async fn measure_run_queue_delay() -> Duration {
    let mut quickest = Duration::MAX;
    for _ in 0..PROBES_PER_MEASUREMENT {
        let due = Instant::now() + PROBE_INTERVAL;
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
