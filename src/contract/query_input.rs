//! Input of a `GET` invocation (R49): converts the query to the object that a body would have, with the types of the
//! schema. A text that does not fit its type stays a string, so that the validation reports the violation. Objects and
//! nested arrays require a `POST`.

use super::in_place_subschemas::in_place_subschemas;
use crate::{
    fault::{Fault, FaultCode, Violation},
    values::{
        form_pairs,
        json::{push_pointer_segment, truncate},
    },
};
use serde_json::{Map, Value};
use std::borrow::Cow;

/// Maximum number of parameters in one query.
const MAX_PARAMETERS: usize = 256;
/// Maximum length of one query, in bytes.
const MAX_QUERY_BYTES: usize = 64 << 10;

/// Converts `query` (without its `?`) to an object, with the types of the schema's `properties`.
///
/// # Errors
/// 400 `InvalidInput` for invalid percent-encoding, a repeated parameter that is not an array, or too many parameters;
/// 414 for a query longer than 64 KiB.
pub fn input_from_query(query: &str, schema: Option<&Value>) -> Result<Value, Fault> {
    if query.len() > MAX_QUERY_BYTES {
        return Err(
            Fault::new(FaultCode::InvalidInput, "The query is too long (at most 64 KiB; use POST)").with_status(414)
        );
    }
    let mut parameters: Vec<(String, Vec<String>)> = Vec::new();
    for (at, pair) in form_pairs(query).enumerate() {
        if at == MAX_PARAMETERS {
            return Err(Fault::new(
                FaultCode::InvalidInput,
                format!("The query has more than {MAX_PARAMETERS} parameters (use POST)"),
            ));
        }
        let malformed = "The query is not percent-encoded UTF-8 (write %25 for %)";
        let (name, value) = pair.ok_or_else(|| Fault::new(FaultCode::InvalidInput, malformed))?;
        if name.is_empty() {
            return Err(Fault::new(FaultCode::InvalidInput, "The query has a parameter without a name"));
        }
        match parameters.iter_mut().find(|(existing, _)| *existing == name) {
            Some((_, values)) => values.push(value),
            None => parameters.push((name, vec![value])),
        }
    }
    let mut members = Map::new();
    for (name, values) in parameters {
        let property = schema.and_then(|root| find_property(root, root, &name, 8));
        let types =
            property.zip(schema).map(|(property, root)| PropertyTypes::from_schema(property, root)).unwrap_or_default();
        let value = types.convert_values(&name, values)?;
        members.insert(name, value);
    }
    Ok(Value::Object(members))
}

fn find_property<'a>(schema: &'a Value, root: &'a Value, name: &str, depth_left: u8) -> Option<&'a Value> {
    let property = schema.get("properties").and_then(|properties| properties.get(name));
    property.or_else(|| {
        let depth_left = depth_left.checked_sub(1)?;
        in_place_subschemas(schema, root).find_map(|schema| find_property(schema, root, name, depth_left))
    })
}

/// Types that a property may have, collected from references and alternatives.
#[derive(Default)]
struct PropertyTypes<'a> {
    null: bool,
    boolean: bool,
    integer: bool,
    number: bool,
    string: bool,
    object: bool,
    array: Option<Box<PropertyTypes<'a>>>,
    enum_values: Vec<Cow<'a, Value>>,
}

impl<'a> PropertyTypes<'a> {
    fn from_schema(schema: &'a Value, root: &'a Value) -> Self {
        let mut types = Self::default();
        types.add_schema(schema, root, 8);
        types
    }

    fn add_schema(&mut self, schema: &'a Value, root: &'a Value, depth_left: u8) {
        let Some(depth_left) = depth_left.checked_sub(1) else {
            return;
        };
        let names = match schema.get("type") {
            Some(Value::Array(names)) => names.as_slice(),
            Some(name) => std::slice::from_ref(name),
            None => &[],
        };
        for name in names.iter().filter_map(Value::as_str) {
            match name {
                "null" => self.null = true,
                "boolean" => self.boolean = true,
                "integer" => self.integer = true,
                "number" => self.number = true,
                "string" => self.string = true,
                "object" => self.object = true,
                "array" => {
                    let items = self.array.get_or_insert_default();
                    if let Some(schema) = schema.get("items") {
                        items.add_schema(schema, root, depth_left);
                    }
                }
                _ => {}
            }
        }
        let listed = schema.get("enum").and_then(Value::as_array).into_iter().flatten();
        self.enum_values.extend(listed.chain(schema.get("const")).map(Cow::Borrowed));
        for schema in in_place_subschemas(schema, root) {
            self.add_schema(schema, root, depth_left);
        }
    }

    fn convert_values(&self, name: &str, values: Vec<String>) -> Result<Value, Fault> {
        if let Some(items) = &self.array {
            return values
                .into_iter()
                .map(|text| items.convert_value(name, text))
                .collect::<Result<_, _>>()
                .map(Value::Array);
        }
        let mut values = values.into_iter();
        match (values.next(), values.next()) {
            (Some(text), None) => self.convert_value(name, text),
            _ => Err(invalid_parameter(name, "is repeated, but is not an array")),
        }
    }

    /// Converts a text to the narrowest type that it fits, or to a string.
    fn convert_value(&self, name: &str, text: String) -> Result<Value, Fault> {
        let allows_scalar = self.null || self.boolean || self.integer || self.number || self.string;
        if (self.object || self.array.is_some()) && !allows_scalar {
            return Err(invalid_parameter(name, "is a structure (send JSON with POST)"));
        }
        Ok(self.convert_text(text))
    }

    /// Converts a text to a listed value, to the narrowest type that it fits, or to a string.
    fn convert_text(&self, text: String) -> Value {
        let is_equal = |value: &&Cow<'_, Value>| value.as_str() == Some(&text) || value.to_string() == text;
        if let Some(value) = self.enum_values.iter().find(is_equal) {
            return value.clone().into_owned();
        }
        self.convert_scalar(text)
    }

    fn convert_scalar(&self, text: String) -> Value {
        match text.as_str() {
            // Python writes `True`.
            "true" | "True" | "TRUE" if self.boolean => Value::Bool(true),
            "false" | "False" | "FALSE" if self.boolean => Value::Bool(false),
            "" | "null" if self.null && !(self.string && text.is_empty()) => Value::Null,
            // serde_json would accept whitespace around a number.
            number_text if (self.integer || self.number) && number_text.trim() == number_text => {
                match serde_json::from_str(number_text) {
                    Ok(Value::Number(number)) if self.number || !number.is_f64() => Value::Number(number),
                    _ => Value::String(text),
                }
            }
            _ => Value::String(text),
        }
    }

    fn into_owned(self) -> PropertyTypes<'static> {
        PropertyTypes {
            null: self.null,
            boolean: self.boolean,
            integer: self.integer,
            number: self.number,
            string: self.string,
            object: self.object,
            array: self.array.map(|items| Box::new(items.into_owned())),
            enum_values: self.enum_values.into_iter().map(|value| Cow::Owned(value.into_owned())).collect(),
        }
    }
}

/// The types that a schema gives a value that is written as text, such as a parameter in a URL; determined once.
pub struct TextTypes(PropertyTypes<'static>);

impl TextTypes {
    /// Determines the types of a schema.
    pub fn of_schema(schema: &Value) -> Self {
        Self(PropertyTypes::from_schema(schema, schema).into_owned())
    }

    /// Whether the value is a list of texts.
    pub fn is_list(&self) -> bool {
        self.0.array.is_some()
    }

    /// Whether the value is an object, and no text stands for one of its other types.
    pub fn is_object(&self) -> bool {
        let types = &self.0;
        let is_scalar = types.boolean || types.integer || types.number || types.string;
        types.object && !is_scalar && types.array.is_none()
    }

    /// Returns the value of a text: of the narrowest type that it fits, or a string.
    pub fn convert(&self, text: String) -> Value {
        self.0.convert_text(text)
    }

    /// Returns the value of an item of a list.
    pub fn convert_item(&self, text: String) -> Value {
        match &self.0.array {
            Some(items) => items.convert_text(text),
            None => self.0.convert_text(text),
        }
    }
}

impl std::fmt::Debug for TextTypes {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.write_str("TextTypes")
    }
}

fn invalid_parameter(name: &str, why: &str) -> Fault {
    let mut pointer = String::new();
    push_pointer_segment(&mut pointer, &truncate(name, 60));
    let message = format!("The query parameter '{}' {why}", truncate(name, 60));
    Fault::new(FaultCode::InvalidInput, message.clone()).with_violations(vec![Violation { pointer, message }])
}
