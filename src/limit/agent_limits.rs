//! Limits of one agent: its rates and its concurrency. They survive changes of the configuration and of the agent's
//! document: a limit that changed starts afresh, the others keep their state.

use super::{
    adaptive_concurrency::ConcurrencyRange,
    bucket_store::SingleBucketStore,
    clock::LimitClock,
    concurrency_limiter::{ConcurrencyLimiter, ConcurrencySlot},
    config::LimitConfig,
    token_bucket::TokenBucket,
};
use crate::{
    agent::AgentId,
    telemetry::{AgentMetrics, LimitKind},
    values::Rate,
};
use arc_swap::{ArcSwap, ArcSwapOption};
use std::{
    num::NonZeroU32,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    time::Duration,
};

/// Limits of one agent that add to, or replace, those of the configuration.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AgentLimitSettings {
    /// Rates that the agent's document declares (`Agent.rates`).
    pub declared_rates: Vec<Rate>,
    /// Rate of this agent, instead of `per_agent`.
    pub rate: Option<Rate>,
    /// Maximum concurrency of this agent, instead of `concurrency.per_agent`.
    pub concurrency: Option<NonZeroU32>,
    /// Whether the concurrency limit adapts to latency, instead of `concurrency.adaptive`.
    pub adaptive: Option<bool>,
}

/// Limits and calls in flight of one agent; a route holds them.
#[derive(Debug)]
pub struct AgentLimits {
    pub(super) id: AgentId,
    pub(super) hash: u64,
    settings: Mutex<AgentLimitSettings>,
    in_flight: AtomicU32,
    pub(super) active: ArcSwap<ActiveAgentLimits>,
    metrics: ArcSwapOption<AgentMetrics>,
}

/// The token buckets and the concurrency limiter in force.
#[derive(Debug, Default)]
pub(super) struct ActiveAgentLimits {
    pub(super) buckets: Vec<Arc<TokenBucket<SingleBucketStore>>>,
    pub(super) concurrency: Option<Arc<ConcurrencyLimiter>>,
}

impl AgentLimits {
    pub(super) fn new(id: AgentId, key: u64) -> Self {
        let (now, metrics) = (ArcSwap::default(), ArcSwapOption::empty());
        Self { id, hash: key, settings: Mutex::default(), in_flight: AtomicU32::new(0), active: now, metrics }
    }

    /// Returns the agent's id.
    pub fn id(&self) -> &AgentId {
        &self.id
    }

    /// Returns the number of calls that the agent has in flight.
    pub fn in_flight(&self) -> u32 {
        self.in_flight.load(Relaxed)
    }

    /// Sets the metrics that report the adaptive concurrency limit.
    pub fn set_metrics(&self, metrics: &Arc<AgentMetrics>) {
        self.metrics.store(Some(Arc::clone(metrics)));
    }

    /// Applies the configuration and, if given, new settings of the agent; keeps the state of limits that do not
    /// change.
    pub(super) fn reconfigure(
        &self,
        config: &LimitConfig,
        new_settings: Option<AgentLimitSettings>,
        clock: &LimitClock,
    ) {
        let mut settings = self.settings.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(asked) = new_settings {
            *settings = asked;
        }
        let before = self.active.load();
        let rates = settings.rate.or(config.per_agent).into_iter().chain(settings.declared_rates.iter().copied());
        let max_concurrency = settings.concurrency.or(config.concurrency.max_per_agent);
        let mut reusable = before.buckets.clone();
        let mut reuse_or_create = |rate: Rate| match reusable.iter().position(|bucket| bucket.rate == rate) {
            Some(at) => reusable.swap_remove(at),
            None => Arc::new(TokenBucket::new_single(LimitKind::Agent, rate, clock)),
        };
        let rates: Vec<_> = rates.map(&mut reuse_or_create).collect();
        let adaptive = settings.adaptive.unwrap_or(config.concurrency.adaptive);
        let range = max_concurrency
            .filter(|_| adaptive)
            .and_then(|most| ConcurrencyRange::new(config.concurrency.min_concurrency, most));
        let gate = match &before.concurrency {
            Some(gate) if Some(gate.max_concurrency) == max_concurrency && gate.adaptive_range == range => {
                Some(Arc::clone(gate))
            }
            _ => max_concurrency.map(|most| Arc::new(ConcurrencyLimiter::new(most, range, clock.clone()))),
        };
        self.active.store(Arc::new(ActiveAgentLimits { buckets: rates, concurrency: gate }));
    }

    /// Returns whether the limits hold no state: no call in flight, and every bucket full.
    pub(super) fn is_idle(&self) -> bool {
        self.in_flight() == 0 && self.active.load().buckets.iter().all(|bucket| bucket.is_full())
    }

    pub(super) fn issue_permit(self: &Arc<Self>, slot: Option<ConcurrencySlot>) -> Permit {
        self.in_flight.fetch_add(1, Relaxed);
        Permit { agent: Arc::clone(self), slot }
    }
}

/// A call that the agent has in flight; it ends when the permit is dropped.
#[derive(Debug)]
pub struct Permit {
    agent: Arc<AgentLimits>,
    slot: Option<ConcurrencySlot>,
}

impl Permit {
    /// Starts a latency sample as the call is sent to the agent. A sample that is dropped records nothing.
    pub fn start_latency_sample(&self) -> LatencySample<'_> {
        LatencySample { permit: self, started: self.slot.as_ref().and_then(ConcurrencySlot::start_latency_sample) }
    }

    /// Stops counting the call as waiting for a response, whatever the agent does; the call keeps its concurrency slot.
    pub fn stop_awaiting_response(&self) {
        if let Some(place) = &self.slot {
            place.stop_awaiting_response();
        }
    }

    fn record_sample(&self, started: Duration, success: bool) {
        let changed_limit = self.slot.as_ref().and_then(|place| place.record_sample(started, success));
        if let Some(bound) = changed_limit
            && let Some(metrics) = &*self.agent.metrics.load()
        {
            metrics.set_adaptive_limit(bound);
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
    started: Option<Duration>,
}

/// What a response says about the agent's load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SampleOutcome {
    /// The agent responded; its latency counts.
    Responded,
    /// The agent is overloaded: its response says so, or it exceeded its own timeout.
    Overloaded,
    /// The response says nothing about load.
    Ignored,
}

impl LatencySample<'_> {
    /// Returns how long the response has been pending; `None` for calls that are not sampled.
    pub fn elapsed(&self) -> Option<Duration> {
        let place = self.permit.slot.as_ref()?;
        self.started.map(|began| place.elapsed_since(began))
    }

    /// Records the outcome, and stops counting the call as waiting for a response.
    pub fn finish(self, outcome: SampleOutcome) {
        match (self.started, outcome) {
            (Some(began), SampleOutcome::Responded) => self.permit.record_sample(began, true),
            (Some(began), SampleOutcome::Overloaded) => self.permit.record_sample(began, false),
            _ => {}
        }
        self.permit.stop_awaiting_response();
    }
}
