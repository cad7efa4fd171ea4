//! Schemas and bodies whose check or compilation is far more expensive than their size suggests, with the default
//! settings: time and memory are bounded, whatever both are.

use super::*;
use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// The memory that a check of a body of at most 1 MiB may hold beside the body and its tape.
const MAX_CHECK_MEMORY: usize = (4 << 20) + (64 << 10);

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

/// Compiles a schema as a document with the default budgets does.
fn compile_by_defaults(schema: &Value) -> Result<Arc<CompiledSchema>, String> {
    let limits = ContractConfig::default().schema_limits();
    CompiledSchema::compile_within(&Arc::new(schema.clone()), &DocumentBudget::new(limits, &[]))
}

/// Checks a body with the default settings; returns the status of the call.
fn status_by_defaults(name: &str, schema: &Value, body: &str) -> u16 {
    finish_quickly(name, || {
        let CheckEnd { verdict, fuel, memory } = check_by_defaults(schema, body);
        let max_fuel = ContractConfig::default().fuel.of_body(body.len());
        assert!(fuel <= max_fuel + check_scheduler::SLICE, "{name} takes {fuel} units of {max_fuel}");
        assert!(memory <= MAX_CHECK_MEMORY, "{name} takes {memory} bytes");
        verdict.map_or_else(|fault| fault.http_status(), |_| 200)
    })
}

#[test]
fn r127_unevaluated_over_a_chain_of_references_that_doubles_costs_a_line() {
    for keyword in ["unevaluatedItems", "unevaluatedProperties"] {
        let mut schema = reference_chain(18, |next| json!({"allOf": [next.clone(), next]}));
        schema["$defs"]["d18"] = json!({"properties": {"a": true}, "prefixItems": [true]});
        schema[keyword] = json!(false);
        let compiled = finish_quickly(keyword, || compile_by_defaults(&schema)).unwrap();
        assert!(compiled.program().memory() < 100_000, "{keyword}: {}", compiled.program().memory());
        assert_eq!(status_by_defaults(keyword, &schema, r#"{"a":1}"#), 200);
        assert_eq!(status_by_defaults(keyword, &schema, "[1]"), 200);
        let surplus = if keyword == "unevaluatedItems" { "[1,2]" } else { r#"{"a":1,"b":2}"# };
        assert_eq!(status_by_defaults(keyword, &schema, surplus), 400);
    }
}

#[test]
fn r127_a_thousand_alternatives_and_a_large_body_take_bounded_time_and_memory() {
    for count in [1_000, 7_000] {
        let schema = json!({"items": {"anyOf": vec![json!(false); count]}});
        let body = format!("[{}0]", "0,".repeat(500_000));
        assert!([400, 413].contains(&status_by_defaults("alternatives", &schema, &body)), "{count}");
    }
    let alternatives: Vec<Value> = (0..50).map(|at| json!({"const": at.to_string()})).collect();
    let schema = json!({"type": "array", "items": {"anyOf": alternatives}});
    let body = format!("[{}1]", "1,".repeat(300_000));
    assert_eq!(status_by_defaults("constants", &schema, &body), 400);
}

#[test]
fn r127_an_enumeration_of_integers_is_a_table_for_all_numbers() {
    let values: Vec<usize> = (0..40_000).collect();
    let schema = json!({"items": {"enum": values}});
    let fuel = |text: &str| check_by_defaults(&schema, text).fuel;
    let half = format!("[{}0]", "0.0,".repeat(20_000));
    assert_eq!(status_by_defaults("an enumeration", &schema, &half), 200);
    assert!(fuel(&half) < 5_000_000, "{}", fuel(&half));
    assert_eq!(status_by_defaults("an enumeration", &schema, &half.replace("0.0", "0.5")), 400);
}

#[test]
fn r127_unique_items_of_any_structure_are_compared_by_their_hashes() {
    let schema = json!({"uniqueItems": true});
    // Nested empty arrays, each of another structure.
    let nested_arrays = |count: usize| {
        let structure = |number: usize| {
            (0..24).fold("[]".to_owned(), |inner, bit| match number >> bit & 1 {
                0 => format!("[{inner}]"),
                _ => format!("[[],{inner}]"),
            })
        };
        format!("[{}]", (0..count).map(structure).collect::<Vec<_>>().join(","))
    };
    let body = nested_arrays(10_000);
    assert!(body.len() > 500_000, "{}", body.len());
    assert_eq!(status_by_defaults("nested arrays", &schema, &body), 200);
    let repeated = format!("[{body},{body}]");
    assert_eq!(status_by_defaults("equal arrays", &schema, repeated.get(..repeated.len()).unwrap()), 400);
    let numbers: Vec<String> = (0..100_000).map(|at| format!("[{at}]")).collect();
    assert_eq!(status_by_defaults("numbers", &schema, &format!("[{}]", numbers.join(","))), 200);
}

#[test]
fn r127_a_recursive_schema_accepts_a_small_value_of_some_depth() {
    let any_json = json!({"$ref": "#/$defs/any", "$defs": {"any": {"anyOf": [
        {"type": ["null", "boolean", "number", "string"]},
        {"type": "array", "items": {"$ref": "#/$defs/any"}},
        {"type": "object", "additionalProperties": {"$ref": "#/$defs/any"}},
    ]}}});
    for depth in [20, 60, 119] {
        let body = format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert_eq!(status_by_defaults("any JSON", &any_json, &body), 200, "{depth}");
    }
    let expression = json!({"$ref": "#/$defs/e", "$defs": {"e": {"anyOf": [
        {"type": "integer"},
        {"type": "object", "properties": {"a": {"$ref": "#/$defs/e"}, "op": {"const": "add"}}, "required": ["op"]},
        {"type": "object", "properties": {"a": {"$ref": "#/$defs/e"}, "op": {"const": "mul"}}, "required": ["op"]}
    ]}}});
    for depth in [8, 16, 63, 119] {
        let realistic = (0..depth).fold(json!(1), |inner, _| json!({"op": "mul", "a": inner})).to_string();
        assert_eq!(status_by_defaults("an expression", &expression, &realistic), 200, "{depth}");
    }
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
        let why = finish_quickly("an endless schema", || compile_by_defaults(&schema).unwrap_err());
        assert!(why.contains("never end"), "{schema} {why}");
    }
}

#[test]
fn r127_references_that_double_the_work_within_one_value_cost_a_line() {
    for keyword in ["allOf", "anyOf", "oneOf"] {
        let schema = reference_chain(60, |next| json!({keyword: [next.clone(), next]}));
        let compiled = finish_quickly(keyword, || compile_by_defaults(&schema)).unwrap();
        assert!(compiled.program().memory() < 100_000, "{keyword}");
        let status = status_by_defaults(keyword, &schema, "\"x\"");
        assert_eq!(status, 400, "{keyword}");
    }
}

#[test]
fn r127_long_chains_of_references_do_not_overflow_the_stack() {
    let deep = nested(119, |inner| json!({"a": inner})).to_string();
    for (name, schema) in [
        ("a chain through properties", reference_chain(9_000, |next| json!({"properties": {"a": next}}))),
        ("a chain of references", reference_chain(9_000, |next| next)),
        ("a chain through allOf", reference_chain(9_000, |next| json!({"allOf": [next]}))),
        ("a chain through not", reference_chain(9_000, |next| json!({"not": next}))),
    ] {
        finish_quickly(name, || compile_by_defaults(&schema)).unwrap();
        let status = status_by_defaults(name, &schema, &deep);
        assert!([200, 400, 413].contains(&status), "{name}");
    }
}

#[test]
fn r127_schemas_are_bounded_by_what_they_cost_and_not_by_their_length() {
    assert!(compile_by_defaults(&json!({"description": "x".repeat(300_000)})).is_ok());
    let values: Vec<usize> = (0..60_000).collect();
    assert!(finish_quickly("a long list", || compile_by_defaults(&json!({"enum": values}))).is_ok());
    let properties: serde_json::Map<_, _> = (0..15_000).map(|at| (at.to_string(), json!({}))).collect();
    assert!(finish_quickly("many properties", || compile_by_defaults(&json!({"properties": properties}))).is_ok());
    let deep = (0..50).fold(json!({}), |inner, _| json!({"not": {"allOf": [inner]}}));
    assert!(compile_by_defaults(&deep).is_ok());
}

/// Returns why a schema is refused by a budget for one document.
fn refused_by(per_document: u64, schema: &Value) -> Option<String> {
    let limits = SchemaLimits { per_document, ..SchemaLimits::UNLIMITED };
    let budget = DocumentBudget::new(limits, &[]);
    finish_quickly("a schema", || CompiledSchema::compile_within(&Arc::new(schema.clone()), &budget).err())
}

fn patterns(count: usize, pattern: impl Fn(usize) -> String) -> Value {
    let properties: serde_json::Map<_, _> =
        (0..count).map(|at| (format!("p{at}"), json!({"pattern": pattern(at)}))).collect();
    json!({"properties": properties})
}

#[test]
fn r127_patterns_take_bounded_memory() {
    let default = ContractConfig::default().schema_limits().per_document;
    for (name, schema) in [
        ("repetitions", patterns(1_000, |at| format!("[ab]{{{}}}", 9_000 - at))),
        ("alternatives", patterns(3_000, |at| format!("(x|y|z{at}){{400}}"))),
        ("classes", patterns(3_000, |at| format!("\\p{{L}}{{{}}}", at % 40 + 1))),
        (
            "names",
            json!({"patternProperties": (0..1_000).map(|at| (format!("[ab]{{{}}}", 9_000 - at), json!({}))).collect::<serde_json::Map<_, _>>()}),
        ),
    ] {
        let compiled = finish_quickly(name, || compile_by_defaults(&schema));
        let is_refused = compiled.as_ref().is_err_and(|why| why.contains("contract.max_compile"));
        let is_small = compiled.is_ok_and(|schema| schema.program().memory() < 32 << 20);
        assert!(is_refused || is_small, "{name}");
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
    let why = refused_by(default, &options(20_000));
    assert!(why.as_deref().is_some_and(|why| why.contains("max_compiled_size")), "{why:?}");
    assert_eq!(refused_by(default, &options(2_000)), None);
    let texts: Vec<String> = (0..15_000).map(|at| format!("option {at}")).collect();
    assert_eq!(refused_by(default, &json!({"enum": texts})), None);
}

#[test]
fn r127_dynamic_references_with_many_targets_take_bounded_time() {
    let resource = |at: usize| json!({"$id": format!("n{at}"), "$dynamicRef": "#x", "$defs": {"l": {"$dynamicAnchor": "x", "type": "integer"}}});
    let properties: serde_json::Map<_, _> = (0..1_500).map(|at| (format!("p{at}"), resource(at))).collect();
    let schema =
        json!({"$id": "https://a.example/r", "properties": properties, "$defs": {"all": {"$dynamicAnchor": "x"}}});
    let compiled = finish_quickly("dynamic references", || compile_by_defaults(&schema));
    assert!(compiled.is_ok_and(|schema| schema.program().memory() < 32 << 20));
}

#[test]
fn r127_compiling_takes_bounded_fuel_of_document_and_publisher() {
    let schema =
        |at: usize| Arc::new(json!({"properties": {format!("fuel-{at}"): {"pattern": "^(?:[ab]c|d.){400}$"}}}));
    let one = CompiledSchema::compile_within(&schema(0), &DocumentBudget::unlimited()).unwrap();
    let fuel = one.program().compile_fuel();
    drop(one);
    let limits = SchemaLimits { fuel_per_document: fuel / 2, ..SchemaLimits::UNLIMITED };
    let why = CompiledSchema::compile_within(&schema(0), &DocumentBudget::new(limits, &[])).unwrap_err();
    assert!(why.contains("of the document") && why.contains("contract.max_compile_fuel)"), "{why}");
    let publisher =
        SchemaBudget::of_publisher(SchemaLimits { fuel_per_publisher: 3 * fuel, ..SchemaLimits::UNLIMITED });
    let owners = [&publisher];
    let results: Vec<_> = (0..5)
        .map(|at| {
            let budget = DocumentBudget::new(SchemaLimits::UNLIMITED, &owners);
            let result = CompiledSchema::compile_within(&schema(at), &budget);
            assert_eq!(budget.exceeded_owner(), result.is_err());
            result
        })
        .collect();
    assert!(results[0].is_ok() && results[4].is_err(), "{results:?}");
    let why = results[4].as_ref().unwrap_err();
    assert!(why.contains("of the publisher") && why.contains("contract.max_compile_fuel_per_publisher"), "{why}");
}

#[test]
fn r127_the_fuel_of_a_check_grows_with_the_body_and_its_end_is_413_with_the_setting() {
    let schema = json!({"items": {"anyOf": vec![json!(false); 7_000]}});
    let body = format!("[{}0]", "0,".repeat(500_000));
    let CheckEnd { verdict, .. } = check_by_defaults(&schema, &body);
    if let Err(fault) = verdict {
        assert!(matches!(fault.http_status(), 400 | 413), "{fault}");
    }
    let config = ContractConfig { fuel: CheckFuel { floor: 10_000, per_byte: 0 }, ..ContractConfig::default() };
    let contract = OperationContract::compile_input(
        &Arc::new(json!({"items": {"type": "integer"}})),
        &config,
        &DocumentBudget::unlimited(),
    )
    .unwrap();
    let tape = parse_json(body, JsonBounds::default()).unwrap();
    let mut evaluation = Evaluation::new(Tape::ROOT, contract.max_fuel(tape.body().len()));
    let Poll::Ready(outcome) = evaluation.resume(contract.input.as_ref().unwrap().program(), &tape, u64::MAX) else {
        panic!("the check goes on")
    };
    assert_eq!(outcome, Outcome::OutOfFuel);
    let fault = contract.verdict(ContractSide::Input, outcome).unwrap_err();
    assert_eq!((fault.http_status(), fault.code()), (413, FaultCode::PayloadTooLarge));
    assert_eq!(fault.rule(), Some(crate::fault::FaultRule::Setting("contract.fuel")));
}

#[test]
fn r127_schemas_are_charged_once_for_each_owner() {
    let schema = |at: usize| json!({"properties": {format!("charged-{at}"): {"pattern": "[ab]{3000}"}}});
    let one = CompiledSchema::compile(&schema(0)).unwrap();
    let bytes = one.program().memory() as u64;
    drop(one);
    let limits = SchemaLimits { per_source: 10 * bytes, ..SchemaLimits::UNLIMITED };
    let source = SchemaBudget::of_source(limits);
    let compile = |at: usize| {
        let owners = [&source];
        let budget = DocumentBudget::new(limits, &owners);
        CompiledSchema::compile_within(&Arc::new(schema(at)), &budget)
            .map(|compiled| (compiled, budget.exceeded_owner()))
    };
    let mut kept = Vec::new();
    let first_refused = (0..100).find(|at| compile(*at).map(|compiled| kept.push(compiled)).is_err()).unwrap();
    assert!((2..20).contains(&first_refused), "{first_refused}");
    assert!(compile(0).is_ok(), "a schema that is charged already");
    let why = compile(first_refused).unwrap_err();
    assert!(why.contains("of the source") && why.contains("max_compiled_size_per_source"), "{why}");
    let publisher = SchemaBudget::of_publisher(SchemaLimits { per_publisher: 100, ..limits });
    let owners = [&publisher, &source];
    let budget = DocumentBudget::new(limits, &owners);
    let why = CompiledSchema::compile_within(&Arc::new(schema(0)), &budget).unwrap_err();
    assert!(budget.exceeded_owner() && why.contains("of the publisher"), "{why}");
}
