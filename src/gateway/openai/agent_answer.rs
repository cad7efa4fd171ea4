//! The text, the reason of its end and the usage in an agent's answer.

use super::{
    config::OpenAiConfig,
    finish_reason::{FinishReason, find_finish_reason},
};
use crate::{
    fault::{Fault, FaultCode, Result},
    gateway::response::is_event_stream,
    values::EventReader,
};
use http::HeaderMap;
use serde_json::Value;

/// Properties that hold the text of an answer, in the order in which they count.
const TEXT_PROPERTIES: [&str; 10] =
    ["output", "text", "content", "message", "answer", "result", "response", "delta", "token", "chunk"];

/// An agent's answer, or a part of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct AgentAnswer {
    pub(super) text: String,
    /// The refusal of a model. It is also the text of an answer without another one.
    pub(super) refusal: Option<String>,
    /// Why the answer ends, where the agent says it.
    pub(super) finish: Option<FinishReason>,
    pub(super) usage: Option<TokenUsage>,
}

/// Tokens that the agent reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TokenUsage {
    pub(super) input: u64,
    pub(super) output: u64,
}

impl AgentAnswer {
    /// Reads a complete reply, which may be an event stream.
    ///
    /// # Errors
    /// As [`AgentAnswer::from_body`]; `AgentError` for a stream without a text that is known.
    pub(super) fn from_reply(headers: &HeaderMap, body: &[u8], config: Option<&OpenAiConfig>) -> Result<Self> {
        if is_event_stream(headers) { Self::from_events(body, config) } else { Self::from_body(body, config) }
    }

    fn from_events(stream: &[u8], config: Option<&OpenAiConfig>) -> Result<Self> {
        let mut reader = EventReader::new(usize::MAX);
        reader.push(stream);
        let mut whole = Self::default();
        while let Some(event) = reader.next_event()? {
            whole.append(Self::from_event(event.data.as_deref().unwrap_or_default(), config)?);
        }
        let rest = reader.take_rest()?.and_then(|event| event.data);
        whole.append(Self::from_event(&rest.unwrap_or_default(), config)?);
        if stream.is_empty() || whole.is_known() { Ok(whole) } else { Err(no_text()) }
    }

    /// Reads a complete body.
    ///
    /// # Errors
    /// `AgentError` if the answer has no text at the pointer of the rule, is not text, or calls tools.
    pub(super) fn from_body(body: &[u8], config: Option<&OpenAiConfig>) -> Result<Self> {
        let Ok(value) = serde_json::from_slice::<Value>(body) else {
            return from_utf8(body).map(Self::from_text);
        };
        let Some(pointer) = config.and_then(|config| config.output.as_deref()) else {
            return match &value {
                // As the agent wrote it: 1.0 is not 1.
                Value::Null | Value::Bool(_) | Value::Number(_) => from_utf8(body).map(Self::from_text),
                value => Ok(match Self::find(value)? {
                    Some(answer) => answer,
                    None => Self { text: value.to_string(), ..Self::of_end(value) },
                }),
            };
        };
        match value.pointer(pointer) {
            Some(Value::String(text)) => Ok(Self { text: text.clone(), ..Self::of_end(&value) }),
            Some(other) => Ok(Self { text: other.to_string(), ..Self::of_end(&value) }),
            None => Err(no_text()),
        }
    }

    /// Reads the data of one event of a stream. An event without text is an empty part. Data that is no object is text as
    /// it was sent: a stream of text has parts such as `42`, `true` or `"`.
    ///
    /// # Errors
    /// `AgentError` if the event calls tools.
    pub(super) fn from_event(data: &[u8], config: Option<&OpenAiConfig>) -> Result<Self> {
        if data.trim_ascii() == b"[DONE]" {
            return Ok(Self::default());
        }
        let pointer = config.and_then(|config| config.output.as_deref());
        let is_read = match data.trim_ascii_start().first() {
            Some(b'{') => true,
            Some(b'[') => pointer.is_some(),
            _ => false,
        };
        let value = serde_json::from_slice::<Value>(data).ok().filter(|_| is_read);
        let Some(value) = value else {
            return Ok(Self::from_text(String::from_utf8_lossy(data).into_owned()));
        };
        let Some(pointer) = pointer else {
            return Ok(Self::find(&value)?.unwrap_or_else(|| Self::of_end(&value)));
        };
        let text = value.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        Ok(Self { text: text.to_owned(), ..Self::of_end(&value) })
    }

    fn from_text(text: String) -> Self {
        Self { text, ..Self::default() }
    }

    /// Reads what the answer says besides its text.
    fn of_end(value: &Value) -> Self {
        Self { finish: find_finish_reason(value), usage: TokenUsage::find(value), ..Self::default() }
    }

    /// Reads an answer of a known form: a text, the message of a completion, the last of several messages, or an object
    /// with a property that has a text.
    fn find(value: &Value) -> Result<Option<Self>> {
        let message = match value.get("choices").and_then(|choices| choices.get(0)) {
            Some(choice) => Message::of_choice(choice)?,
            None => Message::find(value),
        };
        Ok(message.map(|message| message.into_answer(value)))
    }

    /// Returns whether the answer has a text, or says why it has none.
    pub(super) fn is_known(&self) -> bool {
        !self.text.is_empty() || self.finish.is_some()
    }

    /// Appends a part.
    pub(super) fn append(&mut self, part: Self) {
        self.text.push_str(&part.text);
        if let Some(refusal) = part.refusal {
            self.refusal.get_or_insert_default().push_str(&refusal);
        }
        self.finish = part.finish.or(self.finish);
        self.usage = part.usage.or(self.usage);
    }
}

fn from_utf8(body: &[u8]) -> Result<String> {
    let text = std::str::from_utf8(body).map_err(|_| {
        Fault::new(FaultCode::AgentError, "The agent's answer is not text, and cannot be made a message")
    })?;
    Ok(text.to_owned())
}

/// Returns the fault for an answer without a text where it is expected.
pub(super) fn no_text() -> Fault {
    let fault = Fault::new(FaultCode::AgentError, "The agent's answer has no text where it is expected");
    fault.with_setting("agents.rules[].openai.output")
}

/// Returns the fault for an answer that calls tools of its caller.
fn calls_tools() -> Fault {
    Fault::new(
        FaultCode::AgentError,
        "The agent's answer calls tools, which are not passed on (an agent answers with text)",
    )
}

/// The text of a message, and the refusal beside it.
#[derive(Debug, Default)]
struct Message {
    text: Option<String>,
    refusal: Option<String>,
}

impl Message {
    /// Reads the choice of a completion, or of a part of one.
    ///
    /// # Errors
    /// `AgentError` if the choice calls tools.
    fn of_choice(choice: &Value) -> Result<Option<Self>> {
        let reason = choice.get("finish_reason").and_then(Value::as_str);
        let message = choice.get("message").or_else(|| choice.get("delta"));
        let has = |name: &str| match message.and_then(|message| message.get(name)) {
            Some(Value::Array(calls)) => !calls.is_empty(),
            other => other.is_some_and(Value::is_object),
        };
        if matches!(reason, Some("tool_calls" | "function_call")) || has("tool_calls") || has("function_call") {
            return Err(calls_tools());
        }
        let message = match message {
            Some(message) => Self::of_message(message),
            None => Self { text: choice.get("text").and_then(Value::as_str).map(str::to_owned), refusal: None },
        };
        let is_known = message.text.is_some() || message.refusal.is_some() || reason.is_some();
        Ok(is_known.then_some(message))
    }

    /// Finds the text of an answer that is no completion.
    fn find(value: &Value) -> Option<Self> {
        let text_of = |message: &Value| Some(Self::of_message(message)).filter(|message| !message.is_empty());
        if let Value::String(text) = value {
            return Some(Self { text: Some(text.clone()), refusal: None });
        }
        if let Some(Value::Array(messages)) = value.get("messages") {
            return messages.last().and_then(text_of);
        }
        TEXT_PROPERTIES.iter().find_map(|name| match value.get(name)? {
            Value::String(text) => Some(Self { text: Some(text.clone()), refusal: None }),
            nested @ Value::Object(_) => text_of(nested),
            _ => None,
        })
    }

    fn of_message(message: &Value) -> Self {
        let refusal = message.get("refusal").and_then(Value::as_str).map(str::to_owned);
        match message.get("content").or_else(|| message.get("text")) {
            Some(Value::String(text)) => Self { text: Some(text.clone()), refusal },
            Some(Value::Array(parts)) => {
                let text = parts.iter().filter_map(|part| part.as_str().or_else(|| part.get("text")?.as_str()));
                let refusals = parts.iter().filter_map(|part| part.get("refusal")?.as_str());
                let refused = Some(refusals.collect::<String>()).filter(|refusal| !refusal.is_empty());
                Self { text: Some(text.collect()), refusal: refusal.or(refused) }
            }
            _ => Self { text: None, refusal },
        }
    }

    fn is_empty(&self) -> bool {
        self.text.is_none() && self.refusal.is_none()
    }

    /// Returns the message as the answer that has it.
    fn into_answer(self, value: &Value) -> AgentAnswer {
        let Self { text, refusal } = self;
        let refusal = refusal.filter(|refusal| !refusal.is_empty());
        let text = text.filter(|text| !text.is_empty()).or_else(|| refusal.clone()).unwrap_or_default();
        AgentAnswer { text, refusal, ..AgentAnswer::of_end(value) }
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

    fn whole(answer: &Value) -> Result<AgentAnswer> {
        AgentAnswer::from_body(answer.to_string().as_bytes(), None)
    }

    fn event(data: &str) -> AgentAnswer {
        AgentAnswer::from_event(data.as_bytes(), None).unwrap()
    }

    #[test]
    fn the_text_is_found_where_agents_have_it() {
        let parts = json!([{"type": "text", "text": "H"}, {"type": "text", "text": "i"}]);
        for (answer, text) in [
            (json!("Hi"), "Hi"),
            (json!({"output": "Hi", "n": 1}), "Hi"),
            (json!({"message": {"role": "assistant", "content": "Hi"}}), "Hi"),
            (json!({"message": {"content": parts}}), "Hi"),
            (json!({"choices": [{"message": {"content": "Hi"}}]}), "Hi"),
            (json!({"choices": [{"message": {"content": parts}}]}), "Hi"),
            (json!({"choices": [{"text": "Hi"}]}), "Hi"),
            (json!({"messages": [{"content": "a"}, {"content": "Hi"}]}), "Hi"),
            (json!({"steps": 2}), "{\"steps\":2}"),
            (json!([1]), "[1]"),
        ] {
            assert_eq!(whole(&answer).unwrap().text, text, "{answer}");
        }
        for text in ["plain", "1.0", "1e2", "true", "null"] {
            assert_eq!(AgentAnswer::from_body(text.as_bytes(), None).unwrap().text, text);
        }
        assert!(AgentAnswer::from_body(&[0xff, 0xfe], None).is_err());
        let rule = OpenAiConfig { output: Some("/a/0".to_owned()), ..OpenAiConfig::default() };
        assert_eq!(AgentAnswer::from_body(b"{\"a\": [\"Hi\"]}", Some(&rule)).unwrap().text, "Hi");
        assert!(AgentAnswer::from_body(b"{}", Some(&rule)).is_err());
    }

    #[test]
    fn a_completion_of_the_agent_says_why_it_ends_and_its_refusal_is_a_text() {
        let cut = json!({"choices": [{"message": {"content": "H"}, "finish_reason": "length"}]});
        assert_eq!(
            (whole(&cut).unwrap().text.as_str(), whole(&cut).unwrap().finish),
            ("H", Some(FinishReason::Length))
        );
        let filtered = json!({"choices": [{"message": {"content": null}, "finish_reason": "content_filter"}]});
        let filtered = whole(&filtered).unwrap();
        assert_eq!((filtered.text.as_str(), filtered.finish), ("", Some(FinishReason::ContentFilter)));
        for message in [
            json!({"content": null, "refusal": "No"}),
            json!({"content": [{"type": "refusal", "refusal": "No"}]}),
            json!({"content": "", "refusal": "No"}),
        ] {
            let answer = whole(&json!({"choices": [{"message": message, "finish_reason": "stop"}]})).unwrap();
            assert_eq!((answer.text.as_str(), answer.refusal.as_deref()), ("No", Some("No")), "{message}");
        }
        let part = event(r#"{"choices": [{"delta": {"refusal": "N"}, "finish_reason": null}]}"#);
        assert_eq!((part.text.as_str(), part.refusal.as_deref(), part.finish), ("N", Some("N"), None));
        let end = event(r#"{"choices": [{"delta": {}, "finish_reason": "length"}]}"#);
        assert_eq!((end.text.as_str(), end.finish, end.is_known()), ("", Some(FinishReason::Length), true));
    }

    #[test]
    fn an_answer_that_calls_tools_is_a_fault_with_this_reason() {
        let calls = json!([{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]);
        for choice in [
            json!({"message": {"content": null, "tool_calls": calls}, "finish_reason": "tool_calls"}),
            json!({"message": {"content": "Hi", "tool_calls": calls}}),
            json!({"message": {"content": null, "function_call": {"name": "f"}}}),
            json!({"delta": {"tool_calls": calls}}),
            json!({"delta": {}, "finish_reason": "tool_calls"}),
        ] {
            let answer = json!({"choices": [choice]}).to_string();
            for fault in
                [AgentAnswer::from_body(answer.as_bytes(), None), AgentAnswer::from_event(answer.as_bytes(), None)]
            {
                let fault = fault.unwrap_err();
                assert_eq!(fault.http_status(), 502);
                assert!(fault.message().contains("calls tools"), "{answer}");
            }
        }
        let none = json!({"choices": [{"message": {"content": "Hi", "tool_calls": [], "function_call": null}}]});
        assert_eq!(whole(&none).unwrap().text, "Hi");
    }

    #[test]
    fn usage_is_what_the_agent_reports() {
        let usage = |usage: Value| whole(&json!({ "usage": usage })).unwrap().usage;
        assert_eq!(
            usage(json!({"prompt_tokens": 1, "completion_tokens": 2})),
            Some(TokenUsage { input: 1, output: 2 })
        );
        assert_eq!(usage(json!({"input_tokens": 1, "output_tokens": 2})), Some(TokenUsage { input: 1, output: 2 }));
        assert_eq!(usage(json!({"input_tokens": 1})), None);
    }

    #[test]
    fn r43_events_with_an_object_have_its_text_and_all_others_are_text_as_they_were_sent() {
        for (data, text) in [
            ("[DONE]", ""),
            (" [DONE] ", ""),
            ("{\"choices\": [{\"delta\": {\"content\": \"H\"}}]}", "H"),
            ("{\"choices\": [{\"delta\": {\"content\": [{\"type\": \"text\", \"text\": \"H\"}]}}]}", "H"),
            ("{\"delta\": \"H\"}", "H"),
            ("{\"token\": \"H\"}", "H"),
            ("{\"status\": \"working\"}", ""),
            ("{not json", "{not json"),
        ] {
            assert_eq!(event(data).text, text, "{data}");
        }
        for data in ["plain", "42", "1.0", "true", "null", "\"hi\"", " \"", "[1]", "[", "a\nb", " a ", "\n"] {
            assert_eq!(event(data).text, data);
        }
        let rule = OpenAiConfig { output: Some("/0".to_owned()), ..OpenAiConfig::default() };
        assert_eq!(AgentAnswer::from_event(b"[\"H\"]", Some(&rule)).unwrap().text, "H");
        assert_eq!(AgentAnswer::from_event(b"42", Some(&rule)).unwrap().text, "42");
    }

    #[test]
    fn r43_a_stream_that_is_read_whole_loses_no_text_and_has_an_event() {
        let read = |stream: &str| AgentAnswer::from_events(stream.as_bytes(), None);
        let stream = "\u{feff}data: I have \n\ndata: 42\rdata: \r\rdata: \"true\"\r\n\r\nevent: ping\n\ndata: end";
        assert_eq!(read(stream).unwrap().text, "I have 42\n\"true\"end");
        assert_eq!(read("").unwrap().text, "");
        for stream in ["<html>busy</html>", ": ping\n\n", "data: [DONE]\n\n", "{\"text\": \"Hi\"}\n"] {
            assert_eq!(read(stream).unwrap_err().http_status(), 502, "{stream}");
        }
    }

    #[test]
    fn parts_are_appended_and_the_last_reason_counts() {
        let mut answer = AgentAnswer::default();
        for data in
            [r#"{"delta": "a"}"#, r#"{"choices": [{"delta": {"refusal": "b"}, "finish_reason": "length"}]}"#, "c"]
        {
            answer.append(event(data));
        }
        assert_eq!((answer.text.as_str(), answer.refusal.as_deref()), ("abc", Some("b")));
        assert_eq!(answer.finish, Some(FinishReason::Length));
    }
}
