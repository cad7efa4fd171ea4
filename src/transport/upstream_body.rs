//! The body of a request to an agent: empty, complete, or streamed in chunks as the caller sends them.
//! A body whose sender is dropped counts as truncated, never as finished: the agent must not accept a partial body.

use crate::fault::{Fault, FaultCode};
use bytes::{Bytes, BytesMut};
use hyper::body::{Frame, SizeHint};
use parking_lot::Mutex;
use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
};
use tokio::sync::mpsc;

/// Chunks that may be queued between the caller and the agent; a full queue applies back-pressure to the caller.
const MAX_QUEUED_CHUNKS: usize = 4;

/// The body of a request.
#[derive(Debug)]
pub enum RequestBody {
    /// No body.
    Empty,
    /// A complete body; may be sent again where a retry is safe.
    Whole(Bytes),
    /// A body in chunks; sent once.
    Stream(BodyReceiver),
}

impl RequestBody {
    /// Creates a streamed body of `length` bytes, if the length is known, and the [`BodySender`] that fills it.
    pub fn channel(length: Option<u64>) -> (BodySender, Self) {
        let (chunks, queue) = mpsc::channel(MAX_QUEUED_CHUNKS);
        let progress = Arc::new(BodyProgress::default());
        let sender = BodySender { chunks, progress: Arc::clone(&progress) };
        (sender, Self::Stream(BodyReceiver { queue, length, progress, ended: false }))
    }

    /// Collects the body, for transports whose messages contain it whole: at most `max_bytes`.
    ///
    /// # Errors
    /// `PayloadTooLarge` beyond that; otherwise the fault that truncated a streamed body.
    pub async fn collect(self, max_bytes: usize) -> Result<Bytes, Fault> {
        let too_large = || {
            Fault::new(
                FaultCode::PayloadTooLarge,
                format!("The body is too large for this agent (at most {max_bytes} bytes)"),
            )
        };
        match self {
            Self::Empty => Ok(Bytes::new()),
            Self::Whole(bytes) if bytes.len() > max_bytes => Err(too_large()),
            Self::Whole(bytes) => Ok(bytes),
            Self::Stream(receiver) if receiver.length.is_some_and(|length| length > max_bytes as u64) => {
                Err(too_large())
            }
            Self::Stream(mut receiver) => {
                let mut whole = BytesMut::new();
                loop {
                    match receiver.queue.recv().await {
                        Some(BodyChunk::Data(bytes)) if whole.len() + bytes.len() > max_bytes => {
                            return Err(too_large());
                        }
                        Some(BodyChunk::Data(bytes)) => whole.extend_from_slice(&bytes),
                        Some(BodyChunk::End) => return Ok(whole.freeze()),
                        None => {
                            receiver.progress.truncated.store(true, Ordering::Relaxed);
                            return Err(receiver.progress.take_fault().unwrap_or_else(too_large));
                        }
                    }
                }
            }
        }
    }
}

impl RequestBody {
    /// Returns a copy for another attempt; `None` for a body that is sent only once.
    pub(super) fn try_clone(&self) -> Option<Self> {
        match self {
            Self::Empty => Some(Self::Empty),
            Self::Whole(bytes) => Some(Self::Whole(bytes.clone())),
            Self::Stream(_) => None,
        }
    }
}

impl From<Bytes> for RequestBody {
    fn from(bytes: Bytes) -> Self {
        if bytes.is_empty() { Self::Empty } else { Self::Whole(bytes) }
    }
}

#[derive(Debug)]
enum BodyChunk {
    Data(Bytes),
    End,
}

/// The sending half of a streamed body, for the caller's side.
#[derive(Debug)]
pub struct BodySender {
    chunks: mpsc::Sender<BodyChunk>,
    progress: Arc<BodyProgress>,
}

/// The agent accepts no more of the body: it replied already, or the call failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BodyClosed;

impl BodySender {
    /// Waits for capacity, then queues `chunk`.
    ///
    /// # Errors
    /// The receiver was dropped; the result of the call has the reason.
    pub async fn send(&self, chunk: Bytes) -> Result<(), BodyClosed> {
        if chunk.is_empty() {
            return Ok(());
        }
        self.chunks.send(BodyChunk::Data(chunk)).await.map_err(|_| BodyClosed)
    }

    /// Waits until the queue has capacity for one more chunk. Cancel-safe.
    ///
    /// # Errors
    /// The receiver was dropped.
    pub async fn wait_for_capacity(&self) -> Result<(), BodyClosed> {
        self.chunks.reserve().await.map(drop).map_err(|_| BodyClosed)
    }

    /// Queues `chunk` in the capacity that [`BodySender::wait_for_capacity`] found; this sender is the only one.
    pub fn send_reserved(&self, chunk: Bytes) {
        // The result of the call reports a closed queue.
        drop(self.chunks.try_send(BodyChunk::Data(chunk)));
    }

    /// Marks the body as complete, in the capacity that [`BodySender::wait_for_capacity`] found.
    pub fn finish_reserved(&self) {
        drop(self.chunks.try_send(BodyChunk::End));
    }

    /// Marks the body as complete.
    pub async fn finish(self) {
        // An agent that has stopped reading does not need the end of the body.
        drop(self.chunks.send(BodyChunk::End).await);
    }

    /// Aborts the body; the call ends with `fault`.
    pub fn fail(self, fault: Fault) {
        *self.progress.fault.lock() = Some(fault);
    }
}

/// The receiving half of a streamed body, for the agent's side.
#[derive(Debug)]
pub struct BodyReceiver {
    queue: mpsc::Receiver<BodyChunk>,
    length: Option<u64>,
    progress: Arc<BodyProgress>,
    ended: bool,
}

impl BodyReceiver {
    pub(super) fn progress(&self) -> Arc<BodyProgress> {
        Arc::clone(&self.progress)
    }
}

/// The progress of a streamed body, for the task that waits for the reply.
#[derive(Debug, Default)]
pub(super) struct BodyProgress {
    sent_chunk: AtomicBool,
    fault: Mutex<Option<Fault>>,
    truncated: AtomicBool,
}

impl BodyProgress {
    /// Whether a chunk was sent since the last call of this function. Resets the flag.
    pub(super) fn take_sent_chunk(&self) -> bool {
        self.sent_chunk.swap(false, Ordering::Relaxed)
    }

    /// Takes the fault that truncated the body, if it was truncated.
    pub(super) fn take_fault(&self) -> Option<Fault> {
        let recorded = self.fault.lock().take();
        let truncated_fault = || Fault::new(FaultCode::InvalidInput, "The request body ended before it was complete");
        recorded.or_else(|| self.truncated.load(Ordering::Relaxed).then(truncated_fault))
    }
}

/// A body in the form that hyper sends.
#[derive(Debug)]
pub(super) enum HyperBody {
    Whole(Option<Bytes>),
    Stream(BodyReceiver),
}

impl From<RequestBody> for HyperBody {
    fn from(body: RequestBody) -> Self {
        match body {
            RequestBody::Empty => Self::Whole(None),
            RequestBody::Whole(bytes) => Self::Whole(Some(bytes)),
            RequestBody::Stream(receiver) => Self::Stream(receiver),
        }
    }
}

/// The sender truncated the body.
#[derive(Debug, thiserror::Error)]
#[error("the request body was truncated by its sender")]
pub(super) struct TruncatedBodyError;

impl hyper::body::Body for HyperBody {
    type Data = Bytes;
    type Error = TruncatedBodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, TruncatedBodyError>>> {
        let receiver = match self.get_mut() {
            Self::Whole(bytes) => {
                return Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes))));
            }
            Self::Stream(receiver) if receiver.ended => return Poll::Ready(None),
            Self::Stream(receiver) => receiver,
        };
        let chunk = std::task::ready!(receiver.queue.poll_recv(cx));
        receiver.progress.sent_chunk.store(true, Ordering::Relaxed);
        Poll::Ready(match chunk {
            Some(BodyChunk::Data(bytes)) => Some(Ok(Frame::data(bytes))),
            Some(BodyChunk::End) => {
                receiver.ended = true;
                None
            }
            None => {
                receiver.ended = true;
                receiver.progress.truncated.store(true, Ordering::Relaxed);
                Some(Err(TruncatedBodyError))
            }
        })
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(bytes) => bytes.is_none(),
            Self::Stream(receiver) => receiver.ended || receiver.length == Some(0),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
            Self::Stream(receiver) => receiver.length.map_or_else(SizeHint::default, SizeHint::with_exact),
        }
    }
}
