//! The body of a request to an agent: empty, complete, or streamed in chunks as the caller sends them.
//! A body whose sender is dropped counts as truncated, never as finished: the agent must not accept a partial body.

use crate::fault::{Code, Fault};
use bytes::{Bytes, BytesMut};
use hyper::body::{Frame, SizeHint};
use std::{
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
};
use tokio::sync::mpsc;

/// Chunks that may be queued between the caller and the agent; a full queue applies back-pressure to the caller.
const QUEUE: usize = 4;

/// The body of a request.
#[derive(Debug)]
pub enum Body {
    /// No body.
    Empty,
    /// A complete body; may be sent again where a retry is safe.
    Whole(Bytes),
    /// A body in chunks; sent once.
    Stream(Intake),
}

impl Body {
    /// Creates a streamed body of `length` bytes, if the length is known, and the [`BodySender`] that fills it.
    pub fn stream(length: Option<u64>) -> (Feed, Self) {
        let (pieces, queue) = mpsc::channel(QUEUE);
        let course = Arc::new(Course::default());
        let feed = Feed { pieces, course: Arc::clone(&course) };
        (feed, Self::Stream(Intake { queue, length, course, ended: false }))
    }

    /// Collects the body, for transports whose messages contain it whole: at most `most` bytes.
    ///
    /// # Errors
    /// `PayloadTooLarge` beyond that; otherwise the fault that truncated a streamed body.
    pub async fn whole(self, most: usize) -> Result<Bytes, Fault> {
        let too_large = || {
            Fault::new(Code::PayloadTooLarge, format!("The body is too large for this agent (at most {most} bytes)"))
        };
        match self {
            Self::Empty => Ok(Bytes::new()),
            Self::Whole(bytes) if bytes.len() > most => Err(too_large()),
            Self::Whole(bytes) => Ok(bytes),
            Self::Stream(intake) if intake.length.is_some_and(|length| length > most as u64) => Err(too_large()),
            Self::Stream(mut intake) => {
                let mut whole = BytesMut::new();
                loop {
                    match intake.queue.recv().await {
                        Some(Piece::Data(bytes)) if whole.len() + bytes.len() > most => return Err(too_large()),
                        Some(Piece::Data(bytes)) => whole.extend_from_slice(&bytes),
                        Some(Piece::End) => return Ok(whole.freeze()),
                        None => {
                            intake.course.cut.store(true, Ordering::Relaxed);
                            return Err(intake.course.fault().unwrap_or_else(too_large));
                        }
                    }
                }
            }
        }
    }
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Self {
        if bytes.is_empty() { Self::Empty } else { Self::Whole(bytes) }
    }
}

#[derive(Debug)]
enum Piece {
    Data(Bytes),
    End,
}

/// The caller's end of a streamed body.
#[derive(Debug)]
pub struct Feed {
    pieces: mpsc::Sender<Piece>,
    course: Arc<Course>,
}

/// The agent accepts no more of the body: it replied already, or the call failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closed;

impl Feed {
    /// Waits for capacity, then queues `piece`.
    ///
    /// # Errors
    /// The receiver is gone; the result of the call says why.
    pub async fn send(&self, piece: Bytes) -> Result<(), Closed> {
        if piece.is_empty() {
            return Ok(());
        }
        self.pieces.send(Piece::Data(piece)).await.map_err(|_| Closed)
    }

    /// Waits until the queue has capacity for one more chunk. Cancel-safe.
    ///
    /// # Errors
    /// The receiver is gone.
    pub async fn ready(&self) -> Result<(), Closed> {
        self.pieces.reserve().await.map(drop).map_err(|_| Closed)
    }

    /// Queues `piece` in the capacity that [`BodySender::wait_for_capacity`] found; this sender is the only one.
    pub fn put(&self, piece: Bytes) {
        // The result of the call reports a closed queue.
        drop(self.pieces.try_send(Piece::Data(piece)));
    }

    /// Marks the body as complete, in the capacity that [`BodySender::wait_for_capacity`] found.
    pub fn end(&self) {
        drop(self.pieces.try_send(Piece::End));
    }

    /// Marks the body as complete.
    pub async fn finish(self) {
        // An agent that has stopped reading does not need the end of the body.
        drop(self.pieces.send(Piece::End).await);
    }

    /// Aborts the body; the call ends with `fault`.
    pub fn fail(self, fault: Fault) {
        *self.course.fault.lock().unwrap_or_else(PoisonError::into_inner) = Some(fault);
    }
}

/// The agent's end of a streamed body.
#[derive(Debug)]
pub struct Intake {
    queue: mpsc::Receiver<Piece>,
    length: Option<u64>,
    course: Arc<Course>,
    ended: bool,
}

impl Intake {
    pub(super) fn course(&self) -> Arc<Course> {
        Arc::clone(&self.course)
    }
}

/// The progress of a streamed body, for the task that waits for the reply.
#[derive(Debug, Default)]
pub(super) struct Course {
    moved: AtomicBool,
    fault: Mutex<Option<Fault>>,
    cut: AtomicBool,
}

impl Course {
    /// Whether a chunk was sent since the last call of this function. Resets the flag.
    pub(super) fn has_moved(&self) -> bool {
        self.moved.swap(false, Ordering::Relaxed)
    }

    /// Takes the fault that truncated the body, if it was truncated.
    pub(super) fn fault(&self) -> Option<Fault> {
        let told = self.fault.lock().unwrap_or_else(PoisonError::into_inner).take();
        let cut = || Fault::new(Code::InvalidInput, "The request body ended before it was complete");
        told.or_else(|| self.cut.load(Ordering::Relaxed).then(cut))
    }
}

/// A body in the form that hyper sends.
#[derive(Debug)]
pub(super) enum Outgoing {
    Whole(Option<Bytes>),
    Stream(Intake),
}

impl From<Body> for Outgoing {
    fn from(body: Body) -> Self {
        match body {
            Body::Empty => Self::Whole(None),
            Body::Whole(bytes) => Self::Whole(Some(bytes)),
            Body::Stream(intake) => Self::Stream(intake),
        }
    }
}

/// The sender truncated the body.
#[derive(Debug, thiserror::Error)]
#[error("the request body was truncated by its sender")]
pub(super) struct CutOff;

impl hyper::body::Body for Outgoing {
    type Data = Bytes;
    type Error = CutOff;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, CutOff>>> {
        let intake = match self.get_mut() {
            Self::Whole(bytes) => {
                return Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes))));
            }
            Self::Stream(intake) if intake.ended => return Poll::Ready(None),
            Self::Stream(intake) => intake,
        };
        let piece = std::task::ready!(intake.queue.poll_recv(cx));
        intake.course.moved.store(true, Ordering::Relaxed);
        Poll::Ready(match piece {
            Some(Piece::Data(bytes)) => Some(Ok(Frame::data(bytes))),
            Some(Piece::End) => {
                intake.ended = true;
                None
            }
            None => {
                intake.ended = true;
                intake.course.cut.store(true, Ordering::Relaxed);
                Some(Err(CutOff))
            }
        })
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(bytes) => bytes.is_none(),
            Self::Stream(intake) => intake.ended || intake.length == Some(0),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
            Self::Stream(intake) => intake.length.map_or_else(SizeHint::default, SizeHint::with_exact),
        }
    }
}
