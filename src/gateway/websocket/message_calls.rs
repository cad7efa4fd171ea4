//! WebSockets of callers whose agent has none: each message is a call that takes every step of a call, one after the
//! other in order. While a message is answered the caller is watched, and at most one more message is read.

use super::{
    GOING_AWAY, MAX_TIMER, SessionEnd, WebSocketSession,
    caller_message::{self, AnswerForm, CallerMessage},
    message_policy::answer_too_large,
    message_splitter::MessageSplitter,
};
use crate::{
    fault::{Fault, FaultCode, Result},
    gateway::{
        ConfigSnapshot,
        admission::CallerContext,
        reply_validation::ReplyValidator,
        response_normalization::may_embed_error,
        streamed_response::is_message_sequence,
        subrequest::{Subrequest, SubrequestReply},
    },
    transport::{HeaderMutations, ReplyBody, UpstreamReply, WebSocketConnection, WebSocketEvent},
};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use std::{pin::pin, sync::Arc};
use tokio::time::{Instant, sleep_until};

/// The default `Accept` towards agents.
const DEFAULT_ACCEPT: HeaderValue =
    HeaderValue::from_static("application/json, application/x-ndjson, text/event-stream");

/// A caller's connection, and one message that arrived while another was answered.
struct WatchedCaller<'a> {
    leg: &'a mut WebSocketConnection,
    next_message: Option<WebSocketEvent>,
}

impl WatchedCaller<'_> {
    /// Runs `work` while watching the caller.
    async fn watch_during<T>(&mut self, work: impl Future<Output = T>) -> std::result::Result<T, WebSocketEvent> {
        let mut work = pin!(work);
        loop {
            if self.next_message.is_some() {
                let done = work.as_mut().await;
                self.leg.check_timers(false);
                return Ok(done);
            }
            tokio::select! {
                biased;
                done = &mut work => return Ok(done),
                came = self.leg.next_event() => match came {
                    WebSocketEvent::Text(_) | WebSocketEvent::Binary(_) => self.next_message = Some(came),
                    over => return Err(over),
                },
            }
        }
    }

    async fn send(&mut self, text: Option<String>) -> std::result::Result<(), WebSocketEvent> {
        let Some(text) = text else { return Ok(()) };
        self.leg.queue_text(text);
        self.leg.flush().await.map_err(WebSocketEvent::Lost)
    }
}

/// Returns how the session ends when the caller's side does.
fn caller_end(came: WebSocketEvent) -> SessionEnd {
    match came {
        WebSocketEvent::Lost(lost) => SessionEnd::CallerLost(lost),
        _ => SessionEnd::Orderly(None),
    }
}

impl WebSocketSession {
    pub(super) async fn serve_messages(&mut self, caller: &mut WebSocketConnection) -> SessionEnd {
        let mut watched = WatchedCaller { leg: caller, next_message: None };
        loop {
            let came = match watched.next_message.take() {
                Some(came) => came,
                None => match self.next_message(watched.leg).await {
                    Ok(came) => came,
                    Err(end) => return end,
                },
            };
            if self.connection.is_draining() {
                return SessionEnd::Orderly(Some(GOING_AWAY));
            }
            let done = match came {
                WebSocketEvent::Text(text) => self.answer_message(text.as_str(), &mut watched).await,
                WebSocketEvent::Binary(_) => {
                    let fault = Fault::new(
                        FaultCode::UnsupportedMediaType,
                        "This agent accepts text (send JSON as a text message)",
                    );
                    watched.send(AnswerForm::Plain.format_fault(&fault, self.call.id())).await
                }
                over => Err(over),
            };
            if let Err(over) = done {
                return caller_end(over);
            }
        }
    }

    /// Waits for the next message, or returns why there is none.
    async fn next_message(&self, leg: &mut WebSocketConnection) -> std::result::Result<WebSocketEvent, SessionEnd> {
        let (over, farewell) = self.session_deadline(Instant::now());
        let over = over.min(Instant::now() + 24 * MAX_TIMER);
        tokio::select! {
            biased;
            () = self.connection.wait_for_shutdown() => Err(SessionEnd::Orderly(Some(GOING_AWAY))),
            came = leg.next_event() => Ok(came),
            () = sleep_until(over) => Err(SessionEnd::Orderly(Some(farewell))),
        }
    }

    /// Makes one call and sends its answer. An error is the end of the caller's side, and drops the call.
    async fn answer_message(
        &self,
        text: &str,
        watched: &mut WatchedCaller<'_>,
    ) -> std::result::Result<(), WebSocketEvent> {
        let config = self.gateway.config.load_full();
        let found = self.gateway.catalogue.load().get(&self.agent).cloned();
        let message = match &found {
            Some(route) => caller_message::parse(text, route),
            // The subrequest refuses a call to an agent that does not exist.
            None => CallerMessage {
                operation: None,
                input: Bytes::from(text.to_owned()),
                form: caller_message::refusal_form(text),
            },
        };
        let form = message.form.clone();
        let told = match watched.watch_during(self.send_call(&config, message)).await? {
            Ok(fetched) if is_message_sequence(&fetched.reply.headers) && fetched.reply.status.is_success() => {
                return self.stream_answer(&config, fetched, &form, watched).await;
            }
            Ok(fetched) => watched.watch_during(self.read_answer(&config, fetched, &form)).await?,
            Err(fault) => Err(fault),
        };
        match told {
            Ok(MessageAnswer::Text(text)) => watched.send(text).await,
            Ok(MessageAnswer::Bytes(bytes)) => {
                watched.leg.queue_binary(bytes);
                watched.leg.flush().await.map_err(WebSocketEvent::Lost)
            }
            Err(fault) => watched.send(form.format_fault(&fault, self.call.id())).await,
        }
    }

    async fn send_call(&self, config: &ConfigSnapshot, message: CallerMessage) -> Result<SubrequestReply> {
        let address = self.connection.peer_address.ip();
        // A message counts as a request of this address.
        self.gateway.limits.acquire_for_address(address)?;
        let context = CallerContext { headers: &self.headers, peer: self.connection.client_identity(), address };
        let subrequest = Subrequest {
            context,
            forwarding: HeaderMutations {
                forwarded: Some(&self.forwarded),
                api_key_header: config.api_key_header.as_ref(),
                set: &[],
            },
            call_id: Some(self.call.id()),
            exempt_from_shedding: false,
            agent: &self.agent,
            operation: message.operation.as_deref().or(self.operation.as_deref()),
            input: message.input,
            instruction: None,
            deadline: None,
        };
        let accept = self.headers.get(header::ACCEPT).cloned().unwrap_or(DEFAULT_ACCEPT);
        self.gateway.send_subrequest_accepting(config, subrequest, accept).await
    }

    async fn read_answer(
        &self,
        config: &ConfigSnapshot,
        fetched: SubrequestReply,
        form: &AnswerForm,
    ) -> Result<MessageAnswer> {
        let whole = fetched.read_complete(&self.gateway, config).await?;
        let most = self.config.max_message_size.get();
        if whole.body.len() > most {
            return Err(answer_too_large());
        }
        Ok(match std::str::from_utf8(&whole.body) {
            // Every message gets an answer, so that callers can match answers to messages by order.
            Ok("") => MessageAnswer::Text(form.format_answer("null")),
            Ok(text) => MessageAnswer::Text(form.format_answer(text)),
            Err(_) => MessageAnswer::Bytes(whole.body),
        })
    }

    /// Sends a streamed answer part by part, with back-pressure from the caller.
    async fn stream_answer(
        &self,
        config: &Arc<ConfigSnapshot>,
        mut fetched: SubrequestReply,
        form: &AnswerForm,
        watched: &mut WatchedCaller<'_>,
    ) -> std::result::Result<(), WebSocketEvent> {
        let mut splitter = MessageSplitter::new(&fetched.reply.headers, self.config.max_message_size.get());
        let mut bytes = 0;
        loop {
            let chunk = watched.watch_during(fetched.reply.body.next_chunk()).await?;
            let (parts, over) = match chunk {
                Some(Ok(chunk)) => {
                    bytes += chunk.len() as u64;
                    (splitter.push(&chunk), false)
                }
                Some(Err(fault)) => (Err(fault), true),
                None => (splitter.take_rest().map(|rest| rest.into_iter().collect()), true),
            };
            let parts = match parts {
                Ok(parts) => parts,
                Err(fault) => {
                    fetched.record_failed(fault.clone());
                    return watched.send(form.format_fault(&fault, self.call.id())).await;
                }
            };
            for part in parts {
                let told = match self.embedded_fault(config, &fetched, &part) {
                    Some(fault) => {
                        AnswerForm::Plain.format_fault(&fault, self.call.id()).and_then(|told| form.format_part(&told))
                    }
                    None => form.format_part(&part),
                };
                watched.send(told).await?;
            }
            if over {
                fetched.record_completed(bytes);
                return watched.send(form.format_end(self.config.end_marker.as_deref())).await;
            }
        }
    }

    /// Returns the fault if a part of an answer is an embedded error (R41).
    fn embedded_fault(&self, config: &ConfigSnapshot, fetched: &SubrequestReply, part: &str) -> Option<Fault> {
        if !may_embed_error(part.as_bytes()) {
            return None;
        }
        let body = ReplyBody::from(Bytes::new());
        let reply = UpstreamReply { status: StatusCode::OK, headers: HeaderMap::new(), body };
        let judge =
            ReplyValidator { gateway: &self.gateway, contract_config: &config.contract, admitted: &fetched.admitted };
        judge.reject_failure(&reply, part.as_bytes(), true).err()
    }
}

/// The answer to a message.
enum MessageAnswer {
    Text(Option<String>),
    Bytes(Bytes),
}
