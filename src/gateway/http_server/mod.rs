//! The HTTP server: listeners, TLS, caller connections with their limits, draining and listener handover.
//! Each request reaches a [`HttpService`] after its head was read in full, in time, and validated; a request whose
//! head is invalid reaches [`HttpService::refuse_request`]. This module decides on no response and writes none.
//!
//! HTTP/1 heads are read here, so that the gateway's own limits on time and size apply; Pingora parses them and
//! serves bodies and responses. Pingora serves HTTP/2 from the connection preface on.

mod body_reader;
mod caller_connection;
mod config;
mod connection_handler;
mod connection_stream;
mod head_reader;
mod http1_connection;
mod http2_connection;
mod keep_alive_and_disconnect;
pub mod listener_handover;
mod listening_socket;
mod pingora_stream;
mod server;
mod tls_certificates;
mod upgraded_connection;

pub use body_reader::{read_body_chunk, send_continue_if_expected};
pub use caller_connection::{CallerConnection, TlsInfo};
pub use config::{ConnectionLimits, ListenerConfig, ListenerTlsConfig};
pub use keep_alive_and_disconnect::{
    CallerSignal, disable_write_buffering, prepare_keep_alive, probe_caller, wait_for_caller_signal,
    wait_for_disconnect,
};
pub use listening_socket::{BoundListener, bind_listeners, check_listener_files};
pub use server::{DrainReport, HttpServer};
pub use upgraded_connection::UpgradedConnection;

use crate::fault::Fault;
use pingora_core::protocols::http::ServerSession;
use std::sync::Arc;

/// How a request ended, which decides whether its connection can be reused.
#[derive(Debug)]
pub enum ServeOutcome {
    /// The complete response was written.
    Complete,
    /// The response could not be completed; the caller must see a broken response, never a truncated valid one.
    Aborted,
    /// A 101 response was written; the connection now carries another protocol. HTTP/1 only.
    Upgraded(UpgradedConnection),
}

/// Handler of the requests of every connection.
pub trait HttpService: Send + Sync + 'static {
    /// Responds to a request whose head is complete and valid.
    fn serve_request(
        self: &Arc<Self>,
        session: &mut ServerSession,
        connection: &Arc<CallerConnection>,
    ) -> impl Future<Output = ServeOutcome> + Send;

    /// Responds to a request whose head was refused. On HTTP/1 the session has no head and panics when asked for one,
    /// so this method may only write a response; the connection closes afterwards.
    fn refuse_request(
        self: &Arc<Self>,
        session: &mut ServerSession,
        connection: &Arc<CallerConnection>,
        fault: Fault,
    ) -> impl Future<Output = ()> + Send;
}

#[cfg(test)]
mod tests;
