//! The caller's side of the socket: listeners, TLS, connections and what bounds them, and how they end.
//! Each request reaches a [`Service`] with its head read whole, in time and found clean; whatever was wrong
//! with it reaches [`Service::refuse`]. Nothing here decides what is answered, and nothing writes a response.
//!
//! HTTP/1 heads are read here, so that the bounds on time and size are ours; Pingora parses them and serves
//! bodies and responses. HTTP/2 is Pingora's from the preface on.

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

/// How a request ended, which decides what becomes of its connection.
#[derive(Debug)]
pub enum Outcome {
    /// The response was written to its end.
    Complete,
    /// The response could not be completed: the caller must see a broken one, never a short whole.
    Aborted,
    /// 101 was answered: what follows is another protocol's, for which this is. HTTP/1 only.
    Switched(Tunnel),
}

/// What answers requests.
pub trait Service: Send + Sync + 'static {
    /// Answers a request whose head is read and clean.
    fn serve(
        self: &Arc<Self>,
        session: &mut ServerSession,
        connection: &Arc<Connection>,
    ) -> impl Future<Output = Outcome> + Send;

    /// Answers a request that was refused before it was one. On HTTP/1 the session has no head: asking for it
    /// would panic, so this may write a response and nothing else; the connection closes afterwards.
    fn refuse(
        self: &Arc<Self>,
        session: &mut ServerSession,
        connection: &Arc<Connection>,
        fault: Fault,
    ) -> impl Future<Output = ()> + Send;
}

#[cfg(test)]
mod tests;
