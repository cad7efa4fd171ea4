//! What a name was found to lead to, and how.

use super::{led::Place, trail::Step};
use crate::agent::AgentUri;
use serde_json::{Map, Value, json};
use std::time::Instant;

/// Where an agent is called, and how that was found.
#[derive(Clone, Debug)]
pub struct Resolved {
    /// The name that was asked for.
    pub uri: AgentUri,
    /// Where it is called, in the words that endpoints have: `https://…`, `wss://…`, `agent+unix://…`.
    pub endpoint: String,
    /// The descriptor that said so, where there was one.
    pub descriptor: Option<String>,
    /// The version that is served there, where it is known (R68).
    pub version: Option<String>,
    /// Every version that the descriptor tells of (R67).
    pub versions: Vec<String>,
    /// The operation that the name's path means, where the endpoint has no path of its own for it.
    pub operation: Option<String>,
    /// Whether the descriptor is signed; its signature is not verified here (R100).
    pub signed: bool,
    /// What was tried, in order.
    pub how: Vec<Step>,
    /// Until when this may be used without asking again; `None` where nothing had to be asked.
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

    /// How the endpoint is spoken to: `https`, `wss`, `unix`, …
    pub fn transport(&self) -> &str {
        let scheme = self.endpoint.split_once("://").map_or("", |(scheme, _)| scheme);
        scheme.strip_prefix("agent+").unwrap_or(scheme)
    }

    /// Whether nobody but the operator has said so: no document elsewhere had a word in it.
    pub fn is_operators_word(&self) -> bool {
        self.how.iter().all(|step| matches!(step.kind, "map" | "name"))
    }

    /// As callers read it.
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
