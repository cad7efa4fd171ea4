//! Redaction of addresses: documents that callers read name the gateway's address instead of the agent's, unless the
//! configuration exposes the agents' own endpoints.

use super::EndpointExposure;
use crate::agent::{Agent, AgentEndpoint};
use serde_json::Value;
use std::borrow::Cow;

/// Members whose URLs identify rather than locate: only their origin is replaced, so that references between them stay
/// valid.
const IDENTITY_MEMBERS: &[&str] = &["$id", "$ref", "$schema", "$dynamicRef", "@id", "@context"];

/// Returns the gateway's URL that invokes `id`, or one of its operations.
pub(super) fn invoke_url(base: &str, id: &str, operation: &str) -> String {
    match operation {
        "" => format!("{base}/agents/{id}/invoke"),
        operation => format!("{base}/agents/{id}/invoke/{operation}"),
    }
}

/// Redacts an agent's own addresses.
#[derive(Debug)]
pub(super) struct AddressRedactor<'a> {
    agent: &'a Agent,
    base: &'a str,
    exposes_endpoint: bool,
    /// The agent's host, or the path of its socket.
    host: Cow<'a, str>,
    replacement: String,
}

impl<'a> AddressRedactor<'a> {
    /// Creates the redactor of `agent`; it does nothing if documents expose agents' own endpoints. A socket is of no
    /// use to a caller and is always redacted.
    pub(super) fn new(agent: &'a Agent, base: &'a str, endpoints: EndpointExposure) -> Self {
        let host = match &agent.endpoint {
            AgentEndpoint::Url(url) => Cow::Borrowed(url.uri().host().unwrap_or_default().trim_end_matches('.')),
            AgentEndpoint::Unix { socket, .. } => socket.to_string_lossy(),
            AgentEndpoint::AgentUri(uri) => Cow::Borrowed(uri.authority().host_name()),
            AgentEndpoint::Matrix(address) => Cow::Borrowed(address.user()),
            local @ AgentEndpoint::Local(_) => Cow::Owned(local.to_string()),
        };
        let exposes_endpoint = endpoints == EndpointExposure::Direct && agent.endpoint.http_url().is_some();
        Self { agent, base, exposes_endpoint, host, replacement: invoke_url(base, agent.id.as_str(), "") }
    }

    /// Returns whether documents expose the agent's own addresses.
    pub(super) fn exposes_endpoint(&self) -> bool {
        self.exposes_endpoint
    }

    /// Returns the address to call.
    pub(super) fn public_endpoint(&self) -> Cow<'_, str> {
        match self.agent.endpoint.http_url() {
            Some(url) if self.exposes_endpoint => url.to_string().into(),
            _ => Cow::Borrowed(&self.replacement),
        }
    }

    /// Returns the address of an operation: the gateway's, or the agent's endpoint if documents expose it.
    pub(super) fn operation_url(&self, name: &str) -> Cow<'_, str> {
        if self.exposes_endpoint {
            self.public_endpoint()
        } else {
            invoke_url(self.base, self.agent.id.as_str(), name).into()
        }
    }

    /// Redacts the agent's addresses in `text`.
    pub(super) fn redact_text<'t>(&self, text: &'t str) -> Cow<'t, str> {
        self.replace_addresses(text, false)
    }

    /// Redacts every string within `value`, and member names.
    pub(super) fn redact_value(&self, value: &mut Value) {
        match value {
            _ if self.exposes_endpoint => {}
            Value::String(text) => self.redact_string(text, false),
            Value::Array(items) => items.iter_mut().for_each(|item| self.redact_value(item)),
            Value::Object(members) => {
                if members.keys().any(|name| matches!(self.redact_text(name), Cow::Owned(_))) {
                    let original = std::mem::take(members).into_iter();
                    *members = original.map(|(name, member)| (self.redact_text(&name).into_owned(), member)).collect();
                }
                for (name, member) in members {
                    match member {
                        Value::String(text) => self.redact_string(text, IDENTITY_MEMBERS.contains(&name.as_str())),
                        other => self.redact_value(other),
                    }
                }
            }
            _ => {}
        }
    }

    fn redact_string(&self, text: &mut String, is_identity: bool) {
        if let Cow::Owned(redacted) = self.replace_addresses(text, is_identity) {
            *text = redacted;
        }
    }

    fn replace_addresses<'t>(&self, text: &'t str, is_identity: bool) -> Cow<'t, str> {
        if self.exposes_endpoint {
            return Cow::Borrowed(text);
        }
        // A host may be a common word, as in agent://planner: only URLs are redacted for it.
        let is_url = match &self.agent.endpoint {
            AgentEndpoint::Url(_) => true,
            AgentEndpoint::AgentUri(uri) => uri.authority().host_and_port().is_some(),
            AgentEndpoint::Unix { .. } | AgentEndpoint::Matrix(_) | AgentEndpoint::Local(_) => false,
        };
        if !is_url && text.contains(&*self.host) {
            // The text around a path may reveal it too, so the whole text is replaced.
            return Cow::Owned(self.replacement.clone());
        }
        let (mut redacted, mut rest) = (String::new(), text);
        while let Some((start, url)) = find_url(rest) {
            let (url_text, end) = (rest.get(start..start + url.url_end).unwrap_or_default(), start + url.url_end);
            redacted.push_str(rest.get(..start).unwrap_or_default());
            if !url.host(url_text).eq_ignore_ascii_case(&self.host) {
                redacted.push_str(url_text);
            } else if is_identity {
                redacted.push_str(self.base);
                redacted.push_str(url_text.get(url.origin_end..).unwrap_or_default());
            } else {
                redacted.push_str(&self.replacement);
            }
            rest = rest.get(end..).unwrap_or_default();
        }
        if redacted.is_empty() { Cow::Borrowed(text) } else { Cow::Owned(redacted + rest) }
    }
}

/// Offsets of the parts of a URL, from its start.
struct UrlParts {
    authority_start: usize,
    origin_end: usize,
    url_end: usize,
}

impl UrlParts {
    fn host<'t>(&self, url: &'t str) -> &'t str {
        let authority = url.get(self.authority_start..self.origin_end).unwrap_or_default();
        let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
        let end = match host.strip_prefix('[') {
            Some(rest) => rest.find(']').map_or(host.len(), |at| at + 2),
            None => host.find(':').unwrap_or(host.len()),
        };
        host.get(..end).unwrap_or(host).trim_end_matches('.')
    }
}

/// Finds the first URL in `text`, including one without a scheme (`//host/path`); returns its start and its parts.
fn find_url(text: &str) -> Option<(usize, UrlParts)> {
    let slashes = text.find("//")?;
    let prefix = text.get(..slashes)?.as_bytes();
    let is_scheme_char = |byte: &&u8| byte.is_ascii_alphanumeric() || b"+-.".contains(byte);
    let scheme = prefix.strip_suffix(b":").map_or(0, |name| name.iter().rev().take_while(is_scheme_char).count() + 1);
    let (start, after) = (slashes - scheme, text.get(slashes + 2..)?);
    let ends_url = |c: char| c.is_whitespace() || c.is_control() || "\"'`<>(){}|\\^,;".contains(c);
    let length = after.find(ends_url).unwrap_or(after.len());
    let authority = after.get(..length)?.find(['/', '?', '#']).unwrap_or(length);
    let authority_start = scheme + 2;
    Some((
        start,
        UrlParts { authority_start, origin_end: authority_start + authority, url_end: authority_start + length },
    ))
}
