//! Relocation of a JSON Schema into a larger document: references relative to its root become references to its new
//! location. Many OpenAPI readers support neither anchors nor `$id` within a document, so both become plain paths
//! wherever possible.

use crate::values::{json::push_pointer_segment, percent_encode_fragment};
use serde_json::{Map, Value};
use std::collections::HashMap;

/// Keywords whose values are data, in which a member `$ref` has no meaning.
const DATA_KEYWORDS: &[&str] = &["const", "enum", "default", "examples", "example"];
/// Keywords whose values map names to schemas.
const NAMED_SCHEMA_KEYWORDS: &[&str] =
    &["properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"];
/// Keywords of dynamic references, which cannot become paths.
const DYNAMIC_KEYWORDS: &[&str] = &["$dynamicRef", "$dynamicAnchor", "$recursiveRef", "$recursiveAnchor"];

/// Relocates `schema` to `location` (such as `#/components/schemas/Name`). A schema whose references cannot become
/// paths stays a resource of its own (JSON Schema 2020-12 §8.2.1), with the `$id` `identity` if it has none.
pub(super) fn relocate_schema(mut schema: Value, location: &str, identity: &str) -> Value {
    let Value::Object(members) = &mut schema else { return schema };
    let own_id = members.remove("$id");
    let mut relocation = SchemaRelocation {
        location,
        own_id: own_id.as_ref().and_then(Value::as_str),
        anchors: HashMap::new(),
        is_relocatable: true,
    };
    relocation.collect_anchors(&schema, location);
    match (relocation.is_relocatable, &mut schema) {
        (true, schema) => relocation.rewrite_references(schema),
        (false, Value::Object(members)) => {
            members.insert("$id".to_owned(), own_id.unwrap_or_else(|| identity.into()));
        }
        _ => {}
    }
    schema
}

struct SchemaRelocation<'a> {
    location: &'a str,
    /// `$id` of the schema, by which it may reference itself.
    own_id: Option<&'a str>,
    /// New location of each anchor.
    anchors: HashMap<String, String>,
    /// Whether every reference can become a path.
    is_relocatable: bool,
}

impl SchemaRelocation<'_> {
    /// Collects the anchors, and detects schemas that cannot be relocated.
    fn collect_anchors(&mut self, schema: &Value, location: &str) {
        let members = match schema {
            Value::Object(members) => members,
            Value::Array(items) => {
                return items
                    .iter()
                    .enumerate()
                    .for_each(|(number, item)| self.collect_anchors(item, &format!("{location}/{number}")));
            }
            _ => return,
        };
        for (name, value) in members {
            match (name.as_str(), value) {
                ("$anchor", Value::String(anchor)) => {
                    self.anchors.insert(anchor.clone(), location.to_owned());
                }
                ("$id", Value::String(_)) => self.is_relocatable = false,
                (name, _) if DYNAMIC_KEYWORDS.contains(&name) => self.is_relocatable = false,
                (name, Value::Object(schemas)) if NAMED_SCHEMA_KEYWORDS.contains(&name) => {
                    let location = append_segment(location, name);
                    schemas
                        .iter()
                        .for_each(|(name, schema)| self.collect_anchors(schema, &append_segment(&location, name)));
                }
                (name, value) if !DATA_KEYWORDS.contains(&name) => {
                    self.collect_anchors(value, &append_segment(location, name))
                }
                _ => {}
            }
        }
    }

    fn rewrite_references(&self, schema: &mut Value) {
        match schema {
            Value::Object(members) => self.rewrite_members(members),
            Value::Array(items) => items.iter_mut().for_each(|item| self.rewrite_references(item)),
            _ => {}
        }
    }

    fn rewrite_members(&self, members: &mut Map<String, Value>) {
        if members.get("$anchor").is_some_and(Value::is_string) {
            members.remove("$anchor");
        }
        for (name, value) in members {
            match value {
                Value::String(reference) if name == "$ref" => {
                    if let Some(relocated) = self.relocated_reference(reference) {
                        *reference = relocated;
                    }
                }
                Value::Object(schemas) if NAMED_SCHEMA_KEYWORDS.contains(&name.as_str()) => {
                    schemas.values_mut().for_each(|schema| self.rewrite_references(schema));
                }
                value if !DATA_KEYWORDS.contains(&name.as_str()) => self.rewrite_references(value),
                _ => {}
            }
        }
    }

    /// Returns the new location of a reference; `None` if it leaves the schema.
    fn relocated_reference(&self, reference: &str) -> Option<String> {
        let local = self.own_id.and_then(|own_id| reference.strip_prefix(own_id)).unwrap_or(reference);
        match local.strip_prefix('#') {
            Some(path) if path.is_empty() || path.starts_with('/') => Some(format!("{}{path}", self.location)),
            Some(anchor) => self.anchors.get(anchor).cloned(),
            None => local.is_empty().then(|| self.location.to_owned()),
        }
    }
}

/// Appends a segment to a JSON Pointer in a URI fragment (RFC 6901 §6).
fn append_segment(location: &str, name: &str) -> String {
    let mut pointer = String::new();
    push_pointer_segment(&mut pointer, name);
    format!("{location}{}", percent_encode_fragment(&pointer))
}
