//! Tests of bodies, queries and schemas, accepted and refused.

mod document_findings;
mod expensive_schemas;
mod json_parsing;
mod messages;
mod query_inputs;
mod schema_compilation;
mod suspended_checks;
mod unsupported_keywords;

use super::{operation_contract::ContractSide, *};
use crate::{
    agent::{DeclaredFormats, Operation},
    fault::{Fault, FaultCode, Violation},
};
use json_schema::{Evaluation, Outcome};
use serde_json::{Value, json};
use std::{sync::Arc, task::Poll};

/// Schema of the translator in AIDIP.
fn translator() -> Value {
    json!({
        "type": "object",
        "properties": {
            "text": {"type": "string"},
            "source_language": {"type": "string", "enum": ["en", "zh"]},
            "target_language": {"type": "string", "enum": ["en", "zh"]}
        },
        "required": ["text", "source_language", "target_language"]
    })
}

fn check(schema: Value, value: Value) -> Vec<(String, String)> {
    let violations = CompiledSchema::compile(&schema).unwrap().validate(&value);
    violations.into_iter().map(|violation| (violation.pointer, violation.message)).collect()
}

fn operation(inputs: Value, outputs: Value) -> Operation {
    Operation {
        name: "op".into(),
        description: "".into(),
        inputs: Some(Arc::new(inputs)),
        outputs: Some(Arc::new(outputs)),
        formats: DeclaredFormats::default(),
        endpoint: None,
    }
}

/// The end of a check with the default settings: its verdict, and what it took.
struct CheckEnd {
    verdict: Result<Vec<Violation>, Fault>,
    fuel: u64,
    memory: usize,
}

/// Checks an input in slices of a millisecond, as calls do.
fn check_by_defaults(schema: &Value, body: &str) -> CheckEnd {
    let config = ContractConfig::default();
    let budget = DocumentBudget::new(config.schema_limits(), &[]);
    let contract = OperationContract::compile_input(&Arc::new(schema.clone()), &config, &budget).unwrap();
    let tape = parse_json(body.to_owned(), JsonBounds { max_depth: 120 }).unwrap();
    let mut evaluation = Evaluation::new(Tape::ROOT, contract.max_fuel(body.len()));
    let (mut memory, program) = (0, contract.input.as_ref().unwrap().program());
    loop {
        let before = evaluation.fuel_used();
        let result = evaluation.resume(program, &tape, check_scheduler::SLICE);
        let used = evaluation.fuel_used() - before;
        assert!(used < 5 * check_scheduler::SLICE / 4, "a slice takes {used} units");
        memory = memory.max(evaluation.memory());
        if let Poll::Ready(outcome) = result {
            let fuel = evaluation.fuel_used();
            return CheckEnd { verdict: contract.verdict(ContractSide::Input, outcome), fuel, memory };
        }
    }
}
