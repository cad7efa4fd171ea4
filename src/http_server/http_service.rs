//! The seam between the HTTP server and what answers its requests.

use super::{
    http_connection::HttpConnection, http_session::HttpSession, request_validation::RefusedRequest,
    upgraded_connection::UpgradedConnection,
};
use std::{ops::Deref, sync::Arc};

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

/// Answers the requests of every connection.
pub trait HttpService: Send + Sync + 'static {
    /// A connection, with what the service keeps for it.
    type Connection: Deref<Target = HttpConnection> + Send + Sync + 'static;

    /// Adds the service's own state to an accepted connection.
    fn open_connection(&self, connection: HttpConnection) -> Self::Connection;

    /// Responds to a request whose head is complete and valid.
    fn serve_request(
        self: &Arc<Self>,
        session: &mut HttpSession,
        connection: &Arc<Self::Connection>,
    ) -> impl Future<Output = ServeOutcome> + Send;

    /// Responds to a request whose head was refused. On HTTP/1 the session has no head and panics when asked for one,
    /// so this method may only write a response; the connection closes afterwards.
    fn refuse_request(
        self: &Arc<Self>,
        session: &mut HttpSession,
        connection: &Arc<Self::Connection>,
        refused: RefusedRequest,
    ) -> impl Future<Output = ()> + Send;
}
