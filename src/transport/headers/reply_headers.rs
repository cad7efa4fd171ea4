//! The header fields of an agent's reply that the caller receives.

use super::{ConnectionOptions, header_filter::is_stripped_from_reply};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use std::time::Duration;

/// Selects the agent's end-to-end fields. Content-Length is left out: the response writer knows the length.
/// `Location` is kept for a resource that was created (201) or is pending (202), and only as a relative reference,
/// which names no host; `Retry-After` is kept with 202, where it says when to poll.
pub fn filter_reply_headers(agent: &HeaderMap, status: StatusCode) -> HeaderMap {
    let connection_options = ConnectionOptions::from_headers(agent);
    // Extra capacity for the fields that the gateway adds for its callers.
    let mut headers = HeaderMap::with_capacity(agent.len() + 5);
    for (name, value) in agent {
        if !is_stripped_from_reply(name.as_str()) && !connection_options.contains(name.as_str()) {
            headers.append(name, value.clone());
        }
    }
    if matches!(status, StatusCode::CREATED | StatusCode::ACCEPTED)
        && let Some(location) = agent.get(header::LOCATION).filter(|location| is_relative(location))
    {
        headers.insert(header::LOCATION, location.clone());
    }
    if status == StatusCode::ACCEPTED
        && let Some(wait) = agent.get(header::RETRY_AFTER)
    {
        headers.insert(header::RETRY_AFTER, wait.clone());
    }
    headers
}

/// Whether the location has neither a scheme nor an authority (RFC 3986 §4.2).
fn is_relative(location: &HeaderValue) -> bool {
    let Ok(text) = location.to_str() else {
        return false;
    };
    let first = text.split(['/', '?', '#']).next().unwrap_or_default();
    !text.is_empty() && !text.starts_with("//") && !first.contains(':') && !text.contains('\\')
}

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");

/// Returns how long the agent keeps the connection (`Keep-Alive: timeout=5`), less one second in which a request may be
/// in transit.
pub(in crate::transport) fn parse_keep_alive(agent: &HeaderMap) -> Option<Duration> {
    let text = agent.get(KEEP_ALIVE)?.to_str().ok()?;
    let secs = text.split(',').find_map(|part| part.trim().strip_prefix("timeout="))?;
    Some(Duration::from_secs(secs.trim().parse::<u32>().ok()?.saturating_sub(1).into()))
}
