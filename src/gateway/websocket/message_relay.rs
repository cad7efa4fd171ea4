//! The relay between a caller's WebSocket and its agent's, with back-pressure in both directions. `message_policy`
//! decides which messages pass; for each other message the caller receives a fault.

use super::{
    caller_message::{self, ResponseFormat},
    message_policy::{MessagePolicy, MessageRules, MessageVerdict, authorization_fault, reply_too_large},
    websocket_session::{GOING_AWAY, NO_LONGER_AUTHORIZED, SessionEnd, WebSocketSession},
};
use crate::{
    fault::{Fault, FaultCode, public_message},
    gateway::admission::Admitted,
    transport::{UpstreamWebSocket, WebSocketConnection, WebSocketError, WebSocketEvent},
};
use std::{future::poll_fn, task::Poll, time::Duration};
use tokio::time::{Instant, sleep_until};

/// Maximum refusals queued for a caller; beyond it, no further messages are read from the caller.
const MAX_QUEUED_REFUSALS: u32 = 16;

/// The interval at which the authorisation of a caller is checked again.
const AUTHORIZATION_CHECK_INTERVAL: Duration = Duration::from_secs(30);

/// The next event of a relay.
enum RelayEvent {
    Caller(WebSocketEvent),
    Agent(WebSocketEvent),
    Tick,
    Shutdown,
}

/// The relay between the two connections of a session.
pub(super) struct MessageRelay<'a> {
    session: &'a mut WebSocketSession,
    caller: &'a mut WebSocketConnection,
    admitted: &'a Admitted,
}

impl<'a> MessageRelay<'a> {
    pub(super) fn new(
        session: &'a mut WebSocketSession,
        caller: &'a mut WebSocketConnection,
        admitted: &'a Admitted,
    ) -> Self {
        Self { session, caller, admitted }
    }

    /// Relays messages until one side ends.
    pub(super) async fn run(mut self, socket: UpstreamWebSocket) -> SessionEnd {
        let UpstreamWebSocket { connection: mut agent, framing, validate, .. } = socket;
        let rules = MessageRules { framing, validate };
        let mut last_message = Instant::now();
        let mut next_check = last_message + AUTHORIZATION_CHECK_INTERVAL;
        let session_end = loop {
            self.session.message_memory.discount(self.caller.take_control_bytes());
            let ((deadline, close_frame), now) = (self.session.session_deadline(last_message), Instant::now());
            if deadline <= now {
                break SessionEnd::Orderly(Some(close_frame));
            }
            if next_check <= now {
                next_check = now + AUTHORIZATION_CHECK_INTERVAL;
                if let Some(fault) = authorization_fault(self.session).await {
                    self.send_fault(&ResponseFormat::Plain, &fault);
                    break SessionEnd::Orderly(Some(NO_LONGER_AUTHORIZED));
                }
            }
            match self.next_event(&mut agent, deadline.min(next_check)).await {
                RelayEvent::Shutdown => break SessionEnd::Orderly(Some(GOING_AWAY)),
                RelayEvent::Tick => {
                    self.caller.check_timers(agent.queued_messages() == 0);
                    agent.check_timers(self.caller.queued_messages() == 0);
                    // Neither side sent anything until a timer expired: check the authorisation now.
                    next_check = Instant::now();
                    continue;
                }
                RelayEvent::Caller(WebSocketEvent::Closed(close)) => {
                    self.close_agent(agent, Some((close.map_or(1000, |(code, _)| code), "")));
                    return SessionEnd::Orderly(None);
                }
                RelayEvent::Caller(WebSocketEvent::Lost(error)) => break SessionEnd::CallerLost(error),
                RelayEvent::Caller(event) => {
                    if let Some(session_end) = self.forward_to_agent(event, &mut agent, rules).await {
                        break session_end;
                    }
                    self.session.message_memory.release();
                }
                RelayEvent::Agent(event @ (WebSocketEvent::Text(_) | WebSocketEvent::Binary(_))) => {
                    self.forward_to_caller(event, rules).await;
                }
                RelayEvent::Agent(WebSocketEvent::Closed(close)) => {
                    self.close_agent(agent, None);
                    return self.end_after_close(close).await;
                }
                RelayEvent::Agent(WebSocketEvent::Lost(error)) => {
                    let fault = error.to_fault();
                    self.close_agent(agent, error.close_frame());
                    return self.end_after_loss(fault).await;
                }
            }
            last_message = Instant::now();
        };
        // The caller's side closes without waiting for the agent's close frame.
        self.close_agent(agent, Some((1001, "")));
        session_end
    }

    /// Closes the agent's side in the background; only a shutdown waits for it.
    fn close_agent(&mut self, agent: WebSocketConnection, close_frame: Option<(u16, &'static str)>) {
        self.session.agent_close = Some(tokio::spawn(agent.close(close_frame)));
    }

    /// Waits for an event of either side. One side is read only while the other side's send queue is empty.
    async fn next_event(&mut self, agent: &mut WebSocketConnection, deadline: Instant) -> RelayEvent {
        let caller = &mut *self.caller;
        let wake_at = deadline.min(caller.next_timer()).min(agent.next_timer());
        let next_event = poll_fn(|task| {
            caller.poll_flush(task);
            agent.poll_flush(task);
            let (to_agent, to_caller) = (agent.queued_messages() == 0, caller.queued_messages() == 0);
            if (caller.has_error() || to_agent && caller.queued_messages() < MAX_QUEUED_REFUSALS)
                && let Poll::Ready(event) = caller.poll_next(task)
            {
                return Poll::Ready(RelayEvent::Caller(event));
            }
            if (agent.has_error() || to_caller)
                && let Poll::Ready(event) = agent.poll_next(task)
            {
                return Poll::Ready(RelayEvent::Agent(event));
            }
            Poll::Pending
        });
        tokio::select! {
            biased;
            () = self.session.connection.wait_for_shutdown() => RelayEvent::Shutdown,
            event = next_event => event,
            () = sleep_until(wake_at) => RelayEvent::Tick,
        }
    }

    /// Forwards a message to the agent, or sends the caller the fault.
    async fn forward_to_agent(
        &mut self,
        incoming: WebSocketEvent,
        agent: &mut WebSocketConnection,
        rules: MessageRules,
    ) -> Option<SessionEnd> {
        let (text, size) = match &incoming {
            WebSocketEvent::Text(text) => (Some(text.as_str()), text.len()),
            WebSocketEvent::Binary(bytes) => (None, bytes.len()),
            WebSocketEvent::Closed(_) | WebSocketEvent::Lost(_) => (None, 0),
        };
        let verdict = if agent.is_within_limit(size) {
            MessagePolicy { session: self.session, rules }.check_message(text).await
        } else {
            MessageVerdict::Refuse(Fault::new(FaultCode::PayloadTooLarge, "The message is too large for this agent"))
        };
        let (fault, disconnects) = match verdict {
            MessageVerdict::Pass => {
                match incoming {
                    WebSocketEvent::Text(text) => agent.queue_text(text),
                    WebSocketEvent::Binary(bytes) => agent.queue_binary(bytes),
                    WebSocketEvent::Closed(_) | WebSocketEvent::Lost(_) => {}
                }
                return None;
            }
            MessageVerdict::Refuse(fault) => (fault, false),
            MessageVerdict::Disconnect(fault) => (fault, true),
        };
        let format = text.map_or(ResponseFormat::Plain, caller_message::refusal_format);
        self.send_fault(&format, &fault);
        disconnects.then_some(SessionEnd::Orderly(Some(NO_LONGER_AUTHORIZED)))
    }

    /// Forwards a message to the caller, or its replacement.
    async fn forward_to_caller(&mut self, incoming: WebSocketEvent, rules: MessageRules) {
        match incoming {
            WebSocketEvent::Text(text) if self.caller.is_within_limit(text.len()) => {
                let policy = MessagePolicy { session: self.session, rules };
                match policy.replacement(text.as_str(), self.admitted).await {
                    Some(replacement) => self.caller.queue_text(replacement),
                    None => self.caller.queue_text(text),
                }
            }
            WebSocketEvent::Binary(bytes) if self.caller.is_within_limit(bytes.len()) => {
                self.caller.queue_binary(bytes);
            }
            _ => self.send_fault(&ResponseFormat::Plain, &reply_too_large()),
        }
    }

    fn send_fault(&mut self, format: &ResponseFormat, fault: &Fault) {
        if let Some(text) = format.format_fault(fault, self.session.call.id()) {
            self.caller.queue_text(text);
        }
    }

    /// Ends the session after the agent's close frame.
    async fn end_after_close(&mut self, close: Option<(u16, String)>) -> SessionEnd {
        let Some((code, reason)) = close else { return SessionEnd::Orderly(Some((1000, ""))) };
        tracing::debug!(code, reason = public_message(&reason).as_deref(), "agent closed its WebSocket");
        match code {
            1000 | 1001 | 1012 | 1013 | 3000..=4999 => SessionEnd::Orderly(Some((code, ""))),
            code => {
                let detail = format!("the agent closed with {code}: {reason}");
                let fault = Fault::new(FaultCode::AgentError, "The agent closed the connection").with_detail(detail);
                self.end_after_loss(fault).await
            }
        }
    }

    /// Ends the session after the agent's connection was lost: sends the caller the fault.
    async fn end_after_loss(&mut self, fault: Fault) -> SessionEnd {
        self.send_fault(&ResponseFormat::Plain, &fault);
        // A caller that has stopped reading does not receive the fault.
        if let Err(error @ WebSocketError::WriteTimeout) = self.caller.flush().await {
            return SessionEnd::CallerLost(error);
        }
        SessionEnd::AgentLost(fault)
    }
}
