//! A draw: the tokens and the quota that one call needs, acquired completely or not at all.

use super::{
    bucket_key::{BucketKey, RateLimitKey},
    config::QuotaConfig,
    rate_buckets::RateBuckets,
};
use std::{num::NonZeroU32, sync::Arc};

/// Everything that one call draws, in the order in which limits refuse.
#[derive(Clone, Copy, Debug)]
pub struct LimitDraw<'a> {
    /// Tokens to draw from each bucket, and calls to count in the quota.
    pub count: NonZeroU32,
    /// Buckets of the caller or the address.
    pub caller_buckets: [Option<BucketDraw<'a>>; 2],
    /// Buckets of the agent, which all callers share.
    pub agent_buckets: Option<AgentDraw<'a>>,
    /// Quota of the caller.
    pub quota: Option<QuotaDraw<'a>>,
}

/// One bucket of a rule.
#[derive(Clone, Copy, Debug)]
pub struct BucketDraw<'a> {
    /// The buckets of the rule.
    pub buckets: &'a dyn RateBuckets,
    /// The bucket.
    pub key: BucketKey,
}

/// The buckets of one agent.
#[derive(Clone, Copy, Debug)]
pub struct AgentDraw<'a> {
    /// A bucket for each rate of the agent.
    pub buckets: &'a [Arc<dyn RateBuckets>],
    /// Key of the agent.
    pub key: BucketKey,
}

/// The quota of one caller.
#[derive(Clone, Copy, Debug)]
pub struct QuotaDraw<'a> {
    /// The caller.
    pub caller: RateLimitKey<'a>,
    /// Calls that the caller has per day and month.
    pub quota: QuotaConfig,
}

impl<'a> LimitDraw<'a> {
    /// Draws `count` tokens from buckets of a caller.
    pub fn from_caller_buckets(count: NonZeroU32, caller_buckets: [Option<BucketDraw<'a>>; 2]) -> Self {
        Self { count, caller_buckets, agent_buckets: None, quota: None }
    }

    /// Returns every bucket, in the order in which they refuse.
    pub fn buckets(&self) -> impl Iterator<Item = BucketDraw<'a>> + Clone + use<'a> {
        let agent = self.agent_buckets.into_iter().flat_map(AgentDraw::buckets);
        self.caller_buckets.into_iter().flatten().chain(agent)
    }
}

impl<'a> AgentDraw<'a> {
    fn buckets(self) -> impl Iterator<Item = BucketDraw<'a>> + Clone {
        self.buckets.iter().map(move |buckets| BucketDraw { buckets: &**buckets, key: self.key })
    }
}

impl BucketDraw<'_> {
    /// Returns the name of the bucket in a shared store: the rule's id in the upper half, the key in the lower half.
    pub fn shared_id(&self) -> u128 {
        u128::from(self.buckets.rule().id) << 64 | u128::from(self.key.hash())
    }
}
