//! The answer to `POST /responses`: the response object, and the events of its stream.

use super::{
    agent_answer::{AgentAnswer, TokenUsage},
    chat_completion::AnswerIdentity,
    json_object::with_member,
};
use serde_json::{Value, json};

/// Returns a complete response.
pub(super) fn response_object(identity: &AnswerIdentity, answer: &AgentAnswer) -> Value {
    let output = json!([output_message(identity, &answer.text, "completed")]);
    let response = with_member(skeleton(identity, "completed"), "output", output);
    with_member(response, "usage", answer.usage.map_or(Value::Null, response_usage))
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
    pub(super) fn begin(&mut self) -> Vec<Value> {
        let response = skeleton(self.identity, "in_progress");
        let message = with_member(output_message(self.identity, "", "in_progress"), "content", json!([]));
        vec![
            self.event("response.created", json!({"response": response})),
            self.event("response.in_progress", json!({"response": response})),
            self.event("response.output_item.added", json!({"output_index": 0, "item": message})),
            self.event("response.content_part.added", self.of_part(json!({"part": text_part("")}))),
        ]
    }

    /// Returns the event with a part of the text.
    pub(super) fn delta(&mut self, text: &str) -> Value {
        let members = self.of_part(json!({"delta": text, "logprobs": []}));
        self.event("response.output_text.delta", members)
    }

    /// Returns the events after the text.
    pub(super) fn end(&mut self, answer: &AgentAnswer) -> Vec<Value> {
        let message = output_message(self.identity, &answer.text, "completed");
        let response = response_object(self.identity, answer);
        let done = self.of_part(json!({"text": answer.text, "logprobs": []}));
        let part_done = self.of_part(json!({"part": text_part(&answer.text)}));
        vec![
            self.event("response.output_text.done", done),
            self.event("response.content_part.done", part_done),
            self.event("response.output_item.done", json!({"output_index": 0, "item": message})),
            self.event("response.completed", json!({"response": response})),
        ]
    }

    /// Returns the event of a failure after the stream has begun.
    pub(super) fn failed(&mut self, code: &str, message: &str) -> Value {
        let error = json!({"code": code, "message": message});
        let response = with_member(skeleton(self.identity, "failed"), "error", error);
        self.event("response.failed", json!({"response": response}))
    }

    fn event(&mut self, kind: &str, members: Value) -> Value {
        let number = self.next_number;
        self.next_number += 1;
        with_member(with_member(members, "type", kind), "sequence_number", number)
    }

    fn of_part(&self, members: Value) -> Value {
        let members = with_member(members, "item_id", message_id(self.identity));
        with_member(with_member(members, "output_index", 0), "content_index", 0)
    }
}

fn skeleton(identity: &AnswerIdentity, status: &str) -> Value {
    json!({
        "id": format!("resp_{}", identity.id),
        "object": "response",
        "created_at": identity.created,
        "status": status,
        "error": null,
        "incomplete_details": null,
        "instructions": null,
        "metadata": {},
        "model": identity.model,
        "output": [],
        "parallel_tool_calls": false,
        "temperature": null,
        "tool_choice": "none",
        "tools": [],
        "top_p": null,
        "usage": null,
    })
}

fn message_id(identity: &AnswerIdentity) -> String {
    format!("msg_{}", identity.id)
}

fn output_message(identity: &AnswerIdentity, text: &str, status: &str) -> Value {
    json!({
        "id": message_id(identity),
        "type": "message",
        "role": "assistant",
        "status": status,
        "content": [text_part(text)],
    })
}

fn text_part(text: &str) -> Value {
    json!({"type": "output_text", "text": text, "annotations": [], "logprobs": []})
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
