//! The fields of the gateway's own in an answer.

use super::{call::Call, cors, route::Route};
use crate::{limit::Standing, once};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use pingora_http::ResponseHeader;

/// The caller's name for the call.
pub(super) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

const RATE: HeaderName = HeaderName::from_static("ratelimit");
const RATE_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");

/// The call's id, and how its caller stands with the limits.
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

/// A head of an answer.
pub(super) fn head_of(status: StatusCode, headers: HeaderMap) -> ResponseHeader {
    let (mut parts, ()) = http::Response::new(()).into_parts();
    parts.status = status;
    parts.headers = headers;
    parts.into()
}

/// The head of an answer of an agent's: what is told of the call, and of the agent.
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

/// Adds a field, unless it cannot be written.
pub(super) fn append(headers: &mut HeaderMap, name: &str, value: &str) {
    if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_str(value)) {
        headers.append(name, value);
    }
}

/// Gives a part of a call an idempotency key of its own, where the call has one: no two parts are the same call.
pub(super) fn number_key(headers: &mut HeaderMap, part: usize) {
    let Some(key) = headers.remove(once::FIELD) else { return };
    if let Ok(key) = HeaderValue::from_bytes(&[key.as_bytes(), format!(".{part}").as_bytes()].concat()) {
        headers.insert(once::FIELD, key);
    }
}
