//! A few connections to a database, each question bounded in time; the tables are made with the first.

use super::{Address, PATIENCE, Trouble, connect::Way};
use crate::store::{
    plan::{self, MIGRATIONS},
    sqlite::newer,
};
use deadpool_postgres::{Manager, ManagerConfig, Object, Pool, RecyclingMethod, Runtime};
use std::{future::Future, path::Path};
use tokio::sync::OnceCell;

/// Connections at once, besides the one that listens.
const CONNECTIONS: usize = 8;
/// Held while tables are made, so that of several gateways that start at once one makes them.
const MIGRATING: i64 = 0x6761_7465_706f_7374;

/// The connections.
pub(in crate::store) struct Pooled {
    pub(super) pool: Pool,
    /// Whether the tables are known to be there.
    ready: OnceCell<()>,
}

impl Pooled {
    /// Prepares to reach the database, and does not try.
    pub(in crate::store) fn new(address: &Address, authorities: Option<&Path>) -> Result<Self, String> {
        let way = Way::new(address, authorities)?;
        let recycling_method = RecyclingMethod::Verified;
        let manager = Manager::from_config(way.config, way.tls, ManagerConfig { recycling_method });
        let pool = Pool::builder(manager)
            .max_size(CONNECTIONS)
            .runtime(Runtime::Tokio1)
            .wait_timeout(Some(PATIENCE))
            .create_timeout(Some(PATIENCE))
            .recycle_timeout(Some(PATIENCE / 5))
            .build()
            .map_err(|why| why.to_string())?;
        Ok(Self { pool, ready: OnceCell::new() })
    }

    /// A question within its time.
    pub(in crate::store) async fn bounded<T>(
        &self,
        question: impl Future<Output = Result<T, Trouble>> + Send,
    ) -> Result<T, Trouble> {
        tokio::time::timeout(PATIENCE, question).await.unwrap_or(Err(Trouble::Time))
    }

    /// A connection to tables that are there.
    pub(in crate::store) async fn client(&self) -> Result<Object, Trouble> {
        let mut client = self.pool.get().await?;
        self.ready.get_or_try_init(|| migrate(&mut client)).await?;
        Ok(client)
    }
}

async fn migrate(client: &mut Object) -> Result<(), Trouble> {
    let transaction = client.transaction().await?;
    transaction.execute("select pg_advisory_xact_lock($1)", &[&MIGRATING]).await?;
    let there = transaction.query_one("select to_regclass('gatepost_state') is not null", &[]).await?;
    if !there.try_get::<_, bool>(0)? {
        transaction.batch_execute(plan::STATE).await?;
        transaction.execute(plan::FIRST, &[&uuid::Uuid::new_v4().to_string()]).await?;
    }
    let version: i64 = transaction.query_one(plan::VERSION, &[]).await?.try_get(0)?;
    let version = usize::try_from(version).unwrap_or(usize::MAX);
    let Some(missing) = MIGRATIONS.get(version..) else {
        return Err(Trouble::Newer(newer(version)));
    };
    for step in missing {
        transaction.batch_execute(step).await?;
    }
    if !missing.is_empty() {
        transaction.execute(plan::MIGRATED, &[&plan::count(MIGRATIONS.len())]).await?;
    }
    Ok(transaction.commit().await?)
}
