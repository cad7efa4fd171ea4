//! Failover: makes one call at one of the endpoints of an upstream, skipping endpoints whose circuit breaker is open.
//! The call moves to the next endpoint only where the agent cannot execute it twice (R45).

use super::{
    UpstreamCall, UpstreamClient,
    circuit_breaker::{CallAttempt, InFlightGuard, breaker_open_fault},
    session_affinity,
    upstream_body::RequestBody,
    upstream_reply::UpstreamReply,
    upstream_set::{EndpointTransport, UpstreamEndpoint, UpstreamSet},
    websocket::WebSocketOutcome,
};
use crate::fault::{CallProgress, Fault};
use futures_util::{
    FutureExt,
    future::{Either, ready},
};
use std::time::Duration;
use tokio::time::Instant;

impl UpstreamClient {
    /// Makes the call at one of the endpoints. Neither this function nor the ones it calls are `async fn`: each would
    /// hold the request one more time than necessary.
    pub(super) fn call_with_failover<'a>(
        &'a self,
        upstream: &'a UpstreamSet,
        request: UpstreamCall<'a>,
        session: Option<u64>,
        deadline: Instant,
    ) -> impl Future<Output = Result<UpstreamReply, Fault>> + Send + 'a {
        if !upstream.0.additional.is_empty() {
            return Either::Left(self.try_endpoints(upstream, request, session, deadline).boxed());
        }
        let endpoint = &upstream.0.primary;
        Either::Right(match endpoint.breaker.admit_call(&upstream.0.breaker_policy) {
            Ok(()) => Either::Left(self.call_endpoint(upstream, endpoint, request, deadline)),
            Err(retry_after) => Either::Right(ready(Err(breaker_open_fault(retry_after)))),
        })
    }

    fn call_endpoint<'a>(
        &'a self,
        upstream: &'a UpstreamSet,
        endpoint: &'a UpstreamEndpoint,
        request: UpstreamCall<'a>,
        deadline: Instant,
    ) -> impl Future<Output = Result<UpstreamReply, Fault>> + Send + 'a {
        let streamed = matches!(request.body, RequestBody::Stream(_));
        let attempt =
            CallAttempt { started: Instant::now(), deadline, streamed, timeouts: *endpoint.transport.timeouts() };
        self.call_transport(&endpoint.transport, request, deadline)
            .inspect(move |outcome| upstream.record_outcome(endpoint, attempt, outcome))
    }

    /// Makes the call over this transport, without consulting the circuit breaker.
    pub(super) fn call_transport<'a>(
        &'a self,
        transport: &'a EndpointTransport,
        request: UpstreamCall<'a>,
        deadline: Instant,
    ) -> impl Future<Output = Result<UpstreamReply, Fault>> + Send + 'a {
        match transport {
            EndpointTransport::Http(target) => Either::Left(self.http.call(target, request, deadline)),
            EndpointTransport::Other(transport) => Either::Right(transport.call(request, deadline)),
        }
    }

    /// Opens the WebSocket of the agent's primary endpoint, if it has one.
    pub(super) async fn open_endpoint_websocket(
        &self,
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
        let attempt =
            CallAttempt { started: Instant::now(), deadline, streamed: false, timeouts: *transport.timeouts() };
        endpoint.breaker.admit_call(&upstream.0.breaker_policy).map_err(breaker_open_fault)?;
        let Some(outcome) = transport.open_websocket(request, deadline).await else { return Ok(None) };
        upstream.record_outcome(endpoint, attempt, &outcome);
        outcome.map(Some)
    }

    /// Tries one endpoint after the other. A streamed body is sent to the first endpoint only.
    async fn try_endpoints(
        &self,
        upstream: &UpstreamSet,
        request: UpstreamCall<'_>,
        session: Option<u64>,
        deadline: Instant,
    ) -> Result<UpstreamReply, Fault> {
        let (tag, untagged_headers) = session_affinity::strip_session_tag(request.headers).unzip();
        let UpstreamCall { id, operation, method, path, headers, body, header_mutations, instruction } = request;
        let headers = untagged_headers.as_ref().unwrap_or(headers);
        let repeatable = method.is_idempotent() || headers.contains_key("idempotency-key");
        let (mut body, mut last_fault, mut min_wait) = (Some(body), None, None::<Duration>);
        for endpoint in upstream.order_endpoints(session, tag) {
            if let Err(wait) = endpoint.breaker.admit_call(&upstream.0.breaker_policy) {
                min_wait = Some(min_wait.map_or(wait, |min_wait| min_wait.min(wait)));
                continue;
            }
            let Some(attempt_body) = body.take() else { break };
            body = match &attempt_body {
                RequestBody::Empty => Some(RequestBody::Empty),
                RequestBody::Whole(bytes) => Some(RequestBody::Whole(bytes.clone())),
                RequestBody::Stream(_) => None,
            };
            let in_flight = InFlightGuard::new(&endpoint.breaker);
            let (method, path) = (method.clone(), path.clone());
            let request = UpstreamCall {
                id,
                operation,
                method,
                path,
                headers,
                body: attempt_body,
                header_mutations,
                instruction,
            };
            let fault = match self.call_endpoint(upstream, endpoint, request, deadline).await {
                Ok(mut reply) => {
                    reply.body.hold_in_flight(in_flight);
                    session_affinity::add_session_tag(&mut reply.headers, endpoint.affinity_hash());
                    return Ok(reply);
                }
                Err(fault) => fault,
            };
            let may_fail_over = match fault.progress() {
                Some(CallProgress::NotSent) => true,
                Some(CallProgress::PossiblySent) => repeatable,
                None => false,
            };
            if !may_fail_over {
                return Err(fault);
            }
            // A later endpoint that is unreachable does not undo what an earlier one may have executed.
            let possibly_executed =
                last_fault.filter(|fault: &Fault| fault.progress() == Some(CallProgress::PossiblySent));
            last_fault = Some(possibly_executed.unwrap_or(fault));
        }
        Err(last_fault
            .unwrap_or_else(|| breaker_open_fault(min_wait.unwrap_or(upstream.0.breaker_policy.open_duration))))
    }
}
