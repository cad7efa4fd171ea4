//! Opens a tunnel to a WebSocket at one of the endpoints of an upstream: that of the session, or the next one that is
//! preferred. A handshake that an endpoint may have seen is not repeated at another one.

use super::{
    attempt_record::AttemptRecord,
    attempt_span::AttemptSpan,
    circuit_breaker::{CallAttempt, InFlightGuard, breaker_open_fault},
    endpoint_transport::EndpointTransport,
    failover::{FailoverCall, may_fail_over},
    http::{self, HttpTarget, UpgradeOutcome, UpgradeRequest, WebSocketOffer},
    session_affinity,
    upstream_set::UpstreamEndpoint,
    upstream_transport::UpstreamCall,
    websocket::{TunnelOutcome, WebSocketTunnel},
};
use crate::{
    fault::{Fault, FaultCode},
    telemetry::AttemptResult,
};
use ::http::{HeaderMap, header, uri::PathAndQuery};
use std::{sync::Arc, time::Duration};
use tokio::time::Instant;

/// An endpoint over HTTP, and the path of the handshake there.
struct TunnelEndpoint<'a> {
    endpoint: &'a UpstreamEndpoint,
    target: &'a Arc<HttpTarget>,
    path: Option<PathAndQuery>,
    headers: &'a HeaderMap,
}

/// Opens a tunnel. Subprotocols and extensions that the headers offer reach the agent.
///
/// # Errors
/// No endpoint can be reached or completes the handshake in time; or their circuit breakers are open.
pub(super) async fn open_tunnel(call: FailoverCall<'_>, request: UpstreamCall<'_>) -> Result<TunnelOutcome, Fault> {
    let FailoverCall { upstream, session, .. } = call;
    let breaker_policy = &upstream.0.breaker_policy;
    let (tag, untagged_headers) = session_affinity::strip_session_tag(request.headers).unzip();
    let headers = untagged_headers.as_ref().unwrap_or(request.headers);
    let (mut last_fault, mut min_wait) = (None, None::<Duration>);
    for endpoint in upstream.order_endpoints(session, tag) {
        let EndpointTransport::Http(target) = &endpoint.transport else { continue };
        let path = match &request.path {
            None => None,
            Some(path) => match endpoint.path_of_call(&upstream.0.primary, path) {
                Some(path) => Some(path),
                None => continue,
            },
        };
        if let Err(wait) = endpoint.breaker.admit_call(breaker_policy) {
            AttemptRecord::start(request.metrics).finish_with(AttemptResult::Rejected);
            min_wait = Some(min_wait.map_or(wait, |min_wait| min_wait.min(wait)));
            continue;
        }
        if let Some(metrics) = request.metrics.filter(|_| last_fault.is_some()) {
            metrics.record_retry();
        }
        let fault = match open_at(call, TunnelEndpoint { endpoint, target, path, headers }, &request).await {
            Ok(outcome) => return Ok(outcome),
            Err(fault) => fault,
        };
        if !may_fail_over(&fault, false) {
            return Err(fault);
        }
        last_fault = Some(fault);
    }
    Err(last_fault.unwrap_or_else(|| match min_wait {
        Some(wait) => breaker_open_fault(wait),
        None => Fault::new(FaultCode::InvalidInput, "The agent's API has no WebSockets (its address is not HTTP)"),
    }))
}

async fn open_at(
    FailoverCall { upstream, deadline, .. }: FailoverCall<'_>,
    TunnelEndpoint { endpoint, target, path, headers }: TunnelEndpoint<'_>,
    request: &UpstreamCall<'_>,
) -> Result<TunnelOutcome, Fault> {
    let in_flight = InFlightGuard::new(&endpoint.breaker);
    let attempt = CallAttempt { started: Instant::now(), deadline, streamed: false, timeouts: target.timeouts };
    let record = AttemptRecord::start(request.metrics);
    request.count_attempt();
    let span = AttemptSpan::start(request.trace, "GET", || target.traced_endpoint());
    let upgrade = UpgradeRequest {
        path,
        headers,
        header_mutations: request.header_mutations,
        offer: WebSocketOffer {
            subprotocols: headers.get(header::SEC_WEBSOCKET_PROTOCOL),
            extensions: headers.get(header::SEC_WEBSOCKET_EXTENSIONS),
        },
        metrics: request.metrics,
        outlives_call: true,
        trace: span.scope(),
    };
    let outcome = http::upgrade_to_websocket(target, upgrade, deadline).await;
    match &outcome {
        Ok(_) => span.finish(),
        Err(fault) => span.fail(fault),
    }
    upstream.record_outcome(endpoint, attempt, &outcome);
    record.finish_with(outcome.as_ref().map_or_else(AttemptResult::of_fault, |_| AttemptResult::Success));
    Ok(match outcome? {
        UpgradeOutcome::Refused(mut reply) => {
            reply.body.hold_in_flight(in_flight);
            session_affinity::add_session_tag(&mut reply.headers, endpoint.affinity_hash());
            TunnelOutcome::Refused(Box::new(reply))
        }
        UpgradeOutcome::Upgraded(stream, mut headers) => {
            session_affinity::add_session_tag(&mut headers, endpoint.affinity_hash());
            TunnelOutcome::Open(Box::new(WebSocketTunnel { stream, headers, in_flight }))
        }
    })
}
