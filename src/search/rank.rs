//! Scoring of agents for a text: by shared terms (BM25), by similarity of meaning, or by both. Every score is between 0
//! and 1 and independent of the other agents' scores.

use super::{
    bits::Bits,
    lexicon::Lexicon,
    model::Model,
    near::near,
    read::start,
    state::State,
    vectors::Probe,
    words::{Cutter, Side},
};
use std::collections::BTreeSet;

/// Maximum number of bytes read from a query.
const LONGEST_QUERY: usize = 2_000;
/// Maximum number of different terms in a query.
const MOST_TERMS: usize = 64;
/// Maximum number of unknown terms looked up by similarity: each lookup scans a part of the index.
const MOST_GUESSES: usize = 4;

/// BM25 parameters: saturation of term frequency (k1) and normalisation by length (b).
const SATURATION: f32 = 1.2;
const LENGTH: f32 = 0.75;

/// Minimum cosine similarity of a semantic match.
const LEAST_LIKENESS: f32 = 0.3;

/// Scoring that is in force, given the configuration and the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    Text,
    Semantic,
    Hybrid,
}

/// Weight of the semantic score if the model knows all words of the query. It decreases with the share of unknown
/// words, whose meaning is a guess.
const MEANING: f32 = 0.7;

/// A scored slot. The order is by score, the best last; among equal scores the first id is last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Fit(u64);

impl Fit {
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
pub(super) struct Asked {
    terms: Vec<String>,
    probe: Option<Probe>,
    /// Weight of the semantic score.
    meaning: f32,
}

impl Asked {
    /// Parses `text`. Returns `None` if it has nothing to rank by.
    pub(super) fn new(text: &str, model: Option<&Model>, rule: Rule) -> Option<Self> {
        let text = start(text, LONGEST_QUERY);
        let model = model.filter(|_| rule != Rule::Text && text.chars().any(char::is_alphanumeric));
        // Without a known word the embedding would be arbitrary; such words can still match as terms.
        let direction = model.and_then(|model| model.direction(text)).filter(|direction| direction.known > 0.0);
        let terms = if rule == Rule::Semantic && direction.is_some() { Vec::new() } else { terms(text) };
        if terms.is_empty() && direction.is_none() {
            return None;
        }
        let meaning = match &direction {
            Some(direction) if !terms.is_empty() => MEANING * direction.known,
            _ => 1.0,
        };
        Some(Self { terms, probe: direction.map(|direction| Probe::new(&direction.cells)), meaning })
    }

    /// Scores the slots of `matching`, and returns those that match, unordered.
    pub(super) fn fits(&self, state: &State, wanted: &Bits) -> Vec<Fit> {
        let words = if self.terms.is_empty() { Vec::new() } else { by_words(state, &self.terms) };
        let shared = |slot: u32| words.get(slot as usize).copied().unwrap_or_default();
        let Some(probe) = &self.probe else {
            let fits = wanted.iter().filter(|slot| shared(*slot) > 0.0);
            return fits.map(|slot| Fit::new(shared(slot), slot)).collect();
        };
        let fit = |slot: u32| {
            let (shared, alike) = (shared(slot), state.vectors.likeness(slot, probe));
            let score = (1.0 - self.meaning) * shared + self.meaning * alike.max(0.0);
            (shared > 0.0 || alike > LEAST_LIKENESS).then(|| Fit::new(score, slot))
        };
        wanted.iter().filter_map(fit).collect()
    }
}

/// Returns the distinct terms of a query, in order.
fn terms(text: &str) -> Vec<String> {
    let (mut terms, mut seen) = (Vec::new(), BTreeSet::new());
    Cutter::new(Side::Query).cut(text, &mut |term| {
        if seen.len() < MOST_TERMS && seen.insert(term.to_owned()) {
            terms.push(term.to_owned());
        }
    });
    terms
}

/// Returns the BM25 score of every slot, as a share of the maximum possible score.
fn by_words(state: &State, terms: &[String]) -> Vec<f32> {
    let mut scores = vec![0.0f32; state.agents.len()];
    let count = state.agents.len() as f32;
    let mean = state.lengths.iter().sum::<f32>() / count.max(1.0);
    let rarity = |at: usize| {
        let having = state.lexicon.postings(at).len() as f32;
        (1.0 + (count - having + 0.5) / (having + 0.5)).ln()
    };
    let unknown = (1.0 + (count + 0.5) / 0.5).ln();
    let (mut most, mut guesses) = (0.0, MOST_GUESSES);
    for term in terms {
        let meant = meant(&state.lexicon, term, &mut guesses);
        most += meant.iter().map(|(at, _)| rarity(*at)).reduce(f32::max).unwrap_or(unknown);
        for (at, likely) in meant {
            let worth = likely * rarity(at);
            for (slot, weight) in state.lexicon.postings(at).iter() {
                let length = state.lengths.get(slot as usize).copied().unwrap_or_default() / mean.max(1.0);
                let weight = f32::from(weight);
                let share = weight / (weight + SATURATION * (1.0 - LENGTH + LENGTH * length));
                scores.get_mut(slot as usize).into_iter().for_each(|score| *score += worth * share);
            }
        }
    }
    scores.iter_mut().for_each(|score| *score /= most);
    scores
}

/// Returns the position of `term`, or of similar terms, each with its likelihood.
fn meant(lexicon: &Lexicon, term: &str, guesses: &mut usize) -> Vec<(usize, f32)> {
    if let Some(at) = lexicon.find(term) {
        return vec![(at, 1.0)];
    }
    match guesses.checked_sub(1) {
        Some(left) => {
            *guesses = left;
            near(lexicon, term)
        }
        None => Vec::new(),
    }
}
