//! One HTTP/1 connection: reads heads within limits on time and size, and serves requests until either side closes. An
//! idle connection is closed silently; a head that is not complete in time gets 408.

use super::{
    connection_stream::ConnectionStream,
    http_connection::HttpConnection,
    http_service::{HttpService, ServeOutcome},
    http_session::{HttpSession, invalid_framing},
    request_validation::{
        ChunkedFramingValidator, Http1HeadValidator, InvalidChunkedFraming, RefusedHead, RefusedRequest,
    },
};
use crate::fault::{Fault, FaultCode};
use bytes::BytesMut;
use std::{pin::Pin, sync::Arc, time::Duration};
use tokio::time::{Instant, sleep, timeout, timeout_at};

/// Serves `stream` until either side closes it.
pub(super) async fn serve_http1<S: HttpService>(
    service: &Arc<S>,
    connection: &Arc<S::Connection>,
    mut stream: ConnectionStream,
) {
    let mut served: u32 = 0;
    loop {
        let head = read_head(&mut stream, connection, served == 0).await;
        let _call = connection.active.count_call();
        let reusable_stream = match head {
            HeadReadResult::Closed => None,
            HeadReadResult::Refused(refused) => {
                let session = HttpSession::from_http1(stream, None, connection);
                Box::pin(refuse_request(service, connection, session, *refused)).await
            }
            HeadReadResult::Complete(head) => {
                served = served.saturating_add(1);
                let is_last = connection.limits.max_requests_per_connection.is_some_and(|max| served >= max);
                let session = HttpSession::from_http1(stream, Some(head), connection);
                // Boxed like the refusal, so that an idle connection's future has no space for either.
                pin_in_place(|| serve_request(service, connection, session, is_last)).await
            }
        };
        match reusable_stream {
            Some(reusable) => stream = reusable,
            None => return,
        }
    }
}

/// Boxes a future where it is made. `Box::pin` makes it on the stack and copies its whole space, of which a future that
/// has not begun uses little.
fn pin_in_place<F: Future>(make: impl FnOnce() -> F) -> Pin<Box<F>> {
    Box::into_pin(Box::write(Box::new_uninit(), make()))
}

async fn serve_request<S: HttpService>(
    service: &Arc<S>,
    connection: &Arc<S::Connection>,
    mut session: HttpSession,
    is_last: bool,
) -> Option<ConnectionStream> {
    match session.parse_http1_head(connection.limits.header_timeout.get()).await {
        Ok(true) => {}
        Ok(false) => return None,
        Err(fault) => {
            let refused = RefusedRequest { fault, head: RefusedHead::default() };
            return Box::pin(refuse_request(service, connection, session, refused)).await;
        }
    }
    if is_last || connection.is_closing() {
        session.close_after_response();
    }
    match service.serve_request(&mut session, connection).await {
        ServeOutcome::Upgraded(upgraded) => {
            upgraded.serve(session).await;
            None
        }
        outcome => session.finish_http1(matches!(outcome, ServeOutcome::Complete)).await,
    }
}

async fn refuse_request<S: HttpService>(
    service: &Arc<S>,
    connection: &Arc<S::Connection>,
    mut session: HttpSession,
    refused: RefusedRequest,
) -> Option<ConnectionStream> {
    session.close_after_response();
    service.refuse_request(&mut session, connection, refused).await;
    session.close_after_response();
    session.finish_http1(true).await
}

/// Result of waiting for a request head.
enum HeadReadResult {
    /// A complete, valid head, and any bytes after it. The stream validates a chunked body from here on.
    Complete(BytesMut),
    /// No request: the peer closed, the connection was idle for too long, or the gateway shuts down.
    Closed,
    /// An invalid or late head.
    Refused(Box<RefusedRequest>),
}

impl HeadReadResult {
    #[cold]
    fn refused(fault: Fault, head: &[u8]) -> Self {
        Self::Refused(Box::new(RefusedRequest { fault, head: RefusedHead::of_http1(head) }))
    }
}

/// The HTTP/2 connection preface (RFC 9113 §3.4).
const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Time for a new connection to send its first request after shutdown began. The client opened it to make a call, and
/// would take an immediate close for a failed call.
const FIRST_REQUEST_GRACE_PERIOD: Duration = Duration::from_secs(1);

/// The same for a connection that has served a request: a request that is already on its way still gets a response,
/// which announces the close.
const NEXT_REQUEST_GRACE_PERIOD: Duration = Duration::from_millis(250);

/// Waits for the next request head on `stream`; `is_first` before the first request.
async fn read_head(stream: &mut ConnectionStream, connection: &HttpConnection, is_first: bool) -> HeadReadResult {
    let mut head = stream.take_read_ahead();
    if head.is_empty() && !wait_for_first_bytes(stream, &mut head, connection, is_first).await {
        return HeadReadResult::Closed;
    }
    let deadline = Instant::now() + connection.limits.header_timeout.get();
    let mut validator = Http1HeadValidator::new(connection.head_limits());
    loop {
        match validator.feed(&head) {
            Ok(Some(end)) => {
                let framing = validator.is_chunked().then(ChunkedFramingValidator::default);
                return match stream.validate_body_framing(framing, head.get(end..).unwrap_or_default()) {
                    Ok(()) => HeadReadResult::Complete(head),
                    Err(InvalidChunkedFraming) => {
                        HeadReadResult::refused(invalid_framing(), head.get(..end).unwrap_or_default())
                    }
                };
            }
            Ok(None) => {}
            Err(fault) => return HeadReadResult::refused(fault, &head),
        }
        match timeout_at(deadline, stream.read_into(&mut head)).await {
            Ok(Ok(0) | Err(_)) => return HeadReadResult::Closed,
            Ok(Ok(_)) => {}
            Err(_) => return HeadReadResult::refused(head_timeout(), &head),
        }
    }
}

/// Whether a new connection begins with the HTTP/2 preface. The bytes that were read are returned to `stream`. `None`
/// if the peer sent too little in time.
pub(super) async fn detect_http2_preface(stream: &mut ConnectionStream, connection: &HttpConnection) -> Option<bool> {
    let mut received = stream.take_read_ahead();
    if received.is_empty() && !wait_for_first_bytes(stream, &mut received, connection, true).await {
        return None;
    }
    let deadline = Instant::now() + connection.limits.header_timeout.get();
    let is_h2 = loop {
        let compared = HTTP2_PREFACE.len().min(received.len());
        if received.get(..compared) != HTTP2_PREFACE.get(..compared) {
            break false;
        }
        if compared == HTTP2_PREFACE.len() {
            break true;
        }
        match timeout_at(deadline, stream.read_into(&mut received)).await {
            Ok(Ok(read)) if read > 0 => {}
            _ => return None,
        }
    };
    stream.store_read_ahead(received);
    Some(is_h2)
}

/// Whether bytes arrived before the idle timeout, the maximum age of the connection and shutdown.
async fn wait_for_first_bytes(
    stream: &mut ConnectionStream,
    to: &mut BytesMut,
    connection: &HttpConnection,
    is_first: bool,
) -> bool {
    let grace_period = if is_first { FIRST_REQUEST_GRACE_PERIOD } else { NEXT_REQUEST_GRACE_PERIOD };
    let shutdown_deadline = async {
        connection.wait_for_shutdown_or_distrust().await;
        sleep(grace_period).await;
    };
    let idle_timeout = connection.age_left(connection.limits.idle_timeout.get()).max(grace_period);
    tokio::select! {
        biased;
        read = timeout(idle_timeout, stream.read_into(to)) => matches!(read, Ok(Ok(read)) if read > 0),
        () = shutdown_deadline => false,
    }
}

#[cold]
fn head_timeout() -> Fault {
    Fault::new(FaultCode::Timeout, "The request head did not arrive in time").with_status(408)
}
