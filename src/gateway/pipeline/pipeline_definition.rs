//! The definition of a pipeline: its steps and its input, parsed strictly. Unknown members are refused by name, and all
//! violations are reported at once.

use crate::{
    agent::AgentId,
    fault::{Fault, FaultCode, Result, Violation},
    mqtt_bridge::MAX_PIPELINE_STEPS,
    values::json,
};
use bytes::Bytes;
use serde_json::{Map, Value, value::RawValue};

/// A pipeline to run.
#[derive(Debug, PartialEq)]
pub(super) struct PipelineDefinition {
    pub(super) steps: Vec<PipelineStep>,
    /// The input of the first step, as written.
    pub(super) input: Bytes,
}

/// One call of a pipeline.
#[derive(Debug, PartialEq)]
pub(super) struct PipelineStep {
    pub(super) agent: String,
    pub(super) operation: Option<String>,
    pub(super) instruction: Option<String>,
}

/// The raw text of the input.
#[derive(serde::Deserialize)]
struct RawInput<'a> {
    #[serde(borrow)]
    input: &'a RawValue,
}

impl PipelineDefinition {
    /// Parses a pipeline; refuses unknown members.
    pub(super) fn parse(bytes: &Bytes, body: &Value) -> Result<Self> {
        let Value::Object(members) = body else {
            return Err(Fault::new(
                FaultCode::InvalidInput,
                format!("A pipeline is an object with steps and input, not {}", json::type_name(body)),
            ));
        };
        let mut violations = Vec::new();
        report_unknown_members(members, &["steps", "input"], "", &mut violations);
        match members.get("input") {
            Some(Value::Array(_)) => violations.push(violation("/input", "a pipeline takes one input, not a batch")),
            Some(_) => {}
            None => violations.push(violation("", "required property 'input' is missing")),
        }
        let steps = match members.get("steps") {
            Some(Value::Array(steps)) if steps.len() > MAX_PIPELINE_STEPS => {
                return Err(Fault::new(
                    FaultCode::InvalidInput,
                    format!(
                        "pipeline_depth_exceeded: the pipeline has {} steps (at most {MAX_PIPELINE_STEPS})",
                        steps.len()
                    ),
                )
                .with_violations(vec![violation("/steps", "too many steps")]));
            }
            Some(Value::Array(steps)) if !steps.is_empty() => steps.as_slice(),
            _ => {
                violations.push(violation("/steps", "must be an array of 1 to 16 steps"));
                &[]
            }
        };
        let steps: Vec<PipelineStep> =
            steps.iter().enumerate().map(|(index, step)| PipelineStep::parse(step, index, &mut violations)).collect();
        if !violations.is_empty() {
            return Err(Fault::new(FaultCode::InvalidInput, "The pipeline is not valid").with_violations(violations));
        }
        let raw_input: RawInput<'_> = serde_json::from_slice(bytes)
            .map_err(|why| Fault::new(FaultCode::Internal, "The pipeline could not be parsed").with_detail(why))?;
        Ok(Self { steps, input: bytes.slice_ref(raw_input.input.get().as_bytes()) })
    }
}

impl PipelineStep {
    fn parse(step: &Value, index: usize, violations: &mut Vec<Violation>) -> Self {
        let pointer = format!("/steps/{index}");
        let none = Map::new();
        let members = step.as_object().unwrap_or_else(|| {
            violations.push(violation(&pointer, "must be an object"));
            &none
        });
        report_unknown_members(members, &["agent", "operation", "instruction"], &pointer, violations);
        let mut text = |name: &str, required: bool, is_id: bool| match members.get(name) {
            Some(Value::String(text)) if !is_id || AgentId::is_valid(text) => Some(text.clone()),
            None | Some(Value::Null) if !required => None,
            _ => {
                let message = if is_id { "must be 1 to 128 of A-Z a-z 0-9 . _ -" } else { "must be a string" };
                violations.push(violation(&format!("{pointer}/{name}"), message));
                None
            }
        };
        Self {
            agent: text("agent", true, true).unwrap_or_default(),
            operation: text("operation", false, true),
            instruction: text("instruction", false, false),
        }
    }
}

fn report_unknown_members(
    members: &Map<String, Value>,
    allowed: &[&str],
    pointer: &str,
    violations: &mut Vec<Violation>,
) {
    for name in members.keys().filter(|name| !allowed.contains(&name.as_str())).take(8) {
        let name = json::truncate(name, 60);
        violations.push(violation(pointer, &format!("unknown member '{name}' (known are {})", allowed.join(", "))));
    }
}

fn violation(pointer: &str, message: &str) -> Violation {
    Violation::new(pointer, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn parse(body: &Value) -> Result<PipelineDefinition> {
        PipelineDefinition::parse(&Bytes::from(body.to_string()), body)
    }

    #[test]
    fn r110_a_pipeline_definition_is_parsed_strictly() {
        let pipeline = parse(&json!({
            "steps": [{"agent": "a"}, {"agent": "b", "operation": "o", "instruction": "shorten"}], "input": {"x": 1},
        }));
        assert_eq!(pipeline.unwrap().steps.len(), 2);
        let step = json!({"agent": "a"});
        for (body, expected) in [
            (json!([]), "not an array"),
            (json!({"input": {}}), "/steps"),
            (json!({"steps": [], "input": {}}), "/steps"),
            (json!({"steps": {}, "input": {}}), "/steps"),
            (json!({"steps": [step]}), "'input' is missing"),
            (json!({"steps": [step], "input": []}), "not a batch"),
            (json!({"steps": [step], "input": 1, "timeout": 3}), "unknown member 'timeout'"),
            (json!({"steps": [{"agent": "a", "next": null}], "input": 1}), "unknown member 'next'"),
            (json!({"steps": ["a"], "input": 1}), "must be an object"),
            (json!({"steps": [{}], "input": 1}), "/steps/0/agent"),
            (json!({"steps": [{"agent": "a/b"}], "input": 1}), "/steps/0/agent"),
            (json!({"steps": [{"agent": "a", "operation": 3}], "input": 1}), "/steps/0/operation"),
            (json!({"steps": [{"agent": "a", "instruction": {}}], "input": 1}), "/steps/0/instruction"),
        ] {
            let fault = parse(&body).unwrap_err();
            let text = format!("{fault} {:?}", fault.violations());
            assert!(fault.code() == FaultCode::InvalidInput && text.contains(expected), "{body}: {text}");
        }
    }

    #[test]
    fn r121_a_pipeline_has_at_most_sixteen_steps() {
        let with_steps = |count: usize| json!({"steps": vec![json!({"agent": "a"}); count], "input": {}});
        assert_eq!(parse(&with_steps(16)).unwrap().steps.len(), 16);
        let fault = parse(&with_steps(17)).unwrap_err();
        assert!(fault.message().starts_with("pipeline_depth_exceeded") && fault.http_status() == 400, "{fault}");
    }
}
