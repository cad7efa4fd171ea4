//! Sockets of the admin and health listeners: limits on connections, and an idle timeout.

use crate::values::{CountedHold, KeyedCounts, counted_address};
use axum::serve::Listener;
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

const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
/// Pause after a failed accept, for example with too many open files.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

/// Limits on the connections of a listener.
#[derive(Clone, Copy)]
pub(super) struct ConnectionBounds {
    /// Connections in total.
    pub(super) max_connections: usize,
    /// Connections of one address.
    pub(super) max_per_address: usize,
    /// How long a connection may exist, whatever it sends.
    pub(super) max_age: Duration,
}

/// A TCP listener with limits on its connections.
pub(super) struct BoundedListener {
    listener: TcpListener,
    limits: ConnectionBounds,
    permits: Arc<Semaphore>,
    by_address: Arc<KeyedCounts<IpAddr>>,
}

impl BoundedListener {
    pub(super) fn new(listener: TcpListener, limits: ConnectionBounds) -> Self {
        let permits = Arc::new(Semaphore::new(limits.max_connections));
        Self { listener, limits, permits, by_address: Arc::default() }
    }

    /// Returns the connection with its places, or `None` beyond a limit.
    fn admit(&self, stream: TcpStream, peer: IpAddr) -> Option<BoundedStream> {
        let permit = Arc::clone(&self.permits).try_acquire_owned().ok()?;
        let hold = self.by_address.try_hold(counted_address(peer), 1, self.limits.max_per_address)?;
        let end = Box::pin(sleep(self.limits.max_age));
        Some(BoundedStream { stream, idle_timer: None, end, _places: (permit, hold) })
    }
}

impl Listener for BoundedListener {
    type Io = BoundedStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (BoundedStream, SocketAddr) {
        loop {
            match self.listener.accept().await {
                // Beyond a limit the connection is closed at once, so that its client does not wait.
                Ok((stream, peer)) => {
                    if let Some(stream) = self.admit(stream, peer.ip()) {
                        return (stream, peer);
                    }
                }
                Err(why) => {
                    tracing::warn!(error = %why, "admin or health listener: accepting a connection failed");
                    sleep(ACCEPT_RETRY_DELAY).await;
                }
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// A connection that fails with a timeout error after `IDLE_TIMEOUT` without a byte in either direction, and at the end
/// of its life.
pub(super) struct BoundedStream {
    stream: TcpStream,
    idle_timer: Option<Pin<Box<Sleep>>>,
    end: Pin<Box<Sleep>>,
    _places: (OwnedSemaphorePermit, CountedHold<IpAddr>),
}

impl BoundedStream {
    /// Returns `result`, or a timeout error if the connection is over, or waits and was idle for too long.
    fn check_time<T>(&mut self, result: Poll<io::Result<T>>, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        let timed_out = || Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        if self.end.as_mut().poll(context).is_ready() {
            return timed_out();
        }
        if result.is_ready() {
            self.idle_timer = None;
            return result;
        }
        let timer = self.idle_timer.get_or_insert_with(|| Box::pin(sleep(IDLE_TIMEOUT)));
        ready!(timer.as_mut().poll(context));
        timed_out()
    }
}

impl AsyncRead for BoundedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.stream).poll_read(context, buffer);
        self.check_time(result, context)
    }
}

impl AsyncWrite for BoundedStream {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.check_time(result, context)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
