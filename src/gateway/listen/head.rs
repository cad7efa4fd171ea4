//! Reading an HTTP/1 head, bounded in time and size, and telling an idle connection from a slow one:
//! the first leaves quietly, the second is told 408.

use super::{Connection, wire::Wire};
use crate::{
    fault::{Code, Fault},
    gateway::hygiene::{Broken, Chunks, Scan},
};
use bytes::BytesMut;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout, timeout_at};

/// What came.
pub(super) enum Head {
    /// A clean head, and whatever the peer sent behind it. The wire watches a chunked body from here on.
    Whole(BytesMut),
    /// Nothing: closed, idle for too long, or the gateway is going away.
    Closed,
    /// Something that is not served.
    Refused(Fault),
}

/// What HTTP/2 begins with (RFC 9113 §3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Once the gateway goes away, a connection that has said nothing yet has this long for its request: it was
/// opened to call, and would have to take its end for a failed call.
const NEW: Duration = Duration::from_secs(1);

/// And one that was kept has this long: a busy one is then told that it closes, rather than cut under a request.
const KEPT: Duration = Duration::from_millis(250);

/// Waits for the next request on `wire`; `fresh` before the first.
pub(super) async fn read(wire: &mut Wire, connection: &Connection, fresh: bool) -> Head {
    let mut head = wire.take_back();
    if head.is_empty() && !first_bytes(wire, &mut head, connection, fresh).await {
        return Head::Closed;
    }
    let deadline = Instant::now() + connection.limits.header_deadline.get();
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

/// Whether the connection, of which nothing is known, begins with HTTP/2's preface. Leaves on `wire` what it
/// read; `None` if nothing came.
pub(super) async fn is_h2(wire: &mut Wire, connection: &Connection) -> Option<bool> {
    let mut start = wire.take_back();
    if start.is_empty() && !first_bytes(wire, &mut start, connection, true).await {
        return None;
    }
    let deadline = Instant::now() + connection.limits.header_deadline.get();
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

/// Whether bytes came before the connection had been idle for too long or the gateway went away.
async fn first_bytes(wire: &mut Wire, to: &mut BytesMut, connection: &Connection, fresh: bool) -> bool {
    let mut stop = connection.stop.clone();
    let leave = async {
        // A server that is gone wants no more requests, too.
        let _ = stop.wait_for(|stop| *stop).await;
        sleep(if fresh { NEW } else { KEPT }).await;
    };
    tokio::select! {
        biased;
        read = timeout(connection.limits.idle.get(), wire.read_some(to)) => matches!(read, Ok(Ok(read)) if read > 0),
        () = leave => false,
    }
}

#[cold]
fn broken() -> Fault {
    Fault::new(Code::InvalidInput, "The request's body is not framed correctly.")
}

#[cold]
fn late() -> Fault {
    Fault::new(Code::Timeout, "The request's head was not complete in time.").status(408)
}
