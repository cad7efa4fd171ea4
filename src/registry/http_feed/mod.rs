//! Feeds of registries over HTTP, one kind for each protocol. The kind decides where the list is; what an entry is,
//! each entry shows by itself. Every document is converted to one AIDIP document, or rejected with the reason.
//!
//! **Ids.** A document's own `id` is used, and rejected where it is not path-safe. A document without an `id` (A2A
//! cards, descriptors) gets its key in the map that lists it or its `urn:air:` identifier, else its `name`, made
//! path-safe by the rule in `slug.rs`.

mod a2a_card;
mod agent_framework;
mod agent_uri_descriptor;
mod crawler;
mod document_shape;
mod entry_classifier;
mod json_members;
mod linked_documents;
mod list_parser;
mod pagination;
mod security_schemes;
mod slug;

use super::{Feed, SourceKind, conditional_get::ConditionalClient, config::SignaturePolicy};
use crate::net::Url;

/// Opens the feed of a registry of this kind, reached over `web`.
pub(super) fn open_feed(kind: SourceKind, web: ConditionalClient, proof: SignaturePolicy) -> Box<dyn Feed> {
    let starts = list_urls(kind, web.url());
    Box::new(crawler::RegistryCrawler::new(
        web,
        entry_classifier::EntryClassifier { kind, signature_policy: proof },
        starts,
    ))
}

/// Returns the candidate URLs of the list: a URL without a path stands for the well-known paths of the kind.
fn list_urls(kind: SourceKind, url: &Url) -> Vec<Url> {
    let places: &[&str] = match kind {
        SourceKind::Aidip | SourceKind::Ard => &["/agents"],
        SourceKind::AgentFramework => &["/.well-known/agentframework/v1/agents"],
        SourceKind::AgentUri => {
            &["/.well-known/agents.json", "/.well-known/agent.json", "/.well-known/agent-card.json"]
        }
        SourceKind::Catalog => &["/.well-known/ai-catalog.json"],
        // A broker has no list; its feed is `MqttFeed`.
        SourceKind::Mqtt => &[],
    };
    let at = |path: &&str| {
        let mut place = url.clone();
        place.set_path(path);
        place
    };
    if url.path() == "/" { places.iter().map(at).collect() } else { vec![url.clone()] }
}

#[cfg(test)]
mod tests;
