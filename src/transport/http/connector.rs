//! Opens connections: name resolution, socket, TLS, HTTP handshake, all within the connect timeout.

use super::{
    HttpTarget,
    connection_pool::{
        ConnectAddress, ConnectionPool, Http1Connection, Http2Connection, Http2Stream, MAX_RESPONSE_HEAD, PoolTls,
    },
    counted_stream::{CountedStream, TransportStream},
    error_mapping,
};
use crate::{
    fault::{CallProgress, Fault},
    net::{self, AddressPolicy, ResolveError},
    transport::timeouts::{self, CallEnd, TimeoutKind},
};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::ClientConfig;
use std::{
    io,
    path::Path,
    sync::{Arc, atomic::Ordering},
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
    let (pool, policy) = (&target.pool, &target.address_policy());
    let until = deadline.min(Instant::now() + target.timeouts.connect);
    let late = || {
        let detail = format_args!("connecting to {} took too long", pool.key.address);
        // A timeout that the caller shortened says nothing about the agent.
        if until < deadline {
            target.timeouts.fault(TimeoutKind::Connect, detail).with_progress(CallProgress::NotSent)
        } else {
            timeouts::deadline_fault(detail)
        }
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
    let connected = timeout_at(until, attempt).await.unwrap_or_else(|_| Err(late()));
    connected.map_err(|fault| target.timeouts.attribute(fault, TimeoutKind::Connect, CallEnd { until, deadline }))
}

/// Whether the upstream accepts a connection within the connect timeout, TLS and its names included.
pub(in crate::transport) async fn is_reachable(target: &HttpTarget) -> bool {
    connect(target, Instant::now() + target.timeouts.connect).await.is_ok()
}

/// Opens a connection that is never shared. TLS offers HTTP/1.1 only, because only HTTP/1.1 can be upgraded to another
/// protocol here.
pub(super) async fn connect_dedicated(target: &HttpTarget, deadline: Instant) -> Result<CountedStream, Fault> {
    let (pool, policy) = (&target.pool, &target.address_policy());
    let until = deadline.min(Instant::now() + target.timeouts.connect);
    let late = || timeouts::timeout_fault(format_args!("connecting to {} took too long", pool.key.address));
    let attempt = async {
        let (host, port) = match &pool.key.address {
            ConnectAddress::Tcp { host, port } => (host, port),
            ConnectAddress::Unix(path) => {
                let socket = dial_unix(pool, path, policy).await?;
                return Ok(CountedStream::new(TransportStream::Unix(socket)).0);
            }
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
    let connected = timeout_at(until, attempt).await.unwrap_or_else(|_| Err(late()));
    connected.map_err(|fault| target.timeouts.attribute(fault, TimeoutKind::Connect, CallEnd { until, deadline }))
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
            let socket = dial_unix(pool, path, policy).await?;
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

async fn dial_unix(pool: &ConnectionPool, path: &Path, policy: &AddressPolicy) -> Result<UnixStream, Fault> {
    if !policy.permits_unix_socket(path) {
        return Err(error_mapping::unresolvable_fault(&ResolveError::SocketDenied {
            path: path.display().to_string(),
        }));
    }
    UnixStream::connect(path).await.map_err(|error| error_mapping::connect_fault(&pool.key.address, &error))
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
    Err(last_fault.unwrap_or_else(|| timeouts::timeout_fault(format_args!("{host} has no address"))))
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
    let (mut counted, counters) = CountedStream::new(stream);
    if !h2 {
        pool.shares_http2.store(false, Ordering::Relaxed);
        let connection = Http1Connection::handshake(counted, counters, generation).await;
        return connection.map(HttpConnection::Http1).map_err(|error| error_mapping::no_response_fault(&error));
    }
    counted.set_http2();
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
