//! Agent records: identity, operations, endpoint, and requirements on callers (R10–R15). Plain data, which
//! [`Agent::from_document`] creates. This module does no I/O and compiles no schemas.

mod agent_id;
mod agent_uri;
mod authentication_method;
mod endpoint;
mod endpoint_scheme;
mod matrix_address;
mod metadata_document;
mod metadata_schema;
mod version_selection;

pub use agent_id::AgentId;
pub use agent_uri::{AgentUri, AgentUriAuthority, MAX_URI_LEN, UriParseError};
pub use authentication_method::{AuthenticationMethod, BROWSER_ID_PREFIX, SecurityScheme};
pub use endpoint::{AgentEndpoint, EndpointUrl};
pub use endpoint_scheme::{AddressSyntax, EndpointAccess, EndpointScheme, SchemeSplit};
pub use matrix_address::MatrixAddress;
pub use metadata_schema::{METADATA_SCHEMA, metadata_schema};
pub use version_selection::{AgentVersion, AgentVersions, VersionSelectionError};

use crate::values::Rate;
use serde_json::Value;
use std::sync::Arc;

/// The record of one agent; immutable once parsed.
#[derive(Clone, Debug)]
pub struct Agent {
    /// The identifier by which callers address the agent.
    pub id: AgentId,
    /// The human-readable name; not necessarily unique.
    pub name: String,
    /// What the agent does, in prose; empty if the document has no description.
    pub description: Box<str>,
    /// The publisher, if the document names one.
    pub publisher: Option<Box<str>>,
    /// The supported languages; empty if language filters do not apply to the agent.
    pub languages: Vec<Arc<str>>,
    /// The agent's own version, if the document names one.
    pub version: Option<String>,
    /// The versions that callers can request (R67).
    pub versions: AgentVersions,
    /// What the agent can do, as words to filter by.
    pub capabilities: Vec<Arc<str>>,
    /// Further words to filter by.
    pub tags: Vec<Arc<str>>,
    /// The address of the agent's own server.
    pub endpoint: AgentEndpoint,
    /// The credential that callers need (R12).
    pub authentication: Authentication,
    /// Whether the gateway serves the agent.
    pub status: AgentStatus,
    /// The operations, at least one. A document without operations has the implied operation (R14).
    pub operations: Vec<Operation>,
    /// Rate limits that the document declares.
    pub rate_limits: Vec<Rate>,
    /// Whether the agent accepts an array of inputs as one call (R44).
    pub accepts_batch: bool,
    /// The operation of a call that names no operation, for agents with several operations.
    pub default_operation: Option<usize>,
    /// SHA-256 of the document; equal digests mean equal documents.
    pub digest: [u8; 32],
    /// The whole published document, as compact JSON.
    pub document: Box<str>,
}

/// The credential that an agent requires from callers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Authentication {
    /// How callers authenticate.
    pub method: AuthenticationMethod,
    /// OAuth scopes, all of which the token must have.
    pub scopes: Vec<String>,
}

/// `status` (R15).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum AgentStatus {
    /// Served normally.
    #[default]
    Active,
    /// Listed but not served; calls get 503.
    Inactive,
    /// Served, with a `Deprecation` response header (RFC 9745).
    Deprecated(Deprecation),
}

/// Details of a deprecation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Deprecation {
    /// When the deprecation took effect, in Unix seconds.
    pub deprecated_at: Option<i64>,
    /// When the agent will be withdrawn, in Unix seconds (RFC 8594).
    pub sunset: Option<i64>,
    /// The id of the successor.
    pub successor: Option<AgentId>,
}

/// One operation of an agent (R13).
#[derive(Clone, Debug)]
pub struct Operation {
    /// The name; empty for the implied operation (R14).
    pub name: Arc<str>,
    /// What the operation does, in prose; empty if the document has no description.
    pub description: Box<str>,
    /// JSON Schema of the input; agents with equal schemas share one value.
    pub inputs: Option<Arc<Value>>,
    /// JSON Schema of the output; shared in the same way.
    pub outputs: Option<Arc<Value>>,
}

impl Agent {
    /// Returns the agent with another endpoint.
    #[must_use]
    pub fn with_endpoint(&self, endpoint: AgentEndpoint) -> Self {
        Self { endpoint, ..self.clone() }
    }

    /// Returns the operation called `name` and its index.
    pub fn operation(&self, name: &str) -> Option<(usize, &Operation)> {
        self.operations.iter().enumerate().find(|(_, operation)| &*operation.name == name)
    }
}

impl Operation {
    /// Returns whether the input has a property `version`, which then does not select the agent's version.
    pub fn takes_version(&self) -> bool {
        self.inputs.as_deref().and_then(|schema| schema.get("properties")?.get("version")).is_some()
    }

    /// Returns whether the output has a property `error`, which then does not indicate a failure.
    pub fn declares_error(&self) -> bool {
        self.outputs.as_deref().and_then(|schema| schema.get("properties")?.get("error")).is_some()
    }
}

#[cfg(test)]
mod tests;
