//! Conversion of OpenAPI documents: operations that the gateway can call, those that are left out, and documents that are
//! far more expensive than their size suggests.

use super::*;
use crate::contract::CompiledSchema;
use document_location::DocumentLocation;

/// An OpenAPI document with a usable operation and others.
pub(super) fn document() -> Value {
    json!({
        "openapi": "3.1.0",
        "info": {"title": "Trip planner", "version": "2.0.0", "description": "Plans trips"},
        "servers": [{"url": "/api/"}],
        "tags": [{"name": "travel"}],
        "paths": {
            "/plan": {"post": {
                "operationId": "plan_trip", "summary": "Plans a trip",
                "requestBody": {"required": true, "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Trip"}}}},
                "responses": {"200": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Plan"}}}}, "422": {}},
            }},
            "/plans/{id}": {"get": {"operationId": "get_plan"}, "post": {"requestBody": json_body(json!({}))}},
            "/upload": {"post": {"requestBody": {"content": {"multipart/form-data": {"schema": {}}}}}},
        },
        "components": {"schemas": {
            "Trip": {"type": "object", "properties": {"to": {"type": "string"}, "by": {"$ref": "#/components/schemas/Means"}}, "required": ["to"]},
            "Means": {"enum": ["train", "boat"]},
            "Plan": {"type": "object", "properties": {"next": {"$ref": "#/components/schemas/Plan"}}},
            "Unused": {"$ref": "https://elsewhere.example/schema.json"},
        }},
    })
}

fn json_body(schema: Value) -> Value {
    json!({"content": {"application/json": {"schema": schema}}})
}

/// Returns a document with these paths.
fn with_paths(paths: Value) -> Value {
    let mut document = document();
    document["paths"] = paths;
    document
}

fn post(schema: Value) -> Value {
    json!({"post": {"requestBody": json_body(schema)}})
}

fn convert(document: &Value) -> Result<openapi_document::ConvertedOpenApi, ConversionError> {
    let location = DocumentLocation::Url(&base());
    let converted = openapi_document::convert_openapi(document.as_object().unwrap(), None, location)?;
    let agent = Agent::from_document(&converted.document, [0; 32]);
    assert!(agent.is_ok(), "{agent:?}");
    Ok(converted)
}

fn notes(document: &Value) -> Vec<String> {
    convert(document).unwrap().notes
}

fn operations(document: &Value) -> Vec<Value> {
    convert(document).unwrap().document["operations"].as_array().unwrap().clone()
}

#[test]
fn r13_operations_that_take_json_become_operations_with_their_paths_and_schemas() {
    let converted = convert(&document()).unwrap();
    let agent = &converted.document;
    assert_eq!((&agent["id"], &agent["name"]), (&json!("Trip-planner"), &json!("Trip planner")));
    assert_eq!((&agent["endpoint"], &agent["version"]), (&json!("https://registry.example/api"), &json!("2.0.0")));
    assert_eq!((&agent["tags"], &agent["capabilities"]), (&json!(["travel"]), &json!(["plan_trip"])));
    let operation = &agent["operations"][0];
    assert_eq!((&operation["name"], &operation["endpoint"]), (&json!("plan_trip"), &json!("/api/plan")));
    assert_eq!(operation["description"], "Plans a trip");
    assert_eq!(operation["inputs"]["properties"]["by"], json!({"$ref": "#/$defs/Means"}));
    assert_eq!(operation["inputs"]["$defs"], json!({"Means": {"enum": ["train", "boat"]}}));
    let schema = CompiledSchema::compile(&operation["inputs"]).unwrap();
    assert!(schema.validate(&json!({"to": "Rio", "by": "boat"})).is_empty());
    assert_eq!(schema.validate(&json!({"to": "Rio", "by": "car"})).len(), 1);
    let output = CompiledSchema::compile(&operation["outputs"]).unwrap();
    assert!(output.validate(&json!({"next": {"next": {}}})).is_empty(), "recursive schemas stay recursive");
    assert_eq!(output.validate(&json!({"next": 1})).len(), 1);
    assert_eq!(converted.notes.len(), 3);
    for (note, expected) in converted.notes.iter().zip([
        "GET '/plans/{id}' is left out (the gateway calls operations by POST)",
        "POST '/plans/{id}' is left out (its path has parameters",
        "POST '/upload' is left out (it takes 'multipart/form-data' instead of JSON)",
    ]) {
        assert!(note.contains(expected), "{note}");
    }
}

#[test]
fn r13_operations_that_cannot_be_called_are_left_out_with_the_reason() {
    let usable = post(json!({}));
    for (path, item, reason) in [
        ("/a?b=c", usable.clone(), "not one that every server reads"),
        ("/../admin", usable.clone(), "not one that every server reads"),
        ("/a//b", usable.clone(), "not one that every server reads"),
        ("/a\r\nX: y", usable.clone(), "not one that every server reads"),
        ("a", usable.clone(), "not one that every server reads"),
        ("/a/%2e%2e/b", usable.clone(), "not one that every server reads"),
        ("/a", json!({"post": {}}), "takes no JSON body"),
        ("/a", json!({"put": {"requestBody": json_body(json!({}))}}), "by POST"),
        ("/a", json!({"post": 1}), "not an object"),
        ("/a", json!([]), "not an object"),
        ("/a", json!({"$ref": "https://elsewhere.example/path.json"}), "has no target here"),
        ("/a", json!({"$ref": "#/paths/~1a"}), "more than 8 references"),
        ("/a", json!({"post": {"requestBody": {"$ref": "#/components/requestBodies/No"}}}), "has no target here"),
        ("/a", post(json!({"$ref": "#/components/schemas/No"})), "no schema 'No' in components"),
        ("/a", post(json!({"$ref": "#/components/schemas/Unused"})), "does not lead to a schema in components"),
        ("/a", post(json!({"$ref": "#/paths/~1a"})), "does not lead to a schema in components"),
        ("/a", post(json!({"$ref": 1})), "not a string"),
        ("/a", post(json!({"properties": {"x": 1}})), "neither an object nor a boolean"),
        ("/a", post(json!({"$dynamicRef": "#x"})), "$dynamicRef is not supported"),
        ("/a", post(json!({"pattern": "(?=x"})), "its schema cannot be used"),
        ("/a", post(json!({"type": "no type"})), "its schema cannot be used"),
        ("/a", json!({"post": {"requestBody": json_body(json!({})), "security": [{"basic": []}]}}), "not declared"),
        ("/a", json!({"servers": [{"url": "https://elsewhere.example/"}], "post": usable["post"]}), "another server"),
        (
            "/a",
            json!({"parameters": [{"in": "cookie", "name": "c", "required": true}], "post": usable["post"]}),
            "cookie",
        ),
    ] {
        let mut paths = json!({"/usable": usable});
        paths[path] = item;
        let notes = notes(&with_paths(paths.clone()));
        assert!(notes.len() == 1 && notes[0].contains(reason), "{paths}: {notes:?}");
        let mut alone = json!({});
        alone[path] = paths[path].clone();
        let why = convert(&with_paths(alone)).unwrap_err();
        assert!(matches!(&why, ConversionError::Unsupported(why) if why.contains(reason)), "{reason}: {why}");
    }
}

#[test]
fn r13_names_are_made_from_ids_and_paths_and_the_first_of_equal_ones_stays() {
    let named = |id: &str| json!({"post": {"operationId": id, "requestBody": json_body(json!({}))}});
    let document =
        with_paths(json!({"/": post(json!({})), "/a/b": post(json!({})), "/c": named("invoke"), "/d": named("a-b")}));
    let names: Vec<Value> = operations(&document).iter().map(|operation| operation["name"].clone()).collect();
    assert_eq!(names, ["post", "a-b", "invoke-skill"]);
    assert!(notes(&document)[0].contains("its name becomes a-b"), "{:?}", notes(&document));
    let described = json!({"/a": {"parameters": [{"in": "query", "name": "city", "required": true}], "post": post(json!({}))["post"]}});
    assert_eq!(operations(&with_paths(described))[0]["description"], "Required in the query: city.");
}

#[test]
fn r12_the_requirements_of_all_operations_are_those_of_the_agent() {
    let secured = |security: Value| json!({"post": {"requestBody": json_body(json!({})), "security": security}});
    let with_security = |paths: Value| {
        let mut document = with_paths(paths);
        document["components"]["securitySchemes"] = json!({
            "oauth": {"type": "oauth2", "flows": {}}, "key": {"type": "apiKey", "in": "header", "name": "X"},
            "basic": {"type": "http", "scheme": "basic"},
        });
        document
    };
    let both = with_security(
        json!({"/a": secured(json!([{"oauth": ["read"]}])), "/b": secured(json!([{"oauth": ["write"]}])), "/c": secured(json!([]))}),
    );
    let converted = convert(&both).unwrap().document;
    assert_eq!(converted["authentication"], json!({"type": "oauth2_bearer", "scopes": ["read", "write"]}));
    assert_eq!(converted["operations"].as_array().unwrap().len(), 3);
    let other = with_security(json!({"/a": secured(json!([{"oauth": []}])), "/b": secured(json!([{"key": []}]))}));
    assert!(notes(&other)[0].contains("another kind of credential"));
    let mut of_document = with_security(json!({"/a": post(json!({}))}));
    of_document["security"] = json!([{"key": []}]);
    assert_eq!(convert(&of_document).unwrap().document["authentication"], json!({"type": "api_key"}));
    let basic = with_security(json!({"/a": secured(json!([{"basic": []}]))}));
    assert!(convert(&basic).unwrap_err().reason().contains("unsupported scheme (basic)"));
}

#[test]
fn r13_schemas_of_openapi_3_0_become_json_schemas() {
    let mut document = with_paths(json!({"/a": post(json!({
        "type": "object", "required": ["id", "name", "owner"],
        "properties": {
            "id": {"type": "string", "readOnly": true},
            "name": {"type": "string", "nullable": true, "enum": ["a"], "example": "a"},
            "size": {"type": "number", "minimum": 0, "exclusiveMinimum": true, "maximum": 9, "exclusiveMaximum": false},
            "any": {"allOf": [{"type": "integer"}], "nullable": true},
            "owner": {"$ref": "#/components/schemas/Owner", "description": "ignored beside $ref"},
            "nullable": {"type": "boolean"},
        },
        "discriminator": {"propertyName": "name"}, "xml": {"name": "x"},
    }))}));
    document["openapi"] = json!("3.0.3");
    document["components"]["schemas"]["Owner"] = json!({"type": "string", "readOnly": true});
    let inputs = operations(&document)[0]["inputs"].clone();
    assert_eq!(inputs["required"], json!(["name"]));
    assert_eq!(
        inputs["properties"]["name"],
        json!({"type": ["string", "null"], "enum": ["a", null], "examples": ["a"]})
    );
    assert_eq!(inputs["properties"]["size"], json!({"type": "number", "exclusiveMinimum": 0, "maximum": 9}));
    assert_eq!(inputs["properties"]["owner"], json!({"$ref": "#/$defs/Owner"}));
    assert_eq!(inputs["properties"]["nullable"], json!({"type": "boolean"}), "a property of this name is no keyword");
    assert_eq!(inputs.get("discriminator"), None);
    let schema = CompiledSchema::compile(&inputs).unwrap();
    assert!(schema.validate(&json!({"name": null, "size": 1, "any": null})).is_empty());
    assert_eq!(schema.validate(&json!({"name": "a", "size": 0})).len(), 1);
}

#[test]
fn r13_references_below_keywords_of_former_drafts_lead_to_their_components() {
    let owner = json!({"$ref": "#/components/schemas/Owner"});
    let mut document = with_paths(json!({"/a": post(json!({
        "type": "object",
        "dependencies": {"name": ["id"], "owner": {"properties": {"owner": owner}}},
    }))}));
    document["components"]["schemas"]["Owner"] = json!({"type": "string"});
    let inputs = operations(&document)[0]["inputs"].clone();
    assert_eq!(
        inputs["dependencies"],
        json!({"name": ["id"], "owner": {"properties": {"owner": {"$ref": "#/$defs/Owner"}}}})
    );
    let schema = CompiledSchema::compile(&inputs).unwrap();
    assert!(schema.validate(&json!({"owner": "a"})).is_empty());
    assert_eq!(schema.validate(&json!({"owner": 1})).len(), 1);
    assert_eq!(schema.validate(&json!({"name": "a"})).len(), 1);
}

#[test]
fn r13_a_reference_into_a_component_leads_to_that_place() {
    let reference = json!({"$ref": "#/components/schemas/Pet/properties/tags/items"});
    let mut document = with_paths(json!({"/a": post(json!({"type": "object", "properties": {"tag": reference}}))}));
    document["components"]["schemas"]["Pet"] =
        json!({"properties": {"tags": {"items": {"type": "string", "maxLength": 2}}}});
    let inputs = operations(&document)[0]["inputs"].clone();
    assert_eq!(inputs["properties"]["tag"], json!({"$ref": "#/$defs/Pet~1properties~1tags~1items"}));
    let schema = CompiledSchema::compile(&inputs).unwrap();
    assert!(schema.validate(&json!({"tag": "ab"})).is_empty() && !schema.validate(&json!({"tag": "abc"})).is_empty());
    document["components"]["schemas"]["Pet"] = json!({});
    assert!(convert(&document).unwrap_err().reason().contains("no schema 'Pet/properties/tags/items' in components"));
}

#[test]
fn r13_outputs_are_described_only_where_one_response_describes_all() {
    let output = |responses: Value| {
        let document =
            with_paths(json!({"/a": {"post": {"requestBody": json_body(json!({})), "responses": responses}}}));
        let operation = operations(&document)[0].clone();
        (operation.get("outputs").cloned(), operation.get("outputFormats").cloned())
    };
    let json_of = |schema: Value| json!({"content": {"application/json": {"schema": schema}}});
    let text = json!({"type": "string"});
    assert_eq!(
        output(json!({"200": json_of(text.clone()), "204": {}, "default": json_of(json!({}))})),
        (Some(text.clone()), None)
    );
    assert_eq!(output(json!({"200": json_of(text.clone()), "201": json_of(json!({}))})), (None, None));
    let stream = json!({"content": {"application/json": {"schema": text}, "text/event-stream": {}}});
    assert_eq!(output(json!({"200": stream})), (Some(text), Some(json!(["application/json", "text/event-stream"]))));
    assert_eq!(output(json!({"200": {"$ref": "#/nowhere/x"}})), (None, None));
}

#[test]
fn r127_documents_that_are_larger_than_they_seem_are_refused() {
    let chain = |keyword: &str| {
        let link = |at: usize| {
            let next = json!({"$ref": format!("#/components/schemas/S{}", at + 1)});
            (format!("S{at}"), json!({keyword: [next.clone(), next]}))
        };
        let mut schemas: Map<String, Value> = (0..60).map(link).collect();
        schemas.insert("S60".to_owned(), json!({"type": "integer"}));
        let mut document = with_paths(json!({"/a": post(json!({"$ref": "#/components/schemas/S0"}))}));
        document["components"]["schemas"] = schemas.into();
        document
    };
    for keyword in ["allOf", "anyOf", "oneOf"] {
        assert_eq!(operations(&chain(keyword)).len(), 1, "a reference that is followed twice is compiled once");
    }
    // Each operation repeats the component.
    let large = json!({"description": "x".repeat(30_000)});
    let with_many = |count: usize| {
        let paths = (0..count).map(|at| (format!("/{at}"), post(json!({"items": {"$ref": "#/components/schemas/L"}}))));
        let mut document = with_paths(Value::Object(paths.collect()));
        document["components"]["schemas"]["L"] = large.clone();
        document
    };
    assert_eq!(operations(&with_many(30)).len(), 30);
    assert!(convert(&with_many(40)).unwrap_err().reason().contains("have more than 1048576 bytes"));
    let many =
        |count: usize| with_paths(Value::Object((0..count).map(|at| (format!("/{at}"), post(json!({})))).collect()));
    assert_eq!(operations(&many(256)).len(), 256);
    assert!(convert(&many(257)).unwrap_err().reason().contains("more than 256 operations"));
    let left_out = Value::Object((0..1_000).map(|at| (format!("/{at}"), json!({"get": {}}))).collect());
    let why = convert(&with_paths(left_out)).unwrap_err();
    assert!(why.reason().contains("990 further notes") && why.reason().len() < 2_000, "{why}");
    // Values that take a hundred times their length in memory.
    let options: Vec<Value> = (0..20_000).map(|at| json!({"": {"": {"": {"": at}}}})).collect();
    let why = convert(&with_paths(json!({"/a": post(json!({"enum": options}))}))).unwrap_err();
    assert!(why.reason().contains("contract.max_compile"), "{why}");
    let circle = json!({"$ref": "#/components/schemas/A"});
    let mut document = with_paths(json!({"/a": post(circle.clone())}));
    document["components"]["schemas"] = json!({"A": {"$ref": "#/components/schemas/B"}, "B": circle});
    assert!(convert(&document).unwrap_err().reason().contains("its schema cannot be used"));
}

#[test]
fn r127_documents_whose_parts_refer_to_each_other_again_and_again_are_refused_at_once() {
    let started = std::time::Instant::now();
    // Scopes, and alternatives, for which every operation asks.
    let scopes: Vec<String> = (0..20_000).map(|at| format!("s{at}")).collect();
    let secured = |security: Value| {
        let paths = (0..80).map(|at| (format!("/{at}"), post(json!({})))).collect();
        let mut document = with_paths(Value::Object(paths));
        document["security"] = security;
        document["components"]["securitySchemes"] = json!({"o": {"type": "oauth2"}});
        document
    };
    let why = convert(&secured(json!([{"o": scopes}]))).unwrap_err();
    assert!(why.reason().contains("more than 100 scopes"), "{why}");
    let why = convert(&secured(json!(vec![json!({"o": []}); 10_000]))).unwrap_err();
    assert!(why.reason().contains("more than 64 alternatives"), "{why}");
    // Operations that have 100 scopes together are the most.
    let with_scope = |at: usize| {
        let mut operation = post(json!({}));
        operation["post"]["security"] = json!([{"o": [format!("s{at}")]}]);
        (format!("/{at:03}"), operation)
    };
    let mut document = with_paths(Value::Object((0..101).map(with_scope).collect()));
    document["components"]["securitySchemes"] = json!({"o": {"type": "oauth2"}});
    assert_eq!(operations(&document).len(), 100);
    // A component that cannot be converted, for every operation.
    let properties: Map<String, Value> = (0..20_000).map(|at| (format!("p{at}"), json!({}))).collect();
    let broken = json!({"properties": properties, "not": {"$dynamicRef": "#x"}});
    let refers = json!({"$ref": "#/components/schemas/B"});
    let paths = (0..1_000).map(|at| (format!("/{at}"), post(refers.clone()))).collect();
    let mut document = with_paths(Value::Object(paths));
    document["components"]["schemas"]["B"] = broken;
    assert!(convert(&document).unwrap_err().reason().contains("$dynamicRef is not supported"));
    // Many paths with one item of many parameters.
    let parameter = json!({"name": "p", "in": "query", "required": true});
    let paths: Map<String, Value> =
        (0..4_000).map(|at| (format!("/{at}"), json!({"$ref": "#/components/x/i"}))).collect();
    let mut document = with_paths(Value::Object(paths));
    let mut item = post(json!({}));
    item["parameters"] = json!(vec![parameter; 10_000]);
    document["components"]["x"] = json!({"i": item});
    let why = convert(&document).unwrap_err();
    assert!(why.reason().contains("more than 2048 operations"), "{why}");
    assert!(started.elapsed() < std::time::Duration::from_secs(20), "{:?}", started.elapsed());
}

#[test]
fn r13_a_required_header_field_is_noted_for_operators() {
    let mut operation = post(json!({}));
    operation["post"]["parameters"] = json!([{"name": "X-Tenant", "in": "header", "required": true}]);
    let document = with_paths(json!({"/a": operation}));
    assert!(notes(&document)[0].contains("requires the header fields 'X-Tenant'"), "{:?}", notes(&document));
    let mut operation = post(json!({}));
    operation["post"]["parameters"] = json!(vec![json!({"name": "a", "in": "query"}); 65]);
    let why = convert(&with_paths(json!({"/a": operation}))).unwrap_err();
    assert!(why.reason().contains("it has more than 64 parameters"), "{why}");
}

#[test]
fn r62_documents_of_other_versions_and_without_a_server_are_refused() {
    let with = |pointer: &str, value: Value| {
        let mut document = document();
        document[pointer] = value;
        document
    };
    for (document, reason, is_unsupported) in [
        (with("openapi", json!("3.2.0")), "version '3.2.0'", true),
        (json!({"swagger": "2.0", "info": {"title": "x"}, "paths": {}}), "version '2.0'", true),
        (with("openapi", json!(3.1)), "openapi: 3.1 is a number (write it in quotes)", false),
        (with("paths", json!({})), "paths is empty", true),
        (with("paths", json!([])), "paths: must be an object", false),
        (with("info", json!({})), "info.title: is required", false),
        (with("servers", json!([{"url": "https://{host}/"}])), "'host' has no default", false),
        (with("servers", json!([{"url": "https://{host"}])), "has a brace", false),
        (with("servers", json!([{"url": "mailto:x"}])), "not a URL over HTTP", false),
        (with("servers", json!([{}])), "servers[0].url: is required", false),
        (with("servers", json!(1)), "servers: must be an array", false),
    ] {
        assert!(openapi_document::is_openapi_document(document.as_object().unwrap()));
        let why = convert(&document).unwrap_err();
        assert!(why.reason().contains(reason), "{reason}: {why}");
        assert_eq!(matches!(why, ConversionError::Unsupported(_)), is_unsupported, "{why}");
    }
    let variables = json!([{"url": "{scheme}://h.example:{port}/v1/", "variables": {"scheme": {"default": "https"}, "port": {"default": "8443"}}}]);
    assert_eq!(convert(&with("servers", variables)).unwrap().document["endpoint"], "https://h.example:8443/v1");
    let mut without = document();
    without.as_object_mut().unwrap().remove("servers");
    assert_eq!(convert(&without).unwrap().document["endpoint"], "https://registry.example/");
    let why = convert_unlocated(without.as_object().unwrap()).unwrap_err();
    assert!(why.reason().contains("servers: is missing"), "{why}");
    let mut numbered = document();
    numbered["info"]["version"] = json!(1.5);
    assert_eq!(convert(&numbered).unwrap().document["version"], "1.5");
    assert!(!openapi_document::is_openapi_document(agent("a").as_object().unwrap()));
}
