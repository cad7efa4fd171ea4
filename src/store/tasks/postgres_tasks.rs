//! Task store in PostgreSQL, which several gateways may share, with a small connection pool.

use super::{SqlEngine, StoredTask, TaskStatement, TransactionResult, returns_rows, task_from_columns};
use crate::{
    fault::Result,
    store::{
        DatabaseUrl,
        postgres::{DatabaseError, DatabasePool},
    },
};
use std::{fmt, path::Path};
use tokio_postgres::{Row, types::ToSql};

/// A PostgreSQL database, connected when needed.
pub(super) struct PostgresTaskStore(DatabasePool);

impl fmt::Debug for PostgresTaskStore {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("PostgresTaskStore").finish_non_exhaustive()
    }
}

impl PostgresTaskStore {
    /// Prepares the connection pool and tries to connect once.
    pub(super) async fn open(address: &DatabaseUrl, authorities: Option<&Path>) -> std::result::Result<Self, String> {
        let pooled = DatabasePool::new(address, authorities)?;
        match pooled.with_timeout(async { pooled.get_migrated().await.map(drop) }).await {
            Err(DatabaseError::NewerSchema(why)) => return Err(why),
            Err(why) => tracing::warn!(%why, "cannot connect to the task database; trying again with each query"),
            Ok(()) => {}
        }
        Ok(Self(pooled))
    }

    async fn execute(&self, lines: &[TaskStatement]) -> std::result::Result<TransactionResult, DatabaseError> {
        let mut client = self.0.get_migrated().await?;
        let transaction = client.transaction().await?;
        let mut last = (Vec::new(), 0);
        for line in lines {
            let statement = transaction.prepare_cached(line.sql).await?;
            let values: Vec<&(dyn ToSql + Sync)> = line.values.iter().map(|value| value as _).collect();
            last = if returns_rows(line.sql) {
                let rows = transaction.query(&statement, &values).await?;
                let rows: Vec<StoredTask> = rows.iter().map(task_from_row).collect::<std::result::Result<_, _>>()?;
                let count = rows.len() as u64;
                (rows, count)
            } else {
                (Vec::new(), transaction.execute(&statement, &values).await?)
            };
            if let (Some(refused), 0) = (line.refusal, last.1) {
                transaction.rollback().await?;
                return Ok(Err(refused));
            }
        }
        transaction.commit().await?;
        Ok(Ok(last))
    }
}

#[async_trait::async_trait]
impl SqlEngine for PostgresTaskStore {
    const HEARTBEAT: &'static str = "insert into gatepost_keepers (id, seen)
        values ($1, cast(extract(epoch from clock_timestamp()) * 1000000 as bigint))
        on conflict (id) do update set seen = excluded.seen";
    const DELETE_DEAD: &'static str = "delete from gatepost_keepers
        where seen <= cast(extract(epoch from clock_timestamp()) * 1000000 as bigint) - $1";

    async fn run(&self, lines: Vec<TaskStatement>) -> Result<TransactionResult> {
        Ok(self.0.with_timeout(self.execute(&lines)).await?)
    }
}

fn task_from_row(row: &Row) -> std::result::Result<StoredTask, tokio_postgres::Error> {
    let texts = [row.try_get(0)?, row.try_get(1)?, row.try_get(2)?, row.try_get(6)?];
    Ok(task_from_columns(texts, (row.try_get(3)?, row.try_get(4)?, row.try_get(5)?)))
}
