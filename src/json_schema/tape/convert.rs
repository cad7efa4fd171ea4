//! Conversion between a tape and `serde_json::Value`.

use super::{Node, NodeKind, Tape, TapeBounds, TapeError};
use serde_json::{Map, Number, Value};

impl Tape {
    /// Returns a value as `serde_json::Value`. Numbers become what serde_json reads: doubles if they have a fraction, an
    /// exponent, or more than 64 bits. The depth is that of the tape, at most [`MAX_DEPTH`](super::MAX_DEPTH).
    pub fn to_value(&self, node: Node) -> Value {
        match self.kind(node) {
            NodeKind::Null => Value::Null,
            NodeKind::False => Value::Bool(false),
            NodeKind::True => Value::Bool(true),
            NodeKind::Integer | NodeKind::Number => Value::Number(read_number(self.raw(node))),
            NodeKind::String | NodeKind::EscapedString => Value::String(self.text(node).into_owned()),
            NodeKind::Array => Value::Array(self.items(node).map(|item| self.to_value(item)).collect()),
            NodeKind::Object => {
                let member = |(name, value)| (self.text(name).into_owned(), self.to_value(value));
                Value::Object(self.members(node).map(member).collect::<Map<_, _>>())
            }
        }
    }

    /// Writes a value as JSON and parses it. The memory of the text comes on top.
    ///
    /// # Errors
    /// The value is nested too deeply or too long.
    pub fn from_value(value: &Value) -> Result<Self, TapeError> {
        let text = serde_json::to_vec(value).map_err(|_| TapeError::not_serializable())?;
        Self::parse(text.into(), &TapeBounds::default())
    }
}

/// Reads a number as serde_json does.
fn read_number(text: &str) -> Number {
    // "-0" is a double for serde_json.
    match text.parse::<i64>() {
        Ok(integer) if integer != 0 => integer.into(),
        _ => serde_json::from_str(text).unwrap_or_else(|_| Number::from(0)),
    }
}
