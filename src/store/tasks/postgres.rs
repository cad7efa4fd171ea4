//! Task store in PostgreSQL, which several gateways may share, with a small connection pool.

use super::{Came, Engine, KeptTask, Line, kept, returns};
use crate::{
    fault::Result,
    store::{
        Address,
        postgres::{Pooled, Trouble},
    },
};
use std::{fmt, path::Path};
use tokio_postgres::{Row, types::ToSql};

/// A PostgreSQL database, connected when needed.
pub(super) struct Database(Pooled);

impl fmt::Debug for Database {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("PostgresTaskStore").finish_non_exhaustive()
    }
}

impl Database {
    /// Prepares the connection pool and tries to connect once.
    pub(super) async fn open(address: &Address, authorities: Option<&Path>) -> std::result::Result<Self, String> {
        let pooled = Pooled::new(address, authorities)?;
        match pooled.bounded(async { pooled.client().await.map(drop) }).await {
            Err(Trouble::Newer(why)) => return Err(why),
            Err(why) => tracing::warn!(%why, "cannot connect to the task database; trying again with each query"),
            Ok(()) => {}
        }
        Ok(Self(pooled))
    }

    async fn transact(&self, lines: &[Line]) -> std::result::Result<Came, Trouble> {
        let mut client = self.0.client().await?;
        let transaction = client.transaction().await?;
        let mut last = (Vec::new(), 0);
        for line in lines {
            let statement = transaction.prepare_cached(line.text).await?;
            let values: Vec<&(dyn ToSql + Sync)> = line.values.iter().map(|value| value as _).collect();
            last = if returns(line.text) {
                let rows = transaction.query(&statement, &values).await?;
                let rows: Vec<KeptTask> = rows.iter().map(task).collect::<std::result::Result<_, _>>()?;
                let count = rows.len() as u64;
                (rows, count)
            } else {
                (Vec::new(), transaction.execute(&statement, &values).await?)
            };
            if let (Some(refused), 0) = (line.unless, last.1) {
                transaction.rollback().await?;
                return Ok(Err(refused));
            }
        }
        transaction.commit().await?;
        Ok(Ok(last))
    }
}

#[async_trait::async_trait]
impl Engine for Database {
    const HEARTBEAT: &'static str = "insert into gatepost_keepers (id, seen)
        values ($1, cast(extract(epoch from clock_timestamp()) * 1000000 as bigint))
        on conflict (id) do update set seen = excluded.seen";
    const DELETE_DEAD: &'static str = "delete from gatepost_keepers
        where seen <= cast(extract(epoch from clock_timestamp()) * 1000000 as bigint) - $1";

    async fn run(&self, lines: Vec<Line>) -> Result<Came> {
        Ok(self.0.bounded(self.transact(&lines)).await?)
    }
}

fn task(row: &Row) -> std::result::Result<KeptTask, tokio_postgres::Error> {
    let texts = [row.try_get(0)?, row.try_get(1)?, row.try_get(2)?, row.try_get(6)?];
    Ok(kept(texts, (row.try_get(3)?, row.try_get(4)?, row.try_get(5)?)))
}
