//! The request for a completion, made of the input of a call.

use super::{config::EndpointConfig, model_operation::ModelOperation};
use crate::{
    fault::{Fault, FaultCode, Result},
    values::json,
};
use bytes::Bytes;
use serde_json::{Map, Value, json};

/// What a request is made of.
pub(super) struct ModelRequest<'a> {
    pub(super) config: &'a EndpointConfig,
    pub(super) model: &'a str,
    pub(super) operation: &'a ModelOperation,
    /// Whether the answer is a stream.
    pub(super) stream: bool,
}

impl ModelRequest<'_> {
    /// Returns the body of the request.
    ///
    /// # Errors
    /// 400 for an input that is not JSON, or of which no conversation can be made.
    pub(super) fn to_body(&self, input: &[u8]) -> Result<Bytes> {
        let mut messages = Vec::new();
        if let Some(system) = &self.config.system {
            messages.push(json!({"role": "system", "content": system}));
        }
        messages.extend(self.conversation(input)?);
        let mut body = self.config.parameters.clone();
        body.insert("model".to_owned(), self.model.into());
        body.insert("messages".to_owned(), messages.into());
        if let Some(format) = &self.operation.response_format {
            body.insert("response_format".to_owned(), format.clone());
        }
        if self.stream {
            body.insert("stream".to_owned(), true.into());
            body.insert("stream_options".to_owned(), json!({"include_usage": true}));
        }
        Ok(Value::Object(body).to_string().into())
    }

    /// Returns the messages that the input stands for.
    fn conversation(&self, input: &[u8]) -> Result<Vec<Value>> {
        let value = json::parse(input, json::MAX_DEPTH)
            .map_err(|why| Fault::new(FaultCode::InvalidInput, format!("The input is not valid JSON: {why}")))?;
        if let Some(name) = &self.config.input {
            let Some(value) = value.get(name) else {
                return Err(Fault::new(FaultCode::InvalidInput, format!("The input has no property {name}")));
            };
            return match value {
                Value::String(text) => Ok(vec![user_message(text)]),
                Value::Array(messages) => check_messages(messages),
                other => Ok(vec![user_message(&other.to_string())]),
            };
        }
        match &value {
            Value::String(text) => return Ok(vec![user_message(text)]),
            Value::Object(members) => match self.only_member(members) {
                Some(("messages", Value::Array(messages))) => return check_messages(messages),
                Some((name, Value::String(text))) if self.operation.text_property.as_deref() == Some(name) => {
                    return Ok(vec![user_message(text)]);
                }
                _ => {}
            },
            _ => {}
        }
        // The caller's own bytes, so that no number changes.
        Ok(vec![user_message(String::from_utf8_lossy(input).trim())])
    }

    /// Returns the only member of the input. The name of the operation is none, unless the schema declares it.
    fn only_member<'i>(&self, members: &'i Map<String, Value>) -> Option<(&'i str, &'i Value)> {
        let is_input = |name: &str| name != "operation" || self.operation.declares_operation;
        let mut input = members.iter().filter(|(name, _)| is_input(name));
        let (name, value) = input.next()?;
        input.next().is_none().then_some((name.as_str(), value))
    }
}

/// Returns the messages of a conversation as they are.
fn check_messages(messages: &[Value]) -> Result<Vec<Value>> {
    let is_message = |message: &Value| message.get("role").is_some_and(Value::is_string);
    if messages.is_empty() || !messages.iter().all(is_message) {
        let message = "The conversation must be a list of at least one message with a role";
        return Err(Fault::new(FaultCode::InvalidInput, message));
    }
    Ok(messages.to_vec())
}

fn user_message(text: &str) -> Value {
    json!({"role": "user", "content": text})
}
