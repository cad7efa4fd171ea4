//! The document of one agent, and conditional requests.

use super::*;
use crate::values::{format_http_date, parse_http_date};

#[tokio::test]
async fn r20_the_document_names_the_gateway_wherever_it_named_the_agent() {
    let mut document = translator();
    document["mirrors"] =
        json!(["HTTP://10.0.0.7/a", "http://user:pw@10.0.0.7:9/b", "http://10.0.0.70/c", "http://x@[::1]:1/"]);
    document["note"] = json!("see (http://10.0.0.7:8000/x), then http://10.0.0.7.evil.example/ and 10.0.0.7");
    document["operations"][0]["inputs"]["$id"] = json!("http://10.0.0.7:8000/schemas/text");
    document["by_url"] =
        json!({"http://10.0.0.7:8000/x": ["//10.0.0.7/y", "// a comment", "https://a.example//10.0.0.7/"]});
    let served = test_directory(&[document]).get_json("/agents/translator").await;
    let gateway_url = "https://gw.example/agents/translator/invoke";
    assert_eq!(served["endpoint"], gateway_url);
    assert_eq!(served["mirrors"], json!([gateway_url, gateway_url, gateway_url, gateway_url]));
    assert_eq!(served["note"], format!("see ({gateway_url}), then {gateway_url} and {gateway_url}"));
    assert_eq!(served["by_url"], json!({gateway_url: [gateway_url, "// a comment", gateway_url]}));
    // The identity of a schema stays distinct from other identities.
    assert_eq!(served["operations"][0]["inputs"]["$id"], "https://gw.example/schemas/text");
    assert_eq!(served["documentation"], "https://example.com/docs");
    assert_eq!(served["authentication"], translator()["authentication"]);
}

#[tokio::test]
async fn an_invalidated_signature_is_removed() {
    let mut document = minimal_agent("signed");
    document["agent_card"] = json!({"url": "https://signed.inside.example/", "signatures": [{"protected": "e30"}]});
    let served = test_directory(&[document]).get_json("/agents/signed").await;
    assert_eq!(served["agent_card"], json!({"url": "https://gw.example/agents/signed/invoke"}));
}

#[tokio::test]
async fn an_ipv6_address_is_redacted() {
    let document =
        json!({"id": "six", "name": "S", "endpoint": "http://[2001:db8::7]:80/x", "at": "http://[2001:DB8::7]/y"});
    let served = test_directory(&[document]).get_json("/agents/six").await;
    assert_eq!(served["at"], "https://gw.example/agents/six/invoke");
}

#[tokio::test]
async fn urls_of_an_agent_name_are_redacted_but_not_every_text_with_the_word() {
    for endpoint in ["agent://planner/x", "wss://planner/x"] {
        let document = json!({"id": "p", "name": "planner", "description": "The planner plans.", "url": endpoint, "endpoint": endpoint});
        let served = test_directory(&[document]).get_json("/agents/p").await;
        assert_eq!(
            (&served["name"], &served["description"]),
            (&json!("planner"), &json!("The planner plans.")),
            "{endpoint}"
        );
        let gateway_url = json!("https://gw.example/agents/p/invoke");
        assert_eq!((&served["url"], &served["endpoint"]), (&gateway_url, &gateway_url), "{endpoint}");
    }
    let did = json!({"id": "d", "name": "D", "note": "at did:web:inside.example:x", "endpoint": "agent://did:web:inside.example:x"});
    assert_eq!(test_directory(&[did]).get_json("/agents/d").await["note"], "https://gw.example/agents/d/invoke");
}

#[tokio::test]
async fn an_invalid_id_is_not_found() {
    let fixture = test_directory(&[translator()]);
    for target in ["/agents/%2e%2e", "/agents/a%2fb", "/agents/..", "/agents/TRANSLATOR", "/agents/translator%00"] {
        assert_eq!(fixture.expect_fault(get(target)).await.code(), FaultCode::NotFound, "{target}");
    }
}

#[tokio::test]
async fn r62_a_caller_that_has_the_document_gets_304() {
    let fixture = test_directory(&[translator()]);
    let first = fixture.expect_response(get("/agents/translator")).await;
    let (tag, date) = (first.header("etag").to_owned(), first.header("last-modified").to_owned());
    let earlier = parse_http_date(&date).unwrap().unix_timestamp() - 1;
    let earlier = format_http_date(earlier).unwrap();
    let weak = format!("W/{tag}");
    let list = format!("\"other\", {tag}");
    for (name, value) in [
        ("if-none-match", tag.as_str()),
        ("if-none-match", &weak),
        ("if-none-match", &list),
        ("if-none-match", "*"),
        ("if-modified-since", &date),
        ("if-modified-since", "Tue, 01 Jan 2999 00:00:00 GMT"),
    ] {
        let response = fixture.expect_response(get("/agents/translator").header(name, value)).await;
        assert_eq!(response.status, 304, "{name}: {value}");
        assert!(response.body.is_empty() && response.header("vary").starts_with("Accept, "), "{name}: {value}");
    }
    for (name, value) in [
        ("if-none-match", "\"other\""),
        ("if-none-match", "other"),
        ("if-none-match", "W/"),
        ("if-modified-since", &earlier),
        ("if-modified-since", "yesterday"),
        ("if-modified-since", "Tue, 14 Nov 2023"),
    ] {
        let response = fixture.expect_response(get("/agents/translator").header(name, value)).await;
        assert_eq!(response.status, 200, "{name}: {value}");
    }
    // If-None-Match takes precedence over the date.
    let both = get("/agents/translator").header("if-none-match", "\"x\"");
    let both = both.header("if-modified-since", "Tue, 01 Jan 2999 00:00:00 GMT");
    assert_eq!(fixture.expect_response(both).await.status, 200);
}

#[tokio::test]
async fn r147_the_media_type_is_the_one_that_accept_prefers() {
    let fixture = test_directory(&[translator()]);
    for (accept, media) in [
        ("*/*", "application/json"),
        ("", "application/json"),
        ("application/*", "application/json"),
        ("text/html,*/*;q=0.1", "application/json"),
        ("application/agent-metadata+json", "application/agent-metadata+json;version=1"),
        ("application/agent-metadata+json;version=1", "application/agent-metadata+json;version=1"),
        (
            "application/agent-metadata+json; version=\"1\"; q=0.9, application/json;q=0.5",
            "application/agent-metadata+json;version=1",
        ),
        ("application/agent-metadata+json;version=2, application/json;q=0.1", "application/json"),
        ("application/json;q=0.1, */*;q=0.5", "application/agent-metadata+json;version=1"),
        ("APPLICATION/JSON", "application/json"),
    ] {
        let response = fixture.expect_response(get("/agents/translator").header("accept", accept)).await;
        assert_eq!(response.header("content-type"), media, "{accept}");
    }
    for accept in ["application/agent-metadata+json;version=2", "application/jsonx", ";q=1", "application/json;q=x"] {
        let fault = fixture.expect_fault(get("/agents/translator").header("accept", accept)).await;
        assert_eq!(fault.code(), FaultCode::NotAcceptable, "{accept}");
        assert!(fault.message().contains("application/json"), "{accept}");
    }
}

#[tokio::test]
async fn without_configuration_there_is_no_schema_and_an_empty_key_set() {
    let fixture = test_directory(&[]);
    assert_eq!(fixture.expect_fault(get("/schemas/agent-metadata.json")).await.code(), FaultCode::NotFound);
    assert_eq!(fixture.get_json("/.well-known/jwks.json").await, json!({"keys": []}));
}
