//! Operations of an agent (R13, R14).

use super::{DeclaredFormats, reported_failure::DeclaredMembers};
use serde_json::{Map, Value};
use std::sync::Arc;

/// The schema that documents have where the agent declares none (R13): any value. It is no schema where it is read again.
const UNDECLARED_SCHEMA: &str = "not declared by the agent";

/// Returns the schema that documents have where the agent declares none.
pub fn undeclared_schema() -> Value {
    serde_json::json!({"$comment": UNDECLARED_SCHEMA})
}

/// Returns whether a schema is that of an undeclared one.
pub(super) fn is_undeclared_schema(schema: &Map<String, Value>) -> bool {
    schema.len() == 1 && schema.get("$comment").is_some_and(|comment| comment == UNDECLARED_SCHEMA)
}

/// One operation of an agent (R13).
#[derive(Clone, Debug)]
pub struct Operation {
    /// The name; empty for the implied operation (R14).
    pub name: Arc<str>,
    /// What the operation does, in prose; empty if the document has no description.
    pub description: Box<str>,
    /// JSON Schema of the input; agents with equal schemas share one value.
    pub inputs: Option<Arc<Value>>,
    /// JSON Schema of the output; shared in the same way.
    pub outputs: Option<Arc<Value>>,
    /// Declared formats of input and output (R70).
    pub formats: DeclaredFormats,
    /// The address of the operation, if it is not the agent's endpoint: a URL, or a reference relative to the endpoint.
    pub endpoint: Option<Box<str>>,
}

impl Operation {
    /// Returns whether the input has a property `version`, which then does not select the agent's version.
    pub fn takes_version(&self) -> bool {
        self.inputs.as_deref().and_then(|schema| schema.get("properties")?.get("version")).is_some()
    }

    /// Returns the declared formats of the input that a call accepts (R70): JSON where a schema applies, else those of
    /// the document. Empty if none is declared.
    pub fn accepted_inputs(&self) -> impl Iterator<Item = &str> {
        let has_schema = self.inputs.is_some();
        let declared = self.formats.inputs.iter().map(|format| &**format).filter(move |_| !has_schema);
        declared.chain((has_schema && !self.formats.inputs.is_empty()).then_some("application/json"))
    }

    /// Returns the formats to which calls are restricted. Empty if a schema applies, whose input is JSON, and if the
    /// operation declares no media types.
    pub fn required_inputs(&self) -> Arc<[Box<str>]> {
        let is_restricted = self.inputs.is_none() && self.formats.restricts_inputs();
        if is_restricted { Arc::clone(&self.formats.inputs) } else { Arc::default() }
    }

    /// Returns the members of the output that would otherwise report a failure (R40).
    pub fn declared_members(&self) -> DeclaredMembers {
        self.outputs.as_deref().map(DeclaredMembers::of_schema).unwrap_or_default()
    }
}
