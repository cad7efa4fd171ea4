//! The contract: is the input, and is the output, what the agent declared (R13, R29, R32)?
//! Schemas are compiled once, when a document is read; a call only looks at its own bytes.
//! Nothing here fetches a reference, writes a response or decides which operation is meant.

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

/// What one operation takes and gives, ready to be checked.
#[derive(Clone, Debug)]
pub struct Contract {
    /// What it takes; `None` where nothing is declared or checking is off.
    pub input: Option<Arc<Schema>>,
    /// What it gives; `None` where nothing is declared or checking is off.
    pub output: Option<Arc<Schema>>,
    modes: (Mode, Mode),
}

impl Contract {
    /// Compiles the schemas of one operation. A schema is compiled even where checking is off, so that a broken
    /// one is told when it is read and not when checking is turned on.
    ///
    /// # Errors
    /// Every schema that cannot be used, by the name of its field.
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

    /// Checks what a caller sent (R32): the violations to report, or the refusal.
    ///
    /// # Errors
    /// 400 `InvalidInput` with the violations, where the input is enforced.
    pub fn admit_input(&self, input: &Value) -> Result<Vec<Violation>, Fault> {
        let found = self.input.as_ref().map(|schema| schema.check(input)).unwrap_or_default();
        match self.modes.0 {
            Mode::Enforce if !found.is_empty() => {
                Err(Fault::new(Code::InvalidInput, "the input does not match the agent's schema").violations(found))
            }
            _ => Ok(found),
        }
    }

    /// Checks what the agent answered: the violations to report, or the failure.
    ///
    /// # Errors
    /// 502 `AgentError`, where the output is enforced; the violations are the log's, not the caller's.
    pub fn admit_output(&self, output: &Value) -> Result<Vec<Violation>, Fault> {
        let found = self.output.as_ref().map(|schema| schema.check(output)).unwrap_or_default();
        match self.modes.1 {
            Mode::Enforce if !found.is_empty() => {
                let told: Vec<_> =
                    found.iter().map(|broken| format!("{}: {}", broken.pointer, broken.message)).collect();
                let fault = Fault::new(Code::AgentError, "the agent's answer does not match its own schema");
                Err(fault.detail(told.join("; ")))
            }
            _ => Ok(found),
        }
    }

    /// Whether an answer that breaks the contract is a fault; it must be whole before it goes out, then.
    pub fn enforces_output(&self) -> bool {
        self.output.is_some() && self.modes.1 == Mode::Enforce
    }

    /// Whether an array body is one input rather than a batch: the schema itself takes arrays (R44).
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
