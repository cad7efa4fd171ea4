//! The published JSON Schema of metadata documents (R10, R18): what registries and publishers may rely on. It says no
//! more than [`super::Agent::from_document`] asks, which knows what a schema cannot say.

use serde_json::Value;
use std::sync::LazyLock;

/// The schema as it is published.
pub const METADATA_SCHEMA: &str = include_str!("metadata.schema.json");

static SCHEMA: LazyLock<Value> = LazyLock::new(|| serde_json::from_str(METADATA_SCHEMA).unwrap_or(Value::Bool(false)));

/// The schema as a value.
pub fn metadata_schema() -> &'static Value {
    &SCHEMA
}
