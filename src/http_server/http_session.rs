//! One request of a connection: its head, its body, its response, and the signs that its caller has left. The only type
//! behind which the rest of the gateway uses Pingora's `ServerSession`.

use super::{
    body_rate::{BodyRateMeter, BodyTimeout},
    connection_stream::ConnectionStream,
    http_connection::HttpConnection,
};
use crate::{
    fault::{Fault, FaultCode},
    values::ByteRate,
};
use bytes::{Bytes, BytesMut};
use futures_util::{FutureExt, poll};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Version, header, request};
use pingora_core::{Error, ErrorType, protocols::http::ServerSession};
use pingora_http::ResponseHeader;
use std::{pin::pin, task::Poll, time::Duration};
use tokio::time::{Instant, timeout, timeout_at};

/// What an open request takes beside its head, in bytes.
const OPEN_REQUEST_SIZE: usize = 48 << 10;

/// Maximum bytes of unread body that are discarded so that a refused caller keeps its connection.
const MAX_DISCARDED_BODY_BYTES: usize = 64 << 10;

/// Maximum time to discard them.
const DISCARD_TIMEOUT: Duration = Duration::from_millis(250);

/// Maximum bytes discarded while a connection or stream closes, and the maximum time for it.
const MAX_LINGER_BYTES: usize = 4 << 20;
const LINGER_TIMEOUT: Duration = Duration::from_secs(2);

/// The head of a response.
#[derive(Debug)]
pub struct ResponseHead {
    /// The status.
    pub status: StatusCode,
    /// The header fields.
    pub headers: HeaderMap,
}

/// What a caller did while it awaited its response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallerSignal {
    /// The caller has disconnected: a reset connection, or a reset HTTP/2 stream.
    Disconnected,
    /// The caller has stopped sending. It may have disconnected, or still await the response.
    HalfClosed,
}

/// How much of a request's body is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyState {
    /// The request has no body.
    Empty,
    /// More of the body may follow.
    Pending,
    /// The whole body was read.
    Done,
}

/// The caller is gone: a part of its response could not be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteFailed;

/// A request and its response.
pub struct HttpSession {
    session: ServerSession,
    /// The maximum time for each read of the body and each write of the response.
    body_idle_timeout: Duration,
    body_rate: BodyRateMeter,
    /// The memory that the request takes while it is open, in bytes.
    size: usize,
}

impl HttpSession {
    /// Creates the session of an HTTP/1 request. `head` is its complete head and the bytes after it; without one, the
    /// session can only write a response.
    pub(super) fn from_http1(stream: ConnectionStream, head: Option<BytesMut>, connection: &HttpConnection) -> Self {
        let mut session = ServerSession::new_http1(Box::new(stream));
        let head_length = head.as_ref().map_or(0, BytesMut::len);
        // Timeouts are enforced here.
        session.set_read_timeout(None);
        session.set_pipelining_enabled(true);
        if let Some(head) = head {
            session.set_pipelined_prefix(head);
        }
        Self::new(session, head_length, connection)
    }

    /// Creates the session of an HTTP/2 stream.
    pub(super) fn from_http2(session: ServerSession, head_length: usize, connection: &HttpConnection) -> Self {
        Self::new(session, head_length, connection)
    }

    fn new(session: ServerSession, head_length: usize, connection: &HttpConnection) -> Self {
        let limits = &connection.limits;
        let body_rate = BodyRateMeter::new(limits.min_body_rate.map_or(0, ByteRate::get));
        Self {
            session,
            body_idle_timeout: limits.body_idle_timeout.get(),
            body_rate,
            size: OPEN_REQUEST_SIZE + head_length,
        }
    }

    /// Parses the head of an HTTP/1 request, which has been read. `Ok(false)` if the connection ended; the timeout
    /// applies if Pingora's parser disagrees with ours and waits for more bytes.
    ///
    /// # Errors
    /// The head is not valid.
    pub(super) async fn parse_http1_head(&mut self, max_wait: Duration) -> Result<bool, Fault> {
        match with_timeout(self.session.read_request(), || max_wait).await {
            Some(Ok(parsed)) => Ok(parsed),
            None => Ok(false),
            Some(Err(error)) => {
                Err(Fault::new(FaultCode::InvalidInput, "The request head is not valid").with_detail(error))
            }
        }
    }

    /// Returns the head of the request. An HTTP/1 session whose head was refused has none.
    pub fn head(&self) -> &request::Parts {
        self.session.req_header()
    }

    /// Replaces a header field of the request, for the steps that follow.
    pub fn set_header(&mut self, name: HeaderName, value: HeaderValue) {
        // Both are valid already.
        drop(self.session.req_header_mut().insert_header(name, value));
    }

    /// Copies `:authority` to `Host`, where HTTP/1.1 has it (RFC 9113 §8.3.1), so that later steps only read `Host`.
    pub(super) fn copy_authority_to_host(&mut self) {
        let head = self.session.req_header_mut();
        let authority = head.uri.authority().filter(|_| !head.headers.contains_key(header::HOST));
        if let Some(value) = authority.map(|authority| authority.as_str().to_owned()) {
            // The head was validated, so the authority is a valid field value.
            drop(head.insert_header(header::HOST, value));
        }
    }

    /// Returns whether the request arrived over HTTP/2.
    pub fn is_http2(&self) -> bool {
        self.session.is_http2()
    }

    /// Returns the memory that the request takes while it is open, in bytes.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Returns how much of the body is left. The first call prepares the reader of the body.
    pub fn body_state(&mut self) -> BodyState {
        if self.session.is_body_empty() {
            BodyState::Empty
        } else if self.session.is_body_done() {
            BodyState::Done
        } else {
            BodyState::Pending
        }
    }

    /// Returns how many bytes of the body were read.
    pub fn body_bytes_read(&self) -> usize {
        self.session.body_bytes_read()
    }

    /// Reads the next bytes of the body; `None` after the last. Each chunk must arrive within `body_idle_timeout`, the
    /// body at `min_body_rate` or faster, and the whole body before `deadline`.
    ///
    /// # Errors
    /// 408 on a timeout, 400 when the framing is invalid or the caller has closed. The connection is not reused after
    /// either.
    pub async fn read_body_chunk(&mut self, deadline: Instant) -> Result<Option<Bytes>, Fault> {
        let Self { session, body_idle_timeout, body_rate, .. } = &mut *self;
        let read = {
            let mut part = pin!(session.read_request_body());
            match poll!(part.as_mut()) {
                Poll::Ready(read) => Ok(read),
                Poll::Pending => body_rate.wait(part, deadline.min(Instant::now() + *body_idle_timeout)).await,
            }
        };
        let failed = match read {
            Ok(Ok(part)) => {
                body_rate.record(part.as_ref().map_or(0, Bytes::len));
                return Ok(part);
            }
            Ok(Err(error)) => Ok(error.into_down()),
            Err(timeout) => Err(timeout),
        };
        self.close_after_response();
        let timeout = |text| Fault::new(FaultCode::Timeout, text).with_status(408);
        Err(match failed {
            Err(BodyTimeout::Idle) => timeout("The request body did not arrive in time"),
            Err(BodyTimeout::TooSlow) => timeout("The request body arrives too slowly (connections.min_body_rate)"),
            Ok(error) if is_early_end(&error) => {
                Fault::new(FaultCode::InvalidInput, "The request body ended early").with_detail(error)
            }
            Ok(error) => invalid_framing().with_detail(error),
        })
    }

    /// Sends 100 (Continue) to a caller that expects it (RFC 9110 §10.1.1). To be called immediately before the first
    /// read: a refusal before that saves the caller the upload.
    pub async fn send_continue_if_expected(&mut self) {
        let ServerSession::H1(session) = &mut self.session else {
            return;
        };
        let head = session.req_header();
        if head.version != Version::HTTP_11 || !head.headers.contains_key(header::EXPECT) || session.is_body_done() {
            return;
        }
        // Otherwise Pingora takes the interim response for an early final one, and closes the connection after the call.
        session.set_close_on_response_before_downstream_finish(false);
        // If this write fails, the next read reports it.
        let _ = session.write_continue_response().await;
        session.set_close_on_response_before_downstream_finish(true);
    }

    /// Closes the connection after this response, and announces that in its head. HTTP/1 only.
    pub fn close_after_response(&mut self) {
        self.session.set_keepalive(None);
    }

    /// Decides whether the connection is kept alive, and sets the response's `Connection` header accordingly. To be
    /// called before the head of a response that needs no more of the request body. Discards up to 64 KiB of unread
    /// body, for up to 250 ms, where that allows keep-alive.
    pub async fn prepare_keep_alive(&mut self, connection: &HttpConnection) {
        if connection.is_draining() {
            self.close_after_response();
        }
        // Discarding only helps a connection that is kept alive. A session without a head never is.
        if self.is_http2() || self.session.get_keepalive().is_none() || self.session.is_body_done() {
            return;
        }
        let may_discard =
            !self.awaits_continue() && self.content_length().is_none_or(|length| length <= MAX_DISCARDED_BODY_BYTES);
        if !may_discard || !self.discard_body(MAX_DISCARDED_BODY_BYTES, DISCARD_TIMEOUT).await {
            self.close_after_response();
        }
    }

    /// Whether the caller awaits 100 (Continue); without it, the caller may never send the body that it announced.
    fn awaits_continue(&self) -> bool {
        self.session.response_written().is_none() && self.head().headers.contains_key(header::EXPECT)
    }

    fn content_length(&self) -> Option<usize> {
        self.session.get_header(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
    }

    /// Discards the rest of the body; returns whether it ended within `max_bytes` and `max_wait`.
    async fn discard_body(&mut self, max_bytes: usize, max_wait: Duration) -> bool {
        let deadline = Instant::now() + max_wait;
        let mut discarded = 0;
        while discarded <= max_bytes {
            match timeout_at(deadline, self.session.read_request_body()).await {
                Ok(Ok(Some(chunk))) => discarded += chunk.len(),
                Ok(Ok(None)) => return true,
                Ok(Err(_)) | Err(_) => return false,
            }
        }
        false
    }

    /// Stops buffering writes, so that each part of a streamed response is sent at once. To be called before its head.
    pub fn disable_write_buffering(&self) {
        if let Some(stream) = self.http1_stream() {
            stream.disable_write_buffering();
        }
    }

    /// Returns the status of the response whose head was written; interim responses do not count.
    pub fn written_status(&self) -> Option<u16> {
        self.session.response_written().map(|head| head.status.as_u16()).filter(|status| *status >= 200)
    }

    /// Writes the head of the response.
    ///
    /// # Errors
    /// The caller is gone.
    pub async fn write_head(&mut self, head: ResponseHead) -> Result<(), WriteFailed> {
        let (head, max_wait) = (Box::new(to_pingora_head(head)), self.body_idle_timeout);
        // Pingora's own timeout starts a thread that wakes a hundred times a second from then on.
        let written = with_timeout(self.session.write_response_header(head), || max_wait).await;
        written.and_then(Result::ok).ok_or(WriteFailed)
    }

    /// Writes a part of the response's body.
    ///
    /// # Errors
    /// The caller is gone.
    pub async fn write_body(&mut self, bytes: Bytes, is_last: bool) -> Result<(), WriteFailed> {
        let max_wait = self.body_idle_timeout;
        let written = with_timeout(self.session.write_response_body(bytes, is_last), || max_wait).await;
        written.and_then(Result::ok).ok_or(WriteFailed)
    }

    /// Writes the whole body of the response. Where the caller does not read it at once, `hold` gives what is held until it
    /// has, or how long the caller may take without it.
    ///
    /// # Errors
    /// The caller is gone, or does not read.
    pub async fn write_whole_body<T>(
        &mut self,
        bytes: Bytes,
        hold: impl FnOnce() -> Result<T, Duration>,
    ) -> Result<(), WriteFailed> {
        let max_wait = self.body_idle_timeout;
        let mut write = pin!(self.session.write_response_body(bytes, true));
        let written = match poll!(write.as_mut()) {
            Poll::Ready(written) => Some(written),
            Poll::Pending => match hold() {
                Ok(_held) => timeout(max_wait, write).await.ok(),
                Err(max_wait) => timeout(max_wait, write).await.ok(),
            },
        };
        written.and_then(Result::ok).ok_or(WriteFailed)
    }

    /// Resolves when the caller has stopped sending or has disconnected. Cancel-safe: like
    /// [`HttpSession::wait_for_disconnect`], it consumes no byte of the next request.
    pub async fn wait_for_caller_signal(&mut self) -> CallerSignal {
        if self.is_http2() {
            self.wait_for_disconnect().await;
            return CallerSignal::Disconnected;
        }
        match self.http1_stream() {
            Some(stream) if !stream.wait_for_close_or_reset().await => CallerSignal::HalfClosed,
            Some(_) => CallerSignal::Disconnected,
            None => std::future::pending().await,
        }
    }

    /// Resolves when the caller has disconnected. A caller that has only stopped sending still awaits its response.
    pub async fn wait_for_disconnect(&mut self) {
        if let ServerSession::H2(stream) = &mut self.session {
            let _ = stream.idle().await;
            return;
        }
        match self.http1_stream() {
            Some(stream) => stream.wait_for_reset().await,
            None => std::future::pending().await,
        }
    }

    /// Sends an interim response (RFC 9110 §15.2) to a caller that has stopped sending, unless the response has begun.
    /// A caller that still waits ignores it; the operating system of a caller that has disconnected replies with a
    /// reset. Only that reset distinguishes the two.
    pub async fn probe_caller(&mut self) {
        let ServerSession::H1(session) = &mut self.session else { return };
        let awaits_response = session.response_written().is_none_or(|head| head.status.is_informational());
        if awaits_response && session.req_header().version == Version::HTTP_11 {
            // A failed write is detected as a reset of the connection.
            let _ = session.write_continue_response().await;
        }
    }

    fn http1_stream(&self) -> Option<&ConnectionStream> {
        match &self.session {
            ServerSession::H1(session) => (**session.stream()).as_any().downcast_ref(),
            _ => None,
        }
    }

    /// Ends an HTTP/1 request, whose response is complete or is aborted; returns the stream if the connection can serve
    /// another request.
    pub(super) async fn finish_http1(self, is_complete: bool) -> Option<ConnectionStream> {
        let ServerSession::H1(mut session) = self.session else { return None };
        let is_complete = is_complete && session.response_written().is_some_and(|head| !head.status.is_informational());
        if !is_complete {
            // Dropped without an end: an aborted chunked response must not get its last chunk.
            return None;
        }
        with_timeout(session.finish_body(), || self.body_idle_timeout).await?.ok()?;
        if session.will_keepalive() && session.is_body_done() {
            let (stream, rest) = session.reuse().await.ok()??.into_parts();
            let mut stream = ConnectionStream::from_stream(stream)?;
            stream.store_read_ahead(rest.unwrap_or_default());
            return stream.body_ended().then_some(stream);
        }
        let stream = ConnectionStream::from_stream(session.into_inner())?;
        Box::pin(stream.linger_and_close(LINGER_TIMEOUT, MAX_LINGER_BYTES)).await;
        None
    }

    /// Ends an HTTP/2 stream, whose response is complete or is aborted.
    pub(super) async fn finish_http2(mut self, is_complete: bool) {
        if !is_complete || self.session.response_written().is_none() {
            return self.session.shutdown().await;
        }
        // The response is complete. A stream that is dropped while its request body still arrives is reset, which some
        // clients report as a failed call, so some of the body is discarded first.
        if self.session.finish_body().await.is_ok() && !self.session.is_body_done() {
            self.discard_body(MAX_LINGER_BYTES, LINGER_TIMEOUT).await;
        }
    }

    /// Takes the byte stream out of a session whose protocol was upgraded, and the bytes that arrived after the head.
    pub(super) fn into_upgraded_stream(mut self) -> Option<(ConnectionStream, Vec<u8>)> {
        // Bytes that were read after the head are available at once; well-behaved clients send none.
        let read_ahead = self.session.read_request_body().now_or_never();
        let read_ahead = read_ahead.and_then(|read| read.ok().flatten()).map(Vec::from).unwrap_or_default();
        let ServerSession::H1(session) = self.session else { return None };
        let mut stream = ConnectionStream::from_stream(session.into_inner())?;
        stream.store_read_ahead(BytesMut::new());
        Some((stream, read_ahead))
    }
}

fn to_pingora_head(head: ResponseHead) -> ResponseHeader {
    let (mut parts, ()) = http::Response::new(()).into_parts();
    parts.status = head.status;
    parts.headers = head.headers;
    parts.into()
}

/// The fault for a body whose framing is invalid.
#[cold]
pub(super) fn invalid_framing() -> Fault {
    Fault::new(FaultCode::InvalidInput, "The request body is not framed correctly")
}

/// Returns the output of `work`, or `None` if it takes longer than `max_wait`, which is computed only if `work` is not
/// ready at once; nearly all work is.
async fn with_timeout<T>(work: impl Future<Output = T>, max_wait: impl FnOnce() -> Duration) -> Option<T> {
    let mut work = pin!(work);
    match poll!(work.as_mut()) {
        Poll::Ready(done) => Some(done),
        Poll::Pending => timeout(max_wait(), work).await.ok(),
    }
}

/// Whether the caller closed the connection, rather than sent an invalid body.
fn is_early_end(error: &Error) -> bool {
    let io_error = error.cause.as_deref().and_then(|cause| cause.downcast_ref::<std::io::Error>());
    let is_invalid_data = io_error.is_some_and(|error| error.kind() == std::io::ErrorKind::InvalidData);
    !is_invalid_data && matches!(error.etype(), ErrorType::ConnectionClosed | ErrorType::ReadError)
}
