//! Task store in PostgreSQL, which several gateways may share, with a small connection pool.

use super::{
    sql_engine::{SqlEngine, TaskColumns, TaskStatement, TransactionOutcome, TransactionRows, returns_rows},
    task_store::StoredTask,
};
use crate::{
    fault::Result,
    store::{
        DatabaseUrl,
        postgres::{DatabaseError, DatabasePool},
        store_connections::StoreConnections,
    },
};
use std::{fmt, path::Path};
use tokio_postgres::{Row, types::ToSql};

/// A PostgreSQL database, connected when needed.
pub(in crate::store) struct PostgresTaskStore(DatabasePool);

impl fmt::Debug for PostgresTaskStore {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("PostgresTaskStore").finish_non_exhaustive()
    }
}

impl PostgresTaskStore {
    /// Prepares the connection pool and tries to connect once.
    pub(in crate::store) async fn open(
        address: &DatabaseUrl,
        authorities: Option<&Path>,
    ) -> std::result::Result<Self, String> {
        let pool = DatabasePool::new(address, authorities)?;
        match pool.with_timeout(async { pool.get_with_schema().await.map(drop) }).await {
            Err(DatabaseError::OtherSchema(message)) => return Err(message),
            Err(error) => tracing::warn!(%error, "cannot connect to the task database; trying again with each query"),
            Ok(()) => {}
        }
        Ok(Self(pool))
    }

    async fn execute(&self, statements: &[TaskStatement]) -> std::result::Result<TransactionOutcome, DatabaseError> {
        let mut client = self.0.get_with_schema().await?;
        let transaction = client.transaction().await?;
        let mut last = TransactionRows::default();
        for statement in statements {
            let prepared = transaction.prepare_cached(statement.sql).await?;
            let values: Vec<&(dyn ToSql + Sync)> = statement.values.iter().map(|value| value as _).collect();
            last = if returns_rows(statement.sql) {
                let rows = transaction.query(&prepared, &values).await?;
                let rows: Vec<StoredTask> = rows.iter().map(task_from_row).collect::<std::result::Result<_, _>>()?;
                let count = rows.len() as u64;
                TransactionRows { tasks: rows, count }
            } else {
                TransactionRows { tasks: Vec::new(), count: transaction.execute(&prepared, &values).await? }
            };
            if let (Some(refusal), 0) = (statement.refusal, last.count) {
                transaction.rollback().await?;
                return Ok(TransactionOutcome::Refused(refusal));
            }
        }
        transaction.commit().await?;
        Ok(TransactionOutcome::Committed(last))
    }
}

#[async_trait::async_trait]
impl SqlEngine for PostgresTaskStore {
    const HEARTBEAT: &'static str = "insert into gatepost_keepers (id, seen)
        values ($1, cast(extract(epoch from clock_timestamp()) * 1000000 as bigint))
        on conflict (id) do update set seen = excluded.seen";
    const DELETE_DEAD: &'static str = "delete from gatepost_keepers
        where seen <= cast(extract(epoch from clock_timestamp()) * 1000000 as bigint) - $1";

    async fn run(&self, statements: Vec<TaskStatement>) -> Result<TransactionOutcome> {
        Ok(self.0.with_timeout(self.execute(&statements)).await?)
    }

    fn database_connections(&self) -> Option<StoreConnections> {
        Some(self.0.connections())
    }
}

fn task_from_row(row: &Row) -> std::result::Result<StoredTask, tokio_postgres::Error> {
    let texts = [row.try_get(0)?, row.try_get(1)?, row.try_get(2)?, row.try_get(6)?];
    let columns =
        TaskColumns { texts, is_open: row.try_get(3)?, expires: row.try_get(4)?, callback_due: row.try_get(5)? };
    Ok(columns.into())
}
