//! Rate limits and quotas in force, resolved from the configuration: the buckets of addresses and of each tier. A
//! bucket of the previous configuration is kept if its rate is unchanged.

use super::{
    bucket_store::{BucketStore as _, KeyedBucketStore},
    clock::LimitClock,
    config::{LimitConfig, QuotaConfig, TierConfig},
    load_shedding::{DEFAULT_PRIORITY, PriorityRanks},
    token_bucket::TokenBucket,
};
use crate::{
    telemetry::{LimitKind, Metrics},
    values::Rate,
};
use std::{collections::HashMap, sync::Arc};

type SharedKeyedBucket = Arc<TokenBucket<KeyedBucketStore>>;

/// Rate limits, quota and priority of one tier.
#[derive(Debug, Default)]
pub(super) struct TierPolicy {
    pub(super) caller: Option<SharedKeyedBucket>,
    pub(super) caller_agent: Option<SharedKeyedBucket>,
    pub(super) quota: Option<QuotaConfig>,
    pub(super) priority: u8,
}

impl TierPolicy {
    fn has_monthly_quota(&self) -> bool {
        self.quota.is_some_and(|quota| quota.per_month.is_some())
    }
}

/// Limits in force for one configuration.
#[derive(Debug)]
pub(super) struct LimitPolicy {
    config: LimitConfig,
    pub(super) address: Option<SharedKeyedBucket>,
    pub(super) search: Option<SharedKeyedBucket>,
    /// The priorities in use.
    pub(super) ranks: PriorityRanks,
    default_tier: TierPolicy,
    tiers: HashMap<Box<str>, TierPolicy>,
}

impl LimitPolicy {
    pub(super) fn new(
        config: &LimitConfig,
        previous: Option<&Self>,
        clock: &LimitClock,
        metrics: &Arc<Metrics>,
    ) -> Self {
        let reuse_or_create = |limit, rate: Option<Rate>, previous: Option<&SharedKeyedBucket>| {
            let rate = rate?;
            let bucket = previous.filter(|bucket| bucket.rate == rate).map_or_else(
                || Arc::new(TokenBucket::new_keyed(limit, rate, config.max_tracked_keys, clock, metrics)),
                Arc::clone,
            );
            bucket.store().set_max_keys(config.max_tracked_keys);
            Some(bucket)
        };
        let ranks = PriorityRanks::new(config.tiers.values());
        let tier_policy = |caller, caller_agent, quota: QuotaConfig, previous: Option<&TierPolicy>| TierPolicy {
            priority: DEFAULT_PRIORITY,
            caller: reuse_or_create(LimitKind::Caller, caller, previous.and_then(|previous| previous.caller.as_ref())),
            caller_agent: reuse_or_create(
                LimitKind::CallerAgent,
                caller_agent,
                previous.and_then(|previous| previous.caller_agent.as_ref()),
            ),
            quota: Some(quota).filter(|quota| *quota != QuotaConfig::default()),
        };
        let default_tier = tier_policy(
            config.per_caller,
            config.per_caller_agent,
            config.quota,
            previous.map(|policy| &policy.default_tier),
        );
        let tier = |(name, tier): (&String, &TierConfig)| {
            let previous_tier = previous.and_then(|policy| policy.tiers.get(&**name));
            let tier_limits =
                tier_policy(tier.per_caller, tier.per_caller_agent, tier.quota.unwrap_or(config.quota), previous_tier);
            let with_defaults = TierPolicy {
                priority: tier.priority.unwrap_or(DEFAULT_PRIORITY),
                caller: tier_limits.caller.or_else(|| default_tier.caller.clone()),
                caller_agent: tier_limits.caller_agent.or_else(|| default_tier.caller_agent.clone()),
                quota: tier_limits.quota,
            };
            (Box::from(&**name), with_defaults)
        };
        let tiers = config.tiers.iter().map(tier).collect();
        let address = reuse_or_create(
            LimitKind::Address,
            config.per_address,
            previous.and_then(|policy| policy.address.as_ref()),
        );
        let search = reuse_or_create(
            LimitKind::Search,
            config.per_caller_search,
            previous.and_then(|policy| policy.search.as_ref()),
        );
        Self { config: config.clone(), address, search, ranks, tiers, default_tier }
    }

    pub(super) fn config(&self) -> &LimitConfig {
        &self.config
    }

    pub(super) fn tier(&self, name: Option<&str>) -> &TierPolicy {
        name.and_then(|name| self.tiers.get(name)).unwrap_or(&self.default_tier)
    }

    /// Returns every bucket. A bucket that several tiers share occurs once for each of them.
    fn buckets_of_all_tiers(&self) -> impl Iterator<Item = &SharedKeyedBucket> {
        let tiers = std::iter::once(&self.default_tier).chain(self.tiers.values());
        self.address
            .iter()
            .chain(&self.search)
            .chain(tiers.flat_map(|policy| policy.caller.iter().chain(&policy.caller_agent)))
    }

    /// Returns every bucket once.
    pub(super) fn buckets(&self) -> impl Iterator<Item = &SharedKeyedBucket> {
        let default_buckets = move || self.default_tier.caller.iter().chain(&self.default_tier.caller_agent);
        let is_not_default =
            move |bucket: &&SharedKeyedBucket| !default_buckets().any(|default| Arc::ptr_eq(default, bucket));
        self.buckets_of_all_tiers().filter(is_not_default).chain(default_buckets())
    }

    pub(super) fn has_monthly_quota(&self) -> bool {
        self.default_tier.has_monthly_quota() || self.tiers.values().any(TierPolicy::has_monthly_quota)
    }
}

impl TokenBucket<KeyedBucketStore> {
    /// Returns how many keys the bucket tracks.
    pub(super) fn key_count(&self) -> usize {
        self.store().key_count()
    }
}
