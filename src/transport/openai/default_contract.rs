//! The contract of agents whose documents declare none: the directory tells callers what to send, and what they get.

use super::config::{AnswerForm, EndpointConfig};
use crate::agent::{Agent, Operation};
use serde_json::{Value, json};
use std::sync::{Arc, LazyLock};

/// The input of an operation that declares none.
static DEFAULT_INPUT: LazyLock<Arc<Value>> = LazyLock::new(|| {
    Arc::new(json!({
        "type": "object",
        "description": "A message or a conversation for a language model. Any other object is a message as JSON.",
        "properties": {
            "message": {"type": "string", "description": "A message of the user."},
            "messages": {
                "type": "array",
                "minItems": 1,
                "description": "A conversation, instead of a message.",
                "items": {
                    "type": "object",
                    "properties": {
                        "role": {"enum": ["system", "developer", "user", "assistant"]},
                        "content": {"type": "string"},
                    },
                    "required": ["role", "content"],
                    "additionalProperties": false,
                },
            },
        },
        "minProperties": 1,
        "examples": [{"message": "What is a tide?"}],
    }))
});

/// The output of an operation that declares none.
static DEFAULT_OUTPUT: LazyLock<Arc<Value>> = LazyLock::new(|| {
    let count = || json!({"type": "integer", "minimum": 0});
    Arc::new(json!({
        "type": "object",
        "properties": {
            "output": {"type": "string", "description": "The model's answer."},
            "usage": {
                "type": "object",
                "description": "The numbers of tokens, where the server reports them.",
                "properties": {"input_tokens": count(), "output_tokens": count()},
            },
        },
        "required": ["output"],
    }))
});

/// Returns the agent with schemas for the operations that declare none.
pub fn with_default_contract(agent: Arc<Agent>, config: &EndpointConfig) -> Arc<Agent> {
    let lacks = |operation: &Operation| operation.inputs.is_none() || operation.outputs.is_none();
    if !agent.operations.iter().any(lacks) {
        return agent;
    }
    let mut agent = Arc::unwrap_or_clone(agent);
    let is_text = matches!(config.output, None | Some(AnswerForm::Text));
    for operation in &mut agent.operations {
        operation.inputs.get_or_insert_with(|| match &config.input {
            None => Arc::clone(&DEFAULT_INPUT),
            Some(property) => Arc::new(input_with(property)),
        });
        if is_text {
            operation.outputs.get_or_insert_with(|| Arc::clone(&DEFAULT_OUTPUT));
        }
    }
    Arc::new(agent)
}

/// Returns the input schema for a rule that names the property with the message.
fn input_with(property: &str) -> Value {
    let text = json!({"type": "string", "description": "A message for a language model."});
    json!({"type": "object", "properties": {property: text}, "required": [property]})
}

/// Returns the output schema that the document declares.
pub(super) fn declared_output(operation: &Operation) -> Option<&Arc<Value>> {
    operation.outputs.as_ref().filter(|schema| ***schema != **DEFAULT_OUTPUT)
}
