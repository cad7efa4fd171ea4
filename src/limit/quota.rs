//! Quotas: calls of a caller per calendar day and month, counted here and persisted across restarts by `quota_file`.
//! A caller is tracked until its periods end; refused calls do not count.

use super::{
    bucket_store::PrehashedMap, clock::CalendarTime, config::QuotaConfig, rate_limit_status::RateLimitStatus,
    token_bucket::LimitExceeded,
};
use crate::telemetry::{Event, LimitKind, Metrics};
use std::{
    num::NonZeroU32,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

const SHARDS: usize = 64;
/// Shards that one sweep visits.
const SHARDS_PER_SWEEP: usize = 4;
const DAY: Duration = Duration::from_secs(86_400);

/// Calls of one caller in the current day and month.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct QuotaUsage {
    pub(super) name: Box<str>,
    pub(super) day: u32,
    pub(super) day_count: u64,
    pub(super) month: u32,
    pub(super) month_count: u64,
}

impl QuotaUsage {
    /// Starts new periods. A clock that goes backwards starts none, which would grant a quota twice.
    fn start_new_periods(&mut self, now: &CalendarTime) {
        if self.day < now.day {
            (self.day, self.day_count) = (now.day, 0);
        }
        if self.month < now.month {
            (self.month, self.month_count) = (now.month, 0);
        }
    }

    fn acquire(
        &mut self,
        quota: &QuotaConfig,
        n: u64,
        now: &CalendarTime,
    ) -> Result<Option<RateLimitStatus>, LimitExceeded> {
        self.start_new_periods(now);
        let periods = [
            (LimitKind::MonthlyQuota, quota.per_month, self.month_count, now.until_month_end, now.month_length),
            (LimitKind::DailyQuota, quota.per_day, self.day_count, now.until_day_end, DAY),
        ];
        let mut tightest = None;
        for (limit, most, used, reset, window) in periods {
            let Some(most) = most else { continue };
            let left = most.get().saturating_sub(used);
            let standing =
                RateLimitStatus { limit, quota: most.get(), remaining: left.saturating_sub(n), reset, window };
            if left < n {
                let standing = RateLimitStatus { remaining: left, ..standing };
                return Err(LimitExceeded { status: standing, retry_after: (n <= most.get()).then_some(reset) });
            }
            tightest = Some(standing.more_restrictive(tightest));
        }
        self.day_count = self.day_count.saturating_add(n);
        self.month_count = self.month_count.saturating_add(n);
        Ok(tightest)
    }
}

/// Quota counts of all callers.
#[derive(Debug)]
pub(super) struct QuotaCounters {
    shards: Box<[Mutex<PrehashedMap<QuotaUsage>>]>,
    /// Count shared by the callers beyond `max_callers`.
    shared: Mutex<QuotaUsage>,
    caller_count: AtomicUsize,
    max_callers: AtomicUsize,
    next_shard: AtomicUsize,
    changed: AtomicBool,
    metrics: Arc<Metrics>,
}

impl QuotaCounters {
    pub(super) fn new(max_callers: usize, metrics: Arc<Metrics>) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            shared: Mutex::default(),
            caller_count: AtomicUsize::new(0),
            max_callers: AtomicUsize::new(max_callers),
            next_shard: AtomicUsize::new(0),
            changed: AtomicBool::new(false),
            metrics,
        }
    }

    pub(super) fn set_max_callers(&self, max_callers: usize) {
        self.max_callers.store(max_callers, Relaxed);
    }

    pub(super) fn caller_count(&self) -> usize {
        self.caller_count.load(Relaxed)
    }

    fn shard(&self, key: u64) -> Option<MutexGuard<'_, PrehashedMap<QuotaUsage>>> {
        self.shards.get(usize::try_from(key >> 40).unwrap_or_default() % SHARDS).map(lock)
    }

    /// Counts `n` calls of a caller, or refuses them. `name` is called only for a new caller.
    pub(super) fn acquire(
        &self,
        (key, name): (u64, impl FnOnce() -> Box<str>),
        quota: &QuotaConfig,
        n: NonZeroU32,
        now: &CalendarTime,
    ) -> Result<Option<RateLimitStatus>, LimitExceeded> {
        let n = u64::from(n.get());
        let Some(mut shard) = self.shard(key) else {
            return Ok(None);
        };
        let acquired = match shard.get_mut(&key) {
            Some(used) => used.acquire(quota, n, now),
            None if self.caller_count() >= self.max_callers.load(Relaxed) => {
                drop(shard);
                self.metrics.record_event(Event::LimiterOverflow);
                return lock(&self.shared).acquire(quota, n, now);
            }
            None => {
                self.caller_count.fetch_add(1, Relaxed);
                shard
                    .entry(key)
                    .or_insert_with(|| QuotaUsage { name: name(), ..QuotaUsage::default() })
                    .acquire(quota, n, now)
            }
        };
        if acquired.is_ok() && !self.changed.load(Relaxed) {
            self.changed.store(true, Relaxed);
        }
        acquired
    }

    /// Evicts callers whose periods are over; `months` says whether any tier has a monthly quota.
    pub(super) fn evict_expired(&self, now: &CalendarTime, has_monthly_quota: bool) {
        let first = self.next_shard.fetch_add(SHARDS_PER_SWEEP, Relaxed);
        for at in first..first + SHARDS_PER_SWEEP {
            let Some(shard) = self.shards.get(at % SHARDS) else {
                continue;
            };
            let mut callers = lock(shard);
            let before = callers.len();
            callers.retain(|_, used| used.day >= now.day || (has_monthly_quota && used.month >= now.month));
            let after = callers.len();
            if callers.capacity() > 4 * after + 16 {
                callers.shrink_to(2 * after);
            }
            self.caller_count.fetch_sub(before - after, Relaxed);
        }
    }

    /// Returns whether a count changed since the previous call, and resets the flag.
    pub(super) fn take_changed(&self) -> bool {
        self.changed.swap(false, Relaxed)
    }

    /// Sets the flag again, for counts that could not be persisted.
    pub(super) fn set_changed(&self) {
        self.changed.store(true, Relaxed);
    }

    /// Restores a persisted count.
    pub(super) fn restore(&self, key: u64, used: QuotaUsage) {
        if let Some(mut shard) = self.shard(key)
            && shard.insert(key, used).is_none()
        {
            self.caller_count.fetch_add(1, Relaxed);
        }
    }

    /// Calls `with` for every count, one shard at a time, so that no call waits for all shards.
    pub(super) fn for_each(&self, mut with: impl FnMut(&QuotaUsage)) {
        for shard in &self.shards {
            lock(shard).values().for_each(&mut with);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
