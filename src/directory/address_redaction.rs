//! Redaction of addresses: documents that callers read name the gateway's address instead of every other one, unless the
//! configuration exposes the agents' own endpoints. All documents of an agent use this one rule:
//!
//! - Text, and members that hold addresses: every address that is not the gateway's is replaced.
//! - Links for people (the provider's page, an icon, instructions), and data in schemas and examples: an address on the
//!   internet stays, unless it is at a server of the agent.
//! - Names of a schema's properties and definitions are data: they say nothing about the texts of their schemas.
//! - Identifiers of schemas keep their path below the gateway's address, so that references between them stay valid;
//!   those of public vocabularies stay.
//!
//! The gateway's addresses make a document longer only up to a bound; beyond it, addresses become `[redacted]`.

use super::{
    EndpointExposure,
    address_detection::{Address, find_address, is_below},
};
use crate::agent::{Agent, AgentEndpoint};
use serde_json::Value;
use std::{
    borrow::Cow,
    cell::{Cell, OnceCell},
    collections::HashSet,
};

/// What stands in place of an address once the gateway's addresses have made a document as long as they may.
const REDACTED: &str = "[redacted]";
/// The bytes by which the gateway's addresses may lengthen any document; a longer one grows by its own length.
const MIN_MAX_GROWTH: usize = 64 << 10;
/// The same for an entry of a list.
const MAX_GROWTH_OF_LIST_ENTRY: usize = 4 << 10;

/// Members whose URLs identify rather than locate.
const IDENTITY_MEMBERS: &[&str] = &["$id", "$ref", "$schema", "$dynamicRef", "@id", "@context"];
/// Hosts of public vocabularies, whose identifiers readers know.
const VOCABULARY_HOSTS: &[&str] = &["json-schema.org", "schema.org", "w3.org", "w3id.org"];
/// Members with links for people, and with data that schemas and callers compare.
const LINK_MEMBERS: &[&str] = &[
    "provider",
    "owner",
    "iconUrl",
    "icon",
    "instructions",
    "documentation",
    "license",
    "termsOfService",
    "contact",
    "homepage",
    "enum",
    "const",
    "default",
    "examples",
    "example",
    "pattern",
    "extensions",
];
/// Members that hold an address in any form.
const ADDRESS_MEMBERS: &[&str] =
    &["url", "uri", "href", "endpoint", "endpoints", "baseUrl", "base_url", "host", "hostname", "server", "servers"];
/// Members of a schema that map names of data to schemas, or to lists of such names.
const SCHEMA_MAP_MEMBERS: &[&str] = &[
    "properties",
    "patternProperties",
    "dependentSchemas",
    "dependentRequired",
    "dependencies",
    "$defs",
    "definitions",
];

/// What a text of a document is, which decides the addresses that stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TextKind {
    Text,
    Link,
    Address,
    Identity,
    /// A map from names of data to schemas.
    SchemaMap,
}

impl TextKind {
    /// Returns the kind of a member of a value of this kind.
    fn of_member(self, name: &str, member: &Value) -> Self {
        if self == Self::SchemaMap && !member.is_string() {
            Self::Text
        } else if self == Self::Address && member.is_string() {
            // A map from names to addresses, as `endpoints` may be.
            self
        } else if IDENTITY_MEMBERS.contains(&name) {
            Self::Identity
        } else if self == Self::Link || LINK_MEMBERS.contains(&name) {
            Self::Link
        } else if ADDRESS_MEMBERS.contains(&name) {
            Self::Address
        } else if SCHEMA_MAP_MEMBERS.contains(&name) && member.is_object() {
            Self::SchemaMap
        } else {
            Self::Text
        }
    }
}

/// Returns the gateway's URL that invokes `id`, or one of its operations.
pub(super) fn invoke_url(base: &str, id: &str, operation: &str) -> String {
    match operation {
        "" => format!("{base}/agents/{id}/invoke"),
        operation => format!("{base}/agents/{id}/invoke/{operation}"),
    }
}

/// Redacts the addresses in an agent's document.
#[derive(Debug)]
pub(super) struct AddressRedactor<'a> {
    agent: &'a Agent,
    base: &'a str,
    exposes_endpoint: bool,
    /// The agent's host, or the path of its socket.
    host: Cow<'a, str>,
    replacement: String,
    /// The bytes by which replacements may still lengthen the texts.
    growth_left: Cell<usize>,
    /// The hosts of the addresses that the agent's document has for calls, in lower case; collected where a link is judged.
    named_hosts: OnceCell<HashSet<String>>,
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
        Self {
            agent,
            base,
            exposes_endpoint,
            host,
            replacement: invoke_url(base, agent.id.as_str(), ""),
            growth_left: Cell::new(agent.document.len().max(MIN_MAX_GROWTH)),
            named_hosts: OnceCell::new(),
        }
    }

    /// Creates the redactor of `agent` for an entry of a list, which contains little of its document.
    pub(super) fn for_list_entry(agent: &'a Agent, base: &'a str, endpoints: EndpointExposure) -> Self {
        let redactor = Self::new(agent, base, endpoints);
        redactor.growth_left.set(MAX_GROWTH_OF_LIST_ENTRY);
        redactor
    }

    /// Returns what replaces an address of `length` bytes: `replacement`, or a short text where the document would become
    /// too long.
    fn replacement_for<'r>(&self, length: usize, replacement: &'r str) -> &'r str {
        match self.growth_left.get().checked_sub(replacement.len().saturating_sub(length)) {
            Some(left) => {
                self.growth_left.set(left);
                replacement
            }
            None => REDACTED,
        }
    }

    /// Returns the gateway's URL.
    pub(super) fn base_url(&self) -> &str {
        self.base
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

    /// Redacts the addresses in `text`.
    pub(super) fn redact_text<'t>(&self, text: &'t str) -> Cow<'t, str> {
        self.replace_addresses(text, TextKind::Text)
    }

    /// Redacts the addresses in each of these texts.
    pub(super) fn redact_list<'t>(&self, texts: &'t [std::sync::Arc<str>]) -> Vec<Cow<'t, str>> {
        texts.iter().map(|text| self.redact_text(text)).collect()
    }

    /// Redacts every string within `value`, and member names.
    pub(super) fn redact_value(&self, value: &mut Value) {
        if !self.exposes_endpoint {
            self.redact_value_of_kind(value, TextKind::Text);
        }
    }

    fn redact_value_of_kind(&self, value: &mut Value, kind: TextKind) {
        match value {
            Value::String(text) => self.redact_string(text, kind),
            Value::Array(items) => items.iter_mut().for_each(|item| self.redact_value_of_kind(item, kind)),
            Value::Object(members) => {
                // The names of a schema's properties are data.
                let redact_name = |name: &str| self.replace_addresses(name, TextKind::Link).into_owned();
                if members.keys().any(|name| matches!(self.replace_addresses(name, TextKind::Link), Cow::Owned(_))) {
                    let original = std::mem::take(members).into_iter();
                    *members = original.map(|(name, member)| (redact_name(&name), member)).collect();
                }
                for (name, member) in members {
                    let member_kind = kind.of_member(name, member);
                    self.redact_value_of_kind(member, member_kind);
                }
            }
            _ => {}
        }
    }

    fn redact_string(&self, text: &mut String, kind: TextKind) {
        let redacted = self.replace_addresses(text, kind);
        if kind == TextKind::Address && !text.trim().is_empty() && !self.is_gateway_url(&redacted) {
            *text = self.replacement_for(text.len(), &self.replacement).to_owned();
        } else if let Cow::Owned(redacted) = redacted {
            *text = redacted;
        }
    }

    fn replace_addresses<'t>(&self, text: &'t str, kind: TextKind) -> Cow<'t, str> {
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
            return Cow::Owned(self.replacement_for(text.len(), &self.replacement).to_owned());
        }
        let (mut redacted, mut position, mut search_from) = (String::new(), 0, 0);
        while let Some(address) = find_address(text, search_from, &self.host) {
            search_from = address.range.end;
            if self.may_stay(text, &address, kind) {
                continue;
            }
            redacted.push_str(text.get(position..address.range.start).unwrap_or_default());
            match address.origin_end.filter(|_| kind == TextKind::Identity) {
                Some(origin_end) => {
                    redacted.push_str(self.replacement_for(origin_end - address.range.start, self.base));
                    redacted.push_str(text.get(origin_end..address.range.end).unwrap_or_default());
                }
                None => redacted.push_str(self.replacement_for(address.range.len(), &self.replacement)),
            }
            position = address.range.end;
        }
        if position == 0 {
            return Cow::Borrowed(text);
        }
        Cow::Owned(redacted + text.get(position..).unwrap_or_default())
    }

    fn may_stay(&self, text: &str, address: &Address<'_>, kind: TextKind) -> bool {
        if self.is_gateway_url(text.get(address.range.clone()).unwrap_or_default()) {
            return true;
        }
        match kind {
            TextKind::Text | TextKind::Address | TextKind::SchemaMap => false,
            TextKind::Link => address.is_public_link() && !self.is_agents_host(address.host),
            TextKind::Identity => VOCABULARY_HOSTS.iter().any(|host| is_below(address.host, host)),
        }
    }

    fn is_gateway_url(&self, url: &str) -> bool {
        url.strip_prefix(self.base).is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '?', '#']))
    }

    /// Returns whether the host is that of the agent's endpoint, or of another address that its document has for calls.
    fn is_agents_host(&self, host: &str) -> bool {
        let named_hosts = self.named_hosts.get_or_init(|| {
            let mut hosts = HashSet::new();
            let document = serde_json::from_str(&self.agent.document).unwrap_or_default();
            collect_hosts(&document, TextKind::Text, &mut hosts);
            hosts
        });
        if is_below(host, &self.host) {
            return true;
        }
        // A document may name as many hosts as it has links, so the domains above the host are looked up.
        let host = host.to_ascii_lowercase();
        let parents = host.match_indices('.').filter_map(|(dot, _)| host.get(dot + 1..));
        std::iter::once(&*host).chain(parents).any(|domain| named_hosts.contains(domain))
    }
}

/// Collects the hosts in members that hold addresses.
fn collect_hosts(value: &Value, kind: TextKind, hosts: &mut HashSet<String>) {
    match value {
        Value::String(text) if kind == TextKind::Address => {
            let host = find_address(text, 0, "").map(|address| address.host.to_ascii_lowercase());
            hosts.extend(host.filter(|host| !host.is_empty()));
        }
        Value::Array(items) => items.iter().for_each(|item| collect_hosts(item, kind, hosts)),
        Value::Object(members) => {
            members.iter().for_each(|(name, member)| collect_hosts(member, kind.of_member(name, member), hosts));
        }
        _ => {}
    }
}
