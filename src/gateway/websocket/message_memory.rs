//! The memory of the message that a caller sends: a longer one counts as a buffered body of the caller, while it arrives
//! and until it is handled.

use crate::{
    fault::Fault, gateway::gateway_state::Gateway, http_server::UpgradedStream, limit::MemoryReservation,
    values::ClientKey,
};
use parking_lot::Mutex;
use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The size in bytes up to which a message is not counted.
const UNCOUNTED: usize = 32 << 10;

/// Counts what a caller sent since its last message was handled.
#[derive(Clone)]
pub(super) struct MessageMemory {
    gateway: Arc<Gateway>,
    client: ClientKey,
    state: Arc<Mutex<ReceivedMessage>>,
}

#[derive(Default)]
struct ReceivedMessage {
    bytes: usize,
    reservation: Option<MemoryReservation>,
    /// Whether a message found no memory, so that no more is read.
    is_refused: bool,
    refusal: Option<Fault>,
}

impl MessageMemory {
    pub(super) fn new(gateway: &Arc<Gateway>, client: ClientKey) -> Self {
        Self { gateway: Arc::clone(gateway), client, state: Arc::default() }
    }

    /// Returns the client whose messages these are.
    pub(super) fn client(&self) -> ClientKey {
        self.client
    }

    /// Returns a stream that counts what is read from `io`. A read fails when the message finds no memory.
    pub(super) fn metered(&self, io: Box<dyn UpgradedStream>) -> MeteredStream {
        MeteredStream { io, memory: self.clone() }
    }

    /// Returns the memory of a message that was handled.
    pub(super) fn release(&self) {
        let mut state = self.state.lock();
        (state.bytes, state.reservation) = (0, None);
    }

    /// Subtracts bytes that belong to no message: control frames, which a caller may send for days without a message.
    pub(super) fn discount(&self, bytes: usize) {
        if bytes > 0 {
            let mut state = self.state.lock();
            state.bytes = state.bytes.saturating_sub(bytes);
        }
    }

    /// Returns why the connection is no longer read, if a message found no memory.
    pub(super) fn take_refusal(&self) -> Option<Fault> {
        self.state.lock().refusal.take()
    }

    fn record_received(&self, bytes: usize) -> io::Result<()> {
        let mut state = self.state.lock();
        state.bytes += bytes;
        let received = state.bytes;
        if state.is_refused {
            return Err(refused());
        }
        if received <= UNCOUNTED {
            return Ok(());
        }
        let reservation = state.reservation.get_or_insert_with(|| self.gateway.limits.reserve_body(self.client));
        reservation.grow_to(received).map_err(|fault| {
            (state.is_refused, state.refusal) = (true, Some(fault));
            refused()
        })
    }
}

fn refused() -> io::Error {
    io::Error::other("no memory for the message")
}

/// A caller's stream whose messages are counted.
pub(super) struct MeteredStream {
    io: Box<dyn UpgradedStream>,
    memory: MessageMemory,
}

impl AsyncRead for MeteredStream {
    fn poll_read(mut self: Pin<&mut Self>, task: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let filled = into.filled().len();
        ready!(Pin::new(&mut self.io).poll_read(task, into))?;
        Poll::Ready(self.memory.record_received(into.filled().len() - filled))
    }
}

impl AsyncWrite for MeteredStream {
    fn poll_write(mut self: Pin<&mut Self>, task: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(task, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(task)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(task)
    }
}
