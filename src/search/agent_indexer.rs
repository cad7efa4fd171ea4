//! Indexing of one agent: its terms with their weights, its text for the embedding, and its filter facets.

use super::{
    facet_term::{Facet, facet_term},
    inverted_index::PostingsBuilder,
    term_tokenizer::{TermTokenizer, TextRole},
    text_truncation::truncate,
};
use crate::agent::Agent;

/// Maximum number of bytes indexed of one agent's text; the rest cannot be found.
const MAX_TEXT_BYTES: usize = 16 << 10;
/// Maximum number of bytes indexed of one field.
const MAX_FIELD_BYTES: usize = 4 << 10;

/// Weights of a term by the field that has it.
const NAME_WEIGHT: u8 = 3;
const KEYWORD_WEIGHT: u8 = 2;
const TEXT_WEIGHT: u8 = 1;

/// Indexes agents, one after another.
pub(super) struct AgentIndexer {
    tokenizer: TermTokenizer,
    text: String,
}

impl Default for AgentIndexer {
    fn default() -> Self {
        Self { tokenizer: TermTokenizer::new(TextRole::Agent), text: String::new() }
    }
}

impl AgentIndexer {
    /// Records the terms of `agent` in `postings`, and returns the length of its text in weights.
    pub(super) fn index_agent(&mut self, agent: &Agent, slot: u32, postings: &mut PostingsBuilder) -> f32 {
        self.text.clear();
        let mut length = 0.0;
        let mut index_field = |field: &str, weight: u8| {
            let field = truncate(field, MAX_FIELD_BYTES.min(MAX_TEXT_BYTES.saturating_sub(self.text.len())));
            self.tokenizer.tokenize(field, &mut |term| {
                length += f32::from(weight);
                postings.add(slot, term, weight);
            });
            append_split_words(field, &mut self.text);
            self.text.push_str(". ");
        };
        index_field(&agent.name, NAME_WEIGHT);
        index_field(&agent.description, TEXT_WEIGHT);
        for words in [&agent.capabilities, &agent.tags] {
            words.iter().for_each(|word| index_field(word, KEYWORD_WEIGHT));
        }
        for operation in &agent.operations {
            index_field(&operation.name, TEXT_WEIGHT);
            index_field(&operation.description, TEXT_WEIGHT);
        }
        // An id is indexed as words only: it has no meaning, so the embedding excludes it.
        self.tokenizer.tokenize(agent.id.as_str(), &mut |term| postings.add(slot, term, KEYWORD_WEIGHT));
        for_each_facet_term(agent, |term| postings.add(slot, term, 1));
        length
    }

    /// Returns the text of the agent that was indexed last.
    pub(super) fn indexed_text(&self) -> &str {
        &self.text
    }
}

fn for_each_facet_term(agent: &Agent, mut emit: impl FnMut(&str)) {
    agent.capabilities.iter().for_each(|value| emit(&facet_term(Facet::Capability, value)));
    agent.tags.iter().for_each(|value| emit(&facet_term(Facet::Tag, value)));
    agent.languages.iter().for_each(|language| emit(&facet_term(Facet::Language, language)));
    if agent.languages.is_empty() {
        emit(&facet_term(Facet::Language, ""));
    }
}

/// Appends `field`, with camelCase words such as `translateText` split.
fn append_split_words(field: &str, text: &mut String) {
    let mut previous_is_lowercase = false;
    for c in field.chars() {
        if previous_is_lowercase && c.is_uppercase() {
            text.push(' ');
        }
        previous_is_lowercase = c.is_lowercase();
        text.push(c);
    }
}
