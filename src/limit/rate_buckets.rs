//! Buckets of one rate in this process.

use super::{
    bucket_key::BucketKey,
    limit_refusal::LimitExceeded,
    rate_rule::{RateLimitStatus, RateRule},
};
use std::{fmt::Debug, num::NonZeroU32};

/// Buckets of one rule, which a [`LimitStore`](super::LimitStore) opened: a bucket for each key, or a single one.
///
/// `acquire` and `refund` are the part that this process knows. A store in this process draws from it. A shared store
/// draws from it the tokens that the shared bucket granted ahead, or, while the shared bucket cannot be reached, the
/// gateway's share of the rate.
pub trait RateBuckets: Debug + Send + Sync {
    /// Returns the rule.
    fn rule(&self) -> &RateRule;

    /// Acquires `count` tokens, or none.
    ///
    /// # Errors
    /// The state of the bucket if it has fewer tokens.
    fn acquire(&self, key: BucketKey, count: NonZeroU32) -> Result<RateLimitStatus, LimitExceeded>;

    /// Decides as [`RateBuckets::acquire`] would, and takes nothing.
    ///
    /// # Errors
    /// The state of the bucket if it has fewer tokens.
    fn inspect(&self, key: BucketKey, count: NonZeroU32) -> Result<RateLimitStatus, LimitExceeded>;

    /// Refunds `count` acquired tokens.
    fn refund(&self, key: BucketKey, count: NonZeroU32);

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
