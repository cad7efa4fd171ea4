//! Result of resolving a name.

use super::{
    resolution_step::AgentLocation,
    resolution_trace::{ResolutionTrace, TraceStep},
    signature_status::SignatureStatus,
};
use crate::{agent::AgentUri, values::shown_url};
use serde_json::{Map, Value, json};
use std::time::Instant;

/// Location at which an agent is called, and the steps by which the resolver found it.
#[derive(Clone, Debug)]
pub struct ResolvedAgent {
    /// The requested name.
    pub uri: AgentUri,
    /// The agent's endpoint, in the syntax of endpoints: `https://…`, `wss://…`, `agent+unix://…`.
    pub endpoint: String,
    /// URL of the descriptor that has the endpoint, if any.
    pub descriptor: Option<String>,
    /// Version served at the endpoint, if known (R68).
    pub version: Option<String>,
    /// All versions that the descriptor declares (R67).
    pub versions: Vec<String>,
    /// The operation that the name's path names, if the endpoint has no path for operations.
    pub operation: Option<String>,
    /// What is known of the signatures of the descriptors that were used (R100); `None` without a descriptor.
    pub signature: Option<SignatureStatus>,
    /// The steps that were tried, in order.
    pub trace: Vec<TraceStep>,
    /// When this result expires; `None` if no document was fetched.
    pub expires: Option<Instant>,
}

impl ResolvedAgent {
    pub(super) fn new(uri: &AgentUri, location: AgentLocation, trace: ResolutionTrace) -> Self {
        Self {
            uri: uri.clone(),
            endpoint: location.endpoint,
            descriptor: location.descriptor.map(String::from),
            version: location.version,
            versions: location.versions,
            operation: location.operation,
            signature: trace.signature().cloned(),
            expires: trace.expires(),
            trace: trace.into_steps(),
        }
    }

    /// Returns the transport of the endpoint: `https`, `wss`, `unix`, …
    pub fn transport(&self) -> &str {
        let scheme = self.endpoint.split_once("://").map_or("", |(scheme, _)| scheme);
        scheme.strip_prefix("agent+").unwrap_or(scheme)
    }

    /// Returns whether the operator's configuration alone determined the result, without any remote document.
    pub fn is_operator_defined(&self) -> bool {
        self.trace.iter().all(|step| matches!(step.kind, "map" | "name"))
    }

    /// Returns the JSON that callers read. URLs of the operator's map may have secrets in their queries.
    pub fn to_public_json(&self) -> Value {
        let mut members = Map::new();
        let mut put = |name: &str, value: Value| drop(members.insert(name.to_owned(), value));
        let is_mapped = self.trace.iter().any(|step| step.kind == "map");
        let shown = |url: &str| match url.split_once('?') {
            _ if !is_mapped => url.to_owned(),
            // The caller's own query.
            Some((base, query)) if Some(query) == self.uri.query() => format!("{}?{query}", shown_url(base)),
            _ => shown_url(url).into_owned(),
        };
        put("uri", self.uri.to_string().into());
        put("endpoint", shown(&self.endpoint).into());
        put("transport", self.transport().into());
        put("descriptor", json!(self.descriptor.as_deref().map(shown)));
        put("version", json!(self.version));
        put("versions", json!(self.versions));
        put("operation", json!(self.operation));
        put("signature", json!(self.signature.as_ref().and_then(SignatureStatus::as_str)));
        put("signature_reason", json!(self.signature.as_ref().and_then(SignatureStatus::reason)));
        put("fragment", json!(self.uri.fragment()));
        put("input", self.uri.query_input().unwrap_or_default().into());
        put("how", self.trace.iter().map(|step| step.to_public_json(shown)).collect());
        members.into()
    }
}
