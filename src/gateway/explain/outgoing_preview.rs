//! The request that the agent would receive, without secrets.

use crate::{
    explain::{ExplainedEndpoint, ExplainedRequest},
    fault::{Fault, Result},
    gateway::{
        admission::CallPreview,
        call_parameters::headers_from_query,
        delegation::DELEGATION_CHAIN,
        gateway_state::ConfigSnapshot,
        operation_path::upstream_path,
        upstream::{build_gateway_headers, set_json_headers},
    },
    telemetry::redact,
    transport::{self, HeaderMutations, RequestBody, RequestPreview, UpstreamCall},
    values::{redact_known_secrets, shown_url},
};
use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, header, request};
use std::{net::IpAddr, time::Instant};

/// What stands for a secret.
const REDACTED: &str = "[redacted]";

/// A call that would go to its agent.
pub(super) struct OutgoingCall<'a> {
    pub(super) call_id: &'a str,
    /// The head of the caller's request.
    pub(super) head: &'a request::Parts,
    pub(super) address: IpAddr,
    pub(super) is_secure: bool,
    pub(super) call: CallPreview<'a>,
    pub(super) deadline: Instant,
    /// Whether the gateway writes the input as JSON.
    pub(super) is_json: bool,
    pub(super) query: Option<&'a str>,
    /// The whole input, if the call has one.
    pub(super) input: Option<&'a [u8]>,
    pub(super) body_length: usize,
}

/// What would be sent, and where.
pub(super) struct OutgoingPreview {
    pub(super) endpoint: ExplainedEndpoint,
    pub(super) request: Option<ExplainedRequest>,
    /// The fault of a call that every circuit breaker refuses.
    pub(super) refusal: Option<Fault>,
}

/// Returns what would be sent, and where.
///
/// # Errors
/// The request cannot be built.
pub(super) fn preview_outgoing_call(outgoing: &OutgoingCall<'_>, config: &ConfigSnapshot) -> Result<OutgoingPreview> {
    let OutgoingCall { head, call, .. } = outgoing;
    let host = head.headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let forwarded = transport::build_forwarded(outgoing.address, outgoing.is_secure, host);
    let from_query = headers_from_query(head.uri.query(), &head.headers);
    let call_id = HeaderValue::from_str(outgoing.call_id).ok();
    let gateway_headers = build_gateway_headers(call_id, call.operation, call.version, call.delegation_chain);
    let set: Vec<(HeaderName, HeaderValue)> = gateway_headers.chain(from_query).collect();
    let mut headers = head.headers.clone();
    if outgoing.is_json {
        set_json_headers(&mut headers);
    }
    let request = UpstreamCall {
        id: outgoing.call_id,
        operation: &call.operation.name,
        method: Method::POST,
        path: upstream_path(call.version, call.operation.path.as_ref()),
        query: outgoing.query,
        headers: &headers,
        body: outgoing.input.map(Bytes::copy_from_slice).map_or(RequestBody::Empty, RequestBody::from),
        header_mutations: HeaderMutations {
            caller_headers: call.caller_headers,
            ..config.header_mutations(&forwarded, &set)
        },
        instruction: None,
        metrics: None,
        attempts: None,
        trace: None,
    };
    let (upstream, deadline) = (&call.route.upstream, outgoing.deadline.into());
    let preview = transport::preview_call(upstream, call.session_hash, deadline, request)?;
    let endpoint = ExplainedEndpoint {
        address: redact(&shown_url(&preview.address)).into_owned(),
        circuit_breaker: preview.breaker.as_str(),
    };
    let request = preview.request.map(|RequestPreview { head, body_length }| ExplainedRequest {
        method: head.method.to_string(),
        path: redact(&shown_url(&head.uri.to_string())).into_owned(),
        headers: head.headers.iter().map(|(name, value)| (name.to_string(), redacted_value(name, value))).collect(),
        body_length: body_length.unwrap_or(outgoing.body_length),
    });
    Ok(OutgoingPreview { endpoint, request, refusal: preview.refusal })
}

/// Returns the value of a header field as operators may read it.
fn redacted_value(name: &HeaderName, value: &HeaderValue) -> String {
    let is_secret = [header::AUTHORIZATION, header::PROXY_AUTHORIZATION, header::COOKIE, DELEGATION_CHAIN];
    let Ok(text) = value.to_str() else { return REDACTED.to_owned() };
    if value.is_sensitive() || is_secret.contains(name) {
        return REDACTED.to_owned();
    }
    let prefix = format!("{name}: ");
    match redact(&format!("{prefix}{}", redact_known_secrets(text))).strip_prefix(&prefix) {
        Some(redacted) => redacted.to_owned(),
        None => REDACTED.to_owned(),
    }
}
