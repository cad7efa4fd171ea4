//! Builder of a JSON object.

use serde_json::{Map, Value};

/// The members so far.
#[derive(Debug, Default)]
pub(super) struct JsonObjectBuilder(Map<String, Value>);

impl JsonObjectBuilder {
    /// Sets a member.
    pub(super) fn set(&mut self, name: &str, value: Value) {
        self.0.insert(name.to_owned(), value);
    }

    /// Sets a member if `value` is present.
    pub(super) fn set_optional(&mut self, name: &str, value: Option<impl Into<Value>>) {
        if let Some(value) = value {
            self.set(name, value.into());
        }
    }

    /// Returns the object as a value.
    pub(super) fn into_value(self) -> Value {
        Value::Object(self.0)
    }

    /// Returns the members.
    pub(super) fn into_map(self) -> Map<String, Value> {
        self.0
    }
}
