//! Tests of inputs from `GET` queries.

use super::*;
use proptest::prelude::*;

fn schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "q": {"type": "string"}, "n": {"type": "integer"}, "x": {"type": "number"}, "b": {"type": "boolean"},
            "tags": {"type": "array", "items": {"type": "string"}}, "ids": {"type": "array", "items": {"type": "integer"}},
            "maybe": {"anyOf": [{"type": "integer"}, {"type": "null"}]}, "level": {"enum": [1, 2, "high"]},
            "deep": {"type": "object"}, "ref": {"$ref": "#/$defs/count"}, "either": {"type": ["integer", "string"]}
        },
        "$defs": {"count": {"type": "integer"}}
    })
}

fn convert(query: &str) -> Result<Value, Fault> {
    convert_by(&schema(), query)
}

fn convert_by(schema: &Value, query: &str) -> Result<Value, Fault> {
    QueryTypes::of_value(schema).input_from_query(query).map(Value::Object)
}

#[test]
fn r49_parameters_get_the_types_of_the_schema() {
    let query = "q=a+b%20c%26&n=-3&x=1e3&b=true&tags=one&ids=1&ids=2&maybe=&level=2&ref=7&either=5&other=1";
    assert_eq!(
        convert(query).unwrap(),
        json!({
            "q": "a b c&", "n": -3, "x": 1000.0, "b": true, "tags": ["one"], "ids": [1, 2], "maybe": null, "level": 2,
            "ref": 7, "either": 5, "other": "1"
        })
    );
    assert_eq!(
        convert("level=high&either=007&q=5&q%5B%5D=x").unwrap(),
        json!({"level": "high", "either": "007", "q": "5", "q[]": "x"})
    );
    assert_eq!(convert_by(&json!(true), "").unwrap(), json!({}));
    assert_eq!(convert_by(&json!(true), "a&b=&&c==").unwrap(), json!({"a": "", "b": "", "c": "="}));
}

#[test]
fn r49_a_text_stays_a_string_where_the_schema_allows_one_beside_other_types() {
    let schema = json!({"properties": {
        "empty": {"type": ["string", "null"]}, "text": {"type": ["object", "string"]}, "list": {"type": ["array", "null"]}
    }});
    let convert = |query| convert_by(&schema, query);
    assert_eq!(convert("empty=&text=a").unwrap(), json!({"empty": "", "text": "a"}));
    assert_eq!(convert("empty=null&list=a").unwrap(), json!({"empty": null, "list": ["a"]}));
}

#[test]
fn r49_a_text_that_does_not_fit_its_type_is_left_to_the_schema_check() {
    let compiled = CompiledSchema::compile(&schema()).unwrap();
    for query in [
        "n=five",
        "n=1.5",
        "n=",
        "n=1%20",
        "b=yes",
        "b=",
        "x=NaN",
        "x=0x1",
        "ids=1&ids=a",
        "n=99999999999999999999999.5",
    ] {
        let value = convert(query).unwrap();
        assert_eq!(compiled.validate(&value).len(), 1, "{query} {value}");
    }
}

#[test]
fn r49_malformed_repeated_structured_and_oversized_queries_are_refused() {
    for query in ["q=%", "q=%4", "q=%zz", "q=%ff", "%c3=1", "q=1&q=2", "u=1&u=2", "=1", "deep=%7B%7D"] {
        let fault = convert(query).unwrap_err();
        assert_eq!((fault.code(), fault.http_status()), (FaultCode::InvalidInput, 400), "{query}");
    }
    let many: Vec<String> = (0..257).map(|at| format!("p{at}=1")).collect();
    assert_eq!(convert(&many.join("&")).unwrap_err().http_status(), 400);
    assert_eq!(convert(&"a".repeat(70_000)).unwrap_err().http_status(), 414);
    assert_eq!(convert("q=1&q=2").unwrap_err().violations()[0].pointer, "/q");
}

#[test]
fn r49_a_schema_that_refers_to_itself_terminates() {
    let schema = json!({"properties": {"a": {"$ref": "#/properties/a"}}, "allOf": [{"$ref": "#"}, {"$ref": "#"}]});
    assert_eq!(convert_by(&schema, "a=1&b=2").unwrap(), json!({"a": "1", "b": "2"}));
}

#[test]
fn r49_every_subschema_is_read_once_however_references_lead() {
    let mut definitions = serde_json::Map::new();
    for at in 0..200 {
        let next = format!("#/$defs/d{}", at + 1);
        definitions
            .insert(format!("d{at}"), json!({"anyOf": [{"$ref": next}, {"$ref": next}, {"$ref": "#/$defs/d0"}]}));
    }
    definitions.insert("d200".to_owned(), json!({"type": "integer"}));
    let schema = json!({"properties": {"a": {"$ref": "#/$defs/d0"}}, "$defs": definitions});
    assert_eq!(convert_by(&schema, "a=1&b=1").unwrap(), json!({"a": 1, "b": "1"}));
}

#[test]
fn r49_unknown_names_cost_no_look_at_the_schema() {
    let properties: serde_json::Map<_, _> = (0..20_000).map(|at| (format!("p{at}"), json!({}))).collect();
    let types = QueryTypes::of_value(&json!({"allOf": vec![json!({"properties": properties}); 2]}));
    let query: Vec<String> = (0..256).map(|at| format!("x{at}=1")).collect();
    let (query, started_at) = (query.join("&"), std::time::Instant::now());
    (0..100).for_each(|_| drop(types.input_from_query(&query).unwrap()));
    // Each took seconds; in a debug build, 100 take less than one.
    assert!(started_at.elapsed() < std::time::Duration::from_secs(20), "{:?}", started_at.elapsed());
}

proptest! {
    #[test]
    fn no_query_makes_the_conversion_panic(query in "\\PC{0,80}", name in "[a-z]{1,5}") {
        let _ = convert(&query);
        let _ = convert(&format!("{name}={query}&n={query}&ids={query}"));
    }
}
