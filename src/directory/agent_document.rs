//! The document of an agent (R20): its publisher reads it as published, other callers with the gateway's addresses.

use super::{
    DirectoryCall, EndpointExposure, address_redaction::AddressRedactor, conditional_response::Representation,
    media_types, version_addresses::version_addresses,
};
use crate::{
    agent::{Agent, AgentId, Operation, undeclared_schema},
    fault::Result,
    registry::{EmbeddedRegistry, PublishedDocument},
};
use serde_json::{Map, Value};
use std::time::SystemTime;

/// Media types of a whole document.
pub(super) const DOCUMENT_MEDIA_TYPES: &[&str] = &[media_types::JSON, media_types::AGENT_METADATA];

/// An agent's document with its addresses redacted.
#[derive(Debug)]
pub(super) struct RedactedDocument(Value);

impl RedactedDocument {
    /// Parses the agent's document and redacts it.
    pub(super) fn new(agent: &Agent, redactor: &AddressRedactor<'_>) -> Self {
        let mut value = serde_json::from_str(&agent.document).unwrap_or_default();
        redactor.redact_value(&mut value);
        if !redactor.exposes_endpoint() {
            if let Some(endpoint) = value.get_mut("endpoint") {
                *endpoint = redactor.public_endpoint().into_owned().into();
            }
            if let Some(members) = value.as_object_mut() {
                hide_addresses_of_members(members, agent, redactor);
            }
            // The signatures covered the addresses that were replaced.
            if let Some(card) = value.get_mut("agent_card").and_then(Value::as_object_mut) {
                hide_addresses_of_members(card, agent, redactor);
                card.remove("signatures");
            }
        }
        Self(value)
    }

    /// Returns the kind of credential that the agent's callers need: the declared kind where every kind is accepted.
    pub(super) fn authentication_type<'a>(&'a self, agent: &Agent) -> &'a str {
        let declared = || self.member("authentication")?.get("type")?.as_str();
        let own = agent.authentication.method.document_type();
        if agent.authentication.refuses_anonymous { declared().unwrap_or(own) } else { own }
    }

    /// Returns a member that is a non-blank string.
    pub(super) fn text_member(&self, name: &str) -> Option<&str> {
        self.member(name)?.as_str().filter(|text| !text.trim().is_empty())
    }

    /// Returns a member.
    pub(super) fn member(&self, name: &str) -> Option<&Value> {
        self.0.get(name)
    }

    /// Returns the whole document.
    pub(super) fn into_value(self) -> Value {
        self.0
    }

    /// Returns the member for the operation at `at`, if the document lists operations.
    pub(super) fn operation_member(&self, index: usize) -> Option<&Value> {
        self.0.get("operations")?.get(index)
    }
}

/// Removes the link to the agent's documentation, which is at the agent's own server as a rule, and replaces the
/// versions and their addresses, which may be paths, by the versions that callers can select (R67).
fn hide_addresses_of_members(members: &mut Map<String, Value>, agent: &Agent, redactor: &AddressRedactor<'_>) {
    members.remove("documentationUrl");
    for name in ["supportedVersions", "supported_versions"] {
        if let Some(Value::Object(versions)) = members.get_mut(name) {
            *versions = version_addresses(redactor.base_url(), agent);
        }
    }
}

/// Redacts the addresses of an agent's card, and removes the signatures, which covered them.
pub(super) fn redact_agent_card(agent: &Agent, base: &str, endpoints: EndpointExposure, card: &mut Value) {
    let redactor = AddressRedactor::new(agent, base, endpoints);
    if redactor.exposes_endpoint() {
        return;
    }
    redactor.redact_value(card);
    if let Some(members) = card.as_object_mut() {
        hide_addresses_of_members(members, agent, &redactor);
        members.remove("signatures");
    }
}

/// Describes the inputs and outputs that the document does not declare (R13): those that the gateway applies to the agent,
/// or any value.
fn describe_undeclared_schemas(document: &mut Value, agent: &Agent) {
    let describe = |members: &mut Map<String, Value>, operation: Option<&Operation>| {
        let applied = operation.map(|operation| (operation.inputs.as_ref(), operation.outputs.as_ref()));
        let (inputs, outputs) = applied.unwrap_or_default();
        for (name, applied) in [("inputs", inputs), ("outputs", outputs)] {
            let schema = members.entry(name).or_insert(Value::Null);
            if schema.is_null() {
                *schema = applied.map_or_else(undeclared_schema, |applied| Value::clone(applied));
            }
        }
    };
    match document.get_mut("operations") {
        Some(Value::Array(operations)) if !operations.is_empty() => {
            let members = operations.iter_mut().enumerate();
            let members = members.filter_map(|(at, operation)| Some((operation.as_object_mut()?, at)));
            members.for_each(|(members, at)| describe(members, agent.operations.get(at)));
        }
        _ => {
            let members = document.as_object_mut().into_iter();
            members.for_each(|members| describe(members, agent.operations.first()));
        }
    }
}

/// Serves the documents of agents.
pub(super) struct AgentDocumentHandler<'a> {
    /// Registry that stores published agents; `None` if publishing is disabled.
    pub(super) registry: Option<&'a EmbeddedRegistry>,
    pub(super) advertised_endpoints: EndpointExposure,
}

impl AgentDocumentHandler<'_> {
    /// `GET /agents/{id}` by the publisher: the document as it was published. `None` for other callers, and where the
    /// registry is unavailable: the publisher gets the served document, and a write guarded by its tag fails.
    pub(super) async fn published_document(&self, call: &DirectoryCall<'_>) -> Result<Option<Representation>> {
        let media = media_types::negotiate(call.headers, DOCUMENT_MEDIA_TYPES)?;
        let published = self.owned_document(call).await;
        Ok(published.map(|published| {
            Representation::new(media, published.document.as_bytes().to_vec())
                .with_last_modified(SystemTime::from(published.updated))
        }))
    }

    /// `GET /agents/{id}` by others: the document with the gateway's addresses.
    pub(super) fn served_document(&self, call: &DirectoryCall<'_>) -> Result<Representation> {
        let media = media_types::negotiate(call.headers, DOCUMENT_MEDIA_TYPES)?;
        let agent = call.requested_agent()?;
        let redactor = AddressRedactor::new(&agent, call.base_url, self.advertised_endpoints);
        let mut document = RedactedDocument::new(&agent, &redactor).into_value();
        describe_undeclared_schemas(&mut document, &agent);
        Representation::json(media, &document)
    }

    async fn owned_document(&self, call: &DirectoryCall<'_>) -> Option<PublishedDocument> {
        let (registry, publisher) = (self.registry?, call.publisher());
        let id: AgentId = call.id.parse().ok()?;
        if registry.may_publish(publisher) { registry.owned_document(publisher, &id).await.ok()? } else { None }
    }
}
