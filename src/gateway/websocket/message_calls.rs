//! Messages of a caller's WebSocket as calls, for agents without a WebSocket. Each message is a subrequest; messages
//! are handled one at a time, in order. During a call the caller is watched, and at most one more message is read.

use super::{
    caller_message::{self, CallerMessage, ResponseFormat},
    message_policy::{authorization_fault, is_permanent_refusal, reply_too_large},
    message_splitter::MessageSplitter,
    websocket_session::{GOING_AWAY, MAX_TIMER, NO_LONGER_AUTHORIZED, SessionEnd, WebSocketSession},
};
use crate::{
    fault::{CallProgress, Fault, FaultCode, Result},
    gateway::{
        admission::{AdmissionPipeline, AdmissionRecorder as _, AgentAuthorization},
        gateway_state::ConfigSnapshot,
        response::{ReplyValidator, is_message_sequence},
        subrequest::{Subrequest, SubrequestReply, SubrequestSender, SubrequestTrace},
    },
    limit::MemoryReservation,
    trace::{SpanKind, TraceOrigin},
    transport::{WebSocketConnection, WebSocketEvent},
};
use bytes::Bytes;
use http::{HeaderValue, header};
use std::pin::pin;
use tokio::time::{Instant, sleep_until};

/// The default `Accept` towards agents.
const DEFAULT_ACCEPT: HeaderValue =
    HeaderValue::from_static("application/json, application/x-ndjson, text/event-stream");

/// A caller's connection, and the message that arrived during the current call.
struct WatchedCaller<'a> {
    connection: &'a mut WebSocketConnection,
    next_message: Option<WebSocketEvent>,
}

impl WatchedCaller<'_> {
    /// Runs `work` while watching the caller.
    async fn watch_during<T>(&mut self, work: impl Future<Output = T>) -> std::result::Result<T, WebSocketEvent> {
        let mut work = pin!(work);
        loop {
            if self.next_message.is_some() {
                let output = work.as_mut().await;
                self.connection.check_timers(false);
                return Ok(output);
            }
            tokio::select! {
                biased;
                output = &mut work => return Ok(output),
                event = self.connection.next_event() => match event {
                    WebSocketEvent::Text(_) | WebSocketEvent::Binary(_) => self.next_message = Some(event),
                    end => return Err(end),
                },
            }
        }
    }

    async fn send(&mut self, text: Option<String>) -> std::result::Result<(), WebSocketEvent> {
        let Some(text) = text else { return Ok(()) };
        self.connection.queue_text(text);
        self.connection.flush().await.map_err(WebSocketEvent::Lost)
    }
}

/// Returns how the session ends after the last event of the caller's side.
fn caller_end(event: WebSocketEvent) -> SessionEnd {
    match event {
        WebSocketEvent::Lost(lost) => SessionEnd::CallerLost(lost),
        _ => SessionEnd::Orderly(None),
    }
}

/// Makes a call of each message of a session.
pub(super) struct MessageCalls<'a> {
    pub(super) session: &'a WebSocketSession,
}

impl MessageCalls<'_> {
    /// Serves messages until the caller's side ends.
    pub(super) async fn serve(&self, caller: &mut WebSocketConnection) -> SessionEnd {
        let mut watched_caller = WatchedCaller { connection: caller, next_message: None };
        loop {
            let event = match watched_caller.next_message.take() {
                Some(event) => event,
                None => match self.next_message(watched_caller.connection).await {
                    Ok(event) => event,
                    Err(session_end) => return session_end,
                },
            };
            if self.session.connection.is_draining() {
                return SessionEnd::Orderly(Some(GOING_AWAY));
            }
            let result = match event {
                WebSocketEvent::Text(text) => self.handle_message(text.as_str(), &mut watched_caller).await,
                WebSocketEvent::Binary(_) => {
                    let fault = Fault::new(
                        FaultCode::UnsupportedMediaType,
                        "This agent accepts text (send JSON as a text message)",
                    );
                    let text = ResponseFormat::Plain.format_fault(&fault, self.session.call.id());
                    watched_caller.send(text).await.map_err(caller_end)
                }
                end => Err(caller_end(end)),
            };
            if let Err(end) = result {
                return end;
            }
            // A message that arrived meanwhile is counted with the one that was handled, and from now on not at all.
            self.session.message_memory.release();
        }
    }

    /// Waits for the next message, or returns why there is none.
    async fn next_message(&self, caller: &mut WebSocketConnection) -> std::result::Result<WebSocketEvent, SessionEnd> {
        let (deadline, close_frame) = self.session.session_deadline(Instant::now());
        let deadline = deadline.min(Instant::now() + 24 * MAX_TIMER);
        tokio::select! {
            biased;
            () = self.session.connection.wait_for_shutdown() => Err(SessionEnd::Orderly(Some(GOING_AWAY))),
            event = caller.next_event() => Ok(event),
            () = sleep_until(deadline) => Err(SessionEnd::Orderly(Some(close_frame))),
        }
    }

    /// Makes one call and sends its response. The session ends with the caller's side, which drops the call, or because
    /// the caller is no longer authorised.
    async fn handle_message(
        &self,
        text: &str,
        watched_caller: &mut WatchedCaller<'_>,
    ) -> std::result::Result<(), SessionEnd> {
        let fault = match self.call_and_respond(text, watched_caller).await.map_err(caller_end)? {
            Some(fault) if is_permanent_refusal(&fault) => authorization_fault(self.session).await,
            _ => None,
        };
        fault.map_or(Ok(()), |_| Err(SessionEnd::Orderly(Some(NO_LONGER_AUTHORIZED))))
    }

    /// Makes one call, sends its response, and returns the fault if that was one. An error is the last event of the
    /// caller's side.
    async fn call_and_respond(
        &self,
        text: &str,
        watched_caller: &mut WatchedCaller<'_>,
    ) -> std::result::Result<Option<Fault>, WebSocketEvent> {
        let config = self.session.gateway.config.load_full();
        let route = self.session.gateway.catalogue.load().get(&self.session.agent).cloned();
        let message = match &route {
            Some(route) => {
                let is_discoverable = |agent: &str| self.is_discoverable(&config, agent);
                caller_message::parse(text, route, self.session.version.as_deref(), is_discoverable)
            }
            // The subrequest refuses a call to an agent that does not exist.
            None => CallerMessage {
                operation: None,
                input: Ok(Bytes::from(text.to_owned())),
                format: caller_message::refusal_format(text),
            },
        };
        let format = message.format.clone();
        let response = match watched_caller.watch_during(self.send_call(&config, message)).await? {
            Ok(subrequest_reply)
                if is_message_sequence(&subrequest_reply.reply.headers)
                    && subrequest_reply.reply.status.is_success() =>
            {
                self.stream_response(&config, subrequest_reply, &format, watched_caller).await?;
                return Ok(None);
            }
            Ok(subrequest_reply) => {
                watched_caller.watch_during(self.read_response(&config, subrequest_reply, &format)).await?
            }
            Err(fault) => Err(fault),
        };
        // A long answer counts against the caller's share until it is written.
        let response = response.and_then(|response| Ok((self.reserve_memory(&response)?, response)));
        match response {
            Ok((_reservation, MessageResponse::Text(text))) => watched_caller.send(text).await?,
            Ok((_reservation, MessageResponse::Bytes(bytes))) => {
                watched_caller.connection.queue_binary(bytes);
                watched_caller.connection.flush().await.map_err(WebSocketEvent::Lost)?;
            }
            Err(fault) => {
                watched_caller.send(format.format_fault(&fault, self.session.call.id())).await?;
                return Ok(Some(fault));
            }
        }
        Ok(None)
    }

    fn reserve_memory(&self, response: &MessageResponse) -> Result<Option<MemoryReservation>> {
        let client = || self.session.message_memory.client();
        let reservation = self.session.gateway.limits.reserve_answer(client, response.len(), 0);
        reservation.map_err(|fault| fault.with_progress(CallProgress::PossiblySent))
    }

    /// Returns whether the caller of the handshake may discover an agent.
    fn is_discoverable(&self, config: &ConfigSnapshot, agent: &str) -> bool {
        let authorization = AgentAuthorization { gateway: &self.session.gateway, config };
        self.session.call.caller().is_some_and(|caller| authorization.is_discoverable(caller, agent))
    }

    async fn send_call(&self, config: &ConfigSnapshot, message: CallerMessage) -> Result<SubrequestReply> {
        let session = self.session;
        // A message counts as a request for the limit by address.
        let admission = AdmissionPipeline { gateway: &session.gateway, config };
        admission.charge_address(session.connection.client_address()).await?;
        let subrequest = Subrequest {
            context: session.caller_context(),
            forwarding: config.header_mutations(&self.session.forwarded, &[]),
            call_id: Some(self.session.call.id()),
            exempt_from_shedding: false,
            agent: &self.session.agent,
            operation: message.operation.as_deref().or(self.session.operation.as_deref()),
            input: message.input,
            instruction: None,
            deadline: None,
            // A session may have any number of messages: each has a trace of its own.
            trace: self.session.call.trace_scope().map(|trace| SubrequestTrace {
                origin: TraceOrigin::Linked(trace),
                name: "websocket message",
                kind: SpanKind::Server,
            }),
        };
        let accept = self.session.headers.get(header::ACCEPT).cloned().unwrap_or(DEFAULT_ACCEPT);
        SubrequestSender { gateway: &session.gateway, config }.send_accepting(subrequest, accept).await
    }

    async fn read_response(
        &self,
        config: &ConfigSnapshot,
        subrequest_reply: SubrequestReply,
        format: &ResponseFormat,
    ) -> Result<MessageResponse> {
        let reply = subrequest_reply.read_complete(&self.session.gateway, config).await?;
        let max_message_size = self.session.config.max_message_size.get();
        if reply.body.len() > max_message_size {
            return Err(reply_too_large());
        }
        Ok(match std::str::from_utf8(&reply.body) {
            // Every message gets a response, so that callers can match responses to messages by their order.
            Ok("") => MessageResponse::Text(format.format_complete("null")),
            Ok(text) => MessageResponse::Text(format.format_complete(text)),
            Err(_) => MessageResponse::Bytes(reply.body),
        })
    }

    /// Sends a streamed response part by part, with back-pressure from the caller.
    async fn stream_response(
        &self,
        config: &ConfigSnapshot,
        mut subrequest_reply: SubrequestReply,
        format: &ResponseFormat,
        watched_caller: &mut WatchedCaller<'_>,
    ) -> std::result::Result<(), WebSocketEvent> {
        let mut splitter =
            MessageSplitter::new(&subrequest_reply.reply.headers, self.session.config.max_message_size.get());
        let mut bytes = 0;
        loop {
            let chunk = watched_caller.watch_during(subrequest_reply.reply.body.next_chunk()).await?;
            let (parts, is_last) = match chunk {
                Some(Ok(chunk)) => {
                    bytes += chunk.len() as u64;
                    (splitter.push(&chunk), false)
                }
                Some(Err(fault)) => (Err(fault), true),
                None => (splitter.take_rest().map(|last_part| last_part.into_iter().collect()), true),
            };
            let parts = match parts {
                Ok(parts) => parts,
                Err(fault) => {
                    subrequest_reply.record_failed(fault.clone());
                    return watched_caller.send(format.format_fault(&fault, self.session.call.id())).await;
                }
            };
            for part in parts {
                let message = match self.embedded_fault(config, &subrequest_reply, &part) {
                    Some(fault) => {
                        let plain_fault = ResponseFormat::Plain.format_fault(&fault, self.session.call.id());
                        plain_fault.and_then(|part| format.format_part(&part))
                    }
                    None => format.format_part(&part),
                };
                watched_caller.send(message).await?;
            }
            if is_last {
                subrequest_reply.record_completed(bytes);
                return watched_caller.send(format.format_end(self.session.config.end_marker.as_deref())).await;
            }
        }
    }

    /// Returns the fault if a part of a streamed reply is an embedded error (R41).
    fn embedded_fault(&self, config: &ConfigSnapshot, subrequest_reply: &SubrequestReply, part: &str) -> Option<Fault> {
        let validator = ReplyValidator {
            gateway: &self.session.gateway,
            contract_config: &config.contract,
            admitted: &subrequest_reply.admitted,
        };
        validator.embedded_error(part.as_bytes())
    }
}

/// The response to a message.
enum MessageResponse {
    Text(Option<String>),
    Bytes(Bytes),
}

impl MessageResponse {
    fn len(&self) -> usize {
        match self {
            Self::Text(text) => text.as_ref().map_or(0, String::len),
            Self::Bytes(bytes) => bytes.len(),
        }
    }
}
