//! Contract: checks inputs and outputs against the schemas that the agent declares (R13, R29, R32).
//! Schemas are compiled once, when a document is read; a call only checks its own bytes.
//! This module fetches no reference, writes no response and does not select the operation.

mod compiled_schema;
mod config;
mod json_body;
mod query_input;
mod schema_graph;
mod validation_cost;
mod violation_messages;

pub use compiled_schema::CompiledSchema;
pub use config::{BatchConfig, ContractConfig, ContractMode};
pub use json_body::{JsonBounds, parse_json};
pub use query_input::input_from_query;

use crate::{
    agent::Operation,
    fault::{Fault, FaultCode, Violation},
};
use serde_json::Value;
use std::sync::Arc;

/// Compiled input and output schemas of one operation.
#[derive(Clone, Debug)]
pub struct OperationContract {
    /// Input schema; `None` if none is declared or checking is off.
    pub input: Option<Arc<CompiledSchema>>,
    /// Output schema; `None` if none is declared or checking is off.
    pub output: Option<Arc<CompiledSchema>>,
    modes: (ContractMode, ContractMode),
}

impl OperationContract {
    /// Compiles the schemas of one operation, even where checking is off, so that an invalid schema is reported when
    /// the document is read and not when checking is turned on.
    ///
    /// # Errors
    /// Every invalid schema, by the name of its field.
    pub fn compile(operation: &Operation, config: &ContractConfig) -> Result<Self, Vec<String>> {
        let mut problems = Vec::new();
        let mut side = |field: &str, schema: Option<&Arc<Value>>, mode: ContractMode| {
            let compiled = schema.map(|schema| CompiledSchema::compile(schema)).transpose();
            let schema = compiled.map_err(|why| problems.push(qualify_problem(operation, field, &why)));
            schema.ok().flatten().filter(|_| mode != ContractMode::Off)
        };
        let input = side("inputs", operation.inputs.as_ref(), config.input);
        let output = side("outputs", operation.outputs.as_ref(), config.output);
        match problems.is_empty() {
            true => Ok(Self { input, output, modes: (config.input, config.output) }),
            false => Err(problems),
        }
    }

    /// Checks an input (R32); returns the violations to report.
    ///
    /// # Errors
    /// 400 `InvalidInput` with the violations, if inputs are enforced.
    pub fn check_input(&self, input: &Value) -> Result<Vec<Violation>, Fault> {
        let found = self.input.as_ref().map(|schema| schema.validate(input)).unwrap_or_default();
        match self.modes.0 {
            ContractMode::Enforce if !found.is_empty() => {
                Err(Fault::new(FaultCode::InvalidInput, "The input does not match the agent's schema")
                    .with_violations(found))
            }
            _ => Ok(found),
        }
    }

    /// Checks an output of the agent; returns the violations to report.
    ///
    /// # Errors
    /// 502 `AgentError`, if outputs are enforced; the violations go to the log, not to the caller.
    pub fn check_output(&self, output: &Value) -> Result<Vec<Violation>, Fault> {
        let found = self.output.as_ref().map(|schema| schema.validate(output)).unwrap_or_default();
        match self.modes.1 {
            ContractMode::Enforce if !found.is_empty() => {
                let violations: Vec<_> =
                    found.iter().map(|broken| format!("{}: {}", broken.pointer, broken.message)).collect();
                let fault = Fault::new(FaultCode::AgentError, "The agent's response does not match its own schema");
                Err(fault.with_detail(violations.join("; ")))
            }
            _ => Ok(found),
        }
    }

    /// Returns whether an invalid output is a fault; the output is buffered completely then.
    pub fn enforces_output(&self) -> bool {
        self.output.is_some() && self.modes.1 == ContractMode::Enforce
    }

    /// Returns whether an array body is one input and not a batch: the schema itself accepts arrays (R44).
    pub fn accepts_array_input(&self) -> bool {
        self.input.as_ref().is_some_and(|schema| schema.accepts_array())
    }
}

fn qualify_problem(operation: &Operation, field: &str, why: &str) -> String {
    match &*operation.name {
        "" => format!("{field}: {why}"),
        name => format!("operation '{name}': {field}: {why}"),
    }
}

#[cfg(test)]
mod tests;
