//! The text and the usage in an agent's answer.

use super::config::OpenAiConfig;
use crate::fault::{Fault, FaultCode, Result};
use serde_json::Value;

/// Properties that hold the text of an answer, in the order in which they count.
const TEXT_PROPERTIES: [&str; 10] =
    ["output", "text", "content", "message", "answer", "result", "response", "delta", "token", "chunk"];

/// An agent's answer, or a part of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct AgentAnswer {
    pub(super) text: String,
    pub(super) usage: Option<TokenUsage>,
}

/// Tokens that the agent reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TokenUsage {
    pub(super) input: u64,
    pub(super) output: u64,
}

impl AgentAnswer {
    /// Reads a complete answer.
    ///
    /// # Errors
    /// `AgentError` if the answer has no text at the pointer of the rule, or is not text.
    pub(super) fn from_body(body: &[u8], config: Option<&OpenAiConfig>) -> Result<Self> {
        let Ok(value) = serde_json::from_slice::<Value>(body) else {
            let text = std::str::from_utf8(body).map_err(|_| {
                Fault::new(FaultCode::AgentError, "The agent's answer is not text, and cannot be made a message")
            })?;
            return Ok(Self { text: text.to_owned(), usage: None });
        };
        let usage = TokenUsage::find(&value);
        let Some(pointer) = config.and_then(|config| config.output.as_deref()) else {
            return Ok(Self { text: find_text(&value).unwrap_or_else(|| value.to_string()), usage });
        };
        match value.pointer(pointer) {
            Some(Value::String(text)) => Ok(Self { text: text.clone(), usage }),
            Some(other) => Ok(Self { text: other.to_string(), usage }),
            None => Err(no_text()),
        }
    }

    /// Reads the data of one event of a stream. An event without text is an empty part.
    pub(super) fn from_event(data: &[u8], config: Option<&OpenAiConfig>) -> Self {
        if data.trim_ascii() == b"[DONE]" {
            return Self::default();
        }
        let Ok(value) = serde_json::from_slice::<Value>(data) else {
            return Self { text: String::from_utf8_lossy(data).into_owned(), usage: None };
        };
        let pointer = config.and_then(|config| config.output.as_deref());
        let text = match pointer {
            Some(pointer) => value.pointer(pointer).and_then(Value::as_str).map(str::to_owned),
            None => find_text(&value),
        };
        Self { text: text.unwrap_or_default(), usage: TokenUsage::find(&value) }
    }
}

/// Returns the fault for an answer without a text where it is expected.
pub(super) fn no_text() -> Fault {
    let fault = Fault::new(FaultCode::AgentError, "The agent's answer has no text where it is expected");
    fault.with_setting("agents.rules[].openai.output")
}

/// Returns the text of an answer: a text, the message of a completion, the last of several messages, or the first property
/// with a text.
fn find_text(value: &Value) -> Option<String> {
    if let Value::String(text) = value {
        return Some(text.clone());
    }
    let of_choice = |choice: &Value| {
        let message = choice.get("message").or_else(|| choice.get("delta"))?;
        message.get("content")?.as_str().map(str::to_owned)
    };
    if let Some(choice) = value.get("choices").and_then(|choices| choices.get(0)) {
        return of_choice(choice);
    }
    if let Some(Value::Array(messages)) = value.get("messages") {
        return messages.last().and_then(text_of_message);
    }
    TEXT_PROPERTIES.iter().find_map(|name| match value.get(name)? {
        Value::String(text) => Some(text.clone()),
        nested @ Value::Object(_) => text_of_message(nested),
        _ => None,
    })
}

fn text_of_message(message: &Value) -> Option<String> {
    match message.get("content").or_else(|| message.get("text"))? {
        Value::String(text) => Some(text.clone()),
        Value::Array(parts) => Some(parts.iter().filter_map(|part| part.get("text")?.as_str()).collect()),
        _ => None,
    }
}

impl TokenUsage {
    fn find(answer: &Value) -> Option<Self> {
        let usage = answer.get("usage")?;
        let count = |names: [&str; 2]| names.iter().find_map(|name| usage.get(name)?.as_u64());
        Some(Self {
            input: count(["prompt_tokens", "input_tokens"])?,
            output: count(["completion_tokens", "output_tokens"])?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_text_is_found_where_agents_have_it() {
        for (answer, text) in [
            (json!("Hi"), "Hi"),
            (json!({"output": "Hi", "n": 1}), "Hi"),
            (json!({"message": {"role": "assistant", "content": "Hi"}}), "Hi"),
            (json!({"message": {"content": [{"type": "text", "text": "H"}, {"type": "text", "text": "i"}]}}), "Hi"),
            (json!({"choices": [{"message": {"content": "Hi"}}]}), "Hi"),
            (json!({"messages": [{"content": "a"}, {"content": "Hi"}]}), "Hi"),
            (json!({"steps": 2}), "{\"steps\":2}"),
            (json!([1]), "[1]"),
        ] {
            assert_eq!(AgentAnswer::from_body(answer.to_string().as_bytes(), None).unwrap().text, text, "{answer}");
        }
        assert_eq!(AgentAnswer::from_body(b"plain", None).unwrap().text, "plain");
        assert!(AgentAnswer::from_body(&[0xff, 0xfe], None).is_err());
        let rule = OpenAiConfig { output: Some("/a/0".to_owned()), ..OpenAiConfig::default() };
        assert_eq!(AgentAnswer::from_body(b"{\"a\": [\"Hi\"]}", Some(&rule)).unwrap().text, "Hi");
        assert!(AgentAnswer::from_body(b"{}", Some(&rule)).is_err());
    }

    #[test]
    fn usage_is_what_the_agent_reports() {
        let usage =
            |usage: Value| AgentAnswer::from_body(json!({"usage": usage}).to_string().as_bytes(), None).unwrap().usage;
        assert_eq!(
            usage(json!({"prompt_tokens": 1, "completion_tokens": 2})),
            Some(TokenUsage { input: 1, output: 2 })
        );
        assert_eq!(usage(json!({"input_tokens": 1, "output_tokens": 2})), Some(TokenUsage { input: 1, output: 2 }));
        assert_eq!(usage(json!({"input_tokens": 1})), None);
    }

    #[test]
    fn events_are_parts_of_the_text() {
        for (data, text) in [
            ("[DONE]", ""),
            ("\"H\"", "H"),
            ("{\"choices\": [{\"delta\": {\"content\": \"H\"}}]}", "H"),
            ("{\"delta\": \"H\"}", "H"),
            ("{\"token\": \"H\"}", "H"),
            ("{\"status\": \"working\"}", ""),
            ("plain", "plain"),
        ] {
            assert_eq!(AgentAnswer::from_event(data.as_bytes(), None).text, text, "{data}");
        }
    }
}
