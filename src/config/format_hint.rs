//! Hints about the format of values such as rates and durations, taken from the schema's descriptions.

use super::{key_path::join_path, renamed_keys};
use serde_json::Value;

/// Appends the expected format to `message`, if the value at `path` must be a string of a particular format.
pub(super) fn add_format_hint(path: &str, message: String) -> String {
    if !message.starts_with("must be a string") || message.contains("(write ") {
        return message;
    }
    match format_description(path) {
        Some(format) => format!("{message} (write {format})"),
        None => message,
    }
}

/// Appends where a key belongs, if `path` is a rule's key that stands one level too high.
pub(super) fn add_place_hint(path: &str, message: String) -> String {
    let key = path.strip_prefix("agents.rules[").and_then(|rest| rest.split_once("].")).map(|(_, key)| key);
    let is_setting = |key: &str| {
        let root = super::gateway_config::json_schema();
        root.pointer("/$defs/TransportConfig/properties").is_some_and(|settings| settings.get(key).is_some())
    };
    match key.filter(|key| message.starts_with("unknown field") && is_setting(key)) {
        Some(key) => format!("unknown field '{key}' (write it below settings: settings: {{{key}: …}})"),
        None => message,
    }
}

/// Settings that ended, and what has taken their place.
const ENDED: &[(&str, &str)] = &[(
    "contract.heavy_checks",
    "has ended: contract.suspended_checks bounds the checks that take long, and contract.fuel the work of each",
)];

/// Names the successor of a setting that ended or has another name, if `path` is one.
pub(super) fn add_successor_hint(path: &str, message: String) -> String {
    if !message.starts_with("unknown field") {
        return message;
    }
    if let Some((_, successor)) = ENDED.iter().find(|(ended, _)| *ended == path) {
        return (*successor).to_owned();
    }
    let (section, key) = path.rsplit_once('.').unwrap_or(("", path));
    match renamed_keys::current_name(section, key) {
        Some(current) => format!("is now '{}'", join_path(section, current)),
        None => message,
    }
}

/// Returns the schema's description of the value at `path`, if the value is a string that must match a pattern.
fn format_description(path: &str) -> Option<String> {
    let root = super::gateway_config::json_schema();
    let mut schema = &root;
    for step in path.replace('[', ".[").split('.') {
        let child = if step.starts_with('[') {
            schema.get("items")?
        } else {
            let property = schema.get("properties").and_then(|properties| properties.get(step));
            property.or_else(|| schema.get("additionalProperties"))?
        };
        // An optional value is the first of two alternatives.
        let child = child.get("anyOf").and_then(|alternatives| alternatives.get(0)).unwrap_or(child);
        let target =
            child.get("$ref").and_then(Value::as_str).and_then(|reference| root.pointer(reference.strip_prefix('#')?));
        schema = target.unwrap_or(child);
    }
    schema.get("pattern")?;
    let mut letters = schema.get("description")?.as_str()?.trim_end_matches('.').chars();
    Some(letters.next()?.to_lowercase().chain(letters).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_beside_its_section_is_named_with_its_place() {
        let message = || "unknown field 'timeouts', expected one of 'agents', 'settings'".to_owned();
        let hinted = add_place_hint("agents.rules[1].timeouts", message());
        assert_eq!(hinted, "unknown field 'timeouts' (write it below settings: settings: {timeouts: …})");
        for path in ["agents.timeouts", "agents.rules[1].nonsense", "agents.rules[1].settings.timeouts"] {
            assert_eq!(add_place_hint(path, message()), message(), "{path}");
        }
    }
}
