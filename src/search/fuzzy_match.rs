//! Fuzzy matching of terms that no visible agent has: misspelled words, and words that are not complete.

use super::{inverted_index::InvertedIndex, visibility_mask::VisibilityMask};
use crate::values::edit_distance;

/// Maximum number of terms compared; more may share the first letter of a common word.
const MAX_COMPARED_TERMS: usize = 20_000;
/// Maximum number of terms that one word may match.
const MAX_SIMILAR_TERMS: usize = 4;

/// Returns the positions of the terms of visible agents that are most similar to `term`, the likeliest first, each with
/// its likelihood.
pub(super) fn similar_terms(index: &InvertedIndex, visible: &VisibilityMask, term: &str) -> Vec<(usize, f32)> {
    let letters: Vec<char> = term.chars().collect();
    let max_distance = match letters.len() {
        0..=2 => return Vec::new(),
        3..=4 => 0,
        5..=8 => 1,
        9..=20 => 2,
        _ => 0,
    };
    // A number must match exactly.
    let (Some(first), true) = (letters.first(), letters.iter().all(|c| c.is_alphabetic())) else { return Vec::new() };
    let range = index.prefix_range(first.encode_utf8(&mut [0; 4]));
    let mut candidates: Vec<(usize, usize, usize)> = range
        // Before the limit: terms of hidden agents must not displace others.
        .filter(|position| visible.has_term(index.postings(*position)))
        .take(MAX_COMPARED_TERMS)
        .filter_map(|position| {
            let other = index.term(position);
            let cost = if other.starts_with(term) { 1 } else { edit_distance(&letters, other, max_distance)? };
            Some((cost, usize::MAX - visible.document_frequency(index.postings(position)), position))
        })
        .collect();
    candidates.sort_unstable();
    candidates.truncate(MAX_SIMILAR_TERMS);
    candidates.into_iter().map(|(cost, _, position)| (position, if cost <= 1 { 0.8 } else { 0.6 })).collect()
}
