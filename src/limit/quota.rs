//! Quotas: calls of a caller per calendar day and month, counted here and persisted across restarts by `quota_file`.
//! A caller is tracked until its periods end; refused calls do not count.

use super::{bucket::Empty, clock::Today, config::Quota, standing::Standing, store::ByKey};
use crate::telemetry::{Event, Limit, Metrics};
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
const SWEPT: usize = 4;
const DAY: Duration = Duration::from_secs(86_400);

/// Calls of one caller in the current day and month.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Used {
    pub(super) name: Box<str>,
    pub(super) day: u32,
    pub(super) in_day: u64,
    pub(super) month: u32,
    pub(super) in_month: u64,
}

impl Used {
    /// Starts new periods. A clock that goes backwards starts none, which would grant a quota twice.
    fn roll(&mut self, today: &Today) {
        if self.day < today.day {
            (self.day, self.in_day) = (today.day, 0);
        }
        if self.month < today.month {
            (self.month, self.in_month) = (today.month, 0);
        }
    }

    fn take(&mut self, quota: &Quota, n: u64, today: &Today) -> Result<Option<Standing>, Empty> {
        self.roll(today);
        let periods = [
            (Limit::Month, quota.per_month, self.in_month, today.month_left, today.month_length),
            (Limit::Day, quota.per_day, self.in_day, today.day_left, DAY),
        ];
        let mut tightest = None;
        for (limit, most, used, reset, window) in periods {
            let Some(most) = most else { continue };
            let left = most.get().saturating_sub(used);
            let standing = Standing { limit, quota: most.get(), remaining: left.saturating_sub(n), reset, window };
            if left < n {
                let standing = Standing { remaining: left, ..standing };
                return Err(Empty { standing, wait: (n <= most.get()).then_some(reset) });
            }
            tightest = Some(standing.tighter(tightest));
        }
        self.in_day = self.in_day.saturating_add(n);
        self.in_month = self.in_month.saturating_add(n);
        Ok(tightest)
    }
}

/// Quota counts of all callers.
#[derive(Debug)]
pub(super) struct Quotas {
    shards: Box<[Mutex<ByKey<Used>>]>,
    /// Count shared by the callers beyond `max_callers`.
    shared: Mutex<Used>,
    held: AtomicUsize,
    most: AtomicUsize,
    next: AtomicUsize,
    changed: AtomicBool,
    metrics: Arc<Metrics>,
}

impl Quotas {
    pub(super) fn new(most: usize, metrics: Arc<Metrics>) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            shared: Mutex::default(),
            held: AtomicUsize::new(0),
            most: AtomicUsize::new(most),
            next: AtomicUsize::new(0),
            changed: AtomicBool::new(false),
            metrics,
        }
    }

    pub(super) fn bound(&self, most: usize) {
        self.most.store(most, Relaxed);
    }

    pub(super) fn held(&self) -> usize {
        self.held.load(Relaxed)
    }

    fn shard(&self, key: u64) -> Option<MutexGuard<'_, ByKey<Used>>> {
        self.shards.get(usize::try_from(key >> 40).unwrap_or_default() % SHARDS).map(lock)
    }

    /// Counts `n` calls of a caller, or refuses them. `name` is called only for a new caller.
    pub(super) fn take(
        &self,
        (key, name): (u64, impl FnOnce() -> Box<str>),
        quota: &Quota,
        n: NonZeroU32,
        today: &Today,
    ) -> Result<Option<Standing>, Empty> {
        let n = u64::from(n.get());
        let Some(mut shard) = self.shard(key) else {
            return Ok(None);
        };
        let taken = match shard.get_mut(&key) {
            Some(used) => used.take(quota, n, today),
            None if self.held() >= self.most.load(Relaxed) => {
                drop(shard);
                self.metrics.count(Event::LimitOverflow);
                return lock(&self.shared).take(quota, n, today);
            }
            None => {
                self.held.fetch_add(1, Relaxed);
                shard.entry(key).or_insert_with(|| Used { name: name(), ..Used::default() }).take(quota, n, today)
            }
        };
        if taken.is_ok() && !self.changed.load(Relaxed) {
            self.changed.store(true, Relaxed);
        }
        taken
    }

    /// Evicts callers whose periods are over; `months` says whether any tier has a monthly quota.
    pub(super) fn sweep(&self, today: &Today, months: bool) {
        let first = self.next.fetch_add(SWEPT, Relaxed);
        for at in first..first + SWEPT {
            let Some(shard) = self.shards.get(at % SHARDS) else {
                continue;
            };
            let mut callers = lock(shard);
            let before = callers.len();
            callers.retain(|_, used| used.day >= today.day || (months && used.month >= today.month));
            let after = callers.len();
            if callers.capacity() > 4 * after + 16 {
                callers.shrink_to(2 * after);
            }
            self.held.fetch_sub(before - after, Relaxed);
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
    pub(super) fn restore(&self, key: u64, used: Used) {
        if let Some(mut shard) = self.shard(key)
            && shard.insert(key, used).is_none()
        {
            self.held.fetch_add(1, Relaxed);
        }
    }

    /// Calls `with` for every count, one shard at a time, so that no call waits for all shards.
    pub(super) fn each(&self, mut with: impl FnMut(&Used)) {
        for shard in &self.shards {
            lock(shard).values().for_each(&mut with);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
