//! The schema of the shared state. It has a version of its own, so that gateways of other versions that use the database
//! for documents or tasks are not concerned.

use crate::store::shared::state_error::StateError;
use tokio_postgres::{Client, Error};

/// The version of the schema. A gateway refuses every other one.
const SCHEMA_VERSION: i64 = 7;

const SCHEMA: &[&str] = &[
    include_str!("schema_of_tokens.sql"),
    include_str!("schema_of_leases.sql"),
    include_str!("schema_of_keys.sql"),
    include_str!("schema_of_values.sql"),
    include_str!("schema_of_logs.sql"),
];

/// Statements that delete expired rows; $1 is the maximum of rows that one of them deletes. They lock no row for which
/// another gateway waits, and skip rows that are in use.
pub(super) const DELETE_EXPIRED: &[&str] = &[
    "delete from gatepost_shared_tokens where id = any (array(
        select id from gatepost_shared_tokens where ends_at <= (select gatepost_shared_now())
        order by ends_at limit $1 for update skip locked))",
    "delete from gatepost_shared_leases where id = any (array(
        select id from gatepost_shared_leases where ends_at <= (select gatepost_shared_now())
        limit $1 for update skip locked))",
    "delete from gatepost_shared_batches where gateway = any (array(
        select gateway from gatepost_shared_batches where ends_at <= (select gatepost_shared_now())
        limit $1 for update skip locked))",
    "delete from gatepost_shared_gateways where gateway = any (array(
        select gateway from gatepost_shared_gateways where ends_at <= (select gatepost_shared_now())
        limit $1 for update skip locked))",
    "delete from gatepost_shared_values where ctid = any (array(
        select ctid from gatepost_shared_values where ends_at <= (select gatepost_shared_now())
        limit $1 for update skip locked))",
    "delete from gatepost_shared_logs where log = any (array(
        select log from gatepost_shared_logs where ends_at <= (select gatepost_shared_now())
        limit $1 for update skip locked))",
];

/// Key of the advisory lock that lets one of several starting gateways create the schema.
const SCHEMA_LOCK: i64 = 0x6761_7465_7374_6174;

const SELECT_VERSION: &str = "select version from gatepost_shared_schema";

/// Creates the schema of a new database.
///
/// # Errors
/// The server refuses it, or another version of the gateway made the schema.
pub(super) async fn ensure_schema(client: &mut Client) -> Result<(), StateError> {
    if let Some(version) = read_version(client).await.map_err(failed)? {
        return check_version(version);
    }
    let transaction = client.transaction().await.map_err(failed)?;
    // Creating tables may take longer than a trip.
    let lock = format!("set local statement_timeout = '5s'; select pg_advisory_xact_lock({SCHEMA_LOCK})");
    transaction.batch_execute(&lock).await.map_err(failed)?;
    // Another gateway may have created it meanwhile.
    if let Some(version) = read_version(transaction.client()).await.map_err(failed)? {
        return check_version(version);
    }
    let create = format!(
        "create table gatepost_shared_schema (version bigint not null);
         insert into gatepost_shared_schema values ({SCHEMA_VERSION})"
    );
    for statements in std::iter::once(&*create).chain(SCHEMA.iter().copied()) {
        transaction.batch_execute(statements).await.map_err(failed)?;
    }
    transaction.commit().await.map_err(failed)
}

async fn read_version(client: &Client) -> Result<Option<i64>, Error> {
    let exists = client.query_typed_one("select to_regclass('gatepost_shared_schema') is not null", &[]).await?;
    if !exists.try_get::<_, bool>(0)? {
        return Ok(None);
    }
    client.query_typed_one(SELECT_VERSION, &[]).await?.try_get(0).map(Some)
}

fn failed(why: Error) -> StateError {
    super::postgres_connection::describe(&why)
}

fn check_version(version: i64) -> Result<(), StateError> {
    if version == SCHEMA_VERSION {
        return Ok(());
    }
    Err(StateError::Failed(format!(
        "PostgreSQL: the shared state has schema version {version}, of another version of the gateway, and not \
         {SCHEMA_VERSION} (give this gateway a database of its own, or drop the tables whose names begin with \
         gatepost_shared_)"
    )))
}
