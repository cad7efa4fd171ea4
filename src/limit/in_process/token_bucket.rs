//! Token buckets of one rate: one per key, or a single bucket of an agent. Tokens can be refunded, so that a call that
//! another bucket refuses costs nothing.

use super::bucket_store::{BucketStore, GovernorStore, KeyedBucketStore, SingleBucketStore};
use crate::{
    limit::{
        bucket_key::BucketKey, clock::LimitClock, limit_refusal::LimitExceeded, rate_buckets::RateBuckets,
        rate_limit_status::RateLimitStatus, rate_rule::RateRule,
    },
    telemetry::Metrics,
};
use governor::{
    Quota, RateLimiter,
    clock::{Clock as _, Reference as _},
    middleware::StateInformationMiddleware,
    nanos::Nanos,
};
use std::{
    fmt::Debug,
    num::NonZeroU32,
    sync::{Arc, atomic::Ordering::AcqRel, atomic::Ordering::Acquire},
};

/// Token buckets of one rate.
#[derive(Debug)]
pub(super) struct TokenBucket<C: BucketStore> {
    rule: RateRule,
    store: Arc<C>,
    /// Time from which the states in the store count.
    started_at: Nanos,
    limiter: RateLimiter<u64, GovernorStore<C>, LimitClock, StateInformationMiddleware>,
}

impl TokenBucket<KeyedBucketStore> {
    pub(super) fn new_keyed(rule: RateRule, max_keys: usize, clock: &LimitClock, metrics: &Arc<Metrics>) -> Self {
        Self::new(rule, clock, KeyedBucketStore::new(max_keys, Arc::clone(metrics)))
    }
}

impl TokenBucket<SingleBucketStore> {
    pub(super) fn new_single(rule: RateRule, clock: &LimitClock) -> Self {
        Self::new(rule, clock, SingleBucketStore::default())
    }
}

impl<C: BucketStore> TokenBucket<C> {
    fn new(rule: RateRule, clock: &LimitClock, store: C) -> Self {
        let quota = Quota::with_period(rule.refill_interval).unwrap_or(Quota::per_second(rule.rate.count));
        let store = Arc::new(store);
        let started_at = clock.now();
        let limiter = RateLimiter::new(quota.allow_burst(rule.burst), GovernorStore(Arc::clone(&store)), clock.clone());
        Self { rule, store, started_at, limiter }
    }

    fn exceeded(&self) -> LimitExceeded {
        LimitExceeded { status: self.rule.status(0, None), retry_after: None }
    }
}

impl<C: BucketStore + Debug + Send + Sync> RateBuckets for TokenBucket<C> {
    fn rule(&self) -> &RateRule {
        &self.rule
    }

    fn acquire(&self, key: BucketKey, count: NonZeroU32) -> Result<RateLimitStatus, LimitExceeded> {
        let decision = if count == NonZeroU32::MIN {
            self.limiter.check_key(&key.hash())
        } else if count > self.rule.burst {
            // Beyond the burst, the arithmetic of `governor` can overflow.
            return Err(self.exceeded());
        } else {
            self.limiter.check_key_n(&key.hash(), count).map_err(|_| self.exceeded())?
        };
        match decision {
            Ok(state) => Ok(self.rule.status(state.remaining_burst_capacity(), None)),
            Err(not_until) => {
                let delay = not_until.wait_time_from(self.limiter.clock().now());
                Err(LimitExceeded { status: self.rule.status(0, Some(delay)), retry_after: Some(delay) })
            }
        }
    }

    fn refund(&self, key: BucketKey, count: NonZeroU32) {
        let nanos = self.rule.refill_interval.as_nanos().saturating_mul(u128::from(count.get()));
        let nanos = u64::try_from(nanos).unwrap_or(u64::MAX);
        self.store.with_state(key.hash(), false, |state| {
            // The closure returns `Some`, so that the update succeeds. The least state is 1, because 0 is a new bucket.
            let _ = state.fetch_update(AcqRel, Acquire, |full_at| Some(full_at.saturating_sub(nanos).max(1)));
        });
    }

    fn is_idle(&self) -> bool {
        let now = self.limiter.clock().now().duration_since(self.started_at);
        self.store.is_idle(now.into())
    }

    fn set_max_keys(&self, max_keys: usize) {
        self.store.set_max_keys(max_keys);
    }

    fn evict_idle(&self) {
        self.limiter.retain_recent();
    }

    fn key_count(&self) -> usize {
        self.store.key_count()
    }

    #[cfg(test)]
    fn capacity(&self) -> usize {
        self.store.capacity()
    }
}
