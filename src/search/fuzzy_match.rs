//! Fuzzy matching of terms that no visible agent has: misspelled words, and words that are not complete.

use super::{inverted_index::InvertedIndex, visibility_mask::VisibilityMask};

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

/// Returns the edit distance to `other` (with swaps of neighbours); `None` if it exceeds `max_distance`.
fn edit_distance(letters: &[char], other: &str, max_distance: usize) -> Option<usize> {
    if max_distance == 0
        || other.len() + max_distance < letters.len()
        || other.len() > 4 * (letters.len() + max_distance)
    {
        return None;
    }
    let other: Vec<char> = other.chars().collect();
    if other.len().abs_diff(letters.len()) > max_distance {
        return None;
    }
    // Rows of the Damerau-Levenshtein table: two before, one before, the current one.
    let mut oldest = vec![usize::MAX; other.len() + 1];
    let mut older: Vec<usize> = (0..=other.len()).collect();
    let mut previous_letter = None;
    for (row_number, letter) in letters.iter().enumerate() {
        let mut row = Vec::with_capacity(other.len() + 1);
        row.push(row_number + 1);
        let (mut left, mut min_cost) = (row_number + 1, row_number + 1);
        let mut previous_other = None;
        for (column, other_letter) in other.iter().enumerate() {
            let cell = |row: &[usize], at: usize| row.get(at).copied().unwrap_or(usize::MAX);
            let mut cost = (cell(&older, column) + usize::from(letter != other_letter)).min(left + 1);
            cost = cost.min(cell(&older, column + 1) + 1);
            if previous_other == Some(letter) && previous_letter == Some(other_letter) {
                cost = cost.min(cell(&oldest, column - 1) + 1);
            }
            row.push(cost);
            (left, min_cost, previous_other) = (cost, min_cost.min(cost), Some(other_letter));
        }
        if min_cost > max_distance {
            return None;
        }
        (oldest, older, previous_letter) = (older, row, Some(letter));
    }
    older.last().copied().filter(|cost| *cost <= max_distance)
}
