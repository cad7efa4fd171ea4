//! Deserialises the configuration and reports every problem of form at once: removes each value that serde refuses,
//! deserialises the rest again, and validates the whole against the JSON Schema, which has further rules such as
//! minimum lengths. The modules check the meaning of their settings.

use super::{
    config_problem::ConfigProblem,
    gateway_config::{GatewayConfig, json_schema},
    key_path::{join_path, pointer_to_path},
    yaml_text::ConfigText,
};
use crate::{contract::CompiledSchema, values::ConfigPath};
use serde_json::Value;
use serde_path_to_error::Segment;
use std::path::Path;

/// Maximum number of reported problems per file.
const MAX_PROBLEMS: usize = 100;

/// Deserialises the settings, and resolves relative paths against `folder`.
pub(super) fn deserialize(config_text: &ConfigText, folder: &Path) -> Result<GatewayConfig, Vec<ConfigProblem>> {
    if !config_text.value.is_object() {
        return Err(vec![
            config_text.locate_problem("", "must be an object, such as 'listeners: …' and 'agents: …'".to_owned()),
        ]);
    }
    let mut remaining = RemainingValue { value: config_text.value.clone(), removed_paths: Vec::new() };
    let mut unlocated_problems: Vec<(String, String)> = Vec::new();
    let mut config = None;
    while unlocated_problems.len() < MAX_PROBLEMS {
        let result = ConfigPath::with_base_folder(folder, || serde_path_to_error::deserialize(remaining.value.clone()));
        let why = match result {
            Ok(parsed) => {
                config = Some(parsed);
                break;
            }
            Err(why) => why,
        };
        let steps: Vec<Segment> = why.path().iter().cloned().collect();
        let (path, why) = (remaining.original_path(&steps), why.into_inner().to_string());
        let is_consequence =
            missing_field_name(&why).is_some_and(|name| remaining.removed_paths.contains(&join_path(&path, name)));
        // The validation against the schema reports the sections that are missing.
        let is_reported_below = steps.is_empty() && missing_field_name(&why).is_some();
        if !is_consequence && !is_reported_below {
            unlocated_problems.push((path.clone(), rephrase_for_setting(&path, &why)));
        }
        if !remaining.remove(&steps, path) {
            break;
        }
    }
    let violations =
        CompiledSchema::compile(&json_schema()).map(|schema| schema.validate_up_to(&config_text.value, MAX_PROBLEMS));
    for violation in
        violations.map_err(|why| vec![config_text.locate_problem("", format!("the schema is invalid ({why})"))])?
    {
        let path = pointer_to_path(&violation.pointer, &config_text.value);
        let is_reported =
            unlocated_problems.iter().any(|(other, _)| other.starts_with(&path) || path.starts_with(other.as_str()));
        let is_missing_section = path.is_empty() && violation.message.starts_with("required");
        if is_missing_section || !is_reported {
            unlocated_problems.push((path, violation.message));
        }
    }
    let mut problems: Vec<ConfigProblem> =
        unlocated_problems.into_iter().map(|(path, why)| config_text.locate_problem(&path, why)).collect();
    if let (Some(config), true) = (config, problems.is_empty()) {
        return Ok(config);
    }
    problems.sort_by_key(|problem| problem.line.unwrap_or(u64::MAX));
    Err(problems)
}

/// The value without the parts that were refused.
struct RemainingValue {
    value: Value,
    /// Paths of the removed parts in the file.
    removed_paths: Vec<String>,
}

impl RemainingValue {
    /// Returns the path in the file: its indices include the list items that were removed.
    fn original_path(&self, steps: &[Segment]) -> String {
        let mut path = String::new();
        for step in steps {
            match step {
                Segment::Seq { index } => {
                    let is_removed = |at: usize| self.removed_paths.contains(&format!("{path}[{at}]"));
                    let at = (0..).filter(|at| !is_removed(*at)).nth(*index).unwrap_or(*index);
                    path.push_str(&format!("[{at}]"));
                }
                Segment::Map { key } | Segment::Enum { variant: key } => path = join_path(&path, key),
                Segment::Unknown => {}
            }
        }
        path
    }

    /// Removes a value; returns whether it existed.
    fn remove(&mut self, steps: &[Segment], path: String) -> bool {
        let Some((last, parents)) = steps.split_last() else {
            return false;
        };
        let mut value = &mut self.value;
        for step in parents {
            let next = match step {
                Segment::Seq { index } => value.get_mut(*index),
                Segment::Map { key } | Segment::Enum { variant: key } => value.get_mut(key.as_str()),
                Segment::Unknown => None,
            };
            match next {
                Some(next) => value = next,
                None => return false,
            }
        }
        let removed_value = match (value, last) {
            (Value::Array(items), Segment::Seq { index }) if *index < items.len() => Some(items.remove(*index)),
            (Value::Object(members), Segment::Map { key } | Segment::Enum { variant: key }) => members.remove(key),
            _ => None,
        };
        self.removed_paths.push(path);
        removed_value.is_some()
    }
}

fn missing_field_name(why: &str) -> Option<&str> {
    why.strip_prefix("missing field `")?.strip_suffix('`')
}

/// Rephrases a message of serde for the setting at `path`. A user name is no secret, although it is written like one.
fn rephrase_for_setting(path: &str, why: &str) -> String {
    let message = rephrase_serde_error(why);
    match message.strip_prefix("must be a reference to a secret, not the secret itself") {
        Some(hint) if path.ends_with(".username") => {
            format!("must be a reference, like that of the password, and not the name itself{hint}")
        }
        _ => message,
    }
}

/// Rephrases a message of serde in the terms of YAML. Never repeats a value of a wrong type, which may be a secret.
fn rephrase_serde_error(why: &str) -> String {
    if let Some(name) = missing_field_name(why) {
        return format!("required property '{name}' is missing");
    }
    if why == "invalid socket address syntax" {
        return "is not an address and a port (write 127.0.0.1:8080 or [::1]:8080)".to_owned();
    }
    let mismatch = why.strip_prefix("invalid type: ").or_else(|| why.strip_prefix("invalid value: "));
    let Some((actual, expected)) = mismatch.and_then(|rest| rest.rsplit_once(", expected ")) else {
        return why.replace('`', "'");
    };
    let actual = match actual.split(['`', '"']).next().unwrap_or_default().trim_end() {
        "null" => return "is empty (set its members, or remove it)".to_owned(),
        "map" => "an object",
        "sequence" => "a list",
        "boolean" => "a boolean",
        "string" => "this string",
        _ => "this number",
    };
    let expected = match expected {
        text if text.starts_with("struct ") || text == "a map" => "an object",
        text if text.starts_with("a nonzero ") => "an integer of 1 or more",
        "usize" => "an integer",
        text if text.starts_with(['u', 'i']) && text.contains(|c: char| c.is_ascii_digit()) => "an integer",
        "a sequence" => "a list",
        "string or map" => "a string",
        text => text,
    };
    format!("must be {expected}, not {actual}")
}
