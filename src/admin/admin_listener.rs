//! Socket of the admin listener: a limit on connections, an idle timeout, and a check of the Host header that prevents
//! DNS rebinding.

use super::page_response::error_response;
use crate::{
    fault::{Fault, FaultCode},
    values::{host_without_port, is_loopback_host, parse_ip_literal},
};
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
    net::SocketAddr,
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

const MAX_CONNECTIONS: usize = 64;
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
/// Pause after a failed accept, for example with too many open files.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

/// The TCP listener with a limit on connections.
pub(super) struct AdminListener {
    listener: TcpListener,
    permits: Arc<Semaphore>,
}

impl AdminListener {
    pub(super) fn new(listener: TcpListener) -> Self {
        Self { listener, permits: Arc::new(Semaphore::new(MAX_CONNECTIONS)) }
    }
}

impl Listener for AdminListener {
    type Io = IdleTimeoutStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (IdleTimeoutStream, SocketAddr) {
        loop {
            match self.listener.accept().await {
                // Beyond the limit the connection is closed at once, so that its client does not wait.
                Ok((stream, address)) => match Arc::clone(&self.permits).try_acquire_owned() {
                    Ok(permit) => {
                        return (IdleTimeoutStream { stream, idle_timer: None, _permit: permit }, address);
                    }
                    Err(_) => continue,
                },
                Err(why) => {
                    tracing::warn!(error = %why, "admin listener: accepting a connection failed");
                    sleep(ACCEPT_RETRY_DELAY).await;
                }
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// A connection that fails with a timeout error after `IDLE_TIMEOUT` without a byte in either direction.
pub(super) struct IdleTimeoutStream {
    stream: TcpStream,
    idle_timer: Option<Pin<Box<Sleep>>>,
    _permit: OwnedSemaphorePermit,
}

impl IdleTimeoutStream {
    /// Returns a timeout error if the connection was idle for too long; otherwise registers the wake-up.
    fn poll_idle_timeout<T>(&mut self, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        let timer = self.idle_timer.get_or_insert_with(|| Box::pin(sleep(IDLE_TIMEOUT)));
        ready!(timer.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }

    fn restart_idle_timer<T>(&mut self, result: Poll<io::Result<T>>, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        if result.is_pending() {
            return self.poll_idle_timeout(context);
        }
        self.idle_timer = None;
        result
    }
}

impl AsyncRead for IdleTimeoutStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.stream).poll_read(context, buffer);
        self.restart_idle_timer(result, context)
    }
}

impl AsyncWrite for IdleTimeoutStream {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.restart_idle_timer(result, context)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// The host names under which the listener is reached.
pub(super) struct AllowedHosts {
    pub(super) is_on_loopback: bool,
    pub(super) names: Vec<String>,
}

impl AllowedHosts {
    /// Whether `authority`, a `Host` header, is a name of the listener. An IP address is no name that a page could
    /// rebind.
    fn contains(&self, authority: &str) -> bool {
        let host = host_without_port(authority);
        is_loopback_host(host)
            || (!self.is_on_loopback && parse_ip_literal(host).is_some())
            || self.names.iter().any(|name| name.eq_ignore_ascii_case(host))
    }
}

/// Requires a host name of the listener. A web page whose host name resolves to the listener's address (DNS rebinding)
/// sends its own host name.
pub(super) async fn require_own_host(
    State(allowed): State<Arc<AllowedHosts>>,
    request: Request,
    next: Next,
) -> Response {
    let mut hosts = request.headers().get_all(header::HOST).iter();
    let is_own_name = hosts.all(|host| host.to_str().is_ok_and(|host| allowed.contains(host)))
        && request.uri().authority().is_none_or(|name| allowed.contains(name.as_str()));
    if !is_own_name {
        return error_response(&Fault::new(
            FaultCode::PermissionDenied,
            "This listener only accepts its own host names: localhost, 127.0.0.1, [::1] and admin.allowed_hosts",
        ));
    }
    next.run(request).await
}
