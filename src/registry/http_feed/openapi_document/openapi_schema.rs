//! Schemas of OpenAPI documents, as JSON Schemas that stand by themselves. The components that a schema refers to become
//! its definitions: they are not put in place of the references, which could make a small document endlessly large.

use crate::{
    contract::{SchemaDialect, SubschemaPlace, convert_exclusive_bounds, subschemas_of},
    registry::{document_parser::MAX_DOCUMENT_SIZE, http_feed::json_members::quote_name},
};
use serde_json::{Map, Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
};

/// Prefix of the references to components.
const COMPONENT_PREFIX: &str = "#/components/schemas/";
/// Maximum number of references that lead from the root of a schema to a schema.
const MAX_ROOT_REFERENCES: usize = 16;
/// Keywords that have no meaning here: addresses within the OpenAPI document, and OpenAPI's own annotations.
const DROPPED: &[&str] = &[
    "$schema",
    "$id",
    "$anchor",
    "$dynamicAnchor",
    "$recursiveAnchor",
    "$defs",
    "definitions",
    "discriminator",
    "xml",
    "externalDocs",
];

/// Whether a schema describes requests or responses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SchemaDirection {
    Input,
    Output,
}

/// Why a schema does not become one of an operation.
#[derive(Debug)]
pub(super) enum SchemaError {
    /// This schema is unusable.
    Unusable(String),
    /// The schemas of all operations are too large.
    TooLarge(String),
}

impl From<String> for SchemaError {
    fn from(why: String) -> Self {
        Self::Unusable(why)
    }
}

/// A schema in which the references lead to definitions.
struct ConvertedSchema {
    schema: Value,
    size: usize,
    /// The components that it refers to.
    references: BTreeSet<String>,
}

/// Bundles the schemas of one direction.
pub(super) struct SchemaBundler<'a> {
    components: Option<&'a Map<String, Value>>,
    dialect: SchemaDialect,
    direction: SchemaDirection,
    /// Those that cannot be converted are kept, too: every operation may refer to them.
    converted: BTreeMap<String, Result<Rc<ConvertedSchema>, String>>,
    /// Bytes that the schemas of further operations may have.
    remaining_size: usize,
}

impl<'a> SchemaBundler<'a> {
    pub(super) fn new(document: &'a Map<String, Value>, dialect: SchemaDialect, direction: SchemaDirection) -> Self {
        let components = document.get("components").and_then(|components| components.get("schemas")?.as_object());
        Self { components, dialect, direction, converted: BTreeMap::new(), remaining_size: MAX_DOCUMENT_SIZE }
    }

    /// Returns the schema with the components that it refers to as `$defs`.
    ///
    /// # Errors
    /// A reference has no target, or leaves the document; or the schemas of all operations are too large.
    pub(super) fn bundle(&mut self, schema: &Value) -> Result<Value, SchemaError> {
        let mut root = Rc::new(self.convert(schema)?);
        // Callers, and the gateway itself, look for the properties of an input at its root.
        for _ in 0..MAX_ROOT_REFERENCES {
            match root.references.first().filter(|_| is_reference(&root.schema)) {
                Some(name) => root = self.component(&name.clone())?,
                None => break,
            }
        }
        let mut size = root.size;
        let mut definitions = BTreeMap::new();
        let mut pending: Vec<String> = root.references.iter().cloned().collect();
        while let Some(name) = pending.pop() {
            if definitions.contains_key(&name) {
                continue;
            }
            let component = self.component(&name)?;
            size += component.size + name.len();
            if size > self.remaining_size {
                let message = format!("paths: the schemas of all operations have more than {MAX_DOCUMENT_SIZE} bytes");
                return Err(SchemaError::TooLarge(message));
            }
            pending.extend(component.references.iter().cloned());
            definitions.insert(name, component);
        }
        if size > self.remaining_size {
            let message = format!("paths: the schemas of all operations have more than {MAX_DOCUMENT_SIZE} bytes");
            return Err(SchemaError::TooLarge(message));
        }
        self.remaining_size -= size;
        let mut schema = root.schema.clone();
        if let (Value::Object(members), false) = (&mut schema, definitions.is_empty()) {
            let definitions = definitions.into_iter().map(|(name, component)| (name, component.schema.clone()));
            members.insert("$defs".to_owned(), definitions.collect::<Map<_, _>>().into());
        }
        Ok(schema)
    }

    /// Returns a component, converted.
    fn component(&mut self, name: &str) -> Result<Rc<ConvertedSchema>, String> {
        if let Some(converted) = self.converted.get(name) {
            return converted.clone();
        }
        let schema = self.component_at(name);
        let schema = schema.ok_or_else(|| format!("there is no schema {} in components", quote_name(name)))?;
        let converted = self.convert(schema).map(Rc::new);
        self.converted.insert(name.to_owned(), converted.clone());
        converted
    }

    /// Returns the schema of a component, or the one at a place within it.
    fn component_at(&self, name: &str) -> Option<&'a Value> {
        let (component, rest) = name.split_once('/').unwrap_or((name, ""));
        let schema = self.components?.get(component)?;
        if rest.is_empty() { Some(schema) } else { schema.pointer(&format!("/{rest}")) }
    }

    fn convert(&self, schema: &Value) -> Result<ConvertedSchema, String> {
        let mut references = BTreeSet::new();
        let schema = self.convert_schema(schema, &mut references)?;
        Ok(ConvertedSchema { size: schema.to_string().len(), schema, references })
    }

    /// Converts a schema; the parser has bounded its depth.
    fn convert_schema(&self, schema: &Value, references: &mut BTreeSet<String>) -> Result<Value, String> {
        let keywords = match schema {
            Value::Bool(_) => return Ok(schema.clone()),
            Value::Object(keywords) => keywords,
            _ => return Err("a schema is neither an object nor a boolean".to_owned()),
        };
        let is_3_0 = self.dialect == SchemaDialect::OpenApi30;
        let mut converted = Map::new();
        if let Some(reference) = keywords.get("$ref") {
            let name = component_name(reference)?;
            converted.insert("$ref".to_owned(), format!("#/$defs/{}", name.replace('/', "~1")).into());
            references.insert(name.to_owned());
            if is_3_0 {
                return Ok(Value::Object(converted));
            }
        }
        for (keyword, value) in keywords {
            let value = match keyword.as_str() {
                "$ref" => continue,
                "$dynamicRef" | "$recursiveRef" => return Err(format!("{keyword} is not supported")),
                dropped if DROPPED.contains(&dropped) || (is_3_0 && dropped == "nullable") => continue,
                "example" | "examples" => match example_list(keyword, value, keywords) {
                    Some(examples) => {
                        converted.insert("examples".to_owned(), examples);
                        continue;
                    }
                    None => continue,
                },
                "required" => self.required_properties(value, keywords),
                keyword => match subschemas_of(keyword, value) {
                    SubschemaPlace::Map => self.convert_map(keyword, value, references)?,
                    SubschemaPlace::List => self.convert_list(value, references)?,
                    SubschemaPlace::Itself => self.convert_schema(value, references)?,
                    SubschemaPlace::None => value.clone(),
                },
            };
            converted.insert(keyword.clone(), value);
        }
        if is_3_0 {
            convert_exclusive_bounds(&mut converted);
            if keywords.get("nullable") == Some(&Value::Bool(true)) {
                return Ok(allow_null(converted));
            }
        }
        Ok(Value::Object(converted))
    }

    fn convert_map(&self, keyword: &str, value: &Value, references: &mut BTreeSet<String>) -> Result<Value, String> {
        let schemas = value.as_object().ok_or("a keyword of schemas is not an object")?;
        let converted = schemas.iter().map(|(name, schema)| {
            // The keyword of former drafts has lists of names besides schemas.
            let schema = match schema {
                Value::Array(_) if keyword == "dependencies" => schema.clone(),
                schema => self.convert_schema(schema, references)?,
            };
            Ok((name.clone(), schema))
        });
        converted.collect::<Result<Map<_, _>, String>>().map(Value::Object)
    }

    fn convert_list(&self, value: &Value, references: &mut BTreeSet<String>) -> Result<Value, String> {
        let schemas = value.as_array().ok_or("a keyword of schemas is not an array")?;
        schemas.iter().map(|schema| self.convert_schema(schema, references)).collect()
    }

    /// Returns the required properties without those that the other side adds: a request has no `readOnly` properties,
    /// and a response no `writeOnly` ones.
    fn required_properties(&self, required: &Value, keywords: &Map<String, Value>) -> Value {
        let keyword = if self.direction == SchemaDirection::Input { "readOnly" } else { "writeOnly" };
        let is_set = |schema: &Value| schema.get(keyword) == Some(&Value::Bool(true));
        let is_of_other_side = |name: &Value| {
            let schema = name.as_str().and_then(|name| keywords.get("properties")?.get(name));
            let component = schema.and_then(|schema| component_name(schema.get("$ref")?).ok());
            let component = component.and_then(|name| self.component_at(name));
            schema.is_some_and(is_set) || component.is_some_and(is_set)
        };
        match required {
            Value::Array(names) => names.iter().filter(|name| !is_of_other_side(name)).cloned().collect(),
            other => other.clone(),
        }
    }
}

/// Returns whether a schema is nothing but a reference.
fn is_reference(schema: &Value) -> bool {
    schema.as_object().is_some_and(|members| members.len() == 1 && members.contains_key("$ref"))
}

/// Returns the name of the component that a reference leads to, with the place within it: `Pet/properties/owner`.
fn component_name(reference: &Value) -> Result<&str, String> {
    let reference = reference.as_str().ok_or("a reference is not a string")?;
    let is_name = |name: &&str| {
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
        name.split('/').all(|segment| !segment.is_empty() && segment.bytes().all(is_allowed))
    };
    let name = reference.strip_prefix(COMPONENT_PREFIX).filter(is_name);
    name.ok_or_else(|| format!("the reference {} does not lead to a schema in components", quote_name(reference)))
}

/// Returns the examples that one of both keywords has.
fn example_list(keyword: &str, value: &Value, keywords: &Map<String, Value>) -> Option<Value> {
    match keyword {
        "examples" => value.is_array().then(|| value.clone()),
        _ => (!keywords.contains_key("examples")).then(|| json!([value])),
    }
}

/// Returns the schema, or null.
fn allow_null(mut keywords: Map<String, Value>) -> Value {
    let kind = match keywords.get("type") {
        Some(Value::String(kind)) => kind.clone(),
        _ => return json!({"anyOf": [keywords, {"type": "null"}]}),
    };
    keywords.insert("type".to_owned(), json!([kind, "null"]));
    if let Some(Value::Array(values)) = keywords.get_mut("enum")
        && !values.contains(&Value::Null)
    {
        values.push(Value::Null);
    }
    Value::Object(keywords)
}
