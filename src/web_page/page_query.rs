//! Queries of links.

use crate::values::percent_encode;
use std::fmt::Write as _;

/// Returns `?name=value&…` of the parameters that have a value; empty if none has.
pub fn query_string(parameters: &[(&str, &str)]) -> String {
    let mut query = String::new();
    for (name, value) in parameters.iter().filter(|(_, value)| !value.is_empty()) {
        query.push(if query.is_empty() { '?' } else { '&' });
        query.push_str(name);
        query.push('=');
        // Writing to a string does not fail.
        let _ = write!(query, "{}", percent_encode(value));
    }
    query
}
