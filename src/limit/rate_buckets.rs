//! Buckets of one rate in this process.

use super::{
    bucket_key::BucketKey,
    limit_refusal::LimitExceeded,
    rate_rule::{RateLimitStatus, RateRule},
};
use std::{any::Any, fmt::Debug, num::NonZeroU32};

/// Buckets of one rule, which a [`LimitStore`](super::LimitStore) opened: a bucket for each key, or a single one.
pub trait RateBuckets: Debug + Send + Sync {
    /// Returns the rule.
    fn rule(&self) -> &RateRule;

    /// Returns the buckets of a store in this process.
    fn in_process(&self) -> Option<&dyn InProcessBuckets> {
        None
    }

    /// Returns the buckets of a store outside this process, as the type that the store knows.
    fn as_shared(&self) -> Option<&dyn Any> {
        None
    }

    /// Returns whether every bucket that is not tracked per key is full. Buckets of keys are evicted when they are full,
    /// and need no check.
    fn is_idle(&self) -> bool;

    /// Sets the maximum number of keys with a bucket of their own; further keys share one bucket.
    fn set_max_keys(&self, max_keys: usize);

    /// Evicts some of the keys whose buckets are full.
    fn evict_idle(&self);

    /// Returns how many buckets are tracked.
    fn key_count(&self) -> usize;

    /// Returns for how many keys memory is allocated.
    #[cfg(test)]
    fn capacity(&self) -> usize;
}

/// Buckets of one rule in this process, which know everything of a draw.
pub trait InProcessBuckets: Debug {
    /// Acquires `count` tokens, or none.
    ///
    /// # Errors
    /// The state of the bucket if it has fewer tokens.
    fn acquire(&self, key: BucketKey, count: NonZeroU32) -> Result<RateLimitStatus, LimitExceeded>;

    /// Decides as [`InProcessBuckets::acquire`] would, and takes nothing.
    ///
    /// # Errors
    /// The state of the bucket if it has fewer tokens.
    fn inspect(&self, key: BucketKey, count: NonZeroU32) -> Result<RateLimitStatus, LimitExceeded>;

    /// Refunds `count` acquired tokens.
    fn refund(&self, key: BucketKey, count: NonZeroU32);
}
