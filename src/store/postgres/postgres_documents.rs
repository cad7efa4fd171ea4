//! Documents in a PostgreSQL database.

use super::{
    change_listener, connection_settings::ConnectionSettings, database_error::DatabaseError,
    database_pool::DatabasePool,
};
use crate::{
    fault::Result,
    store::{
        database_url::DatabaseUrl,
        document_sql::{self, SqlStatement, SqlValue, WriteContext},
        document_store::{
            ChangeBatch, ChangeCursor, DeletedId, DocumentChange, DocumentStore, DocumentWrite, HistoryEntry,
            StoredDocument, WriteOutcome,
        },
        store_connections::StoreConnections,
    },
};
use bytes::BytesMut;
use deadpool_postgres::Transaction;
use futures_util::future::try_join_all;
use std::{fmt, path::Path, sync::Arc};
use time::OffsetDateTime;
use tokio::{sync::watch, task::JoinSet};
use tokio_postgres::{
    GenericClient, IsolationLevel, Row,
    types::{IsNull, ToSql, Type},
};

/// A PostgreSQL database, connected when needed.
pub(in crate::store) struct PostgresDocumentStore {
    pool: DatabasePool,
    changes: Arc<watch::Sender<u64>>,
    _listening: JoinSet<()>,
}

impl fmt::Debug for PostgresDocumentStore {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("PostgresDocumentStore").field("status", &self.pool.pool.status()).finish_non_exhaustive()
    }
}

/// A write, and whether it changed the store.
struct AttemptedWrite {
    outcome: WriteOutcome,
    has_changed: bool,
}

impl PostgresDocumentStore {
    /// Prepares the connection pool and tries to connect once.
    pub(in crate::store) async fn open(
        address: &DatabaseUrl,
        authorities: Option<&Path>,
    ) -> std::result::Result<Self, String> {
        let settings = ConnectionSettings::new(address, authorities)?;
        let pool = DatabasePool::new(address, authorities)?;
        let changes = Arc::new(watch::Sender::new(0));
        let mut listening = JoinSet::new();
        listening.spawn(change_listener::listen_for_changes(settings, Arc::clone(&changes)));
        let store = Self { pool, changes, _listening: listening };
        match store.pool.with_timeout(async { store.pool.get_with_schema().await.map(drop) }).await {
            Err(DatabaseError::OtherSchema(message)) => return Err(message),
            Err(error) => {
                tracing::warn!(%error, "cannot connect to the registry's database; trying again with each query")
            }
            Ok(()) => {}
        }
        Ok(store)
    }

    async fn write_one(&self, write: &DocumentWrite) -> std::result::Result<AttemptedWrite, DatabaseError> {
        let mut client = self.pool.get_with_schema().await?;
        let transaction = client.transaction().await?;
        let counters =
            transaction.query_one(&transaction.prepare_cached(document_sql::NEXT_REVISION).await?, &[]).await?;
        let current = select_document(&*transaction, &write.id).await?;
        let owner_documents = match (&current, &write.document) {
            (None, Some(_)) => {
                let owner = write.restored.as_ref().map_or(&write.writer, |(owner, _)| owner);
                let statement = transaction.prepare_cached(document_sql::COUNT_OWNED).await?;
                transaction.query_one(&statement, &[&&**owner, &i64::from(write.limits.0)]).await?.try_get(0)?
            }
            _ => 0,
        };
        let deleted = match &current {
            None => select_deleted_id(&*transaction, &write.id).await?,
            Some(_) => None,
        };
        let (revision, documents) = (counters.try_get(0)?, counters.try_get(1)?);
        let context = WriteContext { revision, documents, current, deleted, owner_documents };
        let (steps, effect) = match document_sql::plan_write(write, context, OffsetDateTime::now_utc()) {
            Ok(plan) => plan,
            Err(refusal) => {
                transaction.rollback().await?;
                return Ok(AttemptedWrite { outcome: WriteOutcome::Refused(refusal), has_changed: false });
            }
        };
        if steps.is_empty() {
            transaction.rollback().await?;
            return Ok(AttemptedWrite { outcome: WriteOutcome::Done(effect), has_changed: false });
        }
        execute_all(&transaction, &steps).await?;
        let notify = transaction.prepare_cached("select pg_notify($1, $2)").await?;
        transaction.execute(&notify, &[&change_listener::CHANNEL, &revision.to_string()]).await?;
        transaction.commit().await?;
        Ok(AttemptedWrite { outcome: WriteOutcome::Done(effect), has_changed: true })
    }

    async fn read_changes(
        &self,
        cursor: Option<&ChangeCursor>,
        limit: usize,
    ) -> std::result::Result<ChangeBatch, DatabaseError> {
        let mut client = self.pool.get_with_schema().await?;
        // One snapshot for both queries, so that the floor of removals matches the documents.
        let builder = client.build_transaction().isolation_level(IsolationLevel::RepeatableRead).read_only(true);
        let transaction = builder.start().await?;
        let state = transaction.query_one(document_sql::SELECT_STATE, &[]).await?;
        let head: i64 = state.try_get(1)?;
        let start =
            document_sql::resume_position(cursor, state.try_get::<_, String>(0)?.into(), head, state.try_get(2)?);
        let after = i64::try_from(start.cursor.revision()).unwrap_or(i64::MAX);
        let rows = transaction.query(document_sql::SELECT_CHANGES, &[&after, &document_sql::to_i64(limit)]).await?;
        transaction.rollback().await?;
        let changes = rows.iter().map(change_from_row).collect::<std::result::Result<_, _>>()?;
        Ok(document_sql::change_batch(start, head, changes, limit))
    }
}

/// Checks the URL and the certificate authorities.
pub(in crate::store) fn check_url(
    address: &DatabaseUrl,
    authorities: Option<&Path>,
) -> std::result::Result<(), String> {
    ConnectionSettings::new(address, authorities).map(drop)
}

#[async_trait::async_trait]
impl DocumentStore for PostgresDocumentStore {
    async fn write(&self, write: DocumentWrite) -> Result<WriteOutcome> {
        let AttemptedWrite { outcome, has_changed } = self.pool.with_timeout(self.write_one(&write)).await?;
        if has_changed {
            // Notified directly, without waiting for the database's notification.
            self.changes.send_modify(|count| *count += 1);
        }
        Ok(outcome)
    }

    async fn get_document(&self, id: &str) -> Result<Option<StoredDocument>> {
        let query = async { Ok(select_document(&**self.pool.get_with_schema().await?, id).await?) };
        Ok(self.pool.with_timeout(query).await?)
    }

    async fn changes_since(&self, cursor: Option<&ChangeCursor>, limit: usize) -> Result<ChangeBatch> {
        Ok(self.pool.with_timeout(self.read_changes(cursor, limit)).await?)
    }

    async fn history(&self, id: &str, limit: usize) -> Result<Vec<HistoryEntry>> {
        let query = async {
            let rows = self
                .pool
                .get_with_schema()
                .await?
                .query(document_sql::SELECT_HISTORY, &[&id, &document_sql::to_i64(limit)])
                .await?;
            let entry =
                |row: &Row| Ok(document_sql::history_from_columns(row.try_get(0)?, row.try_get(1)?, row.try_get(2)?));
            rows.iter().map(entry).collect()
        };
        Ok(self.pool.with_timeout(query).await?)
    }

    async fn delete_history_before(&self, limit: OffsetDateTime) -> Result<u64> {
        let query = async {
            let connection = self.pool.get_with_schema().await?;
            Ok(connection.execute(document_sql::DELETE_OLD_HISTORY, &[&document_sql::to_micros(limit)]).await?)
        };
        Ok(self.pool.with_timeout(query).await?)
    }

    async fn deleted_id(&self, id: &str) -> Result<Option<DeletedId>> {
        let query = async { Ok(select_deleted_id(&**self.pool.get_with_schema().await?, id).await?) };
        Ok(self.pool.with_timeout(query).await?)
    }

    fn connections(&self) -> Option<StoreConnections> {
        Some(self.pool.connections())
    }

    fn watch_changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }
}

/// Executes the statements in order, pipelined without waiting for each round trip, because other writers wait for the
/// lock of this transaction.
async fn execute_all(transaction: &Transaction<'_>, steps: &[SqlStatement]) -> std::result::Result<(), DatabaseError> {
    let mut prepared = Vec::with_capacity(steps.len());
    for (sql, values) in steps {
        let values: Vec<&(dyn ToSql + Sync)> = values.iter().map(|value| value as _).collect();
        prepared.push((transaction.prepare_cached(sql).await?, values));
    }
    try_join_all(prepared.iter().map(|(statement, values)| transaction.execute(statement, values))).await?;
    Ok(())
}

async fn select_document(
    client: &impl GenericClient,
    id: &str,
) -> std::result::Result<Option<StoredDocument>, tokio_postgres::Error> {
    client.query_opt(document_sql::SELECT_DOCUMENT, &[&id]).await?.as_ref().map(document_from_row).transpose()
}

async fn select_deleted_id(
    client: &impl GenericClient,
    id: &str,
) -> std::result::Result<Option<DeletedId>, tokio_postgres::Error> {
    let row = client.query_opt(document_sql::SELECT_DELETED_ID, &[&id]).await?;
    row.map(|row| Ok(document_sql::deleted_id_from_columns(row.try_get(0)?, row.try_get(1)?))).transpose()
}

fn document_from_row(row: &Row) -> std::result::Result<StoredDocument, tokio_postgres::Error> {
    let texts = [row.try_get(0)?, row.try_get(1)?, row.try_get(2)?];
    Ok(document_sql::document_from_columns(texts, [row.try_get(3)?, row.try_get(4)?, row.try_get(5)?]))
}

fn change_from_row(row: &Row) -> std::result::Result<(DocumentChange, i64), tokio_postgres::Error> {
    let change = match row.try_get::<_, Option<&str>>(1)? {
        Some(_) => DocumentChange::Put(document_from_row(row)?),
        None => DocumentChange::Removed(row.try_get::<_, String>(0)?.into()),
    };
    Ok((change, row.try_get(5)?))
}

type BoxError = Box<dyn std::error::Error + Sync + Send>;

impl ToSql for SqlValue {
    fn to_sql(&self, kind: &Type, to: &mut BytesMut) -> std::result::Result<IsNull, BoxError> {
        match self {
            Self::Text(text) => (&**text).to_sql(kind, to),
            Self::Number(number) => number.to_sql(kind, to),
            Self::Null => Ok(IsNull::Yes),
        }
    }

    fn accepts(kind: &Type) -> bool {
        *kind == Type::TEXT || *kind == Type::INT8
    }

    tokio_postgres::types::to_sql_checked!();
}
