//! The connections to the server: one that most trips share, one for large values, so that the others do not wait behind
//! these, and one for stored outcomes that are read. New ones are made after they are lost, after a secret has changed, and after the primary has moved.

use super::{
    redis_settings::RedisSettings,
    sentinel_primary::{PrimaryAddress, find_primary},
};
use crate::store::shared::{
    background_reader::BackgroundReader, config::RedisConfig, problem_log::ProblemLog, redis_url::RedisAddress,
    state_error::StateError,
};
use futures_util::future::try_join3;
use parking_lot::Mutex;
use redis::{
    AsyncConnectionConfig, Cmd, ConnectionInfo, FromRedisValue, RedisError, RedisResult, Role, TlsMode,
    aio::MultiplexedConnection, cluster::ClusterClientBuilder, cluster_async::ClusterConnection, cmd,
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    time::Duration,
};
use tokio::time::timeout;

/// Deadline of connecting, and of a reply whose caller has no deadline.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);
/// Deadline of connections that replace others, with everything that is asked before.
const REPLACE_TIMEOUT: Duration = Duration::from_secs(3);
/// The sentinels are asked at every third refresh, a few seconds after the last time.
const REFRESHES_PER_QUESTION: u32 = 3;

/// A connection; clones share it.
#[derive(Clone)]
pub(in crate::store::shared) enum RedisLink {
    Single(MultiplexedConnection),
    Cluster(ClusterConnection),
}

impl RedisLink {
    /// Sends a command and waits for its reply.
    pub(in crate::store::shared) async fn query<T: FromRedisValue>(&mut self, command: &Cmd) -> RedisResult<T> {
        match self {
            Self::Single(connection) => command.query_async(connection).await,
            Self::Cluster(connection) => command.query_async(connection).await,
        }
    }
}

/// The connections.
#[derive(Clone)]
struct RedisLinks {
    link: RedisLink,
    bulk_link: RedisLink,
    outcome_link: RedisLink,
    /// The primary that they lead to, if sentinels named it.
    primary: Option<PrimaryAddress>,
}

/// The server, connected when it is needed.
pub(in crate::store::shared) struct RedisConnection {
    config: Arc<RedisConfig>,
    state: Mutex<ConnectionState>,
    /// Held while connections are opened.
    opening: tokio::sync::Mutex<()>,
    settings: BackgroundReader<RedisSettings>,
    problems: ProblemLog,
    refreshes: AtomicU32,
}

#[derive(Default)]
struct ConnectionState {
    links: Option<RedisLinks>,
    /// What the last connections were made with.
    settings: Option<Arc<RedisSettings>>,
}

impl ConnectionState {
    /// Returns what the present connections were made with.
    fn settings_in_use(&self) -> Option<Arc<RedisSettings>> {
        self.settings.clone().filter(|_| self.links.is_some())
    }
}

impl RedisConnection {
    pub(super) fn new(config: RedisConfig) -> Self {
        Self {
            config: Arc::new(config),
            state: Mutex::default(),
            opening: tokio::sync::Mutex::default(),
            settings: BackgroundReader::new(),
            problems: ProblemLog::default(),
            refreshes: AtomicU32::new(0),
        }
    }

    pub(super) fn config(&self) -> &RedisConfig {
        &self.config
    }

    /// Returns the connection, if there is one. Trips of calls use it: they never wait for a connection.
    ///
    /// # Errors
    /// `Unavailable`.
    pub(in crate::store::shared) fn link(&self) -> Result<RedisLink, StateError> {
        let state = self.state.lock();
        state.links.as_ref().map(|links| links.link.clone()).ok_or(StateError::Unavailable)
    }

    /// Returns the connection for large values, if there is one.
    ///
    /// # Errors
    /// `Unavailable`.
    pub(in crate::store::shared) fn bulk_link(&self) -> Result<RedisLink, StateError> {
        let state = self.state.lock();
        state.links.as_ref().map(|links| links.bulk_link.clone()).ok_or(StateError::Unavailable)
    }

    /// Returns the connection for stored outcomes that are read, if there is one.
    ///
    /// # Errors
    /// `Unavailable`.
    pub(super) fn outcome_link(&self) -> Result<RedisLink, StateError> {
        let state = self.state.lock();
        state.links.as_ref().map(|links| links.outcome_link.clone()).ok_or(StateError::Unavailable)
    }

    /// Returns the connection, and connects if there is none.
    ///
    /// # Errors
    /// Why there is no connection.
    pub(in crate::store::shared) async fn connect(&self) -> Result<RedisLink, StateError> {
        if let Ok(link) = self.link() {
            return Ok(link);
        }
        let _opening = self.opening.lock().await;
        if let Ok(link) = self.link() {
            return Ok(link);
        }
        let previous = self.state.lock().settings.clone();
        let settings = match (self.read_settings().await, &previous) {
            (Ok(settings), _) => Arc::new(settings),
            (Err(_), Some(previous)) => Arc::clone(previous),
            (Err(why), None) => return Err(StateError::Failed(why)),
        };
        match (self.open(&settings).await, previous) {
            (Ok(links), _) => Ok(self.use_links(links, settings)),
            // A secret that the server does not accept yet.
            (Err(why), Some(previous)) if previous.address.hosts == settings.address.hosts && previous != settings => {
                self.problems.record(&why.to_string());
                let links = self.open(&previous).await?;
                Ok(self.use_links(links, previous))
            }
            (Err(why), _) => Err(why),
        }
    }

    /// Drops the connections, so that the next heartbeat makes new ones.
    pub(super) fn disconnect(&self) {
        self.state.lock().links = None;
    }

    /// Makes new connections if the settings have changed or the sentinels name another primary. The present ones stay until
    /// the new ones are open.
    pub(super) async fn refresh(&self) {
        // Without connections, the heartbeat makes new ones with the present settings.
        let Some(current) = self.state.lock().settings_in_use() else { return };
        let Ok(settings) = self.read_settings().await else { return };
        if settings != *current {
            self.replace_links(Arc::new(settings), "a secret or the address").await;
            return;
        }
        self.problems.clear();
        if self.refreshes.fetch_add(1, Relaxed).is_multiple_of(REFRESHES_PER_QUESTION)
            && self.has_primary_moved(&current).await
        {
            self.replace_links(current, "the primary that the sentinels name").await;
        }
    }

    /// Converts an error, and drops a connection that cannot be used any more.
    pub(in crate::store::shared) fn convert_error(&self, why: &RedisError) -> StateError {
        // The client of a cluster finds a node again by itself; the other nodes stay connected meanwhile.
        if !self.config.cluster && needs_new_connection(why) {
            self.disconnect();
        }
        StateError::Failed(describe(why))
    }

    /// Reads the settings, and reports what is wrong with them.
    async fn read_settings(&self) -> Result<RedisSettings, String> {
        let config = Arc::clone(&self.config);
        let result = self.settings.read(move || RedisSettings::read(&config)).await;
        result.inspect_err(|why| self.problems.record(why))
    }

    fn use_links(&self, links: RedisLinks, settings: Arc<RedisSettings>) -> RedisLink {
        let link = links.link.clone();
        *self.state.lock() = ConnectionState { links: Some(links), settings: Some(settings) };
        link
    }

    async fn replace_links(&self, settings: Arc<RedisSettings>, changed: &str) {
        let Ok(_opening) = self.opening.try_lock() else { return };
        match timeout(REPLACE_TIMEOUT, self.open(&settings)).await.unwrap_or(Err(StateError::Timeout)) {
            Ok(links) => {
                self.problems.clear();
                self.use_links(links, settings);
                tracing::info!("{changed} of the shared state has changed; new connections are in use");
            }
            Err(why) => self.problems.record(&why.to_string()),
        }
    }

    async fn has_primary_moved(&self, settings: &RedisSettings) -> bool {
        let Some(sentinel) = &self.config.sentinel else { return false };
        // Sentinels that cannot be reached move nothing.
        let Ok(primary) = find_primary(settings, &sentinel.master).await else { return false };
        let links = self.state.lock().links.clone();
        links.is_some_and(|links| links.primary.as_ref() != Some(&primary))
    }

    /// Opens the connections.
    async fn open(&self, settings: &RedisSettings) -> Result<RedisLinks, StateError> {
        if self.config.cluster {
            let links = try_join3(open_cluster(settings), open_cluster(settings), open_cluster(settings)).await;
            let (link, bulk_link, outcome_link) = links.map_err(|why| StateError::Failed(describe(&why)))?;
            return Ok(RedisLinks { link, bulk_link, outcome_link, primary: None });
        }
        let primary = self.find_primary(settings).await.map_err(StateError::Failed)?;
        let server = match &primary {
            Some(primary) => settings.server_at(&primary.host, primary.port),
            None => settings.servers().and_then(|servers| {
                let missing = || RedisError::from((redis::ErrorKind::InvalidClientConfig, "there is no host"));
                servers.into_iter().next().ok_or_else(missing)
            }),
        };
        let opening = async {
            let server = server?;
            let open = || open_server(settings, server.clone());
            try_join3(open(), open(), open()).await
        };
        let (mut connection, bulk, outcomes) = opening.await.map_err(|why| StateError::Failed(describe(&why)))?;
        verify_primary(&mut connection).await?;
        let [link, bulk_link, outcome_link] = [connection, bulk, outcomes].map(RedisLink::Single);
        Ok(RedisLinks { link, bulk_link, outcome_link, primary })
    }

    /// Returns where the sentinels say that the primary is; `None` without sentinels.
    async fn find_primary(&self, settings: &RedisSettings) -> Result<Option<PrimaryAddress>, String> {
        let Some(sentinel) = &self.config.sentinel else { return Ok(None) };
        let primary = find_primary(settings, &sentinel.master).await.map_err(|why| format!("Redis: {why}"))?;
        let hosts = vec![(primary.host.clone(), primary.port)];
        let checked = self.config.check_address(&RedisAddress { hosts, ..settings.address.clone() });
        checked.map_err(|why| format!("Redis: the address of the primary {why}"))?;
        Ok(Some(primary))
    }
}

async fn open_cluster(settings: &RedisSettings) -> RedisResult<RedisLink> {
    let mut builder = ClusterClientBuilder::new(settings.servers()?)
        .connection_timeout(CONNECT_TIMEOUT)
        .response_timeout(RESPONSE_TIMEOUT)
        // A failure is for the breaker; a failover takes longer than retries could last.
        .retries(2);
    if settings.address.tls {
        builder = builder.tls(TlsMode::Secure).certs(settings.certificates());
    }
    Ok(RedisLink::Cluster(builder.build()?.get_async_connection().await?))
}

async fn open_server(settings: &RedisSettings, server: ConnectionInfo) -> RedisResult<MultiplexedConnection> {
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(CONNECT_TIMEOUT))
        .set_response_timeout(Some(RESPONSE_TIMEOUT));
    settings.client(server)?.get_multiplexed_async_connection_with_config(&config).await
}

/// Refuses a server that says that it is no primary.
async fn verify_primary(connection: &mut MultiplexedConnection) -> Result<(), StateError> {
    match cmd("ROLE").query_async(connection).await {
        // A user may have no right to ask: writing to a replica fails later.
        Ok(Role::Primary { .. }) | Err(_) => Ok(()),
        Ok(_) => Err(StateError::Failed("Redis: the server is a replica or a sentinel, not a primary".to_owned())),
    }
}

/// Whether the connection is lost, or leads to a server that is not the primary any more.
fn needs_new_connection(why: &RedisError) -> bool {
    use redis::{ErrorKind, ServerErrorKind};
    let is_demoted = matches!(
        why.kind(),
        ErrorKind::Server(ServerErrorKind::ReadOnly | ServerErrorKind::MasterDown) | ErrorKind::AuthenticationFailed
    );
    is_demoted || why.is_connection_dropped() || why.is_unrecoverable_error() || why.is_io_error()
}

/// Describes an error without the secrets that the library might repeat: it names none.
fn describe(why: &RedisError) -> String {
    // Redis does not say which command a script was refused.
    let is_refused = why.kind() == redis::ErrorKind::Server(redis::ServerErrorKind::NoPerm)
        || why.to_string().contains("The user executing the script can't");
    let advice = if is_refused { " (give the user the rights that docs/scale-out.md lists)" } else { "" };
    format!("Redis: {why}{advice}")
}
