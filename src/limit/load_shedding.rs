//! Load shedding: refuses calls while the gateway itself is the bottleneck. A probe waits in the runtime's run queue as
//! every call does, and measures the delay. While even the shortest delay is too long, the gateway refuses a growing
//! share of calls: all calls of the lowest priority before any of the next, and never all calls of the highest. A call
//! only reads one atomic number.

use super::limit_policy::{DEFAULT_PRIORITY, LimitPolicy, PriorityRanks};
use crate::{
    fault::{Fault, FaultCode},
    telemetry::{LimitKind, Metrics},
};
use arc_swap::ArcSwap;
use std::{
    convert::Infallible,
    hash::{BuildHasher as _, Hash, RandomState},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};
use tokio::time::Instant;

/// Pause between two probes, and probes per measurement.
const PROBE_INTERVAL: Duration = Duration::from_millis(10);
const PROBES_PER_MEASUREMENT: u32 = 10;
/// Pause between two probes while too few calls are in flight to shed load. Each probe wakes threads.
const QUIET_PROBE_INTERVAL: Duration = Duration::from_millis(100);
/// How often the calls in flight are counted while there are none, and nothing is probed.
const IDLE_CHECK_INTERVAL: Duration = Duration::from_millis(500);
/// Level at which all calls of the lowest priority are refused. Twice this level refuses the two lowest priorities.
const LEVEL_PER_RANK: u32 = 1 << 16;
/// How often the configuration is checked while load shedding is disabled.
const DISABLED_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Run queue delay above which the latencies of agents are not measured, because every agent would seem slow.
const DELAY_THRESHOLD: Duration = Duration::from_millis(3);
/// Number of low bits that hold the priority in the number that identifies a connection's last caller; the other bits
/// hold the hash.
const PRIORITY_BITS: u32 = 8;
/// Calls in flight below which no load is shed.
const MIN_CALLS_IN_FLIGHT: usize = 32;
/// Share of calls of the highest priority that is always admitted, so that the end of an overload is detected.
const ALWAYS_ADMITTED_SHARE: u32 = LEVEL_PER_RANK / 16;

/// The share of calls to refuse, and whether the runtime is delayed.
#[derive(Debug)]
pub(super) struct LoadShedder {
    level: AtomicU32,
    call_counter: AtomicU32,
    runtime_delayed: AtomicBool,
    /// Hashes the credentials of a connection's last caller with a secret seed.
    credential_hasher: RandomState,
    metrics: Arc<Metrics>,
}

impl LoadShedder {
    pub(super) fn new(metrics: Arc<Metrics>) -> Self {
        Self {
            level: AtomicU32::new(0),
            call_counter: AtomicU32::new(0),
            runtime_delayed: AtomicBool::new(false),
            credential_hasher: RandomState::new(),
            metrics,
        }
    }

    /// Returns whether load is shed now.
    pub(super) fn is_shedding(&self) -> bool {
        self.level.load(Relaxed) > 0
    }

    /// Returns whether the run queue delay is so long that the latency of agents cannot be measured.
    pub(super) fn is_runtime_delayed(&self) -> bool {
        self.runtime_delayed.load(Relaxed)
    }

    /// Refuses a call of this priority if load shedding selects it.
    ///
    /// # Errors
    /// 503 when the call is shed.
    pub(super) fn shed(&self, ranks: &PriorityRanks, priority: u8) -> Result<(), Fault> {
        if self.decide_refusal(ranks.rank_of(priority)) { Err(self.fault(priority)) } else { Ok(()) }
    }

    /// Returns the share of calls of this priority that is refused now, from 0 to 1.
    pub(super) fn refused_share(&self, ranks: &PriorityRanks, priority: u8) -> f64 {
        f64::from(self.refused_level(ranks.rank_of(priority))) / f64::from(LEVEL_PER_RANK)
    }

    #[cold]
    fn fault(&self, priority: u8) -> Fault {
        self.metrics.record_limited_request(LimitKind::LoadShedding);
        self.metrics.record_load_shed_request(priority);
        self.refusal(priority)
    }

    /// Returns the fault of a call that is shed, and counts nothing.
    pub(super) fn refusal(&self, priority: u8) -> Fault {
        let text = "The gateway is overloaded and refuses a share of calls from all callers";
        Fault::new(FaultCode::Overloaded, text)
            .with_member("overloaded", "gateway".into())
            .with_detail(format_args!("load shedding: priority {priority} refused at level {:.2}", self.level()))
            .with_retry_after(Duration::from_secs(1))
            .with_setting("limits.max_scheduling_delay")
    }

    /// Returns the priority that [`LoadShedder::remember_caller`] stored for the same credentials.
    pub(super) fn remembered_priority(&self, last_caller: &AtomicU64, credentials: impl Hash) -> Option<u8> {
        let last = last_caller.load(Relaxed);
        if last == 0 || (last ^ self.credential_hasher.hash_one(credentials)) >> PRIORITY_BITS != 0 {
            return None;
        }
        Some(u8::try_from(last & ((1 << PRIORITY_BITS) - 1)).unwrap_or(DEFAULT_PRIORITY))
    }

    /// Stores a connection's last caller in `last_caller`: a keyed hash of the credentials, and the priority.
    pub(super) fn remember_caller(&self, last_caller: &AtomicU64, credentials: impl Hash, priority: u8) {
        let hash = self.credential_hasher.hash_one(credentials) >> PRIORITY_BITS;
        last_caller.store(hash << PRIORITY_BITS | u64::from(priority), Relaxed);
    }

    /// Measures the run queue delay and updates the level. Never returns.
    pub(super) async fn monitor(&self, policy: &ArcSwap<LimitPolicy>) -> Infallible {
        loop {
            let threshold = policy.load().config.max_scheduling_delay.map(|threshold| threshold.get());
            let delay = if threshold.is_some() {
                self.measure_run_queue_delay().await
            } else {
                tokio::time::sleep(DISABLED_CHECK_INTERVAL).await;
                Duration::ZERO
            };
            self.runtime_delayed.store(delay > DELAY_THRESHOLD, Relaxed);
            let ranks = policy.load().ranks.count();
            // With few calls in flight, other processes cause the delay, and a refusal of calls would not help.
            let shedding_delay =
                if self.metrics.calls_in_flight() < MIN_CALLS_IN_FLIGHT { Duration::ZERO } else { delay };
            self.update_level(shedding_delay, threshold, ranks);
            self.metrics.set_load(shedding_delay, self.level());
        }
    }

    /// Measures the run queue delay: the shortest of several probes. Without calls it is zero.
    pub(super) async fn measure_run_queue_delay(&self) -> Duration {
        let mut shortest = Duration::MAX;
        for _ in 0..PROBES_PER_MEASUREMENT {
            let interval = match self.metrics.calls_in_flight() {
                MIN_CALLS_IN_FLIGHT.. => PROBE_INTERVAL,
                // The level sinks with each measurement.
                _ if self.is_shedding() => PROBE_INTERVAL,
                0 => {
                    tokio::time::sleep(IDLE_CHECK_INTERVAL).await;
                    return Duration::ZERO;
                }
                _ => QUIET_PROBE_INTERVAL,
            };
            let due_at = Instant::now() + interval;
            tokio::time::sleep_until(due_at).await;
            yield_behind_ready_tasks().await;
            shortest = shortest.min(due_at.elapsed());
        }
        shortest
    }

    /// Returns the level in ranks: 1.5 refuses all calls of the lowest rank and half of the calls of the next.
    pub(super) fn level(&self) -> f64 {
        f64::from(self.level.load(Relaxed)) / f64::from(LEVEL_PER_RANK)
    }

    /// Decides whether the next call of this rank is refused, and counts the call. Rank 0 is refused first.
    pub(super) fn decide_refusal(&self, rank: u32) -> bool {
        let share = self.refused_level(rank);
        // Multiples of the golden ratio spread the refused calls evenly.
        let sequence_position = self.call_counter.fetch_add(1, Relaxed).wrapping_mul(0x9E37_79B9) >> 16;
        sequence_position < share
    }

    fn refused_level(&self, rank: u32) -> u32 {
        self.level.load(Relaxed).saturating_sub(rank.saturating_mul(LEVEL_PER_RANK)).min(LEVEL_PER_RANK)
    }

    /// Updates the level after a measurement of `delay`. Without a threshold, load shedding is disabled. `ranks` is the
    /// number of ranks.
    pub(super) fn update_level(&self, delay: Duration, threshold: Option<Duration>, ranks: u32) {
        let level = self.level.load(Relaxed);
        let next = match threshold {
            None => 0,
            Some(threshold) if delay > threshold => {
                let step_count =
                    u32::try_from(delay.as_micros() / threshold.as_micros().max(1)).unwrap_or(u32::MAX).clamp(1, 4);
                level
                    .saturating_add(step_count * (LEVEL_PER_RANK / 16))
                    .min(ranks.max(1).saturating_mul(LEVEL_PER_RANK).saturating_sub(ALWAYS_ADMITTED_SHARE))
            }
            // The level decays linearly near zero, where halving would never end.
            Some(_) => level.saturating_sub((level / 16).max(LEVEL_PER_RANK / 64)),
        };
        self.level.store(next, Relaxed);
    }
}

/// Moves this task to the end of the run queue once, because a task that a timer woke may run before the ready tasks.
async fn yield_behind_ready_tasks() {
    let mut has_yielded = false;
    std::future::poll_fn(|context| {
        if std::mem::replace(&mut has_yielded, true) {
            return std::task::Poll::Ready(());
        }
        context.waker().wake_by_ref();
        std::task::Poll::Pending
    })
    .await;
}
