//! Connection pool of a PostgreSQL database, with a timeout for each query. The first connection creates the schema.

use super::{
    connection_settings::ConnectionSettings,
    database_error::{DatabaseError, QUERY_TIMEOUT},
};
use crate::store::{
    database_url::DatabaseUrl,
    document_sql::{self, SCHEMA, SCHEMA_VERSION},
    store_connections::StoreConnections,
};
use deadpool_postgres::{Manager, ManagerConfig, Object, Pool, RecyclingMethod, Runtime};
use std::{future::Future, path::Path};
use tokio::sync::OnceCell;

/// Maximum number of connections, besides the one that listens.
const MAX_CONNECTIONS: usize = 8;
/// Key of the advisory lock that lets one of several starting gateways create the schema.
const SCHEMA_LOCK: i64 = 0x6761_7465_706f_7374;

/// A connection pool.
pub(in crate::store) struct DatabasePool {
    pub(super) pool: Pool,
    /// Set once the schema is known to exist.
    has_schema: OnceCell<()>,
}

impl DatabasePool {
    /// Creates the pool without connecting.
    pub(in crate::store) fn new(address: &DatabaseUrl, authorities: Option<&Path>) -> Result<Self, String> {
        let settings = ConnectionSettings::new(address, authorities)?;
        let recycling_method = RecyclingMethod::Verified;
        let manager = Manager::from_config(settings.config, settings.tls, ManagerConfig { recycling_method });
        let pool = Pool::builder(manager)
            .max_size(MAX_CONNECTIONS)
            .runtime(Runtime::Tokio1)
            .wait_timeout(Some(QUERY_TIMEOUT))
            .create_timeout(Some(QUERY_TIMEOUT))
            .recycle_timeout(Some(QUERY_TIMEOUT / 5))
            .build()
            .map_err(|error| error.to_string())?;
        Ok(Self { pool, has_schema: OnceCell::new() })
    }

    /// Returns how many connections are open.
    pub(in crate::store) fn connections(&self) -> StoreConnections {
        let status = self.pool.status();
        let idle = status.available.min(status.size);
        StoreConnections { idle, used: status.size - idle }
    }

    /// Limits a query to its timeout.
    pub(in crate::store) async fn with_timeout<T>(
        &self,
        query: impl Future<Output = Result<T, DatabaseError>> + Send,
    ) -> Result<T, DatabaseError> {
        tokio::time::timeout(QUERY_TIMEOUT, query).await.unwrap_or(Err(DatabaseError::Timeout))
    }

    /// Returns a connection to a database that has the schema.
    pub(in crate::store) async fn get_with_schema(&self) -> Result<Object, DatabaseError> {
        let mut client = self.pool.get().await?;
        self.has_schema.get_or_try_init(|| ensure_schema(&mut client)).await?;
        Ok(client)
    }
}

async fn ensure_schema(client: &mut Object) -> Result<(), DatabaseError> {
    let transaction = client.transaction().await?;
    transaction.execute("select pg_advisory_xact_lock($1)", &[&SCHEMA_LOCK]).await?;
    let exists = transaction.query_one("select to_regclass('gatepost_state') is not null", &[]).await?;
    if exists.try_get::<_, bool>(0)? {
        let version = transaction.query_one(document_sql::SELECT_VERSION, &[]).await?.try_get(0)?;
        return document_sql::check_version(version).map_err(DatabaseError::OtherSchema);
    }
    for tables in [document_sql::CREATE_STATE].iter().chain(&SCHEMA) {
        transaction.batch_execute(tables).await?;
    }
    let epoch = uuid::Uuid::new_v4().to_string();
    transaction.execute(document_sql::INSERT_STATE, &[&SCHEMA_VERSION, &epoch]).await?;
    Ok(transaction.commit().await?)
}
