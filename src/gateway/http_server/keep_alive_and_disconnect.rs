//! Connection handling around a response: discarding unread body to allow keep-alive, detecting that the caller has
//! disconnected, and the lingering close that lets the caller read the response.

use super::{CallerConnection, ServeOutcome, body_reader::with_timeout, connection_stream::ConnectionStream};
use pingora_core::protocols::http::{ServerSession, v1::server::HttpSession as Http1};
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// Maximum bytes of unread body that are discarded so that a refused caller keeps its connection.
const MAX_DISCARDED_BODY_BYTES: usize = 64 << 10;

/// Maximum time to discard them.
const DISCARD_TIMEOUT: Duration = Duration::from_millis(250);

/// Maximum bytes discarded while a connection or stream closes, and the maximum time for it.
const MAX_LINGER_BYTES: usize = 4 << 20;
const LINGER_TIMEOUT: Duration = Duration::from_secs(2);

/// Decides whether the connection is kept alive, and sets the response's `Connection` header accordingly. To be called
/// before the head of a response that needs no more of the request body. Discards up to 64 KiB of unread body, for up
/// to 250 ms, where that allows keep-alive.
pub async fn prepare_keep_alive(session: &mut ServerSession, connection: &CallerConnection) {
    if connection.is_draining() {
        session.set_keepalive(None);
    }
    // Discarding only helps a connection that is kept alive. A session without a head never is.
    if session.is_http2() || session.get_keepalive().is_none() || session.is_body_done() {
        return;
    }
    let may_discard =
        !awaits_continue(session) && content_length(session).is_none_or(|length| length <= MAX_DISCARDED_BODY_BYTES);
    if !may_discard || !discard_body(session, MAX_DISCARDED_BODY_BYTES, DISCARD_TIMEOUT).await {
        session.set_keepalive(None);
    }
}

/// Whether the caller awaits 100 (Continue); without it, the caller may never send the body that it announced.
fn awaits_continue(session: &ServerSession) -> bool {
    session.response_written().is_none() && session.req_header().headers.contains_key(http::header::EXPECT)
}

fn content_length(session: &ServerSession) -> Option<usize> {
    session.get_header(http::header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// Discards the rest of the body; returns whether it ended within `max_bytes` and `max_wait`.
async fn discard_body(session: &mut ServerSession, max_bytes: usize, max_wait: Duration) -> bool {
    let deadline = Instant::now() + max_wait;
    let mut discarded = 0;
    while discarded <= max_bytes {
        match timeout_at(deadline, session.read_request_body()).await {
            Ok(Ok(Some(chunk))) => discarded += chunk.len(),
            Ok(Ok(None)) => return true,
            Ok(Err(_)) | Err(_) => return false,
        }
    }
    false
}

/// What a caller did while it awaited its response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallerSignal {
    /// The caller has disconnected: a reset connection, or a reset HTTP/2 stream.
    Disconnected,
    /// The caller has stopped sending. It may have disconnected, or still await the response.
    HalfClosed,
}

/// Resolves when the caller has stopped sending or has disconnected. Cancel-safe: like [`wait_for_disconnect`], it
/// consumes no byte of the next request.
pub async fn wait_for_caller_signal(session: &mut ServerSession) -> CallerSignal {
    match session {
        ServerSession::H1(session) => match connection_stream(session) {
            Some(stream) if !stream.wait_for_close_or_reset().await => CallerSignal::HalfClosed,
            Some(_) => CallerSignal::Disconnected,
            None => std::future::pending().await,
        },
        other => {
            wait_for_disconnect(other).await;
            CallerSignal::Disconnected
        }
    }
}

/// Resolves when the caller has disconnected. A caller that has only stopped sending still awaits its response.
pub async fn wait_for_disconnect(session: &mut ServerSession) {
    match session {
        ServerSession::H2(stream) => {
            let _ = stream.idle().await;
        }
        ServerSession::H1(session) => match connection_stream(session) {
            Some(stream) => stream.wait_for_reset().await,
            None => std::future::pending().await,
        },
        _ => std::future::pending().await,
    }
}

/// Sends an interim response (RFC 9110 §15.2) to a caller that has stopped sending, unless the response has begun. A
/// caller that still waits ignores it; the operating system of a caller that has disconnected replies with a reset.
/// Only that reset distinguishes the two.
pub async fn probe_caller(session: &mut ServerSession) {
    let ServerSession::H1(session) = session else { return };
    let awaits_response = session.response_written().is_none_or(|head| head.status.is_informational());
    if awaits_response && session.req_header().version == http::Version::HTTP_11 {
        // A failed write is detected as a reset of the connection.
        let _ = session.write_continue_response().await;
    }
}

/// Stops buffering writes, so that each part of a streamed response is sent at once. To be called before its head.
pub fn disable_write_buffering(session: &ServerSession) {
    if let ServerSession::H1(session) = session
        && let Some(stream) = connection_stream(session)
    {
        stream.disable_write_buffering();
    }
}

fn connection_stream(session: &Http1) -> Option<&ConnectionStream> {
    (**session.stream()).as_any().downcast_ref()
}

/// Ends an HTTP/1 request; returns the stream if the connection can serve another request.
pub(super) async fn finish_http1(
    mut session: Box<Http1>,
    outcome: ServeOutcome,
    connection: &CallerConnection,
) -> Option<ConnectionStream> {
    let is_complete = matches!(outcome, ServeOutcome::Complete)
        && session.response_written().is_some_and(|head| !head.status.is_informational());
    if !is_complete {
        // Dropped without an end: an aborted chunked response must not get its last chunk.
        return None;
    }
    let max_wait = connection.limits.body_idle_timeout.get();
    with_timeout(max_wait, session.finish_body()).await?.ok()?;
    if session.will_keepalive() && session.is_body_done() {
        let (stream, rest) = session.reuse().await.ok()??.into_parts();
        let mut stream = ConnectionStream::from_stream(stream)?;
        stream.store_read_ahead(rest.unwrap_or_default());
        return stream.body_ended().then_some(stream);
    }
    Box::pin(ConnectionStream::from_stream(session.into_inner())?.linger_and_close(LINGER_TIMEOUT, MAX_LINGER_BYTES))
        .await;
    None
}

/// Ends an HTTP/2 stream.
pub(super) async fn finish_http2(mut session: ServerSession, outcome: ServeOutcome) {
    if !matches!(outcome, ServeOutcome::Complete) || session.response_written().is_none() {
        return session.shutdown().await;
    }
    // The response is complete. A stream that is dropped while its request body still arrives is reset, which some
    // clients report as a failed call, so some of the body is discarded first.
    if session.finish_body().await.is_ok() && !session.is_body_done() {
        discard_body(&mut session, MAX_LINGER_BYTES, LINGER_TIMEOUT).await;
    }
}
