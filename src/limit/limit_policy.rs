//! Rate limits, quotas and priorities in force, resolved from the configuration: the buckets of addresses and of each
//! tier, and the ranks of the priorities. Equal rates of several tiers are one rule with the same buckets, so that a caller
//! with keys of two tiers has one bucket. A bucket of the previous configuration is kept if a rate is unchanged.

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
    buckets: BucketsByRule,
}

/// The buckets of each rule, by its id.
type BucketsByRule = HashMap<u64, Arc<dyn RateBuckets>>;

/// The buckets of a policy that is being made.
struct PolicyBuckets<'a> {
    by_rule: BucketsByRule,
    /// Those of the policy in force.
    previous: Option<&'a BucketsByRule>,
    max_keys: usize,
    store: &'a dyn LimitStore,
}

impl PolicyBuckets<'_> {
    /// Returns the buckets of a rate: those that another tier has opened, those in force, or new ones.
    fn open(&mut self, limit: LimitKind, rate: Option<Rate>) -> Option<Arc<dyn RateBuckets>> {
        let rule = RateRule::new(limit, rate?);
        let buckets = self.by_rule.entry(rule.id).or_insert_with(|| {
            let in_force = self.previous.and_then(|previous| previous.get(&rule.id));
            let scope = BucketScope::PerKey { max_keys: self.max_keys };
            in_force.map_or_else(|| self.store.open_buckets(rule, scope), Arc::clone)
        });
        buckets.set_max_keys(self.max_keys);
        Some(Arc::clone(buckets))
    }
}

/// Returns a quota, unless it limits nothing.
fn in_force(quota: QuotaConfig) -> Option<QuotaConfig> {
    Some(quota).filter(|quota| *quota != QuotaConfig::default())
}

impl LimitPolicy {
    pub(super) fn new(config: &LimitConfig, previous: Option<&Self>, store: &dyn LimitStore) -> Self {
        let mut buckets = PolicyBuckets {
            by_rule: HashMap::new(),
            previous: previous.map(|policy| &policy.buckets),
            max_keys: config.max_tracked_keys,
            store,
        };
        let default_tier = TierPolicy {
            caller: buckets.open(LimitKind::Caller, config.per_caller),
            caller_agent: buckets.open(LimitKind::CallerAgent, config.per_caller_agent),
            quota: in_force(config.quota),
            priority: DEFAULT_PRIORITY,
        };
        let mut tiers = HashMap::with_capacity(config.tiers.len());
        for (name, tier) in &config.tiers {
            let with_defaults = TierPolicy {
                caller: buckets.open(LimitKind::Caller, tier.per_caller.or(config.per_caller)),
                caller_agent: buckets.open(LimitKind::CallerAgent, tier.per_caller_agent.or(config.per_caller_agent)),
                quota: in_force(tier.quota.unwrap_or(config.quota)),
                priority: tier.priority.unwrap_or(DEFAULT_PRIORITY),
            };
            tiers.insert(Box::from(&**name), with_defaults);
        }
        let address = buckets.open(LimitKind::Address, config.per_address);
        let search = buckets.open(LimitKind::Search, config.per_caller_search);
        let ranks = PriorityRanks::new(config.tiers.values());
        Self { config: config.clone(), address, search, ranks, default_tier, tiers, buckets: buckets.by_rule }
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

    /// Returns the buckets of every rule.
    pub(super) fn buckets(&self) -> impl Iterator<Item = &Arc<dyn RateBuckets>> {
        self.buckets.values()
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
