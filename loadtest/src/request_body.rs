//! The request body of every measured call, and the schema that the body satisfies.

use serde_json::{Value, json};

/// Bytes of a request body.
pub(crate) const REQUEST_BODY_SIZE: usize = 200;

/// The JSON Schema of the request body. The language is one of three.
pub(crate) fn input_schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "text": { "type": "string", "minLength": 1, "maxLength": 4000 },
            "target_language": { "type": "string", "enum": ["en", "fr", "zh"] },
            "formal": { "type": "boolean" },
        },
        "required": ["text", "target_language"],
        "additionalProperties": false,
    })
}

/// Builds a body of [`REQUEST_BODY_SIZE`] bytes with a language code of two letters.
pub(crate) fn request_body(language: &str) -> String {
    let (head, tail) = ("{\"text\":\"", format!("\",\"target_language\":\"{language}\",\"formal\":true}}"));
    format!("{head}{}{tail}", "x".repeat(REQUEST_BODY_SIZE - head.len() - tail.len()))
}
