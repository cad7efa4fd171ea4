//! The store behind which rates and quotas are counted.

use super::{
    config::LimitConfig,
    limit_draw::LimitDraw,
    limit_refusal::LimitRefusal,
    rate_buckets::RateBuckets,
    rate_rule::{RateLimitStatus, RateRule},
};
use crate::values::StoreAnswer;
use std::{fmt::Debug, sync::Arc};

/// Result of a draw: the status of the tightest limit, if any limit applies.
pub type DrawResult = Result<Option<RateLimitStatus>, LimitRefusal>;

/// What one limit of a draw would decide.
pub type InspectionResult = Result<RateLimitStatus, LimitRefusal>;

/// Which buckets a rule has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BucketScope {
    /// A bucket for each key.
    PerKey {
        /// Maximum number of keys that this process tracks.
        max_keys: usize,
    },
    /// One bucket, whose draws all have the same key.
    Single,
}

/// Why the counts are saved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SaveReason {
    /// The periodic save, about once a second. The store may skip it.
    Periodic,
    /// The process ends.
    Shutdown,
    /// Another process takes over the listeners and loads the counts.
    Handover,
}

/// Counts the calls of rates and quotas. One store serves a gateway from its start to its end; a reload reconfigures it.
///
/// Concurrency permits are not part of the trait: they are counted in this process, because they end with the
/// connections of this process.
///
/// # Contract
/// - A draw is one trip to the store, and is atomic for its caller: it takes `count` tokens from every bucket and counts
///   `count` calls in the quota, or it takes nothing and names the first limit that refuses, in the order of the draw.
/// - Buckets are identified by [`BucketDraw::shared_id`](super::BucketDraw::shared_id), quotas by the caller's key and
///   the calendar period. Both are equal in every gateway.
/// - A rule's bucket starts full, holds `burst` tokens and gains a token every `refill_interval`.
/// - A pending answer owns what it needs of the draw. If the answer is dropped, the tokens may be spent.
pub trait LimitStore: Debug + Send + Sync {
    /// Opens the buckets of a rule. Runs when a configuration or an agent is compiled, not in calls.
    fn open_buckets(&self, rule: RateRule, scope: BucketScope) -> Arc<dyn RateBuckets>;

    /// Draws from every bucket and the quota, or from none.
    fn acquire<'a>(&'a self, draw: &LimitDraw<'_>) -> StoreAnswer<'a, DrawResult>;

    /// Decides for each limit of a draw, in the order of the draw, and takes nothing.
    fn inspect<'a>(&'a self, draw: &LimitDraw<'_>) -> StoreAnswer<'a, Vec<InspectionResult>>;

    /// Returns what a draw acquired. Never fills a bucket above `burst`.
    fn refund<'a>(&'a self, draw: &LimitDraw<'_>) -> StoreAnswer<'a, ()>;

    /// Applies a changed configuration; the counts stay.
    fn reconfigure(&self, config: &LimitConfig);

    /// Evicts some of the callers whose quota periods have ended; runs about once a second. `has_monthly_quota` is
    /// whether any tier has a monthly quota.
    fn evict_expired_quotas(&self, has_monthly_quota: bool);

    /// Returns how many callers have a quota count in this process.
    fn quota_count(&self) -> usize;

    /// Saves the counts that only this process has. Blocks.
    ///
    /// # Errors
    /// Returns why the counts cannot be saved. The next save tries again.
    fn save(&self, reason: SaveReason) -> Result<(), String>;

    /// Loads the counts that the previous process saved with [`SaveReason::Handover`]. Blocks.
    ///
    /// # Errors
    /// Returns why the counts cannot be loaded.
    fn reload(&self) -> Result<(), String>;
}
