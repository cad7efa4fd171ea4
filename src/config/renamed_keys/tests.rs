//! The table of renamed keys agrees with the schema.

use super::*;
use crate::config::json_schema;
use serde_json::Value;

/// Returns the schema of the member `step` of an object, or of the items of a list for `[]`.
fn child<'a>(root: &'a Value, schema: &'a Value, step: &str) -> Option<&'a Value> {
    let schema = resolve(root, schema);
    match step {
        "[]" => schema.get("items"),
        name => schema.get("properties")?.get(name),
    }
}

/// Follows references, and the choice between a value and null, or between a remote source and a path.
fn resolve<'a>(root: &'a Value, schema: &'a Value) -> &'a Value {
    if let Some(target) = schema["$ref"].as_str() {
        return resolve(root, root.pointer(target.trim_start_matches('#')).unwrap());
    }
    match schema["anyOf"].get(0) {
        Some(first) => resolve(root, first),
        None => schema,
    }
}

fn find<'a>(root: &'a Value, path: &str) -> Option<&'a Value> {
    let path = path.replace("[]", ".[]");
    path.split('.').filter(|step| !step.is_empty()).try_fold(root, |schema, step| child(root, schema, step))
}

#[test]
fn every_current_name_is_in_the_schema_and_no_former_name_is() {
    let schema = json_schema();
    for (section, keys) in RENAMED {
        assert!(find(&schema, section).is_some(), "section {section}");
        for (former, current) in *keys {
            assert!(find(&schema, &format!("{section}.{current}")).is_some(), "{section}.{current} is not a setting");
            assert!(find(&schema, &format!("{section}.{former}")).is_none(), "{section}.{former} is still a setting");
        }
    }
}

#[test]
fn a_section_is_found_at_any_position_of_its_lists() {
    assert_eq!(current_name("agents.sources[12]", "lazy"), Some("on_demand"));
    assert_eq!(current_name("agents.sources[12].mqtt", "settle"), Some("resync_timeout"));
    assert_eq!(current_name("agents.sources", "lazy"), None);
    assert_eq!(current_name("", "listen"), Some("listeners"));
    assert_eq!(current_name("listen", "listen"), None);
}
