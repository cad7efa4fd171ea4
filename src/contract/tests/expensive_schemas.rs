//! Tests of schemas and bodies whose check is far more expensive than their size suggests.

use super::*;
use std::time::{Duration, Instant};

/// Runs `work`, and panics if it takes more than ten seconds, which suffices for a debug build on a busy machine.
fn finish_quickly<T>(name: &str, work: impl FnOnce() -> T) -> T {
    let started_at = Instant::now();
    let result = work();
    assert!(started_at.elapsed() < Duration::from_secs(10), "{name} took {:?}", started_at.elapsed());
    result
}

/// Returns a schema with `$defs` d0 … dN, each of which `link` builds from a reference to the next.
fn reference_chain(length: usize, link: impl Fn(Value) -> Value) -> Value {
    let mut defs = serde_json::Map::new();
    for at in 0..length {
        defs.insert(format!("d{at}"), link(json!({"$ref": format!("#/$defs/d{}", at + 1)})));
    }
    defs.insert(format!("d{length}"), json!({"type": "integer"}));
    json!({"$ref": "#/$defs/d0", "$defs": defs})
}

fn nested(depth: usize, wrap: impl Fn(Value) -> Value) -> Value {
    (0..depth).fold(json!("end"), |inner, _| wrap(inner))
}

#[test]
fn r127_schemas_with_endless_recursion_are_refused() {
    for schema in [
        json!({"$ref": "#"}),
        json!({"allOf": [{"$ref": "#"}]}),
        json!({"not": {"$ref": "#"}}),
        json!({"$ref": "#/$defs/a", "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/b"}]}, "b": {"if": {"$ref": "#/$defs/a"}}}}),
        json!({"properties": {"x": {"$ref": "#/properties/x"}}}),
        json!({"$schema": "https://json-schema.org/draft/2019-09/schema", "$recursiveAnchor": true, "anyOf": [{"$recursiveRef": "#"}]}),
        json!({"$dynamicAnchor": "n", "allOf": [{"$dynamicRef": "#n"}]}),
    ] {
        let why = finish_quickly("an endless schema", || CompiledSchema::compile(&schema).unwrap_err());
        assert!(why.contains("never end"), "{schema} {why}");
    }
}

#[test]
fn r127_references_that_double_the_work_within_one_value_are_refused_quickly() {
    for keyword in ["allOf", "anyOf", "oneOf"] {
        let schema = reference_chain(60, |next| json!({keyword: [next.clone(), next]}));
        assert!(finish_quickly(keyword, || CompiledSchema::compile(&schema)).unwrap_err().contains("too many"));
    }
}

#[test]
fn r127_long_chains_of_references_do_not_overflow_the_stack() {
    let wide = reference_chain(4_850, |next| json!({"properties": {"a": next}}));
    let compiled = finish_quickly("a chain through properties", || CompiledSchema::compile(&wide));
    let schema = compiled.unwrap();
    finish_quickly("its check", || schema.validate(&nested(120, |inner| json!({"a": inner}))));
    drop(schema);
    let chain = reference_chain(4_000, |next| next);
    assert!(finish_quickly("a chain of references", || CompiledSchema::compile(&chain)).unwrap_err().contains("chain"));
    let longest =
        finish_quickly("the longest chain", || CompiledSchema::compile(&reference_chain(450, |next| next))).unwrap();
    assert_eq!(longest.validate(&json!("x")).len(), 1);
}

#[test]
fn r127_recursive_schemas_check_values_of_any_depth() {
    let tree = json!({"$ref": "#/$defs/node", "$defs": {"node": {
        "type": "object", "properties": {"left": {"$ref": "#/$defs/node"}, "right": {"$ref": "#/$defs/node"}}, "additionalProperties": false
    }}});
    let schema = CompiledSchema::compile(&tree).unwrap();
    let value = (0..60).fold(json!({}), |inner, _| json!({"left": inner}));
    assert!(schema.validate(&value).is_empty());
    assert_eq!(schema.validate(&nested(60, |inner| json!({"right": inner}))).len(), 1);
    assert_eq!(schema.validate(&nested(119, |inner| json!({"right": inner}))).len(), 1);
    let mut long_chain = reference_chain(20, |next| json!({"allOf": [next]}));
    long_chain["$defs"]["d20"] = json!({"properties": {"a": {"$ref": "#"}}});
    let schema = CompiledSchema::compile(&long_chain).unwrap();
    let violations =
        finish_quickly("a long chain at every level", || schema.validate(&nested(119, |inner| json!({"a": inner}))));
    assert!(violations[0].message.contains("nested too deeply"), "{violations:?}");
    let accepted_depth =
        (1..119).take_while(|depth| schema.validate(&nested(*depth, |inner| json!({"a": inner}))).is_empty()).count();
    assert!((20..119).contains(&accepted_depth), "{accepted_depth}");
}

#[test]
fn r127_schemas_that_double_the_work_with_every_level_are_bounded_per_body() {
    let expression = json!({"$ref": "#/$defs/e", "$defs": {"e": {"anyOf": [
        {"type": "integer"},
        {"type": "object", "properties": {"a": {"$ref": "#/$defs/e"}, "op": {"const": "add"}}, "required": ["op"]},
        {"type": "object", "properties": {"a": {"$ref": "#/$defs/e"}, "op": {"const": "mul"}}, "required": ["op"]}
    ]}}});
    let schema = CompiledSchema::compile(&expression).unwrap();
    let realistic = (0..8).fold(json!(1), |inner, _| json!({"op": "mul", "a": inner}));
    assert!(schema.validate(&realistic).is_empty(), "realistic values pass");
    for depth in [10, 16, 20, 63, 119] {
        let violations = finish_quickly("a doubling check", || {
            schema.validate(&nested(depth, |inner| json!({"op": "mul", "a": inner})))
        });
        assert_eq!(violations.len(), 1, "{depth}");
    }
}

#[test]
fn r127_large_bodies_against_many_alternatives_use_bounded_time_and_memory() {
    let alternatives: Vec<Value> = (0..50).map(|at| json!({"const": at.to_string()})).collect();
    let schema = CompiledSchema::compile(&json!({"type": "array", "items": {"anyOf": alternatives}})).unwrap();
    let violations = finish_quickly("many alternatives", || schema.validate(&json!(vec![1; 300_000])));
    assert_eq!(violations.len(), 1);
    assert!(finish_quickly("a few", || schema.validate(&json!(vec![1; 30]))).len() == 20);
    let strings = CompiledSchema::compile(&json!({"type": "array", "items": {"type": "string"}})).unwrap();
    let violations = finish_quickly("many errors", || strings.validate(&json!(vec![1; 300_000])));
    assert_eq!((violations.len(), violations[0].pointer.as_str()), (1, "/0"));
    let unique = CompiledSchema::compile(&json!({"uniqueItems": true})).unwrap();
    let items: Vec<Value> = (0..100_000).map(|at| json!([at])).collect();
    assert!(finish_quickly("unique items", || unique.validate(&json!(items))).is_empty());
}

#[test]
fn r127_schemas_that_are_too_large_or_too_deep_are_refused() {
    assert!(CompiledSchema::compile(&json!({"description": "x".repeat(300_000)})).unwrap_err().contains("bytes"));
    assert!(
        CompiledSchema::compile(&nested(40, |inner| json!({"not": {"allOf": [inner]}}))).unwrap_err().contains("deep")
    );
    let values: Vec<usize> = (0..30_000).collect();
    assert!(finish_quickly("a long list", || CompiledSchema::compile(&json!({"enum": values}))).is_ok());
    let properties: serde_json::Map<_, _> = (0..15_000).map(|at| (at.to_string(), json!({}))).collect();
    assert!(finish_quickly("many properties", || CompiledSchema::compile(&json!({"properties": properties}))).is_ok());
}
