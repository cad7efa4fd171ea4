//! The bounds of one agent: its rates and its concurrency. They outlive catalogues and configurations: a changed
//! bound begins anew, the others go on.

use super::{bucket::Bucket, clock::Clock, config::Config, gate::Gate, store::Single};
use crate::{agent::AgentId, telemetry::Limit, unit::Rate};
use arc_swap::ArcSwap;
use std::{
    num::NonZeroU32,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
};
use tokio::sync::OwnedSemaphorePermit;

/// What is asked for one agent besides the configuration of all.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Bounds {
    /// The rates in its document (`Agent.rates`).
    pub declared: Vec<Rate>,
    /// Its own rate instead of `per_agent`.
    pub rate: Option<Rate>,
    /// Its own concurrency instead of `concurrency.per_agent`.
    pub concurrency: Option<NonZeroU32>,
}

/// The bounds of one agent, as a route holds them.
#[derive(Debug)]
pub struct AgentLimits {
    pub(super) id: AgentId,
    pub(super) key: u64,
    asked: Mutex<Bounds>,
    in_flight: AtomicU32,
    pub(super) now: ArcSwap<Now>,
}

/// What is in force.
#[derive(Debug, Default)]
pub(super) struct Now {
    pub(super) rates: Vec<Arc<Bucket<Single>>>,
    pub(super) gate: Option<Arc<Gate>>,
}

impl AgentLimits {
    pub(super) fn new(id: AgentId, key: u64) -> Self {
        Self { id, key, asked: Mutex::default(), in_flight: AtomicU32::new(0), now: ArcSwap::default() }
    }

    /// The agent's id.
    pub fn id(&self) -> &AgentId {
        &self.id
    }

    /// Calls that it has now.
    pub fn in_flight(&self) -> u32 {
        self.in_flight.load(Relaxed)
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
        let gate = match &before.gate {
            Some(gate) if Some(gate.most) == most => Some(Arc::clone(gate)),
            _ => most.map(|most| Arc::new(Gate::new(most))),
        };
        self.now.store(Arc::new(Now { rates, gate }));
    }

    /// Whether forgetting it would change nothing.
    pub(super) fn is_idle(&self) -> bool {
        self.in_flight() == 0 && self.now.load().rates.iter().all(|bucket| bucket.is_full())
    }

    pub(super) fn begin(self: &Arc<Self>, place: Option<OwnedSemaphorePermit>) -> Permit {
        self.in_flight.fetch_add(1, Relaxed);
        Permit { agent: Arc::clone(self), _place: place }
    }
}

/// A call that an agent has; it ends when this is dropped.
#[derive(Debug)]
pub struct Permit {
    agent: Arc<AgentLimits>,
    _place: Option<OwnedSemaphorePermit>,
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.agent.in_flight.fetch_sub(1, Relaxed);
    }
}
