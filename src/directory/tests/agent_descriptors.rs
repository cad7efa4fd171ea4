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
    assert_eq!(first["contentTypes"]["inputFormat"], json!(["application/json"]));
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
    for alias in ["/agents/translator/.well-known/agent.json", "/.well-known/agent.json"] {
        assert_eq!(fixture.expect_response(get(alias)).await.body, canonical.body, "{alias}");
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

#[tokio::test]
async fn r58_the_gateway_describes_itself_if_the_caller_sees_several_agents() {
    let mut fixture = test_directory(&[translator(), minimal_agent("b")]);
    let descriptor = fixture.get_json("/.well-known/agent.json").await;
    assert_eq!(
        (&descriptor["name"], &descriptor["capabilities"][1]["name"]),
        (&json!("Gatepost"), &json!("translator"))
    );
    assert_eq!(descriptor["links"]["agents"], "https://gw.example/.well-known/agents.json");
    fixture.visibility.hidden = vec!["b"];
    assert_eq!(fixture.get_json("/.well-known/agent.json").await["identifier"], "translator");
    fixture.visibility.hidden = vec!["b", "translator"];
    assert_eq!(fixture.get_json("/.well-known/agent.json").await["capabilities"], json!([]));
}
