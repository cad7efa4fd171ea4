//! Limits of one agent: its rates and its concurrency. They survive changes of the configuration and of the agent's
//! document: a limit that changed starts afresh, the others keep their state.

use super::{
    bucket::Bucket,
    clock::Clock,
    config::Config,
    gate::{Gate, Place},
    learn::Range,
    store::Single,
};
use crate::{
    agent::AgentId,
    telemetry::{AgentMetrics, Limit},
    unit::Rate,
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
pub struct Bounds {
    /// Rates that the agent's document declares (`Agent.rates`).
    pub declared: Vec<Rate>,
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
    pub(super) key: u64,
    asked: Mutex<Bounds>,
    in_flight: AtomicU32,
    pub(super) now: ArcSwap<Now>,
    metrics: ArcSwapOption<AgentMetrics>,
}

/// The token buckets and the concurrency limiter in force.
#[derive(Debug, Default)]
pub(super) struct Now {
    pub(super) rates: Vec<Arc<Bucket<Single>>>,
    pub(super) gate: Option<Arc<Gate>>,
}

impl AgentLimits {
    pub(super) fn new(id: AgentId, key: u64) -> Self {
        let (now, metrics) = (ArcSwap::default(), ArcSwapOption::empty());
        Self { id, key, asked: Mutex::default(), in_flight: AtomicU32::new(0), now, metrics }
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
    pub fn tells(&self, metrics: &Arc<AgentMetrics>) {
        self.metrics.store(Some(Arc::clone(metrics)));
    }

    /// Applies the configuration and, if given, new settings of the agent; keeps the state of limits that do not
    /// change.
    pub(super) fn arrange(&self, config: &Config, asked: Option<Bounds>, clock: &Clock) {
        let mut told = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(asked) = asked {
            *told = asked;
        }
        let before = self.now.load();
        let rates = told.rate.or(config.per_agent).into_iter().chain(told.declared.iter().copied());
        let most = told.concurrency.or(config.concurrency.per_agent);
        let mut spare = before.rates.clone();
        let mut kept = |rate: Rate| match spare.iter().position(|bucket| bucket.rate == rate) {
            Some(at) => spare.swap_remove(at),
            None => Arc::new(Bucket::single(Limit::Agent, rate, clock)),
        };
        let rates: Vec<_> = rates.map(&mut kept).collect();
        let adaptive = told.adaptive.unwrap_or(config.concurrency.adaptive);
        let range = most.filter(|_| adaptive).and_then(|most| Range::of(config.concurrency.least, most));
        let gate = match &before.gate {
            Some(gate) if Some(gate.most) == most && gate.range == range => Some(Arc::clone(gate)),
            _ => most.map(|most| Arc::new(Gate::new(most, range, clock.clone()))),
        };
        self.now.store(Arc::new(Now { rates, gate }));
    }

    /// Returns whether the limits hold no state: no call in flight, and every bucket full.
    pub(super) fn is_idle(&self) -> bool {
        self.in_flight() == 0 && self.now.load().rates.iter().all(|bucket| bucket.is_full())
    }

    pub(super) fn begin(self: &Arc<Self>, place: Option<Place>) -> Permit {
        self.in_flight.fetch_add(1, Relaxed);
        Permit { agent: Arc::clone(self), place }
    }
}

/// A call that the agent has in flight; it ends when the permit is dropped.
#[derive(Debug)]
pub struct Permit {
    agent: Arc<AgentLimits>,
    place: Option<Place>,
}

impl Permit {
    /// Starts a latency sample as the call is sent to the agent. A sample that is dropped records nothing.
    pub fn asks(&self) -> Question<'_> {
        Question { permit: self, began: self.place.as_ref().and_then(Place::asks) }
    }

    /// Stops counting the call as waiting for a response, whatever the agent does; the call keeps its concurrency slot.
    pub fn rests(&self) {
        if let Some(place) = &self.place {
            place.rests();
        }
    }

    fn learn(&self, began: Duration, good: bool) {
        let learnt = self.place.as_ref().and_then(|place| place.learn(began, good));
        if let Some(bound) = learnt
            && let Some(metrics) = &*self.agent.metrics.load()
        {
            metrics.learnt(bound);
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
pub struct Question<'a> {
    permit: &'a Permit,
    began: Option<Duration>,
}

/// What a response says about the agent's load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said {
    /// The agent responded; its latency counts.
    Answer,
    /// The agent is overloaded: its response says so, or it exceeded its own timeout.
    TooMuch,
    /// The response says nothing about load.
    Nothing,
}

impl Question<'_> {
    /// Returns how long the response has been pending; `None` for calls that are not sampled.
    pub fn took(&self) -> Option<Duration> {
        let place = self.permit.place.as_ref()?;
        self.began.map(|began| place.since(began))
    }

    /// Records the outcome, and stops counting the call as waiting for a response.
    pub fn ended(self, said: Said) {
        match (self.began, said) {
            (Some(began), Said::Answer) => self.permit.learn(began, true),
            (Some(began), Said::TooMuch) => self.permit.learn(began, false),
            _ => {}
        }
        self.permit.rests();
    }
}
