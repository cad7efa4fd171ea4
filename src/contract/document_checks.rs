//! Checks of what a document says about inputs and outputs (R13): that both are described, and that the examples match
//! the schemas. Neither affects calls, so that the operator decides what a finding means.

use super::schema_validation::CompiledSchema;
use crate::{
    agent::Agent,
    values::json::{is_deeper_than, truncate},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Maximum number of examples that are checked for one operation.
const MAX_EXAMPLES: usize = 10;
/// Maximum nesting of an example that is checked.
const MAX_EXAMPLE_DEPTH: usize = 64;
/// Maximum estimated time of the checks of all examples of one document, in nanoseconds.
const MAX_EXAMPLE_NANOS: u64 = 100_000_000;
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

/// Which findings matter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DocumentChecks {
    /// An operation without a schema of its input or output.
    pub missing_schemas: FindingMode,
    /// An example that does not match the schemas of its operation.
    pub invalid_examples: FindingMode,
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
        let (mut findings, mut nanos_left) = (DocumentFindings::default(), MAX_EXAMPLE_NANOS);
        // Most documents have no examples, and need not be parsed once more.
        let has_examples = self.invalid_examples != FindingMode::Allow && agent.document.contains("\"examples\"");
        let document: Value =
            if has_examples { serde_json::from_str(&agent.document).unwrap_or_default() } else { Value::Null };
        for (index, operation) in agent.operations.iter().enumerate() {
            let is_implied = operation.name.is_empty();
            let prefix = if is_implied { String::new() } else { format!("operations[{index}].") };
            for (member, schema) in [("inputs", &operation.inputs), ("outputs", &operation.outputs)] {
                if schema.is_none() {
                    let finding = format!("{prefix}{member}: is missing (a JSON Schema)");
                    findings.add(self.missing_schemas, &finding);
                }
            }
            let members =
                if is_implied { Some(&document) } else { document.get("operations").and_then(|all| all.get(index)) };
            let examples = members.and_then(|members| members.get("examples")).and_then(Value::as_array);
            for (at, example) in examples.into_iter().flatten().take(MAX_EXAMPLES).enumerate() {
                if let Some(finding) = example_finding(example, schemas_of(index), &mut nanos_left) {
                    findings.add(self.invalid_examples, &format!("{prefix}examples[{at}]{finding}"));
                }
            }
        }
        findings
    }
}

/// Returns what is wrong with an example. An example whose check would take long, or for which no time is left, is not
/// checked, and neither is one of another form, such as the texts that skills of A2A have.
fn example_finding(example: &Value, schemas: OperationSchemas<'_>, nanos_left: &mut u64) -> Option<String> {
    let parts = [("input", schemas.input), ("output", schemas.output)];
    parts.iter().find_map(|(member, schema)| {
        let value = example.get(member)?;
        if is_deeper_than(value, MAX_EXAMPLE_DEPTH) {
            return Some(format!(".{member}: is nested deeper than {MAX_EXAMPLE_DEPTH} levels"));
        }
        let violation = schema.as_ref()?.first_violation_within(value, nanos_left)?;
        let location = if violation.pointer.is_empty() { String::new() } else { format!("at {}: ", violation.pointer) };
        Some(format!(".{member}: does not match the schema ({location}{})", violation.message))
    })
}
