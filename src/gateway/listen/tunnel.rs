//! A connection that goes on with another protocol once 101 was answered: its bytes, taken out of the session, and
//! what is done with them. What protocol it is, is not known here.

use super::wire::Wire;
use crate::transport::Io;
use futures_util::{FutureExt, future::BoxFuture};
use pingora_core::protocols::http::ServerSession;
use std::fmt;

/// What is done with the bytes, and with those that came behind the request already.
type Work = Box<dyn FnOnce(Box<dyn Io>, Vec<u8>) -> BoxFuture<'static, ()> + Send>;

/// What follows on a connection.
pub struct Tunnel(Work);

impl Tunnel {
    /// A tunnel that `work` serves until its end.
    pub fn new(work: impl FnOnce(Box<dyn Io>, Vec<u8>) -> BoxFuture<'static, ()> + Send + 'static) -> Self {
        Self(Box::new(work))
    }

    /// Takes the connection out of the session and serves it.
    pub(super) async fn run(self, mut session: ServerSession) {
        // What was read behind the head is given out without waiting; no well-behaved client sends any.
        let early = session.read_request_body().now_or_never();
        let early = early.and_then(|read| read.ok().flatten()).map(|bytes| bytes.to_vec()).unwrap_or_default();
        let ServerSession::H1(session) = session else { return };
        if let Some(mut wire) = Wire::from_stream(session.into_inner()) {
            wire.give_back(Default::default());
            (self.0)(Box::new(wire), early).await;
        }
    }
}

impl fmt::Debug for Tunnel {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("Tunnel")
    }
}
