//! The bounds of one agent: its rates and its concurrency. They outlive catalogues and configurations: a changed
//! bound begins anew, the others go on.

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

/// What is asked for one agent besides the configuration of all.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Bounds {
    /// The rates in its document (`Agent.rates`).
    pub declared: Vec<Rate>,
    /// Its own rate instead of `per_agent`.
    pub rate: Option<Rate>,
    /// Its own concurrency instead of `concurrency.per_agent`.
    pub concurrency: Option<NonZeroU32>,
    /// Whether a lower one is learnt, instead of `concurrency.adaptive`.
    pub adaptive: Option<bool>,
}

/// The bounds of one agent, as a route holds them.
#[derive(Debug)]
pub struct AgentLimits {
    pub(super) id: AgentId,
    pub(super) key: u64,
    asked: Mutex<Bounds>,
    in_flight: AtomicU32,
    pub(super) now: ArcSwap<Now>,
    metrics: ArcSwapOption<AgentMetrics>,
}

/// What is in force.
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

    /// The agent's id.
    pub fn id(&self) -> &AgentId {
        &self.id
    }

    /// Calls that it has now.
    pub fn in_flight(&self) -> u32 {
        self.in_flight.load(Relaxed)
    }

    /// Where it is told what is learnt.
    pub fn tells(&self, metrics: &Arc<AgentMetrics>) {
        self.metrics.store(Some(Arc::clone(metrics)));
    }

    /// Puts in force what the configuration and, if told, the agent ask; keeps what is the same.
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

    /// Whether forgetting it would change nothing.
    pub(super) fn is_idle(&self) -> bool {
        self.in_flight() == 0 && self.now.load().rates.iter().all(|bucket| bucket.is_full())
    }

    pub(super) fn begin(self: &Arc<Self>, place: Option<Place>) -> Permit {
        self.in_flight.fetch_add(1, Relaxed);
        Permit { agent: Arc::clone(self), place }
    }
}

/// A call that an agent has; it ends when this is dropped.
#[derive(Debug)]
pub struct Permit {
    agent: Arc<AgentLimits>,
    place: Option<Place>,
}

impl Permit {
    /// The agent is asked now. One that is dropped was given up, and says nothing.
    pub fn asks(&self) -> Question<'_> {
        Question { permit: self, began: self.place.as_ref().and_then(Place::asks) }
    }

    /// Nothing is waited for any more, whatever the agent does; its place it still has.
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

/// A question that an agent has and has not answered.
#[derive(Debug)]
pub struct Question<'a> {
    permit: &'a Permit,
    began: Option<Duration>,
}

/// What an agent's answer says of how much it has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said {
    /// It took as long as it takes.
    Answer,
    /// The agent has too much to do: it said so, or said nothing in its own time.
    TooMuch,
    /// Nothing.
    Nothing,
}

impl Question<'_> {
    /// How long it has been there, where that is known: not every question's time is taken.
    pub fn took(&self) -> Option<Duration> {
        let place = self.permit.place.as_ref()?;
        self.began.map(|began| place.since(began))
    }

    /// The answer begins, or there is none.
    pub fn ended(self, said: Said) {
        match (self.began, said) {
            (Some(began), Said::Answer) => self.permit.learn(began, true),
            (Some(began), Said::TooMuch) => self.permit.learn(began, false),
            _ => {}
        }
        self.permit.rests();
    }
}
