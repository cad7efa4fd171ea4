//! Keywords that cannot be in force: the agent is served without them, or refused, as the operator decides.

use super::*;

/// A schema with a pattern whose groups are nested too deeply.
fn too_large() -> Value {
    let pattern = format!("{}a{}", "(".repeat(1_000), ")".repeat(1_000));
    json!({"properties": {"a": {"type": "string", "pattern": pattern}, "b": {"type": "integer"}}})
}

fn compile(unsupported: UnsupportedMode) -> Result<OperationContract, Vec<String>> {
    let config = ContractConfig { unsupported, ..ContractConfig::default() };
    OperationContract::compile(&operation(too_large(), json!(true)), &config, &DocumentBudget::unlimited())
}

#[test]
fn r127_a_keyword_that_cannot_be_in_force_costs_only_itself_and_is_reported() {
    let contract = compile(UnsupportedMode::Report).unwrap();
    let [report] = contract.unsupported() else { panic!("{:?}", contract.unsupported()) };
    assert!(report.starts_with("inputs: at /properties/a/pattern: the keyword is not in force: "), "{report}");
    let schema = contract.input.as_ref().unwrap();
    assert!(schema.validate(&json!({"a": "x"})).is_empty(), "the pattern is not in force");
    assert_eq!(schema.validate(&json!({"a": 1, "b": "x"})).len(), 2, "every other keyword is");
}

#[test]
fn r127_a_document_with_such_a_keyword_is_refused_where_the_operator_says_so() {
    let problems = compile(UnsupportedMode::Refuse).unwrap_err();
    assert!(problems[0].starts_with("inputs: at /properties/a/pattern: the keyword is not in force: "), "{problems:?}");
    let checks = DocumentChecks { unsupported: UnsupportedMode::Refuse, ..DocumentChecks::default() };
    assert_eq!(checks.unsupported_problems(&CompiledSchema::compile(&too_large()).unwrap()).len(), 1);
    assert!(DocumentChecks::default().unsupported_problems(&CompiledSchema::compile(&too_large()).unwrap()).is_empty());
}
