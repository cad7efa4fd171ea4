//! Hints about the format of values such as rates and durations, taken from the schema's descriptions.

use serde_json::Value;

/// Appends the expected format to `message`, if the value at `path` must be a string of a particular format.
pub(super) fn add_format_hint(path: &str, message: String) -> String {
    if !message.starts_with("must be a string") || message.contains("(write ") {
        return message;
    }
    match format_description(path) {
        Some(form) => format!("{message} (write {form})"),
        None => message,
    }
}

/// Returns the schema's description of the value at `path`, if the value is a string that must match a pattern.
fn format_description(path: &str) -> Option<String> {
    let root = super::json_schema();
    let mut schema = &root;
    for step in path.replace('[', ".[").split('.') {
        let inner = match step.starts_with('[') {
            true => schema.get("items")?,
            false => {
                let named = schema.get("properties").and_then(|all| all.get(step));
                named.or_else(|| schema.get("additionalProperties"))?
            }
        };
        // An optional value is the first of two alternatives.
        let inner = inner.get("anyOf").and_then(|either| either.get(0)).unwrap_or(inner);
        let target = inner.get("$ref").and_then(Value::as_str).and_then(|to| root.pointer(to.strip_prefix('#')?));
        schema = target.unwrap_or(inner);
    }
    schema.get("pattern")?;
    let mut letters = schema.get("description")?.as_str()?.trim_end_matches('.').chars();
    Some(letters.next()?.to_lowercase().chain(letters).collect())
}
