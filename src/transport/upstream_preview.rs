//! A call that is not made: the endpoint that it would go to, the state of the circuit breaker, and the request that
//! would be sent. It starts no probe, and takes no turn.

use super::{
    circuit_breaker::{BreakerState, breaker_open_fault},
    endpoint_transport::EndpointTransport,
    http::preview_request,
    session_affinity,
    upstream_set::UpstreamSet,
    upstream_transport::UpstreamCall,
};
use crate::fault::{Fault, Result};
use http::request;
use std::time::Duration;
use tokio::time::Instant;

/// Where a call would go, and what would be sent.
#[derive(Debug)]
pub struct UpstreamPreview {
    /// The endpoint's URL.
    pub address: Box<str>,
    /// The state of its circuit breaker.
    pub breaker: BreakerState,
    /// The head of the request, if the transport is HTTP. It contains the gateway's credential, marked as sensitive.
    pub head: Option<request::Parts>,
    /// The fault of a call that every circuit breaker refuses, or of an address that may not be reached.
    pub refusal: Option<Fault>,
}

/// Returns where a call would go now, and what would be sent.
///
/// # Errors
/// The request cannot be built.
pub fn preview_call(
    upstream: &UpstreamSet,
    session: Option<u64>,
    deadline: Instant,
    mut request: UpstreamCall<'_>,
) -> Result<UpstreamPreview> {
    let breaker_policy = &upstream.0.breaker_policy;
    let has_several = !upstream.0.additional.is_empty();
    let (tag, untagged_headers) = session_affinity::strip_session_tag(request.headers).filter(|_| has_several).unzip();
    let headers = untagged_headers.as_ref().unwrap_or(request.headers);
    let order = upstream.inspect_order(session, tag);
    let primary = &upstream.0.primary;
    let mut refused: Option<(&str, Duration)> = None;
    let mut denied: Option<(&str, Fault)> = None;
    for endpoint in order {
        let path = match &request.path {
            None => None,
            Some(path) => match endpoint.path_of_call(primary, path) {
                Some(path) => Some(path),
                None => continue,
            },
        };
        if let Err(wait) = endpoint.breaker.inspect(breaker_policy) {
            let (first, min_wait) = refused.unwrap_or((&endpoint.address, wait));
            refused = Some((first, min_wait.min(wait)));
            continue;
        }
        request.path = path;
        let head = match &endpoint.transport {
            EndpointTransport::Http(target) => {
                if let Some(fault) = target.refusal_of_literal_address() {
                    denied.get_or_insert((&endpoint.address, fault));
                    continue;
                }
                Some(preview_request(target, UpstreamCall { headers, ..request }, deadline)?)
            }
            EndpointTransport::Other(_) => None,
        };
        let (address, breaker) = (endpoint.address.clone(), endpoint.breaker.state());
        return Ok(UpstreamPreview { address, breaker, head, refusal: None });
    }
    if let Some((address, fault)) = denied {
        let (address, breaker) = (address.into(), BreakerState::Closed);
        return Ok(UpstreamPreview { address, breaker, head: None, refusal: Some(fault) });
    }
    let (address, wait) = refused.unwrap_or((&primary.address, breaker_policy.open_duration));
    Ok(UpstreamPreview {
        address: address.into(),
        breaker: BreakerState::Open,
        head: None,
        refusal: Some(breaker_open_fault(wait)),
    })
}
