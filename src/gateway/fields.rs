//! The headers that the gateway adds to responses.

use super::{call::Call, cors, route::Route};
use crate::{limit::Standing, once};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use pingora_http::ResponseHeader;

/// The header that carries the call id.
pub(super) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

const RATE: HeaderName = HeaderName::from_static("ratelimit");
const RATE_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");

/// Sets the call id, the rate limit headers and the CORS headers.
pub(super) fn tell(headers: &mut HeaderMap, call: &Call, standing: Option<&Standing>) {
    if let Some(id) = call.id_field() {
        headers.insert(REQUEST_ID, id);
    }
    if let Some(standing) = standing {
        let (state, policy) = standing.fields();
        insert(headers, RATE, state);
        insert(headers, RATE_POLICY, policy);
    }
    if let Some(page) = &call.page {
        cors::share(headers, page.as_ref());
    }
}

/// Builds a response head.
pub(super) fn head_of(status: StatusCode, headers: HeaderMap) -> ResponseHeader {
    let (mut parts, ()) = http::Response::new(()).into_parts();
    parts.status = status;
    parts.headers = headers;
    parts.into()
}

/// Builds the head of an agent's response, with the headers of the call and of the agent.
pub(super) fn with_fields(
    call: &Call,
    (route, standing): (&Route, Option<&Standing>),
    (status, mut headers): (StatusCode, HeaderMap),
    length: Option<usize>,
) -> ResponseHeader {
    tell(&mut headers, call, standing);
    if let Some(length) = length {
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    }
    for (name, value) in &route.fields {
        headers.append(name, value.clone());
    }
    head_of(status, headers)
}

fn insert(headers: &mut HeaderMap, name: HeaderName, value: String) {
    if let Ok(value) = HeaderValue::try_from(value) {
        headers.insert(name, value);
    }
}

/// Appends a header; an invalid one is left out.
pub(super) fn append(headers: &mut HeaderMap, name: &str, value: &str) {
    if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_str(value)) {
        headers.append(name, value);
    }
}

/// Derives the idempotency key of a part from the key of the call, so that no two parts share a key.
pub(super) fn number_key(headers: &mut HeaderMap, part: usize) {
    let Some(key) = headers.remove(once::FIELD) else { return };
    if let Ok(key) = HeaderValue::from_bytes(&[key.as_bytes(), format!(".{part}").as_bytes()].concat()) {
        headers.insert(once::FIELD, key);
    }
}
