//! Members of JSON documents of other parties: in `camelCase` as A2A writes them, or in `snake_case` as some
//! registries do.

use crate::unit::json::{cut, kind};
use serde_json::{Map, Value};

/// Returns a member by its camelCase name, or by that name in snake_case; null counts as absent.
pub fn get<'a>(members: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    let found = members.get(name).or_else(|| {
        let snake = name.chars().flat_map(|letter| {
            let gap = letter.is_ascii_uppercase().then_some('_');
            gap.into_iter().chain([letter.to_ascii_lowercase()])
        });
        members.get(&snake.collect::<String>())
    });
    found.filter(|value| !value.is_null())
}

/// Returns a member that is a non-empty string.
pub fn text<'a>(members: &'a Map<String, Value>, name: &str) -> Option<&'a str> {
    get(members, name).and_then(Value::as_str).filter(|text| !text.is_empty())
}

/// An object of an array, with its index.
pub type Placed<'a> = (usize, &'a Map<String, Value>);

/// Returns a member that is an array of objects, with their indexes.
///
/// # Errors
/// The member is not an array, or an item is not an object.
pub fn objects<'a>(members: &'a Map<String, Value>, name: &str) -> Result<Vec<Placed<'a>>, String> {
    let items = match get(members, name) {
        None => return Ok(Vec::new()),
        Some(Value::Array(items)) => items,
        Some(other) => return Err(format!("{name}: must be an array, not {}", kind(other))),
    };
    let each = |(at, item): (usize, &'a Value)| match item {
        Value::Object(members) => Ok((at, members)),
        other => Err(format!("{name}[{at}]: must be an object, not {}", kind(other))),
    };
    items.iter().enumerate().map(each).collect()
}

/// Returns the strings of an array member; other items are skipped.
pub fn words<'a>(members: &'a Map<String, Value>, name: &str) -> Vec<&'a str> {
    get(members, name).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect()
}

/// Quotes a name for a message, cut to 100 characters.
pub fn quoted(name: &str) -> String {
    format!("'{}'", cut(name, 100))
}
