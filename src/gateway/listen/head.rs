//! Reading an HTTP/1 head within limits on time and size. An idle connection is closed silently; a head that is not
//! complete in time gets 408.

use super::{Connection, wire::Wire};
use crate::{
    fault::{Code, Fault},
    gateway::hygiene::{Broken, Chunks, Scan},
};
use bytes::BytesMut;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout, timeout_at};

/// Result of waiting for a request head.
pub(super) enum Head {
    /// A complete, valid head, and any bytes after it. The stream validates a chunked body from here on.
    Whole(BytesMut),
    /// No request: the peer closed, the connection was idle for too long, or the gateway shuts down.
    Closed,
    /// An invalid or late head.
    Refused(Fault),
}

/// The HTTP/2 connection preface (RFC 9113 §3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Time for a new connection to send its first request after shutdown began. The client opened it to make a call, and
/// would take an immediate close for a failed call.
const NEW: Duration = Duration::from_secs(1);

/// Time for a reused connection: a busy one is then told that it closes, instead of being closed during a request.
const KEPT: Duration = Duration::from_millis(250);

/// Waits for the next request head on `stream`; `is_first` before the first request.
pub(super) async fn read(wire: &mut Wire, connection: &Connection, fresh: bool) -> Head {
    let mut head = wire.take_back();
    if head.is_empty() && !first_bytes(wire, &mut head, connection, fresh).await {
        return Head::Closed;
    }
    let deadline = Instant::now() + connection.limits.header_timeout.get();
    let mut scan = Scan::new(connection.bounds());
    loop {
        match scan.feed(&head) {
            Ok(Some(end)) => {
                let chunks = scan.chunked().then(Chunks::default);
                return match wire.watch(chunks, head.get(end..).unwrap_or_default()) {
                    Ok(()) => Head::Whole(head),
                    Err(Broken) => Head::Refused(broken()),
                };
            }
            Ok(None) => {}
            Err(fault) => return Head::Refused(fault),
        }
        match timeout_at(deadline, wire.read_some(&mut head)).await {
            Ok(Ok(0) | Err(_)) => return Head::Closed,
            Ok(Ok(_)) => {}
            Err(_) => return Head::Refused(late()),
        }
    }
}

/// Whether a new connection begins with the HTTP/2 preface. Puts the bytes it read back on `stream`. `None` if the peer
/// sent nothing in time.
pub(super) async fn is_h2(wire: &mut Wire, connection: &Connection) -> Option<bool> {
    let mut start = wire.take_back();
    if start.is_empty() && !first_bytes(wire, &mut start, connection, true).await {
        return None;
    }
    let deadline = Instant::now() + connection.limits.header_timeout.get();
    let is_h2 = loop {
        let common = PREFACE.len().min(start.len());
        if start.get(..common) != PREFACE.get(..common) {
            break false;
        }
        if common == PREFACE.len() {
            break true;
        }
        match timeout_at(deadline, wire.read_some(&mut start)).await {
            Ok(Ok(read)) if read > 0 => {}
            _ => return None,
        }
    };
    wire.give_back(start);
    Some(is_h2)
}

/// Whether bytes arrived before the idle timeout and before shutdown.
async fn first_bytes(wire: &mut Wire, to: &mut BytesMut, connection: &Connection, fresh: bool) -> bool {
    let mut stop = connection.stop.clone();
    let leave = async {
        // A server that was dropped sends no further notifications; the error means shutdown as well.
        let _ = stop.wait_for(|stop| *stop).await;
        sleep(if fresh { NEW } else { KEPT }).await;
    };
    tokio::select! {
        biased;
        read = timeout(connection.limits.idle_timeout.get(), wire.read_some(to)) => matches!(read, Ok(Ok(read)) if read > 0),
        () = leave => false,
    }
}

#[cold]
fn broken() -> Fault {
    Fault::new(Code::InvalidInput, "The request body is not framed correctly")
}

#[cold]
fn late() -> Fault {
    Fault::new(Code::Timeout, "The request head did not arrive in time").status(408)
}
