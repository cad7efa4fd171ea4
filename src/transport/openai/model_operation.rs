//! An operation of an agent, as far as requests to its server depend on it.

use super::{
    config::{AnswerForm, EndpointConfig},
    default_contract::declared_output,
};
use crate::agent::Operation;
use serde_json::{Value, json};
use std::sync::Arc;

/// An operation, compiled when the agent's record is read.
#[derive(Debug)]
pub(super) struct ModelOperation {
    pub(super) name: Arc<str>,
    /// The only property of the input besides `messages`, if it is a text.
    pub(super) text_property: Option<Box<str>>,
    /// Whether the input schema declares `operation`, which otherwise only names the operation.
    pub(super) declares_operation: bool,
    /// Whether the model's answer is the result itself, and not a text.
    pub(super) answers_with_json: bool,
    /// The form in which the server is asked to answer.
    pub(super) response_format: Option<Value>,
}

impl ModelOperation {
    pub(super) fn compile(operation: &Operation, config: &EndpointConfig) -> Self {
        let properties = operation.inputs.as_deref().and_then(|schema| schema.get("properties")?.as_object());
        let output = declared_output(operation);
        let default_form = if output.is_some() { AnswerForm::Json } else { AnswerForm::Text };
        let form = config.output.unwrap_or(default_form);
        let response_format = match (form, output) {
            (AnswerForm::Text, _) => None,
            (AnswerForm::Json, Some(schema)) => {
                Some(json!({"type": "json_schema", "json_schema": {"name": "output", "schema": **schema}}))
            }
            (AnswerForm::Json, None) | (AnswerForm::JsonObject, _) => Some(json!({"type": "json_object"})),
        };
        let mut others = properties.into_iter().flatten().filter(|(name, _)| *name != "messages");
        let only = others.next().filter(|_| others.next().is_none());
        Self {
            name: Arc::clone(&operation.name),
            text_property: only.filter(|(_, schema)| is_text(schema)).map(|(name, _)| name.as_str().into()),
            declares_operation: properties.is_some_and(|properties| properties.contains_key("operation")),
            answers_with_json: form != AnswerForm::Text,
            response_format,
        }
    }
}

fn is_text(schema: &Value) -> bool {
    schema.get("type").is_some_and(|kind| kind == "string")
}
