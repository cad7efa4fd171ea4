//! The transport to one endpoint. HTTP is a variant of its own, so that an HTTP call costs no allocation.

use super::{
    attempt_span::{AttemptSpan, TracedEndpoint},
    endpoint_probe::{ModelList, ProbeFailure, ProbeRequest, ProbeResult, ReachedEndpoint},
    http::{self, HttpTarget},
    timeouts::UpstreamTimeouts,
    upstream_reply::UpstreamReply,
    upstream_transport::{Transport, UpstreamCall},
};
use crate::{fault::Fault, trace::SpanScope};
use futures_util::{FutureExt as _, future::Either};
use std::{num::NonZeroU32, sync::Arc};
use tokio::time::{Instant, timeout_at};

/// The transport to one endpoint.
#[derive(Clone, Debug)]
pub enum EndpointTransport {
    /// HTTP over TCP, TLS or a Unix socket.
    Http(Arc<HttpTarget>),
    /// Any other transport.
    Other(Arc<dyn Transport>),
}

impl EndpointTransport {
    /// The timeouts in force.
    pub fn timeouts(&self) -> &UpstreamTimeouts {
        match self {
            Self::Http(target) => &target.timeouts,
            Self::Other(transport) => transport.timeouts(),
        }
    }

    /// The number of concurrent calls that the agent accepts, if the transport knows it.
    pub(super) fn max_concurrency(&self) -> Option<NonZeroU32> {
        match self {
            Self::Http(_) => None,
            Self::Other(transport) => transport.max_concurrency(),
        }
    }

    /// Whether the transport carries an instruction beside the input.
    pub(super) fn accepts_instructions(&self) -> bool {
        match self {
            Self::Http(_) => false,
            Self::Other(transport) => transport.accepts_instructions(),
        }
    }

    /// Returns the fault of every call, if the endpoint is a literal address or a socket that may not be reached.
    pub(super) fn refusal_of_literal_address(&self) -> Option<Fault> {
        match self {
            Self::Http(target) => target.refusal_of_literal_address(),
            Self::Other(transport) => transport.refusal_of_literal_address(),
        }
    }

    /// Makes the call, without consulting the circuit breaker. Not an `async fn`, which would hold the request one more
    /// time than necessary.
    pub(super) fn call<'a>(
        &'a self,
        request: UpstreamCall<'a>,
        deadline: Instant,
    ) -> impl Future<Output = Result<UpstreamReply, Fault>> + Send + 'a {
        match self {
            Self::Http(target) => Either::Left(http::call_with_retry(target, request, deadline)),
            Self::Other(transport) => {
                let recorded = request.trace.filter(|trace| trace.is_sampled());
                Either::Right(match recorded.and_then(|trace| Some((trace, transport.traced_endpoint()?))) {
                    None => transport.call(request, deadline),
                    Some((trace, endpoint)) => call_traced(transport, request, deadline, trace, endpoint).boxed(),
                })
            }
        }
    }

    /// Whether the endpoint accepts connections now; `true` for transports that cannot tell.
    pub(super) async fn is_reachable(&self) -> bool {
        match self {
            Self::Http(target) => http::is_reachable(target).await,
            Self::Other(transport) => transport.is_reachable().await,
        }
    }

    /// Connects to the endpoint as a call would, and says why it cannot.
    pub(super) async fn probe(&self, deadline: Instant) -> Result<ReachedEndpoint, ProbeFailure> {
        match self {
            Self::Http(target) => http::probe_connection(target, deadline).await,
            Self::Other(transport) => {
                timeout_at(deadline, transport.probe(deadline)).await.unwrap_or(Err(ProbeFailure::TimedOut))
            }
        }
    }

    /// Sends the request of a probe; `None` where calls are not HTTP requests.
    pub(super) async fn send_probe(&self, request: ProbeRequest, deadline: Instant) -> ProbeResult {
        match self {
            Self::Http(target) => Some(http::send_probe(target, request, deadline).await),
            Self::Other(transport) => transport.send_probe(request, deadline).await,
        }
    }

    /// The list of the server's models; `None` where the endpoint is no server of models.
    pub(super) fn model_list(&self) -> Option<ModelList> {
        match self {
            Self::Http(_) => None,
            Self::Other(transport) => transport.model_list(),
        }
    }
}

/// Makes the call in the span of an attempt.
async fn call_traced(
    transport: &Arc<dyn Transport>,
    mut request: UpstreamCall<'_>,
    deadline: Instant,
    trace: &SpanScope,
    endpoint: TracedEndpoint,
) -> Result<UpstreamReply, Fault> {
    let span = AttemptSpan::start(Some(trace), endpoint.span_name(), || endpoint);
    let scope = span.scope().cloned();
    request.trace = scope.as_ref();
    let outcome = transport.call(request, deadline).await;
    match &outcome {
        Ok(_) => span.finish(),
        Err(fault) => span.fail(fault),
    }
    outcome
}
