//! One HTTP/1 connection: reads heads and serves requests until either side closes.

use super::{
    connection_stream::ConnectionStream,
    head_reader::{self, HeadReadResult},
    http_service::{HttpService, ServeOutcome},
    http_session::HttpSession,
};
use crate::fault::Fault;
use std::sync::Arc;

/// Serves `stream` until either side closes it.
pub(super) async fn serve_http1<S: HttpService>(
    service: &Arc<S>,
    connection: &Arc<S::Connection>,
    mut stream: ConnectionStream,
) {
    let mut served: u32 = 0;
    loop {
        let head = head_reader::read_head(&mut stream, connection, served == 0).await;
        let _call = connection.active.count_call();
        let reusable_stream = match head {
            HeadReadResult::Closed => None,
            HeadReadResult::Refused(fault) => {
                let session = HttpSession::from_http1(stream, None, connection);
                Box::pin(refuse_request(service, connection, session, fault)).await
            }
            HeadReadResult::Complete(head) => {
                served = served.saturating_add(1);
                let is_last = connection.limits.max_requests_per_connection.is_some_and(|max| served >= max);
                let session = HttpSession::from_http1(stream, Some(head), connection);
                // Boxed like the refusal, so that an idle connection's future has no space for either.
                Box::pin(serve_request(service, connection, session, is_last)).await
            }
        };
        match reusable_stream {
            Some(reusable) => stream = reusable,
            None => return,
        }
    }
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
        Err(fault) => return Box::pin(refuse_request(service, connection, session, fault)).await,
    }
    if is_last || connection.is_draining() {
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
    fault: Fault,
) -> Option<ConnectionStream> {
    session.close_after_response();
    service.refuse_request(&mut session, connection, fault).await;
    session.close_after_response();
    session.finish_http1(true).await
}
