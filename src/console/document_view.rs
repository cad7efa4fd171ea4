//! Documents of agents and their parts as indented JSON, without secrets. Operators may read where agents are; what looks
//! like a credential is redacted, also in addresses.

use crate::{telemetry::redact_agent_text, values::json::pretty_beginning};
use maud::{Markup, html};
use serde_json::{Map, Value};
use std::borrow::Cow;

/// Maximum bytes of one value.
const MAX_VALUE_BYTES: usize = 64 << 10;

/// Maximum bytes of all values of a page.
const MAX_PAGE_BYTES: usize = 1 << 20;

/// Shows values, up to a length of all together.
pub(super) struct DocumentView {
    remaining: usize,
}

impl DocumentView {
    pub(super) fn new() -> Self {
        Self { remaining: MAX_PAGE_BYTES }
    }

    /// Returns a part of the page that a click on `summary` unfolds.
    pub(super) fn show(&mut self, summary: &str, value: &Value) -> Markup {
        let (shown, is_all) = pretty_beginning(&redact_value(value.clone()), MAX_VALUE_BYTES.min(self.remaining));
        self.remaining -= shown.len();
        html! {
            details {
                summary { (summary) }
                pre tabindex="0" { (shown) @if !is_all { "\n… the rest is too long for this page" } }
            }
        }
    }
}

/// Redacts every text of a value.
pub(super) fn redact_value(value: Value) -> Value {
    match value {
        Value::String(text) => redact_agent_text(&text).into_owned().into(),
        Value::Array(items) => items.into_iter().map(redact_value).collect(),
        Value::Object(members) => {
            let members = members.into_iter().map(|(name, member)| redact_member(&name, member));
            Value::Object(members.collect::<Map<String, Value>>())
        }
        other => other,
    }
}

fn redact_member(name: &str, member: Value) -> (String, Value) {
    let member = match member {
        Value::String(text) if is_secret(name, &text) => "[redacted]".into(),
        other => redact_value(other),
    };
    (redact_agent_text(name).into_owned(), member)
}

/// Returns whether a member with this name holds a secret, in whatever form.
fn is_secret(name: &str, text: &str) -> bool {
    // The redaction of texts recognises a name before its value.
    !text.is_empty() && matches!(redact_agent_text(&format!("{name}=\"value\"")), Cow::Owned(_))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn secrets_of_a_document_are_redacted_and_its_schemas_stay() {
        let document = json!({
            "endpoint": "https://user:hunter2@agent.example/invoke",
            "authentication": {"type": "api_key", "api_key": "value with spaces"},
            "description": "Send Authorization: Bearer abcdefghijklmnop",
            "examples": [{"input": {"password": "x", "count": 3}}],
            "inputs": {"properties": {"token": {"type": "string"}, "text": {"type": "string"}}, "required": ["token"]},
        });
        let redacted = redact_value(document.clone());
        let text = redacted.to_string();
        for secret in ["hunter2", "value with spaces", "abcdefghijklmnop", "\"x\""] {
            assert!(!text.contains(secret), "{secret}: {text}");
        }
        assert!(text.contains("agent.example/invoke"), "operators read where the agent is: {text}");
        assert_eq!(redacted["inputs"], document["inputs"]);
        assert_eq!(redacted["authentication"]["type"], "api_key");
    }

    #[test]
    fn long_values_are_cut_and_a_page_has_a_bound() {
        let mut view = DocumentView::new();
        let long: Value = "é".repeat(MAX_VALUE_BYTES).into();
        let pages: Vec<usize> = (0..30).map(|_| view.show("Long", &long).into_string().len()).collect();
        assert!(pages.iter().sum::<usize>() < MAX_PAGE_BYTES + 30 * 200, "{pages:?}");
        assert!(view.show("<b>", &json!("<script>")).into_string().starts_with("<details><summary>&lt;b&gt;"));
    }
}
