//! The messages of a conversation, as chat completions and responses have them.

use crate::fault::{Fault, FaultCode, Result};
use serde_json::{Value, json};

/// The member of a fault that names the parameter of the request.
pub(super) const PARAMETER_MEMBER: &str = "param";
/// The most messages of a conversation.
const MAX_MESSAGES: usize = 10_000;

/// The messages of a conversation, in their order; at least one.
#[derive(Debug, PartialEq)]
pub(super) struct Conversation {
    messages: Vec<Message>,
}

#[derive(Debug, PartialEq)]
struct Message {
    role: Box<str>,
    text: String,
}

impl Conversation {
    /// Reads the messages of a list. `member` names the list in faults.
    ///
    /// # Errors
    /// 400 for a message that is malformed, or has content other than text.
    pub(super) fn from_messages(messages: &Value, member: &str) -> Result<Self> {
        let Some(items) = messages.as_array().filter(|items| !items.is_empty()) else {
            return Err(refuse(format!("{member} must be a list with at least one message"), member));
        };
        if items.len() > MAX_MESSAGES {
            return Err(refuse(format!("{member} has more than {MAX_MESSAGES} messages"), member));
        }
        let mut messages = Vec::with_capacity(items.len());
        for (at, item) in items.iter().enumerate() {
            messages.extend(Message::parse(item, &format!("{member}[{at}]"))?);
        }
        if messages.is_empty() {
            return Err(refuse(format!("{member} has no message with a text"), member));
        }
        Ok(Self { messages })
    }

    /// Returns a conversation of one message of the user.
    pub(super) fn from_text(text: &str) -> Self {
        Self { messages: vec![Message { role: "user".into(), text: text.to_owned() }] }
    }

    /// Puts instructions before the messages.
    pub(super) fn prepend_instructions(&mut self, text: &str) {
        self.messages.insert(0, Message { role: "system".into(), text: text.to_owned() });
    }

    /// Returns the conversation as one text: the text of a single message, else one paragraph for each message, which
    /// begins with its role.
    pub(super) fn to_text(&self) -> String {
        if let [only] = self.messages.as_slice() {
            return only.text.clone();
        }
        let paragraphs: Vec<String> =
            self.messages.iter().map(|message| format!("{}: {}", message.role, message.text)).collect();
        paragraphs.join("\n\n")
    }

    /// Returns the messages as a list with `role` and `content`.
    pub(super) fn to_messages(&self) -> Value {
        self.messages.iter().map(|message| json!({"role": message.role, "content": message.text})).collect()
    }
}

impl Message {
    /// Reads a message; `None` for one of the assistant without a text, which SDKs keep in their histories.
    fn parse(message: &Value, place: &str) -> Result<Option<Self>> {
        let at_role = format!("{place}.role");
        let role = match message.get("role") {
            None => "user",
            Some(Value::String(role)) => role,
            Some(_) => return Err(refuse(format!("{at_role} must be a text"), &at_role)),
        };
        if !matches!(role, "system" | "developer" | "user" | "assistant") {
            return Err(refuse(format!("{at_role}: messages of the role {role} cannot be passed on"), &at_role));
        }
        let content = message.get("content").unwrap_or(&Value::Null);
        if role == "assistant" && content.is_null() {
            let calls = ["tool_calls", "function_call"].into_iter().find(|name| {
                message
                    .get(name)
                    .is_some_and(|calls| !calls.is_null() && calls.as_array().is_none_or(|list| !list.is_empty()))
            });
            if let Some(name) = calls {
                let place = format!("{place}.{name}");
                return Err(refuse(format!("{place}: calls of tools cannot be passed on"), &place));
            }
            let refusal = message.get("refusal").and_then(Value::as_str);
            return Ok(refusal.map(|refusal| Self { role: role.into(), text: refusal.to_owned() }));
        }
        Ok(Some(Self { role: role.into(), text: text_of(content, &format!("{place}.content"))? }))
    }
}

/// Returns the text of a message: a string, or parts of text.
fn text_of(content: &Value, place: &str) -> Result<String> {
    match content {
        Value::String(text) => Ok(text.clone()),
        Value::Array(parts) => {
            let texts = parts.iter().enumerate().map(|(at, part)| {
                let is_text = matches!(part["type"].as_str(), Some("text" | "input_text" | "output_text"));
                part["text"]
                    .as_str()
                    .filter(|_| is_text)
                    .ok_or_else(|| refuse(format!("{place}[{at}]: only text can be passed on to agents"), place))
            });
            Ok(texts.collect::<Result<Vec<_>>>()?.concat())
        }
        _ => Err(refuse(format!("{place} must be a text or a list of texts"), place)),
    }
}

/// Returns the fault for a parameter, which names it.
pub(super) fn refuse(message: String, parameter: &str) -> Fault {
    Fault::new(FaultCode::InvalidInput, message).with_member(PARAMETER_MEMBER, json!(parameter))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_message_is_its_text_and_several_are_a_transcript() {
        let one = Conversation::from_messages(&json!([{"role": "user", "content": "Hi"}]), "messages").unwrap();
        assert_eq!(one.to_text(), "Hi");
        let several = json!([
            {"role": "system", "content": "Be brief"},
            {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        ]);
        let several = Conversation::from_messages(&several, "messages").unwrap();
        assert_eq!(several.to_text(), "system: Be brief\n\nuser: ab");
        assert_eq!(
            several.to_messages(),
            json!([{"role": "system", "content": "Be brief"}, {"role": "user", "content": "ab"}])
        );
    }

    #[test]
    fn messages_that_agents_cannot_get_are_refused_by_their_place() {
        for (messages, message) in [
            (json!([]), "messages must be a list with at least one message"),
            (json!("Hi"), "messages must be a list with at least one message"),
            (
                json!([{"role": "tool", "content": "x"}]),
                "messages[0].role: messages of the role tool cannot be passed on",
            ),
            (json!([{"role": "user"}]), "messages[0].content must be a text or a list of texts"),
            (
                json!([{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]),
                "messages[0].content[0]: only text can be passed on to agents",
            ),
        ] {
            assert_eq!(Conversation::from_messages(&messages, "messages").unwrap_err().message(), message);
        }
        for role in [json!(5), json!(null), json!("tool")] {
            let messages = json!([{"role": "user", "content": "Hi"}, {"role": role, "content": "Hi"}]);
            let fault = Conversation::from_messages(&messages, "messages").unwrap_err();
            assert!(fault.extra_members().any(|member| member == ("param", &json!("messages[1].role"))), "{role}");
        }
    }

    #[test]
    fn a_message_of_the_assistant_without_a_text_is_left_out_and_its_refusal_is_a_text() {
        let read = |history: Value| Conversation::from_messages(&history, "messages");
        let user = json!({"role": "user", "content": "Hi"});
        for empty in [
            json!({"role": "assistant", "content": null}),
            json!({"role": "assistant", "content": null, "refusal": null, "tool_calls": []}),
            json!({"role": "assistant"}),
        ] {
            assert_eq!(read(json!([empty, user])).unwrap().to_text(), "Hi");
            assert_eq!(read(json!([empty])).unwrap_err().http_status(), 400);
        }
        let refused = json!({"role": "assistant", "content": null, "refusal": "No"});
        assert_eq!(read(json!([refused, user])).unwrap().to_text(), "assistant: No\n\nuser: Hi");
        let calls = json!({"role": "assistant", "content": null, "tool_calls": [{"id": "1"}]});
        assert_eq!(
            read(json!([calls, user])).unwrap_err().message(),
            "messages[0].tool_calls: calls of tools cannot be passed on"
        );
        assert!(read(json!([{"role": "user", "content": null}])).is_err());
    }
}
