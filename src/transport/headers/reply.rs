//! What of an agent's header fields the caller may read.

use super::{Nominated, names::ends_here};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use std::time::Duration;

/// The agent's end-to-end fields. Content-Length is left out: the writer of the answer knows the length.
/// `Location` stays where something was made (201) or begun (202), and only as a relative reference,
/// which names no machine; `Retry-After` stays with 202, where it tells when to poll.
pub fn incoming_headers(agent: &HeaderMap, status: StatusCode) -> HeaderMap {
    let nominated = Nominated::of(agent);
    // Room for what the gateway itself says to its callers.
    let mut headers = HeaderMap::with_capacity(agent.len() + 5);
    for (name, value) in agent {
        if !ends_here(name.as_str()) && !nominated.has(name.as_str()) {
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

/// RFC 3986 §4.2: neither a scheme nor an authority.
fn is_relative(location: &HeaderValue) -> bool {
    let Ok(text) = location.to_str() else {
        return false;
    };
    let first = text.split(['/', '?', '#']).next().unwrap_or_default();
    !text.is_empty() && !text.starts_with("//") && !first.contains(':') && !text.contains('\\')
}

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");

/// How long the agent says that it keeps the connection (`Keep-Alive: timeout=5`), less a second in
/// which a request may be on its way.
pub(in crate::transport) fn keeps_alive_for(agent: &HeaderMap) -> Option<Duration> {
    let text = agent.get(KEEP_ALIVE)?.to_str().ok()?;
    let secs = text.split(',').find_map(|part| part.trim().strip_prefix("timeout="))?;
    Some(Duration::from_secs(secs.trim().parse::<u32>().ok()?.saturating_sub(1).into()))
}
