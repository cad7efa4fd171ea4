//! The upstream set: the endpoints of one agent and the order in which a call tries them: by session affinity, else
//! by the fewest calls in flight. It stores no session: equal gateways choose the same endpoint. Call outcomes are
//! recorded in each endpoint's circuit breaker.

use super::{
    breaker::{Breaker, Given, Rules, Standing},
    http::Target,
    session::{self, hash},
    settings::Bounds,
    way::Way,
};
use crate::{agent::AgentId, fault::Fault, telemetry::AgentMetrics};
use std::{
    cmp::Reverse,
    num::NonZeroU32,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

/// The endpoints of one agent, compiled when its record is read. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Route(pub(super) Arc<Ends>);

#[derive(Debug)]
pub(super) struct Ends {
    agent: AgentId,
    pub(super) first: End,
    pub(super) further: Box<[End]>,
    near: bool,
    pub(super) rules: Rules,
    turn: AtomicUsize,
    metrics: OnceLock<Arc<AgentMetrics>>,
}

/// One endpoint of an upstream set.
#[derive(Debug)]
pub(super) struct End {
    pub(super) lead: Lead,
    pub(super) breaker: Arc<Breaker>,
    /// The endpoint's address.
    pub(super) name: Box<str>,
}

/// The transport to one endpoint.
#[derive(Clone, Debug)]
pub enum Lead {
    /// HTTP over TCP, TLS or a Unix socket.
    Http(Arc<Target>),
    /// Any other transport.
    Other(Arc<dyn Way>),
}

impl Lead {
    /// The timeouts in force.
    pub fn bounds(&self) -> &Bounds {
        match self {
            Self::Http(target) => target.bounds(),
            Self::Other(way) => way.bounds(),
        }
    }

    fn at_once(&self) -> Option<NonZeroU32> {
        match self {
            Self::Http(_) => None,
            Self::Other(way) => way.at_once(),
        }
    }
}

impl End {
    pub(super) fn mark(&self) -> u64 {
        hash(&[self.name.as_bytes()])
    }

    fn is_near(&self) -> bool {
        ["agent+unix:", "agent+local:"].iter().any(|scheme| self.name.starts_with(scheme))
    }
}

impl Route {
    pub(super) fn new(agent: &AgentId, (first, further): (End, Vec<End>), rules: Rules) -> Self {
        let near = std::iter::once(&first).chain(&further).any(End::is_near);
        let (further, turn, metrics) = (further.into(), AtomicUsize::new(0), OnceLock::new());
        Self(Arc::new(Ends { agent: agent.clone(), first, further, near, rules, turn, metrics }))
    }

    /// The timeouts in force for the agent.
    pub fn bounds(&self) -> &Bounds {
        self.0.first.lead.bounds()
    }

    /// The number of concurrent calls that the agent accepts, if its transport knows it.
    pub fn at_once(&self) -> Option<NonZeroU32> {
        self.0.first.lead.at_once()
    }

    /// Whether every endpoint's transport carries an instruction beside the input.
    pub fn takes_instructions(&self) -> bool {
        self.leads().all(|lead| matches!(lead, Lead::Other(way) if way.takes_instructions()))
    }

    /// The transport to the agent's primary endpoint.
    pub fn lead(&self) -> &Lead {
        &self.0.first.lead
    }

    /// Whether any endpoint is a socket on this machine, reached without a port.
    pub fn is_near(&self) -> bool {
        self.0.near
    }

    /// Sets the metrics to which circuit breaker states are reported.
    pub fn tells(&self, metrics: &Arc<AgentMetrics>) {
        metrics.breakers_are(self.open());
        drop(self.0.metrics.set(Arc::clone(metrics)));
    }

    /// Returns every endpoint with the state of its circuit breaker, the primary endpoint first.
    pub fn standings(&self) -> impl Iterator<Item = (&str, Standing)> {
        self.ends().map(|end| (&*end.name, end.breaker.standing()))
    }

    /// Returns the transport to each endpoint.
    pub(super) fn leads(&self) -> impl Iterator<Item = &Lead> {
        self.ends().map(|end| &end.lead)
    }

    fn ends(&self) -> impl Iterator<Item = &End> {
        std::iter::once(&self.0.first).chain(&self.0.further)
    }

    fn open(&self) -> usize {
        self.ends().filter(|end| end.breaker.standing() != Standing::Closed).count()
    }

    /// Records in the circuit breaker what the outcome of a call says of the endpoint.
    pub(super) fn learn<T>(&self, end: &End, given: Given, made: &Result<T, Fault>) {
        let Ends { agent, rules, metrics, .. } = &*self.0;
        let changed = match given.verdict(made) {
            Some(true) if end.breaker.answered() => {
                tracing::info!(%agent, endpoint = &*end.name, "endpoint recovered: circuit breaker closed");
                true
            }
            Some(false) => match end.breaker.failed(rules) {
                Some(failures) => {
                    let every = rules.open_for;
                    tracing::warn!(
                        %agent,
                        endpoint = &*end.name,
                        "endpoint failed {failures} times in a row: circuit breaker open, one probe every {every:?}"
                    );
                    if let Some(metrics) = metrics.get() {
                        metrics.breaker_opened();
                    }
                    true
                }
                None => false,
            },
            _ => false,
        };
        if let Some(metrics) = metrics.get().filter(|_| changed) {
            metrics.breakers(self.open());
        }
    }

    /// Orders the endpoints for a call: first the endpoint that the session's tag names, then by rendezvous hashing of
    /// the session (so that losing an endpoint moves only its own sessions), else by calls in flight.
    pub(super) fn order(&self, session: Option<u64>, tag: Option<u32>) -> Vec<&End> {
        let mut ends: Vec<&End> = self.ends().collect();
        match session {
            Some(session) => ends.sort_by_cached_key(|end| Reverse(session::weight(session, end.mark()))),
            None => {
                let turn = self.0.turn.fetch_add(1, Relaxed) % ends.len().max(1);
                ends.rotate_left(turn);
                // Cached: the counters change during the sort.
                ends.sort_by_cached_key(|end| end.breaker.in_flight());
            }
        }
        if let Some(tag) = tag {
            ends.sort_by_key(|end| session::tag(end.mark()) != tag);
        }
        ends
    }
}
