//! Task store in the SQLite file of the documents, with its own connection and thread. Queued transactions are
//! committed in batches, and each is answered after its commit.

use super::{
    sql_engine::{SqlEngine, TaskColumns, TaskStatement, TransactionOutcome, TransactionRows, returns_rows},
    task_store::StoredTask,
};
use crate::{
    fault::{Fault, FaultCode, Result},
    store::sqlite_documents::{create_private, ensure_schema, open_connection, to_sqlite_placeholders},
};
use rusqlite::{Connection, Row, TransactionBehavior, params_from_iter};
use std::{fmt, path::Path, thread, time::Duration};
use tokio::sync::{mpsc, oneshot};

/// Capacity of the queue of transactions.
const QUEUE_CAPACITY: usize = 512;
/// Maximum number of transactions in one commit.
const MAX_BATCH: usize = 64;

type TransactionReply = std::result::Result<TransactionOutcome, String>;

struct TransactionJob {
    statements: Vec<TaskStatement>,
    reply: oneshot::Sender<TransactionReply>,
}

/// An open SQLite file.
pub(in crate::store) struct SqliteTaskStore {
    jobs: mpsc::Sender<TransactionJob>,
}

impl fmt::Debug for SqliteTaskStore {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("SqliteTaskStore").finish_non_exhaustive()
    }
}

impl SqliteTaskStore {
    /// Opens or creates the file. Blocks.
    pub(in crate::store) fn open(path: &Path) -> std::result::Result<Self, String> {
        let unusable = |reason: &dyn fmt::Display| format!("{} cannot be used ({reason})", path.display());
        create_private(path).map_err(|error| unusable(&error))?;
        let mut connection = open_connection(path).map_err(|error| unusable(&error))?;
        ensure_schema(&mut connection).map_err(|error| unusable(&error))?;
        let (jobs, queue) = mpsc::channel(QUEUE_CAPACITY);
        let run = move || run_transactions(connection, queue);
        thread::Builder::new().name("store-tasks".to_owned()).spawn(run).map_err(|error| unusable(&error))?;
        Ok(Self { jobs })
    }
}

#[async_trait::async_trait]
impl SqlEngine for SqliteTaskStore {
    const HEARTBEAT: &'static str = "insert into gatepost_keepers (id, seen)
        values ($1, cast(unixepoch('subsec') * 1000000 as integer))
        on conflict (id) do update set seen = excluded.seen";
    const DELETE_DEAD: &'static str =
        "delete from gatepost_keepers where seen <= cast(unixepoch('subsec') * 1000000 as integer) - $1";

    async fn run(&self, statements: Vec<TaskStatement>) -> Result<TransactionOutcome> {
        let busy = || {
            Fault::new(FaultCode::Overloaded, "The task store is overloaded").with_retry_after(Duration::from_secs(1))
        };
        let failed = |error| {
            let fault = Fault::new(FaultCode::Overloaded, "The task store failed");
            fault.with_retry_after(Duration::from_secs(5)).with_detail(error)
        };
        let (reply, receiver) = oneshot::channel();
        self.jobs.try_send(TransactionJob { statements, reply }).map_err(|_| busy())?;
        receiver.await.map_err(|_| busy())?.map_err(|error: String| failed(error))
    }
}

fn run_transactions(mut connection: Connection, mut queue: mpsc::Receiver<TransactionJob>) {
    let mut batch = Vec::with_capacity(MAX_BATCH);
    while queue.blocking_recv_many(&mut batch, MAX_BATCH) > 0 {
        // A batch that fails as a whole was rolled back as a whole, so each of its transactions failed.
        let outcomes = run_batch(&mut connection, &batch)
            .unwrap_or_else(|error| batch.iter().map(|_| Err(error.to_string())).collect());
        for (job, outcome) in batch.drain(..).zip(outcomes) {
            // The caller may have left; the transaction was committed nevertheless.
            drop(job.reply.send(outcome));
        }
    }
}

fn run_batch(connection: &mut Connection, batch: &[TransactionJob]) -> rusqlite::Result<Vec<TransactionReply>> {
    let is_read_only =
        |job: &TransactionJob| job.statements.iter().all(|statement| statement.sql.starts_with("select"));
    let behavior =
        if batch.iter().all(is_read_only) { TransactionBehavior::Deferred } else { TransactionBehavior::Immediate };
    let mut transaction = connection.transaction_with_behavior(behavior)?;
    let mut outcomes = Vec::with_capacity(batch.len());
    for job in batch {
        // A transaction that is refused or fails is rolled back alone.
        let savepoint = transaction.savepoint()?;
        let outcome = run_one(&savepoint, &job.statements);
        if matches!(outcome, Ok(TransactionOutcome::Committed(_))) {
            savepoint.commit()?;
        } else {
            savepoint.finish()?;
        }
        outcomes.push(outcome.map_err(|error| error.to_string()));
    }
    transaction.commit()?;
    Ok(outcomes)
}

fn run_one(connection: &Connection, statements: &[TaskStatement]) -> rusqlite::Result<TransactionOutcome> {
    let mut last = TransactionRows::default();
    for statement in statements {
        let mut prepared = connection.prepare_cached(&to_sqlite_placeholders(statement.sql))?;
        let values = params_from_iter(&statement.values);
        last = if returns_rows(statement.sql) {
            let rows: Vec<StoredTask> = prepared.query_map(values, task_from_row)?.collect::<rusqlite::Result<_>>()?;
            let count = rows.len() as u64;
            TransactionRows { tasks: rows, count }
        } else {
            TransactionRows { tasks: Vec::new(), count: prepared.execute(values)? as u64 }
        };
        if let (Some(refusal), 0) = (statement.refusal, last.count) {
            return Ok(TransactionOutcome::Refused(refusal));
        }
    }
    Ok(TransactionOutcome::Committed(last))
}

fn task_from_row(row: &Row<'_>) -> rusqlite::Result<StoredTask> {
    let texts = [row.get(0)?, row.get(1)?, row.get(2)?, row.get(6)?];
    Ok(TaskColumns { texts, is_open: row.get(3)?, expires: row.get(4)?, callback_due: row.get(5)? }.into())
}
