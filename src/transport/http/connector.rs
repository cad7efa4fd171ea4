//! Connections to upstreams: HTTP/1.1, which carries one call at a time, and HTTP/2, which calls share; opened by name
//! resolution, socket, TLS and HTTP handshake, all within the connect timeout.

use super::{
    HttpTarget,
    connection_pool::{ConnectAddress, ConnectionPool, PoolTls},
    counted_stream::{ByteCounters, CountedStream, TransportStream},
    error_mapping,
};
use crate::{
    fault::{CallProgress, Fault},
    net::{self, AddressPolicy, ResolveError},
    transport::upstream_body::HyperBody,
};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use parking_lot::Mutex;
use rustls::ClientConfig;
use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, Waker},
    time::Duration,
};
use tokio::{
    net::{TcpStream, UnixStream},
    time::{Instant, timeout_at},
};
use tokio_rustls::TlsConnector;

/// The flow-control window of a stream; together with the bound on streams, it bounds the buffers of a connection.
const STREAM_WINDOW: u32 = 128 << 10;
const CONNECTION_WINDOW: u32 = 8 << 20;

/// HTTP/2 pings that detect a peer that is gone without closing the connection.
const PING_INTERVAL: Duration = Duration::from_secs(15);
const PING_TIMEOUT: Duration = Duration::from_secs(10);

/// A connection that can carry one request now.
pub(super) enum HttpConnection {
    Http1(Http1Connection),
    Http2(Http2Stream, /** Whether the connection carried other requests before. */ bool),
}

impl HttpConnection {
    /// Whether the connection carried requests before, so that the agent may have closed it meanwhile.
    pub(super) fn is_reused(&self) -> bool {
        match self {
            Self::Http1(connection) => connection.reused,
            Self::Http2(_, reused) => *reused,
        }
    }
}

/// Opens a connection, or waits for a call that is connecting to an HTTP/2 upstream and shares its connection.
pub(super) async fn connect(target: &HttpTarget, deadline: Instant) -> Result<HttpConnection, Fault> {
    let (pool, policy) = (&target.pool, &target.policy.load_full());
    let until = deadline.min(Instant::now() + target.timeouts.connect);
    let late = || {
        let fault = error_mapping::timeout_fault(format_args!("connecting to {} took too long", pool.key.address));
        // A timeout that the caller shortened says nothing about the agent.
        if until < deadline { fault.with_progress(CallProgress::NotSent) } else { fault }
    };
    let attempt = async {
        if !pool.shares_http2.load(Ordering::Relaxed) {
            return open_connection(pool, policy, until).await;
        }
        let _guard = pool.connect_lock.lock().await;
        match pool.open_http2_stream() {
            Some(stream) => Ok(HttpConnection::Http2(stream, true)),
            None => open_connection(pool, policy, until).await,
        }
    };
    timeout_at(until, attempt).await.unwrap_or_else(|_| Err(late()))
}

/// Whether the upstream accepts a connection within the connect timeout, TLS and its names included.
pub(in crate::transport) async fn is_reachable(target: &HttpTarget) -> bool {
    connect(target, Instant::now() + target.timeouts.connect).await.is_ok()
}

/// Opens a connection that is never shared. TLS offers HTTP/1.1 only, because only HTTP/1.1 can be upgraded to another
/// protocol here.
pub(super) async fn connect_dedicated(target: &HttpTarget, deadline: Instant) -> Result<CountedStream, Fault> {
    let (pool, policy) = (&target.pool, &target.policy.load_full());
    let until = deadline.min(Instant::now() + target.timeouts.connect);
    let late = |_| error_mapping::timeout_fault(format_args!("connecting to {} took too long", pool.key.address));
    let attempt = async {
        let ConnectAddress::Tcp { host, port } = &pool.key.address else {
            return Err(error_mapping::unresolvable_fault(&ResolveError::SocketDenied {
                path: pool.key.address.to_string(),
            }));
        };
        let socket = dial_tcp(host, *port, policy, until).await?;
        let Some(tls) = &pool.tls else {
            return Ok(CountedStream::new(TransportStream::Tcp(socket)).0);
        };
        let mut config = ClientConfig::clone(&tls.profile.loaded().config);
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let stream = TlsConnector::from(Arc::new(config)).connect(tls.server_name.clone(), socket).await;
        let stream = stream.map_err(|error| error_mapping::tls_fault(&pool.key.address, &error))?;
        Ok(CountedStream::new(TransportStream::Tls(Box::new(stream))).0)
    };
    timeout_at(until, attempt).await.map_err(late)?
}

async fn open_connection(
    pool: &Arc<ConnectionPool>,
    policy: &AddressPolicy,
    until: Instant,
) -> Result<HttpConnection, Fault> {
    // The generation is read first, so that a change while connecting is detected.
    let generation = pool.generation_under(0);
    match &pool.key.address {
        ConnectAddress::Unix(path) => {
            if !policy.permits_unix_socket(path) {
                return Err(error_mapping::unresolvable_fault(&ResolveError::SocketDenied {
                    path: path.display().to_string(),
                }));
            }
            let socket = UnixStream::connect(path)
                .await
                .map_err(|error| error_mapping::connect_fault(&pool.key.address, &error))?;
            handshake_http(pool, TransportStream::Unix(socket), generation, pool.key.h2c).await
        }
        ConnectAddress::Tcp { host, port } => {
            let socket = dial_tcp(host, *port, policy, until).await?;
            match &pool.tls {
                None => handshake_http(pool, TransportStream::Tcp(socket), generation, pool.key.h2c).await,
                Some(tls) => handshake_tls(pool, tls, socket).await,
            }
        }
    }
}

/// Tries the addresses in order; each has its share of the remaining time.
async fn dial_tcp(host: &str, port: u16, policy: &AddressPolicy, until: Instant) -> Result<TcpStream, Fault> {
    let addresses =
        net::resolve_host(host, port, policy).await.map_err(|error| error_mapping::unresolvable_fault(&error))?;
    let mut remaining = addresses.len() as u32;
    let mut last_fault = None;
    for address in addresses {
        let share = until.saturating_duration_since(Instant::now()) / remaining.max(1);
        let result = timeout_at(Instant::now() + share, TcpStream::connect(address)).await;
        let error = match result {
            Ok(Ok(socket)) => {
                // Small writes must not wait for acknowledgements; if this fails, the connection is only slower.
                let _ = socket.set_nodelay(true);
                return Ok(socket);
            }
            Ok(Err(error)) => error,
            Err(_) => io::Error::new(io::ErrorKind::TimedOut, "timed out"),
        };
        last_fault = Some(error_mapping::connect_fault(&address, &error));
        remaining -= 1;
    }
    Err(last_fault.unwrap_or_else(|| error_mapping::timeout_fault(format_args!("{host} has no address"))))
}

async fn handshake_tls(
    pool: &Arc<ConnectionPool>,
    pool_tls: &PoolTls,
    socket: TcpStream,
) -> Result<HttpConnection, Fault> {
    let tls = pool_tls.profile.loaded();
    let generation = pool.generation_under(tls.generation);
    let connector = TlsConnector::from(Arc::clone(&tls.config));
    let stream = connector.connect(pool_tls.server_name.clone(), socket).await;
    let stream = stream.map_err(|error| error_mapping::tls_fault(&pool.key.address, &error))?;
    let h2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    handshake_http(pool, TransportStream::Tls(Box::new(stream)), generation, h2).await
}

async fn handshake_http(
    pool: &Arc<ConnectionPool>,
    stream: TransportStream,
    generation: u64,
    h2: bool,
) -> Result<HttpConnection, Fault> {
    let (counted, counters) = CountedStream::new(stream);
    if !h2 {
        pool.shares_http2.store(false, Ordering::Relaxed);
        let connection = Http1Connection::handshake(counted, counters, generation).await;
        return connection.map(HttpConnection::Http1).map_err(|error| error_mapping::no_response_fault(&error));
    }
    let (sender, connection) = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_header_list_size(MAX_RESPONSE_HEAD as u32)
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_TIMEOUT)
        .handshake(TokioIo::new(counted))
        .await
        .map_err(|error| error_mapping::no_response_fault(&error))?;
    // The task ends when the agent closes the connection, or when the last sender is dropped. Calls in progress then
    // receive the error themselves.
    tokio::spawn(async move { drop(connection.await) });
    let stream = pool.add_http2(Http2Connection::new(sender, generation));
    stream
        .map(|stream| HttpConnection::Http2(stream, false))
        .ok_or_else(|| error_mapping::invalid_response_fault("a new connection had no free stream"))
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
