//! Filters by capability, tag, language and status (R15, R22).

use super::{
    bitset::Bitset,
    facet_term::{Facet, facet_term},
    index_snapshot::IndexSnapshot,
    search_query::{SearchFilters, StatusFilter},
};
use std::collections::BTreeSet;

/// Returns the slots of the agents in `snapshot` that match `filters`.
pub(super) fn matching_slots(snapshot: &IndexSnapshot, filters: &SearchFilters) -> Bitset {
    let mut matching = slots_with_status(snapshot, &filters.status);
    let values = [(Facet::Capability, &filters.capabilities), (Facet::Tag, &filters.tags)];
    let terms: BTreeSet<String> = values
        .into_iter()
        .flat_map(|(facet, values)| values.iter().map(move |value| facet_term(facet, value)))
        .collect();
    for term in terms {
        if matching.is_empty() {
            return matching;
        }
        let mut with_term = Bitset::with_capacity(snapshot.agents.len());
        snapshot
            .terms
            .find_term(&term)
            .into_iter()
            .for_each(|position| insert_postings(snapshot, position, &mut with_term));
        matching.intersect(&with_term);
    }
    let languages: BTreeSet<String> =
        filters.languages.iter().map(|range| facet_term(Facet::Language, range)).collect();
    let wildcards = [facet_term(Facet::Language, ""), facet_term(Facet::Language, "*")];
    for range in languages.iter().filter(|range| !wildcards.contains(range)) {
        if matching.is_empty() {
            return matching;
        }
        matching.intersect(&slots_with_language(snapshot, range));
    }
    matching
}

fn slots_with_status(snapshot: &IndexSnapshot, status: &[StatusFilter]) -> Bitset {
    let status = if status.is_empty() { &[StatusFilter::Active, StatusFilter::Deprecated] } else { status };
    let mut matching = Bitset::with_capacity(snapshot.agents.len());
    for status_filter in status {
        matching.union(match status_filter {
            StatusFilter::Active => &snapshot.active,
            StatusFilter::Inactive => &snapshot.inactive,
            StatusFilter::Deprecated => &snapshot.deprecated,
        });
    }
    matching
}

/// Basic filtering of RFC 4647: `zh` matches `zh` and every tag with the prefix `zh-`. Agents without languages match
/// every range.
fn slots_with_language(snapshot: &IndexSnapshot, range: &str) -> Bitset {
    let mut slots = Bitset::with_capacity(snapshot.agents.len());
    let exact = [range, &facet_term(Facet::Language, "")];
    let positions = exact.into_iter().filter_map(|term| snapshot.terms.find_term(term));
    positions
        .chain(snapshot.terms.prefix_range(&format!("{range}-")))
        .for_each(|position| insert_postings(snapshot, position, &mut slots));
    slots
}

fn insert_postings(snapshot: &IndexSnapshot, position: usize, slots: &mut Bitset) {
    snapshot.terms.postings(position).slots().for_each(|slot| slots.insert(slot));
}
