//! Findings about documents: missing schemas and examples that do not match, within bounds that the author cannot exceed.

use super::*;
use crate::agent::Agent;

const REPORT: DocumentChecks = DocumentChecks {
    missing_schemas: FindingMode::Report,
    invalid_examples: FindingMode::Report,
    unsupported: UnsupportedMode::Report,
};

fn findings(checks: DocumentChecks, operations: &Value) -> DocumentFindings {
    let document = json!({"id": "a", "name": "A", "endpoint": "https://a.example/", "operations": operations});
    let agent = Agent::from_document(&document, [0; 32]).unwrap();
    let compile = |operation| {
        OperationContract::compile(operation, &ContractConfig::default(), &DocumentBudget::unlimited()).unwrap()
    };
    let contracts: Vec<OperationContract> = agent.operations.iter().map(compile).collect();
    checks.check(&agent, |index| contracts[index].schemas())
}

#[test]
fn r13_each_finding_names_its_place_and_the_mode_decides_what_it_means() {
    let operations = json!([
        {"name": "one", "inputs": {"type": "object"}, "outputs": true},
        {"name": "two", "inputs": {"type": "string"}, "examples": [
            {"input": "fine"}, {"input": 7, "output": "unchecked"}, {"output": 1}, {"in": 1}, 5, "in words", [{"input": 7}],
        ]},
    ]);
    let found = findings(REPORT, &operations);
    assert_eq!(found.refusals, Vec::<String>::new());
    let places: Vec<&str> = found.warnings.iter().map(|finding| finding.split(": ").next().unwrap()).collect();
    assert_eq!(
        places,
        ["operations[1].outputs", "operations[1].examples[1].input"],
        "examples of another form are ignored"
    );
    assert_eq!(
        findings(ContractConfig::default().document_checks(), &json!([{"name": "one"}])),
        DocumentFindings::default()
    );
    let refusing =
        DocumentChecks { missing_schemas: FindingMode::Refuse, invalid_examples: FindingMode::Allow, ..REPORT };
    let refused = findings(refusing, &operations);
    assert_eq!((refused.refusals.len(), refused.warnings.len()), (1, 0), "{refused:?}");
}

#[test]
fn r13_a_document_decides_neither_how_long_its_checks_take_nor_how_long_its_findings_are() {
    let deep = (0..90).fold(json!(1), |inner, _| json!([inner]));
    let many: Vec<Value> = (0..200)
        .map(|number| json!({"name": format!("o{number}"), "inputs": {"const": "x".repeat(500)}, "examples": vec![json!({"input": "y".repeat(2_000)}); 50]}))
        .collect();
    let found = findings(REPORT, &json!(many));
    assert!(
        found.warnings.len() <= 20 && found.warnings.iter().all(|finding| finding.chars().count() <= 301),
        "{found:?}"
    );
    let found =
        findings(REPORT, &json!([{"name": "deep", "inputs": true, "outputs": true, "examples": [{"input": deep}]}]));
    assert!(found.warnings[0].contains("nested deeper than"), "{found:?}");
}

#[test]
fn r13_examples_of_a_document_are_checked_until_their_fuel_is_used_up() {
    let operation = |name: &str, examples: Vec<&Value>| json!({"name": name, "inputs": {"type": "array", "items": {"type": "integer"}}, "outputs": true, "examples": examples});
    let valid = json!({"input": vec![1; 5_000]});
    let mut invalid = valid.clone();
    invalid["input"][4_999] = json!("x");
    let alone = findings(REPORT, &json!([operation("valid", vec![&valid]), operation("invalid", vec![&invalid])]));
    assert_eq!(alone.warnings.len(), 1, "{alone:?}");
    assert!(alone.warnings[0].starts_with("operations[1].examples[0].input: does not match"), "{alone:?}");
    // The schema of the issue: each item of the example is compared with each alternative.
    let mut alternatives: Vec<Value> = (0..1_000).map(|at| json!({"const": at.to_string()})).collect();
    alternatives.push(json!({"type": "integer"}));
    let alternatives = json!({"items": {"anyOf": alternatives}});
    let slow = json!([{"name": "slow", "inputs": alternatives, "outputs": true, "examples": vec![json!({"input": vec![0; 60_000]}); 3]}]);
    let found = findings(REPORT, &slow);
    assert!(
        found.warnings.iter().any(|why| why.contains("is not checked: the examples of a document may take")),
        "{found:?}"
    );
}
