//! The header fields of every response of an agent that is deprecated.

use crate::agent::{Agent, AgentId, AgentStatus};
use http::{HeaderName, HeaderValue};

/// Returns RFC 9745 `Deprecation`, RFC 8594 `Sunset` and a `Link` to the successor.
pub(super) fn deprecation_headers(agent: &Agent) -> Vec<(HeaderName, HeaderValue)> {
    let AgentStatus::Deprecated(deprecation) = &agent.status else { return Vec::new() };
    let mut fields = vec![("deprecation", format!("@{}", deprecation.deprecated_at.unwrap_or_default()))];
    if let Some(sunset) = deprecation.sunset.and_then(crate::values::format_http_date) {
        fields.push(("sunset", sunset));
    }
    if let Some(successor) = &deprecation.successor {
        fields.push(("link", successor_link(successor)));
    }
    let field = |(name, value): (&'static str, String)| {
        Some((HeaderName::from_static(name), HeaderValue::try_from(value).ok()?))
    };
    fields.into_iter().filter_map(field).collect()
}

fn successor_link(successor: &AgentId) -> String {
    format!("</agents/{successor}/invoke>; rel=\"successor-version\"")
}
