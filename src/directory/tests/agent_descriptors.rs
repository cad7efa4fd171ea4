//! Descriptors, `agent.json`.

use super::*;

const DESCRIPTOR_PATH: &str = "/agents/translator/agent.json";

#[tokio::test]
async fn r65_a_descriptor_has_a_name_a_version_and_capabilities_with_schemas() {
    let descriptor = test_directory(&[translator()]).get_json(DESCRIPTOR_PATH).await;
    assert_eq!((&descriptor["name"], &descriptor["version"]), (&json!("Chinese-English Translator"), &json!("1.2.0")));
    let first = &descriptor["capabilities"][0];
    assert_eq!(first["name"], "translateText");
    assert_eq!(first["endpoint"], "https://gw.example/agents/translator/invoke/translateText");
    assert_eq!(first["input"]["required"], json!(["text"]));
    assert_eq!(first["output"]["properties"]["translated_text"]["type"], "string");
    assert_eq!(descriptor["capabilities"][1]["name"], "detect");
    assert_eq!(descriptor["transport"]["endpoint"], "https://gw.example/agents/translator/invoke");
    assert_eq!(descriptor["provider"], json!({"organization": "ExampleAI Inc."}));
}

#[tokio::test]
async fn r65_a_minimal_agent_has_one_capability_and_a_default_version() {
    let descriptor = test_directory(&[minimal_agent("b")]).get_json("/agents/b/agent.json").await;
    assert_eq!(descriptor["version"], "0.0.0");
    assert_eq!(descriptor["capabilities"][0]["name"], "invoke");
    assert!(descriptor.get("provider").is_none() && descriptor.get("supportedVersions").is_none());
}

#[tokio::test]
async fn r69_r67_a_descriptor_describes_version_negotiation_and_lists_the_versions() {
    let mut document = translator();
    document["supportedVersions"] = json!({"1.1.0": "/v1.1/", "1.0.0": 7, "0.9.0": "https://b.example/", "a/b": "/x"});
    let descriptor = test_directory(&[document]).get_json(DESCRIPTOR_PATH).await;
    assert_eq!(descriptor["versionNegotiation"]["header"], "X-Agent-Version");
    let url_of = |version: &str| format!("https://gw.example/agents/translator@{version}/invoke");
    assert_eq!(descriptor["supportedVersions"], json!({"1.2.0": url_of("1.2.0"), "1.1.0": url_of("1.1.0")}));
}

#[tokio::test]
async fn r71_behaviour_is_copied_if_it_is_scalar() {
    let mut document = translator();
    document["isDeterministic"] = json!(false);
    document["responseLatency"] = json!({"@context": "https://evil.example/"});
    document["operations"][0]["requiresContext"] = json!(true);
    document["interactionModel"] = json!("agent2agent");
    let descriptor = test_directory(&[document]).get_json(DESCRIPTOR_PATH).await;
    assert_eq!(
        (&descriptor["isDeterministic"], &descriptor["interactionModel"]),
        (&json!(false), &json!("agent2agent"))
    );
    assert!(descriptor.get("responseLatency").is_none());
    assert_eq!(descriptor["capabilities"][0]["requiresContext"], true);
}

#[tokio::test]
async fn r72_r84_interaction_model_orchestration_and_envelope_schemas_are_shown_as_literals() {
    let mut document = translator();
    document["interactionModel"] = json!("fipa-acl");
    document["orchestration"] = json!({"kind": "delegation", "agents": ["finder", "writer"]});
    // Another context would be an address, and is hidden.
    document["envelopeSchemas"] = json!(["fipa-acl", {"@context": "https://schema.org/"}]);
    let fixture = test_directory(&[document.clone(), minimal_agent("b")]);
    let descriptor = fixture.get_json(DESCRIPTOR_PATH).await;
    for name in ["interactionModel", "orchestration", "envelopeSchemas"] {
        assert_eq!(descriptor[name], document[name], "{name}");
    }
    for literal in ["orchestration", "envelopeSchemas"] {
        assert_eq!(descriptor["@context"][literal]["@type"], "@json", "{literal} could introduce a context");
    }
    let minimal = fixture.get_json("/agents/b/agent.json").await;
    assert!(minimal.get("interactionModel").is_none() && minimal.get("orchestration").is_none());
}

#[tokio::test]
async fn r73_authentication_describes_the_credentials_that_the_gateway_requires() {
    let bearer = json!({"id": "b", "name": "B", "endpoint": "https://b.example/", "authentication": {"type": "oauth2_bearer", "scopes": ["read"]}});
    let fixture = test_directory(&[translator(), bearer, minimal_agent("open")]);
    let descriptor = fixture.get_json(DESCRIPTOR_PATH).await;
    assert_eq!(
        descriptor["authentication"],
        json!({"type": "api_key", "schemes": ["ApiKey"], "instructions": "Ask at https://example.com/keys."})
    );
    assert_eq!(
        fixture.get_json("/agents/b/agent.json").await["authentication"],
        json!({"type": "oauth2_bearer", "schemes": ["OAuth2"], "scopes": ["read"]})
    );
    // Any credential that the gateway accepts suffices.
    assert_eq!(
        fixture.get_json("/agents/open/agent.json").await["authentication"]["schemes"],
        json!(["ApiKey", "OAuth2"])
    );
}

#[tokio::test]
async fn r57_every_alias_serves_the_same_document_in_the_requested_media_type() {
    let fixture = test_directory(&[translator()]);
    let canonical = fixture.expect_response(get(DESCRIPTOR_PATH)).await;
    assert_eq!(fixture.expect_response(get("/agent.json")).await.body, canonical.body);
    for alias in ["/agents/translator/.well-known/agent.json", "/.well-known/agent.json"] {
        let alias = get(alias).header("accept", "application/ld+json");
        let target = alias.target;
        assert_eq!(fixture.expect_response(alias).await.body, canonical.body, "{target}");
    }
    for media in ["application/ld+json", "application/agent+json", "application/json"] {
        assert_eq!(
            fixture.expect_response(get(DESCRIPTOR_PATH).header("accept", media)).await.header("content-type"),
            media
        );
    }
}

#[tokio::test]
async fn r153_a_client_that_states_an_a2a_version_gets_the_card_at_this_path() {
    let fixture = test_directory(&[translator()]);
    for target in [DESCRIPTOR_PATH, "/.well-known/agent.json"] {
        let card = fixture.expect_response(get(target).header("a2a-version", "0.3")).await.json();
        assert!(card["skills"].is_array() && card["capabilities"].is_object(), "{target}: {card}");
    }
}

/// A2A 0.2 had its card at `/.well-known/agent.json`; its clients state neither their version nor a media type.
#[tokio::test]
async fn r58_r153_the_well_known_agent_json_is_the_card_unless_the_caller_accepts_a_descriptor() {
    let fixture = test_directory(&[translator()]);
    for target in ["/.well-known/agent.json", "/agents/translator/.well-known/agent.json"] {
        let card = fixture.expect_response(get("/agents/translator/agent-card.json")).await;
        for accept in
            ["", "*/*", "application/json", "application/a2a+json, application/ld+json;q=0.5", "application/*"]
        {
            let response = fixture.expect_response(get(target).header("accept", accept)).await;
            assert_eq!(response.json(), card.json(), "{target} {accept}");
        }
        let card = card.json();
        assert!(card["capabilities"].is_object() && card["skills"].is_array(), "{card}");
        assert_eq!(card["defaultInputModes"], json!(["application/json"]));
        assert_eq!(card["url"], "https://gw.example/agents/translator/invoke");
        for accept in [
            "application/ld+json",
            "application/agent+json, application/json;q=0.9",
            "application/json, application/ld+json, */*;q=0.1",
        ] {
            let response = fixture.expect_response(get(target).header("accept", accept)).await;
            assert!(response.json()["capabilities"].is_array(), "{target} {accept}");
        }
        for accept in ["text/html", "application/ld+json;q=0"] {
            let fault = fixture.expect_fault(get(target).header("accept", accept)).await;
            assert_eq!(fault.code(), FaultCode::NotAcceptable, "{target} {accept}");
        }
    }
    // The path of `agent://` stays the descriptor's.
    for accept in ["*/*", "application/json", "application/ld+json"] {
        let response = fixture.expect_response(get(DESCRIPTOR_PATH).header("accept", accept)).await;
        assert!(response.json()["capabilities"].is_array(), "{accept}");
    }
}

/// Collects every string of `value` that begins with a scheme.
fn collect_urls(value: &Value, urls: &mut Vec<String>) {
    match value {
        Value::String(text) if text.contains("://") => urls.push(text.clone()),
        Value::Array(items) => items.iter().for_each(|item| collect_urls(item, urls)),
        Value::Object(members) => members.values().for_each(|member| collect_urls(member, urls)),
        _ => {}
    }
}

#[tokio::test]
async fn r67_every_document_gives_each_callable_version_its_own_address_at_the_gateway_and_no_other() {
    let versions = json!({
        "1.1.0": "/v1.1/",
        "1.0.0": {"path": "/v1"},
        "0.9.0": "https://elsewhere.example/",
        "0.8.0": "http://10.9.8.7:9000/v0.8",
        "0.7.0": 7,
        "a/b": "/x",
    });
    let mut document = translator();
    document["supportedVersions"] = versions.clone();
    document["agent_card"] = json!({"name": "T", "description": "T", "version": "1.2.0", "skills": [], "url": "http://10.0.0.7:8000/translate",
        "supportedVersions": versions});
    let mut snake_case = minimal_agent("snake");
    snake_case["supported_versions"] = json!({"2.0.0": "/v2", "1.0.0": "https://elsewhere.example/"});
    let fixture = test_directory(&[document, snake_case]);
    let address_of = |version: &str| format!("https://gw.example/agents/translator@{version}/invoke");
    let expected = json!({"1.2.0": address_of("1.2.0"), "1.1.0": address_of("1.1.0"), "1.0.0": address_of("1.0.0")});
    let (mut with_versions, mut checked) = (Vec::new(), 0);
    for (target, request) in every_target("translator") {
        if !request.allowed_methods().contains(&Method::GET)
            || matches!(request, DirectoryRequest::History | DirectoryRequest::MetadataSchema)
        {
            continue;
        }
        let response = fixture.expect_response(get(&target)).await;
        for foreign in ["10.9.8.7", "elsewhere", "10.0.0.7"] {
            assert!(!response.text().contains(foreign), "{target}: {}", response.text());
        }
        if response.status != 200 {
            continue;
        }
        checked += 1;
        let (body, mut urls) = (response.json(), Vec::new());
        if let Some(versions) = body.get("supportedVersions") {
            assert_eq!(versions, &expected, "{target}");
            with_versions.push(target);
        }
        collect_urls(&body, &mut urls);
        urls.retain(|url| url.contains('@'));
        assert!(urls.iter().all(|url| url.starts_with("https://gw.example/agents/translator@")), "{urls:?}");
    }
    assert!(checked > 12, "{checked}");
    for target in ["/agents/translator", "/agents/translator/agent.json", "/agents/translator/agent-card.json"] {
        assert!(with_versions.iter().any(|checked| checked == target), "{target}: {with_versions:?}");
    }
    assert_eq!(
        fixture.get_json("/agents/snake").await["supported_versions"],
        json!({"2.0.0": "https://gw.example/agents/snake@2.0.0/invoke"})
    );
}

#[tokio::test]
async fn r58_the_gateway_describes_itself_if_the_caller_sees_several_agents() {
    let mut fixture = test_directory(&[translator(), minimal_agent("b")]);
    let descriptor = fixture.get_json("/agent.json").await;
    assert_eq!(
        (&descriptor["name"], &descriptor["capabilities"][1]["name"]),
        (&json!("Gatepost"), &json!("translator"))
    );
    assert_eq!(descriptor["links"]["agents"], "https://gw.example/.well-known/agents.json");
    fixture.visibility.hidden = vec!["b"];
    assert_eq!(fixture.get_json("/agent.json").await["identifier"], "translator");
    fixture.visibility.hidden = vec!["b", "translator"];
    assert_eq!(fixture.get_json("/agent.json").await["capabilities"], json!([]));
}

#[tokio::test]
async fn r70_declared_formats_appear_in_the_descriptor_and_json_stands_for_undeclared_ones() {
    let mut document = translator();
    document["outputFormats"] = json!(["text/csv"]);
    document["operations"][0]["contentTypes"] =
        json!({"inputFormat": ["application/xml", "text/plain"], "outputFormat": ["application/xml"]});
    let fixture = test_directory(&[document, minimal_agent("b")]);
    let formats = |capability: &Value| {
        let content_types = &capability["contentTypes"];
        assert_eq!(content_types["inputFormat"], capability["inputFormats"]);
        assert_eq!(content_types["outputFormat"], capability["outputFormats"]);
        (capability["inputFormats"].clone(), capability["outputFormats"].clone())
    };
    let descriptor = fixture.get_json(DESCRIPTOR_PATH).await;
    let first = &descriptor["capabilities"][0];
    assert_eq!(formats(first), (json!(["application/json"]), json!(["application/xml"])), "a schema applies to JSON");
    assert_eq!(formats(&descriptor["capabilities"][1]), (json!(["application/json"]), json!(["text/csv"])));
    let minimal = fixture.get_json("/agents/b/agent.json").await;
    assert_eq!(formats(&minimal["capabilities"][0]), (json!(["application/json"]), json!(["application/json"])));
    let skill = fixture.get_json("/agents/translator/agent-card.json").await["skills"][0].clone();
    assert_eq!(skill["inputModes"], json!(["application/json"]));
    assert_eq!(skill["outputModes"], json!(["application/xml"]));
}

fn conventions() -> CallConventions {
    let tasks = TaskConventions {
        has_callbacks: false,
        result_ttl: Duration::from_secs(3_600),
        poll_interval: Duration::from_secs(2),
        resume_window: Some(Duration::from_secs(30)),
    };
    CallConventions {
        tasks: Some(tasks),
        idempotency_ttl: Duration::from_secs(600),
        bridged_agents: vec!["trans*".parse().unwrap()],
        ..CallConventions::default()
    }
}

#[tokio::test]
async fn r73_with_direct_endpoints_a_descriptor_has_the_agents_own_state_management() {
    let mut document = translator();
    document["stateManagement"] = json!({"practice": "one conversation per session"});
    let mut fixture = test_directory(&[document, minimal_agent("b")]);
    fixture.directory.config.advertised_endpoints = EndpointExposure::Direct;
    let descriptor = fixture.get_json(DESCRIPTOR_PATH).await;
    assert_eq!(descriptor["stateManagement"], json!({"practice": "one conversation per session"}));
    assert!(fixture.get_json("/agents/b/agent.json").await.get("stateManagement").is_none());
}

#[tokio::test]
async fn r73_r76_a_descriptor_tells_state_management_and_the_lifecycle_of_session_and_task_ids() {
    let mut document = translator();
    let declared = json!({"@context": "https://evil.example/", "practice": "one conversation per session"});
    document["stateManagement"] = declared;
    let mut fixture = test_directory(&[document, minimal_agent("b")]);
    let plain = fixture.get_json("/agents/b/agent.json").await["stateManagement"].clone();
    assert!(plain["task"].get("location").is_none() && plain.get("stream").is_none(), "tasks are off: {plain}");
    fixture.directory.conventions = conventions();
    let descriptor = fixture.get_json(DESCRIPTOR_PATH).await;
    let state = &descriptor["stateManagement"];
    assert_eq!(state["agent"]["practice"], "one conversation per session");
    assert_eq!(descriptor["@context"]["stateManagement"]["@type"], "@json", "it could introduce a context");
    assert_eq!(state["session"]["headers"], json!(["X-Session-ID", "Mcp-Session-Id"]));
    assert_eq!((&state["session"]["query"], &state["task"]["query"]), (&json!("sessionId"), &json!("taskId")));
    assert_eq!(state["task"]["location"], "https://gw.example/tasks/{taskId}");
    assert_eq!(
        (&state["task"]["retentionSeconds"], &state["task"]["pollIntervalSeconds"]),
        (&json!(3600.0), &json!(2.0))
    );
    assert_eq!(
        (&state["stream"]["retentionSeconds"], &state["idempotency"]["retentionSeconds"]),
        (&json!(30.0), &json!(600.0))
    );
    for part in ["session", "task", "stream", "idempotency"] {
        assert!(state[part]["lifecycle"].as_str().unwrap().len() > 40, "{part}: {state}");
    }
    let openapi = fixture.get_json("/agents/translator/openapi.json").await;
    let parameters = &openapi["paths"]["/agents/translator/invoke/detect"]["post"]["parameters"];
    assert_eq!((&parameters[0]["name"], &parameters[1]["name"]), (&json!("X-Session-ID"), &json!("X-Task-ID")));
    assert!(parameters[1]["description"].as_str().unwrap().contains("3600 seconds"), "{parameters}");
}

#[tokio::test]
async fn r99_a_descriptor_lists_the_security_of_each_transport_binding() {
    let mut fixture = test_directory(&[translator(), minimal_agent("b")]);
    fixture.directory.conventions = conventions();
    let bindings = fixture.get_json(DESCRIPTOR_PATH).await["bindings"].clone();
    let key = json!({"scheme": "ApiKey", "type": "apiKey", "in": "header", "name": "x-api-key"});
    assert_eq!(
        bindings[0],
        json!({"transport": "https", "endpoint": "https://gw.example/agents/translator/invoke", "security": [key]})
    );
    assert_eq!(
        (&bindings[1]["transport"], &bindings[1]["endpoint"]),
        (&json!("wss"), &json!("wss://gw.example/agents/translator/invoke"))
    );
    assert_eq!(bindings[1]["security"][0], key);
    let subprotocol = &bindings[1]["security"][1];
    assert_eq!((&subprotocol["in"], &subprotocol["name"]), (&json!("subprotocol"), &json!("gatepost.key.{key}")));
    assert_eq!(
        (&bindings[2]["transport"], &bindings[2]["topic"]),
        (&json!("mqtt"), &json!("/control/agents/translator/input"))
    );
    assert_eq!(bindings[2]["security"][0]["scheme"], "Broker");
    // An agent that needs no particular kind, and is on no broker.
    let bindings = fixture.get_json("/agents/b/agent.json").await["bindings"].clone();
    let names: Vec<&str> = bindings[1]["security"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["name"].as_str().unwrap_or_default())
        .collect();
    assert_eq!(names, ["x-api-key", "", "gatepost.key.{key}", "gatepost.bearer.{token}"]);
    assert_eq!(bindings.as_array().unwrap().len(), 2);
    fixture.directory.config.advertised_endpoints = EndpointExposure::Direct;
    assert!(fixture.get_json("/agents/b/agent.json").await.get("bindings").is_none(), "calls bypass the gateway");
}

#[tokio::test]
async fn r157_a_template_of_a_document_is_shown_with_the_gateways_address() {
    let mut document = translator();
    document["operations"][0]["uriTemplate"] = json!("agent://10.0.0.7/translate{?text,target}");
    document["operations"][1]["uriTemplate"] = json!("agent://10.0.0.7/{tenant}/detect{?text}");
    let fixture = test_directory(&[document]);
    let descriptor = fixture.get_json(DESCRIPTOR_PATH).await;
    let template = "https://gw.example/agents/translator/invoke/translateText{?text,target}";
    assert_eq!(descriptor["capabilities"][0]["uriTemplate"], template);
    assert!(descriptor["capabilities"][1].get("uriTemplate").is_none(), "its path has no meaning at the gateway");
    let document = fixture.get_json("/agents/translator").await;
    assert!(!document.to_string().contains("10.0.0.7"), "{document}");
}

#[tokio::test]
async fn r157_a_template_that_is_longer_than_a_name_may_be_is_not_shown_and_costs_no_time() {
    let mut document = translator();
    document["operations"][0]["uriTemplate"] = json!("{".repeat(900_000) + "}");
    document["operations"][1]["uriTemplate"] = json!(format!("{}{{?text}}", "x".repeat(8_192)));
    let mut fixture = test_directory(&[document]);
    for exposure in [EndpointExposure::Gateway, EndpointExposure::Direct] {
        fixture.directory.config.advertised_endpoints = exposure;
        let began = std::time::Instant::now();
        let descriptor = fixture.get_json(DESCRIPTOR_PATH).await;
        assert!(began.elapsed().as_secs() < 5, "{:?}", began.elapsed());
        for capability in descriptor["capabilities"].as_array().unwrap() {
            assert!(capability.get("uriTemplate").is_none());
        }
    }
}

#[tokio::test]
async fn an_operation_with_an_address_of_its_own_is_shown_at_the_gateways() {
    let mut document = translator();
    let endpoint = document["endpoint"].as_str().unwrap().to_owned();
    document["operations"][0]["endpoint"] = json!(format!("{endpoint}/own"));
    let fixture = test_directory(&[document]);
    let descriptor = fixture.get_json(DESCRIPTOR_PATH).await;
    let at_gateway = "https://gw.example/agents/translator/invoke/translateText";
    assert_eq!(descriptor["capabilities"][0]["endpoint"], at_gateway);
    let document = fixture.get_json("/agents/translator").await;
    assert_eq!(document["operations"][0]["endpoint"], "https://gw.example/agents/translator/invoke");
}
