//! No document shows an address that is not the gateway's.

use super::*;
use crate::directory::{address_redaction::AddressRedactor, agent_summary::AgentSummary};

/// Addresses as publishers write them, none of which is the gateway's. Each has a word that appears nowhere else.
const ADDRESSES: &[&str] = &[
    "https://leak0.example/a2a?x=1",
    "HTTP://user:pw@leak1.inside.example:8443/b",
    "http://10.1.77.1:8000/c",
    "//leak2.example/d",
    "leak3.inside.example:9000",
    "leak4.example/a2a",
    "grpc://leak5.example:50051",
    "mqtts://leak6/agents/a",
    "10.1.77.2",
    "[2001:db8:77::7]:443",
    "leak7.internal",
    "agent://leak8.example/planner",
    "file:///srv/leak9/app",
];

fn words() -> impl Iterator<Item = String> {
    (0..10).map(|at| format!("leak{at}")).chain(["10.1.77".to_owned(), "2001:db8:77".to_owned(), "own-host".to_owned()])
}

/// An agent whose document has addresses in every member.
fn leaking_agent() -> Value {
    let text = |at: usize| format!("Runs at {}, for now.", ADDRESSES[at % ADDRESSES.len()]);
    let all = ADDRESSES.join(" and ");
    let schema = json!({
        "type": "object", "description": all, "$id": "https://leak0.example/schema", "title": text(3),
        "properties": {"text": {"type": "string", "description": text(1), "default": "http://10.1.77.1:8000/x",
            "examples": ["https://own-host.example/x"], "$comment": text(2)}},
    });
    let mut document = json!({
        "id": "leaky", "name": text(0), "description": all, "version": "1.0.0", "publisher": text(5),
        "capabilities": [ADDRESSES[4], "translation"], "tags": [ADDRESSES[5], ADDRESSES[7]],
        "endpoint": "https://own-host.example/run", "url": ADDRESSES[5], "host": "leak4.example",
        "documentation": "https://docs.own-host.example/x", "documentationUrl": "https://leak0.example/docs",
        "iconUrl": "https://own-host.example/icon.png", "contact": {"url": "http://10.1.77.1/"},
        "provider": {"organization": text(6), "url": "https://leak0.example/"},
        "owner": {"name": text(1), "url": "https://own-host.example/"},
        "authentication": {"type": "api_key", "instructions": "Ask at http://10.1.77.2:80/ or leak7.internal."},
        "supportedVersions": {"1.0.0": "https://leak0.example/v1", "2.0.0": "/leak4/v2"},
        "mirrors": ADDRESSES, "endpoints": {"eu": "leak4.example", "us": ADDRESSES[0]},
        "metadata": {"deep": [{"note": all, "href": "leak4.example"}]}, "orchestration": {"next": ADDRESSES[11]},
        "envelopeSchemas": [ADDRESSES[0]], "interactionModel": text(9),
        "by_url": {"https://own-host.example/x": 1},
        "operations": [{
            "name": "run", "description": all, "inputs": schema, "outputs": schema,
            "examples": [{"input": {"text": "at http://10.1.77.1:8000/x"}, "output": {"see": "leak7.internal"}}],
        }],
    });
    document["agent_card"] = json!({
        "name": text(0), "description": all, "version": "1.0.0", "url": "https://own-host.example/run",
        "documentationUrl": "https://leak0.example/docs", "iconUrl": "https://leak0.example/icon.png",
        "provider": {"organization": "O", "url": "https://own-host.example/"},
        "supportedInterfaces": ADDRESSES.iter().map(|url| json!({"url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"})).collect::<Vec<_>>(),
        "additionalInterfaces": [{"url": "leak4.example", "transport": "GRPC"}],
        "capabilities": {"streaming": true, "extensions": [{"uri": ADDRESSES[0], "description": all}]},
        "skills": [{"id": "s", "name": text(2), "description": all, "tags": [ADDRESSES[4]], "examples": [text(8), "ask http://10.1.77.1:8000/"]}],
        "signatures": [{"protected": "e30"}], "x-extra": {"url": "leak4.example", "text": all},
    });
    document
}

#[tokio::test]
async fn r20_no_document_shows_an_address_that_is_not_the_gateways() {
    let mut without_card = leaking_agent();
    without_card.as_object_mut().unwrap().remove("agent_card");
    for document in [leaking_agent(), without_card] {
        // The only agent, so that the well-known documents are its own; and one of several.
        for others in [vec![], vec![minimal_agent("other")]] {
            let documents: Vec<Value> = std::iter::once(document.clone()).chain(others).collect();
            let fixture = test_directory(&documents);
            let mut documents_of_agent = 0;
            for (target, directory_request) in every_target("leaky") {
                let bodies = match directory_request {
                    DirectoryRequest::History | DirectoryRequest::MetadataSchema | DirectoryRequest::ResolveName => {
                        continue;
                    }
                    DirectoryRequest::Search => vec![send(Method::POST, &target, &json!({"query": "translation"}))],
                    DirectoryRequest::ResolveIntent => {
                        vec![send(Method::POST, &target, &json!({"intent": "translation"}))]
                    }
                    _ => vec![
                        get(&target),
                        get(&target).header("a2a-version", "0.3"),
                        get(&target).header("a2a-version", "1.0"),
                    ],
                };
                for request in bodies {
                    let text = fixture.expect_response(request).await.text().to_owned();
                    documents_of_agent += usize::from(text.contains("leaky"));
                    for word in words() {
                        let at = text.find(&word).map(|at| &text[at.saturating_sub(80)..(at + 40).min(text.len())]);
                        assert!(at.is_none(), "{target} shows {word}: {at:?}");
                    }
                }
            }
            assert!(documents_of_agent > 15, "only {documents_of_agent} responses are about the agent");
        }
    }
}

#[tokio::test]
async fn links_for_people_and_data_stay_unless_they_lead_to_the_agent() {
    let document = json!({
        "id": "a", "name": "A", "endpoint": "https://run.vendor.example/a",
        "provider": {"organization": "V", "url": "https://www.vendor.example/"},
        "authentication": {"type": "api_key", "instructions": "Ask at https://example.com/keys."},
        "documentation": "https://docs.vendor.example/a",
        "operations": [{
            "name": "fetch",
            "inputs": {"type": "object", "$schema": "https://json-schema.org/draft/2020-12/schema",
                "properties": {"page": {"enum": ["https://en.wikipedia.org/wiki/A", "https://run.vendor.example/b"]}}},
            "examples": [{"input": {"page": "https://en.wikipedia.org/wiki/A"}}],
        }],
    });
    let served = test_directory(std::slice::from_ref(&document)).get_json("/agents/a").await;
    let gateway_url = "https://gw.example/agents/a/invoke";
    assert_eq!(served["provider"], document["provider"]);
    assert_eq!(served["authentication"], document["authentication"]);
    assert_eq!(served["documentation"], document["documentation"]);
    assert_eq!(served["operations"][0]["examples"], document["operations"][0]["examples"]);
    let inputs = &served["operations"][0]["inputs"];
    assert_eq!(inputs["$schema"], "https://json-schema.org/draft/2020-12/schema");
    assert_eq!(inputs["properties"]["page"]["enum"], json!(["https://en.wikipedia.org/wiki/A", gateway_url]));
}

#[tokio::test]
async fn the_names_of_a_schemas_properties_are_data() {
    let page = json!({"type": "string", "format": "uri", "description": "The page"});
    let names =
        ["url", "uri", "href", "host", "hostname", "endpoint", "endpoints", "server", "servers", "baseUrl", "$id"];
    let schemas: serde_json::Map<_, _> = names.iter().map(|name| ((*name).to_owned(), page.clone())).collect();
    let mut schema = json!({
        "type": "object", "required": ["url"],
        "properties": {"properties": {"type": "object", "properties": schemas}, "contact": page},
        "patternProperties": schemas, "$defs": schemas, "definitions": schemas,
        "dependentSchemas": schemas, "dependentRequired": {"url": ["host", "server"]},
    });
    schema["properties"].as_object_mut().unwrap().extend(schemas.clone());
    let with_addresses = json!({
        "type": "object", "properties": {
            "url": {"type": "string", "description": "As in https://leak0.example/x", "default": "https://run.vendor.example/b"},
            "contact": {"type": "string", "description": "Not https://leak1.example/"},
            "page": {"type": "string", "examples": ["https://leak-no-more.example/"]},
        },
    });
    let document = json!({
        "id": "a", "name": "A", "endpoint": "https://run.vendor.example/a",
        "metadata": {"properties": {"url": "leak2.example", "host": "leak3.example"}},
        "operations": [{"name": "fetch", "inputs": schema, "outputs": with_addresses}],
    });
    let fixture = test_directory(std::slice::from_ref(&document));
    let served = fixture.get_json("/agents/a").await;
    assert_eq!(served["operations"][0]["inputs"], schema);
    for target in ["/agents/a", "/agents/a/openapi.json", "/agents/a/agent.json"] {
        let text = fixture.get_json(target).await.to_string();
        assert!(text.contains(&format!("\"url\":{page}")), "{target}: {text}");
        assert!(!text.contains("leak0") && !text.contains("leak1") && !text.contains("run.vendor"), "{target}: {text}");
        // The host of an example is not that of the agent.
        assert!(text.contains("leak-no-more"), "{target}: {text}");
    }
    assert!(!served.to_string().contains("leak2") && !served.to_string().contains("leak3"), "{served}");
}

#[test]
fn a_card_that_the_agent_returns_itself_is_redacted_like_a_document() {
    let fixture = test_directory(&[]);
    let agent = agent(&leaking_agent());
    let mut card = leaking_agent()["agent_card"].clone();
    fixture.directory.redact_agent_card(&agent, BASE, &mut card);
    let text = card.to_string();
    for word in words() {
        assert!(!text.contains(&word), "{word}: {text}");
    }
    assert_eq!(card["url"], "https://gw.example/agents/leaky/invoke");
    assert!(card.get("signatures").is_none() && card.get("documentationUrl").is_none());
}

/// 600 KB of the shortest address, each of which becomes the URL of the gateway.
fn document_of_short_addresses() -> Value {
    let addresses = "//a.b ".repeat(50_000);
    json!({"id": "short", "name": "s", "description": addresses, "endpoint": "https://own-host.example/run",
        "metadata": {"list": vec!["//a.b"; 20_000], "urls": vec![json!({"url": "x"}); 5_000],
            "ids": vec![json!({"$id": "http://a.b/x"}); 5_000]},
        "tags": vec!["//a.b"; 1_000], "operations": [{"name": "run", "description": "d"}]})
}

#[test]
fn r127_addresses_of_the_gateway_lengthen_a_document_by_a_bound_only() {
    let agent = agent(&document_of_short_addresses());
    let base = format!("https://{}.example", "h".repeat(240));
    for length in [agent.document.len(), 1_000] {
        let redactor = AddressRedactor::new(&agent, &base, EndpointExposure::Gateway);
        let mut document: Value = serde_json::from_str(&agent.document).unwrap();
        if length == 1_000 {
            document["metadata"] = json!(null);
            document["description"] = "//a.b ".repeat(150).into();
        }
        redactor.redact_value(&mut document);
        let text = document.to_string();
        assert!(!text.contains("a.b"), "an address stays");
        assert!(text.contains(&base));
        let max = 4 * agent.document.len();
        assert!(text.len() < max, "{} bytes of {} bytes", text.len(), agent.document.len());
    }
}

#[test]
fn r127_an_entry_of_a_list_grows_by_a_bound_only() {
    let agent = agent(&document_of_short_addresses());
    let base = format!("https://{}.example", "h".repeat(240));
    let redactor = AddressRedactor::for_list_entry(&agent, &base, EndpointExposure::Gateway);
    let summary = serde_json::to_string(&AgentSummary::new(&agent, &redactor, None)).unwrap();
    assert!(summary.contains(&base) && !summary.contains("a.b"));
    assert!(summary.len() < 32 << 10, "{} bytes", summary.len());
}
