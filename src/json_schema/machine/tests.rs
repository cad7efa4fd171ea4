//! Tests of checks: verdicts, violations, fuel and memory.

use crate::{CompileOptions, Evaluation, Outcome, Program, Tape, tape::TapeBounds};
use serde_json::{Value, json};
use std::{fmt::Write as _, sync::Arc, task::Poll};

fn program(schema: Value) -> Program {
    Program::compile(&Arc::new(schema), &CompileOptions::default()).unwrap()
}

fn tape(text: impl Into<Vec<u8>>) -> Tape {
    Tape::parse(text.into().into(), &TapeBounds { max_depth: 120 }).unwrap()
}

fn run(program: &Program, tape: &Tape, slice: u64, limit: u64) -> (Outcome, u64, usize) {
    let mut evaluation = Evaluation::new(Tape::ROOT, limit);
    let mut memory = 0;
    loop {
        let outcome = evaluation.resume(program, tape, slice);
        memory = memory.max(evaluation.memory());
        if let Poll::Ready(outcome) = outcome {
            return (outcome, evaluation.fuel_used(), memory);
        }
    }
}

fn is_valid(schema: &Value, value: &Value) -> bool {
    program(schema.clone()).is_valid(&Tape::from_value(value).unwrap())
}

/// A chain of references that doubles at each step: 2 to the power of `steps` paths.
fn doubling_chain(steps: usize, last: &Value) -> Value {
    let mut definitions = serde_json::Map::new();
    for step in 0..steps {
        let next = format!("#/$defs/c{}", step + 1);
        definitions.insert(format!("c{step}"), json!({"allOf": [{"$ref": next}, {"$ref": next}]}));
    }
    definitions.insert(format!("c{steps}"), last.clone());
    json!({"$defs": definitions, "$ref": "#/$defs/c0"})
}

#[test]
fn verdict_and_fuel_are_equal_for_every_size_of_slice() {
    let schemas = [
        json!({"type": "object", "properties": {"a": {"type": "array", "items": {"anyOf": [{"type": "string", "minLength": 2}, {"type": "integer", "minimum": 3}]}}}, "patternProperties": {"^x-": {"type": "string"}}, "additionalProperties": false, "required": ["a"]}),
        json!({"allOf": [{"properties": {"a": {"uniqueItems": true}}}], "unevaluatedProperties": {"type": "string"}, "propertyNames": {"maxLength": 3}}),
        json!({"if": {"required": ["b"]}, "then": {"properties": {"b": {"enum": [{"c": [1, 2]}, "z"]}}}, "else": {"dependentRequired": {"a": ["x-1"]}}}),
    ];
    let values = [
        json!({"a": ["ab", 3, 4, 5, "cd", {"e": 1}], "x-1": "y"}),
        json!({"a": [[1], [2], [3], {"a": "\u{e9}\n"}, [1.0]], "b": {"c": [1.0, 2]}}),
        json!({"a": ["ab", 7], "x-1": "long enough", "x-2": 4, "other": null}),
        json!([1, 2, 3]),
    ];
    for schema in &schemas {
        let program = program(schema.clone());
        for value in &values {
            let tape = Tape::from_value(value).unwrap();
            let (whole, fuel, _) = run(&program, &tape, u64::MAX, u64::MAX);
            for slice in [1, 2, 7, 1_000] {
                let (outcome, used, _) = run(&program, &tape, slice, u64::MAX);
                assert_eq!((&outcome, used), (&whole, fuel), "slice {slice}: {schema} {value}");
            }
        }
    }
}

/// The recursion for small values looks at the fuel wherever a schema or a text makes it long.
#[test]
fn long_lists_of_alternatives_and_long_names_end_a_slice() {
    const SLICE: u64 = 10_000;
    let numbers = json!((0..100).collect::<Vec<_>>());
    let alternatives = |alternative: Value| json!({"items": {"not": {"anyOf": vec![alternative; 2_000]}}});
    let names: Vec<String> = (0..100).map(|number| format!("{number:010000}")).collect();
    let members = |value: Value| Value::Object(names.iter().map(|name| (name.clone(), value.clone())).collect());
    let cases = [
        (alternatives(json!({"type": "object", "minProperties": 1})), numbers.clone()),
        (alternatives(json!({"type": "object", "properties": {"a": {"type": "string"}}})), numbers.clone()),
        (alternatives(json!({"maxLength": 1, "type": "string"})), numbers.clone()),
        (json!({"items": {"oneOf": vec![json!({"not": {}}); 2_000]}}), numbers.clone()),
        (json!({"items": {"allOf": vec![json!({"properties": {"a": false}}); 2_000]}}), numbers),
        (json!({"properties": members(json!({"type": "integer"}))}), members(json!(1))),
    ];
    for (schema, value) in cases {
        let (program, tape) = (program(schema), Tape::from_value(&value).unwrap());
        let mut evaluation = Evaluation::new(Tape::ROOT, u64::MAX);
        let is_ended = evaluation.resume(&program, &tape, SLICE).is_ready();
        let used = evaluation.fuel_used();
        let schema = program.schema().to_string();
        let start = schema.get(..80).unwrap();
        // Of `oneOf` the first item decides.
        assert!(!is_ended || used >= 2_000, "ended with {used} units: {start}");
        assert!(used <= SLICE + 3_000, "a slice took {used} units: {start}");
    }
}

#[test]
fn chains_that_double_cost_a_line() {
    for last in
        [json!({"type": "object"}), json!({"type": "string"}), json!({"properties": {"a": {"type": "integer"}}})]
    {
        let value = tape("{\"a\":1}");
        for steps in [18, 30, 200] {
            let (outcome, fuel, memory) = run(&program(doubling_chain(steps, &last)), &value, u64::MAX, 10_000_000);
            assert!(matches!(outcome, Outcome::Valid | Outcome::Invalid(_)), "{steps}: {outcome:?}");
            assert!(fuel < 200_000 && memory < 1 << 20, "{steps}: {fuel} units, {memory} bytes");
        }
    }
}

#[test]
fn unevaluated_keywords_behind_doubling_chains_cost_a_line() {
    for (keyword, text, last) in [
        ("unevaluatedItems", "[1,2,3]", json!({"prefixItems": [true, true]})),
        ("unevaluatedProperties", "{\"a\":1,\"b\":2}", json!({"properties": {"a": true}})),
    ] {
        for steps in [18, 60] {
            for combinator in ["allOf", "anyOf", "oneOf"] {
                let mut schema = doubling_chain(steps, &last);
                for step in 0..steps {
                    let at = format!("c{step}");
                    let both = schema["$defs"][&at]["allOf"].take();
                    schema["$defs"][&at] = match combinator {
                        "oneOf" => json!({"oneOf": [both[0], false]}),
                        _ => json!({combinator: both}),
                    };
                }
                schema[keyword] = json!(false);
                let program = program(schema);
                let (outcome, fuel, memory) = run(&program, &tape(text), u64::MAX, 100_000_000);
                assert!(matches!(outcome, Outcome::Invalid(_)), "{keyword} {combinator} {steps}: {outcome:?}");
                assert!(fuel < 2_000_000 && memory < 2 << 20, "{combinator} {steps}: {fuel} units, {memory} bytes");
                assert!(program.memory() < 1 << 20, "{} bytes", program.memory());
            }
        }
    }
}

#[test]
fn nested_chains_over_deep_values_cost_a_line() {
    // Each level reaches the next one by two paths through the same member.
    let schema = json!({"$defs": {"node": {"allOf": [
        {"properties": {"n": {"$ref": "#/$defs/node"}}}, {"properties": {"n": {"$ref": "#/$defs/node"}}},
    ]}}, "$ref": "#/$defs/node"});
    let text = format!("{}1{}", "{\"n\":".repeat(100), "}".repeat(100));
    let (outcome, fuel, memory) = run(&program(schema), &tape(text), u64::MAX, 100_000_000);
    assert_eq!(outcome, Outcome::Valid);
    assert!(fuel < 100_000 && memory < 1 << 20, "{fuel} units, {memory} bytes");
}

#[test]
fn any_json_written_recursively_is_checked_at_any_depth() {
    let schema = json!({"$defs": {"any": {"anyOf": [
        {"type": ["string", "number", "boolean", "null"]},
        {"type": "array", "items": {"$ref": "#/$defs/any"}},
        {"type": "object", "additionalProperties": {"$ref": "#/$defs/any"}},
    ]}}, "$ref": "#/$defs/any"});
    let program = program(schema);
    for depth in [20, 100] {
        let text = format!("{}\"x\"{}", "[".repeat(depth), "]".repeat(depth));
        let (outcome, fuel, _) = run(&program, &tape(text), u64::MAX, 1_000_000);
        assert_eq!(outcome, Outcome::Valid);
        assert!(fuel < 20_000, "{depth}: {fuel} units");
    }
}

#[test]
fn many_failing_alternatives_take_no_memory() {
    let schema = json!({"anyOf": vec![json!(false); 7_000]});
    let text = format!("[{}1]", "1,".repeat(500_000));
    let (outcome, fuel, memory) = run(&program(schema), &tape(text), u64::MAX, 10_000_000);
    assert!(matches!(&outcome, Outcome::Invalid(all) if all.len() == 1 && all[0].keyword == "anyOf"), "{outcome:?}");
    assert!(fuel < 200_000 && memory < 1 << 20, "{fuel} units, {memory} bytes");
}

#[test]
fn a_large_enumeration_of_integers_costs_a_look_up_a_number() {
    let schema = json!({"items": {"enum": (0..40_000).collect::<Vec<_>>()}});
    let text = format!("[{}1]", "1.0,".repeat(20_000));
    let (outcome, fuel, _) = run(&program(schema), &tape(text), u64::MAX, 10_000_000);
    assert_eq!(outcome, Outcome::Valid);
    assert!(fuel < 1_000_000, "{fuel} units");
}

#[test]
fn unique_items_of_nested_arrays_cost_a_line() {
    let schema = json!({"uniqueItems": true});
    let mut text = String::from("[");
    let mut nested = |levels: usize| write!(text, "{}{},", "[".repeat(levels), "]".repeat(levels)).unwrap();
    (1..100).cycle().take(3_000).for_each(&mut nested);
    text.push_str("null]");
    let (outcome, fuel, memory) = run(&program(schema), &tape(text), u64::MAX, 50_000_000);
    assert!(matches!(outcome, Outcome::Invalid(_)), "{outcome:?}");
    assert!(fuel < 5_000_000 && memory < 4 << 20, "{fuel} units, {memory} bytes");
}

#[test]
fn a_check_without_fuel_ends_and_names_what_it_has_found() {
    let program = program(json!({"items": {"type": "integer"}}));
    let text = format!("[{}\"x\"]", "1,".repeat(10_000));
    assert_eq!(run(&program, &tape(text.clone()), u64::MAX, 100).0, Outcome::OutOfFuel);
    let (whole, fuel, _) = run(&program, &tape(text.clone()), u64::MAX, u64::MAX);
    assert!(matches!(&whole, Outcome::Invalid(all) if all[0].pointer == "/10000"), "{whole:?}");
    // The verdict is known after the first pass.
    let (partial, _, _) = run(&program, &tape(text), u64::MAX, fuel * 3 / 4);
    assert!(matches!(&partial, Outcome::Invalid(all) if all.len() == 1 && all[0].pointer.is_empty()), "{partial:?}");
}

#[test]
fn dynamic_references_find_the_outermost_resource() {
    let tree = json!({
        "$id": "https://t.example/tree", "$dynamicAnchor": "node", "type": "object",
        "properties": {"data": true, "children": {"type": "array", "items": {"$dynamicRef": "#node"}}}
    });
    let schema = json!({
        "$id": "https://t.example/strict", "$dynamicAnchor": "node", "$ref": "tree", "unevaluatedProperties": false,
        "$defs": {"tree": tree.clone()}
    });
    let value = json!({"children": [{"daat": 1}]});
    assert!(is_valid(&tree, &value));
    assert!(!is_valid(&schema, &value));
    assert!(is_valid(&schema, &json!({"children": [{"data": 1}]})));
}

#[test]
fn items_after_a_prefix_that_allows_everything_are_checked() {
    let schema = json!({"prefixItems": [{"type": "string"}, true], "items": {"type": "integer"}});
    assert!(is_valid(&schema, &json!(["a", null, 1])));
    assert!(!is_valid(&schema, &json!(["a", null, "b"])));
}

#[test]
fn a_reference_into_an_unknown_keyword_finds_the_anchors_there() {
    let schema = json!({
        "components": {"list": {"$defs": {"item": {"$dynamicAnchor": "item", "type": "integer"}}, "items": {"$dynamicRef": "#item"}}},
        "$ref": "#/components/list"
    });
    assert!(is_valid(&schema, &json!([1])) && !is_valid(&schema, &json!(["x"])));
    let wrong = json!({"components": {"a": {"items": {"minimum": "x"}}}, "$ref": "#/components/a"});
    let why = Program::compile(&Arc::new(wrong), &CompileOptions::default()).unwrap_err().to_string();
    assert_eq!(why, "at /components/a/items/minimum: must be a number");
}

#[test]
fn boolean_exclusive_bounds_are_understood_in_every_draft() {
    let schema = json!({"minimum": 3, "exclusiveMinimum": true, "exclusiveMaximum": 5});
    assert!(is_valid(&schema, &json!(4)));
    assert!(!is_valid(&schema, &json!(3)) && !is_valid(&schema, &json!(5)));
}

#[test]
fn an_alternative_with_alternatives_names_what_fails_after_them() {
    let schema = json!({"anyOf": [{"type": "null"}, {"properties": {
        "kind": {"oneOf": [{"const": "a"}, {"const": "b"}]}, "model": {"minLength": 1},
    }}]});
    let violations = program(schema).violations(&Tape::from_value(&json!({"kind": "b", "model": ""})).unwrap());
    assert_eq!(violations.len(), 1);
    let message = &violations[0].message;
    assert!(message.contains("(2) /model: must have at least 1 character"), "{message}");
}
