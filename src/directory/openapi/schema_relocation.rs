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

/// What a relocated schema may be larger than the schema itself: as many times, but at least `MIN_ADDED_SIZE`. A document
/// may name one long location in many short references.
const MAX_ADDED_RATIO: usize = 4;
const MIN_ADDED_SIZE: usize = 64 << 10;

/// Relocates `schema` to `location` (such as `#/components/schemas/Name`). A schema whose references cannot become
/// paths, or only with paths that take too much space, stays a resource of its own (JSON Schema 2020-12 §8.2.1), with
/// the `$id` `identity` if it has none.
pub(super) fn relocate_schema(mut schema: Value, location: &str, identity: &str) -> Value {
    let Value::Object(members) = &mut schema else { return schema };
    let own_id = members.remove("$id");
    if let Ok(relocated) = SchemaRelocation::relocate(&schema, location, own_id.as_ref().and_then(Value::as_str)) {
        return relocated;
    }
    if let Value::Object(members) = &mut schema {
        members.insert("$id".to_owned(), own_id.unwrap_or_else(|| identity.into()));
    }
    schema
}

/// The references of a schema cannot become paths.
struct NotRelocatable;

struct SchemaRelocation<'a> {
    location: &'a str,
    /// `$id` of the schema, by which it may reference itself.
    own_id: Option<&'a str>,
    /// New location of each anchor.
    anchors: HashMap<&'a str, String>,
    /// Number of bytes that locations may still take.
    remaining: usize,
}

impl<'a> SchemaRelocation<'a> {
    fn relocate(schema: &'a Value, location: &'a str, own_id: Option<&'a str>) -> Result<Value, NotRelocatable> {
        let remaining = MIN_ADDED_SIZE.max(schema.to_string().len().saturating_mul(MAX_ADDED_RATIO));
        let mut relocation = Self { location, own_id, anchors: HashMap::new(), remaining };
        relocation.collect_anchors(schema, &mut location.to_owned())?;
        let mut relocated = schema.clone();
        relocation.rewrite_references(&mut relocated)?;
        Ok(relocated)
    }

    /// Collects the anchors of the schema at `location`, which is unchanged afterwards, and detects schemas that cannot
    /// be relocated.
    fn collect_anchors(&mut self, schema: &'a Value, location: &mut String) -> Result<(), NotRelocatable> {
        match schema {
            Value::Object(members) => {
                members.iter().try_for_each(|(name, value)| self.collect_anchors_of_member(name, value, location))
            }
            Value::Array(items) => items
                .iter()
                .enumerate()
                .try_for_each(|(number, item)| self.collect_anchors_below(&number.to_string(), item, location)),
            _ => Ok(()),
        }
    }

    fn collect_anchors_of_member(
        &mut self,
        name: &str,
        value: &'a Value,
        location: &mut String,
    ) -> Result<(), NotRelocatable> {
        match (name, value) {
            ("$anchor", Value::String(anchor)) => {
                self.spend(location.len())?;
                self.anchors.insert(anchor, location.clone());
                Ok(())
            }
            ("$id", Value::String(_)) => Err(NotRelocatable),
            (name, _) if DYNAMIC_KEYWORDS.contains(&name) => Err(NotRelocatable),
            (name, Value::Object(schemas)) if NAMED_SCHEMA_KEYWORDS.contains(&name) => {
                let length = location.len();
                push_segment(location, name);
                schemas.iter().try_for_each(|(name, schema)| self.collect_anchors_below(name, schema, location))?;
                location.truncate(length);
                Ok(())
            }
            (name, value) if !DATA_KEYWORDS.contains(&name) => self.collect_anchors_below(name, value, location),
            _ => Ok(()),
        }
    }

    fn collect_anchors_below(
        &mut self,
        segment: &str,
        schema: &'a Value,
        location: &mut String,
    ) -> Result<(), NotRelocatable> {
        let length = location.len();
        push_segment(location, segment);
        self.collect_anchors(schema, location)?;
        location.truncate(length);
        Ok(())
    }

    fn rewrite_references(&mut self, schema: &mut Value) -> Result<(), NotRelocatable> {
        match schema {
            Value::Object(members) => self.rewrite_members(members),
            Value::Array(items) => items.iter_mut().try_for_each(|item| self.rewrite_references(item)),
            _ => Ok(()),
        }
    }

    fn rewrite_members(&mut self, members: &mut Map<String, Value>) -> Result<(), NotRelocatable> {
        if members.get("$anchor").is_some_and(Value::is_string) {
            members.remove("$anchor");
        }
        for (name, value) in members {
            match value {
                Value::String(reference) if name == "$ref" => {
                    if let Some(relocated) = self.relocated_reference(reference) {
                        self.spend(relocated.len())?;
                        *reference = relocated;
                    }
                }
                Value::Object(schemas) if NAMED_SCHEMA_KEYWORDS.contains(&name.as_str()) => {
                    schemas.values_mut().try_for_each(|schema| self.rewrite_references(schema))?;
                }
                value if !DATA_KEYWORDS.contains(&name.as_str()) => self.rewrite_references(value)?,
                _ => {}
            }
        }
        Ok(())
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

    fn spend(&mut self, size: usize) -> Result<(), NotRelocatable> {
        self.remaining = self.remaining.checked_sub(size).ok_or(NotRelocatable)?;
        Ok(())
    }
}

/// Appends a segment to a JSON Pointer in a URI fragment (RFC 6901 §6).
fn push_segment(location: &mut String, name: &str) {
    let mut pointer = String::new();
    push_pointer_segment(&mut pointer, name);
    location.push_str(&percent_encode_fragment(&pointer).to_string());
}
