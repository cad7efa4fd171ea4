//! Limits: rates per address, caller, caller-agent pair and agent; quotas per day and month; concurrency per agent;
//! load shedding. All state is in memory and bounded; only calls in an agent's wait queue wait. Refusals are faults:
//! other modules identify the caller and write the response.

mod account;
mod agent;
mod bucket;
mod clock;
mod config;
mod gate;
mod learn;
mod line;
mod plan;
mod quota;
mod shed;
mod standing;
mod state;
mod store;
mod usual;

pub use account::Account;
pub use agent::{AgentLimits, Bounds, Permit, Question, Said};
pub use config::{Concurrency, Config, Quota, Tier};
pub use standing::Standing;

use crate::{agent::AgentId, fault::Fault, telemetry::Metrics};
use account::{Name, network};
use arc_swap::ArcSwap;
use bucket::{Draw, Empty};
use clock::Clock;
use plan::Plan;
use quota::Quotas;
use shed::Shed;
use state::Keeper;
use std::{
    collections::{HashMap, hash_map::RandomState},
    hash::BuildHasher as _,
    net::IpAddr,
    num::NonZeroU32,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

/// All limits of one gateway. Reloads reconfigure them and never replace them, so that no reload refills a bucket.
#[derive(Debug)]
pub struct Limits {
    plan: ArcSwap<Plan>,
    agents: Mutex<HashMap<AgentId, Arc<AgentLimits>>>,
    quotas: Quotas,
    keeper: Mutex<Keeper>,
    sweeps: AtomicUsize,
    shed: Shed,
    seed: RandomState,
    clock: Clock,
    metrics: Arc<Metrics>,
}

impl Limits {
    /// Creates limits from the configuration, and loads the persisted quotas.
    ///
    /// # Errors
    /// Returns every problem of the configuration, or why the quota file cannot be read or written.
    pub fn new(config: &Config, metrics: Arc<Metrics>) -> Result<Self, Vec<String>> {
        Self::with_clock(config, metrics, Clock::new())
    }

    fn with_clock(config: &Config, metrics: Arc<Metrics>, clock: Clock) -> Result<Self, Vec<String>> {
        let problems = config.problems();
        if !problems.is_empty() {
            return Err(problems);
        }
        metrics.name_tiers(config.tiers.keys().map(String::as_str));
        let limits = Self {
            plan: ArcSwap::from_pointee(Plan::new(config, None, (&clock, &metrics))),
            agents: Mutex::default(),
            quotas: Quotas::new(config.most_keys, Arc::clone(&metrics)),
            keeper: Mutex::new(Keeper::new(config.state.clone())),
            sweeps: AtomicUsize::new(0),
            shed: Shed::default(),
            seed: RandomState::new(),
            clock,
            metrics,
        };
        if let Some(path) = &config.state {
            state::read(path, &limits.quotas, |name| limits.name_key(name)).map_err(|why| vec![why])?;
            state::probe(path).map_err(|why| vec![why])?;
            limits.quotas.set_changed();
        }
        Ok(limits)
    }

    /// Applies a changed configuration. Buckets whose rate is unchanged keep their state.
    ///
    /// # Errors
    /// Returns every problem of the configuration; the limits in force stay.
    pub fn reconfigure(&self, config: &Config) -> Result<(), Vec<String>> {
        let problems = config.problems();
        if !problems.is_empty() {
            return Err(problems);
        }
        self.metrics.name_tiers(config.tiers.keys().map(String::as_str));
        let agents = lock(&self.agents);
        let plan = Plan::new(config, Some(&self.plan.load()), (&self.clock, &self.metrics));
        self.quotas.bound(config.most_keys);
        self.plan.store(Arc::new(plan));
        for agent in agents.values() {
            agent.arrange(config, None, &self.clock);
        }
        drop(agents);
        let mut keeper = lock(&self.keeper);
        if keeper.path.as_deref() != config.state.as_deref() {
            *keeper = Keeper::new(config.state.clone());
            self.quotas.set_changed();
        }
        Ok(())
    }

    /// Returns the limits of an agent, which its route holds, with these settings applied. An agent with a known id
    /// keeps its state.
    pub fn agent(&self, id: &AgentId, asked: Bounds) -> Arc<AgentLimits> {
        let mut agents = lock(&self.agents);
        let agent = match agents.get(id) {
            Some(agent) => Arc::clone(agent),
            None => {
                let key = self.seed.hash_one(("agent", id));
                Arc::clone(agents.entry(id.clone()).or_insert_with(|| Arc::new(AgentLimits::new(id.clone(), key))))
            }
        };
        agent.arrange(self.plan.load().config(), Some(asked), &self.clock);
        agent
    }

    /// Counts a request against its peer address, before authentication.
    ///
    /// # Errors
    /// 429 when the address exceeds its rate.
    pub fn address(&self, peer: IpAddr) -> Result<(), Fault> {
        let plan = self.plan.load();
        let Some(bucket) = &plan.address else { return Ok(()) };
        let taken = bucket.take(self.address_key(peer), NonZeroU32::MIN);
        taken.map(drop).map_err(|empty| self.refuse(empty))
    }

    /// Returns the key of an authenticated caller. `id` must be unique over all kinds of credentials.
    pub fn account<'a>(&self, id: &'a str, tier: Option<&'a str>) -> Account<'a> {
        Account { key: self.name_key(id), name: Name::Caller(id), tier }
    }

    /// Returns the key of a caller without credentials: its address.
    pub fn visitor(&self, peer: IpAddr) -> Account<'static> {
        let peer = network(peer);
        Account { key: self.address_key(peer), name: Name::Visitor(peer), tier: None }
    }

    /// Counts `n` calls (the items of a batch, or 1) of a caller to an agent in every bucket and quota, or in none.
    /// Returns the status of the tightest limit, if any applies.
    ///
    /// # Errors
    /// 429, for the first exceeded limit of: caller, caller-agent pair, agent, quotas.
    pub fn admit(&self, agent: &AgentLimits, account: &Account<'_>, n: NonZeroU32) -> Result<Option<Standing>, Fault> {
        let plan = self.plan.load();
        let tier = plan.tier(account.tier);
        let now = agent.now.load();
        let pair = tier
            .caller_agent
            .as_deref()
            .map(|bucket| (bucket as &dyn Draw, self.seed.hash_one((account.key, agent.key))));
        let caller = tier.caller.as_deref().map(|bucket| (bucket as &dyn Draw, account.key));
        let rates = now.rates.iter().map(|bucket| (&**bucket as &dyn Draw, 0));
        let draws = caller.into_iter().chain(pair).chain(rates);
        let tightest = self.draw(draws.clone(), n)?;
        let Some(quota) = &tier.quota else {
            return Ok(tightest);
        };
        match self.quotas.take((account.key, || account.name.owned()), quota, n, &self.clock.today()) {
            Ok(Some(standing)) => Ok(Some(standing.tighter(tightest))),
            Ok(None) => Ok(tightest),
            Err(empty) => {
                draws.for_each(|(bucket, key)| bucket.give_back(key, n));
                Err(self.refuse(empty))
            }
        }
    }

    /// Counts a directory request as a call of the caller; a search also counts against the search rate.
    ///
    /// # Errors
    /// 429 when the caller exceeds a rate.
    pub fn browse(&self, account: &Account<'_>, search: bool) -> Result<Option<Standing>, Fault> {
        let plan = self.plan.load();
        let caller = plan.tier(account.tier).caller.as_deref();
        let buckets = caller.into_iter().chain(plan.search.as_deref().filter(|_| search));
        self.draw(buckets.map(|bucket| (bucket as &dyn Draw, account.key)), NonZeroU32::MIN)
    }

    /// Acquires `n` tokens from every bucket, or from none; returns the status of the tightest one.
    fn draw<'a>(
        &self,
        draws: impl Iterator<Item = (&'a dyn Draw, u64)> + Clone,
        n: NonZeroU32,
    ) -> Result<Option<Standing>, Fault> {
        let mut tightest = None;
        for (at, (bucket, key)) in draws.clone().enumerate() {
            match bucket.take(key, n) {
                Ok(standing) => tightest = Some(standing.tighter(tightest)),
                Err(empty) => {
                    draws.take(at).for_each(|(bucket, key)| bucket.give_back(key, n));
                    return Err(self.refuse(empty));
                }
            }
        }
        Ok(tightest)
    }

    /// Evicts part of the idle state; runs about once a second.
    pub fn sweep(&self) {
        let plan = self.plan.load();
        plan.buckets().for_each(|bucket| bucket.sweep());
        self.quotas.sweep(&self.clock.today(), plan.has_months());
        if self.sweeps.fetch_add(1, Relaxed).is_multiple_of(16) {
            // Only the table holds them: the agents are gone from the configuration snapshot.
            lock(&self.agents).retain(|_, agent| Arc::strong_count(agent) > 1 || !agent.is_idle());
        }
    }

    /// Persists the quotas if they changed. Runs about once a second and writes every few seconds at most; `now` writes
    /// at once, for shutdown. Blocks.
    ///
    /// # Errors
    /// Returns why the file cannot be written. The next call tries again.
    pub fn save(&self, now: bool) -> Result<(), String> {
        lock(&self.keeper).save(&self.quotas, now)
    }

    /// Persists the quotas for the process that takes over the listeners, even if they did not change: that process may
    /// have written the file while it started. Blocks.
    ///
    /// # Errors
    /// As [`CallLimiter::save_quotas`].
    pub fn hand_over(&self) -> Result<(), String> {
        self.quotas.set_changed();
        self.save(true)
    }

    /// Reloads the quotas that the previous process persisted at listener handover. Blocks.
    ///
    /// # Errors
    /// Returns why the file cannot be read.
    pub fn take_over(&self) -> Result<(), String> {
        match &lock(&self.keeper).path {
            Some(path) => state::read(path, &self.quotas, |name| self.name_key(name)),
            None => Ok(()),
        }
    }

    /// Returns how many callers, addresses and caller-agent pairs are tracked.
    pub fn remembered(&self) -> usize {
        self.plan.load().buckets().map(|bucket| bucket.held()).sum::<usize>() + self.quotas.held()
    }

    fn refuse(&self, empty: Empty) -> Fault {
        self.metrics.limited(empty.standing.limit);
        empty.fault()
    }

    fn address_key(&self, peer: IpAddr) -> u64 {
        self.seed.hash_one(("address", network(peer)))
    }

    fn name_key(&self, name: &str) -> u64 {
        match name.strip_prefix("address:").and_then(|address| address.parse().ok()) {
            Some(address) => self.address_key(address),
            None => self.seed.hash_one(("caller", name)),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
