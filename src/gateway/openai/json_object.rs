//! Objects with members that are added one by one.

use serde_json::Value;

/// Returns the object with one more member, or with another value of it. A value that is no object stays as it is.
pub(super) fn with_member(mut object: Value, name: &str, value: impl Into<Value>) -> Value {
    if let Value::Object(members) = &mut object {
        members.insert(name.to_owned(), value.into());
    }
    object
}
