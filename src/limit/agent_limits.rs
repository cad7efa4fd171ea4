//! Rate limits and concurrency limit of one agent. After a change of the configuration or of the agent's document, a
//! limit whose settings are unchanged keeps its state, and a changed limit starts with a new state.

use super::{
    agent_limit_metrics::AgentLimitMetrics,
    bucket_key::BucketKey,
    clock::LimitClock,
    concurrency_limiter::{ConcurrencyLimiter, ConcurrencySlot},
    concurrency_range::ConcurrencyRange,
    concurrency_refusal::ConcurrencyRefusal,
    config::LimitConfig,
    limit_draw::AgentDraw,
    limit_store::{BucketScope, LimitStore},
    rate_buckets::RateBuckets,
    rate_rule::RateRule,
    shared_concurrency::{SharedConcurrencyLimiter, SharedSlot, SharedSlots},
    slot_request::SlotRequest,
};
use crate::{
    agent::AgentId,
    fault::Fault,
    telemetry::{AgentMetrics, LimitKind},
    values::{ClientKey, CountedHold, Rate},
};
use arc_swap::ArcSwap;
use parking_lot::Mutex;
use std::{
    num::NonZeroU32,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    time::Duration,
};

/// Limits of one agent that add to the limits of the configuration or replace them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AgentLimitSettings {
    /// Rates that the agent's document declares (`Agent.rates`).
    pub declared_rates: Vec<Rate>,
    /// Rate limit of this agent, instead of `limits.per_agent`.
    pub rate_limit: Option<Rate>,
    /// Maximum concurrency of this agent, instead of `limits.concurrency.max_per_agent`.
    pub max_concurrency: Option<NonZeroU32>,
    /// Maximum concurrency of this agent of all gateways, instead of `limits.concurrency.shared_max_per_agent`.
    pub shared_max_concurrency: Option<NonZeroU32>,
    /// Whether the concurrency limit adapts to the latency, instead of `limits.concurrency.adaptive`.
    pub adaptive_concurrency: Option<bool>,
}

/// Limits and calls in flight of one agent; a route holds them.
#[derive(Debug)]
pub struct AgentLimits {
    pub(super) metrics: AgentLimitMetrics,
    pub(super) key: BucketKey,
    settings: Mutex<AgentLimitSettings>,
    in_flight: AtomicU32,
    pub(super) active: ArcSwap<ActiveAgentLimits>,
}

/// The token buckets and the concurrency limiter in force.
#[derive(Debug, Default)]
pub(super) struct ActiveAgentLimits {
    pub(super) buckets: Vec<Arc<dyn RateBuckets>>,
    pub(super) concurrency: Option<Arc<ConcurrencyLimiter>>,
    pub(super) shared_concurrency: Option<Arc<SharedConcurrencyLimiter>>,
}

/// What limits are made of.
#[derive(Clone, Copy)]
pub(super) struct LimitServices<'a> {
    pub(super) store: &'a dyn LimitStore,
    /// The slots that gateways share, if they share state.
    pub(super) shared_slots: Option<&'a SharedSlots>,
    pub(super) clock: &'a LimitClock,
}

/// The slots of a call in flight.
#[derive(Debug, Default)]
pub(super) struct HeldSlots {
    /// The slot in this gateway's concurrency, if it is limited.
    pub(super) own: Option<ConcurrencySlot>,
    /// The slot in the concurrency of all gateways, if it is limited.
    pub(super) shared: Option<SharedSlot>,
}

impl ActiveAgentLimits {
    /// Acquires the slots of a call, or waits for them in the queues.
    ///
    /// # Errors
    /// 503 when a queue is full or a wait times out; 429 when the client has its share.
    pub(super) async fn acquire_slots(&self, request: &SlotRequest<'_>) -> Result<HeldSlots, Fault> {
        let fixed = match &self.concurrency {
            Some(limiter) => Some((limiter, limiter.acquire_fixed(request).await?)),
            None => None,
        };
        // After the fixed limit and before the adaptive one: a call that waits for another gateway does not count as one
        // that waits for the agent's response.
        let shared = match &self.shared_concurrency {
            Some(limiter) => {
                let client_slot = fixed.as_ref().and_then(|(_, slot)| slot.client_slot());
                Some(limiter.acquire(request, client_slot).await?)
            }
            None => None,
        };
        let own = match fixed {
            Some((limiter, slot)) => Some(limiter.acquire_adaptive(request, slot).await?),
            None => None,
        };
        Ok(HeldSlots { own, shared })
    }

    /// Acquires the slots of a call if they are free and no call is queued for them.
    pub(super) fn try_acquire_slots(&self, request: &SlotRequest<'_>) -> Option<HeldSlots> {
        let own = match &self.concurrency {
            Some(limiter) => Some(limiter.try_acquire(request)?),
            None => None,
        };
        let shared = match &self.shared_concurrency {
            Some(limiter) => Some(limiter.try_acquire()?),
            None => None,
        };
        Some(HeldSlots { own, shared })
    }

    /// Decides as [`ActiveAgentLimits::acquire_slots`] would now, and takes nothing. Returns the limit for which the call
    /// would wait, if it would.
    ///
    /// # Errors
    /// The refusal of a call for which no place in a wait queue is free.
    pub(super) fn inspect_slots(
        &self,
        request: &SlotRequest<'_>,
    ) -> Result<Option<LimitKind>, ConcurrencyRefusal<'static>> {
        if let Some(limiter) = &self.concurrency
            && let Some(limit) = limiter.inspect(request)?
        {
            return Ok(Some(limit));
        }
        let Some(limiter) = &self.shared_concurrency else { return Ok(None) };
        Ok(limiter.inspect(request.config)?.then_some(LimitKind::SharedConcurrency))
    }
}

impl ActiveAgentLimits {
    /// Returns the part of a draw that concerns the agent with this key.
    pub(super) fn draw(&self, key: BucketKey) -> AgentDraw<'_> {
        AgentDraw { buckets: &self.buckets, key }
    }
}

impl AgentLimits {
    pub(super) fn new(id: AgentId) -> Self {
        let key = BucketKey::for_agent(id.as_str());
        let (metrics, active) = (AgentLimitMetrics::new(id), ArcSwap::default());
        Self { metrics, key, settings: Mutex::default(), in_flight: AtomicU32::new(0), active }
    }

    /// Returns the agent's id.
    pub fn id(&self) -> &AgentId {
        self.metrics.id()
    }

    /// Returns the number of calls that the agent has in flight.
    pub fn in_flight(&self) -> u32 {
        self.in_flight.load(Relaxed)
    }

    /// Returns the rates in force.
    pub fn rates(&self) -> Vec<Rate> {
        self.active.load().buckets.iter().map(|buckets| buckets.rule().rate).collect()
    }

    /// Returns the maximum of concurrent calls, if there is one.
    pub fn max_concurrency(&self) -> Option<NonZeroU32> {
        self.active.load().concurrency.as_ref().map(|limiter| limiter.max_concurrency)
    }

    /// Returns the adaptive concurrency limit, if one is in effect.
    pub fn adaptive_limit(&self) -> Option<u32> {
        self.active.load().concurrency.as_ref()?.adaptive_limit()
    }

    /// Sets the metrics that report refused and waiting calls, and the adaptive concurrency limit.
    pub fn set_metrics(&self, metrics: &Arc<AgentMetrics>) {
        self.metrics.set(metrics);
    }

    /// Applies the configuration and, if given, new settings of the agent; keeps the state of limits that do not
    /// change.
    pub(super) fn reconfigure(
        &self,
        config: &LimitConfig,
        new_settings: Option<AgentLimitSettings>,
        services: LimitServices<'_>,
    ) {
        let LimitServices { store, shared_slots, clock } = services;
        let mut settings = self.settings.lock();
        if let Some(new_settings) = new_settings {
            *settings = new_settings;
        }
        let previous = self.active.load();
        let mut rates: Vec<Rate> = settings.rate_limit.or(config.per_agent).into_iter().collect();
        for rate in &settings.declared_rates {
            // Equal rates would be one bucket of a shared store, and are one limit.
            if !rates.contains(rate) {
                rates.push(*rate);
            }
        }
        let max_concurrency = settings.max_concurrency.or(config.concurrency.max_per_agent);
        let reuse_or_open = |rate| {
            let rule = RateRule::new(LimitKind::Agent, rate);
            let reusable = previous.buckets.iter().find(|buckets| *buckets.rule() == rule);
            reusable.map_or_else(|| store.open_buckets(rule, BucketScope::Single), Arc::clone)
        };
        let buckets = rates.into_iter().map(reuse_or_open).collect();
        let adaptive = settings.adaptive_concurrency.unwrap_or(config.concurrency.adaptive);
        let range = max_concurrency
            .filter(|_| adaptive)
            .and_then(|max_concurrency| ConcurrencyRange::new(config.concurrency.min_concurrency, max_concurrency));
        let limiter = match &previous.concurrency {
            Some(limiter) if Some(limiter.max_concurrency) == max_concurrency && limiter.adaptive_range == range => {
                Some(Arc::clone(limiter))
            }
            _ => max_concurrency
                .map(|max_concurrency| Arc::new(ConcurrencyLimiter::new(max_concurrency, range, clock.clone()))),
        };
        let shared_max = settings.shared_max_concurrency.or(config.concurrency.shared_max_per_agent);
        let shared_concurrency = shared_slots.zip(shared_max).map(|(slots, max)| slots.open(self.id(), max));
        self.active.store(Arc::new(ActiveAgentLimits { buckets, concurrency: limiter, shared_concurrency }));
    }

    /// Returns whether the limits hold no state: no call in flight, and every bucket full.
    pub(super) fn is_idle(&self) -> bool {
        self.in_flight() == 0 && self.active.load().buckets.iter().all(|buckets| buckets.is_idle())
    }

    pub(super) fn issue_permit(
        self: &Arc<Self>,
        slots: HeldSlots,
        of_caller: Option<CountedHold<ClientKey>>,
    ) -> Permit {
        self.in_flight.fetch_add(1, Relaxed);
        Permit { agent: Arc::clone(self), slot: slots.own, _shared: slots.shared, _of_caller: of_caller }
    }
}

/// Permit of one call in flight, which ends when the permit is dropped.
#[derive(Debug)]
pub struct Permit {
    agent: Arc<AgentLimits>,
    slot: Option<ConcurrencySlot>,
    /// The slot in the concurrency of all gateways, if it is limited.
    _shared: Option<SharedSlot>,
    /// The call as one of its caller's, if these are limited.
    _of_caller: Option<CountedHold<ClientKey>>,
}

impl Permit {
    /// Starts a latency sample when the call is sent to the agent. A sample that is dropped records nothing.
    pub fn start_latency_sample(&self) -> LatencySample<'_> {
        LatencySample { permit: self, started_at: self.slot.as_ref().and_then(ConcurrencySlot::start_latency_sample) }
    }

    /// Stops counting the call as waiting for a response. The call keeps its concurrency slot.
    pub fn stop_awaiting_response(&self) {
        if let Some(slot) = &self.slot {
            slot.stop_awaiting_response();
        }
    }

    fn record_sample(&self, started_at: Duration, success: bool) {
        let changed_limit = self.slot.as_ref().and_then(|slot| slot.record_sample(started_at, success));
        if let Some(limit) = changed_limit {
            self.agent.metrics.set_adaptive_limit(limit);
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.agent.in_flight.fetch_sub(1, Relaxed);
    }
}

/// Time from the request to the first byte of the response, while the response is pending.
#[derive(Debug)]
pub struct LatencySample<'a> {
    permit: &'a Permit,
    started_at: Option<Duration>,
}

/// What the outcome of a call shows about the agent's load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SampleOutcome {
    /// The agent responded; its latency counts.
    Responded,
    /// The agent is overloaded: its response says so, or it exceeded its own timeout.
    Overloaded,
    /// The outcome shows nothing about the load.
    Ignored,
}

impl LatencySample<'_> {
    /// Returns how long the response has been pending; `None` if the call is not sampled.
    pub fn elapsed(&self) -> Option<Duration> {
        let slot = self.permit.slot.as_ref()?;
        self.started_at.map(|started_at| slot.elapsed_since(started_at))
    }

    /// Records the outcome, and stops counting the call as waiting for a response.
    pub fn finish(self, outcome: SampleOutcome) {
        match (self.started_at, outcome) {
            (Some(started_at), SampleOutcome::Responded) => self.permit.record_sample(started_at, true),
            (Some(started_at), SampleOutcome::Overloaded) => self.permit.record_sample(started_at, false),
            _ => {}
        }
        self.permit.stop_awaiting_response();
    }
}
