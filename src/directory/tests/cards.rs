//! A2A agent cards.

use super::*;

const CARD_PATH: &str = "/agents/translator/agent-card.json";
const INVOKE: &str = "https://gw.example/agents/translator/invoke";

/// An agent with a card of version 1.0 of its own, signed over what the gateway replaces.
fn agent_with_card() -> Value {
    json!({
        "id": "planner", "name": "Planner", "endpoint": "https://planner.inside.example/a2a/jsonrpc",
        "authentication": {"type": "oauth2_bearer", "scopes": ["plan"]},
        "operations": [{"name": "message"}],
        "agent_card": {
            "name": "Planner", "description": "Plans journeys.", "version": "3.1.4",
            "provider": {"organization": "Travel", "url": "https://travel.example"},
            "supportedInterfaces": [
                {"url": "https://planner.inside.example/a2a/grpc", "protocolBinding": "GRPC", "protocolVersion": "1.0"},
                {"url": "https://planner.inside.example/a2a/jsonrpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"},
                {"url": "https://planner.inside.example/a2a/jsonrpc", "protocolBinding": "JSONRPC", "protocolVersion": "0.3"},
            ],
            "capabilities": {"streaming": true, "extendedAgentCard": true, "extensions": [{"uri": "https://example.com/ext"}]},
            "securitySchemes": {"inside": {"apiKeySecurityScheme": {"location": "header", "name": "X-Inside"}}},
            "securityRequirements": [{"schemes": {"inside": {}}}],
            "defaultInputModes": ["text/plain"], "defaultOutputModes": ["text/plain"],
            "skills": [{"id": "plan", "name": "Plan", "description": "Plans.", "tags": ["travel"], "examples": ["To Rome"]}],
            "signatures": [{"protected": "e30", "signature": "AA"}],
            "custom": {"see": "https://planner.inside.example/about"},
        },
    })
}

#[tokio::test]
async fn r59_a_card_is_built_from_an_agents_operations() {
    let fixture = test_directory(&[translator()]);
    let card = fixture.expect_response(get(CARD_PATH).header("a2a-version", "1.0")).await.json();
    assert_eq!(
        card["supportedInterfaces"],
        json!([{"url": INVOKE, "protocolBinding": "AIDIP", "protocolVersion": "1.0"}])
    );
    assert_eq!(
        card["skills"][0],
        json!({
            "id": "translateText", "name": "translateText", "description": "Translates a text.",
            "tags": ["nlp", "chinese"], "examples": ["{\"text\":\"hi\"}"],
        })
    );
    assert_eq!(
        card["securitySchemes"],
        json!({"api_key": {"apiKeySecurityScheme": {"location": "header", "name": "x-api-key"}}})
    );
    assert_eq!(card["securityRequirements"], json!([{"schemes": {"api_key": {}}}]));
    assert_eq!((&card["defaultInputModes"], &card["capabilities"]), (&json!(["application/json"]), &json!({})));
    for name in ["url", "protocolVersion", "security", "preferredTransport"] {
        assert!(card.get(name).is_none(), "{name}");
    }
}

#[tokio::test]
async fn r153_a_client_that_requests_version_0_3_gets_it() {
    let fixture = test_directory(&[translator()]);
    for request in
        [get(CARD_PATH).header("a2a-version", "0.3"), get("/agents/translator/agent-card.json?version=0.3.0")]
    {
        let card = fixture.expect_response(request).await.json();
        assert_eq!((&card["url"], &card["preferredTransport"]), (&json!(INVOKE), &json!("AIDIP")));
        assert_eq!(card["security"], json!([{"api_key": []}]));
        assert_eq!(
            card["securitySchemes"],
            json!({"api_key": {"type": "apiKey", "in": "header", "name": "x-api-key"}})
        );
        assert!(card.get("supportedInterfaces").is_none());
    }
}

#[tokio::test]
async fn without_a_version_the_card_has_the_members_of_both_versions() {
    let fixture = test_directory(&[translator()]);
    let both = fixture.get_json(CARD_PATH).await;
    for version in ["0.3", "1.0"] {
        let versioned = fixture.expect_response(get(CARD_PATH).header("a2a-version", version)).await.json();
        for (name, value) in versioned.as_object().unwrap() {
            let same = both[name] == *value;
            assert!(same || both[name].is_object() || both[name].is_array(), "{name}: {} {value}", both[name]);
        }
    }
    assert_eq!(both["securitySchemes"]["api_key"]["type"], "apiKey");
    assert_eq!(both["securitySchemes"]["api_key"]["apiKeySecurityScheme"]["location"], "header");
}

#[tokio::test]
async fn an_unknown_version_is_refused() {
    let fixture = test_directory(&[translator()]);
    for version in ["2.0", "0.2", "one", "1.0.7"] {
        let fault = fixture.expect_fault(get(CARD_PATH).header("a2a-version", version)).await;
        assert_eq!(fault.code(), FaultCode::NotAcceptable, "{version}");
    }
    fixture.expect_response(get(CARD_PATH).header("a2a-version", "")).await;
    // In the query, the version may be the agent's own (R68).
    fixture.expect_response(get("/agents/translator/agent-card.json?version=3.1.4")).await;
}

#[tokio::test]
async fn r153_an_agents_own_card_names_the_gateway_instead_of_the_agent() {
    let fixture = test_directory(&[agent_with_card()]);
    let card = fixture.expect_response(get("/agents/planner/agent-card.json?version=1.0")).await.json();
    let gateway_url = "https://gw.example/agents/planner/invoke";
    assert_eq!(
        card["supportedInterfaces"],
        json!([
            {"url": gateway_url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"},
            {"url": gateway_url, "protocolBinding": "JSONRPC", "protocolVersion": "0.3"},
        ]),
        "interfaces that the gateway does not call are omitted"
    );
    assert_eq!(card["capabilities"], json!({"streaming": true, "extensions": [{"uri": "https://example.com/ext"}]}));
    assert_eq!(card["securitySchemes"], json!({"oauth2_bearer": {"httpAuthSecurityScheme": {"scheme": "bearer"}}}));
    assert_eq!(card["securityRequirements"], json!([{"schemes": {"oauth2_bearer": {"list": ["plan"]}}}]));
    assert_eq!(card["provider"], agent_with_card()["agent_card"]["provider"]);
    assert_eq!(card["skills"], agent_with_card()["agent_card"]["skills"]);
    assert_eq!(card["custom"], json!({"see": gateway_url}));
    assert!(card.get("signatures").is_none(), "a signature over replaced members is invalid");
    let v03_card = fixture.expect_response(get("/agents/planner/agent-card.json?version=0.3")).await.json();
    assert_eq!((&v03_card["url"], &v03_card["protocolVersion"]), (&json!(gateway_url), &json!("0.3.0")));
}

#[tokio::test]
async fn an_agents_own_card_of_version_0_3_is_converted() {
    let document = json!({
        "id": "old", "name": "Old", "endpoint": "https://old.inside.example/a2a",
        "agent_card": {
            "protocolVersion": "0.3.0", "name": "Old", "description": "Old.", "version": "1", "url": "https://old.inside.example/a2a",
            "preferredTransport": "JSONRPC", "additionalInterfaces": [{"url": "https://old.inside.example/rest", "transport": "HTTP+JSON"}],
            "capabilities": {"stateTransitionHistory": true}, "defaultInputModes": [], "skills": [{"id": "s"}, 7], "supportsAuthenticatedExtendedCard": true,
        },
    });
    let fixture = test_directory(&[document]);
    let card = fixture.get_json("/agents/old/agent-card.json").await;
    let gateway_url = "https://gw.example/agents/old/invoke";
    assert_eq!(
        card["supportedInterfaces"],
        json!([{"url": gateway_url, "protocolBinding": "JSONRPC", "protocolVersion": "0.3.0"}])
    );
    assert_eq!((&card["url"], &card["protocolVersion"]), (&json!(gateway_url), &json!("0.3.0")));
    assert!(card.get("additionalInterfaces").is_none() && card.get("supportsAuthenticatedExtendedCard").is_none());
    let v1_card = fixture.get_json("/agents/old/agent-card.json?version=1.0").await;
    assert_eq!(v1_card["capabilities"], json!({}));
}

#[tokio::test]
async fn r4_with_direct_endpoints_a_card_keeps_its_publishers_signature() {
    let mut fixture = test_directory(&[agent_with_card()]);
    fixture.directory.config.advertised_endpoints = EndpointExposure::Direct;
    assert_eq!(fixture.get_json("/agents/planner/agent-card.json").await, agent_with_card()["agent_card"]);
}

#[tokio::test]
async fn r151_with_direct_endpoints_the_card_without_a_suffix_has_the_members_of_both_formats_and_no_signature() {
    let mut fixture = test_directory(&[agent_with_card()]);
    fixture.directory.config.advertised_endpoints = EndpointExposure::Direct;
    let both = fixture.get_json("/.well-known/agent-card").await;
    let mut published = agent_with_card()["agent_card"].clone();
    published.as_object_mut().unwrap().remove("signatures");
    assert_eq!(missing_members(&both, &published), Vec::<String>::new(), "{both}");
    for name in ["id", "summary", "endpoints", "metadata"] {
        assert!(both.get(name).is_some(), "{name}: {both}");
    }
    assert!(both.get("signatures").is_none(), "they do not cover the further members: {both}");
}

#[tokio::test]
async fn a_card_that_is_not_an_object_is_ignored() {
    for card_value in [json!(null), json!("https://planner.inside.example/card"), json!([])] {
        let mut document = agent_with_card();
        document["agent_card"] = card_value;
        let card = test_directory(&[document]).get_json("/agents/planner/agent-card.json").await;
        assert_eq!(card["skills"][0]["id"], "message");
    }
}

#[tokio::test]
async fn r151_the_gateways_own_card_lists_the_visible_agents() {
    let documents: Vec<Value> = (0..120).map(|number| minimal_agent(&format!("agent-{number:03}"))).collect();
    let mut fixture = test_directory(&documents);
    fixture.directory.config.provider =
        Some(ProviderConfig { organization: "Example".to_owned(), url: "https://example.com".to_owned() });
    fixture.visibility.hidden = vec!["agent-000"];
    let canonical = fixture.expect_response(get("/.well-known/agent-card.json")).await;
    let card = canonical.json();
    assert_eq!((&card["name"], &card["provider"]["organization"]), (&json!("Gatepost"), &json!("Example")));
    let skills = card["skills"].as_array().unwrap();
    assert_eq!((skills.len(), &skills[0]["id"]), (100, &json!("agent-001")));
    assert_eq!(card["capabilities"]["extensions"][0]["uri"], "https://gw.example/.well-known/agents.json");
}

#[tokio::test]
async fn r58_a_caller_that_sees_one_agent_gets_its_card_at_the_well_known_path() {
    let mut fixture = test_directory(&[translator(), minimal_agent("b")]);
    fixture.visibility.hidden = vec!["b"];
    let canonical = fixture.expect_response(get(CARD_PATH)).await;
    for alias in ["/.well-known/agent-card.json", "/agents/translator/.well-known/agent-card.json"] {
        assert_eq!(fixture.expect_response(get(alias)).await.body, canonical.body, "{alias}");
    }
}

/// Collects the members that `larger` lacks, or has with another value.
fn missing_members(larger: &Value, smaller: &Value) -> Vec<String> {
    let members = smaller.as_object().unwrap().iter();
    members.filter(|(name, value)| larger.get(name.as_str()) != Some(value)).map(|(name, _)| name.clone()).collect()
}

#[tokio::test]
async fn r151_the_card_without_a_suffix_has_the_members_of_both_formats() {
    let mut fixture = test_directory(&[translator(), minimal_agent("b")]);
    fixture.directory.config.provider =
        Some(ProviderConfig { organization: "Example".to_owned(), url: "https://example.com".to_owned() });
    for hidden in [vec![], vec!["b"]] {
        fixture.visibility.hidden = hidden;
        let both = fixture.expect_response(get("/.well-known/agent-card")).await;
        assert_eq!(fixture.expect_response(get("/v1/card")).await.body, both.body);
        let both = both.json();
        let card = fixture.get_json("/.well-known/agent-card.json").await;
        assert_eq!(missing_members(&both, &card), Vec::<String>::new(), "{both}");
        for name in [
            "id",
            "name",
            "version",
            "summary",
            "description",
            "owner",
            "tags",
            "endpoints",
            "capabilities",
            "metadata",
        ] {
            assert!(both.get(name).is_some(), "{name}: {both}");
        }
        assert!(both["capabilities"].is_object() && both["owner"]["name"].is_string());
    }
    let both = fixture.get_json("/v1/card").await;
    let document = fixture.get_json("/.well-known/agentframework/v1/agents/translator").await;
    assert_eq!(missing_members(&both, &document), Vec::<String>::new(), "{both}");
}
