//! Opens connections: name resolution, socket, TLS, HTTP handshake, all within the connect timeout.

use super::{
    Http, Target, failure,
    line::{Line, Stream, Trunk},
    pool::{Place, Pool, Security},
    wire::{TransportStream, Wire},
};
use crate::{
    fault::{Fault, Reach},
    net::{self, AddressPolicy, Unreachable},
};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::ClientConfig;
use std::{
    io,
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
const PING_EVERY: Duration = Duration::from_secs(15);
const PING_ANSWER: Duration = Duration::from_secs(10);

/// A connection that can carry one request now.
pub(super) enum Way {
    Line(Line),
    Stream(Stream, /** Whether the connection carried other requests before. */ bool),
}

impl Way {
    /// Whether the connection was idle before, so that the agent may have closed it.
    pub(super) fn is_reused(&self) -> bool {
        match self {
            Self::Line(line) => line.reused,
            Self::Stream(_, reused) => *reused,
        }
    }
}

/// Opens a connection, or waits for a call that is connecting to an HTTP/2 upstream and shares its connection.
pub(super) async fn connect(target: &Target, policy: &AddressPolicy, deadline: Instant) -> Result<Way, Fault> {
    let pool = &target.pool;
    let until = deadline.min(Instant::now() + target.bounds.connect);
    let late = || {
        let fault = failure::too_late(format_args!("connecting to {} took too long", pool.key.place));
        // A timeout that the caller shortened says nothing of the agent.
        if until < deadline { fault.reached(Reach::Nowhere) } else { fault }
    };
    let work = async {
        if !pool.shares.load(Ordering::Relaxed) {
            return open(pool, policy, until).await;
        }
        let _turn = pool.connecting.lock().await;
        match pool.take_trunk() {
            Some(stream) => Ok(Way::Stream(stream, true)),
            None => open(pool, policy, until).await,
        }
    };
    timeout_at(until, work).await.unwrap_or_else(|_| Err(late()))
}

impl Http {
    /// Whether the upstream accepts a connection within the connect timeout, TLS and its names included.
    pub(in crate::transport) async fn reaches(&self, target: &Target) -> bool {
        connect(target, &self.policy(), Instant::now() + target.bounds.connect).await.is_ok()
    }
}

/// Opens a connection that is never shared. TLS offers HTTP/1.1 only, because only HTTP/1.1 can be upgraded to another
/// protocol here.
pub(super) async fn alone(target: &Target, policy: &AddressPolicy, deadline: Instant) -> Result<Wire, Fault> {
    let pool = &target.pool;
    let until = deadline.min(Instant::now() + target.bounds.connect);
    let late = |_| failure::too_late(format_args!("connecting to {} took too long", pool.key.place));
    let work = async {
        let Place::Tcp { host, port } = &pool.key.place else {
            return Err(failure::unreachable(&Unreachable::Socket { at: pool.key.place.to_string() }));
        };
        let socket = dial(host, *port, policy, until).await?;
        let Some(security) = &pool.security else {
            return Ok(Wire::new(TransportStream::Tcp(socket)).0);
        };
        let mut config = ClientConfig::clone(&security.profile.live().config);
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let stream = TlsConnector::from(Arc::new(config)).connect(security.name.clone(), socket).await;
        let stream = stream.map_err(|why| failure::securing(&pool.key.place, &why))?;
        Ok(Wire::new(TransportStream::Tls(Box::new(stream))).0)
    };
    timeout_at(until, work).await.map_err(late)?
}

async fn open(pool: &Arc<Pool>, policy: &AddressPolicy, until: Instant) -> Result<Way, Fault> {
    // The generation is read first, so that a change while connecting is noticed.
    let plain = pool.mark(0);
    match &pool.key.place {
        Place::Unix(path) => {
            if !policy.permits_path(path) {
                return Err(failure::unreachable(&Unreachable::Socket { at: path.display().to_string() }));
            }
            let socket = UnixStream::connect(path).await.map_err(|why| failure::connecting(&pool.key.place, &why))?;
            converse(pool, TransportStream::Unix(socket), plain, pool.key.h2c).await
        }
        Place::Tcp { host, port } => {
            let socket = dial(host, *port, policy, until).await?;
            match &pool.security {
                None => converse(pool, TransportStream::Tcp(socket), plain, pool.key.h2c).await,
                Some(security) => secure(pool, security, socket).await,
            }
        }
    }
}

/// Tries the addresses in order; each has its share of the remaining time.
async fn dial(host: &str, port: u16, policy: &AddressPolicy, until: Instant) -> Result<TcpStream, Fault> {
    let addresses = net::resolve(host, port, policy).await.map_err(|why| failure::unreachable(&why))?;
    let mut left = addresses.len() as u32;
    let mut last = None;
    for at in addresses {
        let share = until.saturating_duration_since(Instant::now()) / left.max(1);
        let tried = timeout_at(Instant::now() + share, TcpStream::connect(at)).await;
        let why = match tried {
            Ok(Ok(socket)) => {
                // Small writes must not wait for acknowledgements; if this fails, the connection is only slower.
                let _ = socket.set_nodelay(true);
                return Ok(socket);
            }
            Ok(Err(why)) => why,
            Err(_) => io::Error::new(io::ErrorKind::TimedOut, "no answer in time"),
        };
        last = Some(failure::connecting(&at, &why));
        left -= 1;
    }
    Err(last.unwrap_or_else(|| failure::too_late(format_args!("{host} has no address"))))
}

async fn secure(pool: &Arc<Pool>, security: &Security, socket: TcpStream) -> Result<Way, Fault> {
    let live = security.profile.live();
    let mark = pool.mark(live.generation);
    let connector = TlsConnector::from(Arc::clone(&live.config));
    let stream = connector.connect(security.name.clone(), socket).await;
    let stream = stream.map_err(|why| failure::securing(&pool.key.place, &why))?;
    let h2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    converse(pool, TransportStream::Tls(Box::new(stream)), mark, h2).await
}

async fn converse(pool: &Arc<Pool>, carrier: TransportStream, generation: u64, h2: bool) -> Result<Way, Fault> {
    let (wire, ledger) = Wire::new(carrier);
    if !h2 {
        pool.shares.store(false, Ordering::Relaxed);
        let line = Line::open(wire, ledger, generation).await;
        return line.map(Way::Line).map_err(|why| failure::unanswered(&why));
    }
    let (sender, connection) = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_header_list_size(super::LARGEST_HEAD as u32)
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_ANSWER)
        .handshake(TokioIo::new(wire))
        .await
        .map_err(|why| failure::unanswered(&why))?;
    // The task ends when the agent closes the connection, or when the last sender is dropped. Every call that the end
    // interrupts receives its error.
    tokio::spawn(async move { drop(connection.await) });
    let stream = pool.put_trunk(Trunk::new(sender, generation));
    stream
        .map(|stream| Way::Stream(stream, false))
        .ok_or_else(|| failure::unbelievable("a new connection had no free stream"))
}
