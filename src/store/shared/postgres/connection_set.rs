//! The connections to the database. The heartbeat opens them; trips use those that are open, and never wait for one.

use super::{
    postgres_connection::{PostgresConnection, describe, needs_new_connection},
    state_schema,
};
use crate::{
    store::{
        DatabaseUrl,
        postgres::ConnectionSettings,
        shared::{background_reader::BackgroundReader, problem_log::ProblemLog, state_error::StateError},
    },
    values::Secret,
};
use parking_lot::Mutex;
use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
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
    /// Reads settings with a URL that has changed; nothing if it has not.
    reader: BackgroundReader<Option<SetSettings>>,
    problems: ProblemLog,
}

/// What is open, and what it was opened with.
#[derive(Default)]
struct OpenConnections {
    connections: [Option<SharedConnection>; CONNECTIONS],
    settings: Option<Arc<SetSettings>>,
}

/// The settings of connections, and the URL that they were made of.
struct SetSettings {
    settings: ConnectionSettings,
    url: Secret,
}

impl SetSettings {
    /// Reads the URL, and the authorities unless the URL is the known one. The settings have short timeouts of the server.
    /// Blocks.
    fn read_changed(
        address: &DatabaseUrl,
        authorities: Option<&Path>,
        known: Option<&Secret>,
    ) -> Result<Option<Self>, String> {
        let url = address.resolve()?;
        if known == Some(&url) {
            return Ok(None);
        }
        let mut settings = ConnectionSettings::from_url(&url, authorities)?;
        let millis = STATEMENT_TIMEOUT.as_millis();
        let options = settings.config.get_options().unwrap_or_default();
        // The last value of a setting counts.
        let options = format!("{options} -c statement_timeout={millis} -c lock_timeout={millis}");
        settings.config.options(options).connect_timeout(CONNECT_TIMEOUT).tcp_user_timeout(OPEN_TIMEOUT);
        Ok(Some(Self { settings, url }))
    }
}

impl OpenConnections {
    /// Returns what the present connections were opened with.
    fn settings_in_use(&self) -> Option<Arc<SetSettings>> {
        self.settings.clone().filter(|_| self.first().is_some())
    }

    fn first(&self) -> Option<SharedConnection> {
        let [first, ..] = &self.connections;
        first.clone().filter(|connection| !connection.is_closed())
    }

    fn least_used_other(&self) -> Option<SharedConnection> {
        let [_, others @ ..] = &self.connections;
        let usable = others.iter().flatten().filter(|connection| !connection.is_closed());
        usable.min_by_key(|connection| connection.in_flight()).cloned()
    }
}

impl ConnectionSet {
    /// Prepares the connections without opening one.
    ///
    /// # Errors
    /// The URL or the file of authorities cannot be used.
    pub(super) fn new(address: DatabaseUrl, authorities: Option<PathBuf>) -> Result<Self, String> {
        ConnectionSettings::new(&address, authorities.as_deref())?;
        Ok(Self {
            address,
            authorities,
            open: Mutex::default(),
            opening: tokio::sync::Mutex::default(),
            reader: BackgroundReader::new(),
            problems: ProblemLog::default(),
        })
    }

    /// Returns the connection of tokens.
    ///
    /// # Errors
    /// `Unavailable`: it is not open.
    pub(in crate::store::shared) fn first(&self) -> Result<SharedConnection, StateError> {
        self.open.lock().first().ok_or(StateError::Unavailable)
    }

    /// Returns the connection with the fewest trips; the one of tokens only if no other is open.
    ///
    /// # Errors
    /// `Unavailable`: none is open.
    pub(in crate::store::shared) fn least_used(&self) -> Result<SharedConnection, StateError> {
        let open = self.open.lock();
        open.least_used_other().or_else(|| open.first()).ok_or(StateError::Unavailable)
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
                Err(_) => connections.open_anew().await,
            }
        };
        let task = tokio::spawn(timeout(OPEN_TIMEOUT, opening));
        task.await.ok().and_then(Result::ok).unwrap_or(Err(StateError::Timeout))
    }

    /// Opens the other connections that are missing, and replaces those over which no reply arrives.
    pub(super) async fn maintain_others(&self) {
        let Ok(_opening) = self.opening.try_lock() else { return };
        let Some(settings) = self.open.lock().settings.clone() else { return };
        let maintenance = (1..CONNECTIONS).map(|at| self.maintain(at, &settings.settings));
        futures_util::future::join_all(maintenance).await;
    }

    /// Opens connections with the present URL, if it is not the one that they were opened with. Those in use stay until a new
    /// one is open.
    pub(super) async fn refresh_secret(&self) {
        // Without a connection, the heartbeat opens one with the present URL.
        let Some(current) = self.open.lock().settings_in_use() else { return };
        let Ok(changed) = self.read_changed(Some(current)).await else { return };
        let Some(settings) = changed else {
            self.problems.clear();
            return;
        };
        let _opening = self.opening.lock().await;
        match timeout(OPEN_TIMEOUT, self.replace_first(Arc::new(settings))).await.unwrap_or(Err(StateError::Timeout)) {
            Ok(_) => {
                self.problems.clear();
                tracing::info!("a secret of the shared state has changed; new connections are in use");
            }
            Err(why) => self.problems.record(&why.to_string()),
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

    /// Opens a connection with the present URL, or with the previous one if the present one cannot be read.
    async fn open_anew(&self) -> Result<SharedConnection, StateError> {
        let previous = self.open.lock().settings.clone();
        let settings = match (self.read_changed(None).await, previous) {
            (Ok(Some(settings)), _) => Arc::new(settings),
            (Ok(None) | Err(_), Some(previous)) => previous,
            (Ok(None), None) => return Err(StateError::Unavailable),
            (Err(why), None) => return Err(StateError::Failed(why)),
        };
        self.replace_first(settings).await
    }

    /// Reads settings with another URL than that of `known`, and reports what is wrong with them.
    async fn read_changed(&self, known: Option<Arc<SetSettings>>) -> Result<Option<SetSettings>, String> {
        let (address, authorities) = (self.address.clone(), self.authorities.clone());
        let read =
            move || SetSettings::read_changed(&address, authorities.as_deref(), known.as_ref().map(|known| &known.url));
        self.reader.read(read).await.inspect_err(|why| self.problems.record(why))
    }

    /// Opens a connection with a schema, and closes all others.
    async fn replace_first(&self, settings: Arc<SetSettings>) -> Result<SharedConnection, StateError> {
        let opened = PostgresConnection::open(&settings.settings).await;
        let mut connection = opened.map_err(|why| describe(&why))?;
        state_schema::ensure_schema(connection.client_mut()).await?;
        let connection = Arc::new(connection);
        let mut open = OpenConnections { settings: Some(settings), ..OpenConnections::default() };
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_connection_a_trip_fails_at_once() {
        let set = ConnectionSet::new("postgres://u@127.0.0.1/x".parse().unwrap(), None).unwrap();
        assert_eq!(set.first().err(), Some(StateError::Unavailable));
        assert_eq!(set.least_used().err(), Some(StateError::Unavailable));
    }
}
