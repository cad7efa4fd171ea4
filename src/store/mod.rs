//! Persistent and shared state: published documents with their history, and tasks. Embedded in a SQLite file, or in a
//! PostgreSQL database that several gateways share, behind the same traits. The store knows the owner and revision of a
//! document; it does not validate its content or decide who may publish.

mod database_url;
mod document_sql;
mod postgres;
mod sqlite_documents;
mod tasks;

pub use database_url::DatabaseUrl;
pub use tasks::{StoredTask, TaskStore, open_tasks};

use crate::fault::Result;
use std::{fmt, path::PathBuf, sync::Arc};
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
    async fn write(&self, write: DocumentWrite) -> Result<std::result::Result<WriteEffect, WriteRefusal>>;

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

    /// Notified when documents may have changed, by this gateway or by another one that shares the store.
    fn watch_changes(&self) -> watch::Receiver<u64>;
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
    /// Maximum number of documents of the owner, and of all owners.
    pub limits: (u32, u32),
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

/// Why a write was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteRefusal {
    /// There is no document to remove.
    NotFound,
    /// The document belongs to another owner.
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
    epoch: Arc<str>,
    /// Number of the last change that was read.
    revision: u64,
    /// Removals up to this number were forgotten before reading began.
    floor: u64,
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

/// Location of a store.
#[derive(Clone, Debug)]
pub enum StoreLocation {
    /// A file on a local disk.
    File(PathBuf),
    /// A PostgreSQL database.
    Database {
        /// URL of the database.
        address: DatabaseUrl,
        /// PEM file of certificate authorities to trust besides the system's.
        authorities: Option<PathBuf>,
    },
}

/// Opens a document store and creates missing tables. An unreachable database is no error: it is tried again with every
/// query.
///
/// # Errors
/// The location can never be used as configured.
pub async fn open_documents(location: &StoreLocation) -> std::result::Result<Arc<dyn DocumentStore>, String> {
    match location {
        StoreLocation::File(path) => {
            let path = path.clone();
            let opened = tokio::task::spawn_blocking(move || sqlite_documents::SqliteDocumentStore::open(&path)).await;
            Ok(Arc::new(opened.map_err(|error| error.to_string())??))
        }
        StoreLocation::Database { address, authorities } => {
            Ok(Arc::new(postgres::PostgresDocumentStore::open(address, authorities.as_deref()).await?))
        }
    }
}

/// Checks a location without creating or reaching the store.
///
/// # Errors
/// Why the location cannot be used.
pub fn check_location(location: &StoreLocation) -> std::result::Result<(), String> {
    match location {
        StoreLocation::File(path) => sqlite_documents::check_file(path),
        StoreLocation::Database { address, authorities } => postgres::check_url(address, authorities.as_deref()),
    }
}

#[cfg(test)]
mod tests;
