//! Scoring of agents for a text: by shared terms (BM25), by similarity of meaning, or by both. Every score is between 0
//! and 1. The statistics of terms count visible agents only, and a term of hidden agents alone counts as unknown:
//! hidden agents change neither a score nor the order.

use super::{
    bitset::Bitset,
    embedding::EmbeddingModel,
    embedding_table::QueryVector,
    fuzzy_match::similar_terms,
    index_snapshot::IndexSnapshot,
    inverted_index::InvertedIndex,
    term_tokenizer::{TermTokenizer, TextRole},
    text_truncation::truncate,
    visibility_mask::VisibilityMask,
};
use std::collections::BTreeSet;

/// Maximum number of bytes read from a query.
const MAX_QUERY_BYTES: usize = 2_000;
/// Maximum number of different terms in a query.
const MAX_QUERY_TERMS: usize = 64;
/// Maximum number of unknown terms for which similar terms are looked up: each lookup scans a part of the index.
const MAX_FUZZY_LOOKUPS: usize = 4;

/// BM25 parameters: saturation of term frequency (k1) and normalisation by length (b).
const BM25_K1: f32 = 1.2;
const BM25_B: f32 = 0.75;

/// Minimum cosine similarity of a semantic match.
const MIN_SIMILARITY: f32 = 0.3;

/// Scoring that is in force, given the configuration and the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ScoringMode {
    Text,
    Semantic,
    Hybrid,
}

/// Weight of the semantic score if the model knows all words of the query. It decreases with the share of unknown
/// words, whose meaning is a guess.
const SEMANTIC_WEIGHT: f32 = 0.7;

/// A scored slot. The order is by score, the best last; among equal scores the first id is last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ScoredSlot(u64);

impl ScoredSlot {
    fn new(score: f32, slot: u32) -> Self {
        let score = if score > 0.0 { score.min(1.0) } else { 0.0 };
        // The bit patterns of non-negative floats have the order of the numbers.
        Self(u64::from(score.to_bits()) << 32 | u64::from(u32::MAX - slot))
    }

    pub(super) fn slot(self) -> u32 {
        u32::MAX - self.0 as u32
    }

    pub(super) fn score(self) -> f32 {
        f32::from_bits((self.0 >> 32) as u32)
    }
}

/// A parsed query text.
pub(super) struct PreparedQuery {
    terms: Vec<String>,
    query_vector: Option<QueryVector>,
    /// Weight of the semantic score.
    semantic_weight: f32,
}

impl PreparedQuery {
    /// Parses `text`. Returns `None` if the text has no terms and no embedding.
    pub(super) fn new(text: &str, model: Option<&EmbeddingModel>, mode: ScoringMode) -> Option<Self> {
        let text = truncate(text, MAX_QUERY_BYTES);
        let model = model.filter(|_| mode != ScoringMode::Text && text.chars().any(char::is_alphanumeric));
        // Without a known word the embedding would be arbitrary; such words can still match as terms.
        let embedding = model.and_then(|model| model.embed(text)).filter(|embedding| embedding.known_share > 0.0);
        let terms = if mode == ScoringMode::Semantic && embedding.is_some() { Vec::new() } else { query_terms(text) };
        if terms.is_empty() && embedding.is_none() {
            return None;
        }
        let semantic_weight = match &embedding {
            Some(embedding) if !terms.is_empty() => SEMANTIC_WEIGHT * embedding.known_share,
            _ => 1.0,
        };
        Some(Self {
            terms,
            query_vector: embedding.map(|embedding| QueryVector::new(&embedding.components)),
            semantic_weight,
        })
    }

    /// Scores the slots of `matching`, which must all be visible, and returns those that match, unordered.
    pub(super) fn score_slots(
        &self,
        snapshot: &IndexSnapshot,
        visible: &VisibilityMask,
        matching: &Bitset,
    ) -> Vec<ScoredSlot> {
        let term_scores = if self.terms.is_empty() { Vec::new() } else { bm25_scores(snapshot, visible, &self.terms) };
        let term_score = |slot: u32| term_scores.get(slot as usize).copied().unwrap_or_default();
        let Some(query_vector) = &self.query_vector else {
            let matches = matching.iter().filter(|slot| term_score(*slot) > 0.0);
            return matches.map(|slot| ScoredSlot::new(term_score(slot), slot)).collect();
        };
        let scored_slot = |slot: u32| {
            let (term_score, similarity) =
                (term_score(slot), snapshot.embeddings.cosine_similarity(slot, query_vector));
            let score = (1.0 - self.semantic_weight) * term_score + self.semantic_weight * similarity.max(0.0);
            (term_score > 0.0 || similarity > MIN_SIMILARITY).then(|| ScoredSlot::new(score, slot))
        };
        matching.iter().filter_map(scored_slot).collect()
    }
}

/// Returns the distinct terms of a query, in order.
fn query_terms(text: &str) -> Vec<String> {
    let (mut terms, mut distinct) = (Vec::new(), BTreeSet::new());
    TermTokenizer::new(TextRole::Query).tokenize(text, &mut |term| {
        if distinct.len() < MAX_QUERY_TERMS && distinct.insert(term.to_owned()) {
            terms.push(term.to_owned());
        }
    });
    terms
}

/// A term that visible agents have, for a term of the query.
struct MatchedTerm {
    position: usize,
    /// Likelihood that the query means this term.
    likelihood: f32,
    inverse_document_frequency: f32,
}

/// Returns the BM25 score of every slot, as a share of the maximum possible score. The scores of hidden slots are 0.
fn bm25_scores(snapshot: &IndexSnapshot, visible: &VisibilityMask, terms: &[String]) -> Vec<f32> {
    let mut scores = vec![0.0f32; snapshot.agents.len()];
    let mean_length = visible.mean_length().max(1.0);
    let unknown_term_weight = inverse_document_frequency(visible, 0);
    let (mut max_score, mut fuzzy_lookups) = (0.0, MAX_FUZZY_LOOKUPS);
    for term in terms {
        let matches = matching_terms(&snapshot.terms, visible, term, &mut fuzzy_lookups);
        max_score += matches
            .iter()
            .map(|matched| matched.inverse_document_frequency)
            .reduce(f32::max)
            .unwrap_or(unknown_term_weight);
        for matched in matches {
            let term_weight = matched.likelihood * matched.inverse_document_frequency;
            let postings = snapshot.terms.postings(matched.position);
            for (slot, weight) in postings.iter().filter(|(slot, _)| visible.slots().contains(*slot)) {
                let length = snapshot.lengths.get(slot as usize).copied().unwrap_or_default() / mean_length;
                let weight = f32::from(weight);
                let share = weight / (weight + BM25_K1 * (1.0 - BM25_B + BM25_B * length));
                scores.get_mut(slot as usize).into_iter().for_each(|score| *score += term_weight * share);
            }
        }
    }
    scores.iter_mut().for_each(|score| *score /= max_score);
    scores
}

fn inverse_document_frequency(visible: &VisibilityMask, document_frequency: usize) -> f32 {
    let (count, document_frequency) = (visible.agent_count() as f32, document_frequency as f32);
    (1.0 + (count - document_frequency + 0.5) / (document_frequency + 0.5)).ln()
}

/// Returns `term`, or similar terms if no visible agent has it.
fn matching_terms(
    index: &InvertedIndex,
    visible: &VisibilityMask,
    term: &str,
    fuzzy_lookups: &mut usize,
) -> Vec<MatchedTerm> {
    let matched_term = |position: usize, likelihood: f32| {
        let document_frequency = visible.document_frequency(index.postings(position));
        let inverse_document_frequency = inverse_document_frequency(visible, document_frequency);
        (document_frequency > 0).then_some(MatchedTerm { position, likelihood, inverse_document_frequency })
    };
    if let Some(exact) = index.find_term(term).and_then(|position| matched_term(position, 1.0)) {
        return vec![exact];
    }
    let Some(remaining) = fuzzy_lookups.checked_sub(1) else { return Vec::new() };
    *fuzzy_lookups = remaining;
    let similar = similar_terms(index, visible, term).into_iter();
    similar.filter_map(|(position, likelihood)| matched_term(position, likelihood)).collect()
}
