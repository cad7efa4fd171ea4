//! A schema moves into a larger document: its references, which began at its own root, begin where it now stands.

use serde_json::{Map, Value};

/// Keywords whose values are data, in which a member `$ref` means nothing.
const DATA: &[&str] = &["const", "enum", "default", "examples", "example"];
/// Keywords whose members are schemas under names of their own.
const NAMED: &[&str] = &["properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"];

/// `schema` as it has to stand at `place` (such as `#/components/schemas/Name`). One that names places by anchors, or
/// has an identity, becomes a resource of its own (JSON Schema 2020-12 §8.2.1) and keeps its references.
pub(super) fn moved(mut schema: Value, place: &str, identity: &str) -> Value {
    if is_resource(&schema) {
        if let Value::Object(members) = &mut schema {
            members.entry("$id").or_insert_with(|| identity.into());
        }
        return schema;
    }
    rewrite(&mut schema, place);
    schema
}

/// Whether references within cannot be followed by their paths alone.
fn is_resource(schema: &Value) -> bool {
    match schema {
        Value::Object(members) => members.iter().any(|(name, value)| {
            let names = ["$id", "id", "$anchor", "$dynamicAnchor", "$recursiveAnchor"].contains(&name.as_str());
            names && !value.is_object() || !DATA.contains(&name.as_str()) && is_resource(value)
        }),
        Value::Array(items) => items.iter().any(is_resource),
        _ => false,
    }
}

fn rewrite(schema: &mut Value, place: &str) {
    match schema {
        Value::Object(members) => {
            for (name, value) in members {
                match value {
                    Value::String(to) if name == "$ref" => rebase(to, place),
                    Value::Object(within) if NAMED.contains(&name.as_str()) => each(within, place),
                    value if !DATA.contains(&name.as_str()) => rewrite(value, place),
                    _ => {}
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| rewrite(item, place)),
        _ => {}
    }
}

fn each(named: &mut Map<String, Value>, place: &str) {
    named.values_mut().for_each(|schema| rewrite(schema, place));
}

fn rebase(to: &mut String, place: &str) {
    if let Some(pointer) = to.strip_prefix('#').filter(|pointer| pointer.is_empty() || pointer.starts_with('/')) {
        *to = format!("{place}{pointer}");
    }
}
