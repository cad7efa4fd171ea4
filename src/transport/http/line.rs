//! One connection: a line that carries one call at a time (HTTP/1.1), or a trunk that calls share (HTTP/2).

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

/// Calls at once on one HTTP/2 connection. Times the window of a stream, this bounds what slow callers
/// can make the gateway hold, and leaves no stream waiting for another's window.
const MOST_STREAMS: usize = 64;

/// An HTTP/1.1 connection. It is driven by the call that uses it, not by a task of its own: a call then
/// wakes nobody, and an unused connection costs nothing.
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

    /// Lets the connection read and write what it can. Ready: it has ended.
    pub(super) fn drive(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(connection) = &mut self.connection else {
            return Poll::Ready(());
        };
        // How it ended reaches the call through the answer or the body.
        match Pin::new(connection.as_mut()).poll(cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(_) => {
                self.connection = None;
                Poll::Ready(())
            }
        }
    }

    /// Whether another request may be sent on it: still open, nothing unread, nothing unsent. Nobody is left to be
    /// woken: else the next request, and an agent that hangs up, would wake the call that has just ended.
    pub(super) fn is_usable(&mut self) -> bool {
        self.drive(&mut Context::from_waker(Waker::noop())).is_pending() && self.sender.is_ready()
    }
}

/// An HTTP/2 connection, shared by the calls on it.
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

    /// Since when no call is on it, if that is so.
    pub(super) fn unused_since(&self) -> Option<Instant> {
        let unused = self.streams.load(Ordering::Relaxed) == 0;
        unused.then(|| *self.used.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A place on it, if there is one. Asked only under the lock of the shelf, so that the bound holds.
    pub(super) fn open(self: &Arc<Self>) -> Option<Stream> {
        (self.streams.load(Ordering::Relaxed) < MOST_STREAMS).then(|| {
            self.streams.fetch_add(1, Ordering::Relaxed);
            Stream(Arc::clone(self))
        })
    }
}

/// A place on a trunk, given back when dropped.
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
