//! Reading request bodies with timeouts, for HTTP/1 and HTTP/2.

use super::CallerConnection;
use crate::fault::{Fault, FaultCode};
use bytes::Bytes;
use futures_util::poll;
use pingora_core::{Error, ErrorType, protocols::http::ServerSession};
use std::{pin::pin, task::Poll, time::Duration};
use tokio::time::{Instant, timeout};

/// Reads the next bytes of the body; `None` after the last. Each chunk must arrive within `body_idle_timeout`, and the
/// whole body before `deadline`, if there is one.
///
/// # Errors
/// 408 on a timeout, 400 when the framing is invalid or the caller has closed. The connection is not reused after
/// either.
pub async fn read_body_chunk(
    session: &mut ServerSession,
    connection: &CallerConnection,
    deadline: Option<Instant>,
) -> Result<Option<Bytes>, Fault> {
    let max_wait = || {
        let idle = connection.limits.body_idle_timeout.get();
        deadline.map_or(idle, |deadline| idle.min(deadline.saturating_duration_since(Instant::now())))
    };
    let read = match with_lazy_timeout(session.read_request_body(), max_wait).await {
        Some(Ok(chunk)) => return Ok(chunk),
        Some(Err(error)) => Err(error.into_down()),
        None => Ok(()),
    };
    session.set_keepalive(None);
    Err(match read {
        Ok(()) => Fault::new(FaultCode::Timeout, "The request body did not arrive in time").with_status(408),
        Err(error) if is_early_end(&error) => {
            Fault::new(FaultCode::InvalidInput, "The request body ended early").with_detail(error)
        }
        Err(error) => {
            Fault::new(FaultCode::InvalidInput, "The request body is not framed correctly").with_detail(error)
        }
    })
}

/// Returns the output of `work`, or `None` if it takes longer than `max_wait`.
pub(super) async fn with_timeout<T>(max_wait: Duration, work: impl Future<Output = T>) -> Option<T> {
    with_lazy_timeout(work, || max_wait).await
}

/// Like [`with_timeout`], but computes the timeout only if `work` is not ready at once; nearly all work is.
async fn with_lazy_timeout<T>(work: impl Future<Output = T>, max_wait: impl FnOnce() -> Duration) -> Option<T> {
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

/// Sends 100 (Continue) to a caller that expects it (RFC 9110 §10.1.1). To be called immediately before the first
/// read: a refusal before that saves the caller the upload.
pub async fn send_continue_if_expected(session: &mut ServerSession) {
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
    // Otherwise Pingora takes the interim response for an early final one, and closes the connection after the call.
    session.set_close_on_response_before_downstream_finish(false);
    // If this write fails, the next read reports it.
    let _ = session.write_continue_response().await;
    session.set_close_on_response_before_downstream_finish(true);
}
