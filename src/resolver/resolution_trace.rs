//! Trace of a resolution: the steps tried for a name, in order, with their outcomes. Responses contain the outcomes in
//! four words without internals; the reasons are for the log and the command line.

use super::{json_member_access::quote_name, signature_status::SignatureStatus};
use crate::net::Url;
use serde_json::{Value, json};
use std::time::Instant;

/// Maximum number of recorded steps; the resolver is bounded well below.
const MAX_STEPS: usize = 64;

/// Maximum number of agents that a fault lists.
const MAX_CANDIDATES: usize = 10;

/// Outcome of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepOutcome {
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

impl StepOutcome {
    /// Returns the outcome as written in responses.
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
pub struct TraceStep {
    /// Kind: `map`, `explicit`, `agents.json`, `agent.json`, `did`, `webfinger`, `name`, `https`.
    pub kind: &'static str,
    /// Name or URL that the step used.
    pub location: String,
    /// Outcome of the step.
    pub outcome: StepOutcome,
    /// Reason, for the log; it may contain addresses.
    pub reason: Option<String>,
}

impl TraceStep {
    /// Returns the step as JSON for callers; `shown` returns what they may see of a URL.
    pub fn to_public_json(&self, shown: impl FnOnce(&str) -> String) -> Value {
        json!({"step": self.kind, "at": shown(&self.location), "outcome": self.outcome.as_str()})
    }
}

/// The steps so far, and how long their result is valid.
#[derive(Debug, Default)]
pub(super) struct ResolutionTrace {
    /// For whom the name is resolved.
    caller: Box<str>,
    steps: Vec<TraceStep>,
    expires: Option<Instant>,
    unreachable_origins: Vec<String>,
    /// The agents of a host that the name leaves open.
    candidates: Vec<String>,
    /// The worst status of the descriptors that were used; `None` without one.
    signature: Option<SignatureStatus>,
    /// That of the descriptor of the current name.
    signature_of_name: Option<SignatureStatus>,
}

impl ResolutionTrace {
    pub(super) fn for_caller(caller: &str) -> Self {
        Self { caller: caller.into(), ..Self::default() }
    }

    /// Returns for whom the name is resolved: what it costs counts as theirs.
    pub(super) fn caller(&self) -> &str {
        &self.caller
    }

    pub(super) fn record(&mut self, kind: &'static str, location: impl ToString, outcome: StepOutcome) {
        self.record_with_reason(kind, location, outcome, None);
    }

    pub(super) fn record_with_reason(
        &mut self,
        kind: &'static str,
        location: impl ToString,
        outcome: StepOutcome,
        reason: Option<String>,
    ) {
        if self.steps.len() < MAX_STEPS {
            self.steps.push(TraceStep { kind, location: location.to_string(), outcome, reason });
        }
    }

    /// Records the agents of the host that `agents.json` lists, where the name names none of them.
    pub(super) fn record_candidates<'a>(&mut self, names: impl Iterator<Item = &'a str>) {
        self.candidates = names.take(MAX_CANDIDATES).map(quote_name).collect();
    }

    /// Returns the agents that the name leaves open, if there are several.
    pub(super) fn candidates(&self) -> Option<&[String]> {
        (self.candidates.len() > 1).then_some(&*self.candidates)
    }

    /// Records the signature of a descriptor that was used.
    pub(super) fn record_signature(&mut self, status: SignatureStatus) {
        self.signature_of_name = self.signature_of_name.take().max(Some(status.clone()));
        self.signature = self.signature.take().max(Some(status));
    }

    /// Returns whether a verified descriptor leads from the current name to its result.
    pub(super) fn is_name_verified(&self) -> bool {
        self.signature_of_name == Some(SignatureStatus::Verified)
    }

    /// Starts with another name, to which the current one leads.
    pub(super) fn begin_next_name(&mut self) {
        self.candidates.clear();
        self.signature_of_name = None;
    }

    pub(super) fn signature(&self) -> Option<&SignatureStatus> {
        self.signature.as_ref()
    }

    /// Limits the validity of the result to `expiry`.
    pub(super) fn limit_expiry(&mut self, expiry: Instant) {
        self.expires = Some(self.expires.map_or(expiry, |expires| expires.min(expiry)));
    }

    /// Records that the host of `url` does not respond: later steps skip it.
    pub(super) fn mark_unreachable(&mut self, url: &Url) {
        self.unreachable_origins.push(url.origin().ascii_serialization());
    }

    pub(super) fn is_marked_unreachable(&self, url: &Url) -> bool {
        !self.unreachable_origins.is_empty() && self.unreachable_origins.contains(&url.origin().ascii_serialization())
    }

    /// Returns whether a step that might have had a result could not be completed.
    pub(super) fn is_inconclusive(&self) -> bool {
        self.steps.iter().any(|step| step.outcome == StepOutcome::Unreachable)
    }

    pub(super) fn expires(&self) -> Option<Instant> {
        self.expires
    }

    pub(super) fn steps(&self) -> &[TraceStep] {
        &self.steps
    }

    pub(super) fn into_steps(self) -> Vec<TraceStep> {
        self.steps
    }

    /// Formats the steps as one line for the log.
    pub(super) fn to_log_line(&self) -> String {
        let steps = self.steps.iter().map(|step| {
            let why = step.reason.as_ref().map(|why| format!(" ({why})")).unwrap_or_default();
            format!("{} {}: {}{why}", step.kind, step.location, step.outcome.as_str())
        });
        steps.collect::<Vec<_>>().join("; ")
    }
}
