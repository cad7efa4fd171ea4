//! Redaction of addresses: documents that callers read name the gateway's address instead of the agent's, unless the
//! configuration exposes the agents' own endpoints.

use super::Endpoints;
use crate::agent::{Agent, Endpoint};
use serde_json::Value;
use std::borrow::Cow;

/// Members whose URLs identify rather than locate: only their origin is replaced, so that references between them stay
/// valid.
const IDENTITIES: &[&str] = &["$id", "$ref", "$schema", "$dynamicRef", "@id", "@context"];

/// Returns the gateway's URL that invokes `id`, or one of its operations.
pub(super) fn invoke(base: &str, id: &str, operation: &str) -> String {
    match operation {
        "" => format!("{base}/agents/{id}/invoke"),
        operation => format!("{base}/agents/{id}/invoke/{operation}"),
    }
}

/// Redacts an agent's own addresses.
#[derive(Debug)]
pub(super) struct Veil<'a> {
    agent: &'a Agent,
    base: &'a str,
    lifted: bool,
    /// The agent's host, or the path of its socket.
    host: Cow<'a, str>,
    instead: String,
}

impl<'a> Veil<'a> {
    /// Creates the redactor of `agent`; it does nothing if documents expose agents' own endpoints. A socket is of no
    /// use to a caller and is always redacted.
    pub(super) fn over(agent: &'a Agent, base: &'a str, endpoints: Endpoints) -> Self {
        let host = match &agent.endpoint {
            Endpoint::Http(uri) | Endpoint::WebSocket(uri) | Endpoint::Mqtt(uri) => {
                Cow::Borrowed(uri.host().unwrap_or_default().trim_end_matches('.'))
            }
            Endpoint::Unix { socket, .. } => socket.to_string_lossy(),
            Endpoint::Name(uri) => Cow::Borrowed(uri.authority().name()),
            Endpoint::Matrix(address) => Cow::Borrowed(address.user()),
            local @ Endpoint::Local(_) => Cow::Owned(local.to_string()),
        };
        let lifted = endpoints == Endpoints::Direct && matches!(agent.endpoint, Endpoint::Http(_));
        Self { agent, base, lifted, host, instead: invoke(base, agent.id.as_str(), "") }
    }

    /// Whether documents expose the agent's own addresses.
    pub(super) fn is_lifted(&self) -> bool {
        self.lifted
    }

    /// Returns the address to call.
    pub(super) fn endpoint(&self) -> Cow<'_, str> {
        match &self.agent.endpoint {
            Endpoint::Http(uri) if self.lifted => uri.to_string().into(),
            _ => Cow::Borrowed(&self.instead),
        }
    }

    /// Returns the address of an operation: the gateway's, or the agent's endpoint if documents expose it.
    pub(super) fn operation(&self, name: &str) -> Cow<'_, str> {
        match self.lifted {
            true => self.endpoint(),
            false => invoke(self.base, self.agent.id.as_str(), name).into(),
        }
    }

    /// Redacts the agent's addresses in `text`.
    pub(super) fn text<'t>(&self, text: &'t str) -> Cow<'t, str> {
        self.replace(text, false)
    }

    /// Redacts every string within `value`, and member names.
    pub(super) fn value(&self, value: &mut Value) {
        match value {
            _ if self.lifted => {}
            Value::String(text) => self.string(text, false),
            Value::Array(items) => items.iter_mut().for_each(|item| self.value(item)),
            Value::Object(members) => {
                if members.keys().any(|name| matches!(self.text(name), Cow::Owned(_))) {
                    let named = std::mem::take(members).into_iter();
                    *members = named.map(|(name, member)| (self.text(&name).into_owned(), member)).collect();
                }
                for (name, member) in members {
                    match member {
                        Value::String(text) => self.string(text, IDENTITIES.contains(&name.as_str())),
                        other => self.value(other),
                    }
                }
            }
            _ => {}
        }
    }

    fn string(&self, text: &mut String, identity: bool) {
        if let Cow::Owned(hidden) = self.replace(text, identity) {
            *text = hidden;
        }
    }

    fn replace<'t>(&self, text: &'t str, identity: bool) -> Cow<'t, str> {
        if self.lifted {
            return Cow::Borrowed(text);
        }
        // A host may be a common word, as in agent://planner: only URLs are redacted for it.
        let is_url = match &self.agent.endpoint {
            Endpoint::Http(_) | Endpoint::WebSocket(_) | Endpoint::Mqtt(_) => true,
            Endpoint::Name(uri) => uri.authority().host().is_some(),
            _ => false,
        };
        if !is_url && text.contains(&*self.host) {
            // The text around a path may reveal it too, so the whole text is replaced.
            return Cow::Owned(self.instead.clone());
        }
        let (mut hidden, mut rest) = (String::new(), text);
        while let Some((before, url)) = next_url(rest) {
            let (kept, after) = (rest.get(before..before + url.whole).unwrap_or_default(), before + url.whole);
            hidden.push_str(rest.get(..before).unwrap_or_default());
            match url.host(kept).eq_ignore_ascii_case(&self.host) {
                true if identity => {
                    hidden.push_str(self.base);
                    hidden.push_str(kept.get(url.origin..).unwrap_or_default());
                }
                true => hidden.push_str(&self.instead),
                false => hidden.push_str(kept),
            }
            rest = rest.get(after..).unwrap_or_default();
        }
        match hidden.is_empty() {
            true => Cow::Borrowed(text),
            false => Cow::Owned(hidden + rest),
        }
    }
}

/// Offsets of the parts of a URL, from its start.
struct Url {
    authority: usize,
    origin: usize,
    whole: usize,
}

impl Url {
    fn host<'t>(&self, url: &'t str) -> &'t str {
        let authority = url.get(self.authority..self.origin).unwrap_or_default();
        let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
        let end = match host.strip_prefix('[') {
            Some(rest) => rest.find(']').map_or(host.len(), |at| at + 2),
            None => host.find(':').unwrap_or(host.len()),
        };
        host.get(..end).unwrap_or(host).trim_end_matches('.')
    }
}

/// Finds the first URL in `text`, including one without a scheme (`//host/path`); returns its start and its parts.
fn next_url(text: &str) -> Option<(usize, Url)> {
    let slashes = text.find("//")?;
    let before = text.get(..slashes)?.as_bytes();
    let of_scheme = |byte: &&u8| byte.is_ascii_alphanumeric() || b"+-.".contains(byte);
    let scheme = before.strip_suffix(b":").map_or(0, |name| name.iter().rev().take_while(of_scheme).count() + 1);
    let (begin, after) = (slashes - scheme, text.get(slashes + 2..)?);
    let ends = |c: char| c.is_whitespace() || c.is_control() || "\"'`<>(){}|\\^,;".contains(c);
    let length = after.find(ends).unwrap_or(after.len());
    let authority = after.get(..length)?.find(['/', '?', '#']).unwrap_or(length);
    let first = scheme + 2;
    Some((begin, Url { authority: first, origin: first + authority, whole: first + length }))
}
