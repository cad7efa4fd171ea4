//! Rate limits and quotas in force, resolved from the configuration: buckets per address and per tier. A bucket of the
//! previous configuration is kept if its rate is unchanged.

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
    pub(super) fn new(config: &LimitConfig, previous: Option<&Self>, with: (&LimitClock, &Arc<Metrics>)) -> Self {
        let reuse_or_create = |limit, rate: Option<Rate>, same: Option<&SharedKeyedBucket>| {
            let rate = rate?;
            let same = same.filter(|bucket| bucket.rate == rate);
            let bucket = same.map_or_else(
                || Arc::new(TokenBucket::new_keyed(limit, rate, config.max_tracked_keys, with)),
                Arc::clone,
            );
            bucket.store().set_max_keys(config.max_tracked_keys);
            Some(bucket)
        };
        let ranks = PriorityRanks::new(config.tiers.values());
        let tier_policy = |caller, caller_agent, quota: QuotaConfig, same: Option<&TierPolicy>| TierPolicy {
            priority: DEFAULT_PRIORITY,
            caller: reuse_or_create(LimitKind::Caller, caller, same.and_then(|same| same.caller.as_ref())),
            caller_agent: reuse_or_create(
                LimitKind::CallerAgent,
                caller_agent,
                same.and_then(|same| same.caller_agent.as_ref()),
            ),
            quota: Some(quota).filter(|quota| *quota != QuotaConfig::default()),
        };
        let default_tier = tier_policy(
            config.per_caller,
            config.per_caller_agent,
            config.quota,
            previous.map(|plan| &plan.default_tier),
        );
        let tier = |(name, tier): (&String, &TierConfig)| {
            let same = previous.and_then(|plan| plan.tiers.get(&**name));
            let own = tier_policy(tier.per_caller, tier.per_caller_agent, tier.quota.unwrap_or(config.quota), same);
            let terms = TierPolicy {
                priority: tier.priority.unwrap_or(DEFAULT_PRIORITY),
                caller: own.caller.or_else(|| default_tier.caller.clone()),
                caller_agent: own.caller_agent.or_else(|| default_tier.caller_agent.clone()),
                quota: own.quota,
            };
            (Box::from(&**name), terms)
        };
        let tiers = config.tiers.iter().map(tier).collect();
        let address =
            reuse_or_create(LimitKind::Address, config.per_address, previous.and_then(|plan| plan.address.as_ref()));
        let search = reuse_or_create(
            LimitKind::Search,
            config.per_caller_search,
            previous.and_then(|plan| plan.search.as_ref()),
        );
        Self { config: config.clone(), address, search, ranks, tiers, default_tier }
    }

    pub(super) fn config(&self) -> &LimitConfig {
        &self.config
    }

    pub(super) fn tier(&self, name: Option<&str>) -> &TierPolicy {
        name.and_then(|name| self.tiers.get(name)).unwrap_or(&self.default_tier)
    }

    /// Returns every bucket, once for each tier that uses it.
    fn buckets_of_all_tiers(&self) -> impl Iterator<Item = &SharedKeyedBucket> {
        let tiers = std::iter::once(&self.default_tier).chain(self.tiers.values());
        self.address
            .iter()
            .chain(&self.search)
            .chain(tiers.flat_map(|terms| terms.caller.iter().chain(&terms.caller_agent)))
    }

    /// Returns every bucket once.
    pub(super) fn buckets(&self) -> impl Iterator<Item = &SharedKeyedBucket> {
        let is_not_default = |bucket: &&SharedKeyedBucket| {
            let defaults = self.default_tier.caller.iter().chain(&self.default_tier.caller_agent);
            let copies = defaults.filter(|usual| Arc::ptr_eq(usual, bucket)).count();
            copies == 0
        };
        let usual = self.default_tier.caller.iter().chain(&self.default_tier.caller_agent);
        self.buckets_of_all_tiers().filter(is_not_default).chain(usual)
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
