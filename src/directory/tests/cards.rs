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
    let stand = test_directory(&[translator()]);
    let card = stand.expect_response(get(CARD_PATH).header("a2a-version", "1.0")).await.json();
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
    for old in ["url", "protocolVersion", "security", "preferredTransport"] {
        assert!(card.get(old).is_none(), "{old}");
    }
}

#[tokio::test]
async fn r153_a_client_that_requests_version_0_3_gets_it() {
    let stand = test_directory(&[translator()]);
    for request in
        [get(CARD_PATH).header("a2a-version", "0.3"), get("/agents/translator/agent-card.json?version=0.3.0")]
    {
        let card = stand.expect_response(request).await.json();
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
    let stand = test_directory(&[translator()]);
    let both = stand.get_json(CARD_PATH).await;
    for version in ["0.3", "1.0"] {
        let one = stand.expect_response(get(CARD_PATH).header("a2a-version", version)).await.json();
        for (name, value) in one.as_object().unwrap() {
            let same = both[name] == *value;
            assert!(same || both[name].is_object() || both[name].is_array(), "{name}: {} {value}", both[name]);
        }
    }
    assert_eq!(both["securitySchemes"]["api_key"]["type"], "apiKey");
    assert_eq!(both["securitySchemes"]["api_key"]["apiKeySecurityScheme"]["location"], "header");
}

#[tokio::test]
async fn an_unknown_version_is_refused() {
    let stand = test_directory(&[translator()]);
    for version in ["2.0", "0.2", "one", "1.0.7"] {
        let fault = stand.expect_fault(get(CARD_PATH).header("a2a-version", version)).await;
        assert_eq!(fault.code(), FaultCode::NotAcceptable, "{version}");
    }
    stand.expect_response(get(CARD_PATH).header("a2a-version", "")).await;
    // In the query, the version may be the agent's own (R68).
    stand.expect_response(get("/agents/translator/agent-card.json?version=3.1.4")).await;
}

#[tokio::test]
async fn r153_an_agents_own_card_names_the_gateway_instead_of_the_agent() {
    let stand = test_directory(&[agent_with_card()]);
    let card = stand.expect_response(get("/agents/planner/agent-card.json?version=1.0")).await.json();
    let ours = "https://gw.example/agents/planner/invoke";
    assert_eq!(
        card["supportedInterfaces"],
        json!([
            {"url": ours, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"},
            {"url": ours, "protocolBinding": "JSONRPC", "protocolVersion": "0.3"},
        ]),
        "interfaces that the gateway does not call are omitted"
    );
    assert_eq!(card["capabilities"], json!({"streaming": true, "extensions": [{"uri": "https://example.com/ext"}]}));
    assert_eq!(card["securitySchemes"], json!({"oauth2_bearer": {"httpAuthSecurityScheme": {"scheme": "bearer"}}}));
    assert_eq!(card["securityRequirements"], json!([{"schemes": {"oauth2_bearer": {"list": ["plan"]}}}]));
    assert_eq!(card["provider"], agent_with_card()["agent_card"]["provider"]);
    assert_eq!(card["skills"], agent_with_card()["agent_card"]["skills"]);
    assert_eq!(card["custom"], json!({"see": ours}));
    assert!(card.get("signatures").is_none(), "a signature over replaced members is invalid");
    let old = stand.expect_response(get("/agents/planner/agent-card.json?version=0.3")).await.json();
    assert_eq!((&old["url"], &old["protocolVersion"]), (&json!(ours), &json!("0.3.0")));
}

#[tokio::test]
async fn an_agents_own_card_of_version_0_3_is_converted() {
    let own = json!({
        "id": "old", "name": "Old", "endpoint": "https://old.inside.example/a2a",
        "agent_card": {
            "protocolVersion": "0.3.0", "name": "Old", "description": "Old.", "version": "1", "url": "https://old.inside.example/a2a",
            "preferredTransport": "JSONRPC", "additionalInterfaces": [{"url": "https://old.inside.example/rest", "transport": "HTTP+JSON"}],
            "capabilities": {"stateTransitionHistory": true}, "defaultInputModes": [], "skills": [{"id": "s"}, 7], "supportsAuthenticatedExtendedCard": true,
        },
    });
    let stand = test_directory(&[own]);
    let card = stand.get_json("/agents/old/agent-card.json").await;
    let ours = "https://gw.example/agents/old/invoke";
    assert_eq!(
        card["supportedInterfaces"],
        json!([{"url": ours, "protocolBinding": "JSONRPC", "protocolVersion": "0.3.0"}])
    );
    assert_eq!((&card["url"], &card["protocolVersion"]), (&json!(ours), &json!("0.3.0")));
    assert!(card.get("additionalInterfaces").is_none() && card.get("supportsAuthenticatedExtendedCard").is_none());
    let new = stand.get_json("/agents/old/agent-card.json?version=1.0").await;
    assert_eq!(new["capabilities"], json!({}));
}

#[tokio::test]
async fn r4_with_direct_endpoints_a_card_keeps_its_publishers_signature() {
    let mut stand = test_directory(&[agent_with_card()]);
    stand.directory.config.advertised_endpoints = EndpointExposure::Direct;
    assert_eq!(stand.get_json("/agents/planner/agent-card.json").await, agent_with_card()["agent_card"]);
}

#[tokio::test]
async fn a_card_that_is_not_an_object_is_ignored() {
    for own in [json!(null), json!("https://planner.inside.example/card"), json!([])] {
        let mut document = agent_with_card();
        document["agent_card"] = own;
        let card = test_directory(&[document]).get_json("/agents/planner/agent-card.json").await;
        assert_eq!(card["skills"][0]["id"], "message");
    }
}

#[tokio::test]
async fn r151_the_gateways_own_card_lists_the_visible_agents() {
    let documents: Vec<Value> = (0..120).map(|number| minimal_agent(&format!("agent-{number:03}"))).collect();
    let mut stand = test_directory(&documents);
    stand.directory.config.provider =
        Some(ProviderConfig { organization: "Example".to_owned(), url: "https://example.com".to_owned() });
    stand.visibility.hidden = vec!["agent-000"];
    let canonical = stand.expect_response(get("/.well-known/agent-card.json")).await;
    for alias in ["/.well-known/agent-card", "/v1/card"] {
        assert_eq!(stand.expect_response(get(alias)).await.body, canonical.body, "{alias}");
    }
    let card = canonical.json();
    assert_eq!((&card["name"], &card["provider"]["organization"]), (&json!("Gatepost"), &json!("Example")));
    let skills = card["skills"].as_array().unwrap();
    assert_eq!((skills.len(), &skills[0]["id"]), (100, &json!("agent-001")));
    assert_eq!(card["capabilities"]["extensions"][0]["uri"], "https://gw.example/.well-known/agents.json");
}

#[tokio::test]
async fn r58_a_caller_that_sees_one_agent_gets_its_card_at_the_well_known_path() {
    let mut stand = test_directory(&[translator(), minimal_agent("b")]);
    stand.visibility.hidden = vec!["b"];
    let one = stand.expect_response(get(CARD_PATH)).await;
    for alias in ["/.well-known/agent-card.json", "/v1/card", "/agents/translator/.well-known/agent-card.json"] {
        assert_eq!(stand.expect_response(get(alias)).await.body, one.body, "{alias}");
    }
}
