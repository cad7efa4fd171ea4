//! Why a query failed, and the timeout of queries.

use crate::fault::{Fault, FaultCode};
use std::time::Duration;

/// Timeout of one query, connecting included.
pub(super) const QUERY_TIMEOUT: Duration = Duration::from_secs(5);

/// Why a query failed.
#[derive(Debug, thiserror::Error)]
pub(in crate::store) enum DatabaseError {
    #[error("cannot connect: {0}")]
    Pool(#[from] deadpool_postgres::PoolError),
    #[error("{}", error_with_source(.0))]
    Database(#[from] tokio_postgres::Error),
    #[error("{0}")]
    OtherSchema(String),
    #[error("timed out after {} s", QUERY_TIMEOUT.as_secs())]
    Timeout,
    #[error("the connection was closed")]
    Closed,
}

/// Formats the error with its source: the crate's own text omits the server's message.
fn error_with_source(error: &tokio_postgres::Error) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

impl From<DatabaseError> for Fault {
    fn from(error: DatabaseError) -> Self {
        Fault::new(FaultCode::Overloaded, "The database is not available")
            .with_retry_after(Duration::from_secs(2))
            .with_detail(error)
    }
}
