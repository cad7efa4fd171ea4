//! Document store in PostgreSQL, which several gateways may share: a small connection pool with a timeout for each
//! query, and one connection that listens for changes by other gateways. An unreachable database fails only the queries
//! that need it.

mod connect;
mod listen;
mod pooled;

use super::{
    Address, Change, Kept, Mark, Past, Refused, Since, Store, Write, Written,
    plan::{self, Cell, Standing, Step},
};
use crate::fault::{Code, Fault, Result};
use bytes::BytesMut;
use connect::Way;
use deadpool_postgres::Transaction;
use futures_util::future::try_join_all;
pub(super) use pooled::Pooled;
use std::{fmt, path::Path, sync::Arc, time::Duration};
use time::OffsetDateTime;
use tokio::{sync::watch, task::JoinSet};
use tokio_postgres::{
    GenericClient, IsolationLevel, Row,
    types::{IsNull, ToSql, Type},
};

/// Timeout of one query, connecting included.
const PATIENCE: Duration = Duration::from_secs(5);

type Outcome = std::result::Result<Written, Refused>;

/// A PostgreSQL database, connected when needed.
pub(super) struct Postgres {
    pooled: Pooled,
    changes: Arc<watch::Sender<u64>>,
    _listening: JoinSet<()>,
}

impl fmt::Debug for Postgres {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("PostgresDocumentStore").field("status", &self.pooled.pool.status()).finish_non_exhaustive()
    }
}

/// Why a query failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum Trouble {
    #[error("cannot connect: {0}")]
    Pool(#[from] deadpool_postgres::PoolError),
    #[error("{}", error_with_source(.0))]
    Database(#[from] tokio_postgres::Error),
    #[error("{0}")]
    Newer(String),
    #[error("timed out after {} s", PATIENCE.as_secs())]
    Time,
    #[error("the connection was closed")]
    Closed,
}

/// Formats the error with its source: the crate's own text omits what the server said.
fn error_with_source(why: &tokio_postgres::Error) -> String {
    match std::error::Error::source(why) {
        Some(source) => format!("{why}: {source}"),
        None => why.to_string(),
    }
}

impl From<Trouble> for Fault {
    fn from(why: Trouble) -> Self {
        Fault::new(Code::Overloaded, "The database is not available").retry_after(Duration::from_secs(2)).detail(why)
    }
}

impl Postgres {
    /// Prepares the connection pool and tries to connect once.
    pub(super) async fn open(address: &Address, authorities: Option<&Path>) -> std::result::Result<Self, String> {
        let settings = Way::new(address, authorities)?;
        let pooled = Pooled::new(address, authorities)?;
        let changes = Arc::new(watch::Sender::new(0));
        let mut listening = JoinSet::new();
        listening.spawn(listen::listen(settings, Arc::clone(&changes)));
        let store = Self { pooled, changes, _listening: listening };
        match store.pooled.bounded(async { store.pooled.client().await.map(drop) }).await {
            Err(Trouble::Newer(why)) => return Err(why),
            Err(why) => {
                tracing::warn!(%why, "cannot connect to the registry's database; trying again with each query")
            }
            Ok(()) => {}
        }
        Ok(store)
    }

    async fn write_one(&self, write: &Write) -> std::result::Result<(Outcome, bool), Trouble> {
        let mut client = self.pooled.client().await?;
        let transaction = client.transaction().await?;
        let next = transaction.query_one(&transaction.prepare_cached(plan::NEXT).await?, &[]).await?;
        let current = get(&*transaction, &write.id).await?;
        let owned = match (&current, &write.document) {
            (None, Some(_)) => {
                let owner = write.restored.as_ref().map_or(&write.by, |(owner, _)| owner);
                let statement = transaction.prepare_cached(plan::OWNED).await?;
                transaction.query_one(&statement, &[&&**owner, &i64::from(write.most.0)]).await?.try_get(0)?
            }
            _ => 0,
        };
        let standing = Standing { revision: next.try_get(0)?, documents: next.try_get(1)?, current, owned };
        let revision = standing.revision;
        let (steps, written) = match plan::plan(write, standing, OffsetDateTime::now_utc()) {
            Ok(planned) => planned,
            Err(refused) => {
                transaction.rollback().await?;
                return Ok((Err(refused), false));
            }
        };
        if steps.is_empty() {
            transaction.rollback().await?;
            return Ok((Ok(written), false));
        }
        run(&transaction, &steps).await?;
        let notify = transaction.prepare_cached("select pg_notify($1, $2)").await?;
        transaction.execute(&notify, &[&listen::CHANNEL, &revision.to_string()]).await?;
        transaction.commit().await?;
        Ok((Ok(written), true))
    }

    async fn since_mark(&self, mark: Option<&Mark>, most: usize) -> std::result::Result<Since, Trouble> {
        let mut client = self.pooled.client().await?;
        // One snapshot for both queries: the forgotten removals, and the documents.
        let builder = client.build_transaction().isolation_level(IsolationLevel::RepeatableRead).read_only(true);
        let transaction = builder.start().await?;
        let standing = transaction.query_one(plan::STANDING, &[]).await?;
        let head: i64 = standing.try_get(1)?;
        let from = plan::resume(mark, standing.try_get::<_, String>(0)?.into(), head, standing.try_get(2)?);
        let after = i64::try_from(from.0.revision()).unwrap_or(i64::MAX);
        let rows = transaction.query(plan::SINCE, &[&after, &plan::count(most)]).await?;
        transaction.rollback().await?;
        let changes = rows.iter().map(change).collect::<std::result::Result<_, _>>()?;
        Ok(plan::since(from, head, changes, most))
    }
}

/// Checks the URL and the certificate authorities.
pub(super) fn check(address: &Address, authorities: Option<&Path>) -> std::result::Result<(), String> {
    Way::new(address, authorities).map(drop)
}

#[async_trait::async_trait]
impl Store for Postgres {
    async fn write(&self, write: Write) -> Result<Outcome> {
        let (outcome, changed) = self.pooled.bounded(self.write_one(&write)).await?;
        if changed {
            // Notified directly, without waiting for the database's notification.
            self.changes.send_modify(|count| *count += 1);
        }
        Ok(outcome)
    }

    async fn get(&self, id: &str) -> Result<Option<Kept>> {
        let query = async { Ok(get(&**self.pooled.client().await?, id).await?) };
        Ok(self.pooled.bounded(query).await?)
    }

    async fn since(&self, mark: Option<&Mark>, most: usize) -> Result<Since> {
        Ok(self.pooled.bounded(self.since_mark(mark, most)).await?)
    }

    async fn history(&self, id: &str, most: usize) -> Result<Vec<Past>> {
        let query = async {
            let rows = self.pooled.client().await?.query(plan::HISTORY, &[&id, &plan::count(most)]).await?;
            let past = |row: &Row| Ok(plan::past(row.try_get(0)?, row.try_get(1)?, row.try_get(2)?));
            rows.iter().map(past).collect()
        };
        Ok(self.pooled.bounded(query).await?)
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }
}

/// Executes the statements in order, pipelined without waiting for each round trip: other writers wait for this lock.
async fn run(transaction: &Transaction<'_>, steps: &[Step]) -> std::result::Result<(), Trouble> {
    let mut prepared = Vec::with_capacity(steps.len());
    for (text, values) in steps {
        let values: Vec<&(dyn ToSql + Sync)> = values.iter().map(|value| value as _).collect();
        prepared.push((transaction.prepare_cached(text).await?, values));
    }
    try_join_all(prepared.iter().map(|(statement, values)| transaction.execute(statement, values))).await?;
    Ok(())
}

async fn get(client: &impl GenericClient, id: &str) -> std::result::Result<Option<Kept>, tokio_postgres::Error> {
    client.query_opt(plan::GET, &[&id]).await?.as_ref().map(kept).transpose()
}

fn kept(row: &Row) -> std::result::Result<Kept, tokio_postgres::Error> {
    let texts = [row.try_get(0)?, row.try_get(1)?, row.try_get(2)?];
    Ok(plan::kept(texts, [row.try_get(3)?, row.try_get(4)?, row.try_get(5)?]))
}

fn change(row: &Row) -> std::result::Result<(Change, i64), tokio_postgres::Error> {
    let change = match row.try_get::<_, Option<&str>>(1)? {
        Some(_) => Change::Put(kept(row)?),
        None => Change::Gone(row.try_get::<_, String>(0)?.into()),
    };
    Ok((change, row.try_get(5)?))
}

type Refusal = Box<dyn std::error::Error + Sync + Send>;

impl ToSql for Cell {
    fn to_sql(&self, kind: &Type, to: &mut BytesMut) -> std::result::Result<IsNull, Refusal> {
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
