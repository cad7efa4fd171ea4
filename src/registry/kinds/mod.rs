//! Feeds of registries over HTTP, one kind for each protocol. The kind decides where the list is; what an entry is,
//! each entry shows by itself. Every document is converted to one AIDIP document, or rejected with the reason.
//!
//! **Ids.** A document's own `id` is used, and rejected where it is not path-safe. A document without an `id` (A2A
//! cards, descriptors) gets its key in the map that lists it or its `urn:air:` identifier, else its `name`, made
//! path-safe by the rule in `slug.rs`.

mod card;
mod descriptor;
mod documents;
mod fields;
mod framework;
mod judge;
mod listing;
mod name;
mod pages;
mod security;
mod shape;
mod walk;

use super::{Feed, Kind, config::Proof, web::Web};
use crate::net::Url;

/// Opens the feed of a registry of this kind, reached over `web`.
pub(super) fn open(kind: Kind, web: Web, proof: Proof) -> Box<dyn Feed> {
    let starts = starts(kind, web.url());
    Box::new(walk::Walk::new(web, judge::Judge { kind, proof }, starts))
}

/// Returns the candidate URLs of the list: a URL without a path stands for the well-known paths of the kind.
fn starts(kind: Kind, url: &Url) -> Vec<Url> {
    let places: &[&str] = match kind {
        Kind::Aidip | Kind::Ard => &["/agents"],
        Kind::AgentFramework => &["/.well-known/agentframework/v1/agents"],
        Kind::AgentUri => &["/.well-known/agents.json", "/.well-known/agent.json", "/.well-known/agent-card.json"],
        Kind::Catalog => &["/.well-known/ai-catalog.json"],
        // A broker has no list; its feed is `MqttFeed`.
        Kind::Mqtt => &[],
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
