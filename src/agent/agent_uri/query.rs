//! The query of a name as the input of a call (R49): a JSON object of strings, whose types the operation's schema
//! determines. Structured input requires a body.

use crate::values::form_decode;
use serde_json::{Map, Value};

/// Maximum number of parameters in one query.
const MAX_QUERY_PARAMETERS: usize = 256;

/// Returns the query as an object of strings; a repeated parameter becomes an array of its values, in order.
///
/// # Errors
/// The decoded query is not UTF-8, a parameter has no name, or there are more than 256.
pub(super) fn query_to_input(query: &str) -> Result<Map<String, Value>, &'static str> {
    let mut members = Map::new();
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    for (at, pair) in pairs.enumerate() {
        if at == MAX_QUERY_PARAMETERS {
            return Err("the query has more than 256 parameters");
        }
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let decode = |text| form_decode(text).ok_or("the query is not UTF-8");
        let (name, value) = (decode(name)?, Value::String(decode(value)?));
        if name.is_empty() {
            return Err("the query has a parameter without a name");
        }
        match members.get_mut(&name) {
            None => drop(members.insert(name, value)),
            Some(Value::Array(values)) => values.push(value),
            Some(first) => *first = Value::Array(vec![first.take(), value]),
        }
    }
    Ok(members)
}

/// Returns the first value of the parameter `name`.
pub(super) fn find_parameter(query: &str, name: &str) -> Option<String> {
    let mut pairs = query.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    pairs.find_map(|(parameter, value)| (parameter == name).then(|| form_decode(value))?)
}
