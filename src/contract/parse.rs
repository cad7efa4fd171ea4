//! A caller's body, from bytes to one JSON value, or a refusal that says where it is broken.

use crate::{
    fault::{Code, Fault, Violation},
    unit::json,
};
use serde_json::Value;

/// How deep a body may be. Its size is bounded where it is read from the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Nested arrays and objects; at most 120.
    pub depth: u16,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { depth: 64 }
    }
}

/// Reads one JSON value: UTF-8 without byte order mark, no name twice in an object, nothing after it.
///
/// # Errors
/// 400 `InvalidInput`, with the place.
pub fn parse(bytes: &[u8], bounds: &Bounds) -> Result<Value, Fault> {
    json::read(bytes, bounds.depth).map_err(|broken| {
        let violation = Violation { pointer: broken.pointer, message: broken.reason.clone() };
        Fault::new(Code::InvalidInput, format!("the body is not valid JSON: {}", broken.reason))
            .violations(vec![violation])
    })
}
