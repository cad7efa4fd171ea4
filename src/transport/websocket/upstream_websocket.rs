//! An agent's own WebSocket, for a caller that uses a WebSocket.

use super::{config::MessageFraming, websocket_connection::WebSocketConnection};
use crate::transport::upstream_reply::UpstreamReply;
use http::HeaderValue;

/// The outcome of opening an agent's WebSocket.
#[derive(Debug)]
pub enum WebSocketOutcome {
    /// The WebSocket is open.
    Open(Box<UpstreamWebSocket>),
    /// The agent refused the handshake with an ordinary reply.
    Refused(Box<UpstreamReply>),
}

/// An agent's WebSocket, for a caller that uses a WebSocket.
#[derive(Debug)]
pub struct UpstreamWebSocket {
    /// The connection.
    pub connection: WebSocketConnection,
    /// The subprotocol that the agent chose.
    pub subprotocol: Option<HeaderValue>,
    /// The framing of messages.
    pub framing: MessageFraming,
    /// Whether the caller's messages are validated; `None` validates them where there is a schema.
    pub validate: Option<bool>,
}
