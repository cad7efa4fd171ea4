//! Self-contained schemas: a schema of an OpenAPI document together with those that it refers to, in JSON Schema 2020-12.
//! OpenAPI 3.0 has a dialect of its own, which is translated. Annotations are left out. References lead into the document
//! only.

use crate::{
    contract::{SchemaDialect, SubschemaPlace, convert_exclusive_bounds, subschemas_of},
    values::{json::count_values, percent_decode},
};
use serde_json::{Map, Value, json};
use std::{cell::Cell, collections::HashMap};

/// The most nodes of all schemas of a document, each counted as often as it is needed.
const MAX_NODES: usize = 1_000_000;
/// The most nodes of one schema with those that it refers to.
const MAX_NODES_OF_SCHEMA: usize = 1 << 16;
/// The most references in a row that lead to a parameter, a body or a path.
const MAX_REFERENCES: usize = 8;
/// The deepest nesting of a schema.
const MAX_DEPTH: usize = 64;

/// Keywords that check nothing, or name a place that the schema leaves.
const DROPPED_KEYWORDS: [&str; 14] = [
    "$id",
    "$schema",
    "$comment",
    "title",
    "description",
    "default",
    "example",
    "examples",
    "externalDocs",
    "xml",
    "discriminator",
    "deprecated",
    "readOnly",
    "writeOnly",
];

/// The document whose schemas are bundled.
pub(super) struct SchemaSource<'a> {
    pub(super) document: &'a Value,
    pub(super) dialect: SchemaDialect,
    nodes: Cell<usize>,
}

impl<'a> SchemaSource<'a> {
    pub(super) fn new(document: &'a Value, dialect: SchemaDialect) -> Self {
        Self { document, dialect, nodes: Cell::new(0) }
    }

    /// Follows `$ref` to a parameter, a body or a path.
    ///
    /// # Errors
    /// A reference that leaves the document, has no target, or leads in a circle.
    pub(super) fn resolve(&self, value: &'a Value) -> Result<&'a Value, String> {
        let mut value = value;
        for _ in 0..MAX_REFERENCES {
            match value.get("$ref").and_then(Value::as_str) {
                None => return Ok(value),
                Some(reference) => value = self.target(reference)?.1,
            }
        }
        Err("the reference leads through too many others".to_owned())
    }

    /// Returns the pointer and the target of a reference.
    fn target(&self, reference: &str) -> Result<(String, &'a Value), String> {
        let shown: String = reference.chars().take(100).collect();
        let Some(fragment) = reference.strip_prefix('#') else {
            return Err(format!(
                "the reference '{shown}' leaves the document (only those that begin with # are allowed)"
            ));
        };
        let pointer = percent_decode(fragment).filter(|pointer| pointer.is_empty() || pointer.starts_with('/'));
        let pointer = pointer.ok_or_else(|| format!("the reference '{shown}' is not a JSON Pointer"))?;
        let target = self.document.pointer(&pointer);
        target.map(|target| (pointer, target)).ok_or_else(|| format!("the reference '{shown}' has no target"))
    }

    fn count(&self, nodes: usize) -> Result<(), String> {
        self.nodes.set(self.nodes.get().saturating_add(nodes));
        if self.nodes.get() > MAX_NODES {
            return Err(format!(
                "the schemas of the document, with their references, have more than {MAX_NODES} nodes"
            ));
        }
        Ok(())
    }
}

/// A self-contained schema that is being built.
pub(super) struct SchemaBundle<'s, 'a> {
    source: &'s SchemaSource<'a>,
    /// The number of each schema that is referred to, by its pointer.
    numbers: HashMap<String, usize>,
    targets: Vec<&'a Value>,
    nodes: usize,
}

impl<'s, 'a> SchemaBundle<'s, 'a> {
    pub(super) fn new(source: &'s SchemaSource<'a>) -> Self {
        Self { source, numbers: HashMap::new(), targets: Vec::new(), nodes: 0 }
    }

    /// Bundles one schema.
    ///
    /// # Errors
    /// A reference that cannot be followed, or a schema that is too large.
    pub(super) fn bundle(source: &'s SchemaSource<'a>, schema: &'a Value) -> Result<Value, String> {
        let mut bundle = Self::new(source);
        let root = bundle.add(schema)?;
        bundle.finish(root)
    }

    /// Returns a schema as it stands in the bundle.
    ///
    /// # Errors
    /// As [`Self::bundle`].
    pub(super) fn add(&mut self, schema: &'a Value) -> Result<Value, String> {
        self.convert(schema, MAX_DEPTH)
    }

    /// Returns the root with all schemas that it refers to.
    ///
    /// # Errors
    /// As [`Self::bundle`].
    pub(super) fn finish(mut self, root: Value) -> Result<Value, String> {
        let mut definitions = Map::new();
        // Each of them may refer to others, which are added behind it.
        while let Some(target) = self.targets.get(definitions.len()).copied() {
            let converted = self.convert(target, MAX_DEPTH)?;
            definitions.insert(definitions.len().to_string(), converted);
        }
        if definitions.is_empty() {
            return Ok(root);
        }
        let mut members = match root {
            Value::Object(members) => members,
            root => Map::from_iter([("allOf".to_owned(), json!([root]))]),
        };
        members.insert("$defs".to_owned(), Value::Object(definitions));
        Ok(Value::Object(members))
    }

    fn convert(&mut self, schema: &'a Value, depth: usize) -> Result<Value, String> {
        let Some(depth) = depth.checked_sub(1) else {
            return Err(format!("a schema is nested more than {MAX_DEPTH} deep"));
        };
        let Value::Object(members) = schema else {
            // `dependencies` has lists of names besides schemas.
            self.count(count_values(schema))?;
            return Ok(schema.clone());
        };
        self.count(1)?;
        let mut converted = Map::new();
        if let Some(Value::String(reference)) = members.get("$ref") {
            converted.insert("$ref".to_owned(), self.refer(reference)?);
            if self.source.dialect == SchemaDialect::OpenApi30 {
                // Members beside a reference do not count there.
                return Ok(Value::Object(converted));
            }
        }
        for (keyword, member) in members {
            let member = match (keyword.as_str(), member) {
                ("$ref", _) => continue,
                (keyword, _) if DROPPED_KEYWORDS.contains(&keyword) || keyword.starts_with("x-") => continue,
                ("required", Value::Array(names)) => without_read_only(names, members.get("properties")),
                (keyword, member) => match (subschemas_of(keyword, member), member) {
                    (SubschemaPlace::List, Value::Array(items)) => {
                        Value::Array(items.iter().map(|item| self.convert(item, depth)).collect::<Result<_, _>>()?)
                    }
                    (SubschemaPlace::Map, Value::Object(named)) => {
                        let converted =
                            named.iter().map(|(name, schema)| Ok((name.clone(), self.convert(schema, depth)?)));
                        Value::Object(converted.collect::<Result<_, String>>()?)
                    }
                    (SubschemaPlace::Itself, schema) => self.convert(schema, depth)?,
                    (_, member) => {
                        self.count(count_values(member))?;
                        member.clone()
                    }
                },
            };
            converted.insert(keyword.clone(), member);
        }
        if self.source.dialect == SchemaDialect::OpenApi30 {
            return Ok(translate_openapi_30(converted));
        }
        Ok(Value::Object(converted))
    }

    fn count(&mut self, nodes: usize) -> Result<(), String> {
        self.nodes = self.nodes.saturating_add(nodes);
        if self.nodes > MAX_NODES_OF_SCHEMA {
            return Err(format!("a schema, with those that it refers to, has more than {MAX_NODES_OF_SCHEMA} nodes"));
        }
        self.source.count(nodes)
    }

    /// Returns the reference to a schema within the bundle.
    fn refer(&mut self, reference: &str) -> Result<Value, String> {
        self.count(reference.len() / 64)?;
        let (pointer, target) = self.source.target(reference)?;
        let next = self.targets.len();
        let number = *self.numbers.entry(pointer).or_insert(next);
        if number == next {
            self.targets.push(target);
        }
        Ok(json!(format!("#/$defs/{number}")))
    }
}

/// Returns the names of required properties without those that only responses have.
fn without_read_only(names: &[Value], properties: Option<&Value>) -> Value {
    let is_read_only = |name: &Value| {
        let property = name.as_str().and_then(|name| properties?.get(name));
        property.and_then(|property| property.get("readOnly")) == Some(&Value::Bool(true))
    };
    Value::Array(names.iter().filter(|name| !is_read_only(name)).cloned().collect())
}

/// Translates the keywords of OpenAPI 3.0 that JSON Schema writes otherwise.
fn translate_openapi_30(mut schema: Map<String, Value>) -> Value {
    convert_exclusive_bounds(&mut schema);
    match schema.remove("nullable") {
        Some(Value::Bool(true)) if !schema.is_empty() => json!({"anyOf": [schema, {"type": "null"}]}),
        _ => Value::Object(schema),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bundle(document: &Value, dialect: SchemaDialect) -> Result<Value, String> {
        let source = SchemaSource::new(document, dialect);
        SchemaBundle::bundle(&source, document.get("schema").unwrap())
    }

    #[test]
    fn only_what_a_schema_refers_to_is_bundled_and_circles_are_kept() {
        let document = json!({
            "schema": {"$ref": "#/components/schemas/Node", "description": "x"},
            "components": {"schemas": {
                "Node": {"type": "object", "properties": {
                    "next": {"$ref": "#/components/schemas/Node"}, "description": {"type": "string", "title": "y"},
                    "a/b": {"$ref": "#/components/schemas/With~1slash%20"},
                }},
                "With/slash ": {"type": "integer"},
                "Unused": {"type": "null"},
            }},
        });
        let bundled = bundle(&document, SchemaDialect::JsonSchema).unwrap();
        let node = json!({"type": "object", "properties": {
            "next": {"$ref": "#/$defs/0"}, "description": {"type": "string"}, "a/b": {"$ref": "#/$defs/1"},
        }});
        assert_eq!(bundled, json!({"$ref": "#/$defs/0", "$defs": {"0": node, "1": {"type": "integer"}}}));
    }

    #[test]
    fn the_dialect_of_openapi_30_is_translated() {
        let document = json!({"schema": {
            "type": "object", "required": ["id", "n"],
            "properties": {
                "id": {"type": "string", "readOnly": true},
                "n": {"type": "integer", "nullable": true, "minimum": 1, "exclusiveMinimum": true},
                "m": {"type": "number", "maximum": 5, "exclusiveMaximum": false},
            },
        }});
        let translated = json!({
            "type": "object", "required": ["n"],
            "properties": {
                "id": {"type": "string"},
                "n": {"anyOf": [{"type": "integer", "exclusiveMinimum": 1}, {"type": "null"}]},
                "m": {"type": "number", "maximum": 5},
            },
        });
        assert_eq!(bundle(&document, SchemaDialect::OpenApi30), Ok(translated));
    }

    #[test]
    fn references_that_leave_the_document_or_lead_nowhere_are_refused_by_name() {
        for (reference, why) in [
            ("https://example.com/s.json", "'https://example.com/s.json' leaves the document"),
            ("other.yaml#/A", "'other.yaml#/A' leaves the document"),
            ("#/components/schemas/Missing", "has no target"),
            ("#anchor", "is not a JSON Pointer"),
        ] {
            let document = json!({"schema": {"items": {"$ref": reference}}});
            let refused = bundle(&document, SchemaDialect::JsonSchema).unwrap_err();
            assert!(refused.contains(why), "{refused}");
        }
    }

    #[test]
    fn expansion_is_bounded() {
        let document = json!({"schema": {"allOf": vec![json!({"type": "string"}); 1_000]}});
        let source = SchemaSource::new(&document, SchemaDialect::JsonSchema);
        let mut times = 0;
        while SchemaBundle::bundle(&source, document.get("schema").unwrap()).is_ok() {
            times += 1;
        }
        assert!((400..=1_000).contains(&times), "{times}");
    }
}
