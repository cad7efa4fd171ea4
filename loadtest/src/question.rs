//! What is asked wherever something is measured: a body, and the schema that it satisfies.

use serde_json::{Value, json};

/// Bytes of a question.
pub(crate) const QUESTION: usize = 200;

/// What a question has to be. The language is one of three.
pub(crate) fn schema() -> Value {
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

/// [`QUESTION`] bytes that ask for a language of two letters.
pub(crate) fn question(language: &str) -> String {
    let (head, tail) = ("{\"text\":\"", format!("\",\"target_language\":\"{language}\",\"formal\":true}}"));
    format!("{head}{}{tail}", "x".repeat(QUESTION - head.len() - tail.len()))
}
