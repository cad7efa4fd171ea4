//! Operations of an agent (R13, R14).

use serde_json::Value;
use std::sync::Arc;

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
}

impl Operation {
    /// Returns whether the input has a property `version`, which then does not select the agent's version.
    pub fn takes_version(&self) -> bool {
        self.inputs.as_deref().and_then(|schema| schema.get("properties")?.get("version")).is_some()
    }

    /// Returns whether the output has a property `error`, which then does not indicate a failure.
    pub fn declares_error(&self) -> bool {
        self.outputs.as_deref().and_then(|schema| schema.get("properties")?.get("error")).is_some()
    }
}
