//! Connections to upstreams, and their pools: HTTP/1.1, which carries one call at a time, and HTTP/2, which calls
//! share. A pool belongs to one address *and* one TLS profile: a connection that was opened under other certificate
//! authorities is never used here.

use super::{
    counted_stream::{ByteCounters, CountedStream},
    tls_profile::TlsProfile,
};
use crate::transport::{config::UpstreamTlsConfig, upstream_body::HyperBody};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::TokioIo;
use parking_lot::{Mutex, MutexGuard};
use rustls::pki_types::ServerName;
use std::{
    fmt,
    path::PathBuf,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    task::{Context, Poll, Waker},
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

/// The maximum size of a response head, all header lines together, in bytes.
pub(super) const MAX_RESPONSE_HEAD: usize = 64 << 10;

/// The maximum number of concurrent calls on one HTTP/2 connection. Multiplied by a stream's window, it bounds the
/// memory that slow callers can occupy, and no stream waits for the window of another one.
const MAX_STREAMS: usize = 64;

/// An HTTP/1.1 connection. The call that uses the connection drives it; no background task does. So a call wakes no
/// other task, and an idle connection costs nothing.
pub(super) struct Http1Connection {
    pub(super) sender: http1::SendRequest<HyperBody>,
    connection: Option<Box<http1::Connection<TokioIo<CountedStream>, HyperBody>>>,
    pub(super) counters: Arc<ByteCounters>,
    pub(super) generation: u64,
    pub(super) expires_at: Instant,
    pub(super) reused: bool,
}

impl Http1Connection {
    pub(super) async fn handshake(
        io: CountedStream,
        counters: Arc<ByteCounters>,
        generation: u64,
    ) -> hyper::Result<Self> {
        let (sender, connection) = http1::Builder::new()
            .max_header_size(MAX_RESPONSE_HEAD)
            .max_buf_size(2 * MAX_RESPONSE_HEAD)
            .handshake(TokioIo::new(io))
            .await?;
        let connection = Some(Box::new(connection));
        Ok(Self { sender, connection, counters, generation, expires_at: Instant::now(), reused: false })
    }

    /// Lets the connection read and write what it can. Ready means that the connection has ended.
    pub(super) fn drive(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(connection) = &mut self.connection else {
            return Poll::Ready(());
        };
        // The error that ended the connection reaches the call through its response or body.
        match Pin::new(connection.as_mut()).poll(cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(_) => {
                self.connection = None;
                Poll::Ready(())
            }
        }
    }

    /// Drives the connection, and returns whether it can carry another request: still open, nothing unread, nothing
    /// unsent. It polls without a waker, so that neither the next request nor an agent that closes the connection wakes
    /// the call that has just ended.
    pub(super) fn check_reusable(&mut self) -> bool {
        self.drive(&mut Context::from_waker(Waker::noop())).is_pending() && self.sender.is_ready()
    }
}

/// An HTTP/2 connection, shared by calls.
pub(super) struct Http2Connection {
    sender: http2::SendRequest<HyperBody>,
    pub(super) generation: u64,
    active_streams: AtomicUsize,
    last_used: Mutex<Instant>,
}

impl Http2Connection {
    pub(super) fn new(sender: http2::SendRequest<HyperBody>, generation: u64) -> Self {
        Self { sender, generation, active_streams: AtomicUsize::new(0), last_used: Mutex::new(Instant::now()) }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    /// Returns when the last call ended, if the connection carries none.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        let unused = self.active_streams.load(Ordering::Relaxed) == 0;
        unused.then(|| *self.last_used.lock())
    }

    /// Opens a stream, if the bound allows it. Called only under the lock of the pool, so that the bound holds.
    pub(super) fn open_stream(self: &Arc<Self>) -> Option<Http2Stream> {
        (self.active_streams.load(Ordering::Relaxed) < MAX_STREAMS).then(|| {
            self.active_streams.fetch_add(1, Ordering::Relaxed);
            Http2Stream(Arc::clone(self))
        })
    }
}

/// A stream on a shared connection; dropping it frees its slot.
pub(super) struct Http2Stream(Arc<Http2Connection>);

impl Http2Stream {
    pub(super) fn sender(&self) -> http2::SendRequest<HyperBody> {
        self.0.sender.clone()
    }
}

impl Drop for Http2Stream {
    fn drop(&mut self) {
        *self.0.last_used.lock() = Instant::now();
        self.0.active_streams.fetch_sub(1, Ordering::Relaxed);
    }
}
