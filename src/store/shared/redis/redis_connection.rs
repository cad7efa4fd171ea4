//! The connections to the server: one that most trips share, and one for large values, so that the others do not wait
//! behind these. Both are made again after one is lost or a secret has changed.

use crate::{
    store::shared::{
        config::{RedisConfig, SentinelConfig},
        redis_url::RedisAddress,
        state_error::StateError,
    },
    values::{Secret, SecretRef},
};
use futures_util::future::try_join;
use parking_lot::Mutex;
use redis::{
    AsyncConnectionConfig, Client, ClientTlsConfig, Cmd, ConnectionAddr, ConnectionInfo, FromRedisValue,
    IntoConnectionInfo as _, RedisConnectionInfo, RedisError, RedisResult, TlsCertificates, TlsMode,
    aio::MultiplexedConnection,
    cluster::ClusterClientBuilder,
    cluster_async::ClusterConnection,
    sentinel::{SentinelClientBuilder, SentinelServerType},
};
use std::{sync::Arc, time::Duration};

/// Deadline of connecting, and of a reply whose caller has no deadline.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);

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

/// The secrets of a connection, and the address that may hold one.
#[derive(Clone, PartialEq, Eq)]
struct ResolvedAddress {
    address: RedisAddress,
    password: Option<Secret>,
    sentinel_password: Option<Secret>,
}

/// The server, connected when it is needed.
pub(in crate::store::shared) struct RedisConnection {
    config: RedisConfig,
    state: Mutex<ConnectionState>,
    connecting: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct ConnectionState {
    link: Option<RedisLink>,
    bulk_link: Option<RedisLink>,
    /// What `link` was made with.
    resolved: Option<Arc<ResolvedAddress>>,
}

impl RedisConnection {
    pub(super) fn new(config: RedisConfig) -> Self {
        Self { config, state: Mutex::default(), connecting: tokio::sync::Mutex::default() }
    }

    pub(super) fn config(&self) -> &RedisConfig {
        &self.config
    }

    /// Returns the connection, if there is one. Trips of calls use it: they never wait for a connection.
    ///
    /// # Errors
    /// `Unavailable`.
    pub(in crate::store::shared) fn link(&self) -> Result<RedisLink, StateError> {
        self.state.lock().link.clone().ok_or(StateError::Unavailable)
    }

    /// Returns the connection for large values, if there is one.
    ///
    /// # Errors
    /// `Unavailable`.
    pub(in crate::store::shared) fn bulk_link(&self) -> Result<RedisLink, StateError> {
        self.state.lock().bulk_link.clone().ok_or(StateError::Unavailable)
    }

    /// Returns the connection, and connects if there is none.
    ///
    /// # Errors
    /// Why there is no connection.
    pub(in crate::store::shared) async fn connect(&self) -> Result<RedisLink, StateError> {
        let _connecting = self.connecting.lock().await;
        if let Ok(link) = self.link() {
            return Ok(link);
        }
        let resolved = Arc::new(self.resolve().map_err(StateError::Failed)?);
        let links = try_join(self.open(&resolved), self.open(&resolved)).await;
        let (link, bulk_link) = links.map_err(|why| StateError::Failed(describe(&why)))?;
        *self.state.lock() =
            ConnectionState { link: Some(link.clone()), bulk_link: Some(bulk_link), resolved: Some(resolved) };
        Ok(link)
    }

    /// Drops the connections, so that the next heartbeat makes new ones.
    pub(super) fn disconnect(&self) {
        let mut state = self.state.lock();
        (state.link, state.bulk_link) = (None, None);
    }

    /// Drops the connection if a secret is not the one it was made with.
    pub(super) fn disconnect_if_secret_changed(&self) {
        let Some(current) = self.state.lock().resolved.clone() else { return };
        // A secret that cannot be read now may be in the middle of a change.
        if self.resolve().is_ok_and(|resolved| resolved != *current) {
            tracing::info!("a secret of the shared state has changed; connecting again");
            self.disconnect();
        }
    }

    /// Converts an error, and drops a connection that cannot be used any more.
    pub(in crate::store::shared) fn convert_error(&self, why: &RedisError) -> StateError {
        if needs_new_connection(why) {
            self.disconnect();
        }
        StateError::Failed(describe(why))
    }

    fn resolve(&self) -> Result<ResolvedAddress, String> {
        let address = self.config.url.resolve()?;
        let load = |secret: &Option<SecretRef>| secret.as_ref().map(SecretRef::load).transpose();
        let password = load(&self.config.password)?.or_else(|| address.password.clone());
        let sentinel = self.config.sentinel.as_ref().map(|sentinel| load(&sentinel.password)).transpose()?;
        Ok(ResolvedAddress { address, password, sentinel_password: sentinel.flatten() })
    }

    async fn open(&self, resolved: &ResolvedAddress) -> RedisResult<RedisLink> {
        let certificates = self.certificates()?;
        if let Some(sentinel) = &self.config.sentinel {
            return open_through_sentinel(sentinel, resolved, certificates).await;
        }
        let nodes: Vec<ConnectionInfo> = resolved.connection_infos()?;
        if self.config.cluster {
            let mut builder = ClusterClientBuilder::new(nodes)
                .connection_timeout(CONNECT_TIMEOUT)
                .response_timeout(RESPONSE_TIMEOUT)
                // A failure is for the breaker; a failover takes longer than retries could last.
                .retries(2);
            if resolved.address.tls {
                builder = builder.tls(TlsMode::Secure).certs(certificates);
            }
            return Ok(RedisLink::Cluster(builder.build()?.get_async_connection().await?));
        }
        let Some(node) = nodes.into_iter().next() else {
            return Err(RedisError::from((redis::ErrorKind::InvalidClientConfig, "there is no host")));
        };
        let client =
            if resolved.address.tls { Client::build_with_tls(node, certificates)? } else { Client::open(node)? };
        Ok(RedisLink::Single(client.get_multiplexed_async_connection_with_config(&connection_config()).await?))
    }

    fn certificates(&self) -> RedisResult<TlsCertificates> {
        let root_cert = self.config.ca.as_ref().map(std::fs::read).transpose()?;
        Ok(TlsCertificates { client_tls: None::<ClientTlsConfig>, root_cert })
    }
}

async fn open_through_sentinel(
    sentinel: &SentinelConfig,
    resolved: &ResolvedAddress,
    certificates: TlsCertificates,
) -> RedisResult<RedisLink> {
    let address = &resolved.address;
    let nodes = address.hosts.iter().map(|(host, port)| connection_addr(address.tls, host, *port));
    let mut builder = SentinelClientBuilder::new(nodes, sentinel.master.clone(), SentinelServerType::Master)?
        .set_client_to_redis_db(address.database);
    if address.tls {
        builder = builder
            .set_client_to_redis_tls_mode(TlsMode::Secure)
            .set_client_to_redis_certificates(certificates.clone())
            .set_client_to_sentinel_tls_mode(TlsMode::Secure)
            .set_client_to_sentinel_certificates(certificates);
    }
    if let Some(user) = &address.user {
        builder = builder.set_client_to_redis_username(user);
    }
    if let Some(password) = &resolved.password {
        builder = builder.set_client_to_redis_password(password.expose());
    }
    if let Some(password) = &resolved.sentinel_password {
        builder = builder.set_client_to_sentinel_password(password.expose());
    }
    let connection = builder.build()?.get_async_connection_with_config(&connection_config()).await?;
    Ok(RedisLink::Single(connection))
}

fn connection_config() -> AsyncConnectionConfig {
    AsyncConnectionConfig::new()
        .set_connection_timeout(Some(CONNECT_TIMEOUT))
        .set_response_timeout(Some(RESPONSE_TIMEOUT))
}

fn connection_addr(tls: bool, host: &str, port: u16) -> ConnectionAddr {
    if tls {
        ConnectionAddr::TcpTls { host: host.to_owned(), port, insecure: false, tls_params: None }
    } else {
        ConnectionAddr::Tcp(host.to_owned(), port)
    }
}

impl ResolvedAddress {
    fn connection_infos(&self) -> RedisResult<Vec<ConnectionInfo>> {
        let mut settings = RedisConnectionInfo::default().set_db(self.address.database);
        if let Some(user) = &self.address.user {
            settings = settings.set_username(user);
        }
        if let Some(password) = &self.password {
            settings = settings.set_password(password.expose());
        }
        let info = |(host, port): &(String, u16)| {
            let addr = connection_addr(self.address.tls, host, *port);
            Ok(addr.into_connection_info()?.set_redis_settings(settings.clone()))
        };
        self.address.hosts.iter().map(info).collect()
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
    format!("Redis: {why}")
}
