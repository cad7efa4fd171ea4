//! The endpoints of one agent, and which of them a call goes to: where its session is, else where the least is going
//! on, never where the breaker is open. A call goes on to the next one only where that cannot make an agent do a thing
//! twice (R45). It keeps nothing of sessions: equal gateways choose alike.

use super::{
    Request, Transport,
    body::Body,
    breaker::{Breaker, Given, InFlight, Rules, Standing, shut},
    http::Target,
    reply::Reply,
    session::{self, hash},
    settings::Bounds,
    way::Way,
    websocket::Opened,
};
use crate::{
    agent::AgentId,
    fault::{Fault, Reach},
    telemetry::AgentMetrics,
};
use futures_util::{
    FutureExt,
    future::{Either, ready},
};
use std::{
    cmp::Reverse,
    num::NonZeroU32,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};
use tokio::time::Instant;

/// How one agent is reached, worked out when its record was read. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Route(Arc<Ends>);

#[derive(Debug)]
struct Ends {
    agent: AgentId,
    first: End,
    further: Box<[End]>,
    near: bool,
    rules: Rules,
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
    fn mark(&self) -> u64 {
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
    fn learn<T>(&self, end: &End, given: Given, made: &Result<T, Fault>) {
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
    fn order(&self, session: Option<u64>, tag: Option<u32>) -> Vec<&End> {
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

impl Transport {
    /// Makes the call at one endpoint or another. Like what it is made of it is no `async fn`, which would keep the
    /// request once more than it is needed.
    pub(super) fn at_ends<'a>(
        &'a self,
        route: &'a Route,
        request: Request<'a>,
        (session, deadline): (Option<u64>, Instant),
    ) -> impl Future<Output = Result<Reply, Fault>> + Send + 'a {
        if !route.0.further.is_empty() {
            return Either::Left(self.at_one_of(route, request, session, deadline).boxed());
        }
        let end = &route.0.first;
        Either::Right(match end.breaker.admit(&route.0.rules) {
            Ok(()) => Either::Left(self.at(route, end, request, deadline)),
            Err(wait) => Either::Right(ready(Err(shut(wait)))),
        })
    }

    fn at<'a>(
        &'a self,
        route: &'a Route,
        end: &'a End,
        request: Request<'a>,
        deadline: Instant,
    ) -> impl Future<Output = Result<Reply, Fault>> + Send + 'a {
        let streamed = matches!(request.body, Body::Stream(_));
        let given = Given { began: Instant::now(), deadline, streamed, bounds: *end.lead.bounds() };
        self.along(&end.lead, request, deadline).inspect(move |made| route.learn(end, given, made))
    }

    /// Makes the call there, whatever is known of the endpoint.
    pub(super) fn along<'a>(
        &'a self,
        lead: &'a Lead,
        request: Request<'a>,
        deadline: Instant,
    ) -> impl Future<Output = Result<Reply, Fault>> + Send + 'a {
        match lead {
            Lead::Http(target) => Either::Left(self.http.call(target, request, deadline)),
            Lead::Other(way) => Either::Right(way.call(request, deadline)),
        }
    }

    /// Opens the WebSocket of the agent's own endpoint, if it has one.
    pub(super) async fn socket_at(
        &self,
        route: &Route,
        request: Request<'_>,
        deadline: Instant,
    ) -> Result<Option<Opened>, Fault> {
        let end = &route.0.first;
        // An agent without one is tried by its calls: what is asked here must not take their turn.
        let Lead::Other(way) = &end.lead else { return Ok(None) };
        if !way.has_socket() {
            return Ok(None);
        }
        let given = Given { began: Instant::now(), deadline, streamed: false, bounds: *way.bounds() };
        end.breaker.admit(&route.0.rules).map_err(shut)?;
        let Some(made) = way.socket(request, deadline).await else { return Ok(None) };
        route.learn(end, given, &made);
        made.map(Some)
    }

    /// Goes from endpoint to endpoint. A body that is streamed was begun with the first one, and stays there.
    async fn at_one_of(
        &self,
        route: &Route,
        request: Request<'_>,
        session: Option<u64>,
        deadline: Instant,
    ) -> Result<Reply, Fault> {
        let (tag, untagged) = session::untagged(request.headers).unzip();
        let Request { id, operation, method, path, headers, body, passage, instruction } = request;
        let headers = untagged.as_ref().unwrap_or(headers);
        let repeatable = method.is_idempotent() || headers.contains_key("idempotency-key");
        let (mut body, mut failed, mut wait) = (Some(body), None, None::<Duration>);
        for end in route.order(session, tag) {
            if let Err(until) = end.breaker.admit(&route.0.rules) {
                wait = Some(wait.map_or(until, |wait| wait.min(until)));
                continue;
            }
            let Some(sent) = body.take() else { break };
            body = match &sent {
                Body::Empty => Some(Body::Empty),
                Body::Whole(bytes) => Some(Body::Whole(bytes.clone())),
                Body::Stream(_) => None,
            };
            let place = InFlight::at(&end.breaker);
            let (method, path) = (method.clone(), path.clone());
            let request = Request { id, operation, method, path, headers, body: sent, passage, instruction };
            let fault = match self.at(route, end, request, deadline).await {
                Ok(mut reply) => {
                    reply.body.hold(place);
                    session::tag_in(&mut reply.headers, end.mark());
                    return Ok(reply);
                }
                Err(fault) => fault,
            };
            let again = match fault.reach() {
                Some(Reach::Nowhere) => true,
                Some(Reach::Unsure) => repeatable,
                None => false,
            };
            if !again {
                return Err(fault);
            }
            // What one of them may have done is not made undone by another that cannot be reached.
            let unsure = failed.filter(|failed: &Fault| failed.reach() == Some(Reach::Unsure));
            failed = Some(unsure.unwrap_or(fault));
        }
        Err(failed.unwrap_or_else(|| shut(wait.unwrap_or(route.0.rules.open_for))))
    }
}
