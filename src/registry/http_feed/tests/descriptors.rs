//! Conversion of agent:// descriptors and Agent Framework documents.

use super::*;

/// The example of the agent:// draft, with its version in quotes.
fn planner() -> Value {
    json!({
        "@context": "https://example.org/agent-context.jsonld",
        "name": "planner.example.com",
        "description": "Plans itineraries",
        "url": "agent://planner.example.com/",
        "provider": {"organization": "Example AI Org"},
        "interactionModel": "agent2agent",
        "orchestration": "delegation",
        "envelopeSchemas": ["fipa-acl"],
        "version": "3.1.4",
        "supportedVersions": {"3.0.0": "/v3/", "2.1.2": "/olderversion/v2.1.2/"},
        "capabilities": [{
            "name": "gen-iti", "version": "2.1.5", "description": "Creates a travel itinerary.",
            "input": {"city": "string"}, "output": {"itinerary": "array"}, "isDeterministic": false,
            "contentTypes": {"inputFormat": ["application/json"], "outputFormat": ["application/json"]}
        }],
        "authentication": {"schemes": ["OAuth2"]},
        "skills": [{"id": "agent-skill-1", "name": "research-location"}]
    })
}

fn convert(descriptor: &Value) -> Result<Value, String> {
    convert_from(descriptor, &base(), OperationAddressing::AtEndpoint)
}

fn convert_from(descriptor: &Value, base: &Url, addressing: OperationAddressing) -> Result<Value, String> {
    let members = descriptor.as_object().unwrap().clone();
    let document = agent_uri_descriptor::convert_descriptor(members, None, base, addressing)?;
    Agent::from_document(&document, [0; 32]).map(|_| document).map_err(|why| why.join("; "))
}

fn descriptor_with(field: &str, value: Value) -> Value {
    let mut descriptor = planner();
    descriptor[field] = value;
    descriptor
}

#[test]
fn r65_r67_r73_the_drafts_example_becomes_a_document_and_keeps_its_members() {
    let document = convert(&planner()).unwrap();
    assert_eq!(document["id"], "planner.example.com");
    assert_eq!(document["endpoint"], "https://planner.example.com/");
    assert_eq!(document["authentication"], json!({"type": "oauth2_bearer"}));
    assert_eq!(document["capabilities"], json!(["gen-iti"]));
    assert_eq!(document["publisher"], "Example AI Org");
    let operation = &document["operations"][0];
    assert_eq!(operation["name"], "gen-iti");
    assert_eq!(operation["isDeterministic"], false);
    assert_eq!(operation.get("inputs"), None, "a shorthand is not a schema");
    for field in ["@context", "supportedVersions", "interactionModel", "orchestration", "envelopeSchemas", "skills"] {
        assert_eq!(document[field], planner()[field]);
    }
}

#[test]
fn r70_r71_capability_schemas_become_operation_schemas() {
    let schema = json!({"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]});
    for field in ["input", "inputSchema", "input_schema", "inputs"] {
        let document = convert(&descriptor_with("capabilities", json!([{"name": "a", field: schema}]))).unwrap();
        assert_eq!(document["operations"][0]["inputs"], schema, "{field}");
    }
    let document = convert(&descriptor_with("capabilities", json!(["a", "b"]))).unwrap();
    assert_eq!((&document["capabilities"], document.get("operations")), (&json!(["a", "b"]), None));
    let document = convert(&descriptor_with("capabilities", json!({"streaming": true}))).unwrap();
    assert_eq!(document["capabilities"], json!([]));
}

#[test]
fn r53_r54_the_endpoint_is_the_plainest_hint() {
    for (extra, endpoint) in [
        (
            json!({"endpoint": "https://a.example/x", "transport": {"endpoint": "https://b.example/"}}),
            "https://a.example/x",
        ),
        (json!({"endpoint": "invoke"}), "https://registry.example/invoke"),
        (json!({"transport": {"endpoint": "https://b.example/"}}), "https://b.example/"),
        (json!({"transport": {"protocol": "https", "url": "https://c.example/"}}), "https://c.example/"),
        (json!({"url": "agent+https://d.example/"}), "agent+https://d.example/"),
        (json!({"url": "agent+wss://d.example/"}), "agent+wss://d.example/"),
        (json!({"url": "agent://e.example/plan"}), "https://e.example/plan"),
        (json!({"url": "agent+matrix://@bot:e.example"}), "agent+matrix://@bot:e.example"),
    ] {
        let mut descriptor = planner();
        descriptor.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        assert_eq!(convert(&descriptor).unwrap()["endpoint"], endpoint);
    }
    for (url, reason) in [
        ("agent+pigeon://a.example", "'agent+pigeon' is not supported"),
        ("agent://did:web:a.example:b", "endpoint"),
        ("agent://user@a.example/", "user or password"),
    ] {
        let why = convert(&descriptor_with("url", json!(url))).unwrap_err();
        assert!(why.contains(reason), "{url}: {why}");
    }
    assert!(
        convert(&descriptor_with("url", json!(null))).unwrap_err().contains("(endpoint, transport.endpoint or url)")
    );
}

#[test]
fn r47_the_capabilities_of_an_agent_at_its_url_are_called_below_it() {
    let endpoints = |descriptor: &Value, addressing| {
        let document = convert_from(descriptor, &base(), addressing).unwrap();
        let operations = document["operations"].as_array().unwrap().iter();
        operations.map(|operation| operation["endpoint"].as_str().map(str::to_owned)).collect::<Vec<_>>()
    };
    let below = OperationAddressing::BelowEndpoint;
    let mut descriptor = planner();
    descriptor["capabilities"] = json!([
        {"name": "gen-iti"}, {"name": "a/b c"}, {"name": "../x"}, {"name": "own", "endpoint": "https://planner.example.com/o"},
        {"name": "relative", "endpoint": "/r"}
    ]);
    let https = |path: &str| Some(format!("https://{path}"));
    let own = [https("planner.example.com/o"), https("registry.example/r")];
    let appended = [https("planner.example.com/gen-iti"), https("planner.example.com/a/b%20c"), None];
    assert_eq!(endpoints(&descriptor, below), [&appended[..], &own[..]].concat());
    assert_eq!(endpoints(&descriptor, OperationAddressing::AtEndpoint), [&[None, None, None][..], &own[..]].concat());
    // The address at which everything is invoked has no operations below it.
    for member in ["endpoint", "transport"] {
        let mut descriptor = descriptor.clone();
        let address = json!("https://planner.example.com/invoke");
        descriptor[member] = if member == "endpoint" { address } else { json!({"endpoint": address}) };
        assert_eq!(endpoints(&descriptor, below), [&[None, None, None][..], &own[..]].concat(), "{member}");
    }
    descriptor["url"] = json!("agent+wss://planner.example.com/ws/");
    assert_eq!(endpoints(&descriptor, below)[0], Some("wss://planner.example.com/ws/gen-iti".to_owned()));
    descriptor["url"] = json!("agent+matrix://@bot:e.example");
    assert_eq!(endpoints(&descriptor, below)[0], None);
}

#[test]
fn r57_a_descriptor_without_an_address_is_at_its_agent() {
    for (place, endpoint) in [
        ("https://a.example/.well-known/agent.json", "https://a.example/"),
        ("https://a.example/agent.json?x=1", "https://a.example/"),
        ("https://a.example/tools/echo/agent.json", "https://a.example/tools/echo/"),
    ] {
        let descriptor = descriptor_with("url", json!(null));
        let document = convert_from(&descriptor, &place.parse().unwrap(), OperationAddressing::BelowEndpoint).unwrap();
        assert_eq!(document["endpoint"], endpoint);
        assert_eq!(document["operations"][0]["endpoint"], format!("{endpoint}gen-iti"));
    }
    let elsewhere = "https://a.example/my-agent.json".parse().unwrap();
    let descriptor = descriptor_with("url", json!(null));
    assert!(convert_from(&descriptor, &elsewhere, OperationAddressing::BelowEndpoint).is_err());
}

#[test]
fn r65_r74_an_invalid_descriptor_is_rejected_with_the_reason() {
    for (field, value, reason) in [
        ("name", json!(7), "name: is required"),
        ("version", json!(3.1), "write \"3.1\" in quotes"),
        ("capabilities", json!([{"name": "a b"}, {"name": "a/b"}]), "both become the operation a-b"),
        ("capabilities", json!([{"name": "a"}, 7]), "capabilities[1]: must be an object"),
        ("capabilities", json!([{"description": "x"}]), "capabilities[0].name: is required"),
        ("authentication", json!({"schemes": ["Riddle"]}), "'Riddle'"),
        ("authentication", json!({"schemes": [7]}), "array of strings"),
        ("authentication", json!({"type": "riddle"}), "'riddle' is unknown"),
        ("authentication", json!("OAuth2"), "must be an object"),
    ] {
        let why = convert(&descriptor_with(field, value)).unwrap_err();
        assert!(why.contains(reason), "{field}: {why}");
    }
}

/// The example of Agent Framework's design.
fn annotator() -> Value {
    json!({
        "id": "image-annotator", "name": "Image Annotator", "version": "1.4.2",
        "summary": "Annotates images.", "owner": {"name": "Vision Team", "email": "vision@example.com"},
        "tags": ["vision"],
        "endpoints": [
            {"transport": "MQTT", "topic": "x"},
            {"method": "GET", "path": "/v1/tasks"},
            {"method": "POST", "path": "/v1/tasks/{id}"},
            {"method": "POST", "path": "/v1/message:send", "description": "Send"},
            {"method": "POST", "path": "/v1/message:stream"}
        ],
        "capabilities": {"streaming": true, "batch": false},
        "created_at": "2025-06-12T08:15:00Z", "metadata": {"x": 1}
    })
}

#[test]
fn r142_r143_r145_an_agent_framework_document_becomes_an_aidip_document() {
    let url = "https://app.example/.well-known/agentframework/v1/agents/image-annotator".parse().unwrap();
    let document = agent_framework::convert_framework_document(annotator().as_object().unwrap().clone(), &url).unwrap();
    assert!(Agent::from_document(&document, [0; 32]).is_ok());
    assert_eq!(document["endpoint"], "https://app.example/v1/message:send");
    assert_eq!(document["publisher"], "Vision Team");
    assert_eq!(document["description"], "Annotates images.");
    assert_eq!(document["capabilities"], json!(["streaming"]));
    assert_eq!(document["capability_flags"], annotator()["capabilities"]);
    for field in ["endpoints", "owner", "metadata", "created_at"] {
        assert_eq!(document[field], annotator()[field]);
    }
    for (endpoints, reason) in [
        (json!([]), "must have one"),
        (json!([{"method": "GET", "path": "/x"}]), "must have one"),
        (json!([{"transport": "HTTP", "httpMethod": "POST"}]), "must have one"),
        (json!({}), "must be an array"),
    ] {
        let mut document = annotator();
        document["endpoints"] = endpoints;
        let why = agent_framework::convert_framework_document(document.as_object().unwrap().clone(), &url).unwrap_err();
        assert!(why.contains(reason), "{why}");
    }
}
