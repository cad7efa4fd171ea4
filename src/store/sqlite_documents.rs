//! Document store in one SQLite file. One thread writes and one reads, each with its own connection and bounded queue.
//! Queued writes are committed in batches, and each write is answered after its commit.

use super::{
    document_sql::{self, SCHEMA, SCHEMA_VERSION, SqlValue, WriteContext},
    document_store::{
        ChangeBatch, ChangeCursor, DeletedId, DocumentChange, DocumentStore, DocumentWrite, HistoryEntry,
        StoredDocument, WriteEffect, WriteOutcome, WriteRefusal,
    },
};
use crate::fault::{Fault, FaultCode, Result};
use rusqlite::{
    Connection, OpenFlags, OptionalExtension, Row, ToSql, Transaction, TransactionBehavior, params_from_iter,
    types::{ToSqlOutput, ValueRef},
};
use rustix::fs::Access;
use std::{
    fmt,
    fs::{File, OpenOptions},
    io::{ErrorKind, Read},
    os::unix::fs::OpenOptionsExt,
    path::Path,
    sync::Arc,
    thread,
    time::Duration,
};
use time::OffsetDateTime;
use tokio::sync::{mpsc, oneshot, watch};

/// Capacity of the read queue and of the write queue.
const QUEUE_CAPACITY: usize = 256;
/// Maximum number of writes in one commit.
const MAX_BATCH: usize = 64;
/// How long to wait while another process locks the file.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// First bytes of a SQLite file (sqlite.org/fileformat2.html, "The Database Header").
const SQLITE_MAGIC: &[u8] = b"SQLite format 3\0";

type WriteResult = std::result::Result<WriteEffect, WriteRefusal>;
type ReadJob = Box<dyn FnOnce(&mut Connection) + Send>;

struct WriteJob {
    write: DocumentWrite,
    reply: oneshot::Sender<std::result::Result<WriteResult, String>>,
}

/// An open SQLite file.
pub(super) struct SqliteDocumentStore {
    writes: mpsc::Sender<WriteJob>,
    reads: mpsc::Sender<ReadJob>,
    changes: Arc<watch::Sender<u64>>,
}

impl fmt::Debug for SqliteDocumentStore {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("SqliteDocumentStore").finish_non_exhaustive()
    }
}

impl SqliteDocumentStore {
    /// Opens or creates the file. Blocks.
    pub(super) fn open(path: &Path) -> std::result::Result<Self, String> {
        let unusable = |reason: &dyn fmt::Display| format!("{} cannot be used ({reason})", path.display());
        create_private(path).map_err(|error| unusable(&error))?;
        let mut writer = open_connection(path).map_err(|error| unusable(&error))?;
        ensure_schema(&mut writer).map_err(|error| unusable(&error))?;
        let reader = open_connection(path).map_err(|error| unusable(&error))?;
        let (writes, write_queue) = mpsc::channel(QUEUE_CAPACITY);
        let (reads, read_queue) = mpsc::channel(QUEUE_CAPACITY);
        let changes = Arc::new(watch::Sender::new(0));
        let notifier = Arc::clone(&changes);
        let spawn = |name: &str, run: Box<dyn FnOnce() + Send>| {
            thread::Builder::new().name(name.to_owned()).spawn(run).map_err(|error| unusable(&error))
        };
        spawn("store-write", Box::new(move || run_writes(writer, write_queue, &notifier)))?;
        spawn("store-read", Box::new(move || run_reads(reader, read_queue)))?;
        Ok(Self { writes, reads, changes })
    }

    async fn read<T: Send + 'static>(
        &self,
        query: impl FnOnce(&mut Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T> {
        let (reply, receiver) = oneshot::channel();
        let job: ReadJob = Box::new(move |connection| drop(reply.send(query(connection))));
        self.reads.try_send(job).map_err(|_| overloaded())?;
        receiver.await.map_err(|_| overloaded())?.map_err(store_failed)
    }
}

#[async_trait::async_trait]
impl DocumentStore for SqliteDocumentStore {
    async fn write(&self, write: DocumentWrite) -> Result<WriteOutcome> {
        let (reply, receiver) = oneshot::channel();
        self.writes.try_send(WriteJob { write, reply }).map_err(|_| overloaded())?;
        receiver.await.map_err(|_| overloaded())?.map(WriteOutcome::from).map_err(store_failed)
    }

    async fn get_document(&self, id: &str) -> Result<Option<StoredDocument>> {
        let id = id.to_owned();
        self.read(move |connection| select_document(connection, &id)).await
    }

    async fn changes_since(&self, cursor: Option<&ChangeCursor>, limit: usize) -> Result<ChangeBatch> {
        let cursor = cursor.cloned();
        self.read(move |connection| select_changes(&connection.transaction()?, cursor.as_ref(), limit)).await
    }

    async fn history(&self, id: &str, limit: usize) -> Result<Vec<HistoryEntry>> {
        let id = id.to_owned();
        self.read(move |connection| {
            let mut statement = connection.prepare_cached(&to_sqlite_placeholders(document_sql::SELECT_HISTORY))?;
            let entry = |row: &Row<'_>| Ok(document_sql::history_from_columns(row.get(0)?, row.get(1)?, row.get(2)?));
            statement.query_map((id, document_sql::to_i64(limit)), entry)?.collect()
        })
        .await
    }

    async fn delete_history_before(&self, limit: OffsetDateTime) -> Result<u64> {
        let limit = document_sql::to_micros(limit);
        // On the connection of reads, so that no write waits in the queue behind it.
        let delete = to_sqlite_placeholders(document_sql::DELETE_OLD_HISTORY);
        self.read(move |connection| connection.execute(&delete, [limit]).map(|count| count as u64)).await
    }

    async fn deleted_id(&self, id: &str) -> Result<Option<DeletedId>> {
        let id = id.to_owned();
        self.read(move |connection| select_deleted_id(connection, &id)).await
    }

    fn watch_changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }
}

/// Checks that the file is a SQLite database, or could be created.
pub(super) fn check_file(path: &Path) -> std::result::Result<(), String> {
    let unusable = |reason: &dyn fmt::Display| format!("{} cannot be used ({reason})", path.display());
    let mut magic = Vec::new();
    match File::open(path) {
        Ok(file) => {
            file.take(SQLITE_MAGIC.len() as u64).read_to_end(&mut magic).map_err(|error| unusable(&error))?;
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
            let folder_exists = folder.is_none_or(Path::is_dir);
            return if folder_exists { Ok(()) } else { Err(unusable(&"its folder does not exist")) };
        }
        Err(error) => return Err(unusable(&error)),
    }
    if magic.is_empty() || magic == SQLITE_MAGIC { Ok(()) } else { Err(unusable(&"it is not a SQLite database")) }
}

/// Returns the version of the schema of the file, if there is one, without changing the file. The folder must be one that
/// this process may write, because SQLite creates files beside its own.
pub(super) fn inspect_file(path: &Path) -> std::result::Result<Option<i64>, String> {
    check_file(path)?;
    let unusable = |reason: &dyn fmt::Display| format!("{} cannot be used ({reason})", path.display());
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let writable = rustix::fs::access(folder, Access::WRITE_OK | Access::EXEC_OK);
    writable.map_err(|error| unusable(&format_args!("its folder cannot be written: {error}")))?;
    if !path.exists() {
        return Ok(None);
    }
    rustix::fs::access(path, Access::READ_OK | Access::WRITE_OK).map_err(|error| unusable(&error))?;
    let version = || {
        let connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
        connection.busy_timeout(BUSY_TIMEOUT)?;
        if !connection.table_exists(None, "gatepost_state")? {
            return Ok(None);
        }
        connection.query_row(document_sql::SELECT_VERSION, (), |row| row.get(0)).map(Some)
    };
    version().map_err(|error: rusqlite::Error| unusable(&error))
}

fn overloaded() -> Fault {
    Fault::new(FaultCode::Overloaded, "The registry is overloaded").with_retry_after(Duration::from_secs(1))
}

fn store_failed(error: impl fmt::Display) -> Fault {
    Fault::new(FaultCode::Overloaded, "The registry's store failed")
        .with_retry_after(Duration::from_secs(5))
        .with_detail(error)
}

/// Creates the file with mode 0600, unlike SQLite: other users of this machine must not read the agents' documents.
pub(super) fn create_private(path: &Path) -> std::io::Result<()> {
    OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path).map(drop)
}

pub(super) fn open_connection(path: &Path) -> rusqlite::Result<Connection> {
    let connection = Connection::open(path)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.pragma_update(None, "trusted_schema", false)?;
    // In WAL mode readers never wait; with FULL, a commit is on disk before its write is answered.
    connection.pragma_update_and_check(None, "journal_mode", "wal", |_| Ok(()))?;
    connection.pragma_update(None, "synchronous", "full")?;
    Ok(connection)
}

/// Creates the schema of a new file.
///
/// # Errors
/// It has the schema of another gateway, or cannot be written.
pub(super) fn ensure_schema(connection: &mut Connection) -> std::result::Result<(), String> {
    let error_text = |error: rusqlite::Error| error.to_string();
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(error_text)?;
    if transaction.table_exists(None, "gatepost_state").map_err(error_text)? {
        let version = transaction.query_row(document_sql::SELECT_VERSION, (), |row| row.get(0)).map_err(error_text)?;
        return document_sql::check_version(version);
    }
    for tables in [document_sql::CREATE_STATE].iter().chain(&SCHEMA) {
        transaction.execute_batch(tables).map_err(error_text)?;
    }
    transaction
        .execute(
            &to_sqlite_placeholders(document_sql::INSERT_STATE),
            (SCHEMA_VERSION, uuid::Uuid::new_v4().to_string()),
        )
        .map_err(error_text)?;
    transaction.commit().map_err(error_text)
}

/// Replaces `$1` by SQLite's `?1`.
pub(super) fn to_sqlite_placeholders(sql: &str) -> String {
    sql.replace('$', "?")
}

fn run_reads(mut connection: Connection, mut queue: mpsc::Receiver<ReadJob>) {
    while let Some(job) = queue.blocking_recv() {
        job(&mut connection);
    }
}

fn run_writes(mut connection: Connection, mut queue: mpsc::Receiver<WriteJob>, changes: &watch::Sender<u64>) {
    let mut batch = Vec::with_capacity(MAX_BATCH);
    while queue.blocking_recv_many(&mut batch, MAX_BATCH) > 0 {
        // A batch that fails as a whole was rolled back as a whole, so each of its writes failed.
        let outcomes =
            write_batch(&mut connection, &batch).unwrap_or_else(|error| vec![Err(error.to_string()); batch.len()]);
        if outcomes.iter().any(|outcome| matches!(outcome, Ok(Ok(_)))) {
            changes.send_modify(|count| *count += 1);
        }
        for (job, outcome) in batch.drain(..).zip(outcomes) {
            // The caller may have left; the write was committed nevertheless.
            drop(job.reply.send(outcome));
        }
    }
}

fn write_batch(
    connection: &mut Connection,
    batch: &[WriteJob],
) -> rusqlite::Result<Vec<std::result::Result<WriteResult, String>>> {
    let mut transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let mut outcomes = Vec::with_capacity(batch.len());
    for job in batch {
        // A write that is refused or fails is rolled back alone.
        let savepoint = transaction.savepoint()?;
        let outcome = write_one(&savepoint, &job.write);
        if matches!(outcome, Ok((Ok(_), true))) {
            savepoint.commit()?;
        } else {
            savepoint.finish()?;
        }
        outcomes.push(outcome.map(|(outcome, _)| outcome).map_err(|error| error.to_string()));
    }
    transaction.commit()?;
    Ok(outcomes)
}

/// Executes one write. Returns its outcome, and whether the store changed.
fn write_one(connection: &Connection, write: &DocumentWrite) -> rusqlite::Result<(WriteResult, bool)> {
    let mut next_revision = connection.prepare_cached(document_sql::NEXT_REVISION)?;
    let (revision, documents) = next_revision.query_row((), |row| Ok((row.get(0)?, row.get(1)?)))?;
    let current = select_document(connection, &write.id)?;
    let owner_documents = match (&current, &write.document) {
        (None, Some(_)) => {
            let owner = write.restored.as_ref().map_or(&write.writer, |(owner, _)| owner);
            let mut statement = connection.prepare_cached(&to_sqlite_placeholders(document_sql::COUNT_OWNED))?;
            statement.query_row((&**owner, write.limits.0), |row| row.get(0))?
        }
        _ => 0,
    };
    let deleted = match &current {
        None => select_deleted_id(connection, &write.id)?,
        Some(_) => None,
    };
    let context = WriteContext { revision, documents, current, deleted, owner_documents };
    let (steps, effect) = match document_sql::plan_write(write, context, OffsetDateTime::now_utc()) {
        Ok(plan) => plan,
        Err(refusal) => return Ok((Err(refusal), false)),
    };
    for (sql, values) in &steps {
        connection.prepare_cached(&to_sqlite_placeholders(sql))?.execute(params_from_iter(values))?;
    }
    Ok((Ok(effect), !steps.is_empty()))
}

fn select_document(connection: &Connection, id: &str) -> rusqlite::Result<Option<StoredDocument>> {
    connection
        .prepare_cached(&to_sqlite_placeholders(document_sql::SELECT_DOCUMENT))?
        .query_row([id], document_from_row)
        .optional()
}

fn select_deleted_id(connection: &Connection, id: &str) -> rusqlite::Result<Option<DeletedId>> {
    connection
        .prepare_cached(&to_sqlite_placeholders(document_sql::SELECT_DELETED_ID))?
        .query_row([id], |row| Ok(document_sql::deleted_id_from_columns(row.get(0)?, row.get(1)?)))
        .optional()
}

fn document_from_row(row: &Row<'_>) -> rusqlite::Result<StoredDocument> {
    let texts = [row.get(0)?, row.get(1)?, row.get(2)?];
    Ok(document_sql::document_from_columns(texts, [row.get(3)?, row.get(4)?, row.get(5)?]))
}

fn select_changes(tx: &Transaction<'_>, cursor: Option<&ChangeCursor>, limit: usize) -> rusqlite::Result<ChangeBatch> {
    let state = |row: &Row<'_>| Ok((row.get::<_, String>(0)?, row.get(1)?, row.get(2)?));
    let (epoch, head, floor) = tx.prepare_cached(document_sql::SELECT_STATE)?.query_row((), state)?;
    let start = document_sql::resume_position(cursor, epoch.into(), head, floor);
    let change = |row: &Row<'_>| match row.get::<_, Option<String>>(1)? {
        Some(_) => Ok((DocumentChange::Put(document_from_row(row)?), row.get(5)?)),
        None => Ok((DocumentChange::Removed(row.get::<_, String>(0)?.into()), row.get(5)?)),
    };
    let mut statement = tx.prepare_cached(&to_sqlite_placeholders(document_sql::SELECT_CHANGES))?;
    let values = (i64::try_from(start.cursor.revision()).unwrap_or(i64::MAX), document_sql::to_i64(limit));
    let rows = statement.query_map(values, change)?.collect::<rusqlite::Result<_>>()?;
    Ok(document_sql::change_batch(start, head, rows, limit))
}

impl ToSql for SqlValue {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Self::Text(text) => ValueRef::Text(text.as_bytes()),
            Self::Number(number) => ValueRef::Integer(*number),
            Self::Null => ValueRef::Null,
        }))
    }
}
