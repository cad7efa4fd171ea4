//! Tests of bodies, queries and schemas, accepted and refused.

mod document_findings;
mod expensive_schemas;
mod heavy_checks;
mod json_parsing;
mod messages;
mod query_inputs;
mod schema_compilation;

use super::*;
use crate::agent::DeclaredFormats;
use serde_json::json;

/// Schema of the translator in AIDIP.
fn translator() -> Value {
    json!({
        "type": "object",
        "properties": {
            "text": {"type": "string"},
            "source_language": {"type": "string", "enum": ["en", "zh"]},
            "target_language": {"type": "string", "enum": ["en", "zh"]}
        },
        "required": ["text", "source_language", "target_language"]
    })
}

fn check(schema: Value, value: Value) -> Vec<(String, String)> {
    let violations = CompiledSchema::compile(&schema).unwrap().validate(&value);
    violations.into_iter().map(|violation| (violation.pointer, violation.message)).collect()
}

fn operation(inputs: Value, outputs: Value) -> Operation {
    Operation {
        name: "op".into(),
        description: "".into(),
        inputs: Some(Arc::new(inputs)),
        outputs: Some(Arc::new(outputs)),
        formats: DeclaredFormats::default(),
        endpoint: None,
    }
}
