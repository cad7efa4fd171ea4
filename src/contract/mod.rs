//! Contract: checks inputs and outputs against the schemas that the agent declares (R13, R29, R32).
//! Schemas are compiled once, when a document is read; a call only checks its own bytes.
//! This module fetches no reference, writes no response and does not select the operation.

mod config;
mod cost;
mod graph;
mod message;
mod parse;
mod query;
mod schema;

pub use config::{Batch, Config, Mode};
pub use parse::{Bounds, parse};
pub use query::from_query;
pub use schema::Schema;

use crate::{
    agent::Operation,
    fault::{Code, Fault, Violation},
};
use serde_json::Value;
use std::sync::Arc;

/// Compiled input and output schemas of one operation.
#[derive(Clone, Debug)]
pub struct Contract {
    /// Input schema; `None` if none is declared or checking is off.
    pub input: Option<Arc<Schema>>,
    /// Output schema; `None` if none is declared or checking is off.
    pub output: Option<Arc<Schema>>,
    modes: (Mode, Mode),
}

impl Contract {
    /// Compiles the schemas of one operation, even where checking is off, so that an invalid schema is reported when
    /// the document is read and not when checking is turned on.
    ///
    /// # Errors
    /// Every invalid schema, by the name of its field.
    pub fn compile(operation: &Operation, config: &Config) -> Result<Self, Vec<String>> {
        let mut problems = Vec::new();
        let mut side = |field: &str, schema: Option<&Arc<Value>>, mode: Mode| {
            let compiled = schema.map(|schema| Schema::compile(schema)).transpose();
            let schema = compiled.map_err(|why| problems.push(named(operation, field, &why)));
            schema.ok().flatten().filter(|_| mode != Mode::Off)
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
    pub fn admit_input(&self, input: &Value) -> Result<Vec<Violation>, Fault> {
        let found = self.input.as_ref().map(|schema| schema.check(input)).unwrap_or_default();
        match self.modes.0 {
            Mode::Enforce if !found.is_empty() => {
                Err(Fault::new(Code::InvalidInput, "The input does not match the agent's schema").violations(found))
            }
            _ => Ok(found),
        }
    }

    /// Checks an output of the agent; returns the violations to report.
    ///
    /// # Errors
    /// 502 `AgentError`, if outputs are enforced; the violations go to the log, not to the caller.
    pub fn admit_output(&self, output: &Value) -> Result<Vec<Violation>, Fault> {
        let found = self.output.as_ref().map(|schema| schema.check(output)).unwrap_or_default();
        match self.modes.1 {
            Mode::Enforce if !found.is_empty() => {
                let told: Vec<_> =
                    found.iter().map(|broken| format!("{}: {}", broken.pointer, broken.message)).collect();
                let fault = Fault::new(Code::AgentError, "The agent's response does not match its own schema");
                Err(fault.detail(told.join("; ")))
            }
            _ => Ok(found),
        }
    }

    /// Returns whether an invalid output is a fault; the output is buffered completely then.
    pub fn enforces_output(&self) -> bool {
        self.output.is_some() && self.modes.1 == Mode::Enforce
    }

    /// Returns whether an array body is one input and not a batch: the schema itself accepts arrays (R44).
    pub fn takes_array(&self) -> bool {
        self.input.as_ref().is_some_and(|schema| schema.accepts_array())
    }
}

fn named(operation: &Operation, field: &str, why: &str) -> String {
    match &*operation.name {
        "" => format!("{field}: {why}"),
        name => format!("operation '{name}': {field}: {why}"),
    }
}

#[cfg(test)]
mod tests;
