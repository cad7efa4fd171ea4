//! Around a response: taking a little unread body so that the connection can live on, noticing that the
//! caller has gone, and ending the connection so that what was written is read.

use super::{Connection, Outcome, body::within, wire::Wire};
use pingora_core::protocols::http::{ServerSession, v1::server::HttpSession as Http1};
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// Unread body that is taken so that a refused caller keeps its connection.
const SPARE: usize = 64 << 10;

/// How long a refusal waits for that.
const SPARE_TIME: Duration = Duration::from_millis(250);

/// Unread bytes that are taken while a connection or stream closes, and for how long.
const LINGER: usize = 4 << 20;
const LINGER_TIME: Duration = Duration::from_secs(2);

/// To be called before the head of a response that does not depend on more of the request's body: decides
/// whether the connection may be kept, and says so in the response's `Connection`. Takes up to 64 KiB of
/// unread body, or a quarter of a second, where that is enough to keep it.
pub async fn before_answer(session: &mut ServerSession, connection: &Connection) {
    if connection.draining() {
        session.set_keepalive(None);
    }
    // Without keep-alive nothing is gained; it is also the sign of a session that has no head to ask.
    if session.is_http2() || session.get_keepalive().is_none() || session.is_body_done() {
        return;
    }
    let spare = !waits_to_be_asked(session) && announced(session).is_none_or(|length| length <= SPARE);
    if !spare || !take(session, SPARE, SPARE_TIME).await {
        session.set_keepalive(None);
    }
}

/// A caller that was told nothing may go on without ever sending the body it announced.
fn waits_to_be_asked(session: &ServerSession) -> bool {
    session.response_written().is_none() && session.req_header().headers.contains_key(http::header::EXPECT)
}

fn announced(session: &ServerSession) -> Option<usize> {
    session.get_header(http::header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// Whether the body ended within `most` bytes and `longest`.
async fn take(session: &mut ServerSession, most: usize, longest: Duration) -> bool {
    let until = Instant::now() + longest;
    let mut taken = 0;
    while taken <= most {
        match timeout_at(until, session.read_request_body()).await {
            Ok(Ok(Some(chunk))) => taken += chunk.len(),
            Ok(Ok(None)) => return true,
            Ok(Err(_)) | Err(_) => return false,
        }
    }
    false
}

/// What became of a caller that was waiting for its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// It has gone: a reset connection, or a reset stream of HTTP/2.
    Gone,
    /// It sends nothing more. It may have left, or wait for its answer all the same.
    Silent,
}

/// Resolves when the caller has stopped sending or gone. Takes no byte of a next request, so it may be polled
/// and dropped at any time, like [`gone`].
pub async fn left(session: &mut ServerSession) -> Left {
    match session {
        ServerSession::H1(session) => match wire(session) {
            Some(wire) if !wire.silent().await => Left::Silent,
            Some(_) => Left::Gone,
            None => std::future::pending().await,
        },
        other => {
            gone(other).await;
            Left::Gone
        }
    }
}

/// Resolves when the caller has gone. A caller that only stopped sending still waits for its answer.
pub async fn gone(session: &mut ServerSession) {
    match session {
        ServerSession::H2(stream) => {
            let _ = stream.idle().await;
        }
        ServerSession::H1(session) => match wire(session) {
            Some(wire) => wire.reset().await,
            None => std::future::pending().await,
        },
        _ => std::future::pending().await,
    }
}

/// Writes something that means nothing to a caller that has stopped sending, where nothing was answered yet: an
/// interim response (RFC 9110 §15.2). One that still waits reads on; the system of one that has left answers
/// with a reset, which is the only way to tell the two apart.
pub async fn probe(session: &mut ServerSession) {
    let ServerSession::H1(session) = session else { return };
    let unanswered = session.response_written().is_none_or(|head| head.status.is_informational());
    if unanswered && session.req_header().version == http::Version::HTTP_11 {
        // A failure shows as a reset.
        let _ = session.write_continue_response().await;
    }
}

/// To be called before the head of a response whose body comes piece by piece: each piece is sent as it comes.
pub fn write_through(session: &ServerSession) {
    if let ServerSession::H1(session) = session
        && let Some(wire) = wire(session)
    {
        wire.write_through();
    }
}

fn wire(session: &Http1) -> Option<&Wire> {
    (**session.stream()).as_any().downcast_ref()
}

/// Ends an HTTP/1 request; the wire comes back if the connection can serve another.
pub(super) async fn finish1(mut session: Box<Http1>, outcome: Outcome, connection: &Connection) -> Option<Wire> {
    let whole = matches!(outcome, Outcome::Complete)
        && session.response_written().is_some_and(|head| !head.status.is_informational());
    if !whole {
        // Dropped without an end: a chunked response must not get its last chunk.
        return None;
    }
    let patience = connection.limits.body_idle.get();
    within(patience, session.finish_body()).await?.ok()?;
    if session.will_keepalive() && session.is_body_done() {
        let (stream, rest) = session.reuse().await.ok()??.into_parts();
        let mut wire = Wire::from_stream(stream)?;
        wire.give_back(rest.unwrap_or_default());
        return wire.body_ended().then_some(wire);
    }
    Box::pin(Wire::from_stream(session.into_inner())?.linger(LINGER_TIME, LINGER)).await;
    None
}

/// Ends a stream of HTTP/2.
pub(super) async fn finish2(mut session: ServerSession, outcome: Outcome) {
    if !matches!(outcome, Outcome::Complete) || session.response_written().is_none() {
        return session.shutdown().await;
    }
    // The response is whole. A stream that is dropped while its body still comes is reset, which some
    // clients take for a failed call: so a little of it is taken.
    if session.finish_body().await.is_ok() && !session.is_body_done() {
        take(&mut session, LINGER, LINGER_TIME).await;
    }
}
