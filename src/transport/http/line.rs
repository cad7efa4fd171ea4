//! Connections to upstreams: HTTP/1.1, which carries one call at a time, and HTTP/2, which calls share.

use super::wire::{Ledger, Wire};
use crate::transport::body::Outgoing;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::TokioIo;
use std::{
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, Waker},
};
use tokio::time::Instant;

/// The maximum number of concurrent calls on one HTTP/2 connection. Multiplied by a stream's window, it bounds the
/// memory that slow callers can occupy, and no stream waits for the window of another one.
const MOST_STREAMS: usize = 64;

/// An HTTP/1.1 connection. The call that uses it drives it, not a task of its own: a call then wakes no other task, and
/// an idle connection costs nothing.
pub(super) struct Line {
    pub(super) sender: http1::SendRequest<Outgoing>,
    connection: Option<Box<http1::Connection<TokioIo<Wire>, Outgoing>>>,
    pub(super) ledger: Arc<Ledger>,
    pub(super) generation: u64,
    pub(super) kept_until: Instant,
    pub(super) reused: bool,
}

impl Line {
    pub(super) async fn open(wire: Wire, ledger: Arc<Ledger>, generation: u64) -> hyper::Result<Self> {
        let (sender, connection) = http1::Builder::new()
            .max_header_size(super::LARGEST_HEAD)
            .max_buf_size(2 * super::LARGEST_HEAD)
            .handshake(TokioIo::new(wire))
            .await?;
        let connection = Some(Box::new(connection));
        Ok(Self { sender, connection, ledger, generation, kept_until: Instant::now(), reused: false })
    }

    /// Lets the connection read and write what it can. Ready means that the connection has ended.
    pub(super) fn drive(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(connection) = &mut self.connection else {
            return Poll::Ready(());
        };
        // The reply or the body reports to the call how the connection ended.
        match Pin::new(connection.as_mut()).poll(cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(_) => {
                self.connection = None;
                Poll::Ready(())
            }
        }
    }

    /// Whether the connection can carry another request: still open, nothing unread, nothing unsent. It polls without a
    /// waker: else the next request, or an agent that hangs up, would wake the call that has just ended.
    pub(super) fn is_usable(&mut self) -> bool {
        self.drive(&mut Context::from_waker(Waker::noop())).is_pending() && self.sender.is_ready()
    }
}

/// An HTTP/2 connection, shared by calls.
pub(super) struct Trunk {
    sender: http2::SendRequest<Outgoing>,
    pub(super) generation: u64,
    streams: AtomicUsize,
    used: Mutex<Instant>,
}

impl Trunk {
    pub(super) fn new(sender: http2::SendRequest<Outgoing>, generation: u64) -> Self {
        Self { sender, generation, streams: AtomicUsize::new(0), used: Mutex::new(Instant::now()) }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    /// Returns since when the connection carries no call, if it carries none.
    pub(super) fn unused_since(&self) -> Option<Instant> {
        let unused = self.streams.load(Ordering::Relaxed) == 0;
        unused.then(|| *self.used.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Opens a stream, if the bound allows it. Called only under the lock of the pool, so that the bound holds.
    pub(super) fn open(self: &Arc<Self>) -> Option<Stream> {
        (self.streams.load(Ordering::Relaxed) < MOST_STREAMS).then(|| {
            self.streams.fetch_add(1, Ordering::Relaxed);
            Stream(Arc::clone(self))
        })
    }
}

/// A stream on a shared connection; dropping it frees its slot.
pub(super) struct Stream(Arc<Trunk>);

impl Stream {
    pub(super) fn sender(&self) -> http2::SendRequest<Outgoing> {
        self.0.sender.clone()
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        *self.0.used.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        self.0.streams.fetch_sub(1, Ordering::Relaxed);
    }
}
