//! One HTTP/1 connection: reads heads and serves requests until either side closes.

use super::{
    Connection, Outcome, Service, answer,
    body::within,
    head::{self, Head},
    wire::Wire,
};
use crate::fault::{Code, Fault};
use bytes::BytesMut;
use futures_util::future::{Either, ready};
use pingora_core::protocols::http::ServerSession;
use std::sync::Arc;

/// Serves `stream` until either side closes it.
pub(super) async fn run<S: Service>(service: &Arc<S>, connection: &Arc<Connection>, mut wire: Wire) {
    let mut served: u32 = 0;
    loop {
        let head = head::read(&mut wire, connection, served == 0).await;
        let _call = connection.live.call();
        let next = match head {
            Head::Closed => None,
            Head::Refused(fault) => Box::pin(refuse(service, connection, session(wire, None), fault)).await,
            Head::Whole(head) => {
                served = served.saturating_add(1);
                let last = connection.limits.max_requests_per_connection.is_some_and(|most| served >= most);
                // Boxed like the refusal, so that an idle connection's future has no space for either.
                Box::pin(request(service, connection, session(wire, Some(head)), last)).await
            }
        };
        match next {
            Some(kept) => wire = kept,
            None => return,
        }
    }
}

fn session(wire: Wire, head: Option<BytesMut>) -> ServerSession {
    let mut session = ServerSession::new_http1(Box::new(wire));
    // Timeouts are enforced in `body_reader`.
    session.set_read_timeout(None);
    session.set_pipelining_enabled(true);
    if let Some(head) = head {
        session.set_pipelined_prefix(head);
    }
    session
}

async fn request<S: Service>(
    service: &Arc<S>,
    connection: &Arc<Connection>,
    mut session: ServerSession,
    last: bool,
) -> Option<Wire> {
    // The head is already complete; the timeout applies if Pingora's parser disagrees and waits for more bytes.
    match within(connection.limits.header_timeout.get(), session.read_request()).await {
        Some(Ok(true)) => {}
        Some(Ok(false)) | None => return None,
        Some(Err(error)) => {
            session.set_keepalive(None);
            let fault = Fault::new(Code::InvalidInput, "The request head is not valid").detail(error);
            return Box::pin(refuse(service, connection, session, fault)).await;
        }
    }
    if last || connection.draining() {
        session.set_keepalive(None);
    }
    session.set_write_timeout(Some(connection.limits.body_idle_timeout.get()));
    match service.serve(&mut session, connection).await {
        Outcome::Switched(tunnel) => {
            tunnel.run(session).await;
            None
        }
        outcome => finish(session, outcome, connection).await,
    }
}

async fn refuse<S: Service>(
    service: &Arc<S>,
    connection: &Arc<Connection>,
    mut session: ServerSession,
    fault: Fault,
) -> Option<Wire> {
    service.refuse(&mut session, connection, fault).await;
    session.set_keepalive(None);
    finish(session, Outcome::Complete, connection).await
}

fn finish(
    session: ServerSession,
    outcome: Outcome,
    connection: &Connection,
) -> impl Future<Output = Option<Wire>> + Send {
    match session {
        ServerSession::H1(session) => Either::Left(answer::finish1(Box::new(session), outcome, connection)),
        _ => Either::Right(ready(None)),
    }
}
