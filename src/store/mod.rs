//! Persistent and shared state: published documents with their history, and tasks. Embedded in a SQLite file, or in a
//! PostgreSQL database that several gateways share, behind the same traits. The store knows the owner and revision of a
//! document; it does not validate its content or decide who may publish.

mod address;
mod plan;
mod postgres;
mod sqlite;
mod tasks;

pub use address::Address;
pub use tasks::{KeptTask, Tasks, open_tasks};

use crate::fault::Result;
use std::{fmt, path::PathBuf, sync::Arc};
use time::OffsetDateTime;
use tokio::sync::watch;

/// Maximum number of changes in a document's history; older ones are deleted.
pub const KEPT_CHANGES: usize = 100;
/// Maximum size of a document's history in bytes, whatever the number of its changes.
pub const KEPT_BYTES: usize = 8 << 20;
/// Maximum number of removed documents that are remembered with their history.
pub const KEPT_REMOVED: usize = 10_000;

/// Store of documents.
#[async_trait::async_trait]
pub trait Store: fmt::Debug + Send + Sync {
    /// Writes or removes one document if the conditions of `write` hold; check and change are one transaction. The
    /// change is durable when this returns.
    ///
    /// # Errors
    /// `Overloaded` when the store cannot be reached or is too busy; the write may or may not have happened then.
    async fn write(&self, write: Write) -> Result<std::result::Result<Written, Refused>>;

    /// Returns the document with this id.
    ///
    /// # Errors
    /// `Overloaded`, as for every method below.
    async fn get(&self, id: &str) -> Result<Option<Kept>>;

    /// Returns at most `most` changes after `mark`, in order; without a mark, all documents.
    ///
    /// # Errors
    /// `Overloaded`.
    async fn since(&self, mark: Option<&Mark>, most: usize) -> Result<Since>;

    /// Returns the history of the document with this id, newest first.
    ///
    /// # Errors
    /// `Overloaded`.
    async fn history(&self, id: &str, most: usize) -> Result<Vec<Past>>;

    /// Notified when documents may have changed, by this gateway or by another one that shares the store.
    fn changes(&self) -> watch::Receiver<u64>;
}

/// A stored document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
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
pub enum When {
    /// None.
    #[default]
    Always,
    /// `If-Match`: the document exists with one of these entity tags (quotes included), which [`crate::unit::etag`]
    /// computes from its text; `*` matches any.
    Matches(Vec<String>),
    /// `If-None-Match: *`: the document does not exist.
    Absent,
}

/// A change to a document.
#[derive(Clone, Debug)]
pub struct Write {
    /// Id of the document.
    pub id: Arc<str>,
    /// The new text; `None` removes the document.
    pub document: Option<Arc<str>>,
    /// The writer.
    pub by: Arc<str>,
    /// Whether the writer may change a document of another owner.
    pub any_owner: bool,
    /// Precondition.
    pub when: When,
    /// Maximum number of documents of the owner, and of all owners.
    pub most: (u32, u32),
    /// Owner and creation time to set; `None` keeps them, and makes the writer the owner of a new document.
    pub restored: Option<(Arc<str>, OffsetDateTime)>,
}

/// Result of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Written {
    /// The document is new.
    Created(Kept),
    /// The document was replaced, or is unchanged.
    Updated(Kept),
    /// The document was removed, by the change with this number.
    Removed(u64),
}

/// Why a write was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// There is no document to remove.
    NotThere,
    /// The document belongs to another owner.
    NotYours,
    /// The precondition does not hold.
    Unexpected,
    /// The owner has the maximum number of documents.
    OwnFull,
    /// The store has the maximum number of documents.
    Full,
}

/// Position of a reader in the sequence of changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Identity of the store: another store numbers its changes from the start.
    epoch: Arc<str>,
    /// Number of the last change that was read.
    revision: u64,
    /// Removals up to this number were forgotten before reading began.
    floor: u64,
}

impl Mark {
    /// Returns the number of the last change that was read.
    pub fn revision(&self) -> u64 {
        self.revision
    }
}

/// A batch of changes.
#[derive(Clone, Debug)]
pub struct Since {
    /// The documents that were written or removed, each once.
    pub changes: Vec<Change>,
    /// Position for reading on.
    pub mark: Mark,
    /// Whether earlier changes are void: this batch starts over with all documents.
    pub whole: bool,
    /// Whether more changes are available at once.
    pub more: bool,
}

/// Change of one document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// The document was written.
    Put(Kept),
    /// The document with this id was removed.
    Gone(Arc<str>),
}

/// One entry of a document's history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Past {
    /// Time of the change.
    pub at: OffsetDateTime,
    /// The writer.
    pub by: Arc<str>,
    /// Text of the document after the change; `None` if it was removed.
    pub document: Option<Arc<str>>,
}

/// Location of a store.
#[derive(Clone, Debug)]
pub enum Place {
    /// A file on a local disk.
    File(PathBuf),
    /// A PostgreSQL database.
    Database {
        /// URL of the database.
        address: Address,
        /// PEM file of certificate authorities to trust besides the system's.
        authorities: Option<PathBuf>,
    },
}

/// Opens a document store and creates missing tables. An unreachable database is no error: it is tried again with every
/// query.
///
/// # Errors
/// The location can never be used as configured.
pub async fn open(place: &Place) -> std::result::Result<Arc<dyn Store>, String> {
    match place {
        Place::File(path) => {
            let path = path.clone();
            let opened = tokio::task::spawn_blocking(move || sqlite::Sqlite::open(&path)).await;
            Ok(Arc::new(opened.map_err(|why| why.to_string())??))
        }
        Place::Database { address, authorities } => {
            Ok(Arc::new(postgres::Postgres::open(address, authorities.as_deref()).await?))
        }
    }
}

/// Checks a location without creating or reaching the store.
///
/// # Errors
/// Why the location cannot be used.
pub fn check(place: &Place) -> std::result::Result<(), String> {
    match place {
        Place::File(path) => sqlite::check(path),
        Place::Database { address, authorities } => postgres::check(address, authorities.as_deref()),
    }
}

#[cfg(test)]
mod tests;
