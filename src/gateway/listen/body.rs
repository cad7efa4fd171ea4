//! Reading a request's body within bounds of time, on HTTP/1 and HTTP/2 alike.

use super::Connection;
use crate::fault::{Code, Fault};
use bytes::Bytes;
use futures_util::poll;
use pingora_core::{Error, ErrorType, protocols::http::ServerSession};
use std::{pin::pin, task::Poll, time::Duration};
use tokio::time::{Instant, timeout};

/// The next bytes of the body, `None` after the last. Each chunk has `body_idle` to come, and all of them
/// have until `deadline`, if there is one.
///
/// # Errors
/// 408 when time is up, 400 when the framing is broken or the caller has gone. The connection is not
/// reused after either.
pub async fn read_chunk(
    session: &mut ServerSession,
    connection: &Connection,
    deadline: Option<Instant>,
) -> Result<Option<Bytes>, Fault> {
    let longest = || {
        let idle = connection.limits.body_idle.get();
        deadline.map_or(idle, |deadline| idle.min(deadline.saturating_duration_since(Instant::now())))
    };
    let read = match soon(session.read_request_body(), longest).await {
        Some(Ok(chunk)) => return Ok(chunk),
        Some(Err(error)) => Err(error.into_down()),
        None => Ok(()),
    };
    session.set_keepalive(None);
    Err(match read {
        Ok(()) => Fault::new(Code::Timeout, "The request's body did not arrive in time.").status(408),
        Err(error) if is_end(&error) => {
            Fault::new(Code::InvalidInput, "The request's body ended before it was complete.").detail(error)
        }
        Err(error) => Fault::new(Code::InvalidInput, "The request's body is not framed correctly.").detail(error),
    })
}

/// What `work` comes to, unless it takes longer than `most`.
pub(super) async fn within<T>(most: Duration, work: impl Future<Output = T>) -> Option<T> {
    soon(work, || most).await
}

/// The same; what is done at once, as nearly everything is, asks no clock.
async fn soon<T>(work: impl Future<Output = T>, most: impl FnOnce() -> Duration) -> Option<T> {
    let mut work = pin!(work);
    match poll!(work.as_mut()) {
        Poll::Ready(done) => Some(done),
        Poll::Pending => timeout(most(), work).await.ok(),
    }
}

/// Whether the caller stopped, rather than sent what is no body.
fn is_end(error: &Error) -> bool {
    let io = error.cause.as_deref().and_then(|cause| cause.downcast_ref::<std::io::Error>());
    let invalid = io.is_some_and(|error| error.kind() == std::io::ErrorKind::InvalidData);
    !invalid && matches!(error.etype(), ErrorType::ConnectionClosed | ErrorType::ReadError)
}

/// Tells a caller that waits for it to send the body (RFC 9110 §10.1.1). To be called before the first read,
/// once it is certain that the body is wanted: a refusal before it spares the caller the upload.
pub async fn expect_continue(session: &mut ServerSession) {
    let ServerSession::H1(session) = session else {
        return;
    };
    let head = session.req_header();
    if head.version != http::Version::HTTP_11
        || !head.headers.contains_key(http::header::EXPECT)
        || session.is_body_done()
    {
        return;
    }
    // Otherwise Pingora takes the interim response for an early final one, and closes after the call.
    session.set_close_on_response_before_downstream_finish(false);
    // A caller that cannot be written to will not send its body: the read that follows says so.
    let _ = session.write_continue_response().await;
    session.set_close_on_response_before_downstream_finish(true);
}
