//! Contract: validates inputs and outputs against the schemas that the agent declares (R13, R29, R32). Schemas are
//! compiled once, when a document is read. This module fetches no references.

mod config;
mod in_place_subschemas;
mod json_body;
mod query_input;
mod schema_validation;
mod subschema_graph;
mod validation_cost;
mod violation_messages;

pub use config::{BatchConfig, ContractConfig, ContractMode};
pub use json_body::{JsonBounds, parse_json};
pub use query_input::input_from_query;
pub use schema_validation::CompiledSchema;

use crate::{
    agent::Operation,
    fault::{Fault, FaultCode, Violation},
};
use serde_json::Value;
use std::sync::Arc;

/// Compiled input and output schemas of one operation.
#[derive(Clone, Debug)]
pub struct OperationContract {
    /// Input schema; `None` if none is declared or validation is off.
    pub input: Option<Arc<CompiledSchema>>,
    /// Output schema; `None` if none is declared or validation is off.
    pub output: Option<Arc<CompiledSchema>>,
    input_mode: ContractMode,
    output_mode: ContractMode,
}

impl OperationContract {
    /// Compiles the schemas of one operation. A schema is compiled even if validation is off, so that an invalid schema
    /// is reported when the document is read and not when validation is turned on.
    ///
    /// # Errors
    /// Every invalid schema, by the name of its field.
    pub fn compile(operation: &Operation, config: &ContractConfig) -> Result<Self, Vec<String>> {
        let mut problems = Vec::new();
        let mut compile_side = |field: &str, schema: Option<&Arc<Value>>, mode: ContractMode| {
            let compiled = schema.map(|schema| CompiledSchema::compile(schema)).transpose();
            let schema = compiled.map_err(|why| problems.push(qualify_problem(operation, field, &why)));
            schema.ok().flatten().filter(|_| mode != ContractMode::Off)
        };
        let input = compile_side("inputs", operation.inputs.as_ref(), config.input);
        let output = compile_side("outputs", operation.outputs.as_ref(), config.output);
        if problems.is_empty() {
            Ok(Self { input, output, input_mode: config.input, output_mode: config.output })
        } else {
            Err(problems)
        }
    }

    /// Validates an input (R32). Returns the violations to report.
    ///
    /// # Errors
    /// 400 `InvalidInput` with the violations, if inputs are enforced.
    pub fn check_input(&self, input: &Value) -> Result<Vec<Violation>, Fault> {
        let violations = self.input.as_ref().map(|schema| schema.validate(input)).unwrap_or_default();
        match self.input_mode {
            ContractMode::Enforce if !violations.is_empty() => {
                Err(Fault::new(FaultCode::InvalidInput, "The input does not match the agent's schema")
                    .with_violations(violations))
            }
            _ => Ok(violations),
        }
    }

    /// Validates an output of the agent. Returns the violations to report.
    ///
    /// # Errors
    /// 502 `AgentError`, if outputs are enforced. The violations are in the detail for the log.
    pub fn check_output(&self, output: &Value) -> Result<Vec<Violation>, Fault> {
        let violations = self.output.as_ref().map(|schema| schema.validate(output)).unwrap_or_default();
        match self.output_mode {
            ContractMode::Enforce if !violations.is_empty() => {
                let lines: Vec<_> = violations
                    .iter()
                    .map(|violation| format!("{}: {}", violation.pointer, violation.message))
                    .collect();
                let fault = Fault::new(FaultCode::AgentError, "The agent's response does not match its own schema");
                Err(fault.with_detail(lines.join("; ")))
            }
            _ => Ok(violations),
        }
    }

    /// Returns whether an invalid output is a fault, so that the output must be buffered completely.
    pub fn enforces_output(&self) -> bool {
        self.output.is_some() && self.output_mode == ContractMode::Enforce
    }

    /// Returns whether an array body is one input and not a batch, because the schema accepts arrays (R44).
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
