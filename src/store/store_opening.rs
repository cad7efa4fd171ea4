//! Where a store is, and how it is opened and checked.

use super::{
    DatabaseUrl,
    document_store::DocumentStore,
    postgres::{self, PostgresDocumentStore},
    sqlite_documents::{self, SqliteDocumentStore},
    tasks::{PostgresTaskStore, SqliteTaskStore, TaskStore},
};
use std::{path::PathBuf, sync::Arc};

/// Location of a store.
#[derive(Clone, Debug)]
pub enum StoreLocation {
    /// A file on a local disk.
    File(PathBuf),
    /// A PostgreSQL database.
    Database {
        /// URL of the database.
        address: DatabaseUrl,
        /// PEM file of certificate authorities to trust besides the system's.
        authorities: Option<PathBuf>,
    },
}

/// Opens a document store and creates missing tables. An unreachable database is no error: it is tried again with every
/// query.
///
/// # Errors
/// The location can never be used as configured.
pub async fn open_documents(location: &StoreLocation) -> std::result::Result<Arc<dyn DocumentStore>, String> {
    match location {
        StoreLocation::File(path) => {
            let path = path.clone();
            let opened = tokio::task::spawn_blocking(move || SqliteDocumentStore::open(&path)).await;
            Ok(Arc::new(opened.map_err(|error| error.to_string())??))
        }
        StoreLocation::Database { address, authorities } => {
            Ok(Arc::new(PostgresDocumentStore::open(address, authorities.as_deref()).await?))
        }
    }
}

/// Checks a location without creating or reaching the store.
///
/// # Errors
/// Why the location cannot be used.
pub fn check_location(location: &StoreLocation) -> std::result::Result<(), String> {
    match location {
        StoreLocation::File(path) => sqlite_documents::check_file(path),
        StoreLocation::Database { address, authorities } => postgres::check_url(address, authorities.as_deref()),
    }
}

/// Opens a task store and creates missing tables. An unreachable database is no error: it is tried again with every
/// query.
///
/// # Errors
/// The location can never be used as configured.
pub async fn open_tasks(location: &StoreLocation) -> std::result::Result<Arc<dyn TaskStore>, String> {
    match location {
        StoreLocation::File(path) => {
            let path = path.clone();
            let opened = tokio::task::spawn_blocking(move || SqliteTaskStore::open(&path)).await;
            Ok(Arc::new(opened.map_err(|error| error.to_string())??))
        }
        StoreLocation::Database { address, authorities } => {
            Ok(Arc::new(PostgresTaskStore::open(address, authorities.as_deref()).await?))
        }
    }
}
