//! Summary of an agent in lists: enough to choose by, without the whole document (R22).

use super::address_redaction::AddressRedactor;
use crate::agent::{Agent, AgentStatus};
use serde::Serialize;
use std::{borrow::Cow, sync::Arc};

/// An agent in a list.
#[derive(Debug, Serialize)]
pub(super) struct AgentSummary<'a> {
    id: &'a str,
    name: Cow<'a, str>,
    description: Cow<'a, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    publisher: Option<Cow<'a, str>>,
    endpoint: String,
    capabilities: Vec<Cow<'a, str>>,
    tags: Vec<Cow<'a, str>>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    supported_languages: &'a [Arc<str>],
    status: &'static str,
    /// Present in ranked results only.
    #[serde(skip_serializing_if = "Option::is_none")]
    score: Option<f64>,
}

impl<'a> AgentSummary<'a> {
    pub(super) fn new(agent: &'a Agent, redactor: &AddressRedactor<'_>, score: Option<f32>) -> Self {
        Self {
            id: agent.id.as_str(),
            name: redactor.redact_text(entry_text(&agent.name)),
            description: redactor.redact_text(entry_text(&agent.description)),
            version: agent.version.as_deref().map(entry_text),
            publisher: agent.publisher.as_deref().map(|publisher| redactor.redact_text(entry_text(publisher))),
            endpoint: redactor.public_endpoint().into_owned(),
            capabilities: redactor.redact_list(entry_words(&agent.capabilities)),
            tags: redactor.redact_list(entry_words(&agent.tags)),
            supported_languages: entry_words(&agent.languages),
            status: status_name(agent),
            score: score.map(round_score),
        }
    }
}

/// Maximum number of characters of a text in an entry of a list.
const MAX_ENTRY_TEXT_CHARS: usize = 2_000;
/// Maximum bytes of the words of one member of an entry.
const MAX_ENTRY_WORD_BYTES: usize = 8 << 10;

/// Returns the beginning of a text of an agent, for an entry of a list.
pub(super) fn entry_text(text: &str) -> &str {
    text.char_indices().nth(MAX_ENTRY_TEXT_CHARS).map_or(text, |(at, _)| text.get(..at).unwrap_or(text))
}

/// Returns the first tags, capabilities or languages of an agent, for an entry of a list.
pub(super) fn entry_words(words: &[Arc<str>]) -> &[Arc<str>] {
    let mut bytes = 0;
    let fits = |word: &&Arc<str>| {
        bytes += word.len();
        bytes <= MAX_ENTRY_WORD_BYTES
    };
    words.get(..words.iter().take_while(fits).count()).unwrap_or(words)
}

/// Rounds a score to four digits.
pub(super) fn round_score(score: f32) -> f64 {
    (f64::from(score) * 10_000.0).round() / 10_000.0
}

/// Returns the status as in documents.
pub(super) fn status_name(agent: &Agent) -> &'static str {
    match agent.status {
        AgentStatus::Active => "active",
        AgentStatus::Inactive => "inactive",
        AgentStatus::Deprecated(_) => "deprecated",
    }
}

/// Returns the first sentence of a description, up to a maximum length.
pub(super) fn first_sentence(text: &str) -> &str {
    const MAX_SENTENCE_CHARS: usize = 200;
    let line = text.trim().lines().next().unwrap_or_default().trim();
    let ends = [". ", "! ", "? ", "。", "！", "？"];
    let end = ends.iter().filter_map(|end| line.find(end).map(|at| at + end.trim_end().len())).min();
    let sentence = line.get(..end.unwrap_or(line.len())).unwrap_or(line);
    sentence.char_indices().nth(MAX_SENTENCE_CHARS).and_then(|(at, _)| sentence.get(..at)).unwrap_or(sentence)
}
