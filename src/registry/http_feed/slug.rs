//! Slugs: converts arbitrary names and URNs into path-safe identifiers, by one rule that never changes. A valid name is
//! kept; in another name, every run of invalid characters becomes one `-`, with none at the ends. If the result is
//! empty or too long, or lacks letters of other scripts, part of the SHA-256 of the name is appended.
//! Two names may have the same slug: the catalogue then serves neither, and reports it.

use crate::{
    agent::AgentId,
    values::{encode_hex, sha256},
};

/// Maximum length in bytes of the prefix of a name that is too long.
const MAX_PREFIX_LENGTH: usize = 96;

/// Path segments below an agent that are not operations.
const RESERVED_SEGMENTS: &[&str] =
    &["invoke", "agent.json", "agent-card.json", "openapi.json", "history", ".well-known"];

/// The operation that takes any A2A message: A2A messages name no skill.
pub(super) const MESSAGE_OPERATION: &str = "message";

/// Returns an identifier for `name`.
pub(super) fn slug(name: &str) -> String {
    if AgentId::is_valid(name) {
        return name.to_owned();
    }
    let is_safe = |character: char| character.is_ascii_alphanumeric() || matches!(character, '.' | '_' | '-');
    let words = name.split(|character| !is_safe(character)).filter(|word| !word.is_empty());
    let mut slug = words.collect::<Vec<_>>().join("-");
    slug.truncate(slug.len().min(128));
    let trimmed = slug.trim_matches('-');
    if AgentId::is_valid(trimmed) && name.len() <= 128 && name.is_ascii() {
        trimmed.to_owned()
    } else {
        let prefix = trimmed.get(..trimmed.len().min(MAX_PREFIX_LENGTH)).unwrap_or_default().trim_matches(['-', '.']);
        let prefix = if prefix.is_empty() { "agent" } else { prefix };
        format!("{prefix}-{}", encode_hex(sha256(name.as_bytes()).get(..8).unwrap_or_default()))
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
