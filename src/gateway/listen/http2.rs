//! One HTTP/2 connection: Pingora drives it, each stream becomes a request.

use super::{Connection, Outcome, Service, answer, wire::Wire};
use crate::gateway::hygiene;
use async_trait::async_trait;
use http::header;
use pingora_core::{
    apps::{HttpServerApp, HttpServerOptions, ReusedHttpStream, ServerApp},
    protocols::http::{ServerSession, v2::server::H2Options},
    server::ShutdownWatch,
};
use pingora_http::RequestHeader;
use std::sync::Arc;

/// What a stream may send before its request reads, and a connection before all of its requests do.
const STREAM_WINDOW: u32 = 256 << 10;
const CONNECTION_WINDOW: u32 = 1 << 20;

/// Written and not yet taken by the peer, per stream.
const SEND_BUFFER: usize = 256 << 10;

/// Streams that a peer resets before they were looked at, and streams that we had to reset because of what
/// the peer sent; beyond either the connection is a flood (CVE-2023-44487, CVE-2019-9514).
const RESETS_BY_PEER: usize = 20;
const RESETS_BY_US: usize = 256;

struct Streams<S> {
    service: Arc<S>,
    connection: Arc<Connection>,
    options: HttpServerOptions,
}

/// Serves `wire`, whose preface has been seen, until either side ends it.
pub(super) async fn run<S: Service>(service: &Arc<S>, connection: &Arc<Connection>, wire: Wire) {
    let mut options = HttpServerOptions::default();
    options.h2_idle_timeout = Some(connection.limits.idle.get());
    let streams = Streams { service: Arc::clone(service), connection: Arc::clone(connection), options };
    let stop = connection.stop.clone();
    Arc::new(streams).process_new(Box::new(wire), &stop).await;
}

#[async_trait]
impl<S: Service> HttpServerApp for Streams<S> {
    async fn process_new_http(
        self: &Arc<Self>,
        mut session: ServerSession,
        _: &ShutdownWatch,
    ) -> Option<ReusedHttpStream> {
        let _call = self.connection.live.call();
        session.set_write_timeout(Some(self.connection.limits.body_idle.get()));
        let outcome = match hygiene::check_h2(session.req_header(), self.connection.bounds()) {
            Ok(()) => {
                name_host(session.req_header_mut());
                self.service.serve(&mut session, &self.connection).await
            }
            Err(fault) => {
                self.service.refuse(&mut session, &self.connection, fault).await;
                Outcome::Complete
            }
        };
        answer::finish2(session, outcome).await;
        None
    }

    fn h2_options(&self) -> Option<H2Options> {
        let limits = &self.connection.limits;
        let mut options = H2Options::new();
        options
            .max_concurrent_streams(limits.h2_streams)
            .max_header_list_size(u32::try_from(limits.max_head.get()).unwrap_or(u32::MAX))
            .initial_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_send_buffer_size(SEND_BUFFER)
            .max_pending_accept_reset_streams(RESETS_BY_PEER)
            .max_local_error_reset_streams(Some(RESETS_BY_US));
        Some(options)
    }

    fn server_options(&self) -> Option<&HttpServerOptions> {
        Some(&self.options)
    }
}

/// The authority stands where HTTP/1.1 has it, too (RFC 9113 §8.3.1): whoever judges by `Host` need not know of it.
fn name_host(head: &mut RequestHeader) {
    let named = head.uri.authority().filter(|_| !head.headers.contains_key(header::HOST));
    if let Some(named) = named.map(|authority| authority.as_str().to_owned()) {
        // The check of the head has let it pass, so that it fits a field.
        drop(head.insert_header(header::HOST, named));
    }
}
