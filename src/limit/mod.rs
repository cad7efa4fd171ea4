//! Limits: rates per address, caller, caller-agent pair and agent; quotas per day and month; concurrency per agent;
//! load shedding. The state is in memory and bounded. Only calls in an agent's wait queue wait. A refusal is a fault:
//! other modules identify the caller and write the response.

mod adaptive_concurrency;
mod agent_limits;
mod bucket_store;
mod clock;
mod concurrency_limiter;
mod config;
mod latency_baseline;
mod limit_policy;
mod load_shedding;
mod quota;
mod quota_file;
mod rate_limit_key;
mod rate_limit_status;
mod token_bucket;
mod wait_queue;

pub use agent_limits::{AgentLimitSettings, AgentLimits, LatencySample, Permit, SampleOutcome};
pub use config::{ConcurrencyConfig, LimitConfig, QuotaConfig, TierConfig};
pub use rate_limit_key::RateLimitKey;
pub use rate_limit_status::RateLimitStatus;

use crate::{agent::AgentId, fault::Fault, telemetry::Metrics};
use arc_swap::ArcSwap;
use clock::LimitClock;
use limit_policy::LimitPolicy;
use load_shedding::LoadShedder;
use parking_lot::{Mutex, MutexGuard};
use quota::QuotaCounters;
use quota_file::QuotaFile;
use rate_limit_key::{RateLimitPrincipal, mask_ipv6_to_64};
use std::{
    collections::{HashMap, hash_map::RandomState},
    hash::BuildHasher as _,
    net::IpAddr,
    num::NonZeroU32,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};
use token_bucket::{AcquireTokens, LimitExceeded};

/// All limits of one gateway. A reload reconfigures them and does not replace them, so that it refills no bucket.
#[derive(Debug)]
pub struct CallLimiter {
    policy: ArcSwap<LimitPolicy>,
    agents: Mutex<HashMap<AgentId, Arc<AgentLimits>>>,
    quotas: QuotaCounters,
    quota_file: Mutex<QuotaFile>,
    sweeps: AtomicUsize,
    load_shedder: LoadShedder,
    hash_seed: RandomState,
    clock: LimitClock,
    metrics: Arc<Metrics>,
}

impl CallLimiter {
    /// Creates limits from the configuration, and loads the persisted quotas.
    ///
    /// # Errors
    /// Returns every problem of the configuration, or why the quota file cannot be read or written.
    pub fn new(config: &LimitConfig, metrics: Arc<Metrics>) -> Result<Self, Vec<String>> {
        Self::with_clock(config, metrics, LimitClock::new())
    }

    fn with_clock(config: &LimitConfig, metrics: Arc<Metrics>, clock: LimitClock) -> Result<Self, Vec<String>> {
        let problems = config.problems();
        if !problems.is_empty() {
            return Err(problems);
        }
        metrics.register_tiers(config.tiers.keys().map(String::as_str));
        let limits = Self {
            policy: ArcSwap::from_pointee(LimitPolicy::new(config, None, &clock, &metrics)),
            agents: Mutex::default(),
            quotas: QuotaCounters::new(config.max_tracked_keys, Arc::clone(&metrics)),
            quota_file: Mutex::new(QuotaFile::new(config.quota_state_file.clone())),
            sweeps: AtomicUsize::new(0),
            load_shedder: LoadShedder::default(),
            hash_seed: RandomState::new(),
            clock,
            metrics,
        };
        if let Some(path) = &config.quota_state_file {
            quota_file::load_quotas(path, &limits.quotas, |name| limits.hash_name(name)).map_err(|why| vec![why])?;
            quota_file::check_writable(path).map_err(|why| vec![why])?;
            limits.quotas.set_changed();
        }
        Ok(limits)
    }

    /// Applies a changed configuration. Buckets whose rate is unchanged keep their state.
    ///
    /// # Errors
    /// Returns every problem of the configuration; the limits in force stay.
    pub fn reconfigure(&self, config: &LimitConfig) -> Result<(), Vec<String>> {
        let problems = config.problems();
        if !problems.is_empty() {
            return Err(problems);
        }
        self.metrics.register_tiers(config.tiers.keys().map(String::as_str));
        let agents = lock(&self.agents);
        let policy = LimitPolicy::new(config, Some(&self.policy.load()), &self.clock, &self.metrics);
        self.quotas.set_max_callers(config.max_tracked_keys);
        self.policy.store(Arc::new(policy));
        for agent in agents.values() {
            agent.reconfigure(config, None, &self.clock);
        }
        drop(agents);
        let mut quota_file = lock(&self.quota_file);
        if quota_file.path.as_deref() != config.quota_state_file.as_deref() {
            *quota_file = QuotaFile::new(config.quota_state_file.clone());
            self.quotas.set_changed();
        }
        Ok(())
    }

    /// Returns the limits of an agent, which its route holds, with `settings` applied. The limits of an id that is
    /// already registered keep their state.
    pub fn register_agent(&self, id: &AgentId, settings: AgentLimitSettings) -> Arc<AgentLimits> {
        let mut agents = lock(&self.agents);
        let agent = match agents.get(id) {
            Some(agent) => Arc::clone(agent),
            None => {
                let key = self.hash_seed.hash_one(("agent", id));
                Arc::clone(agents.entry(id.clone()).or_insert_with(|| Arc::new(AgentLimits::new(id.clone(), key))))
            }
        };
        agent.reconfigure(self.policy.load().config(), Some(settings), &self.clock);
        agent
    }

    /// Counts a request against its peer address, before authentication.
    ///
    /// # Errors
    /// 429 when the address exceeds its rate.
    pub fn acquire_for_address(&self, peer: IpAddr) -> Result<(), Fault> {
        let policy = self.policy.load();
        let Some(bucket) = &policy.address else { return Ok(()) };
        let result = bucket.acquire(self.hash_address(peer), NonZeroU32::MIN);
        result.map(drop).map_err(|exceeded| self.record_refusal(exceeded))
    }

    /// Returns the key of an authenticated caller. `id` must be unique over all kinds of credentials.
    pub fn caller_key<'a>(&self, id: &'a str, tier: Option<&'a str>) -> RateLimitKey<'a> {
        RateLimitKey { hash: self.hash_name(id), principal: RateLimitPrincipal::Caller(id), tier }
    }

    /// Returns the key of a caller without credentials: its address.
    pub fn anonymous_key(&self, peer: IpAddr) -> RateLimitKey<'static> {
        let peer = mask_ipv6_to_64(peer);
        RateLimitKey { hash: self.hash_address(peer), principal: RateLimitPrincipal::Address(peer), tier: None }
    }

    /// Counts `count` calls (the items of a batch, or 1) of a caller to an agent in every bucket and quota, or in none.
    /// Returns the status of the tightest limit, if any applies.
    ///
    /// # Errors
    /// 429 for the first limit that is exceeded, in the order caller, caller-agent pair, agent, quotas.
    pub fn acquire_for_calls(
        &self,
        agent: &AgentLimits,
        key: &RateLimitKey<'_>,
        count: NonZeroU32,
    ) -> Result<Option<RateLimitStatus>, Fault> {
        let policy = self.policy.load();
        let tier = policy.tier(key.tier);
        let active = agent.active.load();
        let pair = tier
            .caller_agent
            .as_deref()
            .map(|bucket| (bucket as &dyn AcquireTokens, self.hash_seed.hash_one((key.hash, agent.hash))));
        let caller = tier.caller.as_deref().map(|bucket| (bucket as &dyn AcquireTokens, key.hash));
        let rates = active.buckets.iter().map(|bucket| (&**bucket as &dyn AcquireTokens, 0));
        let buckets = caller.into_iter().chain(pair).chain(rates);
        let tightest = self.acquire_from_all(buckets.clone(), count)?;
        let Some(quota) = &tier.quota else {
            return Ok(tightest);
        };
        match self.quotas.acquire(key, quota, count, &self.clock.calendar_now()) {
            Ok(Some(status)) => Ok(Some(status.more_restrictive(tightest))),
            Ok(None) => Ok(tightest),
            Err(exceeded) => {
                buckets.for_each(|(bucket, key)| bucket.refund(key, count));
                Err(self.record_refusal(exceeded))
            }
        }
    }

    /// Counts a directory request as a call of the caller; a search also counts against the search rate.
    ///
    /// # Errors
    /// 429 when the caller exceeds a rate.
    pub fn acquire_for_directory(
        &self,
        key: &RateLimitKey<'_>,
        search: bool,
    ) -> Result<Option<RateLimitStatus>, Fault> {
        let policy = self.policy.load();
        let caller = policy.tier(key.tier).caller.as_deref();
        let buckets = caller.into_iter().chain(policy.search.as_deref().filter(|_| search));
        self.acquire_from_all(buckets.map(|bucket| (bucket as &dyn AcquireTokens, key.hash)), NonZeroU32::MIN)
    }

    /// Acquires `count` tokens from every bucket, or from none. Returns the status of the tightest bucket.
    fn acquire_from_all<'a>(
        &self,
        buckets: impl Iterator<Item = (&'a dyn AcquireTokens, u64)> + Clone,
        count: NonZeroU32,
    ) -> Result<Option<RateLimitStatus>, Fault> {
        let mut tightest = None;
        for (at, (bucket, key)) in buckets.clone().enumerate() {
            match bucket.acquire(key, count) {
                Ok(status) => tightest = Some(status.more_restrictive(tightest)),
                Err(exceeded) => {
                    buckets.take(at).for_each(|(bucket, key)| bucket.refund(key, count));
                    return Err(self.record_refusal(exceeded));
                }
            }
        }
        Ok(tightest)
    }

    /// Evicts part of the idle state; runs about once a second.
    pub fn evict_idle(&self) {
        let policy = self.policy.load();
        policy.buckets().for_each(|bucket| bucket.evict_idle());
        self.quotas.evict_expired(&self.clock.calendar_now(), policy.has_monthly_quota());
        if self.sweeps.fetch_add(1, Relaxed).is_multiple_of(16) {
            // Limits that only this table holds belong to agents that have no route.
            lock(&self.agents).retain(|_, agent| Arc::strong_count(agent) > 1 || !agent.is_idle());
        }
    }

    /// Persists the quotas if they changed. Runs about once a second, and writes at most every few seconds unless
    /// `ignore_interval` is set, as for shutdown. Blocks.
    ///
    /// # Errors
    /// Returns why the file cannot be written. The next call tries again.
    pub fn save_quotas(&self, ignore_interval: bool) -> Result<(), String> {
        lock(&self.quota_file).save_if_changed(&self.quotas, ignore_interval)
    }

    /// Persists the quotas for the process that takes over the listeners, even if they did not change, because that
    /// process may have written the file when it started. Blocks.
    ///
    /// # Errors
    /// As [`CallLimiter::save_quotas`].
    pub fn hand_over_quotas(&self) -> Result<(), String> {
        self.quotas.set_changed();
        self.save_quotas(true)
    }

    /// Reloads the quotas that the previous process persisted at listener handover. Blocks.
    ///
    /// # Errors
    /// Returns why the file cannot be read.
    pub fn reload_quotas(&self) -> Result<(), String> {
        match &lock(&self.quota_file).path {
            Some(path) => quota_file::load_quotas(path, &self.quotas, |name| self.hash_name(name)),
            None => Ok(()),
        }
    }

    /// Returns how many callers, addresses and caller-agent pairs are tracked.
    pub fn tracked_keys(&self) -> usize {
        self.policy.load().buckets().map(|bucket| bucket.key_count()).sum::<usize>() + self.quotas.caller_count()
    }

    fn record_refusal(&self, exceeded: LimitExceeded) -> Fault {
        self.metrics.record_limited_request(exceeded.status.limit);
        exceeded.into_fault()
    }

    fn hash_address(&self, peer: IpAddr) -> u64 {
        self.hash_seed.hash_one(("address", mask_ipv6_to_64(peer)))
    }

    fn hash_name(&self, name: &str) -> u64 {
        match name.strip_prefix("address:").and_then(|address| address.parse().ok()) {
            Some(address) => self.hash_address(address),
            None => self.hash_seed.hash_one(("caller", name)),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}

#[cfg(test)]
mod tests;
