//! From names that people and URNs have to identifiers that a path can hold, by one rule that never changes: what
//! fits stays; else every run of other characters becomes one `-`, none at the ends; and where nothing is left, or too
//! much, the SHA-256 of the name stands in.
//! Two names may become one identifier: the catalogue then serves neither, and says so.

use crate::{agent::AgentId, registry::read::sha256};
use std::fmt::Write;

/// Characters of a name that are kept where the whole is too long.
const KEPT: usize = 96;

/// Path segments under an agent that are not its operations.
const RESERVED: &[&str] = &["invoke", "agent.json", "agent-card.json", "openapi.json", "history", ".well-known"];

/// The operation that stands for a whole A2A agent: A2A's bodies name no skill.
pub(super) const MESSAGE: &str = "message";

/// An identifier for `name`.
pub(super) fn slug(name: &str) -> String {
    if AgentId::fits(name) {
        return name.to_owned();
    }
    let safe = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '.' | '_' | '-');
    let words = name.split(|letter| !safe(letter)).filter(|word| !word.is_empty());
    let mut slug = words.collect::<Vec<_>>().join("-");
    slug.truncate(slug.len().min(128));
    let short = slug.trim_matches('-');
    match AgentId::fits(short) && name.len() <= 128 {
        true => short.to_owned(),
        false => {
            let kept = short.get(..short.len().min(KEPT)).unwrap_or_default().trim_matches(['-', '.']);
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

/// The name of an operation for a skill or capability called `name`; words that mean something else in a path are
/// told apart by an ending.
pub(super) fn operation(name: &str) -> String {
    let mut slug = slug(name);
    if RESERVED.contains(&slug.as_str()) {
        slug.truncate(120);
        slug.push_str("-skill");
    }
    slug
}
