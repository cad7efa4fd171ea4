//! The endpoints of one agent, and in which order a call is to try them: where its session is, else where the least is
//! going on. It keeps nothing of sessions: equal gateways choose alike. What calls say of an endpoint is its breaker's.

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

/// How one agent is reached, worked out when its record was read. Cheap to clone.
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

/// One endpoint.
#[derive(Debug)]
pub(super) struct End {
    pub(super) lead: Lead,
    pub(super) breaker: Arc<Breaker>,
    /// Its address.
    pub(super) name: Box<str>,
}

/// What leads to an endpoint.
#[derive(Clone, Debug)]
pub enum Lead {
    /// HTTP over TCP, TLS or a unix socket.
    Http(Arc<Target>),
    /// Anything else.
    Other(Arc<dyn Way>),
}

impl Lead {
    /// The bounds in time.
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

    /// The agent's bounds in time.
    pub fn bounds(&self) -> &Bounds {
        self.0.first.lead.bounds()
    }

    /// How many calls the agent takes at once, where its kind of transport knows.
    pub fn at_once(&self) -> Option<NonZeroU32> {
        self.0.first.lead.at_once()
    }

    /// Whether a request's instruction has a place of its own on its way, wherever the call goes.
    pub fn takes_instructions(&self) -> bool {
        self.leads().all(|lead| matches!(lead, Lead::Other(way) if way.takes_instructions()))
    }

    /// What leads to the agent's own endpoint.
    pub fn lead(&self) -> &Lead {
        &self.0.first.lead
    }

    /// Whether any endpoint is on this machine, and reached without a port.
    pub fn is_near(&self) -> bool {
        self.0.near
    }

    /// Where it is told how the breakers stand.
    pub fn tells(&self, metrics: &Arc<AgentMetrics>) {
        metrics.breakers_are(self.open());
        drop(self.0.metrics.set(Arc::clone(metrics)));
    }

    /// Every endpoint with its breaker, the agent's own first.
    pub fn standings(&self) -> impl Iterator<Item = (&str, Standing)> {
        self.ends().map(|end| (&*end.name, end.breaker.standing()))
    }

    /// What leads to each endpoint.
    pub(super) fn leads(&self) -> impl Iterator<Item = &Lead> {
        self.ends().map(|end| &end.lead)
    }

    fn ends(&self) -> impl Iterator<Item = &End> {
        std::iter::once(&self.0.first).chain(&self.0.further)
    }

    fn open(&self) -> usize {
        self.ends().filter(|end| end.breaker.standing() != Standing::Closed).count()
    }

    /// Takes down what a call says of its endpoint.
    pub(super) fn learn<T>(&self, end: &End, given: Given, made: &Result<T, Fault>) {
        let Ends { agent, rules, metrics, .. } = &*self.0;
        let changed = match given.verdict(made) {
            Some(true) if end.breaker.answered() => {
                tracing::info!(%agent, endpoint = &*end.name, "it answers again");
                true
            }
            Some(false) => match end.breaker.failed(rules) {
                Some(failures) => {
                    let every = rules.open_for;
                    tracing::warn!(
                        %agent,
                        endpoint = &*end.name,
                        "it failed {failures} times in a row: calls are refused, and one every {every:?} tries it"
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

    /// The endpoints in the order in which a call is to try them: the one that the tag of its session names, then by
    /// the session (rendezvous hashing, so that the loss of one moves only its own), else by what is going on there.
    pub(super) fn order(&self, session: Option<u64>, tag: Option<u32>) -> Vec<&End> {
        let mut ends: Vec<&End> = self.ends().collect();
        match session {
            Some(session) => ends.sort_by_cached_key(|end| Reverse(session::weight(session, end.mark()))),
            None => {
                let turn = self.0.turn.fetch_add(1, Relaxed) % ends.len().max(1);
                ends.rotate_left(turn);
                // Cached: the numbers move while they are compared.
                ends.sort_by_cached_key(|end| end.breaker.in_flight());
            }
        }
        if let Some(tag) = tag {
            ends.sort_by_key(|end| session::tag(end.mark()) != tag);
        }
        ends
    }
}
