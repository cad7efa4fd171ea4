//! A connection that carries another protocol after a 101 response: its byte stream, taken out of the session, and the
//! function that serves it. This module does not know the protocol.

use super::http_session::HttpSession;
use futures_util::future::BoxFuture;
use std::fmt;
use tokio::io::{AsyncRead, AsyncWrite};

/// The byte stream of an upgraded connection.
pub trait UpgradedStream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> UpgradedStream for T {}

/// Serves the byte stream; the second argument is the bytes that arrived after the request head.
type UpgradedConnectionTask = Box<dyn FnOnce(Box<dyn UpgradedStream>, Vec<u8>) -> BoxFuture<'static, ()> + Send>;

/// A connection after its protocol upgrade.
pub struct UpgradedConnection(UpgradedConnectionTask);

impl UpgradedConnection {
    /// Creates an upgraded connection, which `serve` serves until its end.
    pub fn new(
        serve: impl FnOnce(Box<dyn UpgradedStream>, Vec<u8>) -> BoxFuture<'static, ()> + Send + 'static,
    ) -> Self {
        Self(Box::new(serve))
    }

    /// Takes the connection out of the session and serves it.
    pub(super) async fn serve(self, session: HttpSession) {
        if let Some((stream, read_ahead)) = session.into_upgraded_stream() {
            (self.0)(Box::new(stream), read_ahead).await;
        }
    }
}

impl fmt::Debug for UpgradedConnection {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("UpgradedConnection")
    }
}
