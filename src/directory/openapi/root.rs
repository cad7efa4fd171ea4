//! Relocation of a JSON Schema into a larger document: references relative to its root become references to its new
//! location. Many OpenAPI readers support neither anchors nor `$id` within a document, so both become plain paths
//! wherever possible.

use crate::unit::json::push_segment;
use serde_json::{Map, Value};
use std::{collections::HashMap, fmt::Write};

/// Keywords whose values are data, in which a member `$ref` has no meaning.
const DATA: &[&str] = &["const", "enum", "default", "examples", "example"];
/// Keywords whose values map names to schemas.
const NAMED: &[&str] = &["properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"];
/// Keywords of dynamic references, which cannot become paths.
const DYNAMIC: &[&str] = &["$dynamicRef", "$dynamicAnchor", "$recursiveRef", "$recursiveAnchor"];

/// Relocates `schema` to `place` (such as `#/components/schemas/Name`). A schema whose references cannot become paths
/// stays a resource of its own (JSON Schema 2020-12 §8.2.1), with the `$id` `identity` if it has none.
pub(super) fn moved(mut schema: Value, place: &str, identity: &str) -> Value {
    let Value::Object(members) = &mut schema else { return schema };
    let own = members.remove("$id");
    let mut walk = Walk { place, own: own.as_ref().and_then(Value::as_str), anchors: HashMap::new(), free: true };
    walk.look(&schema, place);
    match (walk.free, &mut schema) {
        (true, schema) => walk.rewrite(schema),
        (false, Value::Object(members)) => {
            members.insert("$id".to_owned(), own.unwrap_or_else(|| identity.into()));
        }
        _ => {}
    }
    schema
}

struct Walk<'a> {
    place: &'a str,
    /// `$id` of the schema, by which it may reference itself.
    own: Option<&'a str>,
    /// New location of each anchor.
    anchors: HashMap<String, String>,
    /// Whether every reference can become a path.
    free: bool,
}

impl Walk<'_> {
    /// Collects the anchors, and detects what cannot be relocated.
    fn look(&mut self, schema: &Value, at: &str) {
        let members = match schema {
            Value::Object(members) => members,
            Value::Array(items) => {
                return items.iter().enumerate().for_each(|(number, item)| self.look(item, &format!("{at}/{number}")));
            }
            _ => return,
        };
        for (name, value) in members {
            match (name.as_str(), value) {
                ("$anchor", Value::String(anchor)) => {
                    self.anchors.insert(anchor.clone(), at.to_owned());
                }
                ("$id", Value::String(_)) => self.free = false,
                (name, _) if DYNAMIC.contains(&name) => self.free = false,
                (name, Value::Object(within)) if NAMED.contains(&name) => {
                    let at = below(at, name);
                    within.iter().for_each(|(name, schema)| self.look(schema, &below(&at, name)));
                }
                (name, value) if !DATA.contains(&name) => self.look(value, &below(at, name)),
                _ => {}
            }
        }
    }

    fn rewrite(&self, schema: &mut Value) {
        match schema {
            Value::Object(members) => self.members(members),
            Value::Array(items) => items.iter_mut().for_each(|item| self.rewrite(item)),
            _ => {}
        }
    }

    fn members(&self, members: &mut Map<String, Value>) {
        if members.get("$anchor").is_some_and(Value::is_string) {
            members.remove("$anchor");
        }
        for (name, value) in members {
            match value {
                Value::String(to) if name == "$ref" => {
                    if let Some(moved) = self.target(to) {
                        *to = moved;
                    }
                }
                Value::Object(within) if NAMED.contains(&name.as_str()) => {
                    within.values_mut().for_each(|schema| self.rewrite(schema));
                }
                value if !DATA.contains(&name.as_str()) => self.rewrite(value),
                _ => {}
            }
        }
    }

    /// Returns the new location of a reference; `None` if it leaves the schema.
    fn target(&self, to: &str) -> Option<String> {
        let local = self.own.and_then(|own| to.strip_prefix(own)).unwrap_or(to);
        match local.strip_prefix('#') {
            Some(path) if path.is_empty() || path.starts_with('/') => Some(format!("{}{path}", self.place)),
            Some(anchor) => self.anchors.get(anchor).cloned(),
            None => local.is_empty().then(|| self.place.to_owned()),
        }
    }
}

/// Appends a segment to a JSON Pointer in a URI fragment (RFC 6901 §6).
fn below(at: &str, name: &str) -> String {
    let (mut pointer, mut to) = (String::new(), at.to_owned());
    push_segment(&mut pointer, name);
    for byte in pointer.bytes() {
        match byte.is_ascii_alphanumeric() || b"-._~$!&'()*+,;=:@/?".contains(&byte) {
            true => to.push(char::from(byte)),
            false => {
                let _ = write!(to, "%{byte:02X}");
            }
        }
    }
    to
}
