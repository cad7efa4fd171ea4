//! WebSockets of callers (R43, R80, R82). `upgrade` treats the upgrade request like any call and upgrades the
//! connection. If the agent has a WebSocket too, `message_relay` relays the messages unchanged; otherwise each message
//! is a call (`message_calls`). A WebSocket is one call in access log and metrics, recorded when it closes.

mod caller_message;
mod config;
mod handshake;
mod message_calls;
mod message_policy;
mod message_relay;
mod message_splitter;
mod upgrade;

pub use config::CallerWebSocketConfig;
pub(super) use handshake::is_websocket_request;
pub(super) use upgrade::WebSocketTarget;

use super::{
    Gateway,
    call::{Call, CallState},
    http_server::CallerConnection,
};
use crate::{
    fault::{Fault, FaultCode},
    gateway::admission::Admitted,
    transport::{UpstreamWebSocket, WebSocketConnection, WebSocketError, WebSocketIo, WebSocketLimits, WebSocketPeer},
};
use http::{HeaderMap, HeaderValue};
use std::{sync::Arc, time::Duration};
use tokio::{task::JoinHandle, time::Instant};

/// The state of an open WebSocket.
pub(super) struct WebSocketSession {
    gateway: Arc<Gateway>,
    connection: Arc<CallerConnection>,
    call: Call,
    /// The credentials and the other headers of the handshake.
    headers: HeaderMap,
    forwarded: HeaderValue,
    agent: String,
    operation: Option<String>,
    config: CallerWebSocketConfig,
    expires_at: Instant,
    /// The task that closes the agent's side.
    agent_close: Option<JoinHandle<()>>,
}

/// Why a WebSocket session ends.
enum SessionEnd {
    /// One side sent a close frame, or a timeout expired; with the close frame for the caller.
    Orderly(Option<(u16, &'static str)>),
    /// The caller's connection is lost.
    CallerLost(WebSocketError),
    /// The agent's connection is lost; the caller has received the fault.
    AgentLost(Fault),
}

impl WebSocketSession {
    /// Runs the session until it ends, and records how it ended.
    async fn run(
        mut self,
        io: Box<dyn WebSocketIo>,
        read_ahead: Vec<u8>,
        agent: Option<(Box<UpstreamWebSocket>, Admitted)>,
    ) {
        let limits = WebSocketLimits {
            max_message_size: self.config.max_message_size.get(),
            ping_interval: self.config.ping_interval.get(),
            pong_timeout: self.config.pong_timeout.get(),
            write_timeout: self.connection.limits.body_idle_timeout.get(),
        };
        let mut caller = WebSocketConnection::new(io, WebSocketPeer::Caller, read_ahead, limits).await;
        let end = match agent {
            Some((socket, admitted)) => self.relay(&mut caller, *socket, &admitted).await,
            None => self.serve_messages(&mut caller).await,
        };
        (self.call.stats.bytes_in, self.call.stats.bytes_out) = (caller.received_bytes, caller.sent_bytes);
        let (state, close_frame) = match end {
            SessionEnd::Orderly(close_frame) => (CallState::Answered(101), close_frame),
            SessionEnd::CallerLost(WebSocketError::Disconnected) => (CallState::CallerGone(101), None),
            SessionEnd::CallerLost(error) => {
                (CallState::FailedMidResponse(101, caller_fault(&error)), error.close_frame())
            }
            SessionEnd::AgentLost(fault) => {
                (CallState::FailedMidResponse(101, fault), Some((1011, "The agent failed")))
            }
        };
        self.call.state = state;
        caller.close(close_frame).await;
        if let Some(agent_close) = self.agent_close.take()
            && self.connection.is_draining()
        {
            // The process is about to exit, so the close of the agent's side must not be cut off.
            drop(agent_close.await);
        }
    }

    /// Returns when the session ends by idle timeout or maximum age, and the close frame for that.
    fn session_deadline(&self, last_message: Instant) -> (Instant, (u16, &'static str)) {
        let idle = last_message + self.config.idle_timeout.get();
        if idle < self.expires_at {
            (idle, (1001, "Idle timeout"))
        } else {
            (self.expires_at, (1001, "Lifetime exceeded"))
        }
    }
}

/// The close frame for callers when the gateway shuts down.
const GOING_AWAY: (u16, &str) = (1001, "The gateway is shutting down");

/// The longest timer.
const MAX_TIMER: Duration = Duration::from_secs(3600);

/// Returns the fault for the access log when the caller's behaviour ended its connection.
fn caller_fault(error: &WebSocketError) -> Fault {
    let code = match error {
        WebSocketError::TooLarge => FaultCode::PayloadTooLarge,
        WebSocketError::PingTimeout | WebSocketError::WriteTimeout => {
            return Fault::new(FaultCode::Timeout, "The caller did not answer").with_status(408);
        }
        _ => FaultCode::InvalidInput,
    };
    Fault::new(code, "The caller violated the WebSocket protocol").with_detail(format_args!("{error:?}"))
}

#[cfg(test)]
mod tests;
