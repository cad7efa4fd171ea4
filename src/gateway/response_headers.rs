//! The headers that the gateway adds to responses.

use super::{call::Call, cors, route::Route};
use crate::{idempotency, limit::RateLimitStatus};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use pingora_http::ResponseHeader;

/// The header that carries the call id.
pub(super) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");

/// Sets the call id, the rate limit headers and the CORS headers.
pub(super) fn add_call_headers(headers: &mut HeaderMap, call: &Call, rate_limit_status: Option<&RateLimitStatus>) {
    if let Some(id) = call.id_header() {
        headers.insert(REQUEST_ID, id);
    }
    if let Some(rate_limit_status) = rate_limit_status {
        let (status, policy) = rate_limit_status.header_values();
        insert_if_valid(headers, RATELIMIT, status);
        insert_if_valid(headers, RATELIMIT_POLICY, policy);
    }
    if let Some(origin) = &call.cors_origin {
        cors::set_cors_headers(headers, origin.as_ref());
    }
}

/// Builds a response head.
pub(super) fn response_head(status: StatusCode, headers: HeaderMap) -> ResponseHeader {
    let (mut parts, ()) = http::Response::new(()).into_parts();
    parts.status = status;
    parts.headers = headers;
    parts.into()
}

/// Adds the headers of the call, the length, and the headers of the agent to an agent's response.
pub(super) fn add_agent_response_headers(
    headers: &mut HeaderMap,
    call: &Call,
    route: &Route,
    rate_limit_status: Option<&RateLimitStatus>,
    length: Option<usize>,
) {
    add_call_headers(headers, call, rate_limit_status);
    if let Some(length) = length {
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    }
    for (name, value) in &route.response_headers {
        headers.append(name, value.clone());
    }
}

fn insert_if_valid(headers: &mut HeaderMap, name: HeaderName, value: String) {
    if let Ok(value) = HeaderValue::try_from(value) {
        headers.insert(name, value);
    }
}

/// Appends a header; an invalid one is left out.
pub(super) fn append_if_valid(headers: &mut HeaderMap, name: &str, value: &str) {
    if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_str(value)) {
        headers.append(name, value);
    }
}

/// Derives the idempotency key of a part from the key of the call, so that no two parts share a key.
pub(super) fn number_idempotency_key(headers: &mut HeaderMap, part: usize) {
    let Some(key) = headers.remove(idempotency::IDEMPOTENCY_KEY) else { return };
    if let Ok(key) = HeaderValue::from_bytes(&[key.as_bytes(), format!(".{part}").as_bytes()].concat()) {
        headers.insert(idempotency::IDEMPOTENCY_KEY, key);
    }
}
