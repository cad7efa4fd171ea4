//! A streamed answer of the model as server-sent events for the caller: `{"delta": "…"}` for each part of the text, and at
//! the end `{"finish_reason": "stop", "usage": {…}}`. A stream that breaks off, is cut off or reports an error has no
//! such end.

use super::{
    completion::{Completion, FinishReason, TokenUsage},
    server_error::ServerError,
};
use crate::{
    fault::{Fault, FaultCode, Result},
    transport::{ReplyBody, UpstreamReply},
    values::EventReader,
};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::{sync::mpsc, time::timeout};

/// The most events that wait for the caller.
const MAX_QUEUED_EVENTS: usize = 4;
/// The longest line, and the longest data of an event, in bytes.
const MAX_EVENT: usize = 256 << 10;
/// The longest refusal that is kept, in bytes.
const MAX_REFUSAL: usize = 4 << 10;
/// How long the end of a stream may take after its last event, so that the connection can be used again.
const END_TIMEOUT: Duration = Duration::from_secs(1);

/// An answer that is being read.
#[derive(Debug)]
pub(super) struct StreamedAnswer {
    body: ReplyBody,
    credential_sent: bool,
    events: EventReader,
    is_at_end: bool,
    finish: Option<FinishReason>,
    refusal: String,
    usage: Option<TokenUsage>,
}

/// What an event of the server becomes.
enum TranslatedEvent {
    /// A part of the text; empty for an event without one.
    Part(Bytes),
    /// The last event of the answer.
    End(Bytes),
    /// The server reports an error.
    Error(ServerError),
}

impl StreamedAnswer {
    pub(super) fn new(reply: UpstreamReply) -> Self {
        Self {
            body: reply.body,
            credential_sent: reply.credential_sent,
            events: EventReader::new(MAX_EVENT),
            is_at_end: false,
            finish: None,
            refusal: String::new(),
            usage: None,
        }
    }

    /// Waits for the first event, so that an error with which the server begins has a status of its own, and returns the
    /// reply whose body is the stream.
    ///
    /// # Errors
    /// The stream breaks off before its first event, or cannot be read.
    pub(super) async fn into_reply(mut self) -> Result<UpstreamReply> {
        let credential_sent = self.credential_sent;
        let (first, is_end) = match self.next_event().await? {
            TranslatedEvent::Error(error) => return Ok(error.into_reply(&HeaderMap::new(), credential_sent)),
            TranslatedEvent::Part(part) => (part, false),
            TranslatedEvent::End(end) => (end, true),
        };
        let (sender, chunks) = mpsc::channel(MAX_QUEUED_EVENTS);
        tokio::spawn(async move {
            let caller_channel = sender.clone();
            tokio::select! {
                () = self.send_events(first, is_end, sender) => {}
                // The caller has left; dropping the body ends the exchange with the server.
                () = caller_channel.closed() => return,
            }
            drop(caller_channel);
            let _ = timeout(END_TIMEOUT, self.body.next_chunk()).await;
        });
        let headers = HeaderMap::from_iter([
            (header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream; charset=utf-8")),
            (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
        ]);
        Ok(UpstreamReply { status: StatusCode::OK, headers, body: ReplyBody::from_channel(chunks), credential_sent })
    }

    async fn send_events(&mut self, first: Bytes, is_end: bool, sender: mpsc::Sender<Result<Bytes>>) {
        let (mut event, mut is_last) = (Ok(first), is_end);
        loop {
            let is_failure = event.is_err();
            let is_empty = event.as_ref().is_ok_and(Bytes::is_empty);
            if (!is_empty && sender.send(event).await.is_err()) || is_failure || is_last {
                return;
            }
            (event, is_last) = match self.next_event().await {
                Ok(TranslatedEvent::Part(part)) => (Ok(part), false),
                Ok(TranslatedEvent::End(end)) => (Ok(end), true),
                Ok(TranslatedEvent::Error(error)) => {
                    (Err(Fault::from(FaultCode::AgentError).with_detail(error.log_detail())), true)
                }
                Err(fault) => (Err(fault), true),
            };
        }
    }

    /// Translates the next event.
    ///
    /// # Errors
    /// The stream breaks off, cannot be read, or ends with an answer that is not complete.
    async fn next_event(&mut self) -> Result<TranslatedEvent> {
        let Some(data) = self.next_data().await? else {
            let Some(reason) = self.finish else {
                let message = "The agent's stream ended before the answer was complete";
                return Err(Fault::new(FaultCode::AgentError, message));
            };
            return self.end(reason);
        };
        if data.trim_ascii() == b"[DONE]" {
            return self.end(self.finish.unwrap_or(FinishReason::Complete));
        }
        let unreadable = || Fault::new(FaultCode::AgentError, "The agent's stream is not a chat completion");
        let chunk = Completion::parse(&data).ok_or_else(unreadable)?;
        if chunk.is_error() {
            return Ok(TranslatedEvent::Error(ServerError::parse(&data, StatusCode::OK)));
        }
        self.usage = chunk.usage().or(self.usage);
        let Some(choice) = chunk.choice() else { return Ok(TranslatedEvent::Part(Bytes::new())) };
        self.finish = choice.finish_reason().or(self.finish);
        if let Some(refusal) = choice.refusal().filter(|part| self.refusal.len() + part.len() <= MAX_REFUSAL) {
            self.refusal.push_str(&refusal);
        }
        let part = choice.text().filter(|text| !text.is_empty());
        Ok(TranslatedEvent::Part(part.map(|text| format_event(&json!({"delta": text}))).unwrap_or_default()))
    }

    /// Ends the answer.
    fn end(&mut self, reason: FinishReason) -> Result<TranslatedEvent> {
        if !self.refusal.is_empty() {
            return Err(Fault::new(FaultCode::InvalidInput, "The agent refused the input").with_status(422));
        }
        reason.check()?;
        let end = match self.usage {
            Some(usage) => json!({"finish_reason": "stop", "usage": usage.to_json()}),
            None => json!({"finish_reason": "stop"}),
        };
        Ok(TranslatedEvent::End(format_event(&end)))
    }

    /// Returns the data of the next event; `None` at the end of the stream.
    async fn next_data(&mut self) -> Result<Option<Vec<u8>>> {
        loop {
            while let Some(event) = self.events.next_event()? {
                if event.data.is_some() {
                    return Ok(event.data);
                }
            }
            if self.is_at_end {
                return Ok(None);
            }
            match self.body.next_chunk().await.transpose()? {
                Some(chunk) => self.events.push(&chunk),
                None => {
                    self.is_at_end = true;
                    return Ok(self.events.take_rest()?.and_then(|event| event.data));
                }
            }
        }
    }
}

fn format_event(data: &Value) -> Bytes {
    format!("data: {data}\n\n").into()
}
