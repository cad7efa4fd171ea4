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
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker, ready},
    time::Duration,
};
use tokio::time::{Instant, Sleep, sleep_until};

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
}

impl fmt::Debug for HttpReplyBody {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("HttpReplyBody").field("body", &self.body).finish_non_exhaustive()
    }
}

impl HttpReplyBody {
    /// Each chunk may take the idle timeout, the whole body until `deadline`.
    pub(super) fn new(body: Incoming, source: ReplyConnection, timeouts: UpstreamTimeouts, deadline: Instant) -> Self {
        Self { body, source, timeouts, deadline, chunk_deadline: None, timer: None }
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
            if let Poll::Ready(chunk) = self.poll_chunk(cx) {
                self.chunk_deadline = None;
                return Poll::Ready(chunk);
            }
            // Most chunks are ready at once and need no timer.
            let latest = self.deadline.min(Instant::now() + self.timeouts.idle);
            let until = *self.chunk_deadline.get_or_insert(latest);
            let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(until)));
            if timer.deadline() != until {
                timer.as_mut().reset(until);
            }
            timer.as_mut().poll(cx).map(|()| Some(Err(self.finish_with_timeout(until))))
        })
        .await
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
        loop {
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
                    _ => {}
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
