//! Tests of the compilation of schemas: valid schemas compile, invalid and unbounded schemas are refused.

use super::*;

fn compile_error(schema: Value) -> String {
    CompiledSchema::compile(&schema).unwrap_err()
}

#[test]
fn r127_schema_keyword_selects_the_draft() {
    for draft in [
        "https://json-schema.org/draft/2020-12/schema",
        "https://json-schema.org/draft/2019-09/schema",
        "http://json-schema.org/draft-07/schema#",
        "http://json-schema.org/draft-06/schema#",
        "http://json-schema.org/draft-04/schema#",
    ] {
        let schema = json!({"$schema": draft, "type": "object", "required": ["a"]});
        assert_eq!(check(schema, json!({})).len(), 1, "{draft}");
    }
    let tuple = |schema: &str| json!({"$schema": schema, "items": [{"type": "integer"}]});
    assert_eq!(check(tuple("http://json-schema.org/draft-07/schema#"), json!(["x"])).len(), 1);
    assert!(check(json!({"prefixItems": [{"type": "integer"}]}), json!([1])).is_empty(), "2020-12 is the default");
}

#[test]
fn r127_a_list_of_items_is_understood_in_every_draft() {
    let schema = json!({"items": [{"type": "integer"}], "additionalItems": false});
    assert!(check(schema.clone(), json!([1])).is_empty());
    assert_eq!(check(schema.clone(), json!(["x"])).len(), 1);
    assert_eq!(check(schema, json!([1, 2])).len(), 1);
}

#[test]
fn r127_format_is_an_annotation_in_newer_drafts_and_unknown_keywords_are_ignored() {
    assert!(check(json!({"format": "email", "x-ui": 1, "example": 2}), json!("no")).is_empty());
    assert!(
        check(json!({"$schema": "http://json-schema.org/draft-07/schema#", "format": "made-up"}), json!("no"))
            .is_empty()
    );
    let schema = json!({"$schema": "http://json-schema.org/draft-07/schema#", "format": "regex"});
    assert!(check(schema, json!("(((a{999}){999}){999})")).is_empty(), "a caller's text is never compiled");
}

#[test]
fn r127_references_within_the_document_are_followed() {
    for schema in [
        json!({"properties": {"a": {"$ref": "#/$defs/n"}}, "$defs": {"n": {"type": "integer"}}}),
        json!({"properties": {"a": {"$ref": "#/$defs/a%20b~1c"}}, "$defs": {"a b/c": {"type": "integer"}}}),
        json!({"properties": {"a": {"$ref": "#n"}}, "$defs": {"n": {"$anchor": "n", "type": "integer"}}}),
        json!({"$id": "https://a.example/root", "properties": {"a": {"$ref": "n"}}, "$defs": {"n": {"$id": "n", "type": "integer"}}}),
        json!({"$id": "https://a.example/root", "properties": {"a": {"$ref": "https://a.example/n#/$defs/m"}},
            "$defs": {"n": {"$id": "https://a.example/n", "$defs": {"m": {"type": "integer"}}}}}),
        json!({"$schema": "http://json-schema.org/draft-07/schema#", "properties": {"a": {"$ref": "#/definitions/n"}}, "definitions": {"n": {"type": "integer"}}}),
        json!({"$id": "https://a.example/x/root", "properties": {"a": {"$ref": "/y/n"}}, "$defs": {"n": {"$id": "/y/n", "type": "integer"}}}),
        json!({"$id": "https://a.example/x/root", "properties": {"a": {"$ref": "https://a.example/y/n"}}, "$defs": {"n": {"$id": "../y/n", "type": "integer"}}}),
        json!({"$id": "https://a.example/x/root", "$defs": {"n": {"$id": "/y/n", "$defs": {"m": {"$id": "m", "type": "integer"}}}},
            "properties": {"a": {"$ref": "/y/m"}}}),
    ] {
        assert_eq!(check(schema.clone(), json!({"a": "x"})).len(), 1, "{schema}");
        assert_eq!(check(schema.clone(), json!({"a": 1})).len(), 0, "{schema}");
    }
}

#[test]
fn r127_references_to_the_metaschemas_of_the_drafts_are_followed() {
    for draft in [
        "https://json-schema.org/draft/2020-12/schema",
        "https://json-schema.org/draft/2019-09/schema",
        "http://json-schema.org/draft-07/schema#",
        "http://json-schema.org/draft-07/schema",
        "http://json-schema.org/draft-06/schema#",
        "http://json-schema.org/draft-04/schema#",
    ] {
        for schema in
            [json!({"$schema": draft, "$ref": draft}), json!({"$schema": draft, "properties": {"a": {"$ref": draft}}})]
        {
            let wrap = |value: Value| if schema.get("properties").is_some() { json!({"a": value}) } else { value };
            assert_eq!(check(schema.clone(), wrap(json!({"minLength": 1}))), [], "{schema}");
            let invalid = wrap(json!({"properties": {"b": {"minLength": -1}}}));
            assert_eq!(check(schema.clone(), invalid).len(), 1, "{schema}");
        }
    }
    assert!(
        compile_error(json!({"$ref": "https://json-schema.org/draft/2020-12/schema#/nothing"})).contains("no target")
    );
}

#[test]
fn r127_references_that_leave_the_document_are_refused() {
    for reference in [
        "https://a.example/schema.json",
        "http://127.0.0.1:1/x",
        "file:///etc/passwd",
        "other.json",
        "//a.example/x",
        "urn:x:y",
        "https://json-schema.org/draft/2099-01/schema",
    ] {
        let why = compile_error(json!({"properties": {"a": {"$ref": reference}}}));
        assert!(why.contains(reference) && why.contains("only references within"), "{why}");
    }
    for reference in ["#/nothing", "#nothing", "#/%zz", "#/$defs/~2"] {
        assert!(
            compile_error(json!({"properties": {"a": {"$ref": reference}}})).contains("has no target"),
            "{reference}"
        );
    }
    compile_error(json!({"$schema": "https://a.example/my-own-draft", "type": "object"}));
}

#[test]
fn r127_invalid_schemas_are_refused_with_the_position_of_the_error() {
    for (schema, position) in [
        (json!({"type": "objekt"}), "/type"),
        (json!({"properties": {"a": {"minimum": "3"}}}), "/properties/a/minimum"),
        (json!({"required": "text"}), "/required"),
        (json!({"properties": []}), "/properties"),
        (json!({"enum": 1}), "/enum"),
    ] {
        let why = compile_error(schema);
        assert!(why.contains(position), "{why}");
    }
    for schema in [json!(1), json!("object"), json!(null), json!([{}])] {
        compile_error(schema);
    }
}

#[test]
fn r127_patterns_are_those_of_ecma_262() {
    for (pattern, matching, other) in [
        ("(?=a)b", None, Some("ab")),
        ("(?<!a)b", Some("cb"), Some("ab")),
        (r"^(a|b)\1$", Some("aa"), Some("ab")),
        (r"^(?=.*[a-z])(?=.*\d).{8,}$", Some("abcdefg1"), Some("abcdefgh")),
        ("^[^<>]{0,1000}$", Some("text"), Some("<")),
        ("^.{1,1024}$", Some("x"), Some("")),
        (r"^[\w-.]+$", Some("a-b.c"), Some("a b")),
    ] {
        let schema = CompiledSchema::compile(&json!({"pattern": pattern})).unwrap();
        assert_eq!(schema.unsupported(), [], "{pattern}");
        let is_valid = |text: &str| schema.validate(&json!(text)).is_empty();
        assert!(matching.is_none_or(is_valid) && !other.is_some_and(is_valid), "{pattern}");
    }
    for pattern in ["(", "[z-a]", "a**"] {
        let why = compile_error(json!({"properties": {"a": {"pattern": pattern}}}));
        assert!(why.len() < 500 && why.contains("at /properties/a/pattern: "), "{why}");
    }
}

#[test]
fn r44_the_schema_decides_whether_an_array_is_one_input() {
    for schema in [
        json!({"type": "array"}),
        json!({"type": ["object", "array"]}),
        json!({"anyOf": [{"type": "object"}, {"type": "array"}]}),
        json!({"$ref": "#/$defs/l", "$defs": {"l": {"type": "array"}}}),
        json!({"$ref": "#list", "$defs": {"l": {"$anchor": "list", "type": "array"}}}),
        json!({"$id": "https://a.example/root", "$ref": "list", "$defs": {"l": {"$id": "list", "minItems": 1}}}),
        json!({"allOf": [{"$ref": "#/$defs/l"}, {"maxItems": 3}], "$defs": {"l": {"allOf": [{"type": "array"}]}}}),
        json!({"contains": {"type": "integer"}}),
        json!({"uniqueItems": true}),
        json!({"uniqueItems": false}),
        json!({"items": {"type": "integer"}}),
        json!({"items": false}),
        json!({"prefixItems": [{"type": "integer"}]}),
        json!({"unevaluatedItems": false}),
        json!({"minItems": 1}),
        json!({"maxContains": 1, "contains": true}),
        json!({"enum": [{"a": 1}, [1, 2]]}),
        json!({"const": []}),
        json!({"not": {"contains": {"type": "string"}}}),
        json!({"not": {"type": "object"}, "items": {"type": "object"}}),
        json!({"if": {"type": "array"}, "then": {"minItems": 1}, "else": {"type": "object"}}),
        json!({"if": {"type": "object"}, "then": {"required": ["a"]}, "else": {"type": "array"}}),
        json!({"oneOf": [{"type": "object"}, {"items": {"type": "integer"}}]}),
    ] {
        assert!(CompiledSchema::compile(&schema).unwrap().accepts_array(), "{schema}");
    }
    for schema in [
        json!({}),
        json!(true),
        json!(false),
        json!({"type": "object"}),
        json!({"type": "object", "items": {"type": "integer"}}),
        json!({"items": {}}),
        json!({"properties": {"a": {"type": "array"}}}),
        json!({"enum": [{"a": [1]}, "x"]}),
        json!({"const": {"a": []}}),
        json!({"not": {"type": "array"}}),
        json!({"not": {"type": ["array", "null"]}, "minItems": 1}),
        json!({"not": {}, "minItems": 1}),
        json!({"not": {"required": ["a"]}}),
        json!({"allOf": [{"type": "object"}, {"$ref": "#/$defs/l"}], "$defs": {"l": {"type": "array"}}}),
        json!({"anyOf": [{"type": "object"}, {"type": "string"}], "minItems": 1}),
        json!({"if": {"type": "array"}, "then": false, "else": {"type": "object"}}),
        json!({"$defs": {"l": {"type": "array"}}}),
    ] {
        assert!(!CompiledSchema::compile(&schema).unwrap().accepts_array(), "{schema}");
    }
    let nested =
        |depth: usize| (0..depth).fold(json!({"properties": {"text": true}}), |schema, _| json!({"allOf": [schema]}));
    for depth in [0, 8, 30] {
        assert!(QueryTypes::of_value(&nested(depth)).declares("text"), "{depth}");
    }
}

#[test]
fn equal_schemas_are_compiled_once_and_dropped_with_their_last_user() {
    let schema = json!({"type": "object", "properties": {"only-here": {"type": "string"}}});
    let first = CompiledSchema::compile(&schema).unwrap();
    let again = CompiledSchema::compile(&schema.clone()).unwrap();
    assert!(Arc::ptr_eq(&first, &again));
    let weak = Arc::downgrade(&first);
    drop((first, again));
    assert!(weak.upgrade().is_none());
}

#[test]
fn an_invalid_schema_is_reported_even_if_checking_is_off() {
    let config = ContractConfig { input: ContractMode::Off, output: ContractMode::Off, ..ContractConfig::default() };
    let problems = OperationContract::compile(
        &operation(json!({"type": 1}), json!({"$ref": "http://x.example/"})),
        &config,
        &DocumentBudget::unlimited(),
    )
    .unwrap_err();
    assert_eq!(problems.len(), 2);
    assert!(
        problems[0].starts_with("inputs: the schema is not valid: at /type: ")
            && problems[1].starts_with("outputs: at /$ref: the reference 'http://x.example/' leaves the schema"),
        "{problems:?}"
    );
}

#[test]
fn an_unusable_schema_is_reported_with_the_pointer_to_the_keyword() {
    for (schema, pointer) in [
        (json!({"properties": {"a": {"type": "strng"}}}), "/properties/a/type"),
        (json!({"properties": {"a/b": {"minimum": "3"}}}), "/properties/a~1b/minimum"),
        (json!({"anyOf": [{}, {"pattern": "(?=x"}]}), "/anyOf/1/pattern"),
        (json!({"items": {"$ref": "#/$defs/none"}}), "/items/$ref"),
        (json!({"items": {"$ref": "https://schemas.example.com/int.json"}}), "/items/$ref"),
        (json!({"patternProperties": {"(?=x": {}}}), "/patternProperties/(?=x"),
    ] {
        let why = compile_error(schema);
        assert!(why.contains(&format!("at {pointer}: ")), "{pointer}: {why}");
    }
}

#[test]
fn r127_identifiers_and_drafts_that_cannot_be_resolved_are_named() {
    for (schema, named) in [
        (json!({"$schema": "https://drafts.example/unknown"}), "https://drafts.example/unknown"),
        (json!({"$defs": {"a": {"$id": "http://["}}}), "'http://['"),
    ] {
        let why = compile_error(schema);
        assert!(why.contains("a reference cannot be resolved") && why.contains(named), "{why}");
    }
}
