//! The admin listener's socket: a limit on connections, an idle timeout, and the check of the Host header against DNS
//! rebinding.

use super::pages::refuse;
use crate::fault::{Code, Fault};
use axum::{
    extract::{Request, State},
    http::header,
    middleware::Next,
    response::Response,
    serve::Listener,
};
use std::{
    future::Future as _,
    io,
    net::{IpAddr, SocketAddr},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Sleep, sleep},
};

const CONNECTIONS: usize = 64;
const SILENCE: Duration = Duration::from_secs(30);
/// Pause after a failed accept, for example with too many open files.
const PAUSE: Duration = Duration::from_millis(100);

/// The TCP listener with a limit on connections.
pub(super) struct Door {
    listener: TcpListener,
    room: Arc<Semaphore>,
}

impl Door {
    pub(super) fn new(listener: TcpListener) -> Self {
        Self { listener, room: Arc::new(Semaphore::new(CONNECTIONS)) }
    }
}

impl Listener for Door {
    type Io = Visit;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Visit, SocketAddr) {
        loop {
            match self.listener.accept().await {
                // Closed at once, so that the client does not wait for a connection that is not served.
                Ok((stream, address)) => match Arc::clone(&self.room).try_acquire_owned() {
                    Ok(place) => {
                        return (Visit { stream, silence: None, _place: place }, address);
                    }
                    Err(_) => continue,
                },
                Err(why) => {
                    tracing::warn!(%why, "admin listener: accepting a connection failed");
                    sleep(PAUSE).await;
                }
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// A connection that fails with a timeout when neither side sends anything for a while.
pub(super) struct Visit {
    stream: TcpStream,
    silence: Option<Pin<Box<Sleep>>>,
    _place: OwnedSemaphorePermit,
}

impl Visit {
    /// Fails with a timeout once the connection was idle for too long; otherwise registers the wake-up.
    fn poll_silence<T>(&mut self, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        let silence = self.silence.get_or_insert_with(|| Box::pin(sleep(SILENCE)));
        ready!(silence.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }

    fn heard<T>(&mut self, polled: Poll<io::Result<T>>, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        if polled.is_pending() {
            return self.poll_silence(context);
        }
        self.silence = None;
        polled
    }
}

impl AsyncRead for Visit {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, to: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_read(context, to);
        self.heard(polled, context)
    }
}

impl AsyncWrite for Visit {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(context, from);
        self.heard(polled, context)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// Requires a loopback host name if the listener is on loopback: a web page whose own name was resolved to 127.0.0.1
/// (DNS rebinding) still sends that name.
pub(super) async fn own_name(State(loopback): State<bool>, request: Request, next: Next) -> Response {
    let mut hosts = request.headers().get_all(header::HOST).iter();
    let named = hosts.all(|host| host.to_str().is_ok_and(is_own))
        && request.uri().authority().is_none_or(|name| is_own(name.as_str()));
    if loopback && !named {
        return refuse(&Fault::new(
            Code::PermissionDenied,
            "This listener only accepts the host names localhost, 127.0.0.1 and [::1]",
        ));
    }
    next.run(request).await
}

fn is_own(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split_once(']').map_or("", |(address, _)| address),
        None => host.split_once(':').map_or(host, |(name, _)| name),
    };
    name.eq_ignore_ascii_case("localhost") || name.parse().is_ok_and(|address: IpAddr| address.is_loopback())
}
