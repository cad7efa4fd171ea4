//! The upstream set: the endpoints of one agent, and the order in which a call tries them: by session affinity, else
//! by the fewest calls in flight. It stores no session: gateways with the same endpoints choose the same one. Call
//! outcomes are recorded in each endpoint's circuit breaker.

use super::{
    circuit_breaker::{BreakerPolicy, BreakerState, CallAttempt, CircuitBreaker},
    endpoint_probe::{EndpointProbe, ModelList, ProbeRequest, ProbeResult},
    endpoint_transport::EndpointTransport,
    session_affinity::{endpoint_tag, rendezvous_weight, stable_hash},
    timeouts::UpstreamTimeouts,
};
use crate::{
    agent::AgentId,
    fault::Fault,
    telemetry::AgentMetrics,
    values::{join_path, path_below},
};
use http::uri::PathAndQuery;
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

/// The endpoints of one agent, compiled when its record is read. Cheap to clone.
#[derive(Clone, Debug)]
pub struct UpstreamSet(pub(super) Arc<UpstreamSetInner>);

#[derive(Debug)]
pub(super) struct UpstreamSetInner {
    agent: AgentId,
    pub(super) primary: UpstreamEndpoint,
    pub(super) additional: Box<[UpstreamEndpoint]>,
    is_local: bool,
    pub(super) breaker_policy: BreakerPolicy,
    round_robin: AtomicUsize,
    metrics: OnceLock<Arc<AgentMetrics>>,
}

/// One endpoint of an upstream set.
#[derive(Debug)]
pub(super) struct UpstreamEndpoint {
    pub(super) transport: EndpointTransport,
    pub(super) breaker: Arc<CircuitBreaker>,
    /// The endpoint's URL, as text.
    pub(super) address: Box<str>,
    /// The HTTP path, where calls have one and it is known before a call.
    pub(super) path: Option<PathAndQuery>,
    /// Whether the endpoint is a socket on this machine.
    pub(super) is_local: bool,
    /// Whether calls go there before they go to endpoints that are not preferred, such as those of another zone.
    pub(super) is_preferred: bool,
}

impl UpstreamEndpoint {
    pub(super) fn affinity_hash(&self) -> u64 {
        stable_hash(&[self.address.as_bytes()])
    }

    /// Returns the path at this endpoint of a call that has the path `call_path` at the endpoint `primary`: the same
    /// where both have one path, else the part below `primary`, joined to this endpoint's path. `None` if this endpoint
    /// has no such path.
    pub(super) fn path_of_call(&self, primary: &Self, call_path: &PathAndQuery) -> Option<PathAndQuery> {
        if std::ptr::eq(self, primary) {
            return Some(call_path.clone());
        }
        let (own, primary) = (self.path.as_ref()?, primary.path.as_ref()?);
        if own.path() == primary.path() {
            return Some(call_path.clone());
        }
        join_path(own.path(), path_below(call_path.path(), primary.path())?, call_path.query())
    }
}

impl UpstreamSet {
    pub(super) fn new(
        agent: &AgentId,
        primary: UpstreamEndpoint,
        additional: Vec<UpstreamEndpoint>,
        breaker_policy: BreakerPolicy,
    ) -> Self {
        let is_local = std::iter::once(&primary).chain(&additional).any(|endpoint| endpoint.is_local);
        Self(Arc::new(UpstreamSetInner {
            agent: agent.clone(),
            primary,
            additional: additional.into(),
            is_local,
            breaker_policy,
            round_robin: AtomicUsize::new(0),
            metrics: OnceLock::new(),
        }))
    }

    /// The timeouts in force for the agent.
    pub fn timeouts(&self) -> &UpstreamTimeouts {
        self.0.primary.transport.timeouts()
    }

    /// The number of concurrent calls that the agent accepts, if its transport knows it.
    pub fn max_concurrency(&self) -> Option<NonZeroU32> {
        self.0.primary.transport.max_concurrency()
    }

    /// Whether every endpoint's transport carries an instruction beside the input.
    pub fn accepts_instructions(&self) -> bool {
        self.endpoints().all(|endpoint| endpoint.transport.accepts_instructions())
    }

    /// Whether any endpoint is a socket on this machine, reached without a port.
    pub fn is_local(&self) -> bool {
        self.0.is_local
    }

    /// Sets the metrics to which circuit breaker states are reported.
    pub fn set_metrics(&self, metrics: &Arc<AgentMetrics>) {
        metrics.restore_open_breakers(self.open_breakers());
        drop(self.0.metrics.set(Arc::clone(metrics)));
    }

    /// Returns every endpoint with the state of its circuit breaker, the primary endpoint first.
    pub fn breaker_states(&self) -> impl Iterator<Item = (&str, BreakerState)> {
        self.endpoints().map(|endpoint| (&*endpoint.address, endpoint.breaker.state()))
    }

    /// Whether any endpoint accepts connections now, tested without a call. Transports that cannot tell count as
    /// reachable. The result affects no call: the circuit breakers record the outcomes of calls only.
    pub(super) async fn is_reachable(&self) -> bool {
        for endpoint in self.endpoints() {
            if endpoint.transport.is_reachable().await {
                return true;
            }
        }
        false
    }

    /// Connects to every endpoint as a call would; each has `timeout`.
    pub async fn probe_endpoints(&self, timeout: Duration) -> Vec<EndpointProbe> {
        let mut probes = Vec::new();
        for endpoint in self.endpoints() {
            let outcome = endpoint.transport.probe(Instant::now() + timeout).await;
            probes.push(EndpointProbe { address: endpoint.address.to_string(), outcome });
        }
        probes
    }

    /// Sends the request of a probe to the agent's own endpoint. It is not a call of a caller: `gatepost doctor` alone
    /// sends such requests.
    pub async fn send_probe(&self, request: ProbeRequest, timeout: Duration) -> ProbeResult {
        self.0.primary.transport.send_probe(request, Instant::now() + timeout).await
    }

    /// Returns the list of models at the agent's own endpoint; `None` where it is no server of models.
    pub fn model_list(&self) -> Option<ModelList> {
        self.0.primary.transport.model_list()
    }

    fn endpoints(&self) -> impl Iterator<Item = &UpstreamEndpoint> {
        std::iter::once(&self.0.primary).chain(&self.0.additional)
    }

    fn open_breakers(&self) -> usize {
        self.endpoints().filter(|endpoint| endpoint.breaker.state() != BreakerState::Closed).count()
    }

    /// Records the outcome of a call in the endpoint's circuit breaker.
    pub(super) fn record_outcome<T>(
        &self,
        endpoint: &UpstreamEndpoint,
        attempt: CallAttempt,
        outcome: &Result<T, Fault>,
    ) {
        let UpstreamSetInner { agent, breaker_policy, metrics, .. } = &*self.0;
        let changed = match attempt.classify_outcome(outcome) {
            Some(true) if endpoint.breaker.record_success() => {
                tracing::info!(%agent, endpoint = &*endpoint.address, "endpoint recovered: circuit breaker closed");
                true
            }
            Some(false) => match endpoint.breaker.record_failure(breaker_policy) {
                Some(failures) => {
                    let probe_interval = breaker_policy.open_duration;
                    tracing::warn!(
                        %agent,
                        endpoint = &*endpoint.address,
                        "endpoint failed {failures} times in a row: circuit breaker open, one probe every {probe_interval:?}"
                    );
                    if let Some(metrics) = metrics.get() {
                        metrics.record_breaker_opened();
                    }
                    true
                }
                None => false,
            },
            _ => false,
        };
        if let Some(metrics) = metrics.get().filter(|_| changed) {
            metrics.set_open_breakers(self.open_breakers());
        }
    }

    /// Orders the endpoints for a call: first the endpoint that the session's tag names, then by rendezvous hashing of
    /// the session (so that losing an endpoint moves only its own sessions), else the preferred ones, by calls in flight.
    pub(super) fn order_endpoints(&self, session: Option<u64>, tag: Option<u32>) -> Vec<&UpstreamEndpoint> {
        let turn = if session.is_none() { self.0.round_robin.fetch_add(1, Relaxed) } else { 0 };
        self.order_endpoints_from(turn, session, tag)
    }

    /// Orders the endpoints as the next call would find them.
    pub(super) fn inspect_order(&self, session: Option<u64>, tag: Option<u32>) -> Vec<&UpstreamEndpoint> {
        self.order_endpoints_from(self.0.round_robin.load(Relaxed), session, tag)
    }

    fn order_endpoints_from(&self, turn: usize, session: Option<u64>, tag: Option<u32>) -> Vec<&UpstreamEndpoint> {
        let mut endpoints: Vec<&UpstreamEndpoint> = self.endpoints().collect();
        match session {
            Some(session) => {
                endpoints.sort_by_cached_key(|endpoint| Reverse(rendezvous_weight(session, endpoint.affinity_hash())))
            }
            None => {
                let offset = turn % endpoints.len().max(1);
                endpoints.rotate_left(offset);
                // Cached: the counters change during the sort.
                endpoints.sort_by_cached_key(|endpoint| (!endpoint.is_preferred, endpoint.breaker.in_flight()));
            }
        }
        if let Some(tag) = tag {
            endpoints.sort_by_key(|endpoint| endpoint_tag(endpoint.affinity_hash()) != tag);
        }
        endpoints
    }
}
