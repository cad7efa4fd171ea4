//! Indexing of one agent: its terms with their weights, its text for the embedding, and its filter facets.

use super::{
    filter::{Facet, facet},
    lexicon::Fresh,
    words::{Cutter, Side},
};
use crate::agent::Agent;

/// Maximum number of bytes indexed of one agent's text; the rest cannot be found.
const MOST_TEXT: usize = 16 << 10;
/// Maximum number of bytes indexed of one field.
const LONGEST_FIELD: usize = 4 << 10;

/// Weights of a term by the field that has it.
const NAME: u8 = 3;
const WORDS: u8 = 2;
const PROSE: u8 = 1;

/// Indexes agents, one after another.
pub(super) struct Reader {
    cutter: Cutter,
    text: String,
}

impl Default for Reader {
    fn default() -> Self {
        Self { cutter: Cutter::new(Side::Agent), text: String::new() }
    }
}

impl Reader {
    /// Records the terms of `agent` in `postings`, and returns the length of its text in weights.
    pub(super) fn read(&mut self, agent: &Agent, slot: u32, fresh: &mut Fresh) -> f32 {
        self.text.clear();
        let mut length = 0.0;
        let mut read = |field: &str, weight: u8| {
            let field = start(field, LONGEST_FIELD.min(MOST_TEXT.saturating_sub(self.text.len())));
            self.cutter.cut(field, &mut |term| {
                length += f32::from(weight);
                fresh.note(slot, term, weight);
            });
            apart(field, &mut self.text);
            self.text.push_str(". ");
        };
        read(&agent.name, NAME);
        read(&agent.description, PROSE);
        for words in [&agent.capabilities, &agent.tags] {
            words.iter().for_each(|word| read(word, WORDS));
        }
        for operation in &agent.operations {
            read(&operation.name, PROSE);
            read(&operation.description, PROSE);
        }
        // An id is indexed as words only: it has no meaning, so the embedding excludes it.
        self.cutter.cut(agent.id.as_str(), &mut |term| fresh.note(slot, term, WORDS));
        facets(agent, |term| fresh.note(slot, term, 1));
        length
    }

    /// Returns the text of the agent that was indexed last.
    pub(super) fn text(&self) -> &str {
        &self.text
    }
}

fn facets(agent: &Agent, mut take: impl FnMut(&str)) {
    agent.capabilities.iter().for_each(|word| take(&facet(Facet::Capability, word)));
    agent.tags.iter().for_each(|word| take(&facet(Facet::Tag, word)));
    agent.languages.iter().for_each(|language| take(&facet(Facet::Language, language)));
    if agent.languages.is_empty() {
        take(&facet(Facet::Language, ""));
    }
}

/// Truncates `text` to at most `max_bytes` bytes.
pub(super) fn start(text: &str, most: usize) -> &str {
    text.split_at(text.floor_char_boundary(most)).0
}

/// Appends `field`, with camelCase words such as `translateText` split.
fn apart(field: &str, text: &mut String) {
    let mut lower = false;
    for c in field.chars() {
        if lower && c.is_uppercase() {
            text.push(' ');
        }
        lower = c.is_lowercase();
        text.push(c);
    }
}
