//! The events of a streamed answer, as its client reads them.

use super::{
    agent_answer::{AgentAnswer, TokenUsage},
    chat_completion::{AnswerIdentity, chat_chunk, last_chat_chunk, usage_chunk},
    completion_request::CompletionEndpoint,
    openai_error::to_openai_error,
    response_object::ResponseEvents,
};
use crate::fault::Fault;
use bytes::Bytes;
use serde_json::Value;
use std::fmt::Write as _;

/// The longest text of a streamed answer that is repeated at its end, in bytes. What exceeds it is left out there.
const MAX_REPEATED_TEXT: usize = 4 << 20;

/// Makes events of the parts of an answer.
pub(super) struct CompletionStream<'a> {
    identity: &'a AnswerIdentity,
    endpoint: CompletionEndpoint,
    includes_usage: bool,
    events: ResponseEvents<'a>,
    /// The text so far; only responses repeat it.
    text: String,
    usage: Option<TokenUsage>,
    has_text: bool,
}

impl<'a> CompletionStream<'a> {
    pub(super) fn new(identity: &'a AnswerIdentity, endpoint: CompletionEndpoint, includes_usage: bool) -> Self {
        Self {
            identity,
            endpoint,
            includes_usage,
            events: ResponseEvents::new(identity),
            text: String::new(),
            usage: None,
            has_text: false,
        }
    }

    /// Returns what precedes the text.
    pub(super) fn begin(&mut self) -> Bytes {
        match self.endpoint {
            CompletionEndpoint::ChatCompletions => Bytes::new(),
            CompletionEndpoint::Responses => encode_all(&self.events.begin()),
        }
    }

    /// Returns the event of a part of the answer; empty for a part without text.
    pub(super) fn part(&mut self, part: &AgentAnswer) -> Bytes {
        self.usage = part.usage.or(self.usage);
        if part.text.is_empty() {
            return Bytes::new();
        }
        let is_first = !std::mem::replace(&mut self.has_text, true);
        match self.endpoint {
            CompletionEndpoint::ChatCompletions => encode_all(&[chat_chunk(self.identity, &part.text, is_first)]),
            CompletionEndpoint::Responses => {
                if self.text.len() + part.text.len() <= MAX_REPEATED_TEXT {
                    self.text.push_str(&part.text);
                }
                encode_all(&[self.events.delta(&part.text)])
            }
        }
    }

    /// Returns whether there was a part with text.
    pub(super) fn has_text(&self) -> bool {
        self.has_text
    }

    /// Returns what follows the text.
    pub(super) fn end(&mut self) -> Bytes {
        match self.endpoint {
            CompletionEndpoint::ChatCompletions => {
                let mut chunks = Vec::with_capacity(3);
                if !self.has_text {
                    chunks.push(chat_chunk(self.identity, "", true));
                }
                chunks.push(last_chat_chunk(self.identity));
                if self.includes_usage {
                    chunks.push(usage_chunk(self.identity, self.usage));
                }
                [encode_all(&chunks), Bytes::from_static(b"data: [DONE]\n\n")].concat().into()
            }
            CompletionEndpoint::Responses => {
                let answer = AgentAnswer { text: std::mem::take(&mut self.text), usage: self.usage };
                encode_all(&self.events.end(&answer))
            }
        }
    }

    /// Returns the event of a failure after the stream has begun.
    pub(super) fn failure(&mut self, fault: &Fault) -> Bytes {
        match self.endpoint {
            CompletionEndpoint::ChatCompletions => encode_all(&[to_openai_error(fault, &self.identity.id)]),
            CompletionEndpoint::Responses => {
                encode_all(&[self.events.failed(fault.code().row().name, fault.message())])
            }
        }
    }
}

/// Returns events with their data; those of responses also have their type.
fn encode_all(events: &[Value]) -> Bytes {
    let mut text = String::new();
    for event in events {
        if let Some(kind) = event.get("type").and_then(Value::as_str) {
            let _ = writeln!(text, "event: {kind}");
        }
        let _ = write!(text, "data: {event}\n\n");
    }
    text.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::FaultCode;

    fn identity() -> AnswerIdentity {
        AnswerIdentity { id: "1".to_owned(), model: "planner".to_owned(), created: 7 }
    }

    fn data(events: &Bytes) -> Vec<Value> {
        let text = std::str::from_utf8(events).unwrap();
        let data = text.lines().filter_map(|line| line.strip_prefix("data: ")).filter(|data| *data != "[DONE]");
        data.map(|data| serde_json::from_str(data).unwrap()).collect()
    }

    fn part(text: &str) -> AgentAnswer {
        AgentAnswer { text: text.to_owned(), usage: Some(TokenUsage { input: 1, output: 2 }) }
    }

    #[test]
    fn a_chat_completion_ends_with_its_reason_the_usage_and_a_marker() {
        let identity = identity();
        let mut stream = CompletionStream::new(&identity, CompletionEndpoint::ChatCompletions, true);
        assert!(stream.begin().is_empty());
        let first = data(&stream.part(&part("H")));
        assert_eq!(first[0]["choices"][0]["delta"], serde_json::json!({"role": "assistant", "content": "H"}));
        assert_eq!(data(&stream.part(&part("i")))[0]["choices"][0]["delta"], serde_json::json!({"content": "i"}));
        assert!(stream.part(&part("")).is_empty());
        let end = stream.end();
        assert!(end.ends_with(b"data: [DONE]\n\n"));
        let end = data(&end);
        assert_eq!(end[0]["choices"][0]["finish_reason"], "stop");
        assert_eq!(
            (&end[1]["choices"], &end[1]["usage"]["total_tokens"]),
            (&serde_json::json!([]), &serde_json::json!(3))
        );
    }

    #[test]
    fn the_events_of_a_response_are_numbered_and_repeat_the_text_at_the_end() {
        let identity = identity();
        let mut stream = CompletionStream::new(&identity, CompletionEndpoint::Responses, false);
        let mut events = data(&stream.begin());
        events.extend(data(&stream.part(&part("Hi"))));
        events.extend(data(&stream.end()));
        let numbers: Vec<u64> = events.iter().map(|event| event["sequence_number"].as_u64().unwrap()).collect();
        assert_eq!(numbers, (0..9).collect::<Vec<u64>>());
        let last = events.last().unwrap();
        assert_eq!(last["type"], "response.completed");
        assert_eq!(last["response"]["output"][0]["content"][0]["text"], "Hi");
        let failed = data(&stream.failure(&Fault::new(FaultCode::AgentError, "The agent failed")));
        assert_eq!(failed[0]["response"]["error"]["code"], "AgentError");
    }
}
