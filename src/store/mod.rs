//! What must survive or be shared: the documents that were published here, with their history. Embedded in one file,
//! or on a server that several gateways share; both answer the same [`Store`].
//! What a document says, and who may publish it, is not judged here: only whose it is and which one it replaces.

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

/// Changes of one document that are kept, the newest.
pub const KEPT_CHANGES: usize = 100;
/// Bytes of one document's history, beyond which older changes are forgotten although there are few.
pub const KEPT_BYTES: usize = 8 << 20;
/// Removed documents that are remembered, with their history.
pub const KEPT_REMOVED: usize = 10_000;

/// Where documents are kept.
#[async_trait::async_trait]
pub trait Store: fmt::Debug + Send + Sync {
    /// Writes or removes one document, if what `write` asks for holds; both are decided in one transaction. When
    /// this returns, the change survives whatever happens to this process.
    ///
    /// # Errors
    /// `Overloaded` where the store cannot be reached or is too busy; nothing is known to be written then.
    async fn write(&self, write: Write) -> Result<std::result::Result<Written, Refused>>;

    /// The document called `id`.
    ///
    /// # Errors
    /// `Overloaded`, as for every question below.
    async fn get(&self, id: &str) -> Result<Option<Kept>>;

    /// What changed after `mark`, in order, at most `most` changes; everything where there is no mark.
    ///
    /// # Errors
    /// `Overloaded`.
    async fn since(&self, mark: Option<&Mark>, most: usize) -> Result<Since>;

    /// What happened to the document called `id`, the newest first.
    ///
    /// # Errors
    /// `Overloaded`.
    async fn history(&self, id: &str, most: usize) -> Result<Vec<Past>>;

    /// Told whenever something may have changed here or, where the store is shared, elsewhere.
    fn changes(&self) -> watch::Receiver<u64>;
}

/// A document as it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Its id.
    pub id: Arc<str>,
    /// Its text, exactly as it was written.
    pub document: Arc<str>,
    /// Whose it is.
    pub owner: Arc<str>,
    /// When it was first written.
    pub created: OffsetDateTime,
    /// When it was last written.
    pub updated: OffsetDateTime,
    /// The number of the change that made it so; later changes of any document have greater ones.
    pub revision: u64,
}

/// What must hold for a write to happen (RFC 9110 §13.1).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum When {
    /// Nothing.
    #[default]
    Always,
    /// `If-Match`: the document is there with one of these entity tags (quotes included), made by
    /// [`crate::unit::etag`] of its text; `*` is any.
    Matches(Vec<String>),
    /// `If-None-Match: *`: there is no such document.
    Absent,
}

/// One change to be made.
#[derive(Clone, Debug)]
pub struct Write {
    /// Of which document.
    pub id: Arc<str>,
    /// Its text from now on; none to remove it.
    pub document: Option<Arc<str>>,
    /// Who changes it.
    pub by: Arc<str>,
    /// Whether it may be changed though it is somebody else's.
    pub any_owner: bool,
    /// What must hold.
    pub when: When,
    /// Documents that its owner may have, and that there may be at all.
    pub most: (u32, u32),
    /// Whose it is from now on and since when it is there; none to leave that, or to make it the writer's.
    pub restored: Option<(Arc<str>, OffsetDateTime)>,
}

/// What became of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Written {
    /// The document is new.
    Created(Kept),
    /// It replaced another, or is the same as before.
    Updated(Kept),
    /// It was removed, by the change of this number.
    Removed(u64),
}

/// Why a write did not happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// There is nothing to remove.
    NotThere,
    /// The document is somebody else's.
    NotYours,
    /// The document is not the one expected.
    Unexpected,
    /// Its owner has as many as it may have.
    OwnFull,
    /// There are as many as there may be.
    Full,
}

/// How far somebody has read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Which store: another one numbers its changes anew.
    epoch: Arc<str>,
    /// The last change that was read.
    revision: u64,
    /// The changes up to this one that were forgotten before reading began.
    floor: u64,
}

impl Mark {
    /// The number of the last change that was read.
    pub fn revision(&self) -> u64 {
        self.revision
    }
}

/// What changed.
#[derive(Clone, Debug)]
pub struct Since {
    /// The documents that are there, or no longer, each once.
    pub changes: Vec<Change>,
    /// Where to go on.
    pub mark: Mark,
    /// What was read before counts no longer: this begins anew with everything.
    pub whole: bool,
    /// There is more to be read at once.
    pub more: bool,
}

/// What became of one document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// It is this now.
    Put(Kept),
    /// It was removed.
    Gone(Arc<str>),
}

/// One change in a document's history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Past {
    /// When.
    pub at: OffsetDateTime,
    /// Who.
    pub by: Arc<str>,
    /// The document since then; none where it was removed.
    pub document: Option<Arc<str>>,
}

/// Which store.
#[derive(Clone, Debug)]
pub enum Place {
    /// A file on this machine's own disk.
    File(PathBuf),
    /// A PostgreSQL database.
    Database {
        /// Where.
        address: Address,
        /// A PEM file of authorities that are believed besides the system's.
        authorities: Option<PathBuf>,
    },
}

/// Opens a store; tables are made where there are none. A database that is down is no error: it is asked again with
/// every question.
///
/// # Errors
/// The place can never be used as it is written.
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

/// Whether a store could be opened, as far as can be told without making or reaching one.
///
/// # Errors
/// Why it could not.
pub fn check(place: &Place) -> std::result::Result<(), String> {
    match place {
        Place::File(path) => sqlite::check(path),
        Place::Database { address, authorities } => postgres::check(address, authorities.as_deref()),
    }
}

#[cfg(test)]
mod tests;
