//! The trait of a kind of transport: how calls reach one endpoint of one agent; and the call in the form that every
//! transport takes.

use super::{
    attempt_count::AttemptCount,
    attempt_span::TracedEndpoint,
    endpoint_probe::{ModelList, ProbeFailure, ProbeRequest, ProbeResult, ReachedEndpoint},
    headers::HeaderMutations,
    request_preview::RequestPreview,
    timeouts::UpstreamTimeouts,
    upstream_body::RequestBody,
    upstream_reply::UpstreamReply,
    websocket::WebSocketOutcome,
};
use crate::{fault::Fault, telemetry::AgentMetrics, trace::SpanScope};
use http::{HeaderMap, Method, uri::PathAndQuery};
use std::{fmt, num::NonZeroU32};
use tokio::time::Instant;

/// A transport to one endpoint, built when the agent's record is read.
#[async_trait::async_trait]
pub trait Transport: fmt::Debug + Send + Sync {
    /// The timeouts in force for the agent.
    fn timeouts(&self) -> &UpstreamTimeouts;

    /// The number of concurrent calls that the agent accepts, if the transport knows it; the configured bound for the
    /// agent takes precedence.
    fn max_concurrency(&self) -> Option<NonZeroU32> {
        None
    }

    /// Whether the transport carries an instruction beside the input.
    fn accepts_instructions(&self) -> bool {
        false
    }

    /// What the span of an attempt says of the endpoint; `None` for a transport that reaches it through another one,
    /// which records the attempt.
    fn traced_endpoint(&self) -> Option<TracedEndpoint> {
        None
    }

    /// Whether the endpoint accepts connections now; `true` for transports that cannot tell.
    async fn is_reachable(&self) -> bool {
        true
    }

    /// Connects to the endpoint as a call would, and says why it cannot.
    async fn probe(&self, _deadline: Instant) -> Result<ReachedEndpoint, ProbeFailure> {
        let unreachable = || ProbeFailure::Unreachable("no connection is accepted".to_owned());
        self.is_reachable().await.then(ReachedEndpoint::default).ok_or_else(unreachable)
    }

    /// Sends the request of a probe; `None` for transports that send no request over HTTP.
    async fn send_probe(&self, _: ProbeRequest, _: Instant) -> ProbeResult {
        None
    }

    /// The list of the server's models; `None` where the endpoint is no server of models.
    fn model_list(&self) -> Option<ModelList> {
        None
    }

    /// Returns the fault of every call, if the endpoint is a literal address or a socket that may not be reached.
    fn refusal_of_literal_address(&self) -> Option<Fault> {
        None
    }

    /// Returns the request that a call would send; `None` for transports that send no request over HTTP.
    fn preview(&self, _: UpstreamCall<'_>, _: Instant) -> Option<Result<RequestPreview, Fault>> {
        None
    }

    /// Makes the call and waits for the beginning of the reply. Dropping the future, or the body of the reply, ends the
    /// call and releases its resources; a reply that arrives later is discarded.
    ///
    /// # Errors
    /// The endpoint cannot be reached, does not reply before `deadline`, or sends an invalid reply.
    async fn call(&self, request: UpstreamCall<'_>, deadline: Instant) -> Result<UpstreamReply, Fault>;

    /// Whether [`Transport::open_websocket`] may open a WebSocket.
    fn has_websocket(&self) -> bool {
        false
    }

    /// Opens the agent's own WebSocket. Returns `None` where the agent has no WebSocket and takes calls instead.
    ///
    /// # Errors
    /// The endpoint cannot be reached, or does not complete the handshake before `deadline`.
    async fn open_websocket(&self, _: UpstreamCall<'_>, _: Instant) -> Option<Result<WebSocketOutcome, Fault>> {
        None
    }
}

/// A call to an upstream.
#[derive(Debug)]
pub struct UpstreamCall<'a> {
    /// The call's id, for transports that carry it outside of header fields.
    pub id: &'a str,
    /// The operation's name; empty for the agent's default operation.
    pub operation: &'a str,
    /// The method.
    pub method: Method,
    /// Path and query, if they differ from those of the agent's endpoint.
    pub path: Option<PathAndQuery>,
    /// The query of the call, for transports over HTTP; it follows that of the endpoint.
    pub query: Option<&'a str>,
    /// The caller's header fields, unfiltered; the transport strips the fields that must not cross.
    pub headers: &'a HeaderMap,
    /// The body.
    pub body: RequestBody,
    /// The header fields that the gateway adds, replaces and removes.
    pub header_mutations: HeaderMutations<'a>,
    /// The instruction for the agent in natural language, for transports that have a field for it; others ignore it.
    pub instruction: Option<&'a str>,
    /// The metrics of the agent, which count tries and connections.
    pub metrics: Option<&'a AgentMetrics>,
    /// The number of tries that the access log has; `None` for requests of the gateway itself.
    pub attempts: Option<&'a AttemptCount>,
    /// The span that calls the endpoint. Transports that make requests hand its context to the agent.
    pub trace: Option<&'a SpanScope>,
}

impl UpstreamCall<'_> {
    /// Counts a try to reach an endpoint.
    pub(super) fn count_attempt(&self) {
        if let Some(attempts) = self.attempts {
            attempts.increment();
        }
    }
}
