//! Document store in one SQLite file. One thread writes and one reads, each with its own connection and bounded queue.
//! Queued writes are committed in batches, and each write is answered after its commit.

use super::{
    Change, Kept, Mark, Past, Refused, Since, Store, Write, Written,
    plan::{self, Cell, MIGRATIONS, Standing},
};
use crate::fault::{Code, Fault, Result};
use rusqlite::{
    Connection, OptionalExtension, Row, ToSql, Transaction, TransactionBehavior, params_from_iter,
    types::{ToSqlOutput, ValueRef},
};
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
const WAITING: usize = 256;
/// Maximum number of writes in one commit.
const TOGETHER: usize = 64;
/// How long to wait while another process locks the file.
const BUSY: Duration = Duration::from_secs(5);

/// First bytes of a SQLite file (sqlite.org/fileformat2.html, "The Database Header").
const MAGIC: &[u8] = b"SQLite format 3\0";

type Outcome = std::result::Result<Written, Refused>;
type Reading = Box<dyn FnOnce(&mut Connection) + Send>;

struct Writing {
    write: Write,
    answer: oneshot::Sender<std::result::Result<Outcome, String>>,
}

/// An open SQLite file.
pub(super) struct Sqlite {
    writes: mpsc::Sender<Writing>,
    reads: mpsc::Sender<Reading>,
    changes: Arc<watch::Sender<u64>>,
}

impl fmt::Debug for Sqlite {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("SqliteDocumentStore").finish_non_exhaustive()
    }
}

impl Sqlite {
    /// Opens or creates the file. Blocks.
    pub(super) fn open(path: &Path) -> std::result::Result<Self, String> {
        let unusable = |why: &dyn fmt::Display| format!("{} cannot be used ({why})", path.display());
        create(path).map_err(|why| unusable(&why))?;
        let mut writer = connect(path).map_err(|why| unusable(&why))?;
        migrate(&mut writer).map_err(|why| unusable(&why))?;
        let reader = connect(path).map_err(|why| unusable(&why))?;
        let (writes, waiting) = mpsc::channel(WAITING);
        let (reads, queries) = mpsc::channel(WAITING);
        let changes = Arc::new(watch::Sender::new(0));
        let notifier = Arc::clone(&changes);
        let spawn = |name: &str, work: Box<dyn FnOnce() + Send>| {
            thread::Builder::new().name(name.to_owned()).spawn(work).map_err(|why| unusable(&why))
        };
        spawn("store-write", Box::new(move || write_all(writer, waiting, &notifier)))?;
        spawn("store-read", Box::new(move || read_all(reader, queries)))?;
        Ok(Self { writes, reads, changes })
    }

    async fn read<T: Send + 'static>(
        &self,
        ask: impl FnOnce(&mut Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T> {
        let (answer, answered) = oneshot::channel();
        let reading: Reading = Box::new(move |connection| drop(answer.send(ask(connection))));
        self.reads.try_send(reading).map_err(|_| busy())?;
        answered.await.map_err(|_| busy())?.map_err(failed)
    }
}

#[async_trait::async_trait]
impl Store for Sqlite {
    async fn write(&self, write: Write) -> Result<Outcome> {
        let (answer, answered) = oneshot::channel();
        self.writes.try_send(Writing { write, answer }).map_err(|_| busy())?;
        answered.await.map_err(|_| busy())?.map_err(failed)
    }

    async fn get(&self, id: &str) -> Result<Option<Kept>> {
        let id = id.to_owned();
        self.read(move |connection| get(connection, &id)).await
    }

    async fn since(&self, mark: Option<&Mark>, most: usize) -> Result<Since> {
        let mark = mark.cloned();
        self.read(move |connection| since(&connection.transaction()?, mark.as_ref(), most)).await
    }

    async fn history(&self, id: &str, most: usize) -> Result<Vec<Past>> {
        let id = id.to_owned();
        self.read(move |connection| {
            let mut statement = connection.prepare_cached(&sql(plan::HISTORY))?;
            let past = |row: &Row<'_>| Ok(plan::past(row.get(0)?, row.get(1)?, row.get(2)?));
            statement.query_map((id, plan::count(most)), past)?.collect()
        })
        .await
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }
}

/// Checks that the file is a SQLite database, or could be created.
pub(super) fn check(path: &Path) -> std::result::Result<(), String> {
    let unusable = |why: &dyn fmt::Display| format!("{} cannot be used ({why})", path.display());
    let mut start = Vec::new();
    match File::open(path) {
        Ok(file) => drop(file.take(MAGIC.len() as u64).read_to_end(&mut start).map_err(|why| unusable(&why))?),
        Err(why) if why.kind() == ErrorKind::NotFound => {
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
            let there = folder.is_none_or(Path::is_dir);
            return if there { Ok(()) } else { Err(unusable(&"its folder does not exist")) };
        }
        Err(why) => return Err(unusable(&why)),
    }
    if start.is_empty() || start == MAGIC { Ok(()) } else { Err(unusable(&"it is not a SQLite database")) }
}

fn busy() -> Fault {
    Fault::new(Code::Overloaded, "The registry is overloaded").retry_after(Duration::from_secs(1))
}

fn failed(why: impl fmt::Display) -> Fault {
    Fault::new(Code::Overloaded, "The registry's store failed").retry_after(Duration::from_secs(5)).detail(why)
}

/// Creates the file with mode 0600, unlike SQLite: other users of this machine must not read the agents' documents.
pub(super) fn create(path: &Path) -> std::io::Result<()> {
    OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path).map(drop)
}

pub(super) fn connect(path: &Path) -> rusqlite::Result<Connection> {
    let connection = Connection::open(path)?;
    connection.busy_timeout(BUSY)?;
    connection.pragma_update(None, "trusted_schema", false)?;
    // In WAL mode readers never wait; with FULL, a commit is on disk before it is answered.
    connection.pragma_update_and_check(None, "journal_mode", "wal", |_| Ok(()))?;
    connection.pragma_update(None, "synchronous", "full")?;
    Ok(connection)
}

pub(super) fn migrate(connection: &mut Connection) -> std::result::Result<(), String> {
    let error_text = |why: rusqlite::Error| why.to_string();
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(error_text)?;
    let there = transaction.table_exists(None, "gatepost_state").map_err(error_text)?;
    if !there {
        transaction.execute_batch(plan::STATE).map_err(error_text)?;
        transaction.execute(&sql(plan::FIRST), [uuid::Uuid::new_v4().to_string()]).map_err(error_text)?;
    }
    let version: i64 = transaction.query_row(plan::VERSION, (), |row| row.get(0)).map_err(error_text)?;
    let version = usize::try_from(version).unwrap_or(usize::MAX);
    let Some(missing) = MIGRATIONS.get(version..) else {
        return Err(newer(version));
    };
    for step in missing {
        transaction.execute_batch(step).map_err(error_text)?;
    }
    transaction.execute(&sql(plan::MIGRATED), [plan::count(MIGRATIONS.len())]).map_err(error_text)?;
    transaction.commit().map_err(error_text)
}

/// Error for a schema of a newer gateway.
pub(super) fn newer(version: usize) -> String {
    format!("its schema has version {version}, made by a newer gateway (this one knows {})", MIGRATIONS.len())
}

/// Replaces `$1` by SQLite's `?1`.
pub(super) fn sql(text: &str) -> String {
    text.replace('$', "?")
}

fn read_all(mut connection: Connection, mut queries: mpsc::Receiver<Reading>) {
    while let Some(reading) = queries.blocking_recv() {
        reading(&mut connection);
    }
}

fn write_all(mut connection: Connection, mut waiting: mpsc::Receiver<Writing>, changes: &watch::Sender<u64>) {
    let mut batch = Vec::with_capacity(TOGETHER);
    while waiting.blocking_recv_many(&mut batch, TOGETHER) > 0 {
        // A batch that fails as a whole was rolled back as a whole, so each of its writes failed.
        let outcomes =
            write_batch(&mut connection, &batch).unwrap_or_else(|why| vec![Err(why.to_string()); batch.len()]);
        if outcomes.iter().any(|outcome| matches!(outcome, Ok(Ok(_)))) {
            changes.send_modify(|count| *count += 1);
        }
        for (writing, outcome) in batch.drain(..).zip(outcomes) {
            // The caller may be gone; the write was committed nevertheless.
            drop(writing.answer.send(outcome));
        }
    }
}

fn write_batch(
    connection: &mut Connection,
    batch: &[Writing],
) -> rusqlite::Result<Vec<std::result::Result<Outcome, String>>> {
    let mut transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let mut outcomes = Vec::with_capacity(batch.len());
    for writing in batch {
        // A write that is refused or fails is rolled back alone.
        let savepoint = transaction.savepoint()?;
        let outcome = write_one(&savepoint, &writing.write);
        if matches!(outcome, Ok((Ok(_), true))) {
            savepoint.commit()?;
        } else {
            savepoint.finish()?;
        }
        outcomes.push(outcome.map(|(outcome, _)| outcome).map_err(|why| why.to_string()));
    }
    transaction.commit()?;
    Ok(outcomes)
}

/// Executes one write; returns its outcome, and whether it changed anything.
fn write_one(connection: &Connection, write: &Write) -> rusqlite::Result<(Outcome, bool)> {
    let next = connection.prepare_cached(plan::NEXT)?.query_row((), |row| Ok((row.get(0)?, row.get(1)?)));
    let (revision, documents) = next?;
    let current = get(connection, &write.id)?;
    let owned = match (&current, &write.document) {
        (None, Some(_)) => {
            let owner = write.restored.as_ref().map_or(&write.by, |(owner, _)| owner);
            let mut statement = connection.prepare_cached(&sql(plan::OWNED))?;
            statement.query_row((&**owner, write.most.0), |row| row.get(0))?
        }
        _ => 0,
    };
    let standing = Standing { revision, documents, current, owned };
    let (steps, written) = match plan::plan(write, standing, OffsetDateTime::now_utc()) {
        Ok(planned) => planned,
        Err(refused) => return Ok((Err(refused), false)),
    };
    for (text, values) in &steps {
        connection.prepare_cached(&sql(text))?.execute(params_from_iter(values))?;
    }
    Ok((Ok(written), !steps.is_empty()))
}

fn get(connection: &Connection, id: &str) -> rusqlite::Result<Option<Kept>> {
    connection.prepare_cached(&sql(plan::GET))?.query_row([id], kept).optional()
}

fn kept(row: &Row<'_>) -> rusqlite::Result<Kept> {
    let texts = [row.get(0)?, row.get(1)?, row.get(2)?];
    Ok(plan::kept(texts, [row.get(3)?, row.get(4)?, row.get(5)?]))
}

fn since(transaction: &Transaction<'_>, mark: Option<&Mark>, most: usize) -> rusqlite::Result<Since> {
    let standing = |row: &Row<'_>| Ok((row.get::<_, String>(0)?, row.get(1)?, row.get(2)?));
    let (epoch, head, floor) = transaction.prepare_cached(plan::STANDING)?.query_row((), standing)?;
    let from = plan::resume(mark, epoch.into(), head, floor);
    let change = |row: &Row<'_>| match row.get::<_, Option<String>>(1)? {
        Some(_) => Ok((Change::Put(kept(row)?), row.get(5)?)),
        None => Ok((Change::Gone(row.get::<_, String>(0)?.into()), row.get(5)?)),
    };
    let mut statement = transaction.prepare_cached(&sql(plan::SINCE))?;
    let values = (i64::try_from(from.0.revision()).unwrap_or(i64::MAX), plan::count(most));
    let rows = statement.query_map(values, change)?.collect::<rusqlite::Result<_>>()?;
    Ok(plan::since(from, head, rows, most))
}

impl ToSql for Cell {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Self::Text(text) => ValueRef::Text(text.as_bytes()),
            Self::Number(number) => ValueRef::Integer(*number),
            Self::Null => ValueRef::Null,
        }))
    }
}
