//! A connection that carries another protocol after a 101 response: its byte stream, taken out of the session, and the
//! function that serves it. This module does not know the protocol.

use super::connection_stream::ConnectionStream;
use crate::transport::WebSocketIo;
use futures_util::{FutureExt, future::BoxFuture};
use pingora_core::protocols::http::ServerSession;
use std::fmt;

/// Serves the byte stream; the second argument is the bytes that arrived after the request head.
type UpgradedConnectionTask = Box<dyn FnOnce(Box<dyn WebSocketIo>, Vec<u8>) -> BoxFuture<'static, ()> + Send>;

/// A connection after its protocol upgrade.
pub struct UpgradedConnection(UpgradedConnectionTask);

impl UpgradedConnection {
    /// Creates an upgraded connection, which `serve` serves until its end.
    pub fn new(serve: impl FnOnce(Box<dyn WebSocketIo>, Vec<u8>) -> BoxFuture<'static, ()> + Send + 'static) -> Self {
        Self(Box::new(serve))
    }

    /// Takes the connection out of the session and serves it.
    pub(super) async fn serve(self, mut session: ServerSession) {
        // Bytes that were read after the head are available at once; well-behaved clients send none.
        let read_ahead = session.read_request_body().now_or_never();
        let read_ahead =
            read_ahead.and_then(|read| read.ok().flatten()).map(|bytes| bytes.to_vec()).unwrap_or_default();
        let ServerSession::H1(session) = session else { return };
        if let Some(mut stream) = ConnectionStream::from_stream(session.into_inner()) {
            stream.store_read_ahead(Default::default());
            (self.0)(Box::new(stream), read_ahead).await;
        }
    }
}

impl fmt::Debug for UpgradedConnection {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("UpgradedConnection")
    }
}
