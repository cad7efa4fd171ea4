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
pub(super) fn add_call_headers(headers: &mut HeaderMap, call: &Call, standing: Option<&RateLimitStatus>) {
    if let Some(id) = call.id_header() {
        headers.insert(REQUEST_ID, id);
    }
    if let Some(standing) = standing {
        let (state, policy) = standing.header_values();
        insert_if_valid(headers, RATELIMIT, state);
        insert_if_valid(headers, RATELIMIT_POLICY, policy);
    }
    if let Some(page) = &call.cors_origin {
        cors::set_cors_headers(headers, page.as_ref());
    }
}

/// Builds a response head.
pub(super) fn response_head(status: StatusCode, headers: HeaderMap) -> ResponseHeader {
    let (mut parts, ()) = http::Response::new(()).into_parts();
    parts.status = status;
    parts.headers = headers;
    parts.into()
}

/// Builds the head of an agent's response, with the headers of the call and of the agent.
pub(super) fn agent_response_head(
    call: &Call,
    (route, standing): (&Route, Option<&RateLimitStatus>),
    (status, mut headers): (StatusCode, HeaderMap),
    length: Option<usize>,
) -> ResponseHeader {
    add_call_headers(&mut headers, call, standing);
    if let Some(length) = length {
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    }
    for (name, value) in &route.response_headers {
        headers.append(name, value.clone());
    }
    response_head(status, headers)
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
