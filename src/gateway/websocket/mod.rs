//! WebSockets of callers (R43, R80, R82). `upgrade` treats the upgrade request like any call and upgrades the
//! connection. If the agent has a WebSocket too, `message_relay` relays the messages unchanged; otherwise each message
//! is a call (`message_calls`). A WebSocket is one call in access log and metrics, recorded when it closes.

mod caller_message;
mod config;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod handshake;
mod message_calls;
mod message_memory;
mod message_policy;
mod message_relay;
mod message_splitter;
mod session_runner;
mod upgrade;
mod websocket_session;

pub use config::CallerWebSocketConfig;
pub(super) use handshake::{WebSocketHandshake, is_websocket_request};
pub(super) use message_policy::is_permanent_refusal;
pub(super) use upgrade::{switching_protocols_headers, upgrade_websocket};
pub(super) use websocket_session::{GOING_AWAY, NO_LONGER_AUTHORIZED};

#[cfg(test)]
mod tests;
