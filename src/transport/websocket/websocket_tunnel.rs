//! An agent's WebSocket whose frames pass as they are: a byte stream, which nothing here reads.

use super::websocket_connection::WebSocketIo;
use crate::transport::{circuit_breaker::InFlightGuard, upstream_reply::UpstreamReply};
use http::HeaderMap;
use std::fmt;

/// The outcome of opening a tunnel to an agent's WebSocket.
#[derive(Debug)]
pub enum TunnelOutcome {
    /// The agent accepted the handshake.
    Open(Box<WebSocketTunnel>),
    /// The agent refused the handshake with an ordinary reply.
    Refused(Box<UpstreamReply>),
}

/// The agent's end of a tunnel. It counts as a call in flight until it is dropped.
pub struct WebSocketTunnel {
    /// The byte stream after the handshake.
    pub stream: Box<dyn WebSocketIo>,
    /// The head of the agent's handshake, unfiltered.
    pub headers: HeaderMap,
    pub(in crate::transport) in_flight: InFlightGuard,
}

impl WebSocketTunnel {
    /// Splits the tunnel into its stream and what must be held while the stream is used.
    pub fn into_parts(self) -> (Box<dyn WebSocketIo>, TunnelHold) {
        (self.stream, TunnelHold { _in_flight: self.in_flight })
    }
}

impl fmt::Debug for WebSocketTunnel {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("WebSocketTunnel").field("headers", &self.headers).finish_non_exhaustive()
    }
}

/// Counts a tunnel as a call in flight until this is dropped.
#[derive(Debug)]
pub struct TunnelHold {
    _in_flight: InFlightGuard,
}
