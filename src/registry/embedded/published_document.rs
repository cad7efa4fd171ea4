//! Published documents, and the changes in their history.

use crate::{
    agent::AgentId,
    store::{HistoryEntry, StoredDocument},
};
use std::sync::Arc;
use time::OffsetDateTime;

/// A published document.
#[derive(Clone, Debug)]
pub struct PublishedDocument {
    /// Id of the agent.
    pub id: AgentId,
    /// The document, as compact JSON.
    pub document: Arc<str>,
    /// Id of the caller that owns the document.
    pub owner: Arc<str>,
    /// When the document was first published.
    pub created: OffsetDateTime,
    /// When the document was last changed.
    pub updated: OffsetDateTime,
}

impl PublishedDocument {
    /// Converts a stored document; `None` where its id is invalid, which only another program could have written.
    pub(super) fn from_stored(stored: StoredDocument) -> Option<Self> {
        Some(Self {
            id: stored.id.parse().ok()?,
            document: stored.document,
            owner: stored.owner,
            created: stored.created,
            updated: stored.updated,
        })
    }
}

/// Result of publishing a document.
#[derive(Clone, Debug)]
pub enum PublishOutcome {
    /// The document is new.
    Created(PublishedDocument),
    /// The document replaced an earlier one of the publisher.
    Updated(PublishedDocument),
}

/// One change in a document's history.
#[derive(Clone, Debug)]
pub struct DocumentRevision {
    /// When the change was made.
    pub at: OffsetDateTime,
    /// Id of the caller that made the change.
    pub writer: Arc<str>,
    /// The document after the change; `None` where it was removed.
    pub document: Option<Arc<str>>,
}

impl From<HistoryEntry> for DocumentRevision {
    fn from(entry: HistoryEntry) -> Self {
        Self { at: entry.at, writer: entry.writer, document: entry.document }
    }
}
