//! AIDIP registries: the shapes of lists, pagination, and fetching only the documents that must be fetched.

use super::*;

#[tokio::test]
async fn r16_r22_every_shape_of_a_list_is_parsed() {
    let server = FakeRegistryServer::start().await;
    server.json("/a.json", agent("a")).json("/b.json", agent("b"));
    let mut feed = server.feed(SourceKind::Aidip, "");
    for list in [
        json!([agent("a"), agent("b")]),
        json!({"agents": [agent("a"), agent("b")], "count": 2}),
        json!({"items": [agent("a"), agent("b")]}),
        json!({"entries": [agent("a"), agent("b")]}),
        json!({"agents": {"a": agent("a"), "b": agent("b")}}),
        json!({"a": format!("{}/a.json", server.url), "b": "/b.json"}),
        json!({"agents": {"a": "a.json", "b": "/b.json"}}),
        json!({"agents": ["/a.json", "/b.json"]}),
    ] {
        server.json("/agents", list.clone());
        assert_eq!(ids(&feed.poll().await), ["a", "b"], "{list}");
    }
    server.json("/agents", agent("alone"));
    assert_eq!(ids(&poll_and_acknowledge(&mut server.feed(SourceKind::Aidip, "/agents")).await), ["alone"]);
}

#[tokio::test]
async fn r16_entries_of_existing_registries_are_converted() {
    let server = FakeRegistryServer::start().await;
    let snake_case_card = json!({
        "name": "Snake Card", "description": "", "version": "1", "protocol_version": "0.3.0",
        "url": "https://snake.example/", "preferred_transport": "JSONRPC", "skills": [],
        "default_input_modes": [], "security_schemes": {"key": {"type": "apiKey"}}
    });
    let enveloped = json!({
        "apiVersion": "v1", "kind": "Agent", "metadata": {"name": "team/helper", "version": "2.0"},
        "spec": {"title": "Helper", "description": "Helps", "remote": {"url": "https://helper.example/"}}
    });
    let tool = json!({"apiVersion": "v1", "kind": "MCPServer", "metadata": {"name": "t"}, "spec": {}});
    server.json(
        "/agents",
        json!({"items": [enveloped, tool, snake_case_card, {"agent": agent("wrapped")}], "nextCursor": null}),
    );
    let result = poll_and_acknowledge(&mut server.feed(SourceKind::Aidip, "")).await;
    assert_eq!(ids(&result), ["team-helper", "Snake-Card", "wrapped"]);
    assert_eq!(poll_documents(&result)[0].as_ref().unwrap()["version"], "2.0");
    assert_eq!(poll_documents(&result)[2].as_ref().unwrap()["authentication"]["type"], "api_key");
    assert_eq!(
        unsupported_reasons(&result),
        ["'t': is an MCP server without a remote of type streamable-http (it names none)"]
    );
}

#[tokio::test]
async fn r20_summaries_are_fetched_and_documents_are_not() {
    let server = FakeRegistryServer::start().await;
    server.json("/agents", json!([summary("a"), agent("b")])).json("/agents/a", agent("a"));
    let mut feed = server.feed(SourceKind::Aidip, "");
    assert_eq!(ids(&poll_and_acknowledge(&mut feed).await), ["a", "b"]);
    assert_eq!(server.take_requests(), ["/agents", "/agents/a"]);
    let result = poll_and_acknowledge(&mut feed).await;
    assert!(result.parts.is_empty() && result.error.is_none(), "{result:?}");
}

#[tokio::test]
async fn r62_documents_are_revalidated_and_reported_when_they_change() {
    let server = FakeRegistryServer::start().await;
    let agent_version = |version: &str| {
        let mut agent = agent("a");
        agent["version"] = json!(version);
        agent
    };
    server.put("/agents", Cached("\"list\"", json!([summary("a"), summary("b")])));
    server.put("/agents/a", Cached("\"a1\"", agent_version("1"))).put("/agents/b", Cached("\"b1\"", agent("b")));
    let mut feed = server.feed(SourceKind::Aidip, "");
    poll_and_acknowledge(&mut feed).await;
    server.take_requests();
    assert!(poll_and_acknowledge(&mut feed).await.parts.is_empty());
    assert_eq!(server.take_requests(), ["/agents (conditional)", "/agents/a (conditional)", "/agents/b (conditional)"]);
    // The document changed, and its summary did not.
    server.put("/agents/a", Cached("\"a2\"", agent_version("2")));
    let result = poll_and_acknowledge(&mut feed).await;
    assert_eq!(poll_documents(&result)[0].as_ref().unwrap()["version"], "2");
    assert_eq!(server.take_requests(), ["/agents (conditional)", "/agents/a", "/agents/b (conditional)"]);
}

#[tokio::test]
async fn r62_an_unacknowledged_result_is_reported_again() {
    let server = FakeRegistryServer::start().await;
    server.json("/agents", json!([agent("a")]));
    let mut feed = server.feed(SourceKind::Aidip, "");
    assert_eq!(ids(&feed.poll().await), ["a"]);
    assert_eq!(ids(&feed.poll().await), ["a"]);
    feed.acknowledge();
    assert!(feed.poll().await.parts.is_empty());
    feed.reset();
    assert_eq!(ids(&feed.poll().await), ["a"]);
}

#[tokio::test]
async fn r16_pages_are_followed_by_each_kind_of_cursor() {
    let server = FakeRegistryServer::start().await;
    let mut feed = server.feed(SourceKind::Aidip, "/agents?limit=1");
    for (member, parameter) in [
        ("nextCursor", "cursor"),
        ("next_cursor", "cursor"),
        ("pageToken", "pageToken"),
        ("nextPageToken", "pageToken"),
    ] {
        server.json("/agents?limit=1", json!({"agents": [agent("a")], member: "x y&z"}));
        server.json(&format!("/agents?limit=1&{parameter}=x+y%26z"), json!({"agents": [agent("b")], member: ""}));
        assert_eq!(ids(&feed.poll().await), ["a", "b"], "{member}");
    }
    server.json("/agents", json!({"agents": [agent("a")], "metadata": {"nextCursor": "2", "count": 1}}));
    server.json("/agents?cursor=2", json!({"agents": [agent("b")], "metadata": {"nextCursor": null}}));
    assert_eq!(ids(&poll_and_acknowledge(&mut server.feed(SourceKind::Aidip, "")).await), ["a", "b"]);
}

#[tokio::test]
async fn r62_an_unchanged_page_keeps_its_entries_beside_a_changed_page() {
    let server = FakeRegistryServer::start().await;
    server.put("/agents", Cached("\"1\"", json!({"agents": [agent("a")], "nextCursor": "2"})));
    server.put("/agents?cursor=2", Cached("\"2\"", json!({"agents": [agent("b")]})));
    let mut feed = server.feed(SourceKind::Aidip, "");
    poll_and_acknowledge(&mut feed).await;
    server.put("/agents?cursor=2", Cached("\"3\"", json!({"agents": [agent("c")]})));
    assert_eq!(ids(&poll_and_acknowledge(&mut feed).await), ["a", "c"]);
}

#[tokio::test]
async fn r11_a_relative_endpoint_is_resolved_against_the_registry() {
    let server = FakeRegistryServer::start().await;
    let mut agent_document = agent("a");
    agent_document["endpoint"] = json!("/agents/a/invoke");
    server.json("/agents", json!([agent_document]));
    let result = poll_and_acknowledge(&mut server.feed(SourceKind::Aidip, "")).await;
    assert_eq!(poll_documents(&result)[0].as_ref().unwrap()["endpoint"], format!("{}/agents/a/invoke", server.url));
}

#[tokio::test]
async fn r103_unknown_members_are_kept_verbatim() {
    let server = FakeRegistryServer::start().await;
    let text = r#"{"id": "a",  "name": "a", "endpoint": "https://a.example/", "x-odd": [1.50, {"y": null}]}"#;
    server.put("/agents", Text(format!("[{text}]")));
    let result = poll_and_acknowledge(&mut server.feed(SourceKind::Aidip, "")).await;
    let PartUpdate::Replaced(documents) = &result.parts[0].update else { panic!("{result:?}") };
    assert!(matches!(&documents[0].body, DocumentBody::Text(body) if body == text));
}

#[tokio::test]
async fn r10_revalidations_of_one_poll_are_bounded() {
    let server = FakeRegistryServer::start().await;
    let ids: Vec<String> = (0..300).map(|number| format!("a{number}")).collect();
    server.json("/agents", ids.iter().map(|id| summary(id)).collect());
    for id in &ids {
        server.put(&format!("/agents/{id}"), Cached("\"1\"", agent(id)));
    }
    let mut feed = server.feed(SourceKind::Aidip, "");
    assert_eq!(super::ids(&poll_and_acknowledge(&mut feed).await).len(), 300);
    server.take_requests();
    let mut revalidated = std::collections::HashSet::new();
    for _ in 0..2 {
        assert!(poll_and_acknowledge(&mut feed).await.parts.is_empty());
        let requests = server.take_requests();
        assert_eq!(requests.len(), 1 + 256);
        revalidated.extend(requests);
    }
    assert_eq!(revalidated.len(), 1 + 300, "each document was revalidated");
}
