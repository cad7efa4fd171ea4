//! The answer to `POST /chat/completions`, whole and in chunks.

use super::{
    agent_answer::{AgentAnswer, TokenUsage},
    finish_reason::FinishReason,
    json_object::with_member,
};
use serde_json::{Value, json};

/// What all objects of an answer have in common.
#[derive(Clone, Debug)]
pub(super) struct AnswerIdentity {
    /// The id of the call.
    pub(super) id: String,
    /// The model as the request names it.
    pub(super) model: String,
    /// When the call arrived, in seconds after the Unix epoch.
    pub(super) created: u64,
}

/// Returns a chat completion.
pub(super) fn chat_completion(identity: &AnswerIdentity, answer: &AgentAnswer) -> Value {
    let completion = json!({
        "id": format!("chatcmpl-{}", identity.id),
        "object": "chat.completion",
        "created": identity.created,
        "model": identity.model,
        "choices": [{
            "index": 0,
            "message": {"role": "assistant", "content": answer.text, "refusal": answer.refusal},
            "logprobs": null,
            "finish_reason": answer.finish.unwrap_or_default().as_str(),
        }],
    });
    match answer.usage {
        Some(usage) => with_member(completion, "usage", chat_usage(usage)),
        None => completion,
    }
}

/// Returns a chunk with a part of the text; the first one also has the role.
pub(super) fn chat_chunk(identity: &AnswerIdentity, part: &AgentAnswer, is_first: bool) -> Value {
    let delta = json!({"content": part.text});
    let delta = if is_first { with_member(delta, "role", "assistant") } else { delta };
    let delta = match &part.refusal {
        Some(refusal) => with_member(delta, "refusal", refusal.as_str()),
        None => delta,
    };
    chunk(identity, json!([{"index": 0, "delta": delta, "logprobs": null, "finish_reason": null}]))
}

/// Returns the chunk that ends the text.
pub(super) fn last_chat_chunk(identity: &AnswerIdentity, finish: FinishReason) -> Value {
    chunk(identity, json!([{"index": 0, "delta": {}, "logprobs": null, "finish_reason": finish.as_str()}]))
}

/// Returns the chunk with the usage, which has no choice.
pub(super) fn usage_chunk(identity: &AnswerIdentity, usage: Option<TokenUsage>) -> Value {
    with_member(chunk(identity, json!([])), "usage", usage.map_or(Value::Null, chat_usage))
}

fn chunk(identity: &AnswerIdentity, choices: Value) -> Value {
    json!({
        "id": format!("chatcmpl-{}", identity.id),
        "object": "chat.completion.chunk",
        "created": identity.created,
        "model": identity.model,
        "choices": choices,
    })
}

fn chat_usage(usage: TokenUsage) -> Value {
    let total = usage.input.saturating_add(usage.output);
    json!({"prompt_tokens": usage.input, "completion_tokens": usage.output, "total_tokens": total})
}
