//! Slugs: converts arbitrary names and URNs into path-safe identifiers, by one rule that never changes. A name that
//! fits is kept; else every run of other characters becomes one `-`, none at the ends; where nothing is left, or too
//! much, part of the SHA-256 of the name is appended.
//! Two names may have the same slug: the catalogue then serves neither, and reports it.

use crate::{agent::AgentId, registry::document_parser::sha256};
use std::fmt::Write;

/// Number of characters that are kept of a name that is too long.
const MAX_KEPT_LENGTH: usize = 96;

/// Path segments below an agent that are not operations.
const RESERVED_SEGMENTS: &[&str] =
    &["invoke", "agent.json", "agent-card.json", "openapi.json", "history", ".well-known"];

/// The operation that stands for a whole A2A agent: A2A messages name no skill.
pub(super) const MESSAGE_OPERATION: &str = "message";

/// Returns an identifier for `name`.
pub(super) fn slug(name: &str) -> String {
    if AgentId::is_valid(name) {
        return name.to_owned();
    }
    let safe = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '.' | '_' | '-');
    let words = name.split(|letter| !safe(letter)).filter(|word| !word.is_empty());
    let mut slug = words.collect::<Vec<_>>().join("-");
    slug.truncate(slug.len().min(128));
    let short = slug.trim_matches('-');
    match AgentId::is_valid(short) && name.len() <= 128 {
        true => short.to_owned(),
        false => {
            let kept = short.get(..short.len().min(MAX_KEPT_LENGTH)).unwrap_or_default().trim_matches(['-', '.']);
            let kept = if kept.is_empty() { "agent" } else { kept };
            let mut slug = format!("{kept}-");
            for byte in sha256(name.as_bytes()).into_iter().take(8) {
                // Writing into a string cannot fail.
                let _ = write!(slug, "{byte:02x}");
            }
            slug
        }
    }
}

/// Returns the operation name for a skill or capability called `name`; a suffix distinguishes it from reserved path
/// segments.
pub(super) fn operation_name(name: &str) -> String {
    let mut slug = slug(name);
    if RESERVED_SEGMENTS.contains(&slug.as_str()) {
        slug.truncate(120);
        slug.push_str("-skill");
    }
    slug
}
