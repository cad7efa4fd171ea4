//! What was tried for a name, in order, and what came of it: told with every answer. Callers read outcomes in four
//! words that say nothing of addresses; what exactly went wrong is for logs, and for whoever sits at the machine.

use crate::net::Url;
use serde_json::{Value, json};
use std::time::Instant;

/// Steps that are told; resolution is bounded well below.
const MOST: usize = 64;

/// What came of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It led on.
    Found,
    /// There is nothing.
    Absent,
    /// What is there cannot be used.
    Unusable,
    /// Nothing could be learnt: no connection, no answer in time, or an address that is not asked. These are one
    /// word on purpose: what is refused must not be told from what is not there.
    Unreachable,
}

impl Outcome {
    /// The word in answers.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Found => "found",
            Self::Absent => "absent",
            Self::Unusable => "unusable",
            Self::Unreachable => "unreachable",
        }
    }
}

/// One thing that was tried.
#[derive(Clone, Debug)]
pub struct Step {
    /// What was tried: `map`, `explicit`, `agents.json`, `agent.json`, `did`, `webfinger`, `name`, `https`.
    pub kind: &'static str,
    /// Where.
    pub at: String,
    /// What came of it.
    pub outcome: Outcome,
    /// More about it, for the log; it may name addresses.
    pub why: Option<String>,
}

impl Step {
    /// The step as callers read it.
    pub fn public(&self) -> Value {
        json!({"step": self.kind, "at": self.at, "outcome": self.outcome.as_str()})
    }
}

/// The steps so far, and how long what they say may be used.
#[derive(Debug, Default)]
pub(super) struct Trail {
    steps: Vec<Step>,
    until: Option<Instant>,
    dead: Vec<String>,
}

impl Trail {
    pub(super) fn note(&mut self, kind: &'static str, at: impl ToString, outcome: Outcome) {
        self.explain(kind, at, outcome, None);
    }

    pub(super) fn explain(&mut self, kind: &'static str, at: impl ToString, outcome: Outcome, why: Option<String>) {
        if self.steps.len() < MOST {
            self.steps.push(Step { kind, at: at.to_string(), outcome, why });
        }
    }

    /// What was learnt holds until then, and so does everything that is made of it.
    pub(super) fn holds(&mut self, until: Instant) {
        self.until = Some(self.until.map_or(until, |known| known.min(until)));
    }

    /// The host of `url` does not answer: it is not waited for again.
    pub(super) fn is_dead(&mut self, url: &Url) {
        self.dead.push(url.origin().ascii_serialization());
    }

    pub(super) fn knows_dead(&self, url: &Url) -> bool {
        !self.dead.is_empty() && self.dead.contains(&url.origin().ascii_serialization())
    }

    /// Whether something could not be learnt that might have led on.
    pub(super) fn is_unsure(&self) -> bool {
        self.steps.iter().any(|step| step.outcome == Outcome::Unreachable)
    }

    pub(super) fn until(&self) -> Option<Instant> {
        self.until
    }

    pub(super) fn steps(&self) -> &[Step] {
        &self.steps
    }

    pub(super) fn into_steps(self) -> Vec<Step> {
        self.steps
    }

    /// One line for the log.
    pub(super) fn told(&self) -> String {
        let each = self.steps.iter().map(|step| {
            let why = step.why.as_ref().map(|why| format!(" ({why})")).unwrap_or_default();
            format!("{} {}: {}{why}", step.kind, step.at, step.outcome.as_str())
        });
        each.collect::<Vec<_>>().join("; ")
    }
}
