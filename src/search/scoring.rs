//! Scoring of agents for a text: by shared terms (BM25), by similarity of meaning, or by both. Every score is between 0
//! and 1 and independent of the other agents' scores.

use super::{
    agent_indexer::truncate,
    bitset::Bitset,
    embedding::EmbeddingModel,
    embedding_table::QueryVector,
    fuzzy_match::similar_terms,
    index_snapshot::IndexSnapshot,
    inverted_index::InvertedIndex,
    term_tokenizer::{TermTokenizer, TextRole},
};
use std::collections::BTreeSet;

/// Maximum number of bytes read from a query.
const MAX_QUERY_BYTES: usize = 2_000;
/// Maximum number of different terms in a query.
const MAX_QUERY_TERMS: usize = 64;
/// Maximum number of unknown terms looked up by similarity: each lookup scans a part of the index.
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
    /// Parses `text`. Returns `None` if it has nothing to rank by.
    pub(super) fn new(text: &str, model: Option<&EmbeddingModel>, mode: ScoringMode) -> Option<Self> {
        let text = truncate(text, MAX_QUERY_BYTES);
        let model = model.filter(|_| mode != ScoringMode::Text && text.chars().any(char::is_alphanumeric));
        // Without a known word the embedding would be arbitrary; such words can still match as terms.
        let embedding = model.and_then(|model| model.embed(text)).filter(|direction| direction.known_share > 0.0);
        let terms = if mode == ScoringMode::Semantic && embedding.is_some() { Vec::new() } else { query_terms(text) };
        if terms.is_empty() && embedding.is_none() {
            return None;
        }
        let semantic_weight = match &embedding {
            Some(direction) if !terms.is_empty() => SEMANTIC_WEIGHT * direction.known_share,
            _ => 1.0,
        };
        Some(Self {
            terms,
            query_vector: embedding.map(|direction| QueryVector::new(&direction.components)),
            semantic_weight,
        })
    }

    /// Scores the slots of `matching`, and returns those that match, unordered.
    pub(super) fn score_slots(&self, snapshot: &IndexSnapshot, matching: &Bitset) -> Vec<ScoredSlot> {
        let words = if self.terms.is_empty() { Vec::new() } else { bm25_scores(snapshot, &self.terms) };
        let shared = |slot: u32| words.get(slot as usize).copied().unwrap_or_default();
        let Some(probe) = &self.query_vector else {
            let fits = matching.iter().filter(|slot| shared(*slot) > 0.0);
            return fits.map(|slot| ScoredSlot::new(shared(slot), slot)).collect();
        };
        let fit = |slot: u32| {
            let (shared, alike) = (shared(slot), snapshot.embeddings.cosine_similarity(slot, probe));
            let score = (1.0 - self.semantic_weight) * shared + self.semantic_weight * alike.max(0.0);
            (shared > 0.0 || alike > MIN_SIMILARITY).then(|| ScoredSlot::new(score, slot))
        };
        matching.iter().filter_map(fit).collect()
    }
}

/// Returns the distinct terms of a query, in order.
fn query_terms(text: &str) -> Vec<String> {
    let (mut terms, mut seen) = (Vec::new(), BTreeSet::new());
    TermTokenizer::new(TextRole::Query).tokenize(text, &mut |term| {
        if seen.len() < MAX_QUERY_TERMS && seen.insert(term.to_owned()) {
            terms.push(term.to_owned());
        }
    });
    terms
}

/// Returns the BM25 score of every slot, as a share of the maximum possible score.
fn bm25_scores(snapshot: &IndexSnapshot, terms: &[String]) -> Vec<f32> {
    let mut scores = vec![0.0f32; snapshot.agents.len()];
    let count = snapshot.agents.len() as f32;
    let mean_length = snapshot.lengths.iter().sum::<f32>() / count.max(1.0);
    let inverse_document_frequency = |at: usize| {
        let having = snapshot.terms.postings(at).len() as f32;
        (1.0 + (count - having + 0.5) / (having + 0.5)).ln()
    };
    let unknown_term_weight = (1.0 + (count + 0.5) / 0.5).ln();
    let (mut max_score, mut fuzzy_lookups) = (0.0, MAX_FUZZY_LOOKUPS);
    for term in terms {
        let meant = matching_terms(&snapshot.terms, term, &mut fuzzy_lookups);
        max_score +=
            meant.iter().map(|(at, _)| inverse_document_frequency(*at)).reduce(f32::max).unwrap_or(unknown_term_weight);
        for (at, likely) in meant {
            let worth = likely * inverse_document_frequency(at);
            for (slot, weight) in snapshot.terms.postings(at).iter() {
                let length = snapshot.lengths.get(slot as usize).copied().unwrap_or_default() / mean_length.max(1.0);
                let weight = f32::from(weight);
                let share = weight / (weight + BM25_K1 * (1.0 - BM25_B + BM25_B * length));
                scores.get_mut(slot as usize).into_iter().for_each(|score| *score += worth * share);
            }
        }
    }
    scores.iter_mut().for_each(|score| *score /= max_score);
    scores
}

/// Returns the position of `term`, or of similar terms, each with its likelihood.
fn matching_terms(lexicon: &InvertedIndex, term: &str, fuzzy_lookups: &mut usize) -> Vec<(usize, f32)> {
    if let Some(at) = lexicon.find_term(term) {
        return vec![(at, 1.0)];
    }
    match fuzzy_lookups.checked_sub(1) {
        Some(left) => {
            *fuzzy_lookups = left;
            similar_terms(lexicon, term)
        }
        None => Vec::new(),
    }
}
