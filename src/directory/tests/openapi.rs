//! OpenAPI documents match the routes and the responses. `validators.rs` checks them with public validators.

use super::*;

#[tokio::test]
async fn the_gateways_document_describes_exactly_the_routed_paths_and_methods() {
    let document = test_directory(&[]).get_json("/openapi.json").await;
    let paths = document["paths"].as_object().unwrap();
    for (path, request) in DIRECTORY_PATHS {
        for method in request.allowed_methods() {
            let name = method.as_str().to_ascii_lowercase();
            let operation = &paths[*path][&name];
            assert!(operation["responses"].is_object(), "{method} {path}");
        }
        let methods = paths[*path].as_object().unwrap().keys().filter(|name| *name != "parameters").count();
        assert_eq!(methods, request.allowed_methods().len(), "{path}");
    }
    let calls =
        paths.keys().filter(|path| !DIRECTORY_PATHS.iter().any(|(directory_path, _)| directory_path == path)).count();
    assert!(paths[PIPELINE_PATH]["post"]["responses"].is_object());
    assert_eq!(
        calls,
        INVOKE_PATHS.len() + MESSAGE_PATHS.len() + TASK_PATHS.len() + 1,
        "paths that invoke agents, tasks, and pipelines"
    );
    let mut ids: Vec<&str> = paths
        .values()
        .flat_map(|methods| methods.as_object().unwrap().values())
        .filter_map(|operation| operation.get("operationId")?.as_str())
        .collect();
    let all = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), all, "every operationId is unique");
}

#[tokio::test]
async fn r36_every_code_and_status_is_in_both_documents() {
    let fixture = test_directory(&[translator()]);
    for target in ["/openapi.json", "/agents/translator/openapi.json"] {
        let components = fixture.get_json(target).await["components"].clone();
        let codes = &components["schemas"]["Error"]["properties"]["error"]["properties"]["code"]["enum"];
        for code in FaultCode::ALL {
            assert!(codes.as_array().unwrap().contains(&json!(code.row().name)), "{target}: {code:?}");
            let response = &components["responses"][format!("E{}", code.row().status)];
            assert!(response["description"].as_str().unwrap().contains(code.row().name), "{target}: {code:?}");
        }
    }
}

#[tokio::test]
async fn an_agents_document_has_its_operations_with_relocated_schemas() {
    let document = test_directory(&[translator()]).get_json("/agents/translator/openapi.json").await;
    let paths: Vec<&String> = document["paths"].as_object().unwrap().keys().collect();
    assert_eq!(
        paths,
        ["/agents/translator/invoke", "/agents/translator/invoke/detect", "/agents/translator/invoke/translateText"]
    );
    let schema = &document["components"]["schemas"]["translateText.Input"];
    let location = "#/components/schemas/translateText.Input";
    assert_eq!(schema["properties"]["text"]["$ref"], format!("{location}/$defs/text"));
    assert_eq!(schema["properties"]["more"]["items"]["$ref"], location);
    let any_operation = &document["paths"]["/agents/translator/invoke"]["post"];
    assert_eq!(any_operation["parameters"][2]["schema"]["enum"], json!(["translateText", "detect"]));
    assert_eq!(any_operation["requestBody"]["content"]["application/json"]["schema"]["anyOf"][0]["$ref"], location);
    assert_eq!(any_operation["responses"]["503"]["$ref"], "#/components/responses/E503");
    assert_eq!(document["security"], json!([{"api_key": []}]));
    assert_eq!(document["components"]["securitySchemes"]["api_key"]["name"], "x-api-key");
    let operation = &document["paths"]["/agents/translator/invoke/translateText"]["post"];
    let example = &operation["requestBody"]["content"]["application/json"]["examples"]["example1"]["value"];
    assert_eq!(*example, json!({"text": "hi"}));
}

#[tokio::test]
async fn an_agent_without_schemas_accepts_and_returns_any_json() {
    let document = test_directory(&[minimal_agent("b")]).get_json("/agents/b/openapi.json").await;
    let call = &document["paths"]["/agents/b/invoke"]["post"];
    assert_eq!(call["requestBody"]["content"]["application/json"]["schema"], json!({}));
    assert_eq!(document["info"]["version"], "0.0.0");
}

#[tokio::test]
async fn the_operations_of_a_deprecated_agent_are_deprecated() {
    let mut document = translator();
    document["status"] = json!("deprecated");
    let served = test_directory(&[document]).get_json("/agents/translator/openapi.json").await;
    assert_eq!(served["paths"]["/agents/translator/invoke"]["post"]["deprecated"], true);
}

#[tokio::test]
async fn data_in_a_schema_is_not_a_reference_and_anchors_become_paths() {
    let document = json!({
        "id": "odd", "name": "Odd", "endpoint": "https://odd.example/",
        "operations": [
            {"name": "data", "inputs": {
                "properties": {"$ref": {"const": {"$ref": "#/x"}}, "default": {"$ref": "#/$defs/a"}, "$anchor": {"$ref": "#"}},
                "default": {"$ref": "#/y"}, "$defs": {"a": true},
            }},
            {"name": "anchored", "inputs": {
                "$id": "urn:example:whole", "$ref": "#here", "not": {"$ref": "urn:example:whole#/$defs/a~1b%20c"},
                "items": [{"$ref": "urn:example:whole"}, {"$ref": "#nowhere"}],
                "$defs": {"a/b c": {"$anchor": "here", "type": "object"}},
            }},
            {"name": "bound", "inputs": {"$dynamicAnchor": "node", "properties": {"next": {"$dynamicRef": "#node"}, "up": {"$ref": "#"}}}},
            {"name": "inner", "inputs": {"$ref": "#/$defs/a", "$defs": {"a": {"$id": "urn:example:a", "$ref": "#/$defs/b", "$defs": {"b": true}}}}},
            {"name": "anything", "inputs": true},
        ],
    });
    let served = test_directory(&[document]).get_json("/agents/odd/openapi.json").await;
    let schema = |name: &str| &served["components"]["schemas"][format!("{name}.Input")];
    let (data, anchored) = (schema("data"), schema("anchored"));
    assert_eq!(
        (&data["properties"]["$ref"]["const"]["$ref"], &data["default"]["$ref"]),
        (&json!("#/x"), &json!("#/y"))
    );
    assert_eq!(data["properties"]["default"]["$ref"], "#/components/schemas/data.Input/$defs/a");
    assert_eq!(data["properties"]["$anchor"]["$ref"], "#/components/schemas/data.Input");
    let location = "#/components/schemas/anchored.Input";
    assert_eq!(
        *anchored,
        json!({
            "$ref": format!("{location}/$defs/a~1b%20c"),
            "not": {"$ref": format!("{location}/$defs/a~1b%20c")},
            "items": [{"$ref": location}, {"$ref": "#nowhere"}],
            "$defs": {"a/b c": {"type": "object"}},
        })
    );
    let bound = schema("bound");
    assert_eq!((&bound["properties"]["up"]["$ref"], &bound["$id"]), (&json!("#"), &json!("urn:agent:odd:bound.Input")));
    assert_eq!(schema("inner")["$defs"]["a"]["$ref"], "#/$defs/b");
    assert_eq!(*schema("anything"), true);
}

#[tokio::test]
async fn responses_match_the_schemas_of_the_gateways_document() {
    let fixture = test_directory(&[translator(), minimal_agent("b")]);
    let document = fixture.get_json("/openapi.json").await;
    let components = &document["components"];
    let assert_valid = |name: &str, value: &Value| {
        let schema = json!({"$ref": format!("#/components/schemas/{name}"), "components": components});
        let errors: Vec<String> =
            jsonschema::validator_for(&schema).unwrap().iter_errors(value).map(|error| error.to_string()).collect();
        assert!(errors.is_empty(), "{name}: {errors:?}");
    };
    assert_valid("Summaries", &fixture.get_json("/agents").await);
    assert_valid("Document", &fixture.get_json("/agents/translator").await);
    assert_valid("Map", &fixture.get_json("/.well-known/agents.json").await);
    assert_valid("FrameworkList", &fixture.get_json("/.well-known/agentframework/v1/agents?view=full").await);
    assert_valid("FrameworkAgent", &fixture.get_json("/.well-known/agentframework/v1/agents/translator").await);
    let intent = json!({"intent": "translate a text", "policy": {"capabilities": "translation", "trust": 0.5}});
    assert_valid("Intent", &intent);
    assert_valid("Resolution", &fixture.expect_response(send(Method::POST, "/agents/resolve", &intent)).await.json());
    let fault = fixture.expect_fault(send(Method::POST, "/agents/search", &json!({"top": 0}))).await;
    for (name, format) in [("Error", crate::fault::ErrorFormat::Error), ("Problem", crate::fault::ErrorFormat::Problem)]
    {
        assert_valid(name, &serde_json::from_slice(&fault.to_body(format, "id")).unwrap());
    }
}
