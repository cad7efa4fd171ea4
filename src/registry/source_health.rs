//! Health of a source, for operators.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

/// Health of a source.
#[derive(Clone, Debug)]
pub struct SourceHealth {
    /// Name of the source.
    pub name: Arc<str>,
    /// Protocol of the source.
    pub kind: &'static str,
    /// Whether the gateway is not ready before the source was read once.
    pub is_required: bool,
    /// Whether the source was read once, from its server or from disk.
    pub is_read: bool,
    /// Number of agents that can be called.
    pub agents: usize,
    /// Counts the changes of the source's agents.
    pub revision: u64,
    /// Time of the last successful poll.
    pub last_success: Option<SystemTime>,
    /// Whether the last successful poll is too long ago, so that the source's agents are not served.
    pub stale: bool,
    /// Whether the content was read from disk and the source has not been polled successfully since startup.
    pub from_disk: bool,
    /// Error of the last poll.
    pub error: Option<String>,
    /// The first parts that cannot be read and keep their previous agents, each with the reason.
    pub unreadable_parts: Vec<String>,
    /// What operators should know about the source, such as nested catalogues that are left out.
    pub warnings: Vec<String>,
    /// Number of agents that a withheld update would remove.
    pub withheld_loss: Option<usize>,
    /// What operators should know about the documents that are served.
    pub document_warnings: Arc<DocumentWarnings>,
    /// The documents of what the gateway does not call, with the reasons.
    pub unsupported_documents: Arc<DocumentWarnings>,
}

/// What operators should know about documents of a source.
#[derive(Debug, Default)]
pub struct DocumentWarnings {
    /// Number of documents.
    pub documents: usize,
    /// What there is to know about the first of them, each with the agent's id where it is known.
    pub first: Vec<String>,
}

impl SourceHealth {
    /// Returns whether the source is required and was never read: its agents are unknown.
    pub fn is_awaited(&self) -> bool {
        self.is_required && !self.is_read
    }

    /// Returns the time since the last successful poll.
    pub fn age(&self) -> Option<Duration> {
        self.last_success.map(|last_success| SystemTime::now().duration_since(last_success).unwrap_or_default())
    }

    /// Returns a warning for operators, if the source is not healthy.
    pub fn warning(&self) -> Option<String> {
        let error = self.error.as_deref().unwrap_or("no response yet");
        match (self.withheld_loss, self.age()) {
            (Some(lost), _) => Some(format!(
                "loss guard: {lost} of {} agents would be removed (confirm with POST /sources/{}/confirm)",
                self.agents, self.name
            )),
            (None, Some(age)) if self.stale => {
                Some(format!("no successful poll for {}s: its agents are not served ({error})", age.as_secs()))
            }
            (None, Some(age)) if self.from_disk => {
                Some(format!("agents of {}s ago are served from disk ({error})", age.as_secs()))
            }
            (None, Some(age)) if self.error.is_some() => {
                Some(format!("agents of {}s ago are served ({error})", age.as_secs()))
            }
            (None, None) => Some(format!("no agents known yet ({error})")),
            (None, Some(_)) => {
                let unreadable =
                    self.unreadable_parts.first().map(|first| format!("previous agents are served ({first})"));
                let warnings: Vec<String> = unreadable.into_iter().chain(self.warnings.iter().cloned()).collect();
                (!warnings.is_empty()).then(|| warnings.join("; "))
            }
        }
    }
}
