//! What goes to the agent: nothing, bytes that are already here, or pieces as the caller sends them.
//! A body whose feeder disappears was cut, never finished: the agent must not take a part for the whole.

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

/// Pieces that may wait between the caller and the agent; a full queue stops the caller.
const QUEUE: usize = 4;

/// The body of a request.
#[derive(Debug)]
pub enum Body {
    /// None.
    Empty,
    /// All of it; may be sent again where a retry is safe.
    Whole(Bytes),
    /// Piece by piece; sent once.
    Stream(Intake),
}

impl Body {
    /// A body that the returned [`Feed`] is to fill, of `length` bytes where that is known.
    pub fn stream(length: Option<u64>) -> (Feed, Self) {
        let (pieces, queue) = mpsc::channel(QUEUE);
        let course = Arc::new(Course::default());
        let feed = Feed { pieces, course: Arc::clone(&course) };
        (feed, Self::Stream(Intake { queue, length, course, ended: false }))
    }

    /// All of it, where a message has to hold it: at most `most` bytes.
    ///
    /// # Errors
    /// `PayloadTooLarge` beyond that; whatever kept a streamed body from being completed.
    pub async fn whole(self, most: usize) -> Result<Bytes, Fault> {
        let too_large = || {
            Fault::new(Code::PayloadTooLarge, format!("the body is too large for this agent (at most {most} bytes)"))
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

/// The agent takes no more of the body: it has answered already, or the call has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closed;

impl Feed {
    /// Waits until the agent has taken enough, then hands over `piece`.
    ///
    /// # Errors
    /// Nobody takes any more; the call's own result says why.
    pub async fn send(&self, piece: Bytes) -> Result<(), Closed> {
        if piece.is_empty() {
            return Ok(());
        }
        self.pieces.send(Piece::Data(piece)).await.map_err(|_| Closed)
    }

    /// Waits until the agent has taken enough for one more piece. Nothing is lost when this is dropped.
    ///
    /// # Errors
    /// Nobody takes any more.
    pub async fn ready(&self) -> Result<(), Closed> {
        self.pieces.reserve().await.map(drop).map_err(|_| Closed)
    }

    /// Hands over `piece`, for which there is room since [`Feed::ready`]; the feed is its only user.
    pub fn put(&self, piece: Bytes) {
        // A closed queue is told by the call's own result.
        drop(self.pieces.try_send(Piece::Data(piece)));
    }

    /// The body is complete; there is room to say so since [`Feed::ready`].
    pub fn end(&self) {
        drop(self.pieces.try_send(Piece::End));
    }

    /// The body is complete.
    pub async fn finish(self) {
        // An agent that has stopped listening does not need to hear it.
        drop(self.pieces.send(Piece::End).await);
    }

    /// The body will never be complete; the call ends with `fault`.
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

/// How a streamed body is doing, for those who wait for the answer to it.
#[derive(Debug, Default)]
pub(super) struct Course {
    moved: AtomicBool,
    fault: Mutex<Option<Fault>>,
    cut: AtomicBool,
}

impl Course {
    /// Whether something was sent since the last time this was asked.
    pub(super) fn has_moved(&self) -> bool {
        self.moved.swap(false, Ordering::Relaxed)
    }

    /// Why the body was not completed, if that is what happened.
    pub(super) fn fault(&self) -> Option<Fault> {
        let told = self.fault.lock().unwrap_or_else(PoisonError::into_inner).take();
        let cut = || Fault::new(Code::InvalidInput, "The request body ended before it was complete.");
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

/// The body was cut off by its sender.
#[derive(Debug, thiserror::Error)]
#[error("the request body was cut off by its sender")]
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
