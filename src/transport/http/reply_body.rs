//! The body of an agent's reply over HTTP. Nothing is read ahead of the reader: a slow caller slows the agent down.
//! After a complete body the connection returns to the pool.

use super::{
    connection_pool::{ConnectionPool, Http1Connection, Http2Stream},
    error_mapping,
};
use crate::{
    fault::Fault,
    transport::timeouts::{self, TimeoutKind, UpstreamTimeouts},
};
use bytes::Bytes;
use hyper::body::{Body as _, Incoming};
use std::{
    fmt,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll, Waker, ready},
    time::Duration,
};
use tokio::time::{Instant, Sleep, sleep_until};

/// How many chunks, and bytes of them, may be ready one after another before the deadline is compared with the clock and
/// other tasks have their turn: what is done with a chunk may never wait.
const MAX_READY_CHUNKS: u8 = 16;
const MAX_READY_BYTES: usize = 64 << 10;
/// How many frames of one body may carry nothing, how many of them one poll takes, and how many bytes of framing an
/// HTTP/1 agent may send without content.
const MAX_EMPTY_FRAMES: u32 = 10_000;
const MAX_EMPTY_FRAMES_PER_POLL: u32 = 32;
const MAX_FRAMING_BYTES: u64 = 64 << 10;

/// The connection that the body comes from.
pub(super) enum ReplyConnection {
    Http1(Box<PooledConnection>),
    Http2(#[allow(dead_code, reason = "held so that the stream stays counted on its connection")] Http2Stream),
    Finished,
}

/// An HTTP/1.1 connection, and the pool it returns to.
pub(super) struct PooledConnection {
    pub(super) connection: Http1Connection,
    pub(super) pool: Arc<ConnectionPool>,
    pub(super) keep_alive: Option<Duration>,
}

/// The body of a reply, read as it arrives.
pub(in crate::transport) struct HttpReplyBody {
    body: Incoming,
    source: ReplyConnection,
    timeouts: UpstreamTimeouts,
    deadline: Instant,
    /// The deadline of the current chunk; unchanged if waiting is interrupted and resumed.
    chunk_deadline: Option<Instant>,
    timer: Option<Pin<Box<Sleep>>>,
    /// The chunks and bytes that were ready since other tasks had their turn.
    ready_chunks: u8,
    ready_bytes: usize,
    empty_frames: u32,
    /// What the connection had received when the last chunk was taken.
    received_before_chunk: u64,
}

impl fmt::Debug for HttpReplyBody {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("HttpReplyBody").field("body", &self.body).finish_non_exhaustive()
    }
}

impl HttpReplyBody {
    /// Each chunk may take the idle timeout, the whole body until `deadline`.
    pub(super) fn new(body: Incoming, source: ReplyConnection, timeouts: UpstreamTimeouts, deadline: Instant) -> Self {
        let mut reply = Self {
            body,
            source,
            timeouts,
            deadline,
            chunk_deadline: None,
            timer: None,
            ready_chunks: 0,
            ready_bytes: 0,
            empty_frames: 0,
            received_before_chunk: 0,
        };
        reply.received_before_chunk = reply.received_bytes();
        reply
    }

    pub(in crate::transport) fn length(&self) -> Option<u64> {
        self.body.size_hint().exact()
    }

    pub(in crate::transport) fn is_finished(&self) -> bool {
        matches!(self.source, ReplyConnection::Finished)
    }

    /// Returns the next chunk; `None` after the last. Nothing follows an error.
    pub(in crate::transport) async fn next_chunk(&mut self) -> Option<Result<Bytes, Fault>> {
        std::future::poll_fn(|cx| {
            if self.ready_chunks >= MAX_READY_CHUNKS || self.ready_bytes >= MAX_READY_BYTES {
                return self.poll_turn_of_others(cx);
            }
            if let Poll::Ready(chunk) = self.poll_chunk(cx) {
                self.chunk_deadline = None;
                self.received_before_chunk = self.received_bytes();
                self.ready_chunks += 1;
                self.ready_bytes += chunk.as_ref().and_then(|chunk| chunk.as_ref().ok()).map_or(0, Bytes::len);
                return Poll::Ready(chunk);
            }
            (self.ready_chunks, self.ready_bytes) = (0, 0);
            // Most chunks are ready at once and need no timer.
            let now = Instant::now();
            let until = match self.chunk_deadline {
                Some(until) => until,
                None => *self.chunk_deadline.insert(self.deadline.min(now + self.timeouts.idle)),
            };
            // Before the deadline, which one poll may exceed on a busy machine: it takes what a connection has.
            if self.received_bytes().saturating_sub(self.received_before_chunk) > MAX_FRAMING_BYTES {
                return Poll::Ready(Some(Err(self.finish_without_content())));
            }
            // A connection that always has bytes uses up the budget of the task, without which no timer is ready.
            if now >= until {
                return Poll::Ready(Some(Err(self.finish_with_timeout(until))));
            }
            let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(until)));
            if timer.deadline() != until {
                timer.as_mut().reset(until);
            }
            timer.as_mut().poll(cx).map(|()| Some(Err(self.finish_with_timeout(until))))
        })
        .await
    }

    /// Lets other tasks run, and what else this one waits for, where chunks are ready one after another. No timer is polled
    /// then, so the deadline is compared with the clock.
    fn poll_turn_of_others(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Fault>>> {
        (self.ready_chunks, self.ready_bytes) = (0, 0);
        if !self.is_finished() && Instant::now() >= self.deadline {
            return Poll::Ready(Some(Err(self.finish_with_timeout(self.deadline))));
        }
        yield_turn(cx)
    }

    /// Returns what the connection has received, where only this body is received over it.
    fn received_bytes(&self) -> u64 {
        match &self.source {
            ReplyConnection::Http1(pooled) => pooled.connection.counters.snapshot().1,
            ReplyConnection::Http2(_) | ReplyConnection::Finished => 0,
        }
    }

    #[cold]
    fn finish_without_content(&mut self) -> Fault {
        self.source = ReplyConnection::Finished;
        error_mapping::invalid_response_fault("the body has framing without end and no content")
    }

    fn finish_with_timeout(&mut self, until: Instant) -> Fault {
        self.source = ReplyConnection::Finished;
        if until < self.deadline {
            let detail = format_args!("no further chunk of the reply within {:?}", self.timeouts.idle);
            return self.timeouts.fault(TimeoutKind::Idle, detail);
        }
        timeouts::deadline_fault("the call's deadline passed before the reply was complete")
    }

    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Fault>>> {
        let taken_before = self.empty_frames;
        loop {
            if self.empty_frames > MAX_EMPTY_FRAMES {
                return Poll::Ready(Some(Err(self.finish_without_content())));
            }
            if self.empty_frames - taken_before == MAX_EMPTY_FRAMES_PER_POLL {
                // The deadline is compared with the clock before the next ones are taken.
                return yield_turn(cx);
            }
            let frame = match &mut self.source {
                ReplyConnection::Finished => return Poll::Ready(None),
                ReplyConnection::Http2(_) => map_frame_error(ready!(Pin::new(&mut self.body).poll_frame(cx))),
                ReplyConnection::Http1(pooled) => ready!(poll_http1_frame(&mut self.body, &mut pooled.connection, cx)),
            };
            match frame {
                None => return Poll::Ready(self.finish().err().map(Err)),
                Some(Err(fault)) => {
                    self.source = ReplyConnection::Finished;
                    return Poll::Ready(Some(Err(fault)));
                }
                // Trailers are dropped, and empty chunks carry nothing.
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) if !data.is_empty() => return Poll::Ready(Some(Ok(data))),
                    _ => self.empty_frames += 1,
                },
            }
        }
    }

    /// Ends a complete body: the connection returns to the pool, unless one side closes it or the agent replied before
    /// it had the whole request. An HTTP/2 agent may also have reset the stream without an error code, which does not
    /// complete the body.
    fn finish(&mut self) -> Result<(), Fault> {
        match std::mem::replace(&mut self.source, ReplyConnection::Finished) {
            ReplyConnection::Http1(mut pooled) => {
                if pooled.connection.check_reusable() {
                    pooled.pool.put_http1(pooled.connection, pooled.keep_alive);
                }
                Ok(())
            }
            ReplyConnection::Http2(_) if !self.body.is_end_stream() => {
                Err(error_mapping::invalid_response_fault("the stream was reset within the body"))
            }
            ReplyConnection::Http2(_) | ReplyConnection::Finished => Ok(()),
        }
    }
}

type FrameResult = Option<Result<hyper::body::Frame<Bytes>, Fault>>;

/// Lets other tasks run, and those whose input the operating system has: a task that only wakes itself runs again sixty
/// times before the runtime looks for input.
fn yield_turn<T>(cx: &mut Context<'_>) -> Poll<T> {
    if pin!(tokio::task::yield_now()).poll(cx).is_ready() {
        cx.waker().wake_by_ref();
    }
    Poll::Pending
}

/// Takes a frame that is ready, else drives the connection and polls again. The body needs no waker of its own: only
/// this call drives the connection that fills it.
fn poll_http1_frame(body: &mut Incoming, connection: &mut Http1Connection, cx: &mut Context<'_>) -> Poll<FrameResult> {
    let mut noop_context = Context::from_waker(Waker::noop());
    if let Poll::Ready(frame) = Pin::new(&mut *body).poll_frame(&mut noop_context) {
        return Poll::Ready(map_frame_error(frame));
    }
    let ended = connection.drive(cx).is_ready();
    match Pin::new(body).poll_frame(&mut noop_context) {
        Poll::Pending if ended => {
            Poll::Ready(Some(Err(error_mapping::invalid_response_fault("the connection ended within the body"))))
        }
        Poll::Pending => Poll::Pending,
        Poll::Ready(frame) => Poll::Ready(map_frame_error(frame)),
    }
}

fn map_frame_error(frame: Option<hyper::Result<hyper::body::Frame<Bytes>>>) -> FrameResult {
    frame.map(|frame| frame.map_err(|error| error_mapping::truncated_body_fault(&error)))
}
