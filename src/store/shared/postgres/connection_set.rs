//! The connections to the database. The heartbeat opens them; trips use those that are open, and never wait for one.

use super::{
    postgres_connection::{PostgresConnection, describe, needs_new_connection},
    state_schema,
};
use crate::{
    store::{DatabaseUrl, postgres::ConnectionSettings, shared::state_error::StateError},
    values::Secret,
};
use parking_lot::Mutex;
use std::{path::PathBuf, sync::Arc, time::Duration};
use tokio::time::timeout;
use tokio_postgres::Error;

/// Number of connections. Tokens and heartbeats have the first, so that a gateway's batches stay in order.
const CONNECTIONS: usize = 6;
/// Deadline of opening connections and creating the schema. It is longer than a heartbeat, which may give up before.
const OPEN_TIMEOUT: Duration = Duration::from_secs(5);
/// Deadline of connecting, and bound on the time for which the server works on a statement whose trip was given up.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(1);
/// Deadline of a reply to a check. A connection that does not reply is replaced.
const CHECK_TIMEOUT: Duration = Duration::from_millis(500);

/// A connection that trips share.
pub(in crate::store::shared) type SharedConnection = Arc<PostgresConnection>;

/// The connections to the database.
pub(in crate::store::shared) struct ConnectionSet {
    address: DatabaseUrl,
    authorities: Option<PathBuf>,
    open: Mutex<OpenConnections>,
    opening: tokio::sync::Mutex<()>,
}

/// What is open, and the URL that it was opened with.
#[derive(Default)]
struct OpenConnections {
    connections: [Option<SharedConnection>; CONNECTIONS],
    url: Option<Secret>,
}

impl ConnectionSet {
    /// Prepares the connections without opening one.
    ///
    /// # Errors
    /// The URL or the file of authorities cannot be used.
    pub(super) fn new(address: DatabaseUrl, authorities: Option<PathBuf>) -> Result<Self, String> {
        ConnectionSettings::new(&address, authorities.as_deref())?;
        Ok(Self { address, authorities, open: Mutex::default(), opening: tokio::sync::Mutex::default() })
    }

    /// Returns the connection of tokens.
    ///
    /// # Errors
    /// `Unavailable`: it is not open.
    pub(in crate::store::shared) fn first(&self) -> Result<SharedConnection, StateError> {
        let [first, ..] = &self.open.lock().connections;
        first.clone().filter(|connection| !connection.is_closed()).ok_or(StateError::Unavailable)
    }

    /// Returns the connection with the fewest trips; the one of tokens only if no other is open.
    ///
    /// # Errors
    /// `Unavailable`: none is open.
    pub(in crate::store::shared) fn least_used(&self) -> Result<SharedConnection, StateError> {
        let least_used = {
            let open = self.open.lock();
            let [_, others @ ..] = &open.connections;
            let usable = others.iter().flatten().filter(|connection| !connection.is_closed());
            usable.min_by_key(|connection| connection.in_flight()).cloned()
        };
        // Outside the lock, which the first connection needs as well.
        least_used.map_or_else(|| self.first(), Ok)
    }

    /// Opens the first connection, if it is not open. It goes on after its caller has given up, so that a slow server is
    /// reached in the end.
    ///
    /// # Errors
    /// Why there is no connection.
    pub(super) async fn open_first(self: &Arc<Self>) -> Result<SharedConnection, StateError> {
        if let Ok(connection) = self.first() {
            return Ok(connection);
        }
        let connections = Arc::clone(self);
        let opening = async move {
            let _opening = connections.opening.lock().await;
            match connections.first() {
                Ok(connection) => Ok(connection),
                Err(_) => connections.replace_first().await,
            }
        };
        let task = tokio::spawn(timeout(OPEN_TIMEOUT, opening));
        task.await.ok().and_then(Result::ok).unwrap_or(Err(StateError::Timeout))
    }

    /// Opens the other connections that are missing, and replaces those over which no reply arrives.
    pub(super) async fn maintain_others(&self) {
        let Ok(_opening) = self.opening.try_lock() else { return };
        let Ok((settings, _)) = self.settings() else { return };
        let maintenance = (1..CONNECTIONS).map(|at| self.maintain(at, &settings));
        futures_util::future::join_all(maintenance).await;
    }

    /// Opens connections with the present URL, if it is not the one that they were opened with.
    pub(super) async fn refresh_secret(&self) {
        let Some(current) = self.open.lock().url.clone() else { return };
        // A secret that cannot be read now may be in the middle of a change.
        if self.address.resolve().is_ok_and(|url| url != current) {
            tracing::info!("a secret of the shared state has changed; connecting again");
            let _opening = self.opening.lock().await;
            if let Ok(Err(why)) = timeout(OPEN_TIMEOUT, self.replace_first()).await {
                tracing::warn!(error = %why, "the changed secret of the shared state cannot be used");
            }
        }
    }

    /// Closes every connection, so that the next heartbeat opens new ones.
    pub(super) fn close(&self) {
        self.open.lock().connections = Default::default();
    }

    /// Converts an error, and closes connections that cannot be used any more.
    pub(in crate::store::shared) fn convert_error(&self, why: &Error) -> StateError {
        if needs_new_connection(why) {
            self.close();
        }
        describe(why)
    }

    /// Opens a connection with a schema, and closes all others.
    async fn replace_first(&self) -> Result<SharedConnection, StateError> {
        let (settings, url) = self.settings()?;
        let mut connection = PostgresConnection::open(&settings).await.map_err(|why| describe(&why))?;
        state_schema::ensure_schema(connection.client_mut()).await?;
        let connection = Arc::new(connection);
        let mut open = OpenConnections { url: Some(url), ..OpenConnections::default() };
        let [first, ..] = &mut open.connections;
        *first = Some(Arc::clone(&connection));
        *self.open.lock() = open;
        Ok(connection)
    }

    async fn maintain(&self, at: usize, settings: &ConnectionSettings) {
        let connection = self.open.lock().connections.get(at).cloned().flatten();
        if let Some(connection) = connection
            && matches!(timeout(CHECK_TIMEOUT, connection.check()).await, Ok(Ok(())))
        {
            return;
        }
        let opened = timeout(CONNECT_TIMEOUT, PostgresConnection::open(settings)).await.ok().and_then(Result::ok);
        if let Some(place) = self.open.lock().connections.get_mut(at) {
            *place = opened.map(Arc::new);
        }
    }

    /// Reads the URL and the authorities, with short timeouts of the server.
    fn settings(&self) -> Result<(ConnectionSettings, Secret), StateError> {
        let url = self.address.resolve().map_err(StateError::Failed)?;
        let settings = ConnectionSettings::new(&self.address, self.authorities.as_deref());
        let mut settings = settings.map_err(StateError::Failed)?;
        let millis = STATEMENT_TIMEOUT.as_millis();
        let options = settings.config.get_options().unwrap_or_default();
        // The last value of a setting counts.
        let options = format!("{options} -c statement_timeout={millis} -c lock_timeout={millis}");
        settings.config.options(options).connect_timeout(CONNECT_TIMEOUT).tcp_user_timeout(OPEN_TIMEOUT);
        Ok((settings, url))
    }
}
