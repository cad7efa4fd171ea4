//! What a list says of an agent: enough to choose by, without its whole document (R22).

use super::address::Veil;
use crate::agent::{Agent, Status};
use serde::Serialize;
use std::{borrow::Cow, sync::Arc};

/// An agent in a list.
#[derive(Debug, Serialize)]
pub(super) struct Summary<'a> {
    id: &'a str,
    name: Cow<'a, str>,
    description: Cow<'a, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    publisher: Option<Cow<'a, str>>,
    endpoint: String,
    capabilities: &'a [Arc<str>],
    tags: &'a [Arc<str>],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    supported_languages: &'a [Arc<str>],
    status: &'static str,
    /// Only where agents were ranked.
    #[serde(skip_serializing_if = "Option::is_none")]
    score: Option<f64>,
}

impl<'a> Summary<'a> {
    pub(super) fn of(agent: &'a Agent, veil: &Veil<'_>, score: Option<f32>) -> Self {
        Self {
            id: agent.id.as_str(),
            name: veil.text(&agent.name),
            description: veil.text(cut_at(&agent.description, LONGEST)),
            version: agent.version.as_deref(),
            publisher: agent.publisher.as_deref().map(|publisher| veil.text(publisher)),
            endpoint: veil.endpoint().into_owned(),
            capabilities: &agent.capabilities,
            tags: &agent.tags,
            supported_languages: &agent.languages,
            status: status(agent),
            score: score.map(rounded),
        }
    }
}

/// Characters of a description in a summary; the document has all of it.
const LONGEST: usize = 2_000;

fn cut_at(text: &str, most: usize) -> &str {
    text.char_indices().nth(most).map_or(text, |(at, _)| text.get(..at).unwrap_or(text))
}

/// A score as it is shown: four digits are more than it means.
pub(super) fn rounded(score: f32) -> f64 {
    (f64::from(score) * 10_000.0).round() / 10_000.0
}

/// The status as documents have it.
pub(super) fn status(agent: &Agent) -> &'static str {
    match agent.status {
        Status::Active => "active",
        Status::Inactive => "inactive",
        Status::Deprecated(_) => "deprecated",
    }
}

/// The first sentence of a description, or as much of it as is still short.
pub(super) fn first_sentence(text: &str) -> &str {
    const LONGEST: usize = 200;
    let line = text.trim().lines().next().unwrap_or_default().trim();
    let ends = [". ", "! ", "? ", "。", "！", "？"];
    let end = ends.iter().filter_map(|end| line.find(end).map(|at| at + end.trim_end().len())).min();
    let sentence = line.get(..end.unwrap_or(line.len())).unwrap_or(line);
    sentence.char_indices().nth(LONGEST).and_then(|(at, _)| sentence.get(..at)).unwrap_or(sentence)
}
