//! The state engine in PostgreSQL.

use super::{
    connection_set::{ConnectionSet, SharedConnection},
    postgres_connection::SqlParameter,
    state_schema::DELETE_EXPIRED,
};
use crate::store::{
    DatabaseUrl,
    shared::{
        state_engine::{HeartbeatReply, StateEngine, StateResult},
        state_error::StateError,
        token_exchange::{MAX_LEVEL, TokenBatch, TokenEntry, TokenLimit, TokenReply},
    },
};
use futures_util::future::try_join_all;
use std::{
    fmt,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio_postgres::{Row, types::Type};

/// Maximum of rows that one statement deletes after their end.
const MAX_DELETED: i64 = 500;
/// How long the deletion after a heartbeat may take.
const DELETION_TIME: Duration = Duration::from_millis(250);

const HEARTBEAT: &str = "select gateways, unix_micros from gatepost_shared_heartbeat($1, $2)";
const LEAVE: &str = "delete from gatepost_shared_gateways where gateway = $1";
const EXCHANGE_TOKENS: &str = "select entry, granted, level, is_behind
    from gatepost_shared_exchange_tokens($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)";

/// A PostgreSQL database that holds shared state.
pub(in crate::store::shared) struct PostgresEngine {
    connections: Arc<ConnectionSet>,
    /// Held while connections are maintained and expired rows are deleted.
    maintenance: Arc<tokio::sync::Mutex<()>>,
}

impl PostgresEngine {
    /// Prepares the engine; the first heartbeat connects.
    ///
    /// # Errors
    /// The URL or the file of authorities cannot be used.
    pub(in crate::store::shared) fn new(address: DatabaseUrl, authorities: Option<PathBuf>) -> Result<Self, String> {
        let connections = Arc::new(ConnectionSet::new(address, authorities)?);
        Ok(Self { connections, maintenance: Arc::default() })
    }

    /// Runs a statement on the connection that is used least: one round trip and one transaction, without waiting for a
    /// connection.
    ///
    /// # Errors
    /// There is no connection, or the server refuses the statement.
    pub(super) async fn query(&self, sql: &str, parameters: &[SqlParameter<'_>]) -> StateResult<Vec<Row>> {
        self.query_on(self.connections.least_used()?, sql, parameters).await
    }

    async fn query_on(
        &self,
        connection: SharedConnection,
        sql: &str,
        parameters: &[SqlParameter<'_>],
    ) -> StateResult<Vec<Row>> {
        let result = connection.query(sql, parameters).await;
        result.map_err(|why| self.connections.convert_error(&why))
    }

    /// Converts an error of a row that has not the expected columns.
    pub(super) fn column_error(&self, why: &tokio_postgres::Error) -> StateError {
        StateError::Failed(format!("PostgreSQL: a reply cannot be read: {why}"))
    }

    async fn exchange_batch(
        &self,
        connection: SharedConnection,
        gateway: &str,
        batch: &TokenBatch,
    ) -> StateResult<Vec<TokenReply>> {
        let columns = TokenColumns::new(&batch.entries);
        let [sequence, confirmed] =
            [batch.sequence, batch.confirmed].map(|number| i64::try_from(number).unwrap_or(i64::MAX));
        let parameters: [SqlParameter<'_>; 12] = [
            (&gateway, Type::TEXT),
            (&sequence, Type::INT8),
            (&confirmed, Type::INT8),
            (&MAX_LEVEL, Type::FLOAT8),
            (&columns.ids, Type::BYTEA_ARRAY),
            (&columns.refills, Type::FLOAT8_ARRAY),
            (&columns.maxima, Type::FLOAT8_ARRAY),
            (&columns.settled, Type::FLOAT8_ARRAY),
            (&columns.drawn, Type::FLOAT8_ARRAY),
            (&columns.known, Type::FLOAT8_ARRAY),
            (&columns.restores, Type::BOOL_ARRAY),
            (&columns.lifetimes, Type::FLOAT8_ARRAY),
        ];
        let rows = self.query_on(connection, EXCHANGE_TOKENS, &parameters).await?;
        let mut replies: Vec<Option<TokenReply>> = vec![None; batch.entries.len()];
        for row in &rows {
            let (entry, reply) = read_token_reply(row).map_err(|why| self.column_error(&why))?;
            if let Some(place) = replies.get_mut(entry) {
                *place = Some(reply);
            }
        }
        let replies: Option<Vec<TokenReply>> = replies.into_iter().collect();
        replies.ok_or_else(|| StateError::Failed("PostgreSQL: a reply is incomplete".to_owned()))
    }

    /// Maintains the connections and deletes expired rows in the background, unless the last time still lasts.
    fn spawn_maintenance(&self) {
        let Ok(running) = Arc::clone(&self.maintenance).try_lock_owned() else { return };
        let connections = Arc::clone(&self.connections);
        tokio::spawn(async move {
            connections.maintain_others().await;
            if let Err(error) = delete_expired(&connections).await {
                tracing::debug!(%error, "expired rows of the shared state were not deleted");
            }
            drop(running);
        });
    }
}

/// Deletes expired rows in small pieces, until few are left or the time is over.
async fn delete_expired(connections: &ConnectionSet) -> StateResult<()> {
    let started = Instant::now();
    for statement in DELETE_EXPIRED {
        let statement = format!("with deleted as ({statement} returning 1) select count(*) from deleted");
        let mut deleted = MAX_DELETED;
        while deleted >= MAX_DELETED && started.elapsed() < DELETION_TIME {
            let result = connections.least_used()?.query(&statement, &[(&MAX_DELETED, Type::INT8)]).await;
            let rows = result.map_err(|why| connections.convert_error(&why))?;
            deleted = rows.first().and_then(|row| row.try_get(0).ok()).unwrap_or_default();
        }
    }
    Ok(())
}

/// The entries of a batch, column by column. Times are microseconds.
#[derive(Default)]
struct TokenColumns {
    ids: Vec<Vec<u8>>,
    refills: Vec<f64>,
    maxima: Vec<f64>,
    settled: Vec<f64>,
    drawn: Vec<f64>,
    known: Vec<f64>,
    restores: Vec<bool>,
    lifetimes: Vec<f64>,
}

impl TokenColumns {
    fn new(entries: &[TokenEntry]) -> Self {
        let mut columns = Self::default();
        for entry in entries {
            let (refill, max, lifetime) = match entry.limit {
                TokenLimit::Rate { refill_interval, burst } => (refill_interval, f64::from(burst), Duration::ZERO),
                TokenLimit::Quota { max, lifetime } => (Duration::ZERO, max as f64, lifetime),
            };
            columns.ids.push(entry.id.to_be_bytes().to_vec());
            columns.refills.push(refill.as_secs_f64() * 1e6);
            columns.maxima.push(max);
            columns.settled.push(entry.settled as f64);
            columns.drawn.push(entry.drawn.into());
            columns.known.push(entry.known_level as f64);
            columns.restores.push(entry.restores);
            columns.lifetimes.push(lifetime.as_secs_f64() * 1e6);
        }
        columns
    }
}

/// Returns the position of an entry in its batch, and its reply.
fn read_token_reply(row: &Row) -> Result<(usize, TokenReply), tokio_postgres::Error> {
    let (entry, granted, level): (i32, f64, f64) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
    let was_behind = row.try_get(3)?;
    // The server counts from 1.
    let entry = usize::try_from(entry).unwrap_or_default().wrapping_sub(1);
    Ok((entry, TokenReply { granted: granted as u32, level: level as u64, was_behind }))
}

impl fmt::Debug for PostgresEngine {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("PostgresEngine").finish_non_exhaustive()
    }
}

#[async_trait::async_trait]
impl StateEngine for PostgresEngine {
    fn shards(&self) -> u8 {
        1
    }

    async fn heartbeat(&self, gateway: &str, lifetime: Duration) -> StateResult<HeartbeatReply> {
        let connection = self.connections.open_first().await?;
        let lifetime = lifetime.as_secs_f64() * 1e6;
        let parameters: [SqlParameter<'_>; 2] = [(&gateway, Type::TEXT), (&lifetime, Type::FLOAT8)];
        let rows = self.query_on(connection, HEARTBEAT, &parameters).await?;
        let row = rows.first().ok_or_else(|| StateError::Failed("PostgreSQL: a reply is empty".to_owned()))?;
        let read = |at: usize| row.try_get::<_, i64>(at).map_err(|why| self.column_error(&why));
        let gateways = u32::try_from(read(0)?).unwrap_or(u32::MAX);
        let server_time = Duration::from_micros(u64::try_from(read(1)?).unwrap_or_default());
        self.spawn_maintenance();
        Ok(HeartbeatReply { gateways, server_time })
    }

    async fn leave(&self, gateway: &str) -> StateResult<()> {
        self.query(LEAVE, &[(&gateway, Type::TEXT)]).await.map(drop)
    }

    async fn exchange_tokens(&self, gateway: &str, batches: &[TokenBatch]) -> StateResult<Vec<Vec<TokenReply>>> {
        let connection = self.connections.first()?;
        // The statements are sent together over one connection, and the server handles them in order.
        try_join_all(batches.iter().map(|batch| self.exchange_batch(Arc::clone(&connection), gateway, batch))).await
    }

    async fn refresh_connection(&self) {
        self.connections.refresh_secret().await;
    }

    fn reset_connection(&self) {
        self.connections.close();
    }
}
