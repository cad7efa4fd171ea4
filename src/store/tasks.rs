//! Task store: the owner, gateway, expiry and record of each task. Both engines execute the statements of `task_sql`,
//! one transaction for each method. The store does not interpret the record.

mod postgres_tasks;
mod sqlite_tasks;
mod task_sql;

pub(super) use task_sql::TABLES;

use super::{StoreLocation, WriteRefusal};
use crate::{
    fault::Result,
    store::document_sql::{SqlValue, from_micros, to_i64, to_micros},
};
use std::{fmt, sync::Arc};
use task_sql::{
    CLAIM_CALLBACKS, DELETE_ENDED, DELETE_EXPIRED, DELETE_GATEWAY, INCREMENT_COUNT, INSERT_TASK, LOCK_COUNT,
    RECORD_CALLBACK_ATTEMPT, RECORD_END, RECOUNT, SELECT_ENDED, SELECT_EXPIRED, SELECT_ORPHANS, SELECT_RUNNING,
    SELECT_TASK,
};
use time::OffsetDateTime;

/// Maximum number of tasks that one query returns.
const PAGE: usize = 200;

/// A stored task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredTask {
    /// Id of the task.
    pub id: Arc<str>,
    /// The caller that owns it.
    pub owner: Arc<str>,
    /// Id of the gateway that runs it.
    pub gateway_id: Arc<str>,
    /// Whether it has not ended.
    pub is_running: bool,
    /// Time at which it is deleted.
    pub expires: OffsetDateTime,
    /// Time of the next attempt to deliver its callback; `None` if no callback is pending.
    pub callback_due: Option<OffsetDateTime>,
    /// The rest of the record, as text.
    pub record: Arc<str>,
}

/// Store of tasks.
#[async_trait::async_trait]
pub trait TaskStore: fmt::Debug + Send + Sync {
    /// Inserts a new task, unless its owner has `limits.0` tasks already, or all owners together have `limits.1`. The
    /// task is durable when this returns.
    ///
    /// # Errors
    /// `Overloaded` when the store cannot be reached or is too busy, as for every method below.
    async fn insert(&self, task: &StoredTask, limits: (u32, u32)) -> Result<std::result::Result<(), WriteRefusal>>;

    /// Deletes at most `limit` ended tasks of `owner` without a pending callback, the oldest first. Returns whether
    /// there were any.
    ///
    /// # Errors
    /// `Overloaded`.
    async fn delete_ended(&self, owner: &Arc<str>, limit: u32) -> Result<bool>;

    /// Writes how a task ended, unless it has ended already. Returns whether it was written.
    ///
    /// # Errors
    /// `Overloaded`.
    async fn record_end(&self, task: &StoredTask) -> Result<bool>;

    /// Returns the task with this id.
    ///
    /// # Errors
    /// `Overloaded`.
    async fn get(&self, id: &str) -> Result<Option<StoredTask>>;

    /// Writes the result of an attempt to deliver a callback.
    ///
    /// # Errors
    /// `Overloaded`.
    async fn record_callback_attempt(&self, task: &StoredTask) -> Result<()>;

    /// Claims at most `limit` tasks whose callback is due at `now`; other gateways do not get them before `until`.
    ///
    /// # Errors
    /// `Overloaded`.
    async fn claim_due_callbacks(
        &self,
        now: OffsetDateTime,
        until: OffsetDateTime,
        limit: usize,
    ) -> Result<Vec<StoredTask>>;

    /// Returns the ids of the running tasks of the gateway `gateway_id`.
    ///
    /// # Errors
    /// `Overloaded`.
    async fn running_on(&self, gateway_id: &str) -> Result<Vec<Arc<str>>>;

    /// Writes the heartbeat of `gateway_id`, and returns running tasks of gateways without a heartbeat within `lease`,
    /// by the store's own clock.
    ///
    /// # Errors
    /// `Overloaded`.
    async fn heartbeat(&self, gateway_id: &str, lease: std::time::Duration) -> Result<Vec<StoredTask>>;

    /// Ends the lease of `gateway_id`.
    ///
    /// # Errors
    /// `Overloaded`.
    async fn end_lease(&self, gateway_id: &str) -> Result<()>;

    /// Deletes tasks that expired by `now`. Returns whether there may be more.
    ///
    /// # Errors
    /// `Overloaded`.
    async fn delete_expired(&self, now: OffsetDateTime) -> Result<bool>;
}

/// Opens a task store and creates missing tables. An unreachable database is no error: it is tried again with every
/// query.
///
/// # Errors
/// The location can never be used as configured.
pub async fn open_tasks(location: &StoreLocation) -> std::result::Result<Arc<dyn TaskStore>, String> {
    match location {
        StoreLocation::File(path) => {
            let path = path.clone();
            let opened = tokio::task::spawn_blocking(move || sqlite_tasks::SqliteTaskStore::open(&path)).await;
            Ok(Arc::new(opened.map_err(|error| error.to_string())??))
        }
        StoreLocation::Database { address, authorities } => {
            Ok(Arc::new(postgres_tasks::PostgresTaskStore::open(address, authorities.as_deref()).await?))
        }
    }
}

/// One statement of a transaction.
#[derive(Debug)]
struct TaskStatement {
    sql: &'static str,
    values: Vec<SqlValue>,
    /// Refusal that rolls the transaction back if the statement changes no row.
    refusal: Option<WriteRefusal>,
}

fn statement(sql: &'static str, values: Vec<SqlValue>) -> TaskStatement {
    TaskStatement { sql, values, refusal: None }
}

/// Result of a transaction: the rows that its last statement returned, and the number of rows it changed or returned.
type TransactionResult = std::result::Result<(Vec<StoredTask>, u64), WriteRefusal>;

/// A database engine: executes statements in one transaction.
#[async_trait::async_trait]
trait SqlEngine: fmt::Debug + Send + Sync {
    /// Heartbeat statements, by the store's own clock in microseconds since 1970.
    const HEARTBEAT: &'static str;
    const DELETE_DEAD: &'static str;

    async fn run(&self, statements: Vec<TaskStatement>) -> Result<TransactionResult>;

    /// As [`SqlEngine::run`], for statements without a refusal.
    async fn run_infallible(&self, statements: Vec<TaskStatement>) -> Result<(Vec<StoredTask>, u64)> {
        Ok(self.run(statements).await?.unwrap_or_default())
    }
}

#[async_trait::async_trait]
impl<E: SqlEngine> TaskStore for E {
    async fn insert(&self, task: &StoredTask, limits: (u32, u32)) -> Result<std::result::Result<(), WriteRefusal>> {
        let (per_owner, total) = (SqlValue::Number(limits.0.into()), SqlValue::Number(limits.1.into()));
        let mut values = vec![text_value(&task.id), text_value(&task.owner), text_value(&task.gateway_id)];
        values.extend([
            SqlValue::Number(to_micros(task.expires)),
            due_value(task),
            text_value(&task.record),
            per_owner,
        ]);
        let statements = vec![
            TaskStatement { refusal: Some(WriteRefusal::TotalLimit), ..statement(INCREMENT_COUNT, vec![total]) },
            TaskStatement { refusal: Some(WriteRefusal::OwnerLimit), ..statement(INSERT_TASK, values) },
        ];
        Ok(self.run(statements).await?.map(drop))
    }

    async fn delete_ended(&self, owner: &Arc<str>, limit: u32) -> Result<bool> {
        // For a caller without deletable tasks, nothing is locked or counted.
        if self.run_infallible(vec![statement(SELECT_ENDED, vec![text_value(owner)])]).await?.0.is_empty() {
            return Ok(false);
        }
        let values = vec![text_value(owner), SqlValue::Number(limit.into())];
        let statements =
            vec![statement(LOCK_COUNT, Vec::new()), statement(DELETE_ENDED, values), statement(RECOUNT, Vec::new())];
        self.run_infallible(statements).await.map(|_| true)
    }

    async fn record_end(&self, task: &StoredTask) -> Result<bool> {
        let values = vec![
            text_value(&task.id),
            SqlValue::Number(to_micros(task.expires)),
            due_value(task),
            text_value(&task.record),
        ];
        Ok(self.run_infallible(vec![statement(RECORD_END, values)]).await?.1 > 0)
    }

    async fn get(&self, id: &str) -> Result<Option<StoredTask>> {
        Ok(self.run_infallible(vec![statement(SELECT_TASK, vec![SqlValue::Text(id.into())])]).await?.0.pop())
    }

    async fn record_callback_attempt(&self, task: &StoredTask) -> Result<()> {
        self.run_infallible(vec![statement(
            RECORD_CALLBACK_ATTEMPT,
            vec![text_value(&task.id), due_value(task), text_value(&task.record)],
        )])
        .await
        .map(drop)
    }

    async fn claim_due_callbacks(
        &self,
        now: OffsetDateTime,
        until: OffsetDateTime,
        limit: usize,
    ) -> Result<Vec<StoredTask>> {
        let values =
            vec![SqlValue::Number(to_micros(now)), SqlValue::Number(to_micros(until)), SqlValue::Number(to_i64(limit))];
        Ok(self.run_infallible(vec![statement(CLAIM_CALLBACKS, values)]).await?.0)
    }

    async fn running_on(&self, gateway_id: &str) -> Result<Vec<Arc<str>>> {
        let (rows, _) =
            self.run_infallible(vec![statement(SELECT_RUNNING, vec![SqlValue::Text(gateway_id.into())])]).await?;
        Ok(rows.into_iter().map(|row| row.id).collect())
    }

    async fn heartbeat(&self, gateway_id: &str, lease: std::time::Duration) -> Result<Vec<StoredTask>> {
        let lease = i64::try_from(lease.as_micros()).unwrap_or(i64::MAX);
        let statements = vec![
            statement(E::HEARTBEAT, vec![SqlValue::Text(gateway_id.into())]),
            statement(E::DELETE_DEAD, vec![SqlValue::Number(lease)]),
            statement(SELECT_ORPHANS, vec![SqlValue::Number(to_i64(PAGE))]),
        ];
        Ok(self.run_infallible(statements).await?.0)
    }

    async fn end_lease(&self, gateway_id: &str) -> Result<()> {
        self.run_infallible(vec![statement(DELETE_GATEWAY, vec![SqlValue::Text(gateway_id.into())])]).await.map(drop)
    }

    async fn delete_expired(&self, now: OffsetDateTime) -> Result<bool> {
        let page = to_i64(PAGE);
        let delete_values = vec![SqlValue::Number(to_micros(now)), SqlValue::Number(page)];
        // Without expired tasks, nothing is locked. The recount under the lock also corrects a wrong count.
        let (expired, _) =
            self.run_infallible(vec![statement(SELECT_EXPIRED, vec![SqlValue::Number(to_micros(now))])]).await?;
        if expired.is_empty() {
            return Ok(false);
        }
        let statements = vec![
            statement(LOCK_COUNT, Vec::new()),
            statement(DELETE_EXPIRED, delete_values),
            statement(RECOUNT, Vec::new()),
        ];
        self.run_infallible(statements).await?;
        Ok(true)
    }
}

fn text_value(text: &Arc<str>) -> SqlValue {
    SqlValue::Text(Arc::clone(text))
}

fn due_value(task: &StoredTask) -> SqlValue {
    task.callback_due.map_or(SqlValue::Null, |due| SqlValue::Number(to_micros(due)))
}

/// Builds a task from its columns, in the order of [`SELECT_TASK`].
fn task_from_columns(texts: [String; 4], (is_open, expires, due): (i64, i64, Option<i64>)) -> StoredTask {
    let [id, owner, gateway_id, record] = texts.map(Arc::from);
    StoredTask {
        id,
        owner,
        gateway_id,
        is_running: is_open != 0,
        expires: from_micros(expires),
        callback_due: due.map(from_micros),
        record,
    }
}

/// Whether a statement returns rows.
fn returns_rows(sql: &str) -> bool {
    sql.starts_with("select") || sql.contains("returning")
}
