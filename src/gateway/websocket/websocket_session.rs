//! The state of a caller's WebSocket, and how a session ends.

use super::{config::CallerWebSocketConfig, message_memory::MessageMemory};
use crate::{
    fault::Fault,
    gateway::{admission::CallerContext, call::Call, caller_connection::CallerConnection, gateway_state::Gateway},
    limit::CountedWebSocket,
    transport::WebSocketError,
};
use http::{HeaderMap, HeaderValue};
use std::{sync::Arc, time::Duration};
use tokio::{task::JoinHandle, time::Instant};

/// The close frame for callers when the gateway shuts down.
pub(in crate::gateway) const GOING_AWAY: (u16, &str) = (1001, "The gateway is shutting down");

/// The close frame for a caller that is no longer authorised.
pub(in crate::gateway) const NO_LONGER_AUTHORIZED: (u16, &str) = (1008, "The caller may no longer call this agent");

/// The longest timer.
pub(super) const MAX_TIMER: Duration = Duration::from_secs(3600);

/// The state of an open WebSocket.
pub(super) struct WebSocketSession {
    pub(super) gateway: Arc<Gateway>,
    pub(super) connection: Arc<CallerConnection>,
    pub(super) call: Call,
    /// The credentials and the other headers of the handshake.
    pub(super) headers: HeaderMap,
    pub(super) forwarded: HeaderValue,
    pub(super) agent: String,
    /// The version in the path of the handshake, as written.
    pub(super) version: Option<String>,
    pub(super) operation: Option<String>,
    pub(super) config: CallerWebSocketConfig,
    pub(super) expires_at: Instant,
    /// The task that closes the agent's side.
    pub(super) agent_close: Option<JoinHandle<()>>,
    /// The memory of the message that the caller sends.
    pub(super) message_memory: MessageMemory,
    /// This WebSocket among those of its caller.
    pub(super) _counted: CountedWebSocket,
}

/// Why a WebSocket session ends.
pub(super) enum SessionEnd {
    /// One side sent a close frame, or a timeout expired; with the close frame for the caller.
    Orderly(Option<(u16, &'static str)>),
    /// The caller's connection is lost.
    CallerLost(WebSocketError),
    /// The drain ended before the session, with a message in progress.
    CutOff(Fault),
    /// The agent's connection is lost; the caller has received the fault.
    AgentLost(Fault),
}

impl WebSocketSession {
    /// Returns the caller's part of every message: the credentials and the other headers of the handshake.
    pub(super) fn caller_context(&self) -> CallerContext<'_> {
        self.connection.caller_context(&self.headers)
    }

    /// Returns when the session ends by idle timeout or maximum age, and the close frame for that.
    pub(super) fn session_deadline(&self, last_message: Instant) -> (Instant, (u16, &'static str)) {
        let idle = last_message + self.config.idle_timeout.get();
        if idle < self.expires_at {
            (idle, (1001, "Idle timeout"))
        } else {
            (self.expires_at, (1001, "Lifetime exceeded"))
        }
    }
}
