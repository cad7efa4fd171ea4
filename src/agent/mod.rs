//! What an agent is: identity, operations, how it is reached and what it asks of callers (R10–R15).
//! Pure data, made only by [`Agent::from_document`]; no I/O, no schema is compiled here.

mod document;
mod endpoint;
mod id;
mod matrix;
mod schema;
mod uri;
mod versions;

pub use endpoint::Endpoint;
pub use id::AgentId;
pub use matrix::MatrixAddress;
pub use schema::{METADATA_SCHEMA, metadata_schema};
pub use uri::{AgentUri, Authority, LONGEST as LONGEST_URI, Misread, segment};
pub use versions::{Served, Unmet, Versions};

use crate::unit::Rate;
use serde_json::Value;
use std::sync::Arc;

/// An agent's record, immutable once read.
#[derive(Clone, Debug)]
pub struct Agent {
    /// The identifier by which callers name it.
    pub id: AgentId,
    /// The human-readable name; not unique.
    pub name: String,
    /// What it does, in prose; empty where the document says nothing.
    pub description: Box<str>,
    /// Who publishes it, if told.
    pub publisher: Option<Box<str>>,
    /// The languages it handles; none where it should not be filtered by language.
    pub languages: Vec<Arc<str>>,
    /// The agent's own version, if told.
    pub version: Option<String>,
    /// The versions that can be asked for (R67).
    pub versions: Versions,
    /// What it can do, as words to filter by.
    pub capabilities: Vec<Arc<str>>,
    /// Further words to filter by.
    pub tags: Vec<Arc<str>>,
    /// Where it is.
    pub endpoint: Endpoint,
    /// Which credential callers need (R12).
    pub authentication: Authentication,
    /// Whether it is served.
    pub status: Status,
    /// Its operations: at least one; the implied one of R14 where the document names none.
    pub operations: Vec<Operation>,
    /// Rates that the document itself asks for.
    pub rates: Vec<Rate>,
    /// Whether it takes an array of inputs as one call (R44).
    pub batch: bool,
    /// The operation that is meant where a call names none, though there are several.
    pub default_operation: Option<usize>,
    /// SHA-256 of the document: equal digests are equal documents.
    pub digest: [u8; 32],
    /// The whole document as it was published, as compact JSON.
    pub document: Box<str>,
}

/// The credential that counts for an agent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Authentication {
    /// The kind of credential.
    pub kind: AuthKind,
    /// OAuth scopes that must all be held.
    pub scopes: Vec<String>,
}

/// `authentication.type` (R12).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum AuthKind {
    /// `api_key`
    ApiKey,
    /// `oauth2_bearer`
    Bearer,
    /// `mtls`
    Mtls,
    /// `none`, or left out: any credential the gateway knows, or none where the configuration grants
    /// the caller `anonymous`.
    #[default]
    Open,
}

/// `status` (R15).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Status {
    /// Served.
    #[default]
    Active,
    /// Known, not served: 503.
    Inactive,
    /// Served, with a `Deprecation` field (RFC 9745).
    Deprecated(Deprecation),
}

/// What is known of a deprecation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Deprecation {
    /// Since when, in seconds after 1970.
    pub since: Option<i64>,
    /// When it ends, in seconds after 1970 (RFC 8594).
    pub sunset: Option<i64>,
    /// The successor's id.
    pub successor: Option<AgentId>,
}

/// One thing an agent does (R13).
#[derive(Clone, Debug)]
pub struct Operation {
    /// Its name; empty for the implied operation (R14).
    pub name: Arc<str>,
    /// What it does, in prose; empty where the document says nothing.
    pub description: Box<str>,
    /// JSON Schema of the input; shared by agents that declare the same.
    pub inputs: Option<Arc<Value>>,
    /// JSON Schema of the output; shared likewise.
    pub outputs: Option<Arc<Value>>,
}

impl Agent {
    /// The same agent at another of its addresses.
    #[must_use]
    pub fn at(&self, endpoint: Endpoint) -> Self {
        Self { endpoint, ..self.clone() }
    }

    /// The operation called `name`.
    pub fn operation(&self, name: &str) -> Option<(usize, &Operation)> {
        self.operations.iter().enumerate().find(|(_, operation)| &*operation.name == name)
    }
}

impl Operation {
    /// Whether `version` is a part of its input, and so says nothing of the agent's.
    pub fn takes_version(&self) -> bool {
        self.inputs.as_deref().and_then(|schema| schema.get("properties")?.get("version")).is_some()
    }

    /// Whether `error` is a part of its output, and so says nothing of a failure.
    pub fn declares_error(&self) -> bool {
        self.outputs.as_deref().and_then(|schema| schema.get("properties")?.get("error")).is_some()
    }
}

#[cfg(test)]
mod tests;
