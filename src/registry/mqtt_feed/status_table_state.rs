//! State of the status table: the agents of a broker at one moment, and the updates not yet reported.
//! The status table decides which agents are admitted.

use crate::{
    registry::feed::{DocumentBody, PartUpdate, PollResult, RawDocument},
    values::sha256,
};
use bytes::Bytes;
use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};
use tokio::time::Instant;

/// Name of the part that reports agents which did not fit.
pub(super) const OVERFLOW_PART: &str = "/control/agents/+/status";

/// The retained statuses are complete after this time without a further one.
pub(super) const QUIET_PERIOD: Duration = Duration::from_millis(300);

pub(super) type PartName = Arc<str>;
pub(super) type DocumentDigest = [u8; 32];

#[derive(Debug)]
pub(super) struct StatusTableState {
    pub(super) agents: HashMap<PartName, AgentEntry>,
    pub(super) bytes: usize,
    pub(super) subscription: SubscriptionState,
    /// Counts connections; each agent stores the number of the connection in which it last published.
    pub(super) session: u64,
    /// Whether agents of earlier connections have had time to publish again.
    pub(super) missing_removed: bool,
    /// Parts that are not reported yet.
    pub(super) unreported: HashSet<PartName>,
    /// The last report, by digest, until the registry acknowledges it.
    pub(super) pending_report: Option<PendingReport>,
    /// Whether a complete report was acknowledged.
    pub(super) complete_acknowledged: bool,
    /// Whether the last poll came before the retained statuses were complete.
    pub(super) polled_early: bool,
    /// The connection in which an agent did not fit.
    pub(super) overflowed_in: Option<u64>,
}

#[derive(Debug, Default)]
pub(super) struct PendingReport {
    pub(super) parts: HashMap<PartName, Option<DocumentDigest>>,
    pub(super) complete: bool,
}

#[derive(Debug)]
pub(super) enum SubscriptionState {
    Connecting,
    /// Time of the last retained status, or of the subscription.
    Subscribed(Instant),
    Disconnected(String),
}

#[derive(Debug, Default)]
pub(super) struct AgentEntry {
    pub(super) document: Option<(Bytes, DocumentDigest)>,
    /// Digest of the document that the registry has in force.
    pub(super) in_force: Option<DocumentDigest>,
    pub(super) error: Option<String>,
    pub(super) session: u64,
    pub(super) invalid_timestamp: bool,
}

impl StatusTableState {
    pub(super) fn remove_agent(&mut self, name: &PartName) {
        if let Some(entry) = self.agents.remove(name) {
            self.bytes -= entry.document.map_or(0, |(text, _)| text.len());
            self.unreported.insert(Arc::clone(name));
        }
    }

    pub(super) fn record_overflow(&mut self) {
        if self.overflowed_in.replace(self.session).is_none() {
            self.unreported.insert(OVERFLOW_PART.into());
        }
    }

    /// Logs an invalid timestamp once; nothing depends on it.
    pub(super) fn record_timestamp_validity(&mut self, name: &PartName, invalid: bool) {
        let Some(entry) = self.agents.get_mut(name) else { return };
        if invalid && !entry.invalid_timestamp {
            tracing::warn!(agent = %name, "status accepted without a valid timestamp (RFC 3339 with Z is required)");
        }
        entry.invalid_timestamp = invalid;
    }

    /// Returns a result without parts; with an error, if the broker's statuses are not complete.
    pub(super) fn base_result(&self) -> PollResult {
        match &self.subscription {
            SubscriptionState::Disconnected(why) => PollResult::failed(why.clone()),
            SubscriptionState::Connecting => PollResult::failed("the broker has not responded yet"),
            SubscriptionState::Subscribed(since)
                if !self.complete_acknowledged && !self.missing_removed && since.elapsed() < QUIET_PERIOD =>
            {
                PollResult {
                    poll_soon: true,
                    ..PollResult::failed("the broker's retained statuses are still being received")
                }
            }
            SubscriptionState::Subscribed(_) => PollResult::default(),
        }
    }
}

impl AgentEntry {
    /// Returns the update, the digest of the document that is in force then, and whether another update follows.
    pub(super) fn update(&self) -> (PartUpdate, Option<DocumentDigest>, bool) {
        match (&self.document, &self.error) {
            (Some((_, digest)), Some(why)) if self.in_force == Some(*digest) => {
                (PartUpdate::Unreadable(why.clone()), self.in_force, false)
            }
            (Some((text, digest)), error) => {
                let document = RawDocument::new(*digest, DocumentBody::Text(text.clone()));
                (PartUpdate::Replaced(vec![document]), Some(*digest), error.is_some())
            }
            (None, why) => {
                let why = why.clone().unwrap_or_default();
                let digest = sha256(format!("no document: {why}").as_bytes());
                (PartUpdate::Replaced(vec![RawDocument::new(digest, DocumentBody::Invalid(why))]), None, false)
            }
        }
    }
}
