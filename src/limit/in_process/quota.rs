//! Quotas: counts the calls of each caller per calendar day and month; `quota_file` persists the counts. A caller is
//! tracked until its periods end. Refused calls do not count.

use super::token_bucket::SeededMap;
use crate::{
    limit::{
        bucket_key::quota_key, clock::CalendarTime, config::QuotaConfig, limit_draw::QuotaDraw,
        limit_refusal::LimitExceeded, rate_rule::RateLimitStatus,
    },
    telemetry::{Event, LimitKind, Metrics},
};
use parking_lot::{Mutex, MutexGuard};
use std::{
    num::NonZeroU32,
    sync::{
        Arc,
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
    /// Starts the periods that have begun. If the clock goes backwards, no period starts, which would grant a quota
    /// twice.
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
        count: u64,
        now: &CalendarTime,
    ) -> Result<Option<RateLimitStatus>, LimitExceeded> {
        self.start_new_periods(now);
        let periods = [
            (LimitKind::MonthlyQuota, quota.per_month, self.month_count, now.until_month_end, now.month_length),
            (LimitKind::DailyQuota, quota.per_day, self.day_count, now.until_day_end, DAY),
        ];
        let mut tightest = None;
        for (limit, max, used, reset, window) in periods {
            let Some(max) = max else { continue };
            let remaining = max.get().saturating_sub(used);
            let status =
                RateLimitStatus { limit, quota: max.get(), remaining: remaining.saturating_sub(count), reset, window };
            if remaining < count {
                let status = RateLimitStatus { remaining, ..status };
                return Err(LimitExceeded { status, retry_after: (count <= max.get()).then_some(reset) });
            }
            tightest = Some(status.more_restrictive(tightest));
        }
        self.day_count = self.day_count.saturating_add(count);
        self.month_count = self.month_count.saturating_add(count);
        Ok(tightest)
    }

    fn refund(&mut self, count: u64, now: &CalendarTime) {
        self.start_new_periods(now);
        self.day_count = self.day_count.saturating_sub(count);
        self.month_count = self.month_count.saturating_sub(count);
    }
}

/// Quota counts of all callers.
#[derive(Debug)]
pub(super) struct QuotaCounters {
    shards: Box<[Mutex<SeededMap<QuotaUsage>>]>,
    /// Count that the callers beyond `max_callers` share.
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

    fn shard(&self, key: u64) -> Option<MutexGuard<'_, SeededMap<QuotaUsage>>> {
        self.shards.get(usize::try_from(key >> 40).unwrap_or_default() % SHARDS).map(Mutex::lock)
    }

    /// Counts `count` calls of a caller, or refuses them.
    pub(super) fn acquire(
        &self,
        draw: &QuotaDraw<'_>,
        count: NonZeroU32,
        now: &CalendarTime,
    ) -> Result<Option<RateLimitStatus>, LimitExceeded> {
        let (key, quota, count) = (draw.caller.bucket.hash(), &draw.quota, u64::from(count.get()));
        let Some(mut shard) = self.shard(key) else {
            return Ok(None);
        };
        let result = match shard.get_mut(&key) {
            Some(usage) => usage.acquire(quota, count, now),
            None if self.caller_count() >= self.max_callers.load(Relaxed) => {
                drop(shard);
                self.metrics.record_event(Event::LimiterOverflow);
                return self.shared.lock().acquire(quota, count, now);
            }
            None => {
                self.caller_count.fetch_add(1, Relaxed);
                shard
                    .entry(key)
                    .or_insert_with(|| QuotaUsage { name: draw.caller.to_quota_name(), ..QuotaUsage::default() })
                    .acquire(quota, count, now)
            }
        };
        if result.is_ok() && !self.changed.load(Relaxed) {
            self.changed.store(true, Relaxed);
        }
        result
    }

    /// Decides as [`QuotaCounters::acquire`] would, for the month and the day in this order, and counts nothing.
    pub(super) fn inspect(
        &self,
        draw: &QuotaDraw<'_>,
        count: NonZeroU32,
        now: &CalendarTime,
    ) -> Vec<Result<RateLimitStatus, LimitExceeded>> {
        let (key, count) = (draw.caller.bucket.hash(), u64::from(count.get()));
        let known = self.shard(key).and_then(|shard| shard.get(&key).cloned());
        let is_full = self.caller_count() >= self.max_callers.load(Relaxed);
        let usage = known.unwrap_or_else(|| if is_full { self.shared.lock().clone() } else { QuotaUsage::default() });
        let month = QuotaConfig { per_day: None, ..draw.quota };
        let day = QuotaConfig { per_month: None, ..draw.quota };
        let inspect = |quota: &QuotaConfig| usage.clone().acquire(quota, count, now).transpose();
        [month, day].iter().filter_map(inspect).collect()
    }

    /// Subtracts `count` calls of a caller that were counted in the current periods.
    pub(super) fn refund(&self, draw: &QuotaDraw<'_>, count: NonZeroU32, now: &CalendarTime) {
        let (key, count) = (draw.caller.bucket.hash(), u64::from(count.get()));
        let Some(mut shard) = self.shard(key) else { return };
        match shard.get_mut(&key) {
            Some(usage) => usage.refund(count, now),
            None => {
                drop(shard);
                self.shared.lock().refund(count, now);
            }
        }
        self.set_changed();
    }

    /// Evicts callers whose periods have ended. `has_monthly_quota` is whether any tier has a monthly quota.
    pub(super) fn evict_expired(&self, now: &CalendarTime, has_monthly_quota: bool) {
        let first_shard = self.next_shard.fetch_add(SHARDS_PER_SWEEP, Relaxed);
        for at in first_shard..first_shard + SHARDS_PER_SWEEP {
            let Some(shard) = self.shards.get(at % SHARDS) else {
                continue;
            };
            let mut callers = shard.lock();
            let count_before = callers.len();
            callers.retain(|_, usage| usage.day >= now.day || (has_monthly_quota && usage.month >= now.month));
            let count_after = callers.len();
            if callers.capacity() > 4 * count_after + 16 {
                callers.shrink_to(2 * count_after);
            }
            self.caller_count.fetch_sub(count_before - count_after, Relaxed);
        }
    }

    /// Resets the flag that a count changed, and returns its previous value.
    pub(super) fn take_changed(&self) -> bool {
        self.changed.swap(false, Relaxed)
    }

    /// Sets the flag that a count changed, so that the counts are persisted.
    pub(super) fn set_changed(&self) {
        self.changed.store(true, Relaxed);
    }

    /// Restores a persisted count.
    pub(super) fn restore(&self, usage: QuotaUsage) {
        let key = quota_key(&usage.name).hash();
        if let Some(mut shard) = self.shard(key)
            && shard.insert(key, usage).is_none()
        {
            self.caller_count.fetch_add(1, Relaxed);
        }
    }

    /// Calls `visit` for every caller, one shard at a time, so that no call waits for the whole iteration.
    pub(super) fn for_each(&self, mut visit: impl FnMut(&QuotaUsage)) {
        for shard in &self.shards {
            shard.lock().values().for_each(&mut visit);
        }
    }
}
