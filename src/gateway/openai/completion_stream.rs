//! The events of a streamed answer, as its client reads them.

use super::{
    agent_answer::{AgentAnswer, TokenUsage},
    chat_completion::{AnswerIdentity, chat_chunk, last_chat_chunk, usage_chunk},
    completion_request::CompletionEndpoint,
    finish_reason::FinishReason,
    openai_error::to_openai_error,
    repeated_text::RepeatedText,
    response_object::{AnswerEnd, ClosingEvent, ResponseEvents, escape},
};
use crate::fault::Fault;
use bytes::Bytes;
use serde_json::{Value, value::RawValue};
use std::fmt::Write as _;

/// Makes events of the parts of an answer.
pub(super) struct CompletionStream<'a> {
    identity: &'a AnswerIdentity,
    endpoint: CompletionEndpoint,
    includes_usage: bool,
    events: ResponseEvents<'a>,
    /// The text so far; only responses repeat it.
    text: RepeatedText,
    finish: Option<FinishReason>,
    usage: Option<TokenUsage>,
    has_text: bool,
}

/// The events at the end of a stream. They are written one after the other, because each may have the whole text.
pub(super) struct ClosingEvents<'s, 'a> {
    events: &'s mut ResponseEvents<'a>,
    /// What ends a chat completion.
    chat: Option<Bytes>,
    text: Box<RawValue>,
    end: AnswerEnd,
    rest: std::array::IntoIter<ClosingEvent, 4>,
}

impl<'a> CompletionStream<'a> {
    pub(super) fn new(identity: &'a AnswerIdentity, endpoint: CompletionEndpoint, includes_usage: bool) -> Self {
        Self {
            identity,
            endpoint,
            includes_usage,
            events: ResponseEvents::new(identity),
            text: RepeatedText::default(),
            finish: None,
            usage: None,
            has_text: false,
        }
    }

    /// Returns what precedes the text.
    pub(super) fn begin(&mut self) -> Bytes {
        match self.endpoint {
            CompletionEndpoint::ChatCompletions => Bytes::new(),
            CompletionEndpoint::Responses => self.events.begin(),
        }
    }

    /// Returns the event of a part of the answer; empty for a part without text.
    pub(super) fn part(&mut self, part: &AgentAnswer) -> Bytes {
        self.usage = part.usage.or(self.usage);
        self.finish = part.finish.or(self.finish);
        if part.text.is_empty() {
            return Bytes::new();
        }
        let is_first = !std::mem::replace(&mut self.has_text, true);
        match self.endpoint {
            CompletionEndpoint::ChatCompletions => encode_all(&[chat_chunk(self.identity, part, is_first)]),
            CompletionEndpoint::Responses => {
                let text = escape(&part.text);
                self.text.push(&text);
                self.events.delta(&text)
            }
        }
    }

    /// Returns whether there was a part with text, or a reason for having none.
    pub(super) fn is_known(&self) -> bool {
        self.has_text || self.finish.is_some()
    }

    /// Returns what follows the text.
    pub(super) fn end(&mut self) -> ClosingEvents<'_, 'a> {
        let text = std::mem::take(&mut self.text);
        // The client has the whole text in parts, but not in one piece.
        let finish = if text.is_cut() { FinishReason::Length } else { self.finish.unwrap_or_default() };
        let mut rest = ClosingEvent::ALL.into_iter();
        let chat = match self.endpoint {
            CompletionEndpoint::ChatCompletions => {
                rest.by_ref().for_each(drop);
                Some(self.end_chat(finish))
            }
            CompletionEndpoint::Responses => None,
        };
        let end = AnswerEnd { finish, usage: self.usage };
        ClosingEvents { events: &mut self.events, chat, text: text.into_json(), end, rest }
    }

    fn end_chat(&self, finish: FinishReason) -> Bytes {
        let mut chunks = Vec::with_capacity(3);
        if !self.has_text {
            chunks.push(chat_chunk(self.identity, &AgentAnswer::default(), true));
        }
        chunks.push(last_chat_chunk(self.identity, finish));
        if self.includes_usage {
            chunks.push(usage_chunk(self.identity, self.usage));
        }
        [encode_all(&chunks), Bytes::from_static(b"data: [DONE]\n\n")].concat().into()
    }

    /// Returns the event of a failure after the stream has begun.
    pub(super) fn failure(&mut self, fault: &Fault) -> Bytes {
        match self.endpoint {
            CompletionEndpoint::ChatCompletions => encode_all(&[to_openai_error(fault, &self.identity.id)]),
            CompletionEndpoint::Responses => self.events.failed(fault.code().row().name, fault.message()),
        }
    }
}

impl Iterator for ClosingEvents<'_, '_> {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        if let Some(end) = self.chat.take() {
            return Some(end);
        }
        let event = self.rest.next()?;
        Some(self.events.close(event, &self.text, self.end))
    }
}

/// Returns events with their data.
fn encode_all(events: &[Value]) -> Bytes {
    let mut text = String::new();
    for event in events {
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

    fn concat(events: ClosingEvents<'_, '_>) -> Bytes {
        events.collect::<Vec<_>>().concat().into()
    }

    fn part(text: &str) -> AgentAnswer {
        AgentAnswer { text: text.to_owned(), usage: Some(TokenUsage { input: 1, output: 2 }), ..AgentAnswer::default() }
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
        let end = concat(stream.end());
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
        events.extend(data(&concat(stream.end())));
        let numbers: Vec<u64> = events.iter().map(|event| event["sequence_number"].as_u64().unwrap()).collect();
        assert_eq!(numbers, (0..9).collect::<Vec<u64>>());
        let last = events.last().unwrap();
        assert_eq!(last["type"], "response.completed");
        assert_eq!(last["response"]["output"][0]["content"][0]["text"], "Hi");
        let failed = data(&stream.failure(&Fault::new(FaultCode::AgentError, "The agent failed")));
        assert_eq!(failed[0]["response"]["error"]["code"], "AgentError");
    }

    #[test]
    fn the_events_at_the_end_of_a_response_come_one_by_one_and_repeat_the_text_up_to_a_bound() {
        let identity = identity();
        let mut stream = CompletionStream::new(&identity, CompletionEndpoint::Responses, false);
        // Escaped, a quote has two bytes.
        let whole = "\"".repeat(512 << 10);
        stream.part(&part(&whole));
        let events: Vec<Bytes> = stream.end().collect();
        assert_eq!(events.len(), 4);
        assert!(events.iter().all(|event| event.ends_with(b"\n\n") && event.len() < (1 << 20) + 1_500));
        let last = &data(&events[3])[0];
        assert_eq!((&last["type"], &last["response"]["status"]), (&"response.completed".into(), &"completed".into()));
        assert_eq!(last["response"]["output"][0]["content"][0]["text"], whole.as_str());

        let mut stream = CompletionStream::new(&identity, CompletionEndpoint::Responses, false);
        for text in ["first", &whole, "last"] {
            stream.part(&part(text));
        }
        let events: Vec<Value> = stream.end().flat_map(|event| data(&event)).collect();
        assert_eq!(events[0]["text"], "first", "nothing follows what was left out");
        assert_eq!(events[2]["item"]["status"], "incomplete");
        let response = &events[3]["response"];
        assert_eq!((&events[3]["type"], &response["status"]), (&"response.incomplete".into(), &"incomplete".into()));
        assert_eq!(response["incomplete_details"]["reason"], "max_output_tokens");
        assert_eq!(response["output"][0]["content"][0]["text"], "first");
    }

    #[test]
    fn a_stream_ends_with_the_reason_of_the_agent() {
        let identity = identity();
        let cut = AgentAnswer { finish: Some(FinishReason::ContentFilter), ..part("H") };
        let mut stream = CompletionStream::new(&identity, CompletionEndpoint::ChatCompletions, false);
        stream.part(&cut);
        assert_eq!(data(&concat(stream.end()))[0]["choices"][0]["finish_reason"], "content_filter");
        let mut stream = CompletionStream::new(&identity, CompletionEndpoint::Responses, false);
        stream.part(&cut);
        let events = data(&concat(stream.end()));
        assert_eq!(events[3]["type"], "response.incomplete");
        assert_eq!(events[3]["response"]["incomplete_details"]["reason"], "content_filter");
        let mut stream = CompletionStream::new(&identity, CompletionEndpoint::ChatCompletions, false);
        let refused = AgentAnswer { refusal: Some("No".to_owned()), ..part("No") };
        let delta = &data(&stream.part(&refused))[0]["choices"][0]["delta"];
        assert_eq!((&delta["content"], &delta["refusal"]), (&"No".into(), &"No".into()));
    }
}
