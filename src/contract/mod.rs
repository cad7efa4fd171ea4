//! Contract: validates inputs and outputs against the schemas that the agent declares (R13, R29, R32). Schemas are
//! compiled once, when a document is read. This module fetches no references.

mod array_acceptance;
mod config;
mod document_checks;
mod heavy_check_pool;
mod in_place_subschemas;
mod json_body;
mod json_size;
mod openapi_schema;
mod pattern_cost;
mod query_input;
mod schema_budget;
mod schema_references;
mod schema_validation;
mod subschema_graph;
mod validation_cost;
mod violation_messages;
mod work_rates;

pub use config::{BatchConfig, ContractConfig, ContractMode, HeavyCheckConfig};
pub use document_checks::{DocumentChecks, DocumentFindings, FindingMode, OperationSchemas};
pub use heavy_check_pool::{AgentHeavyChecks, HeavyCheckPool, HeavyCheckRequest};
pub use json_body::{JsonBounds, parse_json};
pub use json_size::size_without_long_texts;
pub use openapi_schema::{SchemaDialect, SubschemaPlace, convert_exclusive_bounds};
pub use query_input::{TextTypes, input_from_query};
pub use schema_budget::{DocumentBudget, SchemaBudget, SchemaCharge, SchemaDigest, SchemaLimits};
pub use schema_validation::{CheckWork, CompiledSchema};

use crate::{
    agent::Operation,
    fault::{Fault, FaultCode, Violation},
};
use schema_validation::violation_of_whole;
use serde_json::Value;
use std::sync::Arc;
use validation_cost::ExceededBound;

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
    /// Compiles the schemas of one operation, within the budget of its document. A schema is compiled even if
    /// validation is off, so that an invalid schema is reported when the document is read and not when validation is
    /// turned on.
    ///
    /// # Errors
    /// Every invalid schema, by the name of its field.
    pub fn compile(
        operation: &Operation,
        config: &ContractConfig,
        budget: &DocumentBudget<'_>,
    ) -> Result<Self, Vec<String>> {
        let mut problems = Vec::new();
        let mut compile_side = |field: &str, schema: Option<&Arc<Value>>, mode: ContractMode| {
            let compiled = schema.map(|schema| CompiledSchema::compile_within(schema, budget)).transpose();
            let schema = compiled.map_err(|why| problems.push(format!("{field}: {why}")));
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

    /// Compiles the schema of an input that belongs to no operation of the agent's document.
    ///
    /// # Errors
    /// Why the schema is not valid.
    pub fn compile_input(schema: &Value, config: &ContractConfig, budget: &DocumentBudget<'_>) -> Result<Self, String> {
        let input = CompiledSchema::compile_within(schema, budget)?;
        let input = (config.input != ContractMode::Off).then_some(input);
        Ok(Self { input, output: None, input_mode: config.input, output_mode: ContractMode::Off })
    }

    /// Returns the schemas, for checks of the document.
    pub fn schemas(&self) -> OperationSchemas<'_> {
        OperationSchemas { input: self.input.as_deref(), output: self.output.as_deref() }
    }

    /// Returns the work to check `input`, the whole or a part of a body of this length.
    pub fn input_work(&self, input: &Value, body_bytes: usize) -> CheckWork {
        self.input.as_ref().map_or(CheckWork::NONE, |schema| schema.work(input, body_bytes))
    }

    /// Returns the work to check `output`, a body of this length.
    pub fn output_work(&self, output: &Value, body_bytes: usize) -> CheckWork {
        self.output.as_ref().map_or(CheckWork::NONE, |schema| schema.work(output, body_bytes))
    }

    /// Validates an input (R32), whose work is `work`. Returns the violations to report.
    ///
    /// # Errors
    /// 400 `InvalidInput` with the violations, if inputs are enforced; 413 `PayloadTooLarge` for an input whose check
    /// would take too long.
    pub fn check_input(&self, input: &Value, work: &CheckWork) -> Result<Vec<Violation>, Fault> {
        let Some(schema) = &self.input else { return Ok(Vec::new()) };
        let result = schema.validate_weighed(input, work);
        match (self.input_mode, result) {
            (ContractMode::Enforce, Err(ExceededBound::Work)) => Err(Fault::new(
                FaultCode::PayloadTooLarge,
                "The input is too large to be checked against the agent's schema",
            )
            .with_setting("contract.heavy_checks")),
            (mode, result) => {
                let violations = result.unwrap_or_else(|bound| violation_of_whole(bound.message()));
                if mode != ContractMode::Enforce || violations.is_empty() {
                    return Ok(violations);
                }
                Err(Fault::new(FaultCode::InvalidInput, "The input does not match the agent's schema")
                    .with_violations(violations))
            }
        }
    }

    /// Validates an output of the agent, whose work is `work`. Returns the violations to report.
    ///
    /// # Errors
    /// 502 `AgentError`, if outputs are enforced. The violations are in the detail for the log.
    pub fn check_output(&self, output: &Value, work: &CheckWork) -> Result<Vec<Violation>, Fault> {
        let Some(schema) = &self.output else { return Ok(Vec::new()) };
        let result = schema.validate_weighed(output, work);
        let violations = result.unwrap_or_else(|bound| violation_of_whole(bound.message()));
        match self.output_mode {
            ContractMode::Enforce if !violations.is_empty() => {
                let lines: Vec<_> = violations
                    .iter()
                    .map(|violation| match &*violation.pointer {
                        "" => violation.message.clone(),
                        pointer => format!("{pointer}: {}", violation.message),
                    })
                    .collect();
                let fault = Fault::new(FaultCode::AgentError, "The agent's response does not match its own schema");
                Err(fault.with_detail(lines.join("; ")).with_setting("contract.output"))
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

#[cfg(test)]
mod tests;
