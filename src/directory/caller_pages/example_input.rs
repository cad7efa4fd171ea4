//! An input that a schema may accept, for the lines that call an agent: the same one at every request, and small. It
//! need not match the schema, so its caller checks it.

use super::{code_literals::short_json, schema_table::resolve};
use serde_json::{Map, Value, json};

/// Maximum number of values in the input.
const MAX_VALUES: usize = 200;
/// Maximum depth of the input.
const MAX_DEPTH: usize = 8;
/// Maximum size of the values that are copied from the schema, in bytes of their texts.
const MAX_COPIED_BYTES: usize = 4 << 10;
/// Maximum number of schemas with `allOf`, `oneOf` or `anyOf` that are merged; each merge copies what it merges.
const MAX_MERGES: usize = 8;
/// Maximum number of keywords, properties and required names that merges read.
const MAX_MERGED: usize = 20_000;
/// Maximum number of items that are made for `minItems`.
const MAX_ITEMS: u64 = 10;
/// Maximum number of characters that are made for `minLength`.
const MAX_LENGTH: u64 = 500;
/// Number of properties of an object that requires none.
const OPTIONAL_PROPERTIES: usize = 3;

/// Returns an input for a schema; `None` if none is found within the bounds.
pub(super) fn example_of_schema(schema: &Value) -> Option<Value> {
    let mut generator = Generator {
        root: schema,
        values_left: MAX_VALUES,
        merges_left: MAX_MERGES,
        merged_left: MAX_MERGED,
        bytes_left: MAX_COPIED_BYTES,
    };
    generator.value(schema, 0)
}

struct Generator<'a> {
    root: &'a Value,
    values_left: usize,
    merges_left: usize,
    merged_left: usize,
    bytes_left: usize,
}

impl Generator<'_> {
    fn value(&mut self, schema: &Value, depth: usize) -> Option<Value> {
        self.values_left = self.values_left.checked_sub(1)?;
        if depth > MAX_DEPTH {
            return None;
        }
        // The root outlives the generator; a subschema of a merged schema does not.
        let root = self.root;
        let schema = resolve(root, schema);
        let Value::Object(members) = schema else { return (*schema != Value::Bool(false)).then(|| json!({})) };
        let first_of = |word: &str| members.get(word)?.as_array()?.first();
        let fixed = members.get("const").or_else(|| first_of("enum")).or_else(|| members.get("default"));
        if let Some(value) = fixed.or_else(|| first_of("examples")).or_else(|| members.get("example")) {
            return self.copy(value);
        }
        if members.contains_key("allOf") {
            let merged = self.merge(members)?;
            return self.value(&merged, depth + 1);
        }
        for word in ["oneOf", "anyOf"] {
            if let Some(form) = first_of(word) {
                self.merges_left = self.merges_left.checked_sub(1)?;
                let mut form = resolve(root, form).as_object().cloned().unwrap_or_default();
                add_missing(&mut form, members, word);
                return self.value(&form.into(), depth + 1);
            }
        }
        match type_of(members) {
            "object" => self.object(members, depth),
            "array" => self.array(members, depth),
            "string" => string(members),
            "integer" => Some(json!(whole_number(members)?)),
            "number" => Some(number(members)),
            "boolean" => Some(true.into()),
            "null" => Some(Value::Null),
            _ => Some(json!({})),
        }
    }

    /// Copies a value of the schema; `None` if it is large.
    fn copy(&mut self, value: &Value) -> Option<Value> {
        let text = short_json(value, self.bytes_left);
        self.bytes_left = self.bytes_left.checked_sub(text.len())?;
        Some(value.clone())
    }

    /// Merges the schemas of `allOf` into the one that has them.
    fn merge(&mut self, members: &Map<String, Value>) -> Option<Value> {
        self.merges_left = self.merges_left.checked_sub(1)?;
        let mut merged: Map<String, Value> = members.clone();
        let parts = merged.remove("allOf")?;
        for part in parts.as_array()?.iter().filter_map(|part| resolve(self.root, part).as_object()) {
            let size_of = |name: &str| match part.get(name) {
                Some(Value::Object(members)) => members.len(),
                Some(Value::Array(items)) => items.len(),
                _ => 0,
            };
            let size = part.len() + size_of("properties") + size_of("required");
            self.merged_left = self.merged_left.checked_sub(size)?;
            add_missing(&mut merged, part, "");
        }
        Some(merged.into())
    }

    fn object(&mut self, members: &Map<String, Value>, depth: usize) -> Option<Value> {
        let none = Map::new();
        let properties = members.get("properties").and_then(Value::as_object).unwrap_or(&none);
        let required = members.get("required").and_then(Value::as_array).into_iter().flatten();
        let mut names: Vec<&str> = required.filter_map(Value::as_str).collect();
        let is_all_optional = names.is_empty();
        if is_all_optional {
            names = properties.keys().map(String::as_str).take(OPTIONAL_PROPERTIES).collect();
        }
        let mut object = Map::new();
        for name in names {
            let value = match properties.get(name) {
                Some(schema) => self.value(schema, depth + 1),
                None => Some(Value::from("text")),
            };
            match value {
                Some(value) => drop(object.insert(name.to_owned(), value)),
                // An optional property may be left out.
                None if is_all_optional => {}
                None => return None,
            }
        }
        Some(object.into())
    }

    fn array(&mut self, members: &Map<String, Value>, depth: usize) -> Option<Value> {
        let min = members.get("minItems").and_then(Value::as_u64).unwrap_or_default();
        let max = members.get("maxItems").and_then(Value::as_u64).unwrap_or(u64::MAX);
        let count = min.max(1).min(max);
        if count > MAX_ITEMS {
            return None;
        }
        let Some(items) = members.get("items") else { return (min == 0).then(|| json!([])) };
        (0..count).map(|_| self.value(items, depth + 1)).collect::<Option<Vec<Value>>>().map(Value::from)
    }
}

/// Adds what `members` say beyond a schema: properties and required names to those that it has, others if it has none.
fn add_missing(schema: &mut Map<String, Value>, members: &Map<String, Value>, except: &str) {
    for (name, value) in members.iter().filter(|(name, _)| *name != except) {
        match (schema.get_mut(name), value) {
            (Some(Value::Object(own)), Value::Object(others)) if name == "properties" => {
                for (property, schema) in others {
                    own.entry(property.clone()).or_insert_with(|| schema.clone());
                }
            }
            (Some(Value::Array(own)), Value::Array(others)) if name == "required" => own.extend(others.iter().cloned()),
            (Some(_), _) => {}
            (None, _) => drop(schema.insert(name.clone(), value.clone())),
        }
    }
}

fn type_of(members: &Map<String, Value>) -> &str {
    let first_word =
        |types: &[Value]| types.iter().filter_map(Value::as_str).find(|name| *name != "null").map(str::to_owned);
    match members.get("type") {
        Some(Value::String(name)) => name,
        Some(Value::Array(types)) => match first_word(types).as_deref() {
            Some("string") => "string",
            Some("integer") => "integer",
            Some("number") => "number",
            Some("boolean") => "boolean",
            Some("array") => "array",
            Some("object") => "object",
            _ => "null",
        },
        _ if members.contains_key("properties") || members.contains_key("required") => "object",
        _ if members.contains_key("items") => "array",
        _ if members.contains_key("minLength") || members.contains_key("format") => "string",
        _ => "",
    }
}

fn string(members: &Map<String, Value>) -> Option<Value> {
    let text = match members.get("format").and_then(Value::as_str) {
        Some("date-time") => "2026-01-15T09:30:00Z",
        Some("date") => "2026-01-15",
        Some("time") => "09:30:00Z",
        Some("duration") => "PT1H",
        Some("email" | "idn-email") => "name@example.com",
        Some("hostname" | "idn-hostname") => "example.com",
        Some("ipv4") => "192.0.2.1",
        Some("ipv6") => "2001:db8::1",
        Some("uri" | "iri" | "uri-reference") => "https://example.com/",
        Some("uuid") => "3f2b8c1e-5d4a-4b7c-9e6f-0a1b2c3d4e5f",
        _ => "text",
    };
    let bound = |word: &str| members.get(word).and_then(Value::as_u64);
    let (min, max) = (bound("minLength").unwrap_or_default(), bound("maxLength").unwrap_or(u64::MAX));
    if min > MAX_LENGTH {
        return None;
    }
    let padding = "x".repeat(usize::try_from(min).ok()?.saturating_sub(text.len()));
    let text: String = text.chars().chain(padding.chars()).take(usize::try_from(max).unwrap_or(usize::MAX)).collect();
    Some(text.into())
}

fn bound(members: &Map<String, Value>, word: &str) -> Option<f64> {
    members.get(word).and_then(Value::as_f64)
}

fn whole_number(members: &Map<String, Value>) -> Option<i64> {
    let above = bound(members, "exclusiveMinimum").map(|bound| bound.floor() + 1.0);
    let lowest = bound(members, "minimum").map(f64::ceil).into_iter().chain(above).reduce(f64::max);
    let below = bound(members, "exclusiveMaximum").map(|bound| bound.ceil() - 1.0);
    let highest = bound(members, "maximum").map(f64::floor).into_iter().chain(below).reduce(f64::min);
    let value = lowest.unwrap_or_else(|| highest.unwrap_or(1.0).min(1.0));
    let value = match bound(members, "multipleOf").filter(|step| *step > 0.0) {
        Some(step) => (value / step).ceil() * step,
        None => value,
    };
    // Beyond this, not every whole number is one of 64 bits.
    (value.abs() < 9e15).then_some(value as i64)
}

fn number(members: &Map<String, Value>) -> Value {
    let above = bound(members, "exclusiveMinimum").map(|bound| bound + 1.0);
    let lowest = bound(members, "minimum").into_iter().chain(above).reduce(f64::max);
    let below = bound(members, "exclusiveMaximum").map(|bound| bound - 1.0);
    let highest = bound(members, "maximum").into_iter().chain(below).reduce(f64::min);
    match (lowest, highest) {
        (Some(low), Some(high)) if low > high => json!((low - 1.0 + high + 1.0) / 2.0),
        (Some(low), _) => json!(low),
        (None, high) => json!(high.unwrap_or(1.5).min(1.5)),
    }
}
