//! Token buckets of one rate: one per key, or a single bucket of an agent. Tokens can be refunded, so that a call that
//! another bucket refuses costs nothing.

use super::{
    bucket_store::{BucketStore, GovernorStore, KeyedBucketStore, SingleBucketStore},
    clock::LimitClock,
    rate_limit_status::RateLimitStatus,
};
use crate::{
    telemetry::{LimitKind, Metrics},
    values::Rate,
};
use governor::{Quota, RateLimiter, clock::Clock as _, middleware::StateInformationMiddleware};
use std::{
    num::NonZeroU32,
    sync::{Arc, atomic::Ordering::AcqRel, atomic::Ordering::Acquire},
    time::Duration,
};

/// Maximum time to fill a bucket; beyond it the arithmetic in nanoseconds would overflow.
const MAX_FILL_TIME: Duration = Duration::from_secs(100 * 366 * 86_400);

/// Reason why no tokens were acquired.
#[derive(Debug)]
pub(super) struct LimitExceeded {
    /// State of the limit that refused.
    pub(super) status: RateLimitStatus,
    /// Time until enough tokens are available; `None` if the limit never allows so many at once.
    pub(super) retry_after: Option<Duration>,
}

/// Something that tokens are acquired from.
pub(super) trait AcquireTokens {
    /// Acquires `count` tokens, or none.
    fn acquire(&self, key: u64, count: NonZeroU32) -> Result<RateLimitStatus, LimitExceeded>;
    /// Refunds `count` acquired tokens.
    fn refund(&self, key: u64, count: NonZeroU32);
}

/// Token buckets of one rate.
#[derive(Debug)]
pub(super) struct TokenBucket<C: BucketStore> {
    pub(super) limit: LimitKind,
    pub(super) rate: Rate,
    burst: NonZeroU32,
    refill_interval: Duration,
    store: Arc<C>,
    limiter: RateLimiter<u64, GovernorStore<C>, LimitClock, StateInformationMiddleware>,
}

impl TokenBucket<KeyedBucketStore> {
    pub(super) fn new_keyed(
        limit: LimitKind,
        rate: Rate,
        max_keys: usize,
        clock: &LimitClock,
        metrics: &Arc<Metrics>,
    ) -> Self {
        Self::new(limit, rate, clock, KeyedBucketStore::new(max_keys, Arc::clone(metrics)))
    }

    pub(super) fn store(&self) -> &KeyedBucketStore {
        &self.store
    }
}

impl TokenBucket<SingleBucketStore> {
    pub(super) fn new_single(limit: LimitKind, rate: Rate, clock: &LimitClock) -> Self {
        Self::new(limit, rate, clock, SingleBucketStore::default())
    }

    /// Returns whether the bucket is full, like a new one. Acquires a token and refunds it.
    pub(super) fn is_full(&self) -> bool {
        let probe = self.acquire(0, NonZeroU32::MIN);
        if probe.is_ok() {
            self.refund(0, NonZeroU32::MIN);
        }
        probe.is_ok_and(|status| status.remaining + 1 >= u64::from(self.burst.get()))
    }
}

impl<C: BucketStore> TokenBucket<C> {
    fn new(limit: LimitKind, rate: Rate, clock: &LimitClock, store: C) -> Self {
        let refill_interval = (rate.period / rate.count.get()).max(Duration::from_nanos(1));
        let max_burst = u32::try_from(MAX_FILL_TIME.as_nanos() / refill_interval.as_nanos()).unwrap_or(u32::MAX);
        let burst = rate.burst.min(NonZeroU32::new(max_burst).unwrap_or(NonZeroU32::MIN));
        let quota = Quota::with_period(refill_interval).unwrap_or(Quota::per_second(rate.count)).allow_burst(burst);
        let store = Arc::new(store);
        let limiter = RateLimiter::new(quota, GovernorStore(Arc::clone(&store)), clock.clone());
        Self { limit, rate, burst, refill_interval, store, limiter }
    }

    /// Evicts some of the keys whose buckets are full.
    pub(super) fn evict_idle(&self) {
        self.limiter.retain_recent();
    }

    fn status(&self, remaining: u32, reset: Option<Duration>) -> RateLimitStatus {
        let missing = self.burst.get().saturating_sub(remaining);
        RateLimitStatus {
            limit: self.limit,
            quota: u64::from(self.burst.get()),
            remaining: u64::from(remaining),
            reset: reset.unwrap_or(self.refill_interval.saturating_mul(missing)),
            window: self.refill_interval.saturating_mul(self.burst.get()),
        }
    }
}

impl<C: BucketStore> AcquireTokens for TokenBucket<C> {
    fn acquire(&self, key: u64, count: NonZeroU32) -> Result<RateLimitStatus, LimitExceeded> {
        let result = match count.get() {
            1 => Ok(self.limiter.check_key(&key)),
            // Beyond the burst, the arithmetic of `governor` can overflow.
            _ if count > self.burst => {
                return Err(LimitExceeded { status: self.status(0, None), retry_after: None });
            }
            _ => self.limiter.check_key_n(&key, count),
        };
        match result {
            Ok(Ok(state)) => Ok(self.status(state.remaining_burst_capacity(), None)),
            Ok(Err(not_until)) => {
                let delay = not_until.wait_time_from(self.limiter.clock().now());
                Err(LimitExceeded { status: self.status(0, Some(delay)), retry_after: Some(delay) })
            }
            Err(_) => Err(LimitExceeded { status: self.status(0, None), retry_after: None }),
        }
    }

    fn refund(&self, key: u64, count: NonZeroU32) {
        let nanos = self.refill_interval.as_nanos().saturating_mul(u128::from(count.get()));
        let nanos = u64::try_from(nanos).unwrap_or(u64::MAX);
        self.store.with_state(key, false, |state| {
            // The closure returns `Some`, so that the update succeeds. The least state is 1, because 0 is a new bucket.
            let _ = state.fetch_update(AcqRel, Acquire, |full_at| Some(full_at.saturating_sub(nanos).max(1)));
        });
    }
}
