//! One HTTP/1 connection: reads heads and serves requests until either side closes.

use super::{
    CallerConnection, HttpService, ServeOutcome,
    body_reader::with_timeout,
    connection_stream::ConnectionStream,
    head_reader::{self, HeadReadResult},
    keep_alive_and_disconnect,
};
use crate::fault::{Fault, FaultCode};
use bytes::BytesMut;
use futures_util::future::{Either, ready};
use pingora_core::protocols::http::ServerSession;
use std::sync::Arc;

/// Serves `stream` until either side closes it.
pub(super) async fn serve_http1<S: HttpService>(
    handler: &Arc<S>,
    connection: &Arc<CallerConnection>,
    mut stream: ConnectionStream,
) {
    let mut served: u32 = 0;
    loop {
        let head = head_reader::read_head(&mut stream, connection, served == 0).await;
        let _call = connection.active.count_call();
        let reusable_stream = match head {
            HeadReadResult::Closed => None,
            HeadReadResult::Refused(fault) => {
                Box::pin(refuse_request(handler, connection, new_session(stream, None), fault)).await
            }
            HeadReadResult::Complete(head) => {
                served = served.saturating_add(1);
                let is_last = connection.limits.max_requests_per_connection.is_some_and(|max| served >= max);
                // Boxed like the refusal, so that an idle connection's future has no space for either.
                Box::pin(serve_request(handler, connection, new_session(stream, Some(head)), is_last)).await
            }
        };
        match reusable_stream {
            Some(reusable) => stream = reusable,
            None => return,
        }
    }
}

fn new_session(stream: ConnectionStream, head: Option<BytesMut>) -> ServerSession {
    let mut session = ServerSession::new_http1(Box::new(stream));
    // Timeouts are enforced in `body_reader`.
    session.set_read_timeout(None);
    session.set_pipelining_enabled(true);
    if let Some(head) = head {
        session.set_pipelined_prefix(head);
    }
    session
}

async fn serve_request<S: HttpService>(
    handler: &Arc<S>,
    connection: &Arc<CallerConnection>,
    mut session: ServerSession,
    is_last: bool,
) -> Option<ConnectionStream> {
    // The head is already complete; the timeout applies if Pingora's parser disagrees and waits for more bytes.
    match with_timeout(connection.limits.header_timeout.get(), session.read_request()).await {
        Some(Ok(true)) => {}
        Some(Ok(false)) | None => return None,
        Some(Err(error)) => {
            session.set_keepalive(None);
            let fault = Fault::new(FaultCode::InvalidInput, "The request head is not valid").with_detail(error);
            return Box::pin(refuse_request(handler, connection, session, fault)).await;
        }
    }
    if is_last || connection.is_draining() {
        session.set_keepalive(None);
    }
    session.set_write_timeout(Some(connection.limits.body_idle_timeout.get()));
    match handler.serve_request(&mut session, connection).await {
        ServeOutcome::Upgraded(upgraded) => {
            upgraded.serve(session).await;
            None
        }
        outcome => finish_request(session, outcome, connection).await,
    }
}

async fn refuse_request<S: HttpService>(
    handler: &Arc<S>,
    connection: &Arc<CallerConnection>,
    mut session: ServerSession,
    fault: Fault,
) -> Option<ConnectionStream> {
    handler.refuse_request(&mut session, connection, fault).await;
    session.set_keepalive(None);
    finish_request(session, ServeOutcome::Complete, connection).await
}

fn finish_request(
    session: ServerSession,
    outcome: ServeOutcome,
    connection: &CallerConnection,
) -> impl Future<Output = Option<ConnectionStream>> + Send {
    match session {
        ServerSession::H1(session) => {
            Either::Left(keep_alive_and_disconnect::finish_http1(Box::new(session), outcome, connection))
        }
        _ => Either::Right(ready(None)),
    }
}
