//! What schemas of OpenAPI documents and JSON Schema have in common, and where they differ.

use json_schema::Draft;
pub use json_schema::draft::SubschemaPlace;
use serde_json::{Map, Value};

/// The language of the schemas of an OpenAPI document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SchemaDialect {
    /// That of OpenAPI 3.0: `nullable`, boolean `exclusiveMinimum`, no keywords beside `$ref`.
    OpenApi30,
    /// JSON Schema 2020-12, with OpenAPI 3.1.
    JsonSchema,
}

impl SchemaDialect {
    /// Returns the dialect of documents whose member `openapi` is this; `None` for versions other than 3.0 and 3.1.
    pub fn of_version(version: &str) -> Option<Self> {
        let mut numbers = version.split('.');
        match (numbers.next()?, numbers.next()?) {
            ("3", "0") => Some(Self::OpenApi30),
            ("3", "1") => Some(Self::JsonSchema),
            _ => None,
        }
    }
}

/// Returns where the value of a keyword has schemas: one of JSON Schema 2020-12, or of a former draft that the current
/// one does not give another meaning.
pub fn subschemas_of(keyword: &str, value: &Value) -> SubschemaPlace {
    Draft::default().subschemas_of(keyword, value)
}

/// Converts `exclusiveMinimum: true` beside `minimum`, and the maximum likewise, which OpenAPI 3.0 writes so.
pub fn convert_exclusive_bounds(keywords: &mut Map<String, Value>) {
    for (exclusive, bound) in [("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")] {
        let Some(Value::Bool(is_exclusive)) = keywords.get(exclusive) else { continue };
        let is_exclusive = *is_exclusive;
        keywords.remove(exclusive);
        if is_exclusive && let Some(value) = keywords.remove(bound) {
            keywords.insert(exclusive.to_owned(), value);
        }
    }
}
