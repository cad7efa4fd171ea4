//! One HTTP/2 connection: Pingora drives it; each stream becomes a request.

use super::{
    CallerConnection, HttpService, ServeOutcome, connection_stream::ConnectionStream, keep_alive_and_disconnect,
};
use crate::gateway::request_validation;
use async_trait::async_trait;
use http::header;
use pingora_core::{
    apps::{HttpServerApp, HttpServerOptions, ReusedHttpStream, ServerApp},
    protocols::http::{ServerSession, v2::server::H2Options},
    server::ShutdownWatch,
};
use pingora_http::RequestHeader;
use std::sync::Arc;

/// Flow-control windows: bytes that a stream, and a connection, may send before its requests read them.
const STREAM_WINDOW_BYTES: u32 = 256 << 10;
const CONNECTION_WINDOW_BYTES: u32 = 1 << 20;

/// Maximum bytes per stream that were written and that the peer has not yet received.
const SEND_BUFFER_BYTES: usize = 256 << 10;

/// Limits on streams that the peer resets before they are accepted, and on streams that the server resets because of
/// the peer's errors; beyond either, the connection is treated as a flood (CVE-2023-44487, CVE-2019-9514).
const MAX_PENDING_PEER_RESETS: usize = 20;
const MAX_LOCAL_ERROR_RESETS: usize = 256;

struct Http2App<S> {
    handler: Arc<S>,
    connection: Arc<CallerConnection>,
    options: HttpServerOptions,
}

/// Serves `stream`, whose preface was seen, until either side closes it.
pub(super) async fn serve_http2<S: HttpService>(
    handler: &Arc<S>,
    connection: &Arc<CallerConnection>,
    stream: ConnectionStream,
) {
    let mut options = HttpServerOptions::default();
    options.h2_idle_timeout = Some(connection.limits.idle_timeout.get());
    let app = Http2App { handler: Arc::clone(handler), connection: Arc::clone(connection), options };
    let shutdown = connection.shutdown.clone();
    Arc::new(app).process_new(Box::new(stream), &shutdown).await;
}

#[async_trait]
impl<S: HttpService> HttpServerApp for Http2App<S> {
    async fn process_new_http(
        self: &Arc<Self>,
        mut session: ServerSession,
        _: &ShutdownWatch,
    ) -> Option<ReusedHttpStream> {
        let _call = self.connection.active.count_call();
        session.set_write_timeout(Some(self.connection.limits.body_idle_timeout.get()));
        let outcome = match request_validation::validate_http2_head(session.req_header(), self.connection.head_limits())
        {
            Ok(()) => {
                copy_authority_to_host(session.req_header_mut());
                self.handler.serve_request(&mut session, &self.connection).await
            }
            Err(fault) => {
                self.handler.refuse_request(&mut session, &self.connection, fault).await;
                ServeOutcome::Complete
            }
        };
        keep_alive_and_disconnect::finish_http2(session, outcome).await;
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

/// Copies `:authority` to `Host`, where HTTP/1.1 has it (RFC 9113 §8.3.1), so that later steps only read `Host`.
fn copy_authority_to_host(head: &mut RequestHeader) {
    let authority = head.uri.authority().filter(|_| !head.headers.contains_key(header::HOST));
    if let Some(value) = authority.map(|authority| authority.as_str().to_owned()) {
        // The head was validated, so the authority is a valid field value.
        drop(head.insert_header(header::HOST, value));
    }
}
