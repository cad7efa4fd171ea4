//! Members of JSON documents of other parties: in `camelCase` as A2A writes them, or in `snake_case` as some
//! registries do.

use crate::values::json::{truncate, type_name};
use serde_json::{Map, Value};

/// Returns a member by its camelCase name, or by that name in snake_case; null counts as absent.
pub fn get_member<'a>(members: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    let member = members.get(name).or_else(|| {
        let snake_case = name.chars().flat_map(|character| {
            let separator = character.is_ascii_uppercase().then_some('_');
            separator.into_iter().chain([character.to_ascii_lowercase()])
        });
        members.get(&snake_case.collect::<String>())
    });
    member.filter(|value| !value.is_null())
}

/// Returns a member that is a non-empty string.
pub fn text_member<'a>(members: &'a Map<String, Value>, name: &str) -> Option<&'a str> {
    get_member(members, name).and_then(Value::as_str).filter(|text| !text.is_empty())
}

/// An object of an array, with its index.
pub type IndexedObject<'a> = (usize, &'a Map<String, Value>);

/// Returns a member that is an array of objects, with their indexes.
///
/// # Errors
/// The member is not an array, or an item is not an object.
pub fn object_array<'a>(members: &'a Map<String, Value>, name: &str) -> Result<Vec<IndexedObject<'a>>, String> {
    let items = match get_member(members, name) {
        None => return Ok(Vec::new()),
        Some(Value::Array(items)) => items,
        Some(other) => return Err(format!("{name}: must be an array, not {}", type_name(other))),
    };
    let to_object = |(at, item): (usize, &'a Value)| match item {
        Value::Object(members) => Ok((at, members)),
        other => Err(format!("{name}[{at}]: must be an object, not {}", type_name(other))),
    };
    items.iter().enumerate().map(to_object).collect()
}

/// Returns the strings of an array member; other items are skipped.
pub fn string_array<'a>(members: &'a Map<String, Value>, name: &str) -> Vec<&'a str> {
    get_member(members, name).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect()
}

/// Quotes a name for a message, cut to 100 characters.
pub fn quote_name(name: &str) -> String {
    let shown = truncate(name, 100).replace(char::is_control, "\u{fffd}");
    format!("'{shown}'")
}
