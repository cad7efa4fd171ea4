//! Inverted index: every term in order, with the slots of the agents that have it. It is immutable; an update merges
//! the remaining postings with the new ones, in one pass over both and without reading any agent again.

use foldhash::fast::RandomState;
use std::{cmp::Ordering, collections::HashMap, ops::Range};

/// Target slot of a removed agent in a slot map.
pub(super) const REMOVED_SLOT: u32 = u32::MAX;

/// Terms and their postings.
#[derive(Debug, Default)]
pub(super) struct InvertedIndex {
    /// All terms in order, concatenated.
    term_text: String,
    /// End of each term in `term_text`.
    term_ends: Vec<usize>,
    /// End of each term's postings.
    postings_ends: Vec<usize>,
    /// The slots of each term, ascending.
    slots: Vec<u32>,
    /// Weight of the term in the agent of the slot.
    weights: Vec<u8>,
}

/// Collects the terms of new agents before a merge.
#[derive(Default)]
pub(super) struct PostingsBuilder {
    terms: HashMap<Box<str>, Vec<(u32, u8)>, RandomState>,
}

impl PostingsBuilder {
    /// Records that the agent in `slot` has `term`. Slots must come in ascending order.
    pub(super) fn add(&mut self, slot: u32, term: &str, weight: u8) {
        let Some(postings) = self.terms.get_mut(term) else {
            self.terms.insert(term.into(), vec![(slot, weight)]);
            return;
        };
        match postings.last_mut() {
            Some((last, sum)) if *last == slot => *sum = sum.saturating_add(weight),
            _ => postings.push((slot, weight)),
        }
    }
}

/// The postings of one term.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Postings<'a> {
    slots: &'a [u32],
    weights: &'a [u8],
}

impl Postings<'_> {
    pub(super) fn slots(&self) -> impl Iterator<Item = u32> {
        self.slots.iter().copied()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, u8)> {
        self.slots.iter().copied().zip(self.weights.iter().copied())
    }
}

impl InvertedIndex {
    /// Returns the number of terms.
    pub(super) fn len(&self) -> usize {
        self.term_ends.len()
    }

    /// Returns the term at `at`; empty beyond the last.
    pub(super) fn term(&self, position: usize) -> &str {
        self.term_ends
            .get(position)
            .and_then(|end| self.term_text.get(range_start(&self.term_ends, position)..*end))
            .unwrap_or_default()
    }

    /// Returns the postings of the term at `at`.
    pub(super) fn postings(&self, position: usize) -> Postings<'_> {
        let range = self
            .postings_ends
            .get(position)
            .map(|end| range_start(&self.postings_ends, position)..*end)
            .unwrap_or_default();
        Postings {
            slots: self.slots.get(range.clone()).unwrap_or_default(),
            weights: self.weights.get(range).unwrap_or_default(),
        }
    }

    /// Returns the position of `term`.
    pub(super) fn find_term(&self, term: &str) -> Option<usize> {
        let position = self.partition_point(|other| other >= term);
        (position < self.len() && self.term(position) == term).then_some(position)
    }

    /// Returns the positions of the terms that start with `prefix`.
    pub(super) fn prefix_range(&self, prefix: &str) -> Range<usize> {
        let start = self.partition_point(|term| term >= prefix);
        start..self.partition_point(|term| term > prefix && !term.starts_with(prefix)).max(start)
    }

    /// Returns the first position whose term satisfies `is_at_or_after`, which must hold for all later terms too.
    fn partition_point(&self, is_at_or_after: impl Fn(&str) -> bool) -> usize {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low + (high - low) / 2;
            if is_at_or_after(self.term(middle)) { high = middle } else { low = middle + 1 }
        }
        low
    }

    /// Merges the remaining postings, mapped by `slot_map`, with the new ones. `slot_map` preserves the order.
    pub(super) fn merge(&self, slot_map: &[u32], new_terms: PostingsBuilder) -> Self {
        let mut new_terms: Vec<_> = new_terms.terms.into_iter().collect();
        new_terms.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        let new_postings: usize = new_terms.iter().map(|(_, postings)| postings.len()).sum();
        let mut merged = Self::default();
        merged.slots.reserve_exact(self.slots.len() + new_postings);
        merged.weights.reserve_exact(self.slots.len() + new_postings);
        let (mut position, mut new_terms) = (0, new_terms.into_iter().peekable());
        loop {
            let order = match (position < self.len(), new_terms.peek()) {
                (false, None) => break,
                (true, None) => Ordering::Less,
                (false, Some(_)) => Ordering::Greater,
                (true, Some((term, _))) => self.term(position).cmp(term),
            };
            let added = if order.is_ge() { new_terms.next() } else { None };
            let (term, added) = added.as_ref().map_or((None, &[][..]), |(term, added)| (Some(&**term), added));
            if order.is_le() {
                merged.append_term(self.term(position), self.postings(position), slot_map, added)
            } else {
                merged.append_term(term.unwrap_or_default(), Postings::default(), slot_map, added)
            }
            position += usize::from(order.is_le());
        }
        merged.shrink_to_fit();
        merged
    }

    /// Appends a term with its remaining and its new postings, in the order of slots; a term without postings is
    /// omitted.
    fn append_term(&mut self, term: &str, old: Postings<'_>, slot_map: &[u32], new: &[(u32, u8)]) {
        let mut new = new.iter().copied().peekable();
        let previous_len = self.slots.len();
        for (slot, weight) in old.iter() {
            let slot = slot_map.get(slot as usize).copied().unwrap_or(REMOVED_SLOT);
            if slot == REMOVED_SLOT {
                continue;
            }
            while let Some((slot, weight)) = new.next_if(|(new, _)| *new < slot) {
                self.push_posting(slot, weight);
            }
            self.push_posting(slot, weight);
        }
        new.for_each(|(slot, weight)| self.push_posting(slot, weight));
        if self.slots.len() > previous_len {
            self.term_text.push_str(term);
            self.term_ends.push(self.term_text.len());
            self.postings_ends.push(self.slots.len());
        }
    }

    fn push_posting(&mut self, slot: u32, weight: u8) {
        self.slots.push(slot);
        self.weights.push(weight);
    }

    fn shrink_to_fit(&mut self) {
        self.term_text.shrink_to_fit();
        self.term_ends.shrink_to_fit();
        self.postings_ends.shrink_to_fit();
        self.slots.shrink_to_fit();
        self.weights.shrink_to_fit();
    }
}

/// Returns the start of the range at `at`, given the ends of all ranges.
fn range_start(ends: &[usize], position: usize) -> usize {
    position.checked_sub(1).and_then(|previous| ends.get(previous)).copied().unwrap_or(0)
}
