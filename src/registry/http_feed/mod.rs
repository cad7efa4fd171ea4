//! Feeds of registries over HTTP, one kind for each protocol. The kind decides where the list is; the shape of an entry
//! decides what the entry is. Every document is converted to one AIDIP document, or rejected with the reason.
//!
//! **Ids.** A document's own `id` is used, and rejected where it is not path-safe. A document without an `id` (A2A
//! cards, descriptors) gets its key in the map that lists it or its `urn:air:` identifier, else its `name`, made
//! path-safe by the rule in `slug.rs`.

mod a2a_card;
mod agent_framework;
mod agent_uri_descriptor;
mod catalog_selection;
mod catalog_tree;
mod conversion_error;
mod converted_document;
mod crawler;
mod document_location;
mod document_shape;
mod document_shares;
mod entry_classifier;
#[cfg(any(test, fuzzing))]
pub(super) mod fuzz;
mod json_members;
mod link_backoff;
mod linked_documents;
mod list_budget;
mod list_parser;
mod list_reports;
mod mcp_server_card;
mod openapi_document;
mod pagination;
mod security_schemes;
mod slug;
mod unlocated_document;

pub(super) use conversion_error::ConversionError;
pub(super) use entry_classifier::run_classification;
pub(super) use unlocated_document::{convert_unlocated, is_card};

use super::{Feed, SourceKind, conditional_get::ConditionalClient, signature_policy::SignaturePolicy};
use crate::net::Url;
use agent_uri_descriptor::OperationAddressing;
use bytes::Bytes;
use converted_document::ConvertedDocument;
use document_shape::DocumentForm;
use entry_classifier::ListedDocument;
use serde_json::{Map, Value};

/// Settings of the feed of a registry.
#[derive(Debug)]
pub(super) struct RegistryFeedSettings {
    pub(super) kind: SourceKind,
    pub(super) signature_policy: SignaturePolicy,
    /// Whether the operations of the descriptors of an `agent://` domain have paths of their own.
    pub(super) operation_paths: bool,
    /// Maximum number of agents of the source.
    pub(super) max_agents: usize,
}

/// Opens the feed of a registry, whose URL `client` has.
pub(super) fn open_feed(client: ConditionalClient, settings: RegistryFeedSettings) -> Box<dyn Feed> {
    let RegistryFeedSettings { kind, signature_policy, operation_paths, max_agents } = settings;
    let operation_addressing = if operation_paths && kind == SourceKind::AgentUri {
        OperationAddressing::BelowEndpoint
    } else {
        OperationAddressing::AtEndpoint
    };
    let start_urls = list_urls(kind, client.url());
    Box::new(crawler::RegistryCrawler::new(
        client,
        entry_classifier::EntryClassifier { kind, signature_policy, operation_addressing },
        start_urls,
        max_agents,
    ))
}

/// Converts single documents of any shape, for feeds that have no list.
#[derive(Debug)]
pub(super) struct DocumentConverter(entry_classifier::EntryClassifier);

impl DocumentConverter {
    pub(super) fn new(kind: SourceKind, signature_policy: SignaturePolicy) -> Self {
        let operation_addressing = OperationAddressing::AtEndpoint;
        Self(entry_classifier::EntryClassifier { kind, signature_policy, operation_addressing })
    }

    /// Returns the members of a document that its signature covers, without its envelope.
    ///
    /// # Errors
    /// It is no document, or its signature is not valid.
    pub(super) fn open(&self, document: Value) -> Result<Map<String, Value>, ConversionError> {
        self.0.open_document(document).map(|opened| opened.members)
    }

    /// Converts an opened document, which its source calls `listed_name`, to an AIDIP document. Relative links are
    /// resolved against `base`.
    ///
    /// # Errors
    /// Why the document is no agent's.
    pub(super) fn convert(
        &self,
        members: Map<String, Value>,
        listed_name: &str,
        base: &Url,
    ) -> Result<ConvertedDocument, ConversionError> {
        let entry = ListedDocument { listed_name: Some(listed_name), base, form: DocumentForm::OfMembers };
        self.0.convert_opened(members, &Bytes::new(), entry)
    }
}

/// Converts what an agent publishes about itself to the text of an AIDIP document. Its signature is not verified.
///
/// # Errors
/// Why it is no agent's document.
pub fn convert_published_card(card: Value, agent: &str, url: &Url) -> Result<Bytes, String> {
    let converter = DocumentConverter::new(SourceKind::AgentUri, SignaturePolicy::default());
    let converted = converter.open(card).and_then(|members| converter.convert(members, agent, url));
    converted.map(ConvertedDocument::into_text).map_err(|why| why.reason().to_owned())
}

/// Returns the candidate URLs of the list. A URL without a path means the well-known paths of the kind.
fn list_urls(kind: SourceKind, url: &Url) -> Vec<Url> {
    let paths: &[&str] = match kind {
        SourceKind::Aidip | SourceKind::Ard => &["/agents"],
        SourceKind::AgentFramework => &["/.well-known/agentframework/v1/agents"],
        SourceKind::AgentUri => {
            &["/.well-known/agents.json", "/.well-known/agent.json", "/.well-known/agent-card.json"]
        }
        SourceKind::Catalog => &["/.well-known/ai-catalog.json"],
        // They have no list; their feeds are `MqttFeed` and `KubernetesFeed`.
        SourceKind::Mqtt | SourceKind::Kubernetes => &[],
    };
    let with_path = |path: &&str| {
        let mut list_url = url.clone();
        list_url.set_path(path);
        list_url
    };
    if url.path() == "/" { paths.iter().map(with_path).collect() } else { vec![url.clone()] }
}

#[cfg(test)]
mod tests;
