//! OpenAPI documents match the routes and the responses. `validators.rs` checks them with public validators.

use super::*;
use crate::contract::CompiledSchema;

/// The conventions of a gateway on which everything is on.
pub(super) fn everything_on() -> CallConventions {
    let tasks = TaskConventions {
        result_ttl: Duration::from_secs(3_600),
        poll_interval: Duration::from_secs(2),
        resume_window: Some(Duration::from_secs(30)),
        has_callbacks: true,
    };
    CallConventions {
        tasks: Some(tasks),
        idempotency_ttl: Duration::from_secs(600),
        bridged_agents: Vec::new(),
        max_batch_items: 100,
        get_rules: Vec::new(),
        has_registry: true,
        has_pairing: true,
        allows_anonymous_calls: true,
    }
}

/// Returns the names of the parameters of an operation, with those that it references.
fn parameter_names(document: &Value, path: &str, method: &str) -> Vec<String> {
    let parameters = document["paths"][path][method]["parameters"].as_array().into_iter().flatten();
    let name = |parameter: &Value| match parameter["$ref"].as_str() {
        Some(reference) => document.pointer(reference.trim_start_matches('#')).unwrap()["name"].clone(),
        None => parameter["name"].clone(),
    };
    parameters.map(|parameter| name(parameter).as_str().unwrap().to_owned()).collect()
}

/// Asserts that every reference of the document leads to something, and that every shared parameter and schema is used.
fn assert_references_resolve(document: &Value) {
    fn references<'a>(value: &'a Value, to: &mut Vec<&'a str>) {
        match value {
            Value::Object(members) => {
                to.extend(members.get("$ref").and_then(Value::as_str));
                members.values().for_each(|member| references(member, to));
            }
            Value::Array(items) => items.iter().for_each(|item| references(item, to)),
            _ => {}
        }
    }
    let mut found = Vec::new();
    references(document, &mut found);
    for reference in &found {
        assert!(document.pointer(reference.trim_start_matches('#')).is_some(), "{reference} leads nowhere");
    }
    for section in ["parameters", "schemas"] {
        for name in document["components"][section].as_object().into_iter().flat_map(serde_json::Map::keys) {
            let location = format!("#/components/{section}/{name}");
            assert!(found.iter().any(|reference| reference.starts_with(&location)), "{location} is not used");
        }
    }
}

#[tokio::test]
async fn the_gateways_document_describes_exactly_the_routed_paths_and_methods() {
    let mut fixture = test_directory(&[]);
    fixture.directory.conventions = everything_on();
    fixture.directory.metadata_schema = Some(Arc::new(crate::agent::metadata_schema().clone()));
    let document = fixture.get_json("/openapi.json").await;
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
        INVOKE_PATHS.len() + MESSAGE_PATHS.len() + TASK_PATHS.len() + 2,
        "paths that invoke agents, tasks, pipelines and pairing"
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
async fn r127_references_to_long_locations_make_an_agents_document_no_multiple_of_its_schemas() {
    let long_name = "x".repeat(50_000);
    let numbers = || 0..2_000;
    let anchors: serde_json::Map<_, _> =
        numbers().map(|n| (format!("d{n}"), json!({"$anchor": format!("a{n}")}))).collect();
    let document = json!({
        "id": "long", "name": "Long", "endpoint": "https://long.example/",
        "operations": [
            {"name": "many", "inputs": {
                "allOf": numbers().map(|n| json!({"$ref": format!("#a{n}")})).collect::<Vec<_>>(),
                "$defs": {&long_name: {"$defs": anchors}},
            }},
            {"name": "one", "inputs": {
                "allOf": numbers().map(|_| json!({"$ref": "#a"})).collect::<Vec<_>>(),
                "$defs": {&long_name: {"$anchor": "a"}},
            }},
            {"name": "short", "inputs": {
                "allOf": numbers().map(|_| json!({"$ref": "#a"})).collect::<Vec<_>>(),
                "$defs": {"x": {"$anchor": "a"}},
            }},
        ],
    });
    let served =
        test_directory(std::slice::from_ref(&document)).expect_response(get("/agents/long/openapi.json")).await;
    let (size, served) = (served.body.len(), served.json());
    let largest = 5 * document.to_string().len();
    assert!(size < largest, "{size} bytes, {largest} expected at most");
    let schema = |name: &str| &served["components"]["schemas"][format!("{name}.Input")];
    for (name, reference) in [("many", "#a0"), ("one", "#a")] {
        let identity = format!("urn:agent:long:{name}.Input");
        assert_eq!((&schema(name)["$id"], &schema(name)["allOf"][0]["$ref"]), (&json!(identity), &json!(reference)));
    }
    assert_eq!(schema("short")["allOf"][0]["$ref"], "#/components/schemas/short.Input/$defs/x");
}

#[tokio::test]
async fn responses_match_the_schemas_of_the_gateways_document() {
    let fixture = test_directory(&[translator(), minimal_agent("b")]);
    let document = fixture.get_json("/openapi.json").await;
    let components = &document["components"];
    let assert_valid = |name: &str, value: &Value| {
        let schema = json!({"$ref": format!("#/components/schemas/{name}"), "components": components});
        let errors = CompiledSchema::compile(&schema).unwrap().validate(value);
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

#[tokio::test]
async fn r10_the_documents_describe_only_what_the_configuration_turns_on() {
    let tasks_without = |resume_window, has_callbacks| {
        let tasks = everything_on().tasks.map(|tasks| TaskConventions { resume_window, has_callbacks, ..tasks });
        CallConventions { tasks, ..everything_on() }
    };
    let get_rule = |agents: &str, is_allowed| GetRule { agents: vec![agents.parse().unwrap()], is_allowed };
    let invoke = "/agents/{id}/invoke";
    for (what, conventions, path, method, parameters) in [
        ("all", everything_on(), invoke, "post", &["Prefer", "Idempotency-Key", "X-Callback-Url", "callbackUrl"][..]),
        ("callbacks", tasks_without(None, false), invoke, "post", &["Prefer", "Idempotency-Key"]),
        ("tasks", CallConventions { tasks: None, ..everything_on() }, invoke, "post", &["Idempotency-Key"]),
        (
            "idempotency",
            CallConventions { idempotency_ttl: Duration::ZERO, ..tasks_without(None, false) },
            invoke,
            "post",
            &["Prefer"],
        ),
        ("idempotency", CallConventions::default(), "/pipelines/invoke", "post", &[]),
        ("pipelines", everything_on(), "/pipelines/invoke", "post", &["Idempotency-Key"]),
        ("get", CallConventions::default(), invoke, "get", &["input"]),
        (
            "get",
            everything_on(),
            "/agents/{id}/v1/message:send",
            "post",
            &["Prefer", "Idempotency-Key", "X-Callback-Url", "callbackUrl"],
        ),
    ] {
        let mut fixture = test_directory(&[translator()]);
        fixture.directory.conventions = conventions;
        let document = fixture.get_json("/openapi.json").await;
        assert_references_resolve(&document);
        assert!(document["paths"][path][method].is_object(), "{what}: {path} {method}");
        assert_eq!(parameter_names(&document, path, method), parameters, "{what}: {path} {method}");
    }
    for (what, conventions, path, method, is_described) in [
        ("registry", everything_on(), "/agents", "post", true),
        ("registry", everything_on(), "/agents/{id}", "patch", true),
        ("registry", everything_on(), "/agents/{id}/history", "get", true),
        ("registry", CallConventions::default(), "/agents", "post", false),
        ("registry", CallConventions::default(), "/agents/{id}", "delete", false),
        ("registry", CallConventions::default(), "/agents/{id}/history", "get", false),
        ("registry", CallConventions::default(), "/agents", "get", true),
        ("pairing", everything_on(), "/pair", "post", true),
        ("pairing", CallConventions::default(), "/pair", "post", false),
        ("tasks", everything_on(), "/tasks/{task}", "delete", true),
        ("tasks", everything_on(), "/tasks/{task}/events", "get", true),
        ("tasks", CallConventions::default(), "/tasks/{task}", "get", false),
        ("tasks", CallConventions::default(), "/tasks/{task}/events", "get", false),
        ("tasks", CallConventions::default(), "/agents/{id}/v1/tasks/{task}", "get", false),
        ("get", everything_on(), invoke, "get", true),
        ("get", everything_on(), "/agents/{id}/v1/message:send", "get", false),
        ("get", CallConventions { get_rules: vec![get_rule("*", false)], ..everything_on() }, invoke, "get", false),
        ("get", CallConventions { get_rules: vec![get_rule("a*", false)], ..everything_on() }, invoke, "get", true),
        (
            "get",
            CallConventions { get_rules: vec![get_rule("*", false), get_rule("a", true)], ..everything_on() },
            invoke,
            "get",
            true,
        ),
        (
            "get",
            CallConventions { get_rules: vec![get_rule("a", true), get_rule("*", false)], ..everything_on() },
            invoke,
            "get",
            false,
        ),
        ("the schema of documents", everything_on(), "/schemas/agent-metadata.json", "get", false),
    ] {
        let mut fixture = test_directory(&[translator()]);
        fixture.directory.conventions = conventions;
        let document = fixture.get_json("/openapi.json").await;
        assert_eq!(document["paths"][path].get(method).is_some(), is_described, "{what}: {method} {path}");
    }
}

#[tokio::test]
async fn r10_an_agents_document_describes_only_what_the_configuration_turns_on() {
    let path = "/agents/translator/invoke/translateText";
    let get_rules = |rules: &[(&str, bool)]| {
        rules
            .iter()
            .map(|(agents, is_allowed)| GetRule { agents: vec![agents.parse().unwrap()], is_allowed: *is_allowed })
            .collect()
    };
    for (rules, allows_get) in [
        (vec![], true),
        (vec![("other", false)], true),
        (vec![("trans*", false)], false),
        (vec![("trans*", false), ("*", true)], true),
        (vec![("*", true), ("translator", false)], false),
    ] {
        let mut fixture = test_directory(&[translator()]);
        fixture.directory.conventions = CallConventions { get_rules: get_rules(&rules), ..everything_on() };
        let document = fixture.get_json("/agents/translator/openapi.json").await;
        assert_references_resolve(&document);
        assert_eq!(document["paths"][path].get("get").is_some(), allows_get, "{rules:?}");
        let names = parameter_names(&document, path, "post");
        assert_eq!(
            names,
            ["X-Session-ID", "X-Task-ID", "Prefer", "Idempotency-Key", "X-Callback-Url", "callbackUrl"],
            "{rules:?}"
        );
        assert!(document["paths"][path]["post"]["responses"].get("202").is_some());
    }
    let mut fixture = test_directory(&[translator()]);
    fixture.directory.conventions.max_batch_items = 7;
    let document = fixture.get_json("/agents/translator/openapi.json").await;
    assert_references_resolve(&document);
    assert_eq!(parameter_names(&document, path, "post"), ["X-Session-ID", "X-Task-ID"]);
    assert_eq!(parameter_names(&document, path, "get"), ["X-Session-ID", "X-Task-ID", "input"]);
    let post = &document["paths"][path]["post"];
    assert!(post["responses"].get("202").is_none() && document["components"]["schemas"].get("Task").is_none());
    let batch = &post["requestBody"]["content"]["application/json"]["schema"]["anyOf"][1];
    assert_eq!((&batch["type"], &batch["maxItems"]), (&json!("array"), &json!(7)));
}

#[tokio::test]
async fn r12_the_documents_say_where_a_credential_is_needed() {
    let key = json!({"api_key": []});
    let bearer = json!({"oauth2_bearer": []});
    for (is_open, is_public) in [(false, false), (true, false), (false, true)] {
        let mut fixture = test_directory(&[translator(), minimal_agent("free")]);
        fixture.directory.conventions = CallConventions { allows_anonymous_calls: is_open, ..everything_on() };
        if is_public {
            fixture.directory.config.public_agents = vec!["*".parse().unwrap()];
        }
        let document = fixture.get_json("/openapi.json").await;
        assert_eq!(document["security"], json!([key, bearer]));
        let security = |path: &str, method: &str| document["paths"][path][method].get("security").cloned();
        let optional = Some(json!([key, bearer, {}]));
        let reads = if is_open || is_public { optional.clone() } else { None };
        let calls = if is_open { optional } else { None };
        assert_eq!(security("/agents", "get"), reads, "{is_open} {is_public}");
        assert_eq!(security("/agents/search", "post"), reads, "{is_open} {is_public}");
        assert_eq!(security("/agents/{id}/invoke", "post"), calls, "{is_open} {is_public}");
        assert_eq!(security("/pipelines/invoke", "post"), calls, "{is_open} {is_public}");
        assert_eq!(security("/tasks/{task}", "get"), calls, "{is_open} {is_public}");
        for (path, method) in [("/agents", "post"), ("/agents/{id}", "delete"), ("/resolve", "post")] {
            assert_eq!(security(path, method), None, "{method} {path} needs a credential");
        }
        assert_eq!(security("/.well-known/jwks.json", "get"), Some(json!([])));
        assert_eq!(security("/pair", "post"), Some(json!([])));
        let strict = fixture.get_json("/agents/translator/openapi.json").await;
        assert_eq!(strict["security"], json!([key]));
        let free = fixture.get_json("/agents/free/openapi.json").await;
        let expected = if is_open { json!([key, bearer, {}]) } else { json!([key, bearer]) };
        assert_eq!(free["security"], expected, "{is_open}");
    }
}

#[tokio::test]
async fn r75_every_read_request_describes_the_media_types_and_headers_of_its_responses() {
    let mut fixture = test_directory(&[translator()]);
    fixture.directory.conventions = everything_on();
    fixture.directory.metadata_schema = Some(Arc::new(crate::agent::metadata_schema().clone()));
    let document = fixture.get_json("/openapi.json").await;
    for (path, directory_request) in DIRECTORY_PATHS {
        let is_read = directory_request.allowed_methods().contains(&Method::GET);
        if !is_read || *directory_request == DirectoryRequest::History || path.starts_with("/v1/agents") {
            continue;
        }
        let described = &document["paths"][*path]["get"]["responses"]["200"];
        let target = path.replace("{id}", "translator");
        for media in described["content"].as_object().unwrap().keys() {
            let mut request = get(&target).header("accept", media);
            if media == "application/a2a+json" {
                request = request.header("a2a-version", "1.0");
            }
            let response = fixture.expect_response(request).await;
            assert_eq!(response.header("content-type"), media, "{path}");
            for header in described["headers"].as_object().unwrap().keys().filter(|name| *name != "X-Request-ID") {
                let is_optional = header == "Link";
                assert!(is_optional || response.headers.contains_key(header), "{path}: {header}");
            }
        }
        let plain = fixture.expect_response(get(&target)).await;
        assert!(described["content"].get(plain.header("content-type")).is_some(), "{path}");
    }
}

#[tokio::test]
async fn the_bounds_in_the_document_are_those_of_the_gateway() {
    let fixture = test_directory(&[translator()]);
    let document = fixture.get_json("/openapi.json").await;
    let mut checked = 0;
    for (path, _) in DIRECTORY_PATHS {
        let parameters = document["paths"][*path]["get"]["parameters"].as_array().into_iter().flatten();
        for parameter in parameters.filter(|parameter| parameter["schema"]["type"] == "integer") {
            let name = parameter["name"].as_str().unwrap();
            let max = parameter["schema"]["maximum"].as_u64().unwrap();
            let has_zero = parameter["schema"]["minimum"] == 0;
            for (value, is_accepted) in [
                (max.to_string(), true),
                ((max + 1).to_string(), false),
                ("1".to_owned(), true),
                ("0".to_owned(), has_zero),
                ("-1".to_owned(), false),
                (String::new(), true),
            ] {
                let target = format!("{path}?{name}={value}");
                assert_eq!(fixture.respond(get(&target)).await.is_ok(), is_accepted, "{target}");
            }
            checked += 1;
        }
    }
    assert_eq!(checked, 4 + 2 * 3 + 3, "the lists of agents, of Agent Framework twice, and the map");
    for (body, is_accepted) in [
        (json!({"top": 100, "skip": 10_000}), true),
        (json!({"top": 1.0, "query": null, "filters": null}), true),
        (json!({"top": 101}), false),
        (json!({"top": 1.5}), false),
        (json!({"top": -1}), false),
        (json!({"skip": 10_001}), false),
        (json!({"filters": {"status": "any"}}), true),
        (json!({"filters": {"status": "other"}}), false),
        (json!({"query": "x".repeat(2_001)}), false),
    ] {
        let schema = json!({"$ref": "#/components/schemas/Search", "components": document["components"]});
        assert_eq!(CompiledSchema::compile(&schema).unwrap().validate(&body).is_empty(), is_accepted, "{body}");
        let response = fixture.respond(send(Method::POST, "/agents/search", &body)).await;
        assert_eq!(response.is_ok(), is_accepted, "{body}");
    }
    let policy = |name: &str, value: Value| json!({"intent": "x", "policy": {name: value}});
    for (body, is_accepted) in [
        (policy("versions", json!(">=1.2, <3")), true),
        (policy("versions", json!("1.x")), true),
        (policy("versions", json!("^1.2.3-beta.1+build")), true),
        (policy("versions", json!("*")), true),
        (policy("versions", json!("newest")), false),
        (policy("versions", json!("1.2.3.4")), false),
        (policy("trust", json!("high")), true),
        (policy("trust", json!(1.1)), false),
        (policy("max_latency", json!("500ms")), true),
        (policy("max_latency", json!(-1)), false),
        (policy("max_cost", json!({"amount": 1, "currency": null})), true),
        (policy("max_cost", json!({"amount": 1, "currency": 7})), false),
        (policy("max_cost", json!("free")), true),
        (policy("unknown", json!(1)), false),
        (json!({"intent": "  "}), false),
        (json!({"intent": "x", "policy": null, "top": null, "context": 3}), true),
    ] {
        let schema = json!({"$ref": "#/components/schemas/Intent", "components": document["components"]});
        assert_eq!(CompiledSchema::compile(&schema).unwrap().validate(&body).is_empty(), is_accepted, "{body}");
        let response = fixture.respond(send(Method::POST, "/agents/resolve", &body)).await;
        assert_eq!(response.is_ok(), is_accepted, "{body}");
    }
}
