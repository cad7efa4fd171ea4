//! The trait of a document store, and the documents, writes and changes that pass through it.

use super::store_connections::StoreConnections;
use crate::fault::Result;
use std::{fmt, sync::Arc, time::Duration};
use time::OffsetDateTime;
use tokio::sync::watch;

/// Maximum number of changes in a document's history; older ones are deleted.
pub const MAX_HISTORY_CHANGES: usize = 100;
/// Maximum size of a document's history, in bytes.
pub const MAX_HISTORY_BYTES: usize = 8 << 20;
/// Maximum number of removed documents that are remembered with their history.
pub const MAX_REMOVED_DOCUMENTS: usize = 10_000;

/// Store of documents.
#[async_trait::async_trait]
pub trait DocumentStore: fmt::Debug + Send + Sync {
    /// Writes or removes one document if the conditions of `write` hold; check and change are one transaction. The
    /// change is durable when this returns.
    ///
    /// # Errors
    /// `Overloaded` when the store cannot be reached or is too busy; the write may or may not have happened then.
    async fn write(&self, write: DocumentWrite) -> Result<WriteOutcome>;

    /// Returns the document with this id.
    ///
    /// # Errors
    /// `Overloaded`, as for every method below.
    async fn get_document(&self, id: &str) -> Result<Option<StoredDocument>>;

    /// Returns at most `limit` changes after `cursor`, in order; without a cursor, all documents.
    ///
    /// # Errors
    /// `Overloaded`.
    async fn changes_since(&self, cursor: Option<&ChangeCursor>, limit: usize) -> Result<ChangeBatch>;

    /// Returns at most `limit` entries of the history of the document with this id, newest first.
    ///
    /// # Errors
    /// `Overloaded`.
    async fn history(&self, id: &str, limit: usize) -> Result<Vec<HistoryEntry>>;

    /// Deletes the entries of all histories that were made before `limit`, the oldest first and a bounded number at
    /// once. Returns how many were deleted.
    ///
    /// # Errors
    /// `Overloaded`.
    async fn delete_history_before(&self, limit: OffsetDateTime) -> Result<u64>;

    /// Returns the last deletion of this id, unless the id has a document or the deletion was forgotten.
    ///
    /// # Errors
    /// `Overloaded`.
    async fn deleted_id(&self, id: &str) -> Result<Option<DeletedId>>;

    /// Notified when documents may have changed, by this gateway or by another one that shares the store.
    fn watch_changes(&self) -> watch::Receiver<u64>;

    /// Returns the connections to the database, if the store has one.
    fn connections(&self) -> Option<StoreConnections> {
        None
    }
}

/// A stored document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredDocument {
    /// Id of the document.
    pub id: Arc<str>,
    /// Text of the document, byte for byte as it was written.
    pub document: Arc<str>,
    /// Owner of the document.
    pub owner: Arc<str>,
    /// Time of the first write.
    pub created: OffsetDateTime,
    /// Time of the last write.
    pub updated: OffsetDateTime,
    /// Number of the change that wrote it. Numbers increase over all documents.
    pub revision: u64,
}

/// The id of a deleted document, which stays reserved for its owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeletedId {
    /// Owner of the deleted document.
    pub owner: Arc<str>,
    /// Time of the deletion.
    pub deleted: OffsetDateTime,
}

impl DeletedId {
    /// Returns whether the id is still reserved at `now`; `retention` is the term of reservations.
    pub fn is_reserved(&self, retention: Duration, now: OffsetDateTime) -> bool {
        // A deletion in the future, by a clock that is ahead, is a recent one.
        !retention.is_zero() && now - self.deleted < retention
    }
}

/// Precondition of a write (RFC 9110 §13.1).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum WritePrecondition {
    /// None.
    #[default]
    Always,
    /// `If-Match`: the document exists with one of these entity tags (quotes included), which [`crate::values::etag`]
    /// computes from its text; `*` matches any.
    Matches(Vec<String>),
    /// `If-None-Match: *`: the document does not exist.
    Absent,
}

/// A change to a document.
#[derive(Clone, Debug)]
pub struct DocumentWrite {
    /// Id of the document.
    pub id: Arc<str>,
    /// The new text; `None` removes the document.
    pub document: Option<Arc<str>>,
    /// The writer.
    pub writer: Arc<str>,
    /// Whether the writer may change a document of another owner.
    pub any_owner: bool,
    /// Precondition.
    pub precondition: WritePrecondition,
    /// Maximum number of documents of the owner, and of all owners. As many deleted ids are reserved; the reservation of
    /// the id that was deleted first ends early.
    pub limits: (u32, u32),
    /// How long the id of a deleted document stays reserved for its owner; zero disables this.
    pub deleted_id_retention: Duration,
    /// Owner and creation time to set; `None` keeps them, and makes the writer the owner of a new document.
    pub restored: Option<(Arc<str>, OffsetDateTime)>,
}

/// Result of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WriteEffect {
    /// The document is new.
    Created(StoredDocument),
    /// The document was replaced, or is unchanged.
    Updated(StoredDocument),
    /// The document was removed, by the change with this number.
    Removed(u64),
}

/// Outcome of a write that reached the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WriteOutcome {
    /// The write happened, or was not necessary.
    Done(WriteEffect),
    /// A condition of the write does not hold.
    Refused(WriteRefusal),
}

impl WriteOutcome {
    /// Returns the effect.
    ///
    /// # Errors
    /// Why the write was refused.
    pub fn into_result(self) -> std::result::Result<WriteEffect, WriteRefusal> {
        match self {
            Self::Done(effect) => Ok(effect),
            Self::Refused(refusal) => Err(refusal),
        }
    }
}

impl From<std::result::Result<WriteEffect, WriteRefusal>> for WriteOutcome {
    fn from(result: std::result::Result<WriteEffect, WriteRefusal>) -> Self {
        match result {
            Ok(effect) => Self::Done(effect),
            Err(refusal) => Self::Refused(refusal),
        }
    }
}

/// Why a write was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteRefusal {
    /// There is no document to remove.
    NotFound,
    /// The document belongs to another owner, or the id is reserved for the owner of the deleted document.
    NotOwner,
    /// The precondition does not hold.
    PreconditionFailed,
    /// The owner has the maximum number of documents.
    OwnerLimit,
    /// The store has the maximum number of documents.
    TotalLimit,
}

/// Position of a reader in the sequence of changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangeCursor {
    /// Identity of the store: another store numbers its changes from the start.
    pub(super) epoch: Arc<str>,
    /// Number of the last change that was read.
    pub(super) revision: u64,
    /// Removals up to this number were forgotten before reading began.
    pub(super) floor: u64,
}

impl ChangeCursor {
    /// Returns the number of the last change that was read.
    pub fn revision(&self) -> u64 {
        self.revision
    }
}

/// A batch of changes.
#[derive(Clone, Debug)]
pub struct ChangeBatch {
    /// The documents that were written or removed, each once.
    pub changes: Vec<DocumentChange>,
    /// Position from which reading continues.
    pub cursor: ChangeCursor,
    /// Whether the reader must discard earlier changes: this batch starts over with all documents.
    pub is_restart: bool,
    /// Whether more changes are available at once.
    pub has_more: bool,
}

/// Change of one document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DocumentChange {
    /// The document was written.
    Put(StoredDocument),
    /// The document with this id was removed.
    Removed(Arc<str>),
}

/// One entry of a document's history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryEntry {
    /// Time of the change.
    pub at: OffsetDateTime,
    /// The writer.
    pub writer: Arc<str>,
    /// Text of the document after the change; `None` if it was removed.
    pub document: Option<Arc<str>>,
}
