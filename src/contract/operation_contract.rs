//! The contract of one operation: the schemas of its inputs and outputs, and what becomes of a body that violates them.

use super::{
    compiled_schema::{CompiledSchema, unsupported_keywords, violations_of},
    config::{CheckFuel, ContractConfig, ContractMode},
    document_checks::{OperationSchemas, UnsupportedMode},
    query_input::QueryTypes,
    schema_budget::DocumentBudget,
};
use crate::{
    agent::Operation,
    fault::{Fault, FaultCode, Violation},
};
use json_schema::{Evaluation, Outcome, Tape};
use serde_json::Value;
use std::{sync::Arc, task::Poll};

/// The side of a contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ContractSide {
    Input,
    Output,
}

/// Compiled input and output schemas of one operation.
#[derive(Clone, Debug)]
pub struct OperationContract {
    /// Input schema; `None` if none is declared or validation is off.
    pub input: Option<Arc<CompiledSchema>>,
    /// Output schema; `None` if none is declared or validation is off.
    pub output: Option<Arc<CompiledSchema>>,
    /// The types of the properties of the input.
    query_types: Arc<QueryTypes>,
    input_mode: ContractMode,
    output_mode: ContractMode,
    fuel: CheckFuel,
    /// Keywords that are not in force.
    unsupported: Box<[String]>,
}

/// What is wrong with the schemas of an operation, or worth a report.
#[derive(Debug, Default)]
struct SchemaFindings {
    problems: Vec<String>,
    unsupported: Vec<String>,
}

impl SchemaFindings {
    /// Compiles a schema; `None` if it cannot be used.
    fn compile(
        &mut self,
        field: &str,
        schema: &Arc<Value>,
        config: &ContractConfig,
        budget: &DocumentBudget<'_>,
    ) -> Option<Arc<CompiledSchema>> {
        let compiled = CompiledSchema::compile_within(schema, budget);
        let compiled = compiled.map_err(|why| self.problems.push(format!("{field}{why}"))).ok()?;
        let findings = match config.unsupported {
            UnsupportedMode::Report => &mut self.unsupported,
            UnsupportedMode::Refuse => &mut self.problems,
        };
        findings.extend(unsupported_keywords(&compiled).map(|why| format!("{field}{why}")));
        Some(compiled)
    }
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
        let mut findings = SchemaFindings::default();
        let mut compile = |field: &str, schema: Option<&Arc<Value>>| {
            schema.and_then(|schema| findings.compile(&format!("{field}: "), schema, config, budget))
        };
        let input = compile("inputs", operation.inputs.as_ref());
        let output = compile("outputs", operation.outputs.as_ref());
        let query_types = input.as_ref().map(|input| QueryTypes::of_schema(input.source(), input.digest(), budget));
        let query_types = query_types.unwrap_or_else(|| Ok(Arc::default()));
        let query_types = query_types.unwrap_or_else(|why| {
            findings.problems.push(format!("inputs: {why}"));
            Arc::default()
        });
        let SchemaFindings { problems, unsupported } = findings;
        if !problems.is_empty() {
            return Err(problems);
        }
        Ok(Self {
            input: input.filter(|_| config.input != ContractMode::Off),
            output: output.filter(|_| config.output != ContractMode::Off),
            query_types,
            input_mode: config.input,
            output_mode: config.output,
            fuel: config.fuel,
            unsupported: unsupported.into(),
        })
    }

    /// Compiles the schema of an input that belongs to no operation of the agent's document.
    ///
    /// # Errors
    /// Why the schema is not valid.
    pub fn compile_input(
        schema: &Arc<Value>,
        config: &ContractConfig,
        budget: &DocumentBudget<'_>,
    ) -> Result<Self, String> {
        let mut findings = SchemaFindings::default();
        let input = findings.compile("", schema, config, budget);
        let SchemaFindings { problems, unsupported } = findings;
        if let Some(why) = problems.into_iter().next() {
            return Err(why);
        }
        Ok(Self {
            input: input.filter(|_| config.input != ContractMode::Off),
            output: None,
            query_types: Arc::default(),
            input_mode: config.input,
            output_mode: ContractMode::Off,
            fuel: config.fuel,
            unsupported: unsupported.into(),
        })
    }

    /// Returns the schemas, for checks of the document.
    pub fn schemas(&self) -> OperationSchemas<'_> {
        OperationSchemas { input: self.input.as_deref(), output: self.output.as_deref() }
    }

    /// Returns what is not in force of the schemas.
    pub fn unsupported(&self) -> &[String] {
        &self.unsupported
    }

    /// Returns the types of the properties of the input, for inputs from queries.
    pub fn query_types(&self) -> &QueryTypes {
        &self.query_types
    }

    pub(super) fn schema(&self, side: ContractSide) -> Option<&Arc<CompiledSchema>> {
        match side {
            ContractSide::Input => self.input.as_ref(),
            ContractSide::Output => self.output.as_ref(),
        }
    }

    /// Returns the fuel that the check of a body of this length may take.
    pub(super) fn max_fuel(&self, body_bytes: usize) -> u64 {
        self.fuel.of_body(body_bytes)
    }

    /// Returns the violations to report.
    ///
    /// # Errors
    /// The fault of a violation, where the contract is enforced.
    pub(super) fn verdict(&self, side: ContractSide, outcome: Outcome) -> Result<Vec<Violation>, Fault> {
        match (side, outcome) {
            (_, Outcome::Valid) => Ok(Vec::new()),
            (ContractSide::Input, outcome) if self.input_mode == ContractMode::Enforce => Err(input_fault(outcome)),
            (ContractSide::Output, outcome) if self.output_mode == ContractMode::Enforce => Err(output_fault(outcome)),
            (_, outcome) => Ok(violations_of(outcome)),
        }
    }

    /// Returns whether the input is valid, as far as `fuel_left` suffices to say so; takes what the check takes.
    pub fn accepts_within(&self, input: &Value, fuel_left: &mut u64) -> bool {
        if self.input.is_none() {
            return true;
        }
        let Ok(tape) = Tape::from_value(input) else { return false };
        *fuel_left = fuel_left.saturating_sub(tape.entry_count() as u64);
        self.accepts_tape(&tape, fuel_left)
    }

    /// Returns the same as [`Self::accepts_within`] of an input that is parsed.
    pub fn accepts_tape(&self, tape: &Tape, fuel_left: &mut u64) -> bool {
        let Some(schema) = &self.input else { return true };
        let mut evaluation = Evaluation::new(Tape::ROOT, *fuel_left);
        let result = evaluation.resume(schema.program(), tape, *fuel_left);
        *fuel_left = fuel_left.saturating_sub(evaluation.fuel_used());
        result == Poll::Ready(Outcome::Valid)
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

#[cold]
fn input_fault(outcome: Outcome) -> Fault {
    let too_large = |text: &'static str| Fault::new(FaultCode::PayloadTooLarge, text).with_setting("contract.fuel");
    match outcome {
        Outcome::OutOfFuel => too_large("The input takes too long to be checked against the agent's schema"),
        Outcome::OutOfMemory => too_large("The input takes too much memory to be checked against the agent's schema"),
        outcome => Fault::new(FaultCode::InvalidInput, "The input does not match the agent's schema")
            .with_violations(violations_of(outcome)),
    }
}

/// Returns the fault of an agent whose output violates its schema. The violations are in the detail for the log.
#[cold]
fn output_fault(outcome: Outcome) -> Fault {
    let lines: Vec<_> = violations_of(outcome)
        .iter()
        .map(|violation| match &*violation.pointer {
            "" => violation.message.clone(),
            pointer => format!("{pointer}: {}", violation.message),
        })
        .collect();
    let fault = Fault::new(FaultCode::AgentError, "The agent's response does not match its own schema");
    fault.with_detail(lines.join("; ")).with_setting("contract.output")
}
