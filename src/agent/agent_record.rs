//! The record of one agent, and how it is made from a metadata document.

use super::metadata_document::DocumentReader;
use super::{
    AgentEndpoint, AgentId, AgentProtocol, AgentSource, AgentStatus, AgentVersions, Authentication, Operation,
    ServerAddress,
};
use crate::values::{Rate, json};
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
    /// The addresses of that server, where the source knows them; empty where the endpoint's host is looked up.
    pub addresses: Arc<[ServerAddress]>,
    /// The credential that callers need (R12).
    pub authentication: Authentication,
    /// Whether the gateway serves the agent.
    pub status: AgentStatus,
    /// Whether the agent is inactive because its source says that it cannot be reached, and not because its document or
    /// its owner made it inactive.
    pub is_unavailable: bool,
    /// The operations, at least one. A document without operations has the implied operation (R14).
    pub operations: Vec<Operation>,
    /// Rate limits that the document declares.
    pub rate_limits: Vec<Rate>,
    /// Whether the agent accepts an array of inputs as one call (R44).
    pub accepts_batch: bool,
    /// The operation of a call that names no operation, for agents with several operations.
    pub default_operation: Option<usize>,
    /// The protocol of the agent's own API, if that is the only way to call the agent.
    pub protocol: Option<AgentProtocol>,
    /// Whether the document was made of an A2A card, and keeps it.
    pub has_agent_card: bool,
    /// Members of the document that the gateway ignores, each with the reason.
    pub ignored_members: Vec<String>,
    /// What operators should know about how the source made the document from another one.
    pub conversion_notes: Arc<[String]>,
    /// SHA-256 of the document; equal digests mean equal documents.
    pub digest: [u8; 32],
    /// The whole published document, as compact JSON.
    pub document: Box<str>,
    /// Where the document comes from.
    pub source: Arc<AgentSource>,
}

impl Agent {
    /// Parses one metadata document.
    ///
    /// # Errors
    /// Every problem of the document, each prefixed with the field's name.
    pub fn from_document(document: &Value, digest: [u8; 32]) -> Result<Self, Vec<String>> {
        let Value::Object(fields) = document else {
            return Err(vec![format!("an agent's document must be an object, not {}", json::type_name(document))]);
        };
        let mut reader = DocumentReader::new(fields);
        let id = reader.parse_field::<AgentId>("id");
        let name = reader.parse_string("name", true);
        let version = reader.parse_version();
        let endpoint = reader.parse_field("endpoint");
        let (capabilities, tags) = (reader.parse_string_list("capabilities"), reader.parse_string_list("tags"));
        let authentication = reader.parse_authentication();
        let status = reader.parse_status();
        let operations = reader.parse_operations();
        let rates = reader.parse_rate_limits();
        let batch = reader.parse_bool("batch");
        let default_operation = reader.find_default_operation(&operations);
        let description = reader.parse_string("description", false).unwrap_or_default().into();
        let publisher = reader.parse_string("publisher", false).map(Into::into);
        let languages = reader.parse_string_list("supported_languages");
        let (Some(id), Some(endpoint), true) = (id, endpoint, reader.problems.is_empty()) else {
            return Err(reader.problems);
        };
        let name = name.unwrap_or_else(|| id.to_string());
        let versions = AgentVersions::from_document(version.as_deref(), fields);
        Ok(Self {
            id,
            name,
            description,
            publisher,
            languages,
            version,
            versions,
            capabilities,
            tags,
            endpoint,
            addresses: Arc::default(),
            authentication,
            status,
            is_unavailable: fields.get("status").and_then(Value::as_str) == Some("unavailable"),
            operations,
            rate_limits: rates,
            accepts_batch: batch,
            default_operation,
            protocol: AgentProtocol::of_document(fields),
            ignored_members: reader.ignored_members,
            conversion_notes: Arc::default(),
            digest,
            has_agent_card: fields.contains_key("agent_card"),
            document: document.to_string().into(),
            source: Arc::default(),
        })
    }

    /// Returns the agent as a document of `source`.
    #[must_use]
    pub fn with_source(self, source: Arc<AgentSource>) -> Self {
        Self { source, ..self }
    }

    /// Returns the agent with another endpoint.
    #[must_use]
    pub fn with_endpoint(&self, endpoint: AgentEndpoint) -> Self {
        Self { endpoint, addresses: Arc::default(), ..self.clone() }
    }

    /// Returns the agent with these addresses of its server.
    #[must_use]
    pub fn with_addresses(self, addresses: Arc<[ServerAddress]>) -> Self {
        Self { addresses, ..self }
    }

    /// Returns the agent with notes about how its document was made.
    #[must_use]
    pub fn with_conversion_notes(self, conversion_notes: Arc<[String]>) -> Self {
        Self { conversion_notes, ..self }
    }

    /// Returns the operation called `name` and its index.
    pub fn operation(&self, name: &str) -> Option<(usize, &Operation)> {
        self.operations.iter().enumerate().find(|(_, operation)| &*operation.name == name)
    }
}
