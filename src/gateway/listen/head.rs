//! Reading an HTTP/1 head, bounded in time and size, and telling an idle connection from a slow one:
//! the first leaves quietly, the second is told 408.

use super::{Connection, wire::Wire};
use crate::{
    fault::{Code, Fault},
    gateway::hygiene::{Chunks, Scan},
};
use bytes::BytesMut;
use tokio::time::{Instant, timeout, timeout_at};

/// What came.
pub(super) enum Head {
    /// A clean head with whatever the peer sent behind it, and where in its chunks that ends.
    Whole(BytesMut, Option<Chunks>),
    /// Nothing: closed, idle for too long, or the gateway is going away.
    Closed,
    /// Something that is not served.
    Refused(Fault),
}

/// What HTTP/2 begins with (RFC 9113 §3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Waits for the next request on `wire`.
pub(super) async fn read(wire: &mut Wire, connection: &Connection) -> Head {
    let mut head = wire.take_back();
    if head.is_empty() && !first_bytes(wire, &mut head, connection).await {
        return Head::Closed;
    }
    let deadline = Instant::now() + connection.limits.header_deadline.get();
    let mut scan = Scan::new(connection.bounds());
    loop {
        match scan.feed(&head) {
            Ok(Some(end)) => return whole(head, end, scan.chunked()),
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

fn whole(head: BytesMut, end: usize, chunked: bool) -> Head {
    if !chunked {
        return Head::Whole(head, None);
    }
    let mut chunks = Chunks::begin();
    match chunks.feed(head.get(end..).unwrap_or_default()) {
        Ok(()) => Head::Whole(head, Some(chunks)),
        Err(fault) => Head::Refused(fault),
    }
}

/// Whether the connection, of which nothing is known, begins with HTTP/2's preface. Leaves on `wire` what it
/// read; `None` if nothing came.
pub(super) async fn is_h2(wire: &mut Wire, connection: &Connection) -> Option<bool> {
    let mut start = wire.take_back();
    if start.is_empty() && !first_bytes(wire, &mut start, connection).await {
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

/// Whether bytes came before the connection had been idle for too long or the gateway began to go away.
async fn first_bytes(wire: &mut Wire, to: &mut BytesMut, connection: &Connection) -> bool {
    let mut stop = connection.stop.clone();
    tokio::select! {
        biased;
        read = timeout(connection.limits.idle.get(), wire.read_some(to)) => matches!(read, Ok(Ok(read)) if read > 0),
        _ = stop.wait_for(|stop| *stop) => false,
    }
}

#[cold]
fn late() -> Fault {
    Fault::new(Code::Timeout, "The request's head was not complete in time.").status(408)
}
