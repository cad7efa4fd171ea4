//! Failover: makes one call at one of the endpoints of an upstream, skipping endpoints whose circuit breaker is open.
//! The call moves to the next endpoint only where the agent cannot execute it twice (R45).

use super::{
    attempt_record::AttemptRecord,
    attempt_span::AttemptSpan,
    circuit_breaker::{CallAttempt, InFlightGuard, breaker_open_fault},
    endpoint_transport::EndpointTransport,
    session_affinity,
    upstream_body::RequestBody,
    upstream_reply::UpstreamReply,
    upstream_set::{UpstreamEndpoint, UpstreamSet},
    upstream_transport::UpstreamCall,
    websocket::WebSocketOutcome,
};
use crate::{
    fault::{CallProgress, Fault},
    telemetry::{AgentMetrics, AttemptResult},
};
use futures_util::{
    FutureExt,
    future::{Either, ready},
};
use std::time::Duration;
use tokio::time::Instant;

/// Where a call may go, and until when.
#[derive(Clone, Copy, Debug)]
pub(super) struct FailoverCall<'a> {
    pub(super) upstream: &'a UpstreamSet,
    /// The hash of the caller's session.
    pub(super) session: Option<u64>,
    pub(super) deadline: Instant,
}

impl<'a> FailoverCall<'a> {
    /// Makes the call at one of the endpoints. Neither this function nor the ones it calls are `async fn`: each would
    /// hold the request one more time than necessary.
    pub(super) fn send(
        self,
        request: UpstreamCall<'a>,
    ) -> impl Future<Output = Result<UpstreamReply, Fault>> + Send + 'a {
        if !self.upstream.0.additional.is_empty() {
            return Either::Left(self.try_endpoints(request).boxed());
        }
        let endpoint = &self.upstream.0.primary;
        Either::Right(match endpoint.breaker.admit_call(&self.upstream.0.breaker_policy) {
            Ok(()) => Either::Left(self.call_endpoint(endpoint, request)),
            Err(retry_after) => Either::Right(ready(Err(refused_by_breaker(request.metrics, retry_after)))),
        })
    }

    fn call_endpoint<'b>(
        self,
        endpoint: &'b UpstreamEndpoint,
        request: UpstreamCall<'b>,
    ) -> impl Future<Output = Result<UpstreamReply, Fault>> + Send + 'b
    where
        'a: 'b,
    {
        let Self { upstream, deadline, .. } = self;
        let streamed = matches!(request.body, RequestBody::Stream(_));
        let attempt =
            CallAttempt { started: Instant::now(), deadline, streamed, timeouts: *endpoint.transport.timeouts() };
        let record = AttemptRecord::start(request.metrics);
        request.count_attempt();
        endpoint.transport.call(request, deadline).inspect(move |outcome| {
            upstream.record_outcome(endpoint, attempt, outcome);
            record.finish(outcome);
        })
    }

    /// Tries one endpoint after the other. A streamed body is sent to the first endpoint only.
    async fn try_endpoints(self, request: UpstreamCall<'_>) -> Result<UpstreamReply, Fault> {
        let breaker_policy = &self.upstream.0.breaker_policy;
        let (tag, untagged_headers) = session_affinity::strip_session_tag(request.headers).unzip();
        let headers = untagged_headers.as_ref().unwrap_or(request.headers);
        let is_repeatable = request.method.is_idempotent() || headers.contains_key("idempotency-key");
        let (mut body, mut last_fault, mut min_wait) = (Some(request.body), None, None::<Duration>);
        for endpoint in self.upstream.order_endpoints(self.session, tag) {
            let path = match &request.path {
                None => None,
                Some(path) => match endpoint.path_of_call(&self.upstream.0.primary, path) {
                    Some(path) => Some(path),
                    // The operation or version has no path at this endpoint.
                    None => continue,
                },
            };
            if let Err(wait) = endpoint.breaker.admit_call(breaker_policy) {
                AttemptRecord::start(request.metrics).finish_with(AttemptResult::Rejected);
                min_wait = Some(min_wait.map_or(wait, |min_wait| min_wait.min(wait)));
                continue;
            }
            let Some(attempt_body) = body.take() else { break };
            if let Some(metrics) = request.metrics.filter(|_| last_fault.is_some()) {
                metrics.record_retry();
            }
            body = attempt_body.try_clone();
            let in_flight = InFlightGuard::new(&endpoint.breaker);
            let method = request.method.clone();
            let attempt = UpstreamCall { method, path, headers, body: attempt_body, ..request };
            let fault = match self.call_endpoint(endpoint, attempt).await {
                Ok(mut reply) => {
                    reply.body.hold_in_flight(in_flight);
                    session_affinity::add_session_tag(&mut reply.headers, endpoint.affinity_hash());
                    return Ok(reply);
                }
                Err(fault) => fault,
            };
            if !may_fail_over(&fault, is_repeatable) {
                return Err(fault);
            }
            // A later endpoint that is unreachable does not undo what an earlier one may have executed.
            let possibly_executed =
                last_fault.filter(|fault: &Fault| fault.progress() == Some(CallProgress::PossiblySent));
            last_fault = Some(possibly_executed.unwrap_or(fault));
        }
        Err(last_fault.unwrap_or_else(|| breaker_open_fault(min_wait.unwrap_or(breaker_policy.open_duration))))
    }
}

/// Counts a try that the circuit breaker refuses, and returns its fault.
#[cold]
fn refused_by_breaker(metrics: Option<&AgentMetrics>, retry_after: Duration) -> Fault {
    AttemptRecord::start(metrics).finish_with(AttemptResult::Rejected);
    breaker_open_fault(retry_after)
}

/// Whether another endpoint may get the call after this fault.
pub(super) fn may_fail_over(fault: &Fault, is_repeatable: bool) -> bool {
    match fault.progress() {
        Some(CallProgress::NotSent) => true,
        Some(CallProgress::PossiblySent) => is_repeatable,
        None => false,
    }
}

/// Opens the WebSocket of the agent's primary endpoint, if it has one.
pub(super) async fn open_primary_websocket(
    upstream: &UpstreamSet,
    request: UpstreamCall<'_>,
    deadline: Instant,
) -> Result<Option<WebSocketOutcome>, Fault> {
    let endpoint = &upstream.0.primary;
    // Calls probe an agent that has no WebSocket: this request must not use up the half-open probe.
    let EndpointTransport::Other(transport) = &endpoint.transport else { return Ok(None) };
    if !transport.has_websocket() {
        return Ok(None);
    }
    let attempt = CallAttempt { started: Instant::now(), deadline, streamed: false, timeouts: *transport.timeouts() };
    let metrics = request.metrics;
    let admitted = endpoint.breaker.admit_call(&upstream.0.breaker_policy);
    admitted.map_err(|retry_after| refused_by_breaker(metrics, retry_after))?;
    let record = AttemptRecord::start(metrics);
    request.count_attempt();
    let recorded = request.trace.filter(|trace| trace.is_sampled());
    let traced = recorded.and_then(|_| transport.traced_endpoint());
    let span = traced.map(|endpoint| AttemptSpan::start(request.trace, "GET", || endpoint));
    let scope = span.as_ref().and_then(|span| span.scope().cloned());
    let request = UpstreamCall { trace: scope.as_ref().or(request.trace), ..request };
    let opened = transport.open_websocket(request, deadline).await;
    match (span, &opened) {
        (Some(span), Some(Err(fault))) => span.fail(fault),
        (Some(span), Some(Ok(_))) => span.finish(),
        _ => {}
    }
    let Some(outcome) = opened else { return Ok(None) };
    upstream.record_outcome(endpoint, attempt, &outcome);
    record.finish_with(outcome.as_ref().map_or_else(AttemptResult::of_fault, |_| AttemptResult::Success));
    outcome.map(Some)
}
