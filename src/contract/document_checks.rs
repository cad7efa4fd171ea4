//! Checks of what a document says about inputs and outputs (R13): that both are described, and that the examples match
//! the schemas. Neither affects calls, so that the operator decides what a finding means.

use super::compiled_schema::{CompiledSchema, unsupported_keywords, violations_of};
use crate::{agent::Agent, values::json::truncate};
use json_schema::{
    Evaluation, Outcome, Tape,
    tape::{Node, NodeKind, TapeBounds},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::task::Poll;

/// Maximum number of examples that are checked for one operation.
const MAX_EXAMPLES: usize = 10;
/// Maximum nesting of an example that is checked.
const MAX_EXAMPLE_DEPTH: usize = 64;
/// Maximum fuel of the checks of all examples of one document: a second.
const MAX_EXAMPLE_FUEL: u64 = 100_000_000;
/// Maximum number of findings for one document.
const MAX_FINDINGS: usize = 20;
/// Maximum length of a finding in characters.
const MAX_FINDING_LENGTH: usize = 300;

/// What the gateway does with a document that has a finding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FindingMode {
    /// Nothing.
    Allow,
    /// The document is served; the finding is logged, and on the admin page `/sources`.
    #[default]
    Report,
    /// The document is refused.
    Refuse,
}

/// What the gateway does with a schema that has a keyword which cannot be in force, such as a pattern that is too large.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum UnsupportedMode {
    /// The agent is served without this keyword, which is logged, and on the admin page `/sources`.
    #[default]
    Report,
    /// The document is refused.
    Refuse,
}

/// Which findings matter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DocumentChecks {
    /// An operation without a schema of its input or output.
    pub missing_schemas: FindingMode,
    /// An example that does not match the schemas of its operation.
    pub invalid_examples: FindingMode,
    /// A keyword of a schema that cannot be in force.
    pub unsupported: UnsupportedMode,
}

/// The compiled schemas of one operation, as far as there are any.
#[derive(Clone, Copy, Debug, Default)]
pub struct OperationSchemas<'a> {
    /// Schema of the input.
    pub input: Option<&'a CompiledSchema>,
    /// Schema of the output.
    pub output: Option<&'a CompiledSchema>,
}

/// The findings of one document, each with its location.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct DocumentFindings {
    /// Findings for which the document is refused.
    pub refusals: Vec<String>,
    /// Findings that are reported.
    pub warnings: Vec<String>,
}

impl DocumentFindings {
    fn add(&mut self, mode: FindingMode, finding: &str) {
        let findings = match mode {
            FindingMode::Allow => return,
            FindingMode::Report => &mut self.warnings,
            FindingMode::Refuse => &mut self.refusals,
        };
        if findings.len() < MAX_FINDINGS {
            findings.push(truncate(finding, MAX_FINDING_LENGTH));
        }
    }
}

impl DocumentChecks {
    /// Checks the document of `agent`; `schemas_of` returns the schemas of the operation with this index.
    pub fn check<'a>(&self, agent: &Agent, schemas_of: impl Fn(usize) -> OperationSchemas<'a>) -> DocumentFindings {
        let mut findings = DocumentFindings::default();
        // Most documents have no examples, and need not be parsed once more.
        let has_examples = self.invalid_examples != FindingMode::Allow && agent.document.contains("\"examples\"");
        let document = has_examples.then(|| {
            let text = agent.document.as_bytes().to_vec();
            Tape::parse(text.into(), &TapeBounds::default()).ok()
        });
        let mut examples = document.flatten().map(|tape| ExampleChecks { tape, fuel_left: MAX_EXAMPLE_FUEL });
        for (index, operation) in agent.operations.iter().enumerate() {
            let is_implied = operation.name.is_empty();
            let prefix = if is_implied { String::new() } else { format!("operations[{index}].") };
            for (member, schema) in [("inputs", &operation.inputs), ("outputs", &operation.outputs)] {
                if schema.is_none() {
                    let finding = format!("{prefix}{member}: is missing (a JSON Schema)");
                    findings.add(self.missing_schemas, &finding);
                }
            }
            let Some(examples) = &mut examples else { continue };
            for (at, example) in examples.of_operation((!is_implied).then_some(index)).into_iter().enumerate() {
                if let Some(finding) = examples.finding(example, schemas_of(index)) {
                    findings.add(self.invalid_examples, &format!("{prefix}examples[{at}]{finding}"));
                }
            }
        }
        findings
    }

    /// Returns for what a document with this schema is refused, because a keyword cannot be in force.
    pub fn unsupported_problems(&self, schema: &CompiledSchema) -> Vec<String> {
        match self.unsupported {
            UnsupportedMode::Report => Vec::new(),
            UnsupportedMode::Refuse => unsupported_keywords(schema).collect(),
        }
    }
}

/// The examples of one document, and the fuel that is left for their checks.
struct ExampleChecks {
    tape: Tape,
    fuel_left: u64,
}

impl ExampleChecks {
    /// Returns the examples of an operation, at most ten; `None` is the implied one.
    fn of_operation(&self, index: Option<usize>) -> Vec<Node> {
        let operation = match index {
            None => Some(Tape::ROOT),
            Some(index) => {
                let operations = self.tape.find_member(Tape::ROOT, "operations");
                operations.and_then(|operations| self.tape.items(operations).nth(index))
            }
        };
        let examples = operation.and_then(|operation| self.tape.find_member(operation, "examples"));
        examples.into_iter().flat_map(|examples| self.tape.items(examples)).take(MAX_EXAMPLES).collect()
    }

    /// Returns what is wrong with an example. One of another form, such as the texts that skills of A2A have, is not
    /// checked.
    fn finding(&mut self, example: Node, schemas: OperationSchemas<'_>) -> Option<String> {
        if self.tape.kind(example) != NodeKind::Object {
            return None;
        }
        let parts = [("input", schemas.input), ("output", schemas.output)];
        parts.into_iter().find_map(|(member, schema)| {
            let value = self.tape.find_member(example, member)?;
            if self.is_deeper_than(value, MAX_EXAMPLE_DEPTH) {
                return Some(format!(".{member}: is nested deeper than {MAX_EXAMPLE_DEPTH} levels"));
            }
            self.violation(value, schema?).map(|why| format!(".{member}: {why}"))
        })
    }

    fn violation(&mut self, value: Node, schema: &CompiledSchema) -> Option<String> {
        let mut evaluation = Evaluation::new(value, self.fuel_left).with_max_violations(1);
        let outcome = loop {
            if let Poll::Ready(outcome) = evaluation.resume(schema.program(), &self.tape, self.fuel_left.max(1)) {
                break outcome;
            }
        };
        self.fuel_left = self.fuel_left.saturating_sub(evaluation.fuel_used());
        if outcome == Outcome::OutOfFuel {
            return Some(format!(
                "is not checked: the examples of a document may take {MAX_EXAMPLE_FUEL} units of fuel together"
            ));
        }
        let violation = violations_of(outcome).into_iter().next()?;
        let location = if violation.pointer.is_empty() { String::new() } else { format!("at {}: ", violation.pointer) };
        Some(format!("does not match the schema ({location}{})", violation.message))
    }

    fn is_deeper_than(&self, node: Node, depth: usize) -> bool {
        let tape = &self.tape;
        let Some(below) = depth.checked_sub(1) else { return tape.kind(node).is_container() };
        tape.items(node).any(|item| self.is_deeper_than(item, below))
            || tape.members(node).any(|(_, value)| self.is_deeper_than(value, below))
    }
}
