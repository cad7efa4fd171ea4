//! Inspection of a store without changing it: whether it can be used, and which schema it has.

use super::{StoreLocation, document_sql, postgres, sqlite_documents};
use std::time::Duration;

/// The schema of a store that can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreSchema {
    /// There is no schema yet: the gateway creates it.
    Missing,
    /// It is the schema of this gateway.
    Current,
}

/// Why a store cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreProblem {
    /// The file or its folder cannot be used.
    Unusable(String),
    /// The database does not answer, or refuses the login.
    Unreachable(String),
    /// Another version of the gateway made the schema.
    OtherSchema(String),
}

/// Inspects the store at `location`, within `timeout`.
///
/// # Errors
/// Why it cannot be used.
pub async fn inspect_store(location: &StoreLocation, timeout: Duration) -> Result<StoreSchema, StoreProblem> {
    let inspection = async {
        match location {
            StoreLocation::File(path) => {
                let path = path.clone();
                let inspected = tokio::task::spawn_blocking(move || sqlite_documents::inspect_file(&path)).await;
                let version = inspected.map_err(|why| why.to_string()).and_then(|version| version);
                classify(version.map_err(StoreProblem::Unusable)?)
            }
            StoreLocation::Database { address, authorities } => {
                let version = postgres::inspect_database(address, authorities.as_deref()).await;
                classify(version.map_err(StoreProblem::Unreachable)?)
            }
        }
    };
    let late = || StoreProblem::Unreachable(format!("no answer within {}s", timeout.as_secs()));
    tokio::time::timeout(timeout, inspection).await.unwrap_or_else(|_| Err(late()))
}

/// Judges the version of a schema.
fn classify(version: Option<i64>) -> Result<StoreSchema, StoreProblem> {
    let Some(version) = version else { return Ok(StoreSchema::Missing) };
    document_sql::check_version(version).map(|()| StoreSchema::Current).map_err(StoreProblem::OtherSchema)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::open_documents;
    use std::path::Path;

    async fn inspect(path: &Path) -> Result<StoreSchema, StoreProblem> {
        inspect_store(&StoreLocation::File(path.to_owned()), Duration::from_secs(10)).await
    }

    #[tokio::test]
    async fn an_inspection_tells_schemas_apart_and_creates_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store.db");
        assert_eq!(inspect(&path).await, Ok(StoreSchema::Missing));
        assert!(!path.exists(), "the inspection created the file");
        drop(open_documents(&StoreLocation::File(path.clone())).await.unwrap());
        assert_eq!(inspect(&path).await, Ok(StoreSchema::Current));
        let set_version = |version: i64| {
            let connection = rusqlite::Connection::open(&path).unwrap();
            connection.execute("update gatepost_state set version = ?1", [version]).unwrap();
        };
        for (version, words) in [(7, "gatepost registry export"), (9_999, "a newer gateway")] {
            set_version(version);
            let inspected = inspect(&path).await;
            assert!(matches!(&inspected, Err(StoreProblem::OtherSchema(why)) if why.contains(words)), "{inspected:?}");
            let opened = open_documents(&StoreLocation::File(path.clone())).await;
            assert!(opened.is_err_and(|why| why.contains(words)));
        }
    }

    #[tokio::test]
    async fn a_file_that_is_no_database_and_a_missing_folder_are_unusable() {
        let folder = tempfile::tempdir().unwrap();
        let text = folder.path().join("text");
        std::fs::write(&text, "not a database, but some text").unwrap();
        assert!(matches!(inspect(&text).await, Err(StoreProblem::Unusable(_))));
        assert!(matches!(inspect(&folder.path().join("none/store.db")).await, Err(StoreProblem::Unusable(_))));
    }

    #[tokio::test]
    async fn a_database_that_is_down_is_unreachable() {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = format!("postgres://gatepost@{}/x", socket.local_addr().unwrap()).parse().unwrap();
        let location = StoreLocation::Database { address, authorities: None };
        let inspected = inspect_store(&location, Duration::from_secs(10)).await;
        assert!(matches!(inspected, Err(StoreProblem::Unreachable(_))), "{inspected:?}");
    }
}
