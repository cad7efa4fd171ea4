//! Index terms of the properties that filters compare.

use super::text_truncation::truncate;

/// Maximum length of a capability, tag or language in bytes; the rest is ignored.
const MAX_FACET_BYTES: usize = 256;

/// Property that a filter compares.
#[derive(Clone, Copy)]
pub(super) enum Facet {
    Capability,
    Tag,
    Language,
}

/// Returns the index term of agents with this value. It starts with a character that no word contains.
pub(super) fn facet_term(facet: Facet, value: &str) -> String {
    let prefix = match facet {
        Facet::Capability => "\u{1}c",
        Facet::Tag => "\u{1}t",
        Facet::Language => "\u{1}l",
    };
    let value = truncate(value.trim(), MAX_FACET_BYTES).to_lowercase();
    match facet {
        Facet::Language => format!("{prefix}{}", value.replace('_', "-")),
        _ => format!("{prefix}{value}"),
    }
}
