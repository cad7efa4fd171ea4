//! Overrides from the environment: a variable such as `GATEPOST__LIMITS__PER_CALLER` replaces one setting of the file.

use super::{key_path::join_path, yaml_text::ConfigText};
use serde_json::{Map, Value};

/// The prefix of variables that override the file: `GATEPOST__LIMITS__PER_CALLER=10/s`.
const ENV_PREFIX: &str = "GATEPOST__";

/// The beginning of variables that are meant as overrides, where they have two underscores elsewhere.
const NEAR_PREFIX: &str = "GATEPOST_";

/// Maximum number of variables that are reported because they are no overrides.
const MAX_IGNORED_VARIABLES: usize = 20;

/// Applies the overrides of the environment. A value that is valid JSON (a number, boolean, list or object) is
/// parsed; any other value is a string. Names are case-insensitive.
pub(super) fn apply_environment(config_text: &mut ConfigText, variables: impl Iterator<Item = (String, String)>) {
    let (mut variables, others): (Vec<_>, Vec<_>) =
        variables.filter(|(name, _)| name.starts_with(NEAR_PREFIX)).partition(|(name, _)| name.starts_with(ENV_PREFIX));
    variables.sort();
    let mut ignored: Vec<String> =
        others.into_iter().map(|(name, _)| name).filter(|name| name.contains("__")).collect();
    ignored.sort();
    ignored.truncate(MAX_IGNORED_VARIABLES);
    config_text.ignored_variables = ignored;
    for (name, text) in variables {
        let value = serde_json::from_str(&text).unwrap_or(Value::String(text));
        let mut path = String::new();
        let mut slot = &mut config_text.value;
        for step in name.strip_prefix(ENV_PREFIX).unwrap_or_default().split("__").map(str::to_ascii_lowercase) {
            // A value that cannot contain the step is replaced, and problems of the value name the variable.
            let can_contain = slot.is_object() || slot.is_null() || (slot.is_array() && step.parse::<usize>().is_ok());
            if !can_contain {
                config_text.overriding_variables.insert(path.clone(), name.clone());
            }
            slot = get_or_insert_child(slot, &step, &mut path);
        }
        *slot = value;
        config_text.overriding_variables.insert(path, name);
    }
}

/// Returns the member or item `step`, creating a missing one; an index beyond the end appends an item.
fn get_or_insert_child<'a>(slot: &'a mut Value, step: &str, path: &mut String) -> &'a mut Value {
    if let (Value::Array(_), Ok(index)) = (&*slot, step.parse::<usize>()) {
        let Value::Array(items) = slot else { return slot };
        let index = index.min(items.len());
        if index == items.len() {
            items.push(Value::Null);
        }
        path.push_str(&format!("[{index}]"));
        return items.get_mut(index).unwrap_or_else(|| unreachable!("the item was just added"));
    }
    if !slot.is_object() {
        *slot = Value::Object(Map::new());
    }
    let Value::Object(members) = slot else { return slot };
    let existing = members.keys().find(|name| name.eq_ignore_ascii_case(step)).cloned();
    let name = existing.unwrap_or_else(|| step.to_owned());
    *path = join_path(path, &name);
    members.entry(name).or_insert(Value::Null)
}
