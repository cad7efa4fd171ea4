//! Filters by capability, tag, language and status (R15, R22).

use super::{Filters, Word, bits::Bits, read::start, state::State};
use std::collections::BTreeSet;

/// Maximum length of a capability, tag or language in bytes; the rest is ignored.
const LONGEST: usize = 256;

/// Property that a filter compares.
#[derive(Clone, Copy)]
pub(super) enum Facet {
    Capability,
    Tag,
    Language,
}

/// Returns the index term of agents with this value. It starts with a character that no word contains.
pub(super) fn facet(facet: Facet, value: &str) -> String {
    let mark = match facet {
        Facet::Capability => "\u{1}c",
        Facet::Tag => "\u{1}t",
        Facet::Language => "\u{1}l",
    };
    let value = start(value.trim(), LONGEST).to_lowercase();
    match facet {
        Facet::Language => format!("{mark}{}", value.replace('_', "-")),
        _ => format!("{mark}{value}"),
    }
}

/// Returns the slots of the agents in `snapshot` that match `filters`.
pub(super) fn pass(state: &State, filters: &Filters) -> Bits {
    let mut wanted = with_status(state, &filters.status);
    let values = [(Facet::Capability, &filters.capabilities), (Facet::Tag, &filters.tags)];
    let words: BTreeSet<String> =
        values.into_iter().flat_map(|(kind, values)| values.iter().map(move |value| facet(kind, value))).collect();
    for word in words {
        if wanted.is_empty() {
            return wanted;
        }
        let mut having = Bits::empty(state.agents.len());
        state.lexicon.find(&word).into_iter().for_each(|at| mark(state, at, &mut having));
        wanted.keep(&having);
    }
    let languages: BTreeSet<String> = filters.languages.iter().map(|range| facet(Facet::Language, range)).collect();
    let any = [facet(Facet::Language, ""), facet(Facet::Language, "*")];
    for range in languages.iter().filter(|range| !any.contains(range)) {
        if wanted.is_empty() {
            return wanted;
        }
        wanted.keep(&speaking(state, range));
    }
    wanted
}

fn with_status(state: &State, status: &[Word]) -> Bits {
    let status = if status.is_empty() { &[Word::Active, Word::Deprecated] } else { status };
    let mut wanted = Bits::empty(state.agents.len());
    for word in status {
        wanted.join(match word {
            Word::Active => &state.active,
            Word::Inactive => &state.inactive,
            Word::Deprecated => &state.deprecated,
        });
    }
    wanted
}

/// Basic filtering of RFC 4647: `zh` matches `zh` and every tag with the prefix `zh-`. Agents without languages match
/// every range.
fn speaking(state: &State, range: &str) -> Bits {
    let mut having = Bits::empty(state.agents.len());
    let exact = [range, &facet(Facet::Language, "")];
    let places = exact.into_iter().filter_map(|term| state.lexicon.find(term));
    places.chain(state.lexicon.beginning(&format!("{range}-"))).for_each(|at| mark(state, at, &mut having));
    having
}

fn mark(state: &State, at: usize, having: &mut Bits) {
    state.lexicon.postings(at).slots().for_each(|slot| having.insert(slot));
}
