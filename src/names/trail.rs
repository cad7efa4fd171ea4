//! Trace of a resolution: the steps tried for a name, in order, with their outcomes. Responses contain the outcomes in
//! four words without internals; the reasons are for the log and the command line.

use crate::net::Url;
use serde_json::{Value, json};
use std::time::Instant;

/// Maximum number of recorded steps; the resolver is bounded well below.
const MOST: usize = 64;

/// Outcome of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The step had a result.
    Found,
    /// There is nothing at the address.
    Absent,
    /// The document or entry is invalid.
    Unusable,
    /// No connection, no response in time, or a forbidden address. These share one word on purpose: a caller must not
    /// be able to tell a forbidden address from an absent host.
    Unreachable,
}

impl Outcome {
    /// Returns the word in responses.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Found => "found",
            Self::Absent => "absent",
            Self::Unusable => "unusable",
            Self::Unreachable => "unreachable",
        }
    }
}

/// One step that was tried.
#[derive(Clone, Debug)]
pub struct Step {
    /// Kind: `map`, `explicit`, `agents.json`, `agent.json`, `did`, `webfinger`, `name`, `https`.
    pub kind: &'static str,
    /// Name or URL that the step used.
    pub at: String,
    /// Outcome of the step.
    pub outcome: Outcome,
    /// Reason, for the log; it may contain addresses.
    pub why: Option<String>,
}

impl Step {
    /// Returns the step as JSON for callers.
    pub fn public(&self) -> Value {
        json!({"step": self.kind, "at": self.at, "outcome": self.outcome.as_str()})
    }
}

/// The steps so far, and how long their result is valid.
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

    /// Limits the validity of the result to `until`.
    pub(super) fn holds(&mut self, until: Instant) {
        self.until = Some(self.until.map_or(until, |known| known.min(until)));
    }

    /// Records that the host of `url` does not respond: later steps skip it.
    pub(super) fn is_dead(&mut self, url: &Url) {
        self.dead.push(url.origin().ascii_serialization());
    }

    pub(super) fn knows_dead(&self, url: &Url) -> bool {
        !self.dead.is_empty() && self.dead.contains(&url.origin().ascii_serialization())
    }

    /// Whether a step that might have had a result could not be completed.
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

    /// Formats the steps as one line for the log.
    pub(super) fn told(&self) -> String {
        let each = self.steps.iter().map(|step| {
            let why = step.why.as_ref().map(|why| format!(" ({why})")).unwrap_or_default();
            format!("{} {}: {}{why}", step.kind, step.at, step.outcome.as_str())
        });
        each.collect::<Vec<_>>().join("; ")
    }
}
