//! Rate limits, quotas and priorities in force, resolved from the configuration: the buckets of addresses and of each
//! tier, and the ranks of the priorities. A bucket of the previous configuration is kept if its rate is unchanged.

use super::{
    bucket_key::{BucketKey, RateLimitKey},
    config::{LimitConfig, QuotaConfig, TierConfig},
    limit_draw::{AgentDraw, BucketDraw, LimitDraw, QuotaDraw},
    limit_store::{BucketScope, LimitStore},
    rate_buckets::RateBuckets,
    rate_rule::RateRule,
};
use crate::{telemetry::LimitKind, values::Rate};
use std::{collections::HashMap, net::IpAddr, num::NonZeroU32, sync::Arc};

/// Rate limits, quota and priority of one tier.
#[derive(Debug, Default)]
pub(super) struct TierPolicy {
    pub(super) caller: Option<Arc<dyn RateBuckets>>,
    pub(super) caller_agent: Option<Arc<dyn RateBuckets>>,
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
    pub(super) config: LimitConfig,
    pub(super) address: Option<Arc<dyn RateBuckets>>,
    pub(super) search: Option<Arc<dyn RateBuckets>>,
    /// The priorities in use.
    pub(super) ranks: PriorityRanks,
    default_tier: TierPolicy,
    tiers: HashMap<Box<str>, TierPolicy>,
}

impl LimitPolicy {
    pub(super) fn new(config: &LimitConfig, previous: Option<&Self>, store: &dyn LimitStore) -> Self {
        let reuse_or_create = |limit, rate: Option<Rate>, previous: Option<&Arc<dyn RateBuckets>>| {
            let rate = rate?;
            let rule = RateRule::new(limit, rate);
            let scope = BucketScope::PerKey { max_keys: config.max_tracked_keys };
            let buckets = previous
                .filter(|buckets| *buckets.rule() == rule)
                .map_or_else(|| store.open_buckets(rule, scope), Arc::clone);
            buckets.set_max_keys(config.max_tracked_keys);
            Some(buckets)
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
        let mut tiers = HashMap::with_capacity(config.tiers.len());
        for (name, tier) in &config.tiers {
            let previous_tier = previous.and_then(|policy| policy.tiers.get(&**name));
            let tier_limits =
                tier_policy(tier.per_caller, tier.per_caller_agent, tier.quota.unwrap_or(config.quota), previous_tier);
            let with_defaults = TierPolicy {
                priority: tier.priority.unwrap_or(DEFAULT_PRIORITY),
                caller: tier_limits.caller.or_else(|| default_tier.caller.clone()),
                caller_agent: tier_limits.caller_agent.or_else(|| default_tier.caller_agent.clone()),
                quota: tier_limits.quota,
            };
            tiers.insert(Box::from(&**name), with_defaults);
        }
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

    pub(super) fn tier(&self, name: Option<&str>) -> &TierPolicy {
        name.and_then(|name| self.tiers.get(name)).unwrap_or(&self.default_tier)
    }

    /// Returns the draw of `count` calls of a caller to an agent.
    pub(super) fn draw_calls<'a>(
        &'a self,
        agent: AgentDraw<'a>,
        key: &RateLimitKey<'a>,
        count: NonZeroU32,
    ) -> LimitDraw<'a> {
        let tier = self.tier(key.tier);
        let of_caller = |buckets| BucketDraw { buckets, key: key.bucket };
        let of_pair = |buckets| BucketDraw { buckets, key: BucketKey::for_pair(key.bucket, agent.key) };
        LimitDraw {
            count,
            caller_buckets: [tier.caller.as_deref().map(of_caller), tier.caller_agent.as_deref().map(of_pair)],
            agent_buckets: Some(agent),
            quota: tier.quota.map(|quota| QuotaDraw { caller: *key, quota }),
        }
    }

    /// Returns the part of the draw of one call that concerns the caller whatever it calls.
    pub(super) fn draw_of_caller<'a>(&'a self, key: &RateLimitKey<'a>) -> LimitDraw<'a> {
        let tier = self.tier(key.tier);
        let of_caller = |buckets| BucketDraw { buckets, key: key.bucket };
        let buckets = LimitDraw::from_caller_buckets(NonZeroU32::MIN, [tier.caller.as_deref().map(of_caller), None]);
        LimitDraw { quota: tier.quota.map(|quota| QuotaDraw { caller: *key, quota }), ..buckets }
    }

    /// Returns the draw of one request of an address, if addresses have a rate.
    pub(super) fn draw_of_address(&self, peer: IpAddr) -> Option<LimitDraw<'_>> {
        let bucket = BucketDraw { buckets: self.address.as_deref()?, key: BucketKey::for_address(peer) };
        Some(LimitDraw::from_caller_buckets(NonZeroU32::MIN, [Some(bucket), None]))
    }

    /// Returns the draw of one directory request of a caller, which may be a search.
    pub(super) fn draw_of_directory<'a>(&'a self, key: &RateLimitKey<'_>, is_search: bool) -> LimitDraw<'a> {
        let of_caller = |buckets| BucketDraw { buckets, key: key.bucket };
        let search = self.search.as_deref().filter(|_| is_search);
        let buckets = [self.tier(key.tier).caller.as_deref().map(of_caller), search.map(of_caller)];
        LimitDraw::from_caller_buckets(NonZeroU32::MIN, buckets)
    }

    /// Returns every bucket. A bucket that several tiers share occurs once for each of them.
    fn buckets_of_all_tiers(&self) -> impl Iterator<Item = &Arc<dyn RateBuckets>> {
        let tiers = std::iter::once(&self.default_tier).chain(self.tiers.values());
        self.address
            .iter()
            .chain(&self.search)
            .chain(tiers.flat_map(|policy| policy.caller.iter().chain(&policy.caller_agent)))
    }

    /// Returns every bucket once.
    pub(super) fn buckets(&self) -> impl Iterator<Item = &Arc<dyn RateBuckets>> {
        let default_buckets = move || self.default_tier.caller.iter().chain(&self.default_tier.caller_agent);
        let is_not_default =
            move |bucket: &&Arc<dyn RateBuckets>| !default_buckets().any(|default| Arc::ptr_eq(default, bucket));
        self.buckets_of_all_tiers().filter(is_not_default).chain(default_buckets())
    }

    pub(super) fn has_monthly_quota(&self) -> bool {
        self.default_tier.has_monthly_quota() || self.tiers.values().any(TierPolicy::has_monthly_quota)
    }
}

/// Priority of callers without a tier, and of tiers without a priority.
pub(super) const DEFAULT_PRIORITY: u8 = 5;

/// Rank of each priority in use; the lowest is 0.
#[derive(Debug)]
pub(super) struct PriorityRanks(Vec<u8>);

impl PriorityRanks {
    pub(super) fn new<'a>(tiers: impl Iterator<Item = &'a TierConfig>) -> Self {
        let mut priorities: Vec<u8> =
            tiers.map(|tier| tier.priority.unwrap_or(DEFAULT_PRIORITY)).chain([DEFAULT_PRIORITY]).collect();
        priorities.sort_unstable();
        priorities.dedup();
        Self(priorities)
    }

    pub(super) fn rank_of(&self, priority: u8) -> u32 {
        u32::try_from(self.0.iter().filter(|each| **each < priority).count()).unwrap_or_default()
    }

    pub(super) fn count(&self) -> u32 {
        u32::try_from(self.0.len()).unwrap_or(u32::MAX)
    }
}
