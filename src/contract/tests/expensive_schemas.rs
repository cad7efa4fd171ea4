//! Tests of schemas and bodies whose check is far more expensive than their size suggests.

use super::*;
use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// Runs `work`, and panics if it takes more than forty seconds of processor time, which suffice for a debug build.
fn finish_quickly<T>(name: &str, work: impl FnOnce() -> T) -> T {
    let started_at = processor_time();
    let result = work();
    let duration = processor_time() - started_at;
    assert!(duration < Duration::from_secs(40), "{name} took {duration:?}");
    result
}

/// Returns the processor time of this thread.
fn processor_time() -> Duration {
    clock_gettime(ClockId::ThreadCPUTime).try_into().unwrap()
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
        json!({"dependentSchemas": {"x": {"$ref": "#"}}}),
        json!({"$schema": "http://json-schema.org/draft-07/schema#", "dependencies": {"x": {"allOf": [{"$ref": "#"}]}}}),
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
    // The first violation of alternatives would hold the violations of every alternative.
    let is_not_located = |count: usize| {
        let violations = finish_quickly("fewer alternatives", || schema.validate(&json!(vec![1; count])));
        violations.len() == 1 && violations[0].message.contains("too large to locate")
    };
    assert!([1_000, 3_000, 10_000, 30_000].into_iter().any(is_not_located), "no check is between both bounds");
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

/// Returns why a schema is refused by a budget for one document.
fn refused_by(per_document: u64, schema: &Value) -> Option<String> {
    let limits = SchemaLimits { per_document, ..SchemaLimits::UNLIMITED };
    let budget = DocumentBudget::new(limits, &[]);
    finish_quickly("a schema", || CompiledSchema::compile_within(schema, &budget).err())
}

fn patterns(count: usize, pattern: impl Fn(usize) -> String) -> Value {
    let properties: serde_json::Map<_, _> =
        (0..count).map(|at| (format!("p{at}"), json!({"pattern": pattern(at)}))).collect();
    json!({"properties": properties})
}

#[test]
fn r127_the_compiled_size_of_patterns_is_bounded_before_they_are_compiled() {
    let default = ContractConfig::default().schema_limits().per_document;
    for (name, schema) in [
        ("repetitions", patterns(1_000, |at| format!("[ab]{{{}}}", 9_000 - at))),
        ("alternatives", patterns(3_000, |at| format!("(x|y|z{at}){{400}}"))),
        ("classes", patterns(3_000, |at| format!("\\p{{L}}{{{}}}", at % 40 + 1))),
        (
            "names",
            json!({"patternProperties": (0..1_000).map(|at| (format!("[ab]{{{}}}", 9_000 - at), json!({}))).collect::<serde_json::Map<_, _>>()}),
        ),
        (
            "names of names",
            json!({"propertyNames": {"allOf": (0..1_000).map(|at| json!({"pattern": format!("[ab]{{{}}}", 9_000 - at)})).collect::<Vec<_>>()}}),
        ),
    ] {
        let why = refused_by(default, &schema);
        assert!(why.as_deref().is_some_and(|why| why.contains("max_compiled_size")), "{name}: {why:?}");
    }
    for (name, schema) in [
        ("equal patterns", patterns(1_000, |_| "[ab]{9000}".to_owned())),
        ("ids", patterns(300, |at| format!("^[a-z0-9]{{1,{}}}(-[a-z0-9]+)*$", at % 60 + 4))),
        ("literals", patterns(3_000, |at| format!("^x-{at}"))),
    ] {
        assert_eq!(refused_by(default, &schema), None, "{name}");
    }
}

#[test]
fn r127_values_of_a_schema_are_charged_for_the_memory_that_they_take() {
    let default = ContractConfig::default().schema_limits().per_document;
    // An object of one member takes hundreds of bytes wherever it is kept.
    let option = |at: usize| json!({"": {"": {"": {"": at}}}});
    let options = |count: usize| json!({"enum": (0..count).map(option).collect::<Vec<_>>()});
    let why = refused_by(default, &options(10_000));
    assert!(why.as_deref().is_some_and(|why| why.contains("max_compiled_size")), "{why:?}");
    assert_eq!(refused_by(default, &options(2_000)), None);
    let texts: Vec<String> = (0..15_000).map(|at| format!("option {at}")).collect();
    assert_eq!(refused_by(default, &json!({"enum": texts})), None);
}

#[test]
fn r127_dynamic_references_with_many_targets_are_refused_quickly() {
    let resource = |at: usize| json!({"$id": format!("n{at}"), "$dynamicRef": "#x", "$defs": {"l": {"$dynamicAnchor": "x", "type": "integer"}}});
    let properties: serde_json::Map<_, _> = (0..1_500).map(|at| (format!("p{at}"), resource(at))).collect();
    let schema =
        json!({"$id": "https://a.example/r", "properties": properties, "$defs": {"all": {"$dynamicAnchor": "x"}}});
    let why = finish_quickly("dynamic references", || CompiledSchema::compile(&schema)).unwrap_err();
    assert!(why.contains("targets"), "{why}");
}

#[test]
fn r127_schemas_are_charged_once_for_each_owner() {
    let schema = |at: usize| json!({"properties": {format!("charged-{at}"): {"pattern": "[ab]{3000}"}}});
    let limits = SchemaLimits { per_source: 4 << 20, ..SchemaLimits::UNLIMITED };
    let source = SchemaBudget::of_source(limits);
    let compile = |at: usize| {
        let owners = [&source];
        let budget = DocumentBudget::new(limits, &owners);
        CompiledSchema::compile_within(&schema(at), &budget).map(|compiled| (compiled, budget.exceeded_owner()))
    };
    let mut kept = Vec::new();
    let first_refused = (0..100).find(|at| compile(*at).map(|compiled| kept.push(compiled)).is_err()).unwrap();
    assert!((2..20).contains(&first_refused), "{first_refused}");
    assert!(compile(0).is_ok(), "a schema that is charged already");
    let why = compile(first_refused).unwrap_err();
    assert!(why.contains("of the source") && why.contains("max_compiled_size_per_source"), "{why}");
    let publisher = SchemaBudget::of_publisher(SchemaLimits { per_publisher: 1 << 10, ..limits });
    let owners = [&publisher, &source];
    let budget = DocumentBudget::new(limits, &owners);
    let why = CompiledSchema::compile_within(&schema(0), &budget).unwrap_err();
    assert!(budget.exceeded_owner() && why.contains("of the publisher"), "{why}");
}

/// What becomes of a check.
#[derive(Debug, PartialEq)]
enum CheckFate {
    Light,
    Heavy,
    Refused,
}

fn check_fate(schema: &Value, value: &Value) -> CheckFate {
    let compiled = CompiledSchema::compile(schema).unwrap();
    let bytes = value.to_string().len();
    let work = compiled.work(value, bytes);
    match (compiled.exceeds_bounds(value), CheckWork::are_heavy(&[work])) {
        (true, _) => CheckFate::Refused,
        (false, true) => CheckFate::Heavy,
        (false, false) => CheckFate::Light,
    }
}

#[test]
fn r127_what_may_take_long_is_heavy_or_refused() {
    let slow = json!({"properties": {"a": {"pattern": "^[ab]*a[ab]{6000}$"}}});
    let text = |bytes: usize| json!({"a": "ab".repeat(bytes / 2)});
    assert_eq!(check_fate(&slow, &text(2)), CheckFate::Light);
    assert_eq!(check_fate(&slow, &text(20_000)), CheckFate::Heavy);
    assert_eq!(check_fate(&slow, &text(100_000)), CheckFate::Refused);
    let option = |at: usize| json!([vec![1; 400], at]);
    let slow_enum = json!({"items": {"enum": (0..200).map(option).collect::<Vec<_>>()}});
    assert_eq!(check_fate(&slow_enum, &json!(vec![option(199); 2_000])), CheckFate::Refused);
    assert_eq!(check_fate(&slow_enum, &json!(vec![option(199); 100])), CheckFate::Heavy);
    assert_eq!(check_fate(&slow_enum, &json!([1, 2, 3])), CheckFate::Light);
    let names: serde_json::Map<_, _> = (0..200).map(|at| (format!("[ab]{{{at}}}c"), json!({}))).collect();
    let many_names: serde_json::Map<_, _> = (0..50_000).map(|at| (format!("name-{at}"), json!(1))).collect();
    assert_ne!(check_fate(&json!({"patternProperties": names}), &json!(many_names)), CheckFate::Light);
    let properties: serde_json::Map<_, _> = (0..15_000).map(|at| (format!("p{at}"), json!({}))).collect();
    let objects = json!({"items": {"properties": properties}});
    assert_eq!(check_fate(&objects, &json!(vec![json!({}); 300_000])), CheckFate::Refused);
    let names_by_name = json!({"propertyNames": {"pattern": "^[ab]*a[ab]{6000}$"}});
    assert_eq!(check_fate(&names_by_name, &json!({"ab".repeat(50_000): 1})), CheckFate::Refused);
}

#[test]
fn r127_honest_bodies_are_light() {
    let text = "word ".repeat(10_000);
    for (schema, value) in [
        (translator(), json!({"text": text, "source_language": "en", "target_language": "zh"})),
        (json!({"properties": {"text": {"pattern": "^[^<>]+$"}}}), json!({"text": text})),
        (
            json!({"properties": {"id": {"pattern": "^[a-z0-9]{1,64}(-[a-z0-9]{1,64}){0,8}$"}, "text": {"type": "string"}}}),
            json!({"id": "a-b", "text": text}),
        ),
        (json!({"patternProperties": {"^x-[a-z]+$": {"type": "string"}}}), json!({"x-a": text})),
        (json!({"items": {"enum": ["a", "b", "c"]}}), json!(vec!["a"; 10_000])),
        (json!({"items": {"uniqueItems": true, "items": {"type": "integer"}}}), json!(vec![[1, 2, 3]; 1_000])),
    ] {
        assert_eq!(check_fate(&schema, &value), CheckFate::Light, "{schema}");
    }
}
