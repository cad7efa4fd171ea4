//! Runs a caller's WebSocket: relays its messages to the agent's own WebSocket, or makes a call of each.

use super::{
    message_calls::MessageCalls,
    message_relay::MessageRelay,
    websocket_session::{GOING_AWAY, SessionEnd, WebSocketSession},
};
use crate::{
    fault::{Fault, FaultCode},
    gateway::{admission::Admitted, call::CallState},
    http_server::UpgradedStream,
    transport::{UpstreamWebSocket, WebSocketConnection, WebSocketError, WebSocketLimits, WebSocketPeer},
};
use std::{pin::pin, sync::Arc};

/// The agent's own WebSocket, and the admission under which it was opened.
pub(super) struct AgentWebSocket {
    pub(super) socket: Box<UpstreamWebSocket>,
    pub(super) admitted: Admitted,
}

/// A session that is about to run.
pub(super) struct SessionRunner {
    pub(super) session: WebSocketSession,
    /// `None` if each message is a call.
    pub(super) agent: Option<AgentWebSocket>,
}

impl SessionRunner {
    /// Runs the session until it ends, and records how it ended.
    pub(super) async fn run(self, io: Box<dyn UpgradedStream>, read_ahead: Vec<u8>) {
        let Self { mut session, agent } = self;
        let limits = WebSocketLimits {
            max_message_size: session.config.max_message_size.get(),
            ping_interval: session.config.ping_interval.get(),
            pong_timeout: session.config.pong_timeout.get(),
            write_timeout: session.connection.limits.body_idle_timeout.get(),
        };
        let mut caller = WebSocketConnection::new(
            Box::new(session.message_memory.metered(io)),
            WebSocketPeer::Caller,
            read_ahead,
            limits,
        )
        .await;
        let connection = Arc::clone(&session.connection);
        let end = {
            let work = pin!(async {
                match agent {
                    Some(agent) => {
                        MessageRelay::new(&mut session, &mut caller, &agent.admitted).run(*agent.socket).await
                    }
                    None => MessageCalls { session: &session }.serve(&mut caller).await,
                }
            });
            connection.until_cut_off(work).await
        };
        let end = end.unwrap_or_else(|| SessionEnd::CutOff(session.gateway.cut_off_call()));
        (session.call.stats.bytes_in, session.call.stats.bytes_out) = (caller.received_bytes, caller.sent_bytes);
        let (state, close_frame) = match (end, session.message_memory.take_refusal()) {
            (SessionEnd::CallerLost(_), Some(fault)) => {
                (CallState::FailedMidResponse(101, fault), Some((1013, "Try again later")))
            }
            (SessionEnd::Orderly(close_frame), _) => (CallState::Answered(101), close_frame),
            (SessionEnd::CallerLost(WebSocketError::Disconnected), _) => (CallState::CallerGone(101), None),
            (SessionEnd::CallerLost(error), _) => {
                (CallState::FailedMidResponse(101, caller_fault(&error)), error.close_frame())
            }
            (SessionEnd::CutOff(fault), _) => (CallState::FailedMidResponse(101, fault), Some(GOING_AWAY)),
            (SessionEnd::AgentLost(fault), _) => {
                (CallState::FailedMidResponse(101, fault), Some((1011, "The agent failed")))
            }
        };
        session.call.state = state;
        caller.close(close_frame).await;
        if let Some(agent_close) = session.agent_close.take()
            && session.connection.is_draining()
        {
            // The process is about to exit, so the close of the agent's side must not be cut off.
            drop(agent_close.await);
        }
    }
}

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
