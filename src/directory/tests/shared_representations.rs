//! Representations of long documents, which are made once and shared.

use super::{get, minimal_agent, test_directory};
use crate::directory::DirectoryResponse;
use serde_json::Value;
use std::sync::Arc;

fn long_document() -> Value {
    let mut document = minimal_agent("long");
    document["description"] = "It is long. ".repeat(4_000).into();
    document
}

fn place(response: &DirectoryResponse) -> *const u8 {
    assert_eq!(response.status, 200);
    response.body.as_ptr()
}

#[tokio::test]
async fn r62_a_long_document_is_made_once_for_each_url_and_format_and_again_for_another_agent() {
    let mut fixture = test_directory(&[long_document(), minimal_agent("short")]);
    let first = fixture.expect_response(get("/agents/long")).await;
    let again = fixture.expect_response(get("/agents/long")).await;
    assert_eq!((place(&first), first.header("etag")), (place(&again), again.header("etag")));
    let fresh = fixture.expect_response(get("/agents/long").header("if-none-match", first.header("etag"))).await;
    assert_eq!(fresh.status, 304);
    let mut elsewhere = get("/agents/long");
    elsewhere.base_url = "https://other.example";
    for other in [
        elsewhere,
        get("/agents/long").header("accept", "application/agent-metadata+json"),
        get("/agents/long/agent.json"),
        get("/agents/long/agent-card.json"),
        get("/agents/long/agent-card.json").header("a2a-version", "0.3"),
        get("/.well-known/agentframework/v1/agents/long?view=summary"),
        get("/.well-known/agentframework/v1/agents/long"),
        get("/agents/long/openapi.json"),
    ] {
        let target = other.target.to_owned();
        let other = fixture.expect_response(other).await;
        let format = |response: &DirectoryResponse| response.header("content-type").to_owned();
        assert_ne!((&other.body, format(&other)), (&first.body, format(&first)), "{target}");
    }
    // The same document, as under another rule.
    let agent = Arc::make_mut(&mut fixture.visibility.agents[0]);
    agent.tags = vec![Arc::from("new")];
    let changed = fixture.expect_response(get("/agents/long")).await;
    assert_ne!(place(&first), place(&changed));
    let short = fixture.expect_response(get("/agents/short")).await;
    assert_ne!(place(&short), place(&fixture.expect_response(get("/agents/short")).await));
}
