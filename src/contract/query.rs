//! Input of a `GET` invocation (R49): converts the query to the object that a body would hold, with the schema's types.
//! A text that does not fit its type stays a string, so that the schema check reports what is wrong.
//! Structures are not derived from a query: they need a `POST`.

use super::schema::beside;
use crate::{
    fault::{Code, Fault, Violation},
    unit::json::{cut, push_segment},
};
use serde_json::{Map, Value};

/// Maximum number of parameters in one query.
const MAX_PARAMETERS: usize = 256;
/// Maximum length of one query, in bytes.
const LONGEST: usize = 64 << 10;

/// Converts `query` (without its `?`) to an object, with the types of the schema's `properties`.
///
/// # Errors
/// 400 `InvalidInput` for invalid percent-encoding, a repeated parameter that is not an array, or too many parameters;
/// 414 for a query longer than 64 KiB.
pub fn from_query(query: &str, schema: Option<&Value>) -> Result<Value, Fault> {
    if query.len() > LONGEST {
        return Err(Fault::new(Code::InvalidInput, "The query is too long (at most 64 KiB; use POST)").status(414));
    }
    let mut given: Vec<(String, Vec<String>)> = Vec::new();
    for (at, pair) in query.split('&').filter(|pair| !pair.is_empty()).enumerate() {
        if at == MAX_PARAMETERS {
            return Err(Fault::new(
                Code::InvalidInput,
                format!("The query has more than {MAX_PARAMETERS} parameters (use POST)"),
            ));
        }
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let (name, value) = (decode(name)?, decode(value)?);
        if name.is_empty() {
            return Err(Fault::new(Code::InvalidInput, "The query has a parameter without a name"));
        }
        match given.iter_mut().find(|(known, _)| *known == name) {
            Some((_, values)) => values.push(value),
            None => given.push((name, vec![value])),
        }
    }
    let mut members = Map::new();
    for (name, values) in given {
        let property = schema.and_then(|root| property(root, root, &name, 8));
        let types = property.zip(schema).map(|(property, root)| Types::of(property, root)).unwrap_or_default();
        let value = types.read(&name, values)?;
        members.insert(name, value);
    }
    Ok(Value::Object(members))
}

fn decode(text: &str) -> Result<String, Fault> {
    let broken = || Fault::new(Code::InvalidInput, "The query is not percent-encoded UTF-8 (write %25 for %)");
    percent(text, true).ok_or_else(broken)
}

/// Decodes percent-encoding; with `plus`, a `+` is a space, as in HTML forms.
pub(super) fn percent(text: &str, plus: bool) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' if plus => b' ',
            b'%' => hex(rest.next()?)? << 4 | hex(rest.next()?)?,
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok()
}

fn hex(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

fn property<'a>(schema: &'a Value, root: &'a Value, name: &str, left: u8) -> Option<&'a Value> {
    let own = schema.get("properties").and_then(|all| all.get(name));
    own.or_else(|| {
        let left = left.checked_sub(1)?;
        beside(schema, root).find_map(|schema| property(schema, root, name, left))
    })
}

/// Types that a property may have, collected from references and alternatives.
#[derive(Default)]
struct Types<'a> {
    null: bool,
    boolean: bool,
    integer: bool,
    number: bool,
    string: bool,
    object: bool,
    array: Option<Box<Types<'a>>>,
    listed: Vec<&'a Value>,
}

impl<'a> Types<'a> {
    fn of(schema: &'a Value, root: &'a Value) -> Self {
        let mut types = Self::default();
        types.add(schema, root, 8);
        types
    }

    fn add(&mut self, schema: &'a Value, root: &'a Value, left: u8) {
        let Some(left) = left.checked_sub(1) else {
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
                        items.add(schema, root, left);
                    }
                }
                _ => {}
            }
        }
        self.listed.extend(schema.get("enum").and_then(Value::as_array).into_iter().flatten());
        self.listed.extend(schema.get("const"));
        for schema in beside(schema, root) {
            self.add(schema, root, left);
        }
    }

    fn read(&self, name: &str, values: Vec<String>) -> Result<Value, Fault> {
        if let Some(items) = &self.array {
            return values.into_iter().map(|text| items.one(name, text)).collect::<Result<_, _>>().map(Value::Array);
        }
        let mut values = values.into_iter();
        match (values.next(), values.next()) {
            (Some(text), None) => self.one(name, text),
            _ => Err(refuse(name, "is repeated, but is not an array")),
        }
    }

    /// Converts to the narrowest type that the text fits; a string otherwise.
    fn one(&self, name: &str, text: String) -> Result<Value, Fault> {
        let scalar = self.null || self.boolean || self.integer || self.number || self.string;
        if (self.object || self.array.is_some()) && !scalar {
            return Err(refuse(name, "is a structure (send JSON with POST)"));
        }
        if let Some(value) = self.listed.iter().find(|value| value.as_str() == Some(&text) || value.to_string() == text)
        {
            return Ok((*value).clone());
        }
        Ok(match text.as_str() {
            "true" if self.boolean => Value::Bool(true),
            "false" if self.boolean => Value::Bool(false),
            "" | "null" if self.null && !(self.string && text.is_empty()) => Value::Null,
            // serde_json would accept whitespace around a number.
            digits if (self.integer || self.number) && digits.trim() == digits => match serde_json::from_str(digits) {
                Ok(Value::Number(number)) if self.number || !number.is_f64() => Value::Number(number),
                _ => Value::String(text),
            },
            _ => Value::String(text),
        })
    }
}

fn refuse(name: &str, why: &str) -> Fault {
    let mut pointer = String::new();
    push_segment(&mut pointer, &cut(name, 60));
    let message = format!("The query parameter '{}' {why}", cut(name, 60));
    Fault::new(Code::InvalidInput, message.clone()).violations(vec![Violation { pointer, message }])
}
