//! WebSockets of callers whose agent has one too: relays messages in both directions with back-pressure.
//! `message_policy` decides which messages pass; for the others the caller receives a fault.

use super::{
    GOING_AWAY, SessionEnd, WebSocketSession,
    caller_message::{self, AnswerForm},
    message_policy::{MessageRules, MessageVerdict, answer_too_large},
};
use crate::{
    fault::{Fault, FaultCode, public_message},
    gateway::admission::Admitted,
    transport::{UpstreamWebSocket, WebSocketConnection, WebSocketError, WebSocketEvent},
};
use std::{future::poll_fn, task::Poll, time::Duration};
use tokio::time::{Instant, sleep_until};

/// The most refusals queued for a caller; with more, nothing is read from it.
const MAX_QUEUED_REFUSALS: u32 = 16;

/// The longest interval between two checks whether a silent caller is still authorised.
const AUTHORIZATION_CHECK_INTERVAL: Duration = Duration::from_secs(30);

/// The close frame for a caller that is no longer authorised.
const NO_LONGER_AUTHORIZED: (u16, &str) = (1008, "The caller may no longer call this agent");

/// The next event of a relay.
enum RelayEvent {
    Caller(WebSocketEvent),
    Agent(WebSocketEvent),
    Tick,
    Shutdown,
}

impl WebSocketSession {
    pub(super) async fn relay(
        &mut self,
        caller: &mut WebSocketConnection,
        socket: UpstreamWebSocket,
        admitted: &Admitted,
    ) -> SessionEnd {
        let UpstreamWebSocket { connection: mut agent, framing: frames, validate: check, .. } = socket;
        let rules = MessageRules { frames, validates: check };
        let mut last_message = Instant::now();
        let mut next_check = last_message + AUTHORIZATION_CHECK_INTERVAL;
        let end = loop {
            let ((over, farewell), now) = (self.session_deadline(last_message), Instant::now());
            if over <= now {
                break SessionEnd::Orderly(Some(farewell));
            }
            if next_check <= now {
                next_check = now + AUTHORIZATION_CHECK_INTERVAL;
                if let Some(fault) = self.authorization_fault().await {
                    self.send_fault(caller, &AnswerForm::Plain, &fault);
                    break SessionEnd::Orderly(Some(NO_LONGER_AUTHORIZED));
                }
            }
            match self.next_event(caller, &mut agent, over.min(next_check)).await {
                RelayEvent::Shutdown => break SessionEnd::Orderly(Some(GOING_AWAY)),
                RelayEvent::Tick => {
                    caller.check_timers(agent.queued_messages() == 0);
                    agent.check_timers(caller.queued_messages() == 0);
                    // Both sides were silent for a while: check the authorisation now.
                    next_check = Instant::now();
                    continue;
                }
                RelayEvent::Caller(WebSocketEvent::Closed(close)) => {
                    self.close_agent(agent, Some((close.map_or(1000, |(code, _)| code), "")));
                    return SessionEnd::Orderly(None);
                }
                RelayEvent::Caller(WebSocketEvent::Lost(lost)) => break SessionEnd::CallerLost(lost),
                RelayEvent::Caller(came) => {
                    if let Some(end) = self.forward_to_agent(came, caller, &mut agent, rules).await {
                        break end;
                    }
                }
                RelayEvent::Agent(came @ (WebSocketEvent::Text(_) | WebSocketEvent::Binary(_))) => {
                    self.forward_to_caller(came, caller, (admitted, rules));
                }
                RelayEvent::Agent(WebSocketEvent::Closed(close)) => {
                    self.close_agent(agent, None);
                    return self.end_after_close(caller, close).await;
                }
                RelayEvent::Agent(WebSocketEvent::Lost(lost)) => {
                    let fault = lost.to_fault();
                    self.close_agent(agent, lost.close_frame());
                    return self.end_after_loss(caller, fault).await;
                }
            }
            last_message = Instant::now();
        };
        // The caller is told at once, without waiting for the agent's close frame.
        self.close_agent(agent, Some((1001, "")));
        end
    }

    /// Closes the agent's side in the background; only a shutdown waits for it.
    fn close_agent(&mut self, agent: WebSocketConnection, why: Option<(u16, &'static str)>) {
        self.agent_close = Some(tokio::spawn(agent.close(why)));
    }

    /// Waits for either side. A side is read from only when the other side has taken everything that was sent to it.
    async fn next_event(
        &self,
        caller: &mut WebSocketConnection,
        agent: &mut WebSocketConnection,
        over: Instant,
    ) -> RelayEvent {
        let due = over.min(caller.next_timer()).min(agent.next_timer());
        let either = poll_fn(|task| {
            caller.poll_flush(task);
            agent.poll_flush(task);
            let (to_agent, to_caller) = (agent.queued_messages() == 0, caller.queued_messages() == 0);
            if (caller.has_error() || to_agent && caller.queued_messages() < MAX_QUEUED_REFUSALS)
                && let Poll::Ready(came) = caller.poll_next(task)
            {
                return Poll::Ready(RelayEvent::Caller(came));
            }
            if (agent.has_error() || to_caller)
                && let Poll::Ready(came) = agent.poll_next(task)
            {
                return Poll::Ready(RelayEvent::Agent(came));
            }
            Poll::Pending
        });
        tokio::select! {
            biased;
            () = self.connection.wait_for_shutdown() => RelayEvent::Shutdown,
            turn = either => turn,
            () = sleep_until(due) => RelayEvent::Tick,
        }
    }

    /// Forwards a message to the agent, or sends the caller the fault.
    async fn forward_to_agent(
        &mut self,
        incoming: WebSocketEvent,
        caller: &mut WebSocketConnection,
        agent: &mut WebSocketConnection,
        rules: MessageRules,
    ) -> Option<SessionEnd> {
        let (text, size) = match &incoming {
            WebSocketEvent::Text(text) => (Some(text.as_str()), text.len()),
            WebSocketEvent::Binary(bytes) => (None, bytes.len()),
            WebSocketEvent::Closed(_) | WebSocketEvent::Lost(_) => (None, 0),
        };
        let ruling = match agent.is_within_limit(size) {
            true => self.check_message(text, rules).await,
            false => MessageVerdict::Refuse(Fault::new(
                FaultCode::PayloadTooLarge,
                "The message is too large for this agent",
            )),
        };
        let (fault, expelled) = match ruling {
            MessageVerdict::Pass => {
                match incoming {
                    WebSocketEvent::Text(text) => agent.queue_text(text),
                    WebSocketEvent::Binary(bytes) => agent.queue_binary(bytes),
                    WebSocketEvent::Closed(_) | WebSocketEvent::Lost(_) => {}
                }
                return None;
            }
            MessageVerdict::Refuse(fault) => (fault, false),
            MessageVerdict::Expel(fault) => (fault, true),
        };
        let form = text.map_or(AnswerForm::Plain, caller_message::refusal_form);
        self.send_fault(caller, &form, &fault);
        expelled.then_some(SessionEnd::Orderly(Some(NO_LONGER_AUTHORIZED)))
    }

    /// Forwards a message to the caller, or its replacement.
    fn forward_to_caller(
        &self,
        incoming: WebSocketEvent,
        caller: &mut WebSocketConnection,
        (admitted, rules): (&Admitted, MessageRules),
    ) {
        match incoming {
            WebSocketEvent::Text(text) if caller.is_within_limit(text.len()) => {
                match self.replacement(text.as_str(), admitted, rules) {
                    Some(told) => caller.queue_text(told),
                    None => caller.queue_text(text),
                }
            }
            WebSocketEvent::Binary(bytes) if caller.is_within_limit(bytes.len()) => caller.queue_binary(bytes),
            _ => self.send_fault(caller, &AnswerForm::Plain, &answer_too_large()),
        }
    }

    fn send_fault(&self, caller: &mut WebSocketConnection, form: &AnswerForm, fault: &Fault) {
        if let Some(told) = form.format_fault(fault, self.call.id()) {
            caller.queue_text(told);
        }
    }

    /// Ends the session after the agent's close frame.
    async fn end_after_close(&self, caller: &mut WebSocketConnection, close: Option<(u16, String)>) -> SessionEnd {
        let Some((code, reason)) = close else { return SessionEnd::Orderly(Some((1000, ""))) };
        tracing::debug!(code, reason = public_message(&reason), "agent closed its WebSocket");
        match code {
            1000 | 1001 | 1012 | 1013 | 3000..=4999 => SessionEnd::Orderly(Some((code, ""))),
            code => {
                let detail = format!("the agent closed with {code}: {reason}");
                let fault = Fault::new(FaultCode::AgentError, "The agent closed the connection").with_detail(detail);
                self.end_after_loss(caller, fault).await
            }
        }
    }

    /// Tells the caller that the agent's connection is lost.
    async fn end_after_loss(&self, caller: &mut WebSocketConnection, fault: Fault) -> SessionEnd {
        self.send_fault(caller, &AnswerForm::Plain, &fault);
        // A caller that has stopped reading does not receive the fault.
        if let Err(lost @ WebSocketError::WriteTimeout) = caller.flush().await {
            return SessionEnd::CallerLost(lost);
        }
        SessionEnd::AgentLost(fault)
    }
}
