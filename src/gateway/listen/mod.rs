//! The HTTP server: listeners, TLS, caller connections with their limits, draining and listener handover.
//! Each request reaches a [`HttpService`] after its head was read in full, in time, and validated; a request whose
//! head is invalid reaches [`HttpService::refuse_request`]. This module decides on no response and writes none.
//!
//! HTTP/1 heads are read here, so that the gateway's own limits on time and size apply; Pingora parses them and
//! serves bodies and responses. Pingora serves HTTP/2 from the connection preface on.

mod answer;
mod body;
mod config;
mod connection;
mod drive;
mod head;
mod http1;
mod http2;
mod server;
mod socket;
mod stream;
mod tls;
mod tunnel;
pub mod upgrade;
mod wire;

pub use answer::{Left, before_answer, gone, left, probe, write_through};
pub use body::{expect_continue, read_chunk};
pub use config::{Config, Limits, Tls};
pub use connection::{Connection, Secured};
pub use server::{Drained, Server};
pub use socket::{Listener, bind_all, check_files};
pub use tunnel::Tunnel;

use crate::fault::Fault;
use pingora_core::protocols::http::ServerSession;
use std::sync::Arc;

/// How a request ended, which decides whether its connection can be reused.
#[derive(Debug)]
pub enum Outcome {
    /// The complete response was written.
    Complete,
    /// The response could not be completed; the caller must see a broken response, never a truncated valid one.
    Aborted,
    /// A 101 response was written; the connection now carries another protocol. HTTP/1 only.
    Switched(Tunnel),
}

/// Handler of the requests of every connection.
pub trait Service: Send + Sync + 'static {
    /// Responds to a request whose head is complete and valid.
    fn serve(
        self: &Arc<Self>,
        session: &mut ServerSession,
        connection: &Arc<Connection>,
    ) -> impl Future<Output = Outcome> + Send;

    /// Responds to a request whose head was refused. On HTTP/1 the session has no head and panics when asked for one,
    /// so this method may only write a response; the connection closes afterwards.
    fn refuse(
        self: &Arc<Self>,
        session: &mut ServerSession,
        connection: &Arc<Connection>,
        fault: Fault,
    ) -> impl Future<Output = ()> + Send;
}

#[cfg(test)]
mod tests;
