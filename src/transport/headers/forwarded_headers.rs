//! Which of a caller's header fields reach an agent: an allow list. A block list of fields that claim an identity could
//! never be complete, because each company's proxies and frameworks have their own (`X-Internal-Token`,
//! `Remote-Groups`, `Cf-Access-Jwt-Assertion`).

use super::header_filter::is_never_forwarded;
use http::HeaderName;

/// The fields that the operator allows besides the standard ones.
#[derive(Debug, Default)]
pub(in crate::transport) struct ForwardedHeaders {
    names: Vec<HeaderName>,
    prefixes: Vec<String>,
}

impl ForwardedHeaders {
    /// Compiles names, and prefixes that end in `*`.
    ///
    /// # Errors
    /// Every entry that is neither, or that names a field that never reaches agents.
    pub(in crate::transport) fn compile(entries: &[String]) -> Result<Self, Vec<String>> {
        let (mut headers, mut problems) = (Self::default(), Vec::new());
        for (index, entry) in entries.iter().enumerate() {
            let mut refuse = |why: &str| problems.push(format!("forwarded_headers[{index}]: '{entry}' {why}"));
            let prefix = entry.strip_suffix('*');
            match prefix.unwrap_or(entry).parse::<HeaderName>() {
                // `*` is a character of header names, but here a mistake.
                Ok(name) if name.as_str().contains('*') => refuse("has `*` inside (a prefix ends in it)"),
                Err(_) => refuse("is not a header name (write X-Team, or X-Team-* for a prefix)"),
                Ok(name) if name.as_str().contains('_') => {
                    refuse("has an underscore (many web frameworks take it for a hyphen)");
                }
                Ok(name) if prefix.is_none() && is_never_forwarded(name.as_str()) => {
                    refuse("carries a credential, or belongs to the gateway (it never reaches agents)");
                }
                Ok(name) if prefix.is_some() => headers.prefixes.push(name.as_str().to_owned()),
                Ok(name) => headers.names.push(name),
            }
        }
        if problems.is_empty() { Ok(headers) } else { Err(problems) }
    }

    /// Returns why a field with this name can reach no agent.
    pub(in crate::transport) fn problem_of(name: &str) -> Option<String> {
        let problems = Self::compile(&[name.to_owned()]).err()?;
        problems.into_iter().next().map(|problem| problem.trim_start_matches("forwarded_headers[0]: ").to_owned())
    }

    /// Whether a caller's field reaches the agent. Names with underscores never do: they are another spelling of a name
    /// with hyphens for many web frameworks.
    pub(super) fn contains(&self, name: &HeaderName) -> bool {
        is_standard(name.as_str()) || self.is_listed(name)
    }

    fn is_listed(&self, name: &HeaderName) -> bool {
        let text = name.as_str();
        let has_prefix = || self.prefixes.iter().any(|prefix| text.starts_with(prefix.as_str()));
        (self.names.contains(name) || has_prefix()) && !text.contains('_') && !is_never_forwarded(text)
    }
}

/// Whether the field is an end-to-end field of HTTP that claims no identity, a field of tracing, or one of the protocols
/// of agents. By length first, because a call asks for each of its fields.
pub(super) fn is_standard(name: &str) -> bool {
    let is_named = match name.len() {
        2 => name == "b3",
        3 => name == "via",
        4 => name == "date",
        6 => matches!(name, "accept" | "prefer" | "pragma" | "digest"),
        7 => name == "baggage",
        8 => matches!(name, "priority" | "mcp-name"),
        9 => matches!(name, "x-task-id" | "signature"),
        10 => matches!(name, "user-agent" | "tracestate" | "request-id" | "x-trace-id" | "mcp-method"),
        11 => matches!(name, "traceparent" | "x-operation" | "a2a-version" | "want-digest" | "repr-digest"),
        12 => matches!(name, "content-type" | "x-request-id" | "x-session-id" | "sentry-trace"),
        13 => matches!(name, "cache-control" | "last-event-id" | "uber-trace-id"),
        14 => {
            matches!(name, "accept-charset" | "content-digest" | "mcp-session-id" | "a2a-extensions" | "correlation-id")
        }
        15 => matches!(
            name,
            "accept-language" | "idempotency-key" | "x-agent-version" | "signature-input" | "x-amzn-trace-id"
        ),
        16 => matches!(
            name,
            "content-encoding" | "content-language" | "x-correlation-id" | "want-repr-digest" | "x-a2a-extensions"
        ),
        18 => name == "x-delegation-chain",
        19 => matches!(name, "content-disposition" | "want-content-digest"),
        20 => name == "mcp-protocol-version",
        21 => name == "x-cloud-trace-context",
        _ => false,
    };
    let has_prefix = || ["x-b3-", "x-datadog-", "mcp-param-"].iter().any(|prefix| name.starts_with(prefix));
    is_named || (has_prefix() && !name.contains('_'))
}
