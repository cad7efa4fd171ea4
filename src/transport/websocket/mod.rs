//! Agents over WebSocket (R51, R80, RFC 6455): a call is one connection, one message and the reply to it; a caller that
//! uses a WebSocket gets a connection to the agent's WebSocket. The handshake, addresses, TLS and credentials are those
//! of the HTTP transport. A connection serves one call only, so that a late message cannot reach another call.

mod close_reason;
mod config;
#[cfg(any(test, fuzzing))]
pub(super) mod fuzz;
mod message_pump;
mod reply_message;
mod request_message;
mod upstream_websocket;
mod websocket_connection;
mod websocket_transport;
mod websocket_tunnel;

pub use close_reason::{WebSocketError, WebSocketPeer};
pub use config::{MessageFraming, UpstreamWebSocketConfig};
pub use upstream_websocket::{UpstreamWebSocket, WebSocketOutcome};
pub use websocket_connection::{WebSocketConnection, WebSocketEvent, WebSocketIo, WebSocketLimits};
pub(super) use websocket_transport::WebSocketTransports;
pub use websocket_tunnel::{TunnelHold, TunnelOutcome, WebSocketTunnel};

#[cfg(test)]
mod tests;
