//! Token buckets of one rate: one per key, or a single bucket of an agent; and the storage of their state. Tokens can
//! be refunded, so that a call that another bucket refuses costs nothing. The stores of `governor` do not report new
//! keys, so that they support neither a bound nor refunds: here a sharded map of bounded size is swept in parts.

use crate::{
    limit::{
        bucket_key::BucketKey,
        clock::LimitClock,
        limit_refusal::LimitExceeded,
        rate_buckets::{InProcessBuckets, RateBuckets},
        rate_rule::{RateLimitStatus, RateRule},
    },
    telemetry::{Event, Metrics},
};
use foldhash::fast::RandomState;
use governor::{
    Quota, RateLimiter,
    clock::{Clock as _, Reference as _},
    middleware::StateInformationMiddleware,
    nanos::Nanos,
    state::{StateStore, keyed::ShrinkableKeyedStateStore},
};
use parking_lot::RwLock;
use std::{
    collections::HashMap,
    fmt::Debug,
    num::{NonZeroU32, NonZeroU64},
    sync::{
        Arc,
        atomic::{
            AtomicU64, AtomicUsize,
            Ordering::{AcqRel, Acquire, Relaxed},
        },
    },
};

/// Token buckets of one rate.
#[derive(Debug)]
pub(super) struct TokenBucket<C: BucketStore> {
    rule: RateRule,
    store: Arc<C>,
    /// Time from which the states in the store count.
    started_at: Nanos,
    limiter: RateLimiter<BucketAccess, GovernorStore<C>, LimitClock, StateInformationMiddleware>,
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

    fn decide(&self, access: BucketAccess, count: NonZeroU32) -> Result<RateLimitStatus, LimitExceeded> {
        let decision = if count == NonZeroU32::MIN {
            self.limiter.check_key(&access)
        } else if count > self.rule.burst {
            // Beyond the burst, the arithmetic of `governor` can overflow.
            return Err(self.exceeded());
        } else {
            self.limiter.check_key_n(&access, count).map_err(|_| self.exceeded())?
        };
        match decision {
            Ok(state) => Ok(self.rule.status(state.remaining_burst_capacity(), None)),
            Err(not_until) => {
                let delay = not_until.wait_time_from(self.limiter.clock().now());
                Err(LimitExceeded { status: self.rule.status(0, Some(delay)), retry_after: Some(delay) })
            }
        }
    }

    fn exceeded(&self) -> LimitExceeded {
        LimitExceeded { status: self.rule.status(0, None), retry_after: None }
    }
}

impl<C: BucketStore + Debug + Send + Sync> InProcessBuckets for TokenBucket<C> {
    fn acquire(&self, key: BucketKey, count: NonZeroU32) -> Result<RateLimitStatus, LimitExceeded> {
        self.decide(BucketAccess { key: key.hash(), is_inspection: false }, count)
    }

    fn inspect(&self, key: BucketKey, count: NonZeroU32) -> Result<RateLimitStatus, LimitExceeded> {
        self.decide(BucketAccess { key: key.hash(), is_inspection: true }, count)
    }

    fn refund(&self, key: BucketKey, count: NonZeroU32) {
        let nanos = self.rule.refill_interval.as_nanos().saturating_mul(u128::from(count.get()));
        let nanos = u64::try_from(nanos).unwrap_or(u64::MAX);
        self.store.with_state(key.hash(), false, |state| {
            // The closure returns `Some`, so that the update succeeds. The least state is 1, because 0 is a new bucket.
            let _ = state.fetch_update(AcqRel, Acquire, |full_at| Some(full_at.saturating_sub(nanos).max(1)));
        });
    }
}

impl<C: BucketStore + Debug + Send + Sync> RateBuckets for TokenBucket<C> {
    fn rule(&self) -> &RateRule {
        &self.rule
    }

    fn in_process(&self) -> Option<&dyn InProcessBuckets> {
        Some(self)
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

const SHARDS: usize = 64;
/// Shards that one sweep visits: a full round takes sixteen sweeps.
const SHARDS_PER_SWEEP: usize = 4;

/// Map by the hash of a key. Everyone can compute these hashes, therefore the map mixes them with a secret seed.
pub(super) type SeededMap<T> = HashMap<u64, T, RandomState>;

/// An access to the bucket of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct BucketAccess {
    key: u64,
    /// Whether the bucket is only asked, and keeps its tokens.
    is_inspection: bool,
}

/// Stores the state of buckets by key. The state is the time at which the bucket is full, in nanoseconds; 0 is a new
/// bucket.
pub(super) trait BucketStore {
    /// Calls `visit` with the state of `key`, which is created if `create` is set. Otherwise returns `None` for a key
    /// without state.
    fn with_state<T>(&self, key: u64, create: bool, visit: impl FnOnce(&AtomicU64) -> T) -> Option<T>;
    /// Returns the state that `with_state` would visit, and creates none.
    fn current_state(&self, key: u64) -> u64;
    /// Evicts some of the buckets that are full at `cutoff`, in nanoseconds.
    fn evict_full(&self, cutoff: u64);
    /// Returns whether no bucket is in use at `now`, in nanoseconds. Buckets of keys are evicted instead.
    fn is_idle(&self, now: u64) -> bool;
    /// Sets the maximum number of keys.
    fn set_max_keys(&self, max_keys: usize);
    /// Returns the number of buckets.
    fn key_count(&self) -> usize;
    /// Returns for how many keys memory is allocated.
    #[cfg(test)]
    fn capacity(&self) -> usize;
}

/// The state of one bucket, which every key uses.
#[derive(Debug, Default)]
pub(super) struct SingleBucketStore(AtomicU64);

impl BucketStore for SingleBucketStore {
    fn with_state<T>(&self, _: u64, _: bool, visit: impl FnOnce(&AtomicU64) -> T) -> Option<T> {
        Some(visit(&self.0))
    }

    fn current_state(&self, _: u64) -> u64 {
        self.0.load(Acquire)
    }

    fn evict_full(&self, _: u64) {}

    fn is_idle(&self, now: u64) -> bool {
        self.0.load(Acquire) <= now
    }

    fn set_max_keys(&self, _: usize) {}

    fn key_count(&self) -> usize {
        1
    }

    #[cfg(test)]
    fn capacity(&self) -> usize {
        1
    }
}

/// The state of a bucket for each key, up to a maximum; further keys share one bucket.
#[derive(Debug)]
pub(super) struct KeyedBucketStore {
    shards: Box<[RwLock<SeededMap<AtomicU64>>]>,
    key_count: AtomicUsize,
    max_keys: AtomicUsize,
    shared: AtomicU64,
    next_shard: AtomicUsize,
    metrics: Arc<Metrics>,
}

impl KeyedBucketStore {
    pub(super) fn new(max_keys: usize, metrics: Arc<Metrics>) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| RwLock::default()).collect(),
            key_count: AtomicUsize::new(0),
            max_keys: AtomicUsize::new(max_keys),
            shared: AtomicU64::new(0),
            next_shard: AtomicUsize::new(0),
            metrics,
        }
    }

    fn shard(&self, key: u64) -> Option<&RwLock<SeededMap<AtomicU64>>> {
        self.shards.get(usize::try_from(key >> 40).unwrap_or_default() % SHARDS)
    }
}

impl BucketStore for KeyedBucketStore {
    fn with_state<T>(&self, key: u64, create: bool, visit: impl FnOnce(&AtomicU64) -> T) -> Option<T> {
        let shard = self.shard(key)?;
        if let Some(state) = shard.read().get(&key) {
            return Some(visit(state));
        }
        if !create {
            return None;
        }
        let mut states = shard.write();
        if !states.contains_key(&key) {
            if self.key_count.load(Relaxed) >= self.max_keys.load(Relaxed) {
                drop(states);
                self.metrics.record_event(Event::LimiterOverflow);
                return Some(visit(&self.shared));
            }
            self.key_count.fetch_add(1, Relaxed);
        }
        Some(visit(states.entry(key).or_default()))
    }

    fn current_state(&self, key: u64) -> u64 {
        let existing = self.with_state(key, false, |state| state.load(Acquire));
        let is_full = self.key_count.load(Relaxed) >= self.max_keys.load(Relaxed);
        existing.unwrap_or_else(|| if is_full { self.shared.load(Acquire) } else { 0 })
    }

    fn evict_full(&self, cutoff: u64) {
        let first_shard = self.next_shard.fetch_add(SHARDS_PER_SWEEP, Relaxed);
        for at in first_shard..first_shard + SHARDS_PER_SWEEP {
            let Some(shard) = self.shards.get(at % SHARDS) else {
                continue;
            };
            let mut states = shard.write();
            let count_before = states.len();
            states.retain(|_, full_at| *full_at.get_mut() > cutoff);
            let count_after = states.len();
            if states.capacity() > 4 * count_after + 16 {
                states.shrink_to(2 * count_after);
            }
            self.key_count.fetch_sub(count_before - count_after, Relaxed);
        }
    }

    fn is_idle(&self, _: u64) -> bool {
        true
    }

    fn set_max_keys(&self, max_keys: usize) {
        self.max_keys.store(max_keys, Relaxed);
    }

    fn key_count(&self) -> usize {
        self.key_count.load(Relaxed)
    }

    #[cfg(test)]
    fn capacity(&self) -> usize {
        self.shards.iter().map(|shard| shard.read().capacity()).sum()
    }
}

/// Adapts a store to the trait of `governor`, and shares the store with the bucket.
#[derive(Debug)]
struct GovernorStore<C>(pub(super) Arc<C>);

impl<C: BucketStore> StateStore for GovernorStore<C> {
    type Key = BucketAccess;

    fn measure_and_replace<T, F, E>(&self, access: &BucketAccess, decide: F) -> Result<T, E>
    where
        F: Fn(Option<Nanos>) -> Result<(T, Nanos), E>,
    {
        if access.is_inspection {
            let state = NonZeroU64::new(self.0.current_state(access.key));
            return decide(state.map(|full_at| full_at.get().into())).map(|(result, _)| result);
        }
        let update_state = |state: &AtomicU64| {
            let mut current = state.load(Acquire);
            loop {
                let (result, next) = decide(NonZeroU64::new(current).map(|full_at| full_at.get().into()))?;
                match state.compare_exchange_weak(current, next.into(), AcqRel, Acquire) {
                    Ok(_) => return Ok(result),
                    Err(actual) => current = actual,
                }
            }
        };
        match self.0.with_state(access.key, true, update_state) {
            Some(result) => result,
            // Unreachable, because every key has a shard; decides as for a new key.
            None => decide(None).map(|(result, _)| result),
        }
    }
}

impl<C: BucketStore> ShrinkableKeyedStateStore<BucketAccess> for GovernorStore<C> {
    fn retain_recent(&self, cutoff: Nanos) {
        self.0.evict_full(cutoff.into());
    }

    fn len(&self) -> usize {
        self.0.key_count()
    }

    fn is_empty(&self) -> bool {
        self.0.key_count() == 0
    }
}
