//! Tests of violation messages.

use super::*;

/// Returns the position and message of the only violation of `value`.
fn single_violation(schema: Value, value: Value) -> (String, String) {
    let violations = check(schema, value);
    assert_eq!(violations.len(), 1, "{violations:?}");
    violations.into_iter().next().unwrap()
}

#[test]
fn r32_the_specifications_own_example_is_refused_with_the_property_and_its_allowed_values() {
    let example = json!({"text": "Hello", "source_language": "en", "target_language": "fr"});
    let (pointer, message) = single_violation(translator(), example);
    assert_eq!(pointer, "/target_language");
    assert_eq!(message, r#"must be one of "en", "zh", not "fr""#);
}

#[test]
#[allow(clippy::too_many_lines, reason = "a table with a row for every keyword")]
fn r32_every_keyword_has_a_message_with_its_requirement() {
    for (keyword, schema, value, expected) in [
        ("type", json!({"type": "string"}), json!(1), "must be a string, not a number"),
        ("types", json!({"type": ["integer", "null"]}), json!("1"), "must be null or an integer, not a string"),
        ("integer", json!({"type": "integer"}), json!(1.5), "must be an integer, not a number"),
        ("const", json!({"const": 4}), json!(5), "must be 4, not 5"),
        ("minimum", json!({"minimum": 3}), json!(2), "must be at least 3, not 2"),
        ("maximum", json!({"maximum": 3}), json!(4.5), "must be at most 3, not 4.5"),
        ("exclusiveMinimum", json!({"exclusiveMinimum": 3}), json!(3), "must be greater than 3, not 3"),
        ("exclusiveMaximum", json!({"exclusiveMaximum": 3}), json!(3), "must be less than 3, not 3"),
        ("multipleOf", json!({"multipleOf": 5}), json!(7), "must be a multiple of 5, not 7"),
        ("minLength", json!({"minLength": 1}), json!(""), "must have at least 1 character"),
        ("maxLength", json!({"maxLength": 2}), json!("abc"), "must have at most 2 characters"),
        ("pattern", json!({"pattern": "^[a-z]+$"}), json!("A"), "must match the pattern ^[a-z]+$, not \"A\""),
        ("minItems", json!({"minItems": 2}), json!([1]), "must have at least 2 items"),
        ("maxItems", json!({"maxItems": 1}), json!([1, 2]), "must have at most 1 item"),
        ("uniqueItems", json!({"uniqueItems": true}), json!([1, 1]), "must not have equal items"),
        (
            "contains",
            json!({"contains": {"const": 1}}),
            json!([2]),
            "must contain the required item, as often as the schema asks",
        ),
        ("minProperties", json!({"minProperties": 1}), json!({}), "must have at least 1 property"),
        ("maxProperties", json!({"maxProperties": 1}), json!({"a": 1, "b": 1}), "must have at most 1 property"),
        ("required", json!({"required": ["text"]}), json!({}), "required property 'text' is missing"),
        (
            "propertyNames",
            json!({"propertyNames": {"pattern": "^a"}}),
            json!({"b": 1}),
            "the property name \"b\" is not allowed: it must match the pattern ^a, not \"b\"",
        ),
        (
            "additionalProperties",
            json!({"properties": {"a": {}}, "additionalProperties": false}),
            json!({"b": 1}),
            "unknown property 'b' (known: a)",
        ),
        (
            "unevaluatedProperties",
            json!({"properties": {"a": {}}, "unevaluatedProperties": false}),
            json!({"b": 1, "c": 1}),
            "unknown properties 'b', 'c' (known: a)",
        ),
        ("not", json!({"not": {"type": "string"}}), json!("a"), "has a form that is excluded ('not')"),
        ("false", json!(false), json!(1), "must not be given"),
        (
            "format in draft 7",
            json!({"$schema": "http://json-schema.org/draft-07/schema#", "format": "ipv4"}),
            json!("x"),
            "must be in the format 'ipv4', not \"x\"",
        ),
        (
            "oneOf twice",
            json!({"oneOf": [{"type": "integer"}, {"minimum": 0}]}),
            json!(1),
            "must match exactly one of its alternatives, but matches several",
        ),
    ] {
        assert_eq!(single_violation(schema, value), (String::new(), expected.to_owned()), "{keyword}");
    }
}

#[test]
fn r32_alternatives_are_summarized() {
    let schema = json!({"anyOf": [{"type": "string"}, {"type": "object", "required": ["a"]}, {"properties": {"b": {"type": "null"}}, "type": "object"}]});
    let (_, message) = single_violation(schema, json!({"b": 1}));
    assert!(
        message.starts_with("must match at least one of 3 alternatives: (1) must be a string, not an object; (2) "),
        "{message}"
    );
    let (_, message) = single_violation(json!({"oneOf": [{"type": "string"}, {"type": "null"}]}), json!(1));
    assert!(message.starts_with("must match exactly one of 2 alternatives"), "{message}");
}

#[test]
fn r32_the_summary_of_an_alternative_names_the_member() {
    let schema = json!({"anyOf": [{"type": "object", "required": ["a"]}, {"properties": {"b": {"type": "null"}}, "type": "object"}]});
    let (_, message) = single_violation(schema, json!({"b": 1}));
    assert!(message.contains("(1) required property 'a' is missing"), "{message}");
    assert!(message.contains("(2) /b: must be null, not a number"), "{message}");
}

#[test]
fn r32_pointers_are_escaped_and_name_the_position() {
    let schema = json!({"properties": {"a/b~c": {"type": "array", "items": {"type": "integer"}}}});
    assert_eq!(single_violation(schema, json!({"a/b~c": [1, "x"]})).0, "/a~1b~0c/1");
}

#[test]
fn r32_at_most_twenty_violations_are_reported() {
    assert_eq!(check(translator(), json!({"text": 1})).len(), 3);
    let schema = json!({"items": {"type": "integer"}});
    let violations = check(schema.clone(), json!(vec!["x"; 1_000]));
    assert_eq!(violations.len(), 20);
    assert_eq!(CompiledSchema::compile(&schema).unwrap().validate_up_to(&json!(vec!["x"; 1_000]), 100).len(), 100);
}

#[test]
fn r41_large_values_and_secrets_are_not_repeated() {
    let large = "y".repeat(1 << 20);
    let schema = json!({"properties": {
        "api_key": {"enum": ["a"]}, "big": {"const": "x"}, "name": {"additionalProperties": false}, "listed": {"enum": [large, 1]}
    }});
    let value = json!({"api_key": "hunter2", "big": large, "name": {large.clone(): 1}, "listed": large.to_uppercase()});
    for (pointer, message) in check(json!({"allOf": [schema["properties"]["api_key"].clone()]}), json!("hunter3")) {
        assert!(pointer.is_empty() && message.contains("hunter3"), "only a property name marks a value as a secret");
    }
    let small = json!({"properties": {"api_key": {"enum": ["a"]}, "big": {"const": "x"}, "name": {"additionalProperties": false}}});
    let violations = check(small, value);
    assert_eq!(violations.len(), 3, "{violations:?}");
    for (_, message) in violations {
        assert!(message.len() < 200 && !message.contains("hunter2"), "{message}");
    }
}

#[test]
fn r32_the_mode_decides_between_refusing_and_reporting() {
    let (valid, invalid) = (json!({"a": 1}), json!({"a": "x"}));
    let schema = json!({"properties": {"a": {"type": "integer"}}});
    let contract_with = |input, output| {
        let config = ContractConfig { input, output, ..ContractConfig::default() };
        OperationContract::compile(&operation(schema.clone(), schema.clone()), &config, &DocumentBudget::unlimited())
            .unwrap()
    };
    let enforced = contract_with(ContractMode::Enforce, ContractMode::Enforce);
    let check = |contract: &OperationContract, side, value: &Value| {
        let Some(schema) = contract.schema(side) else { return Ok(Vec::new()) };
        let tape = Tape::from_value(value).unwrap();
        contract.verdict(side, schema.program().check(&tape, Tape::ROOT))
    };
    assert!(check(&enforced, ContractSide::Input, &valid).unwrap().is_empty());
    let fault = check(&enforced, ContractSide::Input, &invalid).unwrap_err();
    assert_eq!((fault.http_status(), fault.violations()[0].pointer.as_str()), (400, "/a"));
    assert_eq!(fault.violations()[0].keyword, "type");
    assert_eq!(fault.to_error_object("1")["error"]["details"][0]["keyword"], "type");
    assert!(enforced.enforces_output());
    let fault = check(&enforced, ContractSide::Output, &invalid).unwrap_err();
    assert_eq!(
        (fault.http_status(), fault.violations().len()),
        (502, 0),
        "violations of the agent's schema are not shown to the caller"
    );
    assert!(fault.detail().unwrap().contains("/a: must be an integer"));
    let reported = contract_with(ContractMode::Report, ContractMode::Report);
    assert_eq!(
        (
            check(&reported, ContractSide::Input, &invalid).unwrap().len(),
            check(&reported, ContractSide::Output, &invalid).unwrap().len()
        ),
        (1, 1)
    );
    assert!(!reported.enforces_output());
    let off = contract_with(ContractMode::Off, ContractMode::Off);
    assert!(!off.enforces_output());
    assert!(
        check(&off, ContractSide::Input, &invalid).unwrap().is_empty() && off.input.is_none() && off.output.is_none()
    );
}
