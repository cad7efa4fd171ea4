//! The answer to `POST /responses`: the response object, and the events of its stream. Texts are escaped once, and are not
//! copied into trees: an answer may have several megabytes.

use super::{
    agent_answer::{AgentAnswer, TokenUsage},
    chat_completion::AnswerIdentity,
    finish_reason::FinishReason,
};
use bytes::Bytes;
use serde::Serialize;
use serde_json::{
    Value, json,
    value::{RawValue, to_raw_value},
};
use std::io::Write as _;

/// How an answer ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct AnswerEnd {
    pub(super) finish: FinishReason,
    pub(super) usage: Option<TokenUsage>,
}

/// An event of the end of a stream, in the order of the variants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClosingEvent {
    TextDone,
    PartDone,
    ItemDone,
    Response,
}

impl ClosingEvent {
    pub(super) const ALL: [Self; 4] = [Self::TextDone, Self::PartDone, Self::ItemDone, Self::Response];
}

#[derive(Serialize)]
struct TextPart<'t> {
    r#type: &'static str,
    text: &'t RawValue,
    annotations: [(); 0],
    logprobs: [(); 0],
}

#[derive(Serialize)]
struct OutputMessage<'t> {
    id: String,
    r#type: &'static str,
    role: &'static str,
    status: &'static str,
    content: &'t [TextPart<'t>],
}

#[derive(Serialize)]
struct Response<'t> {
    output: &'t [OutputMessage<'t>],
    #[serde(flatten)]
    rest: Value,
}

#[derive(Serialize)]
struct Event<T> {
    r#type: &'static str,
    sequence_number: u64,
    #[serde(flatten)]
    members: T,
}

#[derive(Serialize)]
struct ResponseMember<'t> {
    response: Response<'t>,
}

#[derive(Serialize)]
struct ItemMembers<'t> {
    output_index: u32,
    item: OutputMessage<'t>,
}

/// The members of an event about the only part of the only message.
#[derive(Serialize)]
struct PartMembers<T> {
    item_id: String,
    output_index: u32,
    content_index: u32,
    #[serde(flatten)]
    members: T,
}

#[derive(Serialize)]
struct PartMember<'t> {
    part: TextPart<'t>,
}

#[derive(Serialize)]
struct TextMember<'t> {
    text: &'t RawValue,
    logprobs: [(); 0],
}

#[derive(Serialize)]
struct DeltaMember<'t> {
    delta: &'t RawValue,
    logprobs: [(); 0],
}

/// Returns a complete response as JSON.
pub(super) fn response_object(identity: &AnswerIdentity, answer: &AgentAnswer) -> Bytes {
    let end = AnswerEnd { finish: answer.finish.unwrap_or_default(), usage: answer.usage };
    let text = escape(&answer.text);
    let content = [TextPart::new(&text)];
    let output = [OutputMessage::new(identity, status_of(end.finish), &content)];
    serde_json::to_vec(&finished_response(identity, end, &output)).unwrap_or_default().into()
}

/// Returns a text as JSON.
pub(super) fn escape(text: &str) -> Box<RawValue> {
    to_raw_value(text).unwrap_or_default()
}

/// The events of a stream, which are numbered.
#[derive(Debug)]
pub(super) struct ResponseEvents<'a> {
    identity: &'a AnswerIdentity,
    next_number: u64,
}

impl<'a> ResponseEvents<'a> {
    pub(super) fn new(identity: &'a AnswerIdentity) -> Self {
        Self { identity, next_number: 0 }
    }

    /// Returns the events before the text.
    pub(super) fn begin(&mut self) -> Bytes {
        let identity = self.identity;
        let response = || ResponseMember {
            response: Response { output: &[], rest: skeleton(identity, "in_progress", AnswerEnd::default()) },
        };
        let item = ItemMembers { output_index: 0, item: OutputMessage::new(identity, "in_progress", &[]) };
        let empty = escape("");
        let part = self.of_part(PartMember { part: TextPart::new(&empty) });
        let events = [
            self.event("response.created", response()),
            self.event("response.in_progress", response()),
            self.event("response.output_item.added", item),
            self.event("response.content_part.added", part),
        ];
        events.concat().into()
    }

    /// Returns the event with a part of the text.
    pub(super) fn delta(&mut self, text: &RawValue) -> Bytes {
        let members = self.of_part(DeltaMember { delta: text, logprobs: [] });
        self.event("response.output_text.delta", members)
    }

    /// Returns an event after the text.
    pub(super) fn close(&mut self, event: ClosingEvent, text: &RawValue, end: AnswerEnd) -> Bytes {
        let identity = self.identity;
        let content = [TextPart::new(text)];
        let message = || OutputMessage::new(identity, status_of(end.finish), &content);
        match event {
            ClosingEvent::TextDone => {
                let members = self.of_part(TextMember { text, logprobs: [] });
                self.event("response.output_text.done", members)
            }
            ClosingEvent::PartDone => {
                let members = self.of_part(PartMember { part: TextPart::new(text) });
                self.event("response.content_part.done", members)
            }
            ClosingEvent::ItemDone => {
                self.event("response.output_item.done", ItemMembers { output_index: 0, item: message() })
            }
            ClosingEvent::Response => {
                let kind = match end.finish.incomplete_reason() {
                    None => "response.completed",
                    Some(_) => "response.incomplete",
                };
                let output = [message()];
                self.event(kind, ResponseMember { response: finished_response(identity, end, &output) })
            }
        }
    }

    /// Returns the event of a failure after the stream has begun.
    pub(super) fn failed(&mut self, code: &str, message: &str) -> Bytes {
        let mut rest = skeleton(self.identity, "failed", AnswerEnd::default());
        if let Value::Object(members) = &mut rest {
            members.insert("error".to_owned(), json!({"code": code, "message": message}));
        }
        self.event("response.failed", ResponseMember { response: Response { output: &[], rest } })
    }

    fn event(&mut self, kind: &'static str, members: impl Serialize) -> Bytes {
        let event = Event { r#type: kind, sequence_number: self.next_number, members };
        self.next_number += 1;
        let mut bytes = Vec::new();
        let _ = write!(bytes, "event: {kind}\ndata: ");
        let _ = serde_json::to_writer(&mut bytes, &event);
        bytes.extend_from_slice(b"\n\n");
        bytes.into()
    }

    fn of_part<T>(&self, members: T) -> PartMembers<T> {
        PartMembers { item_id: message_id(self.identity), output_index: 0, content_index: 0, members }
    }
}

impl<'t> TextPart<'t> {
    fn new(text: &'t RawValue) -> Self {
        Self { r#type: "output_text", text, annotations: [], logprobs: [] }
    }
}

impl<'t> OutputMessage<'t> {
    fn new(identity: &AnswerIdentity, status: &'static str, content: &'t [TextPart<'t>]) -> Self {
        Self { id: message_id(identity), r#type: "message", role: "assistant", status, content }
    }
}

fn finished_response<'t>(identity: &AnswerIdentity, end: AnswerEnd, output: &'t [OutputMessage<'t>]) -> Response<'t> {
    Response { output, rest: skeleton(identity, status_of(end.finish), end) }
}

fn status_of(finish: FinishReason) -> &'static str {
    match finish.incomplete_reason() {
        None => "completed",
        Some(_) => "incomplete",
    }
}

/// Returns the members of a response besides its output.
fn skeleton(identity: &AnswerIdentity, status: &str, end: AnswerEnd) -> Value {
    json!({
        "id": format!("resp_{}", identity.id),
        "object": "response",
        "created_at": identity.created,
        "status": status,
        "error": null,
        "incomplete_details": end.finish.incomplete_reason().map(|reason| json!({"reason": reason})),
        "instructions": null,
        "metadata": {},
        "model": identity.model,
        "parallel_tool_calls": false,
        "temperature": null,
        "tool_choice": "none",
        "tools": [],
        "top_p": null,
        "usage": end.usage.map(response_usage),
    })
}

fn message_id(identity: &AnswerIdentity) -> String {
    format!("msg_{}", identity.id)
}

fn response_usage(usage: TokenUsage) -> Value {
    json!({
        "input_tokens": usage.input,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": usage.output,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage.input.saturating_add(usage.output),
    })
}
