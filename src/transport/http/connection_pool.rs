//! Connection pools. A pool belongs to one address *and* one TLS profile: a connection that was opened under other
//! certificate authorities is never used here.

use super::{
    client_connection::{Http1Connection, Http2Connection, Http2Stream},
    tls_profile::TlsProfile,
};
use crate::transport::config::UpstreamTlsConfig;
use parking_lot::{Mutex, MutexGuard};
use rustls::pki_types::ServerName;
use std::{
    fmt,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::time::Instant;

/// The address that connections go to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum ConnectAddress {
    Tcp { host: Box<str>, port: u16 },
    Unix(PathBuf),
}

impl fmt::Display for ConnectAddress {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } => write!(to, "{host}:{port}"),
            Self::Unix(path) => write!(to, "{}", path.display()),
        }
    }
}

/// The key of a pool: agents with equal keys share it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct PoolKey {
    pub(super) address: ConnectAddress,
    /// `None` for connections without TLS.
    pub(super) tls: Option<UpstreamTlsConfig>,
    pub(super) h2c: bool,
    pub(super) keep_alive: Duration,
    pub(super) max_idle: usize,
    /// Whether the connections lead to public addresses only.
    pub(super) public_addresses_only: bool,
}

/// TLS to an address.
#[derive(Debug)]
pub(super) struct PoolTls {
    pub(super) profile: Arc<TlsProfile>,
    pub(super) server_name: ServerName<'static>,
}

/// The connections of one key.
pub(super) struct ConnectionPool {
    pub(super) key: PoolKey,
    pub(super) tls: Option<PoolTls>,
    connections: Mutex<PooledConnections>,
    /// Set while the address speaks HTTP/2: then calls share connections, which are opened one at a time.
    pub(super) shares_http2: AtomicBool,
    pub(super) connect_lock: tokio::sync::Mutex<()>,
    /// Incremented to retire every connection, those in use included.
    epoch: AtomicU64,
}

#[derive(Default)]
struct PooledConnections {
    http1: Vec<Http1Connection>,
    http2: Vec<Arc<Http2Connection>>,
}

impl ConnectionPool {
    pub(super) fn new(key: PoolKey, tls: Option<PoolTls>) -> Self {
        let shares_http2 = AtomicBool::new(key.h2c);
        let connect_lock = tokio::sync::Mutex::new(());
        Self { key, tls, connections: Mutex::default(), shares_http2, connect_lock, epoch: AtomicU64::new(0) }
    }

    fn lock_connections(&self) -> MutexGuard<'_, PooledConnections> {
        // A panic cannot leave the connections half changed.
        self.connections.lock()
    }

    /// The generation of connections that may be used now.
    fn current_generation(&self) -> u64 {
        self.generation_under(self.tls.as_ref().map_or(0, |tls| tls.profile.generation()))
    }

    /// The generation of a connection that is opened now, under the given generation of TLS.
    pub(super) fn generation_under(&self, tls_generation: u64) -> u64 {
        self.epoch.load(Ordering::Relaxed) << 32 | tls_generation
    }

    /// Takes the connection used last, which the agent is least likely to have closed.
    pub(super) fn take_http1(&self, now: Instant) -> Option<Http1Connection> {
        let generation = self.current_generation();
        let mut stale = Vec::new();
        let mut connections = self.lock_connections();
        let found = loop {
            let Some(connection) = connections.http1.pop() else {
                break None;
            };
            if connection.generation == generation && connection.expires_at > now {
                break Some(connection);
            }
            stale.push(connection);
        };
        drop(connections);
        // The sockets are closed after the lock is released.
        drop(stale);
        found
    }

    pub(super) fn put_http1(&self, mut connection: Http1Connection, keep_alive: Option<Duration>) {
        let keep_alive = keep_alive.map_or(self.key.keep_alive, |hint| hint.min(self.key.keep_alive));
        connection.expires_at = Instant::now() + keep_alive;
        if connection.generation != self.current_generation() {
            return;
        }
        let mut connections = self.lock_connections();
        if connections.http1.len() < self.key.max_idle {
            connections.http1.push(connection);
            return;
        }
        // The guard is dropped first, then the connection with its socket.
        drop(connections);
    }

    pub(super) fn open_http2_stream(&self) -> Option<Http2Stream> {
        if !self.shares_http2.load(Ordering::Relaxed) {
            return None;
        }
        let generation = self.current_generation();
        let mut connections = self.lock_connections();
        connections.http2.retain(|connection| !connection.is_closed() && connection.generation == generation);
        connections.http2.iter().find_map(Http2Connection::open_stream)
    }

    /// Shares a new HTTP/2 connection; its first stream is for the call that opened it.
    pub(super) fn add_http2(&self, connection: Http2Connection) -> Option<Http2Stream> {
        let connection = Arc::new(connection);
        let stream = connection.open_stream();
        self.shares_http2.store(true, Ordering::Relaxed);
        self.lock_connections().http2.push(connection);
        stream
    }

    /// Closes connections that were idle for too long.
    pub(super) fn close_expired(&self, now: Instant) {
        let generation = self.current_generation();
        let mut expired = Vec::new();
        let mut connections = self.lock_connections();
        let mut at = 0;
        while let Some(connection) = connections.http1.get(at) {
            if connection.expires_at > now && connection.generation == generation {
                at += 1;
            } else {
                expired.push(connections.http1.swap_remove(at));
            }
        }
        let keep_alive = self.key.keep_alive;
        connections.http2.retain(|connection| match connection.idle_since() {
            Some(since) => since + keep_alive > now && connection.generation == generation,
            None => true,
        });
        drop(connections);
        drop(expired);
    }

    /// Retires every connection; those in use end with their calls.
    pub(super) fn close_all(&self) {
        self.epoch.fetch_add(1, Ordering::Relaxed);
        let connections = std::mem::take(&mut *self.lock_connections());
        drop(connections);
    }

    /// The number of idle connections, for tests and the admin pages.
    pub(super) fn idle_connections(&self) -> usize {
        let connections = self.lock_connections();
        connections.http1.len() + connections.http2.len()
    }
}

impl fmt::Debug for ConnectionPool {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("ConnectionPool").field("key", &self.key).finish_non_exhaustive()
    }
}
