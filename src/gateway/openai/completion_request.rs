//! Requests for a completion: which agent is called, with which conversation. What an agent cannot honour is refused by
//! name; hints to a model, which an agent may not have, are ignored.

use super::conversation::{Conversation, refuse};
use crate::fault::Result;
use serde_json::{Map, Value};

/// The endpoint of a request for a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::gateway) enum CompletionEndpoint {
    /// `POST /chat/completions`.
    ChatCompletions,
    /// `POST /responses`.
    Responses,
}

/// A request for a completion.
#[derive(Debug, PartialEq)]
pub(in crate::gateway) struct CompletionRequest {
    /// The agent's id, with an optional `@version`.
    pub(super) model: String,
    pub(super) conversation: Conversation,
    /// Whether the answer is an event stream.
    pub(super) stream: bool,
    /// Whether the stream of a chat completion ends with the usage.
    pub(super) includes_usage: bool,
}

/// Hints to a model that change neither the kind nor the form of the answer.
const IGNORED: &[&str] = &[
    "temperature",
    "top_p",
    "presence_penalty",
    "frequency_penalty",
    "max_tokens",
    "max_completion_tokens",
    "max_output_tokens",
    "seed",
    "user",
    "metadata",
    "store",
    "service_tier",
    "safety_identifier",
    "prompt_cache_key",
    "prompt_cache_retention",
    "reasoning_effort",
    "reasoning",
    "verbosity",
    "parallel_tool_calls",
    "truncation",
];

impl CompletionEndpoint {
    /// Reads a request.
    ///
    /// # Errors
    /// 400 that names the parameter which is missing, malformed or cannot be honoured.
    pub(super) fn parse(self, body: &Value) -> Result<CompletionRequest> {
        let Some(body) = body.as_object() else {
            return Err(refuse("The body must be a JSON object".to_owned(), "body"));
        };
        let model =
            text(body, "model")?.ok_or_else(|| refuse("model is required (an agent's id)".to_owned(), "model"))?;
        self.check_parameters(body)?;
        let conversation = match self {
            Self::ChatCompletions => {
                Conversation::from_messages(body.get("messages").unwrap_or(&Value::Null), "messages")?
            }
            Self::Responses => parse_input(body)?,
        };
        Ok(CompletionRequest {
            model: model.to_owned(),
            conversation,
            stream: flag(body, "stream")?,
            includes_usage: includes_usage(body)?,
        })
    }

    fn check_parameters(self, body: &Map<String, Value>) -> Result<()> {
        let own: &[&str] = match self {
            Self::ChatCompletions => &["model", "messages", "stream", "stream_options"],
            Self::Responses => &["model", "input", "instructions", "stream", "stream_options"],
        };
        for (name, value) in body {
            if own.contains(&&**name) || IGNORED.contains(&&**name) || is_neutral(name, value) {
                continue;
            }
            return Err(refuse(
                format!("{name} cannot be honoured: agents take a conversation and answer with a text"),
                name,
            ));
        }
        Ok(())
    }
}

/// Returns whether a parameter asks for what happens anyway.
fn is_neutral(name: &str, value: &Value) -> bool {
    match (name, value) {
        (_, Value::Null) => true,
        ("n", Value::Number(number)) => number.as_f64() == Some(1.0),
        ("logprobs" | "background", Value::Bool(is_on)) => !is_on,
        ("top_logprobs", Value::Number(number)) => number.as_f64() == Some(0.0),
        ("stop", Value::String(text)) => text.is_empty(),
        ("tools" | "functions" | "include" | "stop", Value::Array(items)) => items.is_empty(),
        ("logit_bias", Value::Object(biases)) => biases.is_empty(),
        ("tool_choice" | "function_call", Value::String(choice)) => matches!(&**choice, "none" | "auto"),
        ("modalities", Value::Array(kinds)) => kinds.iter().all(|kind| kind == "text"),
        ("response_format", format) => format["type"] == "text",
        ("text", text) => text.get("format").is_none_or(|format| format["type"] == "text"),
        _ => false,
    }
}

/// Reads the input of a response: a text, or a list of messages.
fn parse_input(body: &Map<String, Value>) -> Result<Conversation> {
    let mut conversation = match body.get("input") {
        Some(Value::String(text)) => Conversation::from_text(text),
        Some(items @ Value::Array(list)) => {
            for (at, item) in list.iter().enumerate() {
                let kind = item.get("type").and_then(Value::as_str).unwrap_or("message");
                if kind != "message" {
                    let place = format!("input[{at}]");
                    return Err(refuse(
                        format!("{place}: items of the type {kind} cannot be passed on to agents"),
                        &place,
                    ));
                }
            }
            Conversation::from_messages(items, "input")?
        }
        _ => return Err(refuse("input must be a text or a list of messages".to_owned(), "input")),
    };
    if let Some(instructions) = text(body, "instructions")? {
        conversation.prepend_instructions(instructions);
    }
    Ok(conversation)
}

fn text<'b>(body: &'b Map<String, Value>, name: &str) -> Result<Option<&'b str>> {
    match body.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(refuse(format!("{name} must be a text"), name)),
    }
}

fn flag(body: &Map<String, Value>, name: &str) -> Result<bool> {
    match body.get(name) {
        None | Some(Value::Null) => Ok(false),
        Some(Value::Bool(flag)) => Ok(*flag),
        Some(_) => Err(refuse(format!("{name} must be true or false"), name)),
    }
}

/// Reads whether the stream of a chat completion ends with the usage.
fn includes_usage(body: &Map<String, Value>) -> Result<bool> {
    match body.get("stream_options") {
        None | Some(Value::Null) => Ok(false),
        Some(Value::Object(options)) => match options.get("include_usage") {
            None | Some(Value::Null) => Ok(false),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(_) => {
                let name = "stream_options.include_usage";
                Err(refuse(format!("{name} must be true or false"), name))
            }
        },
        Some(_) => Err(refuse("stream_options must be an object".to_owned(), "stream_options")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn chat(parameters: Value) -> Result<CompletionRequest> {
        let mut body = json!({"model": "planner", "messages": [{"role": "user", "content": "Hi"}]});
        body.as_object_mut().unwrap().extend(parameters.as_object().unwrap().clone());
        CompletionEndpoint::ChatCompletions.parse(&body)
    }

    #[test]
    fn hints_and_neutral_values_pass() {
        let request = chat(json!({
            "temperature": 0.2, "max_tokens": 5, "n": 1, "tools": [], "response_format": {"type": "text"},
            "logprobs": false, "stop": null, "stream": true, "stream_options": {"include_usage": true},
        }));
        let request = request.unwrap();
        assert_eq!((request.model.as_str(), request.stream, request.includes_usage), ("planner", true, true));
        for parameters in [
            json!({"n": 1.0, "top_logprobs": 0.0, "stop": ""}),
            json!({"stream_options": null}),
            json!({"stream_options": {"include_obfuscation": false, "include_usage": null}}),
        ] {
            assert!(!chat(parameters).unwrap().includes_usage);
        }
    }

    #[test]
    fn what_agents_cannot_honour_is_refused_by_name() {
        for (name, value) in [
            ("tools", json!([{"type": "function"}])),
            ("n", json!(2)),
            ("n", json!(1.5)),
            ("response_format", json!({"type": "json_object"})),
            ("logprobs", json!(true)),
            ("stop", json!(["x"])),
            ("functions", json!([{}])),
            ("tool_choice", json!("required")),
            ("audio", json!({})),
            ("previous_response_id", json!("r")),
            ("unknown", json!(1)),
        ] {
            let fault = chat(json!({name: value})).unwrap_err();
            assert_eq!(fault.http_status(), 400);
            assert!(fault.message().starts_with(&format!("{name} cannot be honoured")), "{}", fault.message());
            assert!(fault.extra_members().any(|member| member == ("param", &json!(name))));
        }
        assert!(CompletionEndpoint::ChatCompletions.parse(&json!([])).is_err());
        assert!(CompletionEndpoint::ChatCompletions.parse(&json!({"messages": []})).is_err());
        for (parameters, name) in [
            (json!({"stream": "yes"}), "stream"),
            (json!({"stream_options": 5}), "stream_options"),
            (json!({"stream_options": {"include_usage": 5}}), "stream_options.include_usage"),
        ] {
            let fault = chat(parameters).unwrap_err();
            assert!(fault.extra_members().any(|member| member == ("param", &json!(name))), "{name}");
        }
    }

    #[test]
    fn responses_have_an_input_and_instructions() {
        let parse = |body: Value| CompletionEndpoint::Responses.parse(&body);
        let request = parse(json!({"model": "planner", "input": "Hi", "instructions": "Be brief"})).unwrap();
        assert_eq!(request.conversation.to_text(), "system: Be brief\n\nuser: Hi");
        let items = json!([{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi"}]}]);
        assert_eq!(parse(json!({"model": "planner", "input": items})).unwrap().conversation.to_text(), "Hi");
        assert!(parse(json!({"model": "planner", "input": [{"type": "function_call_output"}]})).is_err());
        assert!(parse(json!({"model": "planner"})).is_err());
        assert!(parse(json!({"model": "planner", "input": "Hi", "background": true})).is_err());
    }
}
