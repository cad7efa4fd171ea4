//! Strict JSON parser for bodies. Its faults have the position of the error.

use crate::{
    fault::{Fault, FaultCode, FaultRule, Violation},
    values::json,
};
use serde_json::Value;

/// Maximum depth of a body. The size is bounded while the body is read from the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JsonBounds {
    /// Nested arrays and objects; at most 120.
    pub max_depth: u16,
}

impl Default for JsonBounds {
    fn default() -> Self {
        Self { max_depth: 64 }
    }
}

/// Parses one JSON value: UTF-8 without a byte order mark, unique names in each object, no trailing data.
///
/// # Errors
/// 400 `InvalidInput`, with the position.
pub fn parse_json(bytes: &[u8], bounds: &JsonBounds) -> Result<Value, Fault> {
    json::parse(bytes, bounds.max_depth).map_err(|error| {
        let violation = Violation { pointer: error.pointer, message: error.reason.clone() };
        Fault::new(FaultCode::InvalidInput, format!("The body is not valid JSON: {}", error.reason))
            .with_violations(vec![violation])
            .with_rule(FaultRule::Request)
    })
}
