//! One HTTP/2 connection: Pingora drives it; each stream becomes a request.

use super::{
    connection_stream::ConnectionStream,
    http_service::{HttpService, ServeOutcome},
    http_session::HttpSession,
    request_validation::{RefusedHead, RefusedRequest, validate_http2_head},
};
use async_trait::async_trait;
use pingora_core::{
    apps::{HttpServerApp, HttpServerOptions, ReusedHttpStream, ServerApp},
    protocols::http::{ServerSession, v2::server::H2Options},
    server::ShutdownWatch,
};
use std::sync::Arc;
use tokio::sync::watch;

/// Flow-control windows: bytes that a stream, and a connection, may send before its requests read them.
const STREAM_WINDOW_BYTES: u32 = 256 << 10;
const CONNECTION_WINDOW_BYTES: u32 = 1 << 20;

/// Maximum bytes per stream that were written and that the peer has not yet received.
const SEND_BUFFER_BYTES: usize = 256 << 10;

/// Limits on streams that the peer resets before they are accepted, and on streams that the server resets because of
/// the peer's errors; beyond either, the connection is treated as a flood (CVE-2023-44487, CVE-2019-9514).
const MAX_PENDING_PEER_RESETS: usize = 20;
const MAX_LOCAL_ERROR_RESETS: usize = 256;

struct Http2App<S: HttpService> {
    service: Arc<S>,
    connection: Arc<S::Connection>,
    options: HttpServerOptions,
}

/// Serves `stream`, whose preface was seen, until either side closes it.
pub(super) async fn serve_http2<S: HttpService>(
    service: &Arc<S>,
    connection: &Arc<S::Connection>,
    stream: ConnectionStream,
) {
    let mut options = HttpServerOptions::default();
    options.h2_idle_timeout = Some(connection.limits.idle_timeout.get());
    let app = Http2App { service: Arc::clone(service), connection: Arc::clone(connection), options };
    let app = Arc::new(app);
    // Pingora sends GOAWAY when this changes.
    let (close, closing) = watch::channel(false);
    let mut served = app.process_new(Box::new(stream), &closing);
    tokio::select! {
        _ = &mut served => return,
        () = connection.wait_until_closing() => {
            close.send_replace(true);
        }
    }
    served.await;
}

#[async_trait]
impl<S: HttpService> HttpServerApp for Http2App<S> {
    async fn process_new_http(self: &Arc<Self>, session: ServerSession, _: &ShutdownWatch) -> Option<ReusedHttpStream> {
        let _call = self.connection.active.count_call();
        let checked = validate_http2_head(session.req_header(), self.connection.head_limits());
        // A head that is refused is not measured.
        let head_length = checked.as_ref().map_or(self.connection.limits.max_header_size.get(), |length| *length);
        let mut session = HttpSession::from_http2(session, head_length, &self.connection);
        let outcome = match checked {
            Ok(_) => {
                session.copy_authority_to_host();
                self.service.serve_request(&mut session, &self.connection).await
            }
            Err(fault) => {
                let head = RefusedHead::of_http2(session.head());
                self.service.refuse_request(&mut session, &self.connection, RefusedRequest { fault, head }).await;
                ServeOutcome::Complete
            }
        };
        session.finish_http2(matches!(outcome, ServeOutcome::Complete)).await;
        None
    }

    fn h2_options(&self) -> Option<H2Options> {
        let limits = &self.connection.limits;
        let mut options = H2Options::new();
        options
            .max_concurrent_streams(limits.max_http2_streams)
            .max_header_list_size(u32::try_from(limits.max_header_size.get()).unwrap_or(u32::MAX))
            .initial_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .max_send_buffer_size(SEND_BUFFER_BYTES)
            .max_pending_accept_reset_streams(MAX_PENDING_PEER_RESETS)
            .max_local_error_reset_streams(Some(MAX_LOCAL_ERROR_RESETS));
        Some(options)
    }

    fn server_options(&self) -> Option<&HttpServerOptions> {
        Some(&self.options)
    }
}
