//! The JSON Schema of agent metadata documents (R10, R18), for registries and publishers. It is never stricter than
//! [`super::Agent::from_document`], which also checks rules that a schema cannot express.

use serde_json::Value;
use std::sync::LazyLock;

/// The schema as JSON text.
pub const METADATA_SCHEMA: &str = include_str!("metadata.schema.json");

static METADATA_SCHEMA_VALUE: LazyLock<Value> =
    LazyLock::new(|| serde_json::from_str(METADATA_SCHEMA).unwrap_or(Value::Bool(false)));

/// Returns the schema as a JSON value.
pub fn metadata_schema() -> &'static Value {
    &METADATA_SCHEMA_VALUE
}
