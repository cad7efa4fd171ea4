//! Limits in shadow mode: they count like limits in force, with tokens of their own, and refuse nothing. They exist for
//! the calls that the limits in force allow.

use super::{
    agent_limits::AgentLimits,
    bucket_key::{BucketKey, RateLimitKey},
    clock::LimitClock,
    config::{LimitConfig, ShadowLimitConfig},
    in_process::InProcessLimitStore,
    limit_draw::AgentDraw,
    limit_policy::LimitPolicy,
    limit_store::{BucketScope, LimitStore},
    rate_buckets::RateBuckets,
    rate_rule::RateRule,
};
use crate::{
    telemetry::{LimitKind, Metrics, ShadowDenials, ShadowRule},
    values::{ClientKey, CountedHold, KeyedCounts, StoreAnswer},
};
use std::{num::NonZeroU32, sync::Arc};

/// The limits in shadow mode of one configuration.
#[derive(Debug)]
pub struct ShadowLimits {
    config: ShadowLimitConfig,
    max_tracked_keys: usize,
    store: InProcessLimitStore,
    policy: LimitPolicy,
    agent_buckets: Vec<Arc<dyn RateBuckets>>,
    calls_of_clients: Arc<KeyedCounts<ClientKey>>,
    calls_of_agents: Arc<KeyedCounts<BucketKey>>,
}

/// A call that counts against concurrency limits in shadow mode until this is dropped.
#[derive(Debug)]
pub struct ShadowHolds {
    _of_client: Option<CountedHold<ClientKey>>,
    _of_agent: Option<CountedHold<BucketKey>>,
}

impl ShadowLimits {
    /// Returns the limits in shadow mode, if there are any. Those of the previous configuration keep their counts if the
    /// settings are equal.
    ///
    /// # Errors
    /// The counts cannot be created, which is a defect.
    pub fn build(
        config: &LimitConfig,
        previous: Option<&Arc<Self>>,
        metrics: &Arc<Metrics>,
    ) -> Result<Option<Arc<Self>>, String> {
        let Some(shadow) = &config.shadow else { return Ok(None) };
        let is_equal =
            |previous: &&Arc<Self>| previous.config == *shadow && previous.max_tracked_keys == config.max_tracked_keys;
        if let Some(previous) = previous.filter(is_equal) {
            return Ok(Some(Arc::clone(previous)));
        }
        let rates = LimitConfig {
            per_address: None,
            per_caller_search: None,
            per_caller: shadow.per_caller,
            per_caller_agent: shadow.per_caller_agent,
            quota: shadow.quota,
            max_tracked_keys: config.max_tracked_keys,
            ..LimitConfig::default()
        };
        let store = InProcessLimitStore::open(&rates, LimitClock::new(), Arc::clone(metrics))?;
        let scope = BucketScope::PerKey { max_keys: config.max_tracked_keys };
        let of_agents = shadow.per_agent.map(|rate| store.open_buckets(RateRule::new(LimitKind::Agent, rate), scope));
        Ok(Some(Arc::new(Self {
            config: shadow.clone(),
            max_tracked_keys: config.max_tracked_keys,
            policy: LimitPolicy::new(&rates, None, &store),
            store,
            agent_buckets: of_agents.into_iter().collect(),
            calls_of_clients: Arc::default(),
            calls_of_agents: Arc::default(),
        })))
    }

    /// Counts `count` calls in every rate and quota, or in none; returns the first that would have refused them.
    pub fn charge(&self, agent: &AgentLimits, key: &RateLimitKey<'_>, count: NonZeroU32) -> Option<ShadowRule> {
        let agent = AgentDraw { buckets: &self.agent_buckets, key: agent.key };
        let draw = self.policy.draw_calls(agent, key, count);
        match self.store.acquire(&draw) {
            StoreAnswer::Ready(Err(refusal)) => Some(match refusal.limit() {
                LimitKind::Caller => ShadowRule::PerCaller,
                LimitKind::CallerAgent => ShadowRule::PerCallerAgent,
                LimitKind::Agent => ShadowRule::PerAgent,
                _ => ShadowRule::Quota,
            }),
            // A store of this process answers at once.
            StoreAnswer::Ready(Ok(_)) | StoreAnswer::Pending(_) => None,
        }
    }

    /// Counts a call as one in progress; adds the limits that would have refused it to `denials`. A call that a limit
    /// would have refused does not count against that limit.
    pub fn hold(
        &self,
        agent: &AgentLimits,
        client: ClientKey,
        denials: &mut ShadowDenials,
    ) -> Option<Box<ShadowHolds>> {
        let concurrency = &self.config.concurrency;
        let max = |max: Option<NonZeroU32>| max.map(|max| max.get() as usize);
        let of_client = max(concurrency.max_per_caller).and_then(|max| {
            let hold = self.calls_of_clients.try_hold(client, 1, max);
            hold.or_else(|| {
                denials.insert(ShadowRule::MaxPerCaller);
                None
            })
        });
        let of_agent = max(concurrency.max_per_agent).and_then(|max| {
            let hold = self.calls_of_agents.try_hold(agent.key, 1, max);
            hold.or_else(|| {
                denials.insert(ShadowRule::MaxPerAgent);
                None
            })
        });
        let is_held = of_client.is_some() || of_agent.is_some();
        is_held.then(|| Box::new(ShadowHolds { _of_client: of_client, _of_agent: of_agent }))
    }

    /// Evicts part of the idle state; runs about once a second.
    pub fn evict_idle(&self) {
        self.policy.buckets().chain(&self.agent_buckets).for_each(|buckets| buckets.evict_idle());
        self.store.evict_expired_quotas(self.policy.has_monthly_quota());
    }
}
