//! Strict JSON parser: refuses input that two parsers could read differently (duplicate member names, a byte order
//! mark, bytes that are not UTF-8), and bounds nesting. Errors have the position but never the content.

use serde::{
    Deserialize, Deserializer,
    de::{DeserializeSeed, Error as _, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Map, Number, Value};
use std::{cell::RefCell, fmt, io};

/// Maximum nesting depth that callers can request; serde_json itself stops at 128.
pub const MAX_DEPTH: u16 = 120;

/// Returns the beginning of a value as indented JSON, at most `max_bytes` of it, and whether that is all. A long value takes
/// no more time than what is returned of it: nested arrays can be a hundred times as long with their indents.
pub fn pretty_beginning(value: &Value, max_bytes: usize) -> (String, bool) {
    let mut writer = BoundedWriter { bytes: Vec::new(), max_bytes };
    let is_all = serde_json::to_writer_pretty(&mut writer, value).is_ok();
    // The last character may be cut.
    let whole = match std::str::from_utf8(&writer.bytes) {
        Ok(_) => writer.bytes.len(),
        Err(why) => why.valid_up_to(),
    };
    writer.bytes.truncate(whole);
    (String::from_utf8(writer.bytes).unwrap_or_default(), is_all)
}

struct BoundedWriter {
    bytes: Vec<u8>,
    max_bytes: usize,
}

impl io::Write for BoundedWriter {
    fn write(&mut self, part: &[u8]) -> io::Result<usize> {
        let room = self.max_bytes - self.bytes.len();
        self.bytes.extend_from_slice(part.get(..room).unwrap_or(part));
        if part.len() > room { Err(io::ErrorKind::WriteZero.into()) } else { Ok(part.len()) }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Why a text is not acceptable JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StrictJsonError {
    /// The value in which the parser stopped, as a JSON Pointer.
    pub pointer: String,
    /// What is wrong, with line and column.
    pub reason: String,
}

impl fmt::Display for StrictJsonError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.pointer.as_str() {
            "" => formatter.write_str(&self.reason),
            pointer => write!(formatter, "{} (in {pointer})", self.reason),
        }
    }
}

/// Parses exactly one JSON value with at most `depth` nested arrays and objects.
///
/// # Errors
/// The first problem and its position.
pub fn parse(bytes: &[u8], depth: u16) -> Result<Value, StrictJsonError> {
    let error = |reason: &str| StrictJsonError { pointer: String::new(), reason: reason.to_owned() };
    if bytes.starts_with(b"\xef\xbb\xbf") {
        return Err(error("the text begins with a byte order mark (forbidden in JSON, RFC 8259 §8.1)"));
    }
    let text = std::str::from_utf8(bytes).map_err(|why| error(&format!("byte {} is not UTF-8", why.valid_up_to())))?;
    if text.bytes().all(|byte| byte.is_ascii_whitespace()) {
        return Err(error("the text is empty (a JSON value is required)"));
    }
    let error_path = RefCell::new(Vec::new());
    let mut parser = serde_json::Deserializer::from_str(text);
    let result = StrictJsonVisitor { remaining_depth: depth.min(MAX_DEPTH), error_path: &error_path }
        .deserialize(&mut parser)
        .and_then(|value| parser.end().map(|()| value));
    result.map_err(|why| StrictJsonError { pointer: build_pointer(&error_path.into_inner()), reason: why.to_string() })
}

/// A value that is deserialised from any serde format under the same rules, at most 100 levels deep.
#[derive(Debug)]
pub struct StrictJsonValue(pub Value);

impl<'de> Deserialize<'de> for StrictJsonValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let error_path = RefCell::new(Vec::new());
        StrictJsonVisitor { remaining_depth: 100, error_path: &error_path }.deserialize(deserializer).map(Self)
    }
}

/// Returns at most `max_chars` characters of `text`, for messages that repeat input.
pub fn truncate(text: &str, max_chars: usize) -> String {
    match text.char_indices().nth(max_chars) {
        Some((at, _)) => format!("{}…", text.get(..at).unwrap_or_default()),
        None => text.to_owned(),
    }
}

/// Appends one segment to a JSON Pointer (RFC 6901 §3).
pub fn push_pointer_segment(pointer: &mut String, segment: &str) {
    pointer.push('/');
    pointer.push_str(&segment.replace('~', "~0").replace('/', "~1"));
}

/// Builds the JSON Pointer from the segments, which the visitor records innermost first.
fn build_pointer(reversed_segments: &[String]) -> String {
    let mut pointer = String::new();
    for segment in reversed_segments.iter().rev() {
        push_pointer_segment(&mut pointer, &truncate(segment, 60));
    }
    pointer
}

#[derive(Clone, Copy)]
struct StrictJsonVisitor<'a> {
    remaining_depth: u16,
    error_path: &'a RefCell<Vec<String>>,
}

impl StrictJsonVisitor<'_> {
    fn nested<E: serde::de::Error>(&self) -> Result<Self, E> {
        let remaining_depth =
            self.remaining_depth.checked_sub(1).ok_or_else(|| E::custom("arrays and objects are nested too deeply"))?;
        Ok(Self { remaining_depth, error_path: self.error_path })
    }
}

impl<'de> DeserializeSeed<'de> for StrictJsonVisitor<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for StrictJsonVisitor<'_> {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        self.deserialize(deserializer)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        let number = Number::from_f64(value).map(Value::Number);
        number.ok_or_else(|| E::custom("NaN and infinity are not JSON numbers"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Value, A::Error> {
        let (inner, mut items) = (self.nested()?, Vec::new());
        loop {
            match sequence.next_element_seed(inner) {
                Ok(Some(item)) => items.push(item),
                Ok(None) => return Ok(Value::Array(items)),
                Err(why) => {
                    self.error_path.borrow_mut().push(items.len().to_string());
                    return Err(why);
                }
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let (inner, mut members) = (self.nested()?, Map::new());
        while let Some(name) = map.next_key::<String>()? {
            if members.contains_key(&name) {
                return Err(A::Error::custom(format!(
                    "the name '{}' appears twice in one object",
                    truncate(&name, 60)
                )));
            }
            match map.next_value_seed(inner) {
                Ok(value) => members.insert(name, value),
                Err(why) => {
                    self.error_path.borrow_mut().push(name);
                    return Err(why);
                }
            };
        }
        Ok(Value::Object(members))
    }
}

/// Returns the JSON type of a value with its article, for messages: `a string`, `null`.
pub fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

/// Returns about how many bytes of memory a value takes beyond its own place. An object's members stand in nodes with room
/// for eleven, so that one of a few bytes of text takes hundreds of bytes.
pub fn heap_bytes(value: &Value) -> u64 {
    const NODE: u64 = 640;
    const MEMBERS_PER_NODE: u64 = 6;
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        Value::String(text) => text.len() as u64,
        Value::Array(items) => {
            let own = items.len() * size_of::<Value>();
            items.iter().map(heap_bytes).fold(own as u64, u64::saturating_add)
        }
        Value::Object(members) => {
            let nodes = (members.len() as u64).div_ceil(MEMBERS_PER_NODE) * NODE;
            let of_member = |(name, member): (&String, &Value)| (name.len() as u64).saturating_add(heap_bytes(member));
            members.iter().map(of_member).fold(nodes, u64::saturating_add)
        }
    }
}

/// Returns how many values `value` has, itself included.
pub fn count_values(value: &Value) -> usize {
    let within: usize = match value {
        Value::Array(items) => items.iter().map(count_values).sum(),
        Value::Object(members) => members.values().map(count_values).sum(),
        _ => 0,
    };
    within + 1
}

/// Returns whether `value` nests arrays and objects more than `max_depth` levels deep.
pub fn is_deeper_than(value: &Value, max_depth: usize) -> bool {
    let Some(depth_left) = max_depth.checked_sub(1) else {
        return value.is_array() || value.is_object();
    };
    match value {
        Value::Array(items) => items.iter().any(|item| is_deeper_than(item, depth_left)),
        Value::Object(members) => members.values().any(|member| is_deeper_than(member, depth_left)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn of_a_long_value_only_the_beginning_is_written() {
        let value = json!({"a": [1, "é"]});
        let whole = serde_json::to_string_pretty(&value).unwrap();
        assert_eq!(pretty_beginning(&value, whole.len()), (whole.clone(), true));
        for length in 0..whole.len() {
            let (text, is_all) = pretty_beginning(&value, length);
            assert!(!is_all && whole.starts_with(&text) && text.len() <= length, "{length}: {text}");
        }
        let nested = (0..100).fold(json!([1, 1, 1]), |inner, _| json!([inner]));
        assert_eq!(pretty_beginning(&nested, 5_000).0.len(), 5_000);
    }
}
