//! All limits of one gateway: resolves which rates and quotas apply to a call, and draws them from the store.

use super::{
    agent_limit_metrics::AgentLimitMetrics,
    agent_limits::{ActiveAgentLimits, AgentLimitSettings, AgentLimits, LimitServices, Permit},
    answer_limits::{AnswerLimits, AnswerUsage},
    applicable_rates::ApplicableRates,
    bucket_key::RateLimitKey,
    clock::LimitClock,
    concurrency_refusal::caller_concurrency_fault,
    config::LimitConfig,
    in_process::InProcessLimitStore,
    limit_draw::LimitDraw,
    limit_inspection::LimitInspection,
    limit_policy::LimitPolicy,
    limit_refusal::{LimitRefusal, setting_of},
    limit_store::{LimitStore, SaveReason},
    load_shedding::LoadShedder,
    memory_budget::{BudgetKind, MemoryBudget, MemoryBudgetLimits, MemoryReservation},
    rate_buckets::RateBuckets,
    rate_rule::RateLimitStatus,
    shared::SharedLimitStore,
    shared_concurrency::{LeaseServer, SharedSlots},
    slot_request::SlotRequest,
    websocket_counts::{CountedWebSocket, WebSocketCounts},
};
use crate::{
    agent::AgentId,
    fault::Fault,
    store::SharedState,
    telemetry::{LimitKind, Metrics},
    values::{ClientKey, CountedHold, KeyedCounts, MaxShare, StoreAnswer},
};
use arc_swap::ArcSwap;
use parking_lot::Mutex;
use std::{
    collections::HashMap,
    convert::Infallible,
    hash::Hash,
    net::IpAddr,
    num::NonZeroU32,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
};

/// All limits of one gateway. A reload reconfigures them and does not replace them, so that it refills no bucket.
#[derive(Debug)]
pub struct CallLimiter {
    pub(super) policy: ArcSwap<LimitPolicy>,
    pub(super) agents: Mutex<HashMap<AgentId, Arc<AgentLimits>>>,
    store: Box<dyn LimitStore>,
    /// The slots that gateways share, if they share state.
    shared_slots: Option<SharedSlots>,
    sweeps: AtomicUsize,
    calls_of_clients: Arc<KeyedCounts<ClientKey>>,
    body_budget: Arc<MemoryBudget>,
    answers: AnswerUsage,
    websockets: Arc<WebSocketCounts>,
    pub(super) load_shedder: LoadShedder,
    clock: LimitClock,
    metrics: Arc<Metrics>,
}

impl CallLimiter {
    /// Creates limits from the configuration, and loads the persisted quotas.
    ///
    /// # Errors
    /// Returns every problem of the configuration, or why the store cannot be opened.
    pub fn new(config: &LimitConfig, metrics: Arc<Metrics>) -> Result<Self, Vec<String>> {
        Self::with_clock(config, metrics, LimitClock::new())
    }

    /// Creates limits whose rates and quotas are counted in shared state. Requires a tokio runtime.
    ///
    /// # Errors
    /// Returns every problem of the configuration.
    pub fn with_shared_state(
        config: &LimitConfig,
        metrics: Arc<Metrics>,
        state: &Arc<SharedState>,
    ) -> Result<Self, Vec<String>> {
        let problems = config.problems();
        if !problems.is_empty() {
            return Err(problems);
        }
        let clock = LimitClock::new();
        let store = SharedLimitStore::open(config, clock.clone(), &metrics, state);
        Ok(Self::with_store(config, metrics, clock, Box::new(store)).with_lease_server(state.clone()))
    }

    pub(super) fn with_clock(
        config: &LimitConfig,
        metrics: Arc<Metrics>,
        clock: LimitClock,
    ) -> Result<Self, Vec<String>> {
        let problems = config.problems();
        if !problems.is_empty() {
            return Err(problems);
        }
        let store = InProcessLimitStore::open(config, clock.clone(), Arc::clone(&metrics)).map_err(|why| vec![why])?;
        Ok(Self::with_store(config, metrics, clock, Box::new(store)))
    }

    pub(super) fn with_store(
        config: &LimitConfig,
        metrics: Arc<Metrics>,
        clock: LimitClock,
        store: Box<dyn LimitStore>,
    ) -> Self {
        metrics.register_tiers(config.tiers.keys().map(String::as_str));
        Self {
            policy: ArcSwap::from_pointee(LimitPolicy::new(config, None, &*store)),
            agents: Mutex::default(),
            store,
            shared_slots: None,
            sweeps: AtomicUsize::new(0),
            calls_of_clients: Arc::default(),
            body_budget: Arc::default(),
            answers: AnswerUsage::default(),
            websockets: Arc::default(),
            load_shedder: LoadShedder::new(Arc::clone(&metrics)),
            clock,
            metrics,
        }
    }

    /// Lets gateways share the slots of agents' concurrency. Requires a tokio runtime.
    pub(super) fn with_lease_server(mut self, server: Arc<dyn LeaseServer>) -> Self {
        let on_error = self.policy.load().config.on_error.of(LimitKind::SharedConcurrency);
        self.shared_slots = Some(SharedSlots::start(server, on_error));
        self
    }

    fn services(&self) -> LimitServices<'_> {
        LimitServices { store: &*self.store, shared_slots: self.shared_slots.as_ref(), clock: &self.clock }
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
        let agents = self.agents.lock();
        let policy = LimitPolicy::new(config, Some(&self.policy.load()), &*self.store);
        self.policy.store(Arc::new(policy));
        for agent in agents.values() {
            agent.reconfigure(config, None, self.services());
        }
        drop(agents);
        if let Some(slots) = &self.shared_slots {
            slots.set_on_error(config.on_error.of(LimitKind::SharedConcurrency));
        }
        self.store.reconfigure(config);
        Ok(())
    }

    /// Returns the limits of an agent, which its route holds, with `settings` applied. The limits of an id that is
    /// already registered keep their state.
    pub fn register_agent(&self, id: &AgentId, settings: AgentLimitSettings) -> Arc<AgentLimits> {
        let mut agents = self.agents.lock();
        let new_limits = || Arc::new(AgentLimits::new(id.clone()));
        let agent = Arc::clone(agents.entry(id.clone()).or_insert_with(new_limits));
        agent.reconfigure(&self.policy.load().config, Some(settings), self.services());
        agent
    }

    /// Counts a request against its peer address, before authentication.
    ///
    /// # Errors
    /// 429 when the address exceeds its rate.
    pub fn acquire_for_address(&self, peer: IpAddr) -> StoreAnswer<'_, Result<(), Fault>> {
        let policy = self.policy.load();
        let Some(draw) = policy.draw_of_address(peer) else { return StoreAnswer::Ready(Ok(())) };
        self.acquire(&draw, None).map(|result| result.map(drop))
    }

    /// Decides as [`CallLimiter::acquire_for_address`] would, and counts nothing.
    pub fn inspect_for_address(&self, peer: IpAddr) -> StoreAnswer<'_, LimitInspection> {
        let policy = self.policy.load();
        match policy.draw_of_address(peer) {
            None => StoreAnswer::Ready(LimitInspection::new(Vec::new())),
            Some(draw) => self.store.inspect(&draw).map(LimitInspection::new),
        }
    }

    /// Counts `count` calls (the items of a batch, or 1) of a caller to an agent in every bucket and quota, or in none.
    /// Returns the status of the tightest limit, if any applies.
    ///
    /// # Errors
    /// 429 for the first limit that is exceeded, in the order caller, caller-agent pair, agent, quotas.
    pub fn acquire_for_calls<'a>(
        &'a self,
        agent: &'a AgentLimits,
        key: &RateLimitKey<'_>,
        count: NonZeroU32,
    ) -> StoreAnswer<'a, Result<Option<RateLimitStatus>, Fault>> {
        let (policy, active) = (self.policy.load(), agent.active.load());
        self.acquire(&policy.draw_calls(active.draw(agent.key), key, count), Some(&agent.metrics))
    }

    /// Decides as [`CallLimiter::acquire_for_calls`] would, and counts nothing.
    pub fn inspect_for_calls(
        &self,
        agent: &AgentLimits,
        key: &RateLimitKey<'_>,
        count: NonZeroU32,
    ) -> StoreAnswer<'_, LimitInspection> {
        let (policy, active) = (self.policy.load(), agent.active.load());
        self.store.inspect(&policy.draw_calls(active.draw(agent.key), key, count)).map(LimitInspection::new)
    }

    /// Decides as [`CallLimiter::acquire_for_calls`] would for the limits that concern the caller whatever it calls: its
    /// rate and its quotas. Counts nothing.
    pub fn inspect_for_caller(&self, key: &RateLimitKey<'_>) -> StoreAnswer<'_, LimitInspection> {
        let policy = self.policy.load();
        self.store.inspect(&policy.draw_of_caller(key)).map(LimitInspection::new)
    }

    /// Refuses a caller whose rate or quota is exhausted, before anything else of its call is known. Charges nothing.
    ///
    /// # Errors
    /// 429 for the first limit that is exceeded.
    pub fn check_caller(&self, key: &RateLimitKey<'_>) -> StoreAnswer<'_, Result<(), Fault>> {
        let policy = self.policy.load();
        self.store.inspect(&policy.draw_of_caller(key)).map(|results| {
            let refusal = results.into_iter().find_map(Result::err);
            refusal.map_or(Ok(()), |refusal| Err(self.record_refusal(refusal, None)))
        })
    }

    /// Counts a directory request as a call of the caller; a search also counts against the search rate.
    ///
    /// # Errors
    /// 429 when the caller exceeds a rate.
    pub fn acquire_for_directory(
        &self,
        key: &RateLimitKey<'_>,
        search: bool,
    ) -> StoreAnswer<'_, Result<Option<RateLimitStatus>, Fault>> {
        let policy = self.policy.load();
        self.acquire(&policy.draw_of_directory(key, search), None)
    }

    fn acquire<'a>(
        &'a self,
        draw: &LimitDraw<'_>,
        agent: Option<&'a AgentLimitMetrics>,
    ) -> StoreAnswer<'a, Result<Option<RateLimitStatus>, Fault>> {
        self.store.acquire(draw).map(move |result| result.map_err(|refusal| self.record_refusal(refusal, agent)))
    }

    fn record_refusal(&self, refusal: LimitRefusal, agent: Option<&AgentLimitMetrics>) -> Fault {
        match agent {
            Some(agent) => agent.record_limited_request(refusal.limit(), &self.metrics),
            None => self.metrics.record_limited_request(refusal.limit()),
        }
        refusal.into_fault()
    }

    /// Acquires a concurrency permit for a call of a client to the agent; waits in the queue if none is free.
    ///
    /// # Errors
    /// 503 when the queue is full or the wait times out; 429 when the client has its share, or as many calls as one
    /// caller may have.
    pub async fn acquire_permit(&self, agent: &Arc<AgentLimits>, client: ClientKey) -> Result<Permit, Fault> {
        let active = agent.active.load_full();
        let policy = self.policy.load_full();
        let config = &policy.config.concurrency;
        let of_caller = self.count_call(client, config.max_per_caller).map_err(|max| {
            agent.metrics.record_limited_request(LimitKind::CallerConcurrency, &self.metrics);
            caller_concurrency_fault(max, config)
        })?;
        let slots = active.acquire_slots(&self.slot_request(&policy, agent, &active, client)).await?;
        Ok(agent.issue_permit(slots, of_caller))
    }

    fn slot_request<'a>(
        &'a self,
        policy: &'a LimitPolicy,
        agent: &'a AgentLimits,
        active: &ActiveAgentLimits,
        client: ClientKey,
    ) -> SlotRequest<'a> {
        SlotRequest {
            client,
            max_share: policy.config.max_share,
            shared_max: active.shared_concurrency.as_ref().map(|limiter| limiter.max()),
            config: &policy.config.concurrency,
            agent: &agent.metrics,
            metrics: &self.metrics,
        }
    }

    /// Decides as [`CallLimiter::acquire_permit`] would now, and takes nothing. Returns the setting for
    /// which the call would wait, if it would.
    ///
    /// # Errors
    /// As [`CallLimiter::acquire_permit`].
    pub fn inspect_permit(&self, agent: &Arc<AgentLimits>, client: ClientKey) -> Result<Option<&'static str>, Fault> {
        let policy = self.policy.load_full();
        let config = &policy.config.concurrency;
        let max_of_caller =
            config.max_per_caller.filter(|max| self.calls_of_clients.held(client) >= max.get() as usize);
        if let Some(max) = max_of_caller {
            return Err(caller_concurrency_fault(max, config));
        }
        let active = agent.active.load_full();
        let awaited = active.inspect_slots(&self.slot_request(&policy, agent, &active, client));
        Ok(awaited.map_err(|refusal| refusal.fault(agent.id()))?.map(setting_of))
    }

    /// Returns whether `limits.tiers` has the tier.
    pub fn has_tier(&self, tier: &str) -> bool {
        self.policy.load().config.tiers.contains_key(tier)
    }

    /// Acquires a concurrency permit if one is free and no call is queued for it.
    pub fn try_acquire_permit(&self, agent: &Arc<AgentLimits>, client: ClientKey) -> Option<Permit> {
        let policy = self.policy.load();
        let of_caller = self.count_call(client, policy.config.concurrency.max_per_caller).ok()?;
        let active = agent.active.load();
        let slots = active.try_acquire_slots(&self.slot_request(&policy, agent, &active, client))?;
        Some(agent.issue_permit(slots, of_caller))
    }

    /// Counts a call as one of its caller's, if these are limited; returns the limit if it is reached.
    fn count_call(
        &self,
        client: ClientKey,
        max: Option<NonZeroU32>,
    ) -> Result<Option<CountedHold<ClientKey>>, NonZeroU32> {
        let Some(max) = max else { return Ok(None) };
        self.calls_of_clients.try_hold(client, 1, max.get() as usize).map(Some).ok_or(max)
    }

    /// Returns a reservation of memory for a body of a client, which holds nothing yet.
    pub fn reserve_body(&self, client: ClientKey) -> MemoryReservation {
        let limits = MemoryBudgetLimits::of(BudgetKind::Bodies, &self.policy.load().config);
        MemoryReservation::new(&self.body_budget, limits, client, &self.metrics)
    }

    /// Returns the limits of answers.
    pub fn answers(&self) -> AnswerLimits<'_> {
        self.answers.limits(&self.policy.load().config, &self.metrics)
    }

    /// Reserves memory for a complete answer, and for the request that it holds open, until the client has read it; a short
    /// answer is not counted.
    ///
    /// # Errors
    /// As [`AnswerLimits::reserve`].
    pub fn reserve_answer(
        &self,
        client: impl FnOnce() -> ClientKey,
        length: usize,
        request: usize,
    ) -> Result<Option<MemoryReservation>, Fault> {
        AnswerLimits::are_for(length).then(|| self.answers().reserve(client(), length + request)).transpose()
    }

    /// Counts a WebSocket of a client to an agent among at most `max` of all clients.
    ///
    /// # Errors
    /// 429 when the client has its share, 503 when all clients have `max`.
    pub fn count_websocket(
        &self,
        agent: &AgentLimits,
        client: ClientKey,
        max: usize,
    ) -> Result<CountedWebSocket, Fault> {
        let max_of_client = self.max_share().of(max);
        self.websockets.try_count(client, max, max_of_client).inspect_err(|_| {
            agent.metrics.record_limited_request(LimitKind::WebSockets, &self.metrics);
        })
    }

    /// Returns the rates and quotas of the calls of a caller of this tier to an agent.
    pub fn applicable_rates(&self, agent: &AgentLimits, tier: Option<&str>) -> ApplicableRates {
        let (policy, active) = (self.policy.load(), agent.active.load());
        let of_tier = policy.tier(tier);
        let rate_of = |buckets: &Option<Arc<dyn RateBuckets>>| buckets.as_ref().map(|buckets| buckets.rule().rate);
        ApplicableRates {
            per_address: rate_of(&policy.address),
            per_caller: rate_of(&of_tier.caller),
            per_caller_agent: rate_of(&of_tier.caller_agent),
            per_agent: active.buckets.iter().map(|buckets| buckets.rule().rate).collect(),
            quota: of_tier.quota.unwrap_or_default(),
        }
    }

    /// Returns the share of each shared maximum that one client may take.
    pub fn max_share(&self) -> MaxShare {
        self.policy.load().config.max_share
    }

    /// Returns whether the gateway sheds load now.
    pub fn is_shedding(&self) -> bool {
        self.load_shedder.is_shedding()
    }

    /// Returns whether the run queue delay is so long that the latency of agents cannot be measured.
    pub fn is_runtime_delayed(&self) -> bool {
        self.load_shedder.is_runtime_delayed()
    }

    /// Refuses a call of this tier if load shedding selects it.
    ///
    /// # Errors
    /// 503 when the call is shed.
    pub fn shed_by_tier(&self, tier: Option<&str>) -> Result<(), Fault> {
        if !self.is_shedding() {
            return Ok(());
        }
        let policy = self.policy.load();
        self.load_shedder.shed(&policy.ranks, policy.tier(tier).priority)
    }

    /// Decides as [`CallLimiter::shed_by_tier`] would, and counts nothing. Returns the share of calls of this tier that
    /// is refused now; a call is refused where that is every one.
    ///
    /// # Errors
    /// 503.
    pub fn inspect_shedding(&self, tier: Option<&str>) -> Result<f64, Fault> {
        let policy = self.policy.load();
        let priority = policy.tier(tier).priority;
        let share = self.load_shedder.refused_share(&policy.ranks, priority);
        if share < 1.0 { Ok(share) } else { Err(self.load_shedder.refusal(priority)) }
    }

    /// Sheds load before authentication if a request has the same credentials as the previous request on its
    /// connection. Returns whether it has. [`CallLimiter::remember_connection_caller`] stores `last_caller`.
    ///
    /// # Errors
    /// 503 when the call is shed.
    pub fn shed_before_authentication(&self, last_caller: &AtomicU64, credentials: impl Hash) -> Result<bool, Fault> {
        let Some(priority) = self.load_shedder.remembered_priority(last_caller, credentials) else { return Ok(false) };
        self.load_shedder.shed(&self.policy.load().ranks, priority).map(|()| true)
    }

    /// Stores the connection's last caller in `last_caller`: a keyed hash of the credentials, and the tier's priority.
    pub fn remember_connection_caller(&self, last_caller: &AtomicU64, credentials: impl Hash, tier: Option<&str>) {
        self.load_shedder.remember_caller(last_caller, credentials, self.policy.load().tier(tier).priority);
    }

    /// Measures the run queue delay and updates the load shedding level. Never returns.
    pub async fn monitor_load(&self) -> Infallible {
        self.load_shedder.monitor(&self.policy).await
    }

    /// Evicts part of the idle state; runs about once a second.
    pub fn evict_idle(&self) {
        let policy = self.policy.load();
        policy.buckets().for_each(|buckets| buckets.evict_idle());
        self.store.evict_expired_quotas(policy.has_monthly_quota());
        if self.sweeps.fetch_add(1, Relaxed).is_multiple_of(16) {
            // Limits that only this table holds belong to agents that have no route.
            self.agents.lock().retain(|_, agent| Arc::strong_count(agent) > 1 || !agent.is_idle());
        }
    }

    /// Saves the counts of the store, for example the quotas in their file. Runs about once a second; the store may
    /// skip a periodic save. Blocks.
    ///
    /// # Errors
    /// Returns why the counts cannot be saved. The next call tries again.
    pub fn save_quotas(&self, ignore_interval: bool) -> Result<(), String> {
        if let Some(slots) = self.shared_slots.as_ref().filter(|_| ignore_interval) {
            slots.return_all();
        }
        self.store.save(if ignore_interval { SaveReason::Shutdown } else { SaveReason::Periodic })
    }

    /// Saves the counts for the process that takes over the listeners. Blocks.
    ///
    /// # Errors
    /// As [`CallLimiter::save_quotas`].
    pub fn hand_over_quotas(&self) -> Result<(), String> {
        self.store.save(SaveReason::Handover)
    }

    /// Loads the counts that the previous process saved at listener handover. Blocks.
    ///
    /// # Errors
    /// Returns why the counts cannot be loaded.
    pub fn reload_quotas(&self) -> Result<(), String> {
        self.store.reload()
    }

    /// Returns how many callers, addresses and caller-agent pairs are tracked.
    pub fn tracked_keys(&self) -> usize {
        self.policy.load().buckets().map(|buckets| buckets.key_count()).sum::<usize>() + self.store.quota_count()
    }
}
