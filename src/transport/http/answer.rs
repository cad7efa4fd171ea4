//! The body of an agent's reply over HTTP. Nothing is read ahead of the reader: a slow caller slows the agent down.
//! After a complete body the connection returns to the pool.

use super::{
    failure,
    line::{Line, Stream},
    pool::Pool,
};
use crate::fault::Fault;
use bytes::Bytes;
use hyper::body::{Body as _, Incoming};
use std::{
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker, ready},
    time::Duration,
};
use tokio::time::{Instant, Sleep, sleep_until};

/// The connection that the body comes from.
pub(super) enum Source {
    Line(Box<Held>),
    Stream(#[allow(dead_code, reason = "held so that the stream stays counted on its connection")] Stream),
    Spent,
}

/// An HTTP/1.1 connection, and the pool it returns to.
pub(super) struct Held {
    pub(super) line: Line,
    pub(super) pool: Arc<Pool>,
    pub(super) hint: Option<Duration>,
}

/// The body of a reply, read as it arrives.
pub(in crate::transport) struct Answer {
    body: Incoming,
    source: Source,
    idle: Duration,
    deadline: Instant,
    /// The deadline of the chunk awaited now; it stays the same if waiting is interrupted and resumed.
    until: Option<Instant>,
    timer: Option<Pin<Box<Sleep>>>,
}

impl fmt::Debug for Answer {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("Answer").field("body", &self.body).finish_non_exhaustive()
    }
}

impl Answer {
    /// Each chunk may take `idle`, the whole body until `deadline`.
    pub(super) fn new(body: Incoming, source: Source, (idle, deadline): (Duration, Instant)) -> Self {
        Self { body, source, idle, deadline, until: None, timer: None }
    }

    pub(in crate::transport) fn length(&self) -> Option<u64> {
        self.body.size_hint().exact()
    }

    pub(in crate::transport) fn is_spent(&self) -> bool {
        matches!(self.source, Source::Spent)
    }

    /// Returns the next chunk; `None` after the last. Nothing follows an error.
    pub(in crate::transport) async fn chunk(&mut self) -> Option<Result<Bytes, Fault>> {
        std::future::poll_fn(|cx| {
            if let Poll::Ready(chunk) = self.poll_chunk(cx) {
                self.until = None;
                return Poll::Ready(chunk);
            }
            // Most chunks are ready at once and need no timer.
            let latest = self.deadline.min(Instant::now() + self.idle);
            let until = *self.until.get_or_insert(latest);
            let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(until)));
            if timer.deadline() != until {
                timer.as_mut().reset(until);
            }
            timer.as_mut().poll(cx).map(|()| Some(Err(self.late(until))))
        })
        .await
    }

    fn late(&mut self, until: Instant) -> Fault {
        self.source = Source::Spent;
        match until < self.deadline {
            true => failure::too_late(format_args!("no further chunk of the reply within {:?}", self.idle)),
            false => failure::too_late("the call's deadline passed before the reply was complete"),
        }
    }

    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Fault>>> {
        loop {
            let frame = match &mut self.source {
                Source::Spent => return Poll::Ready(None),
                Source::Stream(_) => told(ready!(Pin::new(&mut self.body).poll_frame(cx))),
                Source::Line(held) => ready!(pull(&mut self.body, &mut held.line, cx)),
            };
            match frame {
                None => return Poll::Ready(self.finish().err().map(Err)),
                Some(Err(fault)) => {
                    self.source = Source::Spent;
                    return Poll::Ready(Some(Err(fault)));
                }
                // Trailers are dropped, and empty chunks carry nothing.
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) if !data.is_empty() => return Poll::Ready(Some(Ok(data))),
                    _ => {}
                },
            }
        }
    }

    /// Ends a complete body: the connection returns to the pool, unless a side wants it closed or the agent replied
    /// before it had the whole request. An HTTP/2 agent may also have reset the stream without naming an error, which
    /// is not the end of a body.
    fn finish(&mut self) -> Result<(), Fault> {
        match std::mem::replace(&mut self.source, Source::Spent) {
            Source::Line(mut held) => {
                if held.line.is_usable() {
                    held.pool.put_line(held.line, held.hint);
                }
                Ok(())
            }
            Source::Stream(_) if !self.body.is_end_stream() => {
                Err(failure::unbelievable("the stream was reset within the body"))
            }
            Source::Stream(_) | Source::Spent => Ok(()),
        }
    }
}

type Frame = Option<Result<hyper::body::Frame<Bytes>, Fault>>;

/// Takes a frame that is ready, else drives the connection and looks again. The body needs no waker of its own: only
/// this call drives the connection that fills it.
fn pull(body: &mut Incoming, line: &mut Line, cx: &mut Context<'_>) -> Poll<Frame> {
    let mut quiet = Context::from_waker(Waker::noop());
    if let Poll::Ready(frame) = Pin::new(&mut *body).poll_frame(&mut quiet) {
        return Poll::Ready(told(frame));
    }
    let ended = line.drive(cx).is_ready();
    match Pin::new(body).poll_frame(&mut quiet) {
        Poll::Pending if ended => Poll::Ready(Some(Err(failure::unbelievable("the connection ended within the body")))),
        Poll::Pending => Poll::Pending,
        Poll::Ready(frame) => Poll::Ready(told(frame)),
    }
}

fn told(frame: Option<hyper::Result<hyper::body::Frame<Bytes>>>) -> Frame {
    frame.map(|frame| frame.map_err(|why| failure::cut_off(&why)))
}
