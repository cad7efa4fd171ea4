//! The definition of a pipeline: its steps and its input, parsed strictly. Unknown members are refused by name, and all
//! violations are reported at once.

use crate::{
    agent::AgentId,
    bridge::DEEPEST,
    fault::{Code, Fault, Result, Violation},
    unit::json,
};
use bytes::Bytes;
use serde_json::{Map, Value, value::RawValue};

/// A pipeline to run.
#[derive(Debug, PartialEq)]
pub(super) struct Pipeline {
    pub(super) steps: Vec<Step>,
    /// The input of the first step, as written.
    pub(super) input: Bytes,
}

/// One call of a pipeline.
#[derive(Debug, PartialEq)]
pub(super) struct Step {
    pub(super) agent: String,
    pub(super) operation: Option<String>,
    pub(super) instruction: Option<String>,
}

/// The raw text of the input.
#[derive(serde::Deserialize)]
struct Raw<'a> {
    #[serde(borrow)]
    input: &'a RawValue,
}

impl Pipeline {
    /// Parses a pipeline; refuses unknown members.
    pub(super) fn read(bytes: &Bytes, body: &Value) -> Result<Self> {
        let Value::Object(members) = body else {
            return Err(Fault::new(
                Code::InvalidInput,
                format!("A pipeline is an object with steps and input, not {}", json::kind(body)),
            ));
        };
        let mut wrong = Vec::new();
        unknown(members, &["steps", "input"], "", &mut wrong);
        match members.get("input") {
            Some(Value::Array(_)) => wrong.push(violation("/input", "a pipeline takes one input, not a batch")),
            Some(_) => {}
            None => wrong.push(violation("", "required property 'input' is missing")),
        }
        let steps = match members.get("steps") {
            Some(Value::Array(steps)) if steps.len() > DEEPEST => {
                return Err(Fault::new(
                    Code::InvalidInput,
                    format!("pipeline_depth_exceeded: the pipeline has {} steps (at most {DEEPEST})", steps.len()),
                )
                .violations(vec![violation("/steps", "too many steps")]));
            }
            Some(Value::Array(steps)) if !steps.is_empty() => steps.as_slice(),
            _ => {
                wrong.push(violation("/steps", "must be an array of 1 to 16 steps"));
                &[]
            }
        };
        let steps: Vec<Step> =
            steps.iter().enumerate().map(|(index, step)| Step::read(step, index, &mut wrong)).collect();
        if !wrong.is_empty() {
            return Err(Fault::new(Code::InvalidInput, "The pipeline is not valid").violations(wrong));
        }
        let raw: Raw<'_> = serde_json::from_slice(bytes)
            .map_err(|why| Fault::new(Code::Internal, "The pipeline could not be parsed").detail(why))?;
        Ok(Self { steps, input: bytes.slice_ref(raw.input.get().as_bytes()) })
    }
}

impl Step {
    fn read(step: &Value, index: usize, wrong: &mut Vec<Violation>) -> Self {
        let at = format!("/steps/{index}");
        let none = Map::new();
        let members = step.as_object().unwrap_or_else(|| {
            wrong.push(violation(&at, "must be an object"));
            &none
        });
        unknown(members, &["agent", "operation", "instruction"], &at, wrong);
        let mut text = |name: &str, required: bool, is_id: bool| match members.get(name) {
            Some(Value::String(text)) if !is_id || AgentId::fits(text) => Some(text.clone()),
            None | Some(Value::Null) if !required => None,
            _ => {
                let must = if is_id { "must be 1 to 128 of A-Z a-z 0-9 . _ -" } else { "must be a string" };
                wrong.push(violation(&format!("{at}/{name}"), must));
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

fn unknown(members: &Map<String, Value>, known: &[&str], at: &str, wrong: &mut Vec<Violation>) {
    for name in members.keys().filter(|name| !known.contains(&name.as_str())).take(8) {
        let name = json::cut(name, 60);
        wrong.push(violation(at, &format!("unknown member '{name}' (known are {})", known.join(", "))));
    }
}

fn violation(pointer: &str, message: &str) -> Violation {
    Violation { pointer: pointer.to_owned(), message: message.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(body: &Value) -> Result<Pipeline> {
        Pipeline::read(&Bytes::from(body.to_string()), body)
    }

    #[test]
    fn r110_a_pipeline_definition_is_parsed_strictly() {
        let good = read(&json!({
            "steps": [{"agent": "a"}, {"agent": "b", "operation": "o", "instruction": "shorten"}], "input": {"x": 1},
        }));
        assert_eq!(good.unwrap().steps.len(), 2);
        let step = json!({"agent": "a"});
        for (body, told) in [
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
            let fault = read(&body).unwrap_err();
            let all = format!("{fault} {:?}", fault.broken());
            assert!(fault.code() == Code::InvalidInput && all.contains(told), "{body}: {all}");
        }
    }

    #[test]
    fn r121_a_pipeline_has_at_most_sixteen_steps() {
        let of = |count: usize| json!({"steps": vec![json!({"agent": "a"}); count], "input": {}});
        assert_eq!(read(&of(16)).unwrap().steps.len(), 16);
        let fault = read(&of(17)).unwrap_err();
        assert!(fault.message().starts_with("pipeline_depth_exceeded") && fault.http_status() == 400, "{fault}");
    }
}
