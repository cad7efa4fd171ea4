//! Connections to upstreams: HTTP/1.1, which carries one call at a time, and HTTP/2, which calls share.

use super::counted_stream::{ByteCounters, CountedStream};
use crate::transport::upstream_body::HyperBody;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, Waker},
};
use tokio::time::Instant;

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
