//! Deserialises the configuration and reports all problems of form at once: removes each value that serde refuses and
//! deserialises the rest again, then validates against the JSON Schema for rules that only it knows, such as minimum
//! lengths. Checks nothing about the meaning of a setting.

use super::{ConfigProblem, GatewayConfig, config_text::ConfigText, locate_problem};
use crate::{contract::CompiledSchema, values::ConfigPath};
use serde_json::Value;
use serde_path_to_error::Segment;
use std::path::Path;

/// Maximum number of reported problems per file.
const MAX_PROBLEMS: usize = 100;

/// Deserialises the settings; relative paths are resolved against `base`.
pub(super) fn deserialize(source: &ConfigText, base: &Path) -> Result<GatewayConfig, Vec<ConfigProblem>> {
    if !source.value.is_object() {
        return Err(vec![locate_problem(
            source,
            "",
            "must be an object, such as 'listeners: …' and 'agents: …'".to_owned(),
        )]);
    }
    let mut rest = RemainingValue { value: source.value.clone(), removed_paths: Vec::new() };
    let mut found: Vec<(String, String)> = Vec::new();
    let mut good = None;
    while found.len() < MAX_PROBLEMS {
        let read = ConfigPath::with_base_folder(base, || serde_path_to_error::deserialize(rest.value.clone()));
        let why = match read {
            Ok(file) => {
                good = Some(file);
                break;
            }
            Err(why) => why,
        };
        let steps: Vec<Segment> = why.path().iter().cloned().collect();
        let (path, why) = (rest.original_path(&steps), why.into_inner().to_string());
        let follows = missing_field_name(&why)
            .is_some_and(|name| rest.removed_paths.contains(&super::config_text::join_path(&path, name)));
        // The schema reports everything that is missing at the top level.
        let told_below = steps.is_empty() && missing_field_name(&why).is_some();
        if !follows && !told_below {
            found.push((path.clone(), rephrase_serde_error(&why)));
        }
        if !rest.remove(&steps, path) {
            break;
        }
    }
    let violations =
        CompiledSchema::compile(&super::json_schema()).map(|schema| schema.validate_up_to(&source.value, MAX_PROBLEMS));
    for violation in
        violations.map_err(|why| vec![locate_problem(source, "", format!("the schema is invalid ({why})"))])?
    {
        let path = super::pointer_to_path(&violation.pointer, &source.value);
        let known = found.iter().any(|(other, _)| other.starts_with(&path) || path.starts_with(other.as_str()));
        let absent = path.is_empty() && violation.message.starts_with("required");
        if absent || !known {
            found.push((path, violation.message));
        }
    }
    let mut problems: Vec<ConfigProblem> =
        found.into_iter().map(|(path, why)| locate_problem(source, &path, why)).collect();
    problems.extend_from_slice(source.conflicts());
    if let (Some(file), true) = (good, problems.is_empty()) {
        return Ok(file);
    }
    problems.sort_by_key(|problem| problem.line.unwrap_or(u64::MAX));
    Err(problems)
}

/// The part of the value that has not been refused yet.
struct RemainingValue {
    value: Value,
    /// The removed paths, as they are in the file.
    removed_paths: Vec<String>,
}

impl RemainingValue {
    /// Returns the path in the file: indices count the list items that were removed before.
    fn original_path(&self, steps: &[Segment]) -> String {
        let mut path = String::new();
        for step in steps {
            match step {
                Segment::Seq { index } => {
                    let taken = |at: usize| self.removed_paths.contains(&format!("{path}[{at}]"));
                    let at = (0..).filter(|at| !taken(*at)).nth(*index).unwrap_or(*index);
                    path.push_str(&format!("[{at}]"));
                }
                Segment::Map { key } | Segment::Enum { variant: key } => {
                    path = super::config_text::join_path(&path, key)
                }
                Segment::Unknown => {}
            }
        }
        path
    }

    /// Removes a value; returns whether it existed.
    fn remove(&mut self, steps: &[Segment], path: String) -> bool {
        let Some((last, above)) = steps.split_last() else {
            return false;
        };
        let mut value = &mut self.value;
        for step in above {
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
        let taken = match (value, last) {
            (Value::Array(items), Segment::Seq { index }) if *index < items.len() => Some(items.remove(*index)),
            (Value::Object(members), Segment::Map { key } | Segment::Enum { variant: key }) => members.remove(key),
            _ => None,
        };
        self.removed_paths.push(path);
        taken.is_some()
    }
}

fn missing_field_name(why: &str) -> Option<&str> {
    why.strip_prefix("missing field `")?.strip_suffix('`')
}

/// Rephrases serde's message for people who write YAML. Never repeats a value of a wrong type, which may be a secret.
fn rephrase_serde_error(why: &str) -> String {
    if let Some(name) = missing_field_name(why) {
        return format!("required property '{name}' is missing");
    }
    if why == "invalid socket address syntax" {
        return "is not an address and a port (write 127.0.0.1:8080 or [::1]:8080)".to_owned();
    }
    let refused = why.strip_prefix("invalid type: ").or_else(|| why.strip_prefix("invalid value: "));
    let Some((given, expected)) = refused.and_then(|rest| rest.rsplit_once(", expected ")) else {
        return why.replace('`', "'");
    };
    let given = match given.split(['`', '"']).next().unwrap_or_default().trim_end() {
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
    format!("must be {expected}, not {given}")
}
