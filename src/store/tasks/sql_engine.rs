//! The task store in terms of SQL: which statements a method runs, for every database engine.

use super::{
    task_sql::{
        CLAIM_CALLBACK, DELETE_ENDED, DELETE_EXPIRED, DELETE_GATEWAY, DELETE_IDLE_CLIENTS, INCREMENT_CLIENT_COUNT,
        INCREMENT_COUNT, INSERT_TASK, LOCK_COUNT, RECORD_CALLBACK_ATTEMPT, RECORD_CLIENT_SIZE, RECORD_END, RECORD_SIZE,
        RECOUNT, RECOUNT_CLIENT, RECOUNT_CLIENTS, SELECT_COUNTS, SELECT_DUE_CALLBACKS, SELECT_ENDED,
        SELECT_ENDED_IF_SUFFICIENT, SELECT_EXPIRED, SELECT_LIST, SELECT_ORPHANS, SELECT_RUNNING, SELECT_STATE_COUNTS,
        SELECT_TASK,
    },
    task_store::{
        DueCallback, ListedTask, StoredTask, TaskCounts, TaskLimits, TaskPage, TaskRefusal, TaskStateCount, TaskStore,
    },
};
use crate::{
    fault::Result,
    store::{
        document_sql::{SqlValue, from_micros, to_i64, to_micros},
        store_connections::StoreConnections,
    },
    values::ClientKey,
};
use std::{fmt, sync::Arc};
use time::OffsetDateTime;

/// Maximum number of tasks that one query returns.
const PAGE: usize = 200;

/// One statement of a transaction.
#[derive(Debug)]
pub(super) struct TaskStatement {
    pub(super) sql: &'static str,
    pub(super) values: Vec<SqlValue>,
    /// Refusal that rolls the transaction back if the statement changes no row.
    pub(super) refusal: Option<TaskRefusal>,
}

fn statement(sql: &'static str, values: Vec<SqlValue>) -> TaskStatement {
    TaskStatement { sql, values, refusal: None }
}

/// What the last statement of a transaction returned.
#[derive(Debug, Default)]
pub(super) struct TransactionRows {
    pub(super) tasks: Vec<StoredTask>,
    /// The number of rows changed or returned.
    pub(super) count: u64,
}

/// How a transaction ended.
#[derive(Debug)]
pub(super) enum TransactionOutcome {
    Committed(TransactionRows),
    /// Rolled back, because a statement changed no row.
    Refused(TaskRefusal),
}

/// A database engine: executes statements in one transaction.
#[async_trait::async_trait]
pub(super) trait SqlEngine: fmt::Debug + Send + Sync {
    /// Heartbeat statements, by the store's own clock in microseconds since 1970.
    const HEARTBEAT: &'static str;
    const DELETE_DEAD: &'static str;

    async fn run(&self, statements: Vec<TaskStatement>) -> Result<TransactionOutcome>;

    /// Returns the connections to the database, if the engine has some.
    fn database_connections(&self) -> Option<StoreConnections> {
        None
    }

    /// As [`SqlEngine::run`], for statements without a refusal.
    async fn run_infallible(&self, statements: Vec<TaskStatement>) -> Result<TransactionRows> {
        Ok(match self.run(statements).await? {
            TransactionOutcome::Committed(rows) => rows,
            TransactionOutcome::Refused(_) => TransactionRows::default(),
        })
    }
}

#[async_trait::async_trait]
impl<E: SqlEngine> TaskStore for E {
    async fn insert(&self, task: &StoredTask, client: ClientKey, limits: TaskLimits) -> Result<Option<TaskRefusal>> {
        let reserved_size = || SqlValue::Number(to_i64(limits.reserved_size));
        let count_values =
            vec![SqlValue::Number(limits.total.into()), reserved_size(), SqlValue::Number(to_i64(limits.total_size))];
        let mut values = vec![
            text_value(&task.id),
            text_value(&task.owner),
            text_value(&task.gateway_id),
            SqlValue::Number(to_micros(task.expires)),
            due_value(task),
            text_value(&task.record),
            SqlValue::Number(limits.per_owner.into()),
            client_value(client),
            reserved_size(),
        ];
        values.extend(summary_values(task));
        let client_count_values = vec![
            client_value(client),
            reserved_size(),
            SqlValue::Number(limits.per_client.into()),
            SqlValue::Number(to_i64(limits.size_per_client)),
        ];
        let limited = |sql, values, refusal| TaskStatement { refusal: Some(refusal), ..statement(sql, values) };
        let statements = vec![
            limited(INCREMENT_COUNT, count_values, TaskRefusal::TotalLimit),
            limited(INCREMENT_CLIENT_COUNT, client_count_values, TaskRefusal::ClientLimit),
            limited(INSERT_TASK, values, TaskRefusal::OwnerLimit),
        ];
        Ok(match self.run(statements).await? {
            TransactionOutcome::Committed(_) => None,
            TransactionOutcome::Refused(refusal) => Some(refusal),
        })
    }

    async fn delete_ended(&self, owner: &Arc<str>, client: ClientKey, limit: u32) -> Result<bool> {
        // For a caller without deletable tasks, nothing is locked or counted.
        if self.run_infallible(vec![statement(SELECT_ENDED, vec![text_value(owner)])]).await?.tasks.is_empty() {
            return Ok(false);
        }
        let values = vec![text_value(owner), SqlValue::Number(limit.into())];
        let statements = vec![
            statement(LOCK_COUNT, Vec::new()),
            statement(DELETE_ENDED, values),
            statement(RECOUNT_CLIENT, vec![client_value(client)]),
            statement(RECOUNT, Vec::new()),
        ];
        self.run_infallible(statements).await.map(|_| true)
    }

    async fn can_make_room(
        &self,
        owner: &Arc<str>,
        client: ClientKey,
        limits: TaskLimits,
        deletions: u32,
    ) -> Result<bool> {
        let values = vec![
            text_value(owner),
            client_value(client),
            SqlValue::Number(deletions.into()),
            SqlValue::Number(limits.per_client.into()),
            SqlValue::Number(to_i64(limits.reserved_size)),
            SqlValue::Number(to_i64(limits.size_per_client)),
        ];
        let rows = self.run_infallible(vec![statement(SELECT_ENDED_IF_SUFFICIENT, values)]).await?;
        Ok(rows.count > 0)
    }

    async fn record_end(&self, task: &StoredTask) -> Result<bool> {
        let mut values = vec![
            text_value(&task.id),
            SqlValue::Number(to_micros(task.expires)),
            due_value(task),
            text_value(&task.record),
            SqlValue::Number(to_i64(task.record.len())),
        ];
        values.extend(summary_values(task));
        let size_values = || vec![text_value(&task.id), SqlValue::Number(to_i64(task.record.len()))];
        // A statement that waits for the lock reads what was there before it waited, so the lock is a statement of its
        // own.
        let statements = vec![
            statement(LOCK_COUNT, Vec::new()),
            statement(RECORD_SIZE, size_values()),
            statement(RECORD_CLIENT_SIZE, size_values()),
            statement(RECORD_END, values),
        ];
        Ok(self.run_infallible(statements).await?.count > 0)
    }

    async fn count(&self) -> Result<TaskCounts> {
        let row = self.run_infallible(vec![statement(SELECT_COUNTS, Vec::new())]).await?.tasks.pop();
        let mut counts = row.iter().flat_map(|row| row.record.split(' ')).map(|count| count.parse().unwrap_or(0));
        let mut next = || counts.next().unwrap_or(0);
        let (running, total, pending_callbacks) = (next(), next(), next());
        Ok(TaskCounts { running, ended: u64::saturating_sub(total, running), pending_callbacks })
    }

    async fn list(&self, page: &TaskPage) -> Result<Vec<ListedTask>> {
        let (created, id) = match &page.after {
            Some((created, id)) => (to_micros(*created), Arc::clone(id)),
            None => (i64::MAX, "".into()),
        };
        let text = |text: &Option<Arc<str>>| SqlValue::Text(text.clone().unwrap_or_default());
        let limit = SqlValue::Number(to_i64(page.limit));
        let values = vec![SqlValue::Number(created), SqlValue::Text(id), text(&page.agent), text(&page.state), limit];
        let rows = self.run_infallible(vec![statement(SELECT_LIST, values)]).await?.tasks;
        let listed =
            |StoredTask { id, owner, callback_due, record, .. }| ListedTask { id, owner, callback_due, text: record };
        Ok(rows.into_iter().map(listed).collect())
    }

    async fn count_states(&self) -> Result<Vec<TaskStateCount>> {
        let rows = self.run_infallible(vec![statement(SELECT_STATE_COUNTS, Vec::new())]).await?.tasks;
        let count = |row: StoredTask| TaskStateCount { state: row.id, count: row.record.parse().unwrap_or_default() };
        Ok(rows.into_iter().map(count).collect())
    }

    fn connections(&self) -> Option<StoreConnections> {
        self.database_connections()
    }

    async fn get(&self, id: &str) -> Result<Option<StoredTask>> {
        Ok(self.run_infallible(vec![statement(SELECT_TASK, vec![SqlValue::Text(id.into())])]).await?.tasks.pop())
    }

    async fn record_callback_attempt(&self, task: &StoredTask) -> Result<()> {
        self.run_infallible(vec![statement(
            RECORD_CALLBACK_ATTEMPT,
            vec![text_value(&task.id), due_value(task), text_value(&task.record)],
        )])
        .await
        .map(drop)
    }

    async fn due_callbacks(
        &self,
        now: OffsetDateTime,
        limit_per_client: usize,
        limit: usize,
    ) -> Result<Vec<DueCallback>> {
        let values = [to_micros(now), to_i64(limit_per_client), to_i64(limit)].map(SqlValue::Number).into();
        let due = self.run_infallible(vec![statement(SELECT_DUE_CALLBACKS, values)]).await?.tasks;
        let callback = |StoredTask { id, owner: client, .. }: StoredTask| {
            let client = ClientKey::from_database_number(client.parse().unwrap_or_default());
            DueCallback { task: id, client }
        };
        Ok(due.into_iter().map(callback).collect())
    }

    async fn claim_callback(
        &self,
        id: &Arc<str>,
        now: OffsetDateTime,
        until: OffsetDateTime,
    ) -> Result<Option<StoredTask>> {
        let values = vec![SqlValue::Number(to_micros(now)), SqlValue::Number(to_micros(until)), text_value(id)];
        Ok(self.run_infallible(vec![statement(CLAIM_CALLBACK, values)]).await?.tasks.pop())
    }

    async fn running_on(&self, gateway_id: &str) -> Result<Vec<Arc<str>>> {
        let rows =
            self.run_infallible(vec![statement(SELECT_RUNNING, vec![SqlValue::Text(gateway_id.into())])]).await?;
        Ok(rows.tasks.into_iter().map(|task| task.id).collect())
    }

    async fn heartbeat(&self, gateway_id: &str, lease: std::time::Duration) -> Result<Vec<StoredTask>> {
        let lease = i64::try_from(lease.as_micros()).unwrap_or(i64::MAX);
        let statements = vec![
            statement(E::HEARTBEAT, vec![SqlValue::Text(gateway_id.into())]),
            statement(E::DELETE_DEAD, vec![SqlValue::Number(lease)]),
            statement(SELECT_ORPHANS, vec![SqlValue::Number(to_i64(PAGE))]),
        ];
        Ok(self.run_infallible(statements).await?.tasks)
    }

    async fn end_lease(&self, gateway_id: &str) -> Result<()> {
        self.run_infallible(vec![statement(DELETE_GATEWAY, vec![SqlValue::Text(gateway_id.into())])]).await.map(drop)
    }

    async fn delete_expired(&self, now: OffsetDateTime) -> Result<bool> {
        let page = to_i64(PAGE);
        let delete_values = vec![SqlValue::Number(to_micros(now)), SqlValue::Number(page)];
        // Without expired tasks, nothing is locked. The recount under the lock also corrects a wrong count.
        let expired =
            self.run_infallible(vec![statement(SELECT_EXPIRED, vec![SqlValue::Number(to_micros(now))])]).await?;
        if expired.tasks.is_empty() {
            return Ok(false);
        }
        let statements = vec![
            statement(LOCK_COUNT, Vec::new()),
            statement(DELETE_EXPIRED, delete_values),
            statement(RECOUNT_CLIENTS, Vec::new()),
            statement(DELETE_IDLE_CLIENTS, Vec::new()),
            statement(RECOUNT, Vec::new()),
        ];
        self.run_infallible(statements).await?;
        Ok(true)
    }
}

fn text_value(text: &Arc<str>) -> SqlValue {
    SqlValue::Text(Arc::clone(text))
}

fn client_value(client: ClientKey) -> SqlValue {
    SqlValue::Number(client.to_database_number())
}

fn due_value(task: &StoredTask) -> SqlValue {
    task.callback_due.map_or(SqlValue::Null, |due| SqlValue::Number(to_micros(due)))
}

/// The values of the columns of lists.
fn summary_values(task: &StoredTask) -> [SqlValue; 4] {
    match &task.summary {
        Some(summary) => [
            SqlValue::Number(to_micros(summary.created)),
            text_value(&summary.agent),
            text_value(&summary.state),
            text_value(&summary.text),
        ],
        None => [SqlValue::Number(0), SqlValue::Text("".into()), SqlValue::Text("".into()), SqlValue::Text("".into())],
    }
}

/// The columns of a task, in the order of `SELECT_TASK`; the record is the last one.
pub(super) struct TaskColumns {
    /// Id, owner, gateway and record.
    pub(super) texts: [String; 4],
    pub(super) is_open: i64,
    pub(super) expires: i64,
    pub(super) callback_due: Option<i64>,
}

impl From<TaskColumns> for StoredTask {
    fn from(columns: TaskColumns) -> Self {
        let [id, owner, gateway_id, record] = columns.texts.map(Arc::from);
        Self {
            id,
            owner,
            gateway_id,
            is_running: columns.is_open != 0,
            expires: from_micros(columns.expires),
            callback_due: columns.callback_due.map(from_micros),
            record,
            summary: None,
        }
    }
}

/// Whether a statement returns rows.
pub(super) fn returns_rows(sql: &str) -> bool {
    sql.starts_with("select") || sql.contains("returning")
}
