//! How a value is written that has a form of its own, such as a rate or a span of time: the schema describes it.

use serde_json::Value;

/// `message`, with what to write where a text of its own form is missing.
pub(super) fn added(path: &str, message: String) -> String {
    if !message.starts_with("must be a string") || message.contains("(write ") {
        return message;
    }
    match form(path) {
        Some(form) => format!("{message} (write {form})"),
        None => message,
    }
}

/// What the schema says of the value at `path`, if it is a text that must match a pattern.
fn form(path: &str) -> Option<String> {
    let root = super::schema();
    let mut schema = &root;
    for step in path.replace('[', ".[").split('.') {
        let inner = match step.starts_with('[') {
            true => schema.get("items")?,
            false => {
                let named = schema.get("properties").and_then(|all| all.get(step));
                named.or_else(|| schema.get("additionalProperties"))?
            }
        };
        // What may be left out is the first of two.
        let inner = inner.get("anyOf").and_then(|either| either.get(0)).unwrap_or(inner);
        let target = inner.get("$ref").and_then(Value::as_str).and_then(|to| root.pointer(to.strip_prefix('#')?));
        schema = target.unwrap_or(inner);
    }
    schema.get("pattern")?;
    let mut letters = schema.get("description")?.as_str()?.trim_end_matches('.').chars();
    Some(letters.next()?.to_lowercase().chain(letters).collect())
}
