//! The types that a schema gives a value that is written as text, such as a parameter in a URL. They are determined once,
//! when the schema is compiled.

use super::schema_walk::SchemaWalk;
use crate::{
    fault::{Fault, FaultCode, Violation},
    values::json::{heap_bytes, push_pointer_segment, truncate},
};
use json_schema::schema_index::SchemaLocation;
use serde_json::Value;
use std::collections::HashMap;

/// Memory of an entry of a table beside its text.
const ENTRY_BYTES: u64 = 96;

/// The types that a text may stand for, collected from references and alternatives.
#[derive(Clone, Debug, Default)]
pub struct TextTypes {
    scalar: ScalarTypes,
    object: bool,
    /// The types of the items, if it may be an array.
    items: Option<Box<ItemTypes>>,
}

#[derive(Clone, Debug, Default)]
struct ItemTypes {
    scalar: ScalarTypes,
    is_structure: bool,
}

#[derive(Clone, Debug, Default)]
struct ScalarTypes {
    null: bool,
    boolean: bool,
    integer: bool,
    number: bool,
    string: bool,
    /// The values of `enum` and `const`, by their text; empty if all of them are strings and only strings are allowed.
    listed: HashMap<Box<str>, Value, foldhash::fast::RandomState>,
}

impl TextTypes {
    /// Determines the types of a schema that stands by itself, with up to `max_fuel`. Beyond it, every text is a string.
    pub fn of_schema(schema: &Value, max_fuel: u64) -> Self {
        let Some(mut walk) = SchemaWalk::begin(schema, max_fuel) else { return Self::default() };
        let root = walk.root();
        root.map(|root| Self::of_location(root, &mut walk)).unwrap_or_default()
    }

    /// Determines the types of a subschema.
    pub(super) fn of_location<'a>(start: SchemaLocation<'a>, walk: &mut SchemaWalk<'a>) -> Self {
        let (mut types, mut items) = (Self::default(), Vec::new());
        for location in walk.in_place(start) {
            for name in type_names(location.schema) {
                match name {
                    "object" => types.object = true,
                    "array" => {
                        types.items.get_or_insert_default();
                        items.extend(location.schema.get("items").map(|schema| walk.child(location, schema)));
                    }
                    name => types.scalar.add_type(name),
                }
            }
            types.scalar.add_listed(location.schema, walk);
        }
        types.scalar.finish();
        if let Some(item_types) = &mut types.items {
            for item in items {
                item_types.add(item, walk);
            }
            item_types.scalar.finish();
        }
        types
    }

    /// Returns the memory of the types, in bytes.
    pub(super) fn memory(&self) -> u64 {
        let of_items = self.items.as_ref().map_or(0, |items| size_of::<ItemTypes>() as u64 + items.scalar.memory());
        size_of::<Self>() as u64 + self.scalar.memory() + of_items
    }

    /// Whether the value is a list of texts.
    pub fn is_list(&self) -> bool {
        self.items.is_some()
    }

    /// Whether the value is an object, and no text stands for one of its other types.
    pub fn is_object(&self) -> bool {
        let types = &self.scalar;
        let is_scalar = types.boolean || types.integer || types.number || types.string;
        self.object && !is_scalar && self.items.is_none()
    }

    /// Returns the value of a text: a listed value, one of the narrowest type that it fits, or a string.
    pub fn convert(&self, text: String) -> Value {
        self.scalar.convert(text)
    }

    /// Returns the value of an item of a list.
    pub fn convert_item(&self, text: String) -> Value {
        self.items.as_ref().map_or(&self.scalar, |items| &items.scalar).convert(text)
    }

    /// Returns the value of a query parameter that has these texts.
    ///
    /// # Errors
    /// 400 for a parameter that is repeated and no array, or that is an object.
    pub(super) fn convert_parameter(&self, name: &str, texts: Vec<String>) -> Result<Value, Fault> {
        let structure = || invalid_parameter(name, "is a structure (send JSON with POST)");
        if let Some(items) = &self.items {
            if items.is_structure && !items.scalar.allows_any() {
                return Err(structure());
            }
            return Ok(texts.into_iter().map(|text| items.scalar.convert(text)).collect());
        }
        let mut texts = texts.into_iter();
        match (texts.next(), texts.next()) {
            (Some(_), None) if self.object && !self.scalar.allows_any() => Err(structure()),
            (Some(text), None) => Ok(self.scalar.convert(text)),
            _ => Err(invalid_parameter(name, "is repeated, but is not an array")),
        }
    }
}

impl ItemTypes {
    fn add<'a>(&mut self, start: SchemaLocation<'a>, walk: &mut SchemaWalk<'a>) {
        for location in walk.in_place(start) {
            for name in type_names(location.schema) {
                match name {
                    "object" | "array" => self.is_structure = true,
                    name => self.scalar.add_type(name),
                }
            }
            self.scalar.add_listed(location.schema, walk);
        }
    }
}

impl ScalarTypes {
    fn add_type(&mut self, name: &str) {
        match name {
            "null" => self.null = true,
            "boolean" => self.boolean = true,
            "integer" => self.integer = true,
            "number" => self.number = true,
            "string" => self.string = true,
            _ => {}
        }
    }

    fn add_listed(&mut self, schema: &Value, walk: &mut SchemaWalk<'_>) {
        let listed = schema.get("enum").and_then(Value::as_array).into_iter().flatten();
        for value in listed.chain(schema.get("const")) {
            if !walk.charge(10 + heap_bytes(value) / 4) {
                return;
            }
            let text = value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned);
            self.listed.entry(text.into()).or_insert_with(|| value.clone());
        }
    }

    /// Drops a list that changes nothing.
    fn finish(&mut self) {
        let only_strings = !(self.null || self.boolean || self.integer || self.number);
        if only_strings && self.listed.values().all(Value::is_string) {
            self.listed = HashMap::default();
        }
    }

    fn memory(&self) -> u64 {
        self.listed.iter().map(|(text, value)| ENTRY_BYTES + text.len() as u64 + heap_bytes(value)).sum()
    }

    fn allows_any(&self) -> bool {
        self.null || self.boolean || self.integer || self.number || self.string
    }

    fn convert(&self, text: String) -> Value {
        if let Some(value) = self.listed.get(text.as_str()) {
            return value.clone();
        }
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
}

fn type_names(schema: &Value) -> impl Iterator<Item = &str> {
    let names = match schema.get("type") {
        Some(Value::Array(names)) => names.as_slice(),
        Some(name) => std::slice::from_ref(name),
        None => &[],
    };
    names.iter().filter_map(Value::as_str)
}

fn invalid_parameter(name: &str, why: &str) -> Fault {
    let mut pointer = String::new();
    push_pointer_segment(&mut pointer, &truncate(name, 60));
    let message = format!("The query parameter '{}' {why}", truncate(name, 60));
    Fault::new(FaultCode::InvalidInput, message.clone()).with_violations(vec![Violation::new(pointer, message)])
}
