//! Document store in PostgreSQL, which several gateways may share: a small connection pool with a timeout for each
//! query, and one connection that listens for changes by other gateways. An unreachable database fails only the queries
//! that need it.

mod change_listener;
mod connection_settings;
mod database_error;
mod database_pool;
mod postgres_documents;
mod schema_inspection;

pub(super) use connection_settings::ConnectionSettings;
pub(super) use database_error::DatabaseError;
pub(super) use database_pool::DatabasePool;
pub(super) use postgres_documents::{PostgresDocumentStore, check_url};
pub(super) use schema_inspection::inspect_database;
