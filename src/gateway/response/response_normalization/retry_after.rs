//! Parser of `Retry-After` in both of its forms (RFC 9110 §10.2.3).

use crate::values::parse_http_date;
use http::{HeaderMap, header};
use std::time::Duration;
use time::OffsetDateTime;

/// Maximum delay that is accepted from an agent.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(86_400);

/// Returns the delay that the agent asks for.
pub(super) fn parse_retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim();
    if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) {
        // A number that does not fit is beyond the maximum anyway.
        return Some(text.parse().map_or(MAX_RETRY_AFTER, Duration::from_secs).min(MAX_RETRY_AFTER));
    }
    let retry_at = parse_http_date(text)?;
    // `Date` is the agent's own clock, which may differ from the gateway's.
    let now = headers
        .get(header::DATE)
        .and_then(|now| parse_http_date(now.to_str().ok()?))
        .unwrap_or_else(OffsetDateTime::now_utc);
    Some(Duration::try_from(retry_at - now).unwrap_or_default().min(MAX_RETRY_AFTER))
}
