//! Result of resolving a name.

use super::{led::Place, trail::Step};
use crate::agent::AgentUri;
use serde_json::{Map, Value, json};
use std::time::Instant;

/// Where an agent is called, and how the resolver found it.
#[derive(Clone, Debug)]
pub struct Resolved {
    /// The requested name.
    pub uri: AgentUri,
    /// The agent's endpoint, in the syntax of endpoints: `https://…`, `wss://…`, `agent+unix://…`.
    pub endpoint: String,
    /// URL of the descriptor that gave the endpoint, if any.
    pub descriptor: Option<String>,
    /// Version served at the endpoint, if known (R68).
    pub version: Option<String>,
    /// All versions that the descriptor declares (R67).
    pub versions: Vec<String>,
    /// The operation that the name's path means, if the endpoint has no path for operations.
    pub operation: Option<String>,
    /// Whether the descriptor has a signature, which the resolver does not verify (R100).
    pub signed: bool,
    /// The steps that were tried, in order.
    pub how: Vec<Step>,
    /// When this result expires; `None` if no document was fetched.
    pub until: Option<Instant>,
}

impl Resolved {
    pub(super) fn new(uri: &AgentUri, place: Place, how: Vec<Step>, until: Option<Instant>) -> Self {
        Self {
            uri: uri.clone(),
            endpoint: place.endpoint,
            descriptor: place.descriptor.map(String::from),
            version: place.version,
            versions: place.versions,
            operation: place.operation,
            signed: place.signed,
            how,
            until,
        }
    }

    /// Returns the transport of the endpoint: `https`, `wss`, `unix`, …
    pub fn transport(&self) -> &str {
        let scheme = self.endpoint.split_once("://").map_or("", |(scheme, _)| scheme);
        scheme.strip_prefix("agent+").unwrap_or(scheme)
    }

    /// Whether the operator's configuration alone gave the result, without any remote document.
    pub fn is_operators_word(&self) -> bool {
        self.how.iter().all(|step| matches!(step.kind, "map" | "name"))
    }

    /// Returns the JSON that callers read.
    pub fn public(&self) -> Value {
        let mut members = Map::new();
        let mut put = |name: &str, value: Value| drop(members.insert(name.to_owned(), value));
        put("uri", self.uri.to_string().into());
        put("endpoint", self.endpoint.as_str().into());
        put("transport", self.transport().into());
        put("descriptor", json!(self.descriptor));
        put("version", json!(self.version));
        put("versions", json!(self.versions));
        put("operation", json!(self.operation));
        put("signature", json!(self.signed.then_some("not verified")));
        put("fragment", json!(self.uri.fragment()));
        put("input", self.uri.input().unwrap_or_default().into());
        put("how", self.how.iter().map(Step::public).collect());
        members.into()
    }
}
