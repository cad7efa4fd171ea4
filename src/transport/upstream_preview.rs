//! A call that is not made: the endpoint that it would go to, the state of the circuit breaker, and the request that
//! would be sent. It starts no probe, and takes no turn.

use super::{
    circuit_breaker::{BreakerState, breaker_open_fault},
    endpoint_transport::EndpointTransport,
    http::preview_request,
    request_preview::RequestPreview,
    session_affinity,
    upstream_set::UpstreamSet,
    upstream_transport::UpstreamCall,
};
use crate::fault::{Fault, Result};
use std::time::Duration;
use tokio::time::Instant;

/// Where a call would go, and what would be sent.
#[derive(Debug)]
pub struct UpstreamPreview {
    /// The endpoint's URL.
    pub address: Box<str>,
    /// The state of its circuit breaker.
    pub breaker: BreakerState,
    /// The request, if the transport is HTTP.
    pub request: Option<RequestPreview>,
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
        if let Some(fault) = endpoint.transport.refusal_of_literal_address() {
            denied.get_or_insert((&endpoint.address, fault));
            continue;
        }
        let request = UpstreamCall { headers, ..request };
        let request = match &endpoint.transport {
            EndpointTransport::Http(target) => {
                let head = preview_request(target, request, deadline)?;
                Some(RequestPreview { head, body_length: None })
            }
            EndpointTransport::Other(transport) => transport.preview(request, deadline).transpose()?,
        };
        let (address, breaker) = (endpoint.address.clone(), endpoint.breaker.state());
        return Ok(UpstreamPreview { address, breaker, request, refusal: None });
    }
    if let Some((address, fault)) = denied {
        let (address, breaker) = (address.into(), BreakerState::Closed);
        return Ok(UpstreamPreview { address, breaker, request: None, refusal: Some(fault) });
    }
    let (address, wait) = refused.unwrap_or((&primary.address, breaker_policy.open_duration));
    Ok(UpstreamPreview {
        address: address.into(),
        breaker: BreakerState::Open,
        request: None,
        refusal: Some(breaker_open_fault(wait)),
    })
}
