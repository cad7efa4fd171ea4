//! The document of an agent (R20): its publisher reads it as published, other callers with the gateway's addresses.

use super::{
    AgentDirectory, DirectoryCall, DirectoryResponse, address_redaction::AddressRedactor,
    conditional_response::Representation, media_types,
};
use crate::{
    agent::{Agent, AgentId},
    fault::{Fault, FaultCode, Result},
    registry::{PublishedDocument, Publisher},
};
use serde_json::Value;
use std::{sync::Arc, time::SystemTime};

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
            // The signatures covered the addresses that were replaced.
            if let Some(card) = value.get_mut("agent_card").and_then(Value::as_object_mut) {
                card.remove("signatures");
            }
        }
        Self(value)
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

impl AgentDirectory {
    /// `GET /agents/{id}`: the document of one agent.
    pub(super) async fn agent_document(&self, call: &DirectoryCall<'_>) -> Result<DirectoryResponse> {
        let media = media_types::negotiate(call.headers, DOCUMENT_MEDIA_TYPES)?;
        if let Some(published) = self.published_document(call).await {
            let representation = Representation::new(media, published.document.as_bytes().to_vec())
                .with_last_modified(SystemTime::from(published.updated));
            return Ok(self.respond_conditionally(call, representation));
        }
        let agent = self.visible_agent(call)?;
        let redactor = AddressRedactor::new(&agent, call.base_url, self.config.advertised_endpoints);
        Ok(self.respond_conditionally(
            call,
            Representation::json(media, &RedactedDocument::new(&agent, &redactor).into_value())?,
        ))
    }

    /// Returns the requested agent.
    ///
    /// # Errors
    /// `NotFound`, with the same message for an unknown agent and for one that is invisible to the caller.
    pub(super) fn visible_agent(&self, call: &DirectoryCall<'_>) -> Result<Arc<Agent>> {
        call.visibility.visible_agent(call.id).ok_or_else(no_agent_fault)
    }

    /// Returns the document as the caller published it. If the registry is unavailable, the served document is returned
    /// instead; a write guarded by its tag then fails.
    async fn published_document(&self, call: &DirectoryCall<'_>) -> Option<PublishedDocument> {
        let (registry, publisher) = (self.registry.as_ref()?, publisher_of(call));
        let id: AgentId = call.id.parse().ok()?;
        if registry.may_publish(publisher) { registry.owned_document(publisher, &id).await.ok()? } else { None }
    }
}

/// Returns the caller as a publisher.
pub(super) fn publisher_of<'a>(call: &DirectoryCall<'a>) -> Publisher<'a> {
    Publisher { id: &call.caller.id, groups: &call.caller.groups }
}

/// Builds the fault for an agent that is unknown or invisible to the caller.
#[cold]
pub(super) fn no_agent_fault() -> Fault {
    Fault::from(FaultCode::NotFound)
}
