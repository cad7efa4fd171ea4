//! Connection pool of a PostgreSQL database, with a timeout for each query. The first connection migrates the schema.

use super::{Address, PATIENCE, Trouble, connect::Way};
use crate::store::{
    plan::{self, MIGRATIONS},
    sqlite::newer,
};
use deadpool_postgres::{Manager, ManagerConfig, Object, Pool, RecyclingMethod, Runtime};
use std::{future::Future, path::Path};
use tokio::sync::OnceCell;

/// Maximum number of connections, besides the one that listens.
const CONNECTIONS: usize = 8;
/// Key of the advisory lock that lets one of several starting gateways migrate the schema.
const MIGRATING: i64 = 0x6761_7465_706f_7374;

/// A connection pool.
pub(in crate::store) struct Pooled {
    pub(super) pool: Pool,
    /// Set after the schema was migrated.
    ready: OnceCell<()>,
}

impl Pooled {
    /// Creates the pool without connecting.
    pub(in crate::store) fn new(address: &Address, authorities: Option<&Path>) -> Result<Self, String> {
        let settings = Way::new(address, authorities)?;
        let recycling_method = RecyclingMethod::Verified;
        let manager = Manager::from_config(settings.config, settings.tls, ManagerConfig { recycling_method });
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

    /// Limits a query to its timeout.
    pub(in crate::store) async fn bounded<T>(
        &self,
        query: impl Future<Output = Result<T, Trouble>> + Send,
    ) -> Result<T, Trouble> {
        tokio::time::timeout(PATIENCE, query).await.unwrap_or(Err(Trouble::Time))
    }

    /// Returns a connection, after migrating the schema.
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
