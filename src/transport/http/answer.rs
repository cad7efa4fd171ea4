//! The body of an agent's answer. Nothing is read ahead of the reader: a slow caller slows the agent.
//! A complete body gives its connection back to the pool.

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

/// Where the pieces come from.
pub(super) enum Source {
    Line(Box<Held>),
    Stream(#[allow(dead_code, reason = "held so that the place on the connection stays taken")] Stream),
    Spent,
}

/// A line, and where it is put back.
pub(super) struct Held {
    pub(super) line: Line,
    pub(super) pool: Arc<Pool>,
    pub(super) hint: Option<Duration>,
}

/// An answer's body, as it comes.
pub(in crate::transport) struct Answer {
    body: Incoming,
    source: Source,
    idle: Duration,
    deadline: Instant,
    /// When the piece that is awaited now is too late, however often the waiting was taken up again.
    until: Option<Instant>,
    timer: Option<Pin<Box<Sleep>>>,
}

impl fmt::Debug for Answer {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("Answer").field("body", &self.body).finish_non_exhaustive()
    }
}

impl Answer {
    /// Each piece has `idle` to come, all of them have until `deadline`.
    pub(super) fn new(body: Incoming, source: Source, (idle, deadline): (Duration, Instant)) -> Self {
        Self { body, source, idle, deadline, until: None, timer: None }
    }

    pub(in crate::transport) fn length(&self) -> Option<u64> {
        self.body.size_hint().exact()
    }

    pub(in crate::transport) fn is_spent(&self) -> bool {
        matches!(self.source, Source::Spent)
    }

    /// The next piece; `None` after the last. After an error there is nothing more.
    pub(in crate::transport) async fn chunk(&mut self) -> Option<Result<Bytes, Fault>> {
        std::future::poll_fn(|cx| {
            if let Poll::Ready(chunk) = self.poll_chunk(cx) {
                self.until = None;
                return Poll::Ready(chunk);
            }
            // Most pieces are there already and never ask for the time.
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
            true => failure::too_late(format_args!("nothing more of the answer within {:?}", self.idle)),
            false => failure::too_late("the call's whole time was used before the answer was complete"),
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
                // Trailers end here, and a piece of nothing tells nothing.
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) if !data.is_empty() => return Poll::Ready(Some(Ok(data))),
                    _ => {}
                },
            }
        }
    }

    /// The body is complete: the connection is free, unless one side wants it closed or the agent has
    /// answered before it had the whole request. An HTTP/2 agent may also have reset the stream without
    /// naming an error, which is no end of a body.
    fn finish(&mut self) -> Result<(), Fault> {
        match std::mem::replace(&mut self.source, Source::Spent) {
            Source::Line(mut held) => {
                if held.line.is_usable() {
                    held.pool.put_line(held.line, held.hint);
                }
                Ok(())
            }
            Source::Stream(_) if !self.body.is_end_stream() => {
                Err(failure::unbelievable("the stream was reset inside the body"))
            }
            Source::Stream(_) | Source::Spent => Ok(()),
        }
    }
}

type Frame = Option<Result<hyper::body::Frame<Bytes>, Fault>>;

/// Takes what is there, else drives the line and looks again. The body needs no waker of its own: only
/// this call drives the line that fills it.
fn pull(body: &mut Incoming, line: &mut Line, cx: &mut Context<'_>) -> Poll<Frame> {
    let mut quiet = Context::from_waker(Waker::noop());
    if let Poll::Ready(frame) = Pin::new(&mut *body).poll_frame(&mut quiet) {
        return Poll::Ready(told(frame));
    }
    let ended = line.drive(cx).is_ready();
    match Pin::new(body).poll_frame(&mut quiet) {
        Poll::Pending if ended => Poll::Ready(Some(Err(failure::unbelievable("the connection ended inside the body")))),
        Poll::Pending => Poll::Pending,
        Poll::Ready(frame) => Poll::Ready(told(frame)),
    }
}

fn told(frame: Option<hyper::Result<hyper::body::Frame<Bytes>>>) -> Frame {
    frame.map(|frame| frame.map_err(|why| failure::cut_off(&why)))
}
