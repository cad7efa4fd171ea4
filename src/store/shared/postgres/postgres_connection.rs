//! A connection that several trips use at once: the server handles their statements in the order in which they were sent.

use crate::store::{postgres::ConnectionSettings, shared::state_error::StateError};
use std::{
    error::Error as _,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
};
use tokio::task::JoinHandle;
use tokio_postgres::{
    Client, Error, Row,
    error::SqlState,
    types::{ToSql, Type},
};

/// A value of a statement, with its type.
pub(in crate::store::shared) type SqlParameter<'a> = (&'a (dyn ToSql + Sync), Type);

/// A connection. It is closed when it is dropped, without waiting for replies.
pub(in crate::store::shared) struct PostgresConnection {
    client: Client,
    driver: JoinHandle<()>,
    in_flight: AtomicUsize,
}

impl PostgresConnection {
    /// Connects.
    ///
    /// # Errors
    /// The server cannot be reached.
    pub(super) async fn open(settings: &ConnectionSettings) -> Result<Self, Error> {
        let (client, connection) = settings.config.connect(settings.tls.clone()).await?;
        // An error of the connection is reported by the statements that wait for it.
        let driver = tokio::spawn(async move { drop(connection.await) });
        Ok(Self { client, driver, in_flight: AtomicUsize::new(0) })
    }

    /// Returns the client of a connection that has no trips yet.
    pub(super) fn client_mut(&mut self) -> &mut Client {
        &mut self.client
    }

    /// Sends a statement at the first poll, and returns its rows: one round trip, in a transaction of its own. Statements
    /// of one connection must not begin a transaction.
    ///
    /// # Errors
    /// The server refuses the statement, or the connection is lost.
    pub(super) async fn query(&self, sql: &str, parameters: &[SqlParameter<'_>]) -> Result<Vec<Row>, Error> {
        self.in_flight.fetch_add(1, Relaxed);
        let _guard = InFlight(&self.in_flight);
        self.client.query_typed(sql, parameters).await
    }

    /// Waits until the server has handled what was sent before.
    pub(super) async fn check(&self) -> Result<(), Error> {
        self.client.check_connection().await
    }

    /// Returns whether the connection is lost.
    pub(super) fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    /// Returns how many trips wait for replies, as far as is known: without those whose deadline has passed.
    pub(super) fn in_flight(&self) -> usize {
        self.in_flight.load(Relaxed)
    }
}

impl Drop for PostgresConnection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// Counts a trip until it ends or is dropped.
struct InFlight<'a>(&'a AtomicUsize);

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// Returns whether another connection may lead to a server that can do it: this one is lost or shutting down, is not the
/// primary any more, or has lost its tables.
pub(super) fn needs_new_connection(why: &Error) -> bool {
    let Some(code) = why.code() else { return true };
    const CODES: [SqlState; 8] = [
        SqlState::ADMIN_SHUTDOWN,
        SqlState::CRASH_SHUTDOWN,
        SqlState::CANNOT_CONNECT_NOW,
        SqlState::IDLE_SESSION_TIMEOUT,
        SqlState::READ_ONLY_SQL_TRANSACTION,
        SqlState::INVALID_CATALOG_NAME,
        SqlState::UNDEFINED_TABLE,
        SqlState::UNDEFINED_FUNCTION,
    ];
    CODES.contains(code)
}

/// Returns whether the server refuses the values of the statement: errors of cardinality, of data and of constraints.
fn refuses_values(why: &Error) -> bool {
    const CLASSES: [&str; 3] = ["21", "22", "23"];
    why.code().is_some_and(|code| CLASSES.iter().any(|class| code.code().starts_with(class)))
}

/// Converts an error with its source: the crate's own text omits the message of the server.
pub(super) fn describe(why: &Error) -> StateError {
    let text = match why.source() {
        Some(source) => format!("PostgreSQL: {why}: {source}"),
        None => format!("PostgreSQL: {why}"),
    };
    if refuses_values(why) { StateError::Refused(text) } else { StateError::Failed(text) }
}
