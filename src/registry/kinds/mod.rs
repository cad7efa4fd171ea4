//! The kinds of registries beyond this machine. A kind says where its list is; what stands in a list is told by its
//! entries. Every document is turned into one metadata document of AIDIP, or refused with the reason.
//!
//! **Ids.** A document's own `id` counts, and is refused where no path can hold it. Where a document has none (A2A
//! cards, descriptors), its key in the map that names it or its `urn:air:` identifier counts, else its `name`, made
//! path-safe by the rule in `name.rs`.

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

/// The feed of a registry of this kind, reached over `web`.
pub(super) fn open(kind: Kind, web: Web, proof: Proof) -> Box<dyn Feed> {
    let starts = starts(kind, web.url());
    Box::new(walk::Walk::new(web, judge::Judge { kind, proof }, starts))
}

/// Where the list may be: a URL without a path stands for where such registries have it.
fn starts(kind: Kind, url: &Url) -> Vec<Url> {
    let places: &[&str] = match kind {
        Kind::Aidip | Kind::Ard => &["/agents"],
        Kind::AgentFramework => &["/.well-known/agentframework/v1/agents"],
        Kind::AgentUri => &["/.well-known/agents.json", "/.well-known/agent.json", "/.well-known/agent-card.json"],
        Kind::Catalog => &["/.well-known/ai-catalog.json"],
        // A broker has no list: its feed is another.
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
