//! The headers that the gateway adds to responses.

use crate::{
    gateway::{call::Call, cors::set_cors_headers, header_names::REQUEST_ID, route::Route},
    limit::RateLimitStatus,
};
use http::{HeaderMap, HeaderName, HeaderValue, header};

const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");

/// The headers that depend on the agent that was called.
#[derive(Clone, Copy)]
pub(in crate::gateway) struct AgentHeaders<'a> {
    pub(in crate::gateway) route: &'a Route,
    pub(in crate::gateway) rate_limit_status: Option<&'a RateLimitStatus>,
}

impl AgentHeaders<'_> {
    /// Adds the headers of the call, the length, and the headers of the agent to an agent's response.
    pub(in crate::gateway) fn add_to(&self, headers: &mut HeaderMap, call: &Call, length: Option<usize>) {
        add_call_headers(headers, call, self.rate_limit_status);
        if let Some(length) = length {
            headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
        }
        for (name, value) in &self.route.response_headers {
            headers.append(name, value.clone());
        }
    }
}

/// Sets the call id, the rate limit headers and the CORS headers.
pub(in crate::gateway) fn add_call_headers(
    headers: &mut HeaderMap,
    call: &Call,
    rate_limit_status: Option<&RateLimitStatus>,
) {
    if let Some(id) = call.id_header() {
        headers.insert(REQUEST_ID, id);
    }
    if let Some(rate_limit_status) = rate_limit_status {
        let (status, policy) = rate_limit_status.header_values();
        insert_if_valid(headers, RATELIMIT, status);
        insert_if_valid(headers, RATELIMIT_POLICY, policy);
    }
    if let Some(origin) = &call.cors_origin {
        set_cors_headers(headers, origin.as_ref());
    }
}

fn insert_if_valid(headers: &mut HeaderMap, name: HeaderName, value: String) {
    if let Ok(value) = HeaderValue::try_from(value) {
        headers.insert(name, value);
    }
}

/// Appends a header; an invalid one is left out.
pub(in crate::gateway) fn append_if_valid(headers: &mut HeaderMap, name: impl TryInto<HeaderName>, value: &str) {
    if let (Ok(name), Ok(value)) = (name.try_into(), HeaderValue::from_str(value)) {
        headers.append(name, value);
    }
}
