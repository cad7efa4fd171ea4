//! Reading an HTTP/1 head within limits on time and size. An idle connection is closed silently; a head that is not
//! complete in time gets 408.

use super::{
    connection_stream::ConnectionStream,
    http_connection::HttpConnection,
    http_session::invalid_framing,
    request_validation::{ChunkedFramingValidator, Http1HeadValidator, InvalidChunkedFraming},
};
use crate::fault::{Fault, FaultCode};
use bytes::BytesMut;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout, timeout_at};

/// Result of waiting for a request head.
pub(super) enum HeadReadResult {
    /// A complete, valid head, and any bytes after it. The stream validates a chunked body from here on.
    Complete(BytesMut),
    /// No request: the peer closed, the connection was idle for too long, or the gateway shuts down.
    Closed,
    /// An invalid or late head.
    Refused(Fault),
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
pub(super) async fn read_head(
    stream: &mut ConnectionStream,
    connection: &HttpConnection,
    is_first: bool,
) -> HeadReadResult {
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
                    Err(InvalidChunkedFraming) => HeadReadResult::Refused(invalid_framing()),
                };
            }
            Ok(None) => {}
            Err(fault) => return HeadReadResult::Refused(fault),
        }
        match timeout_at(deadline, stream.read_into(&mut head)).await {
            Ok(Ok(0) | Err(_)) => return HeadReadResult::Closed,
            Ok(Ok(_)) => {}
            Err(_) => return HeadReadResult::Refused(head_timeout()),
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

/// Whether bytes arrived before the idle timeout and before shutdown.
async fn wait_for_first_bytes(
    stream: &mut ConnectionStream,
    to: &mut BytesMut,
    connection: &HttpConnection,
    is_first: bool,
) -> bool {
    let mut shutdown = connection.shutdown.clone();
    let shutdown_deadline = async {
        // A server that was dropped sends no further notifications; the error means shutdown as well.
        let _ = shutdown.wait_for(|shutdown| *shutdown).await;
        sleep(if is_first { FIRST_REQUEST_GRACE_PERIOD } else { NEXT_REQUEST_GRACE_PERIOD }).await;
    };
    tokio::select! {
        biased;
        read = timeout(connection.limits.idle_timeout.get(), stream.read_into(to)) => matches!(read, Ok(Ok(read)) if read > 0),
        () = shutdown_deadline => false,
    }
}

#[cold]
fn head_timeout() -> Fault {
    Fault::new(FaultCode::Timeout, "The request head did not arrive in time").with_status(408)
}
