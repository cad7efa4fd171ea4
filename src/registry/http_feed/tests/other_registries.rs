//! Agent Framework, agent:// domains, AI Catalogs and ARD, as their servers respond.

use super::*;

#[tokio::test]
async fn r135_r138_agent_framework_documents_are_fetched_in_full() {
    let server = FakeRegistryServer::start().await;
    let list = "/.well-known/agentframework/v1/agents";
    server.json(list, json!({"agents": [{"id": "a", "name": "A", "summary": "s", "version": "1.0", "tags": []}]}));
    let full = json!({"id": "a", "name": "A", "endpoints": [{"method": "POST", "path": "/v1/message:send"}]});
    server.json(&format!("{list}/a?view=full"), full);
    let result = poll_and_acknowledge(&mut server.feed(SourceKind::AgentFramework, "/")).await;
    assert_eq!(ids(&result), ["a"]);
    assert_eq!(poll_documents(&result)[0].as_ref().unwrap()["endpoint"], format!("{}/v1/message:send", server.url));
}

#[tokio::test]
async fn r139_numbered_pages_are_followed() {
    let entry = |id: &str| json!({"id": id, "name": id, "endpoints": [{"method": "POST", "path": "/x"}]});
    let server = FakeRegistryServer::start().await;
    let list = "/custom/agents";
    for (first, last) in [
        (json!({"page": 1, "per_page": 1, "total": 2}), json!({"page": 2, "per_page": 1, "total": 2})),
        (json!({"page": 1, "per_page": 1, "total_pages": 2}), json!({"page": 2, "per_page": 1, "total_pages": 2})),
    ] {
        let page = |pagination: &Value, id: &str| {
            let mut page = pagination.clone();
            page["agents"] = json!([entry(id)]);
            page
        };
        server.json(list, page(&first, "a")).json(&format!("{list}?page=2&per_page=1"), page(&last, "b"));
        assert_eq!(ids(&poll_and_acknowledge(&mut server.feed(SourceKind::AgentFramework, list)).await), ["a", "b"]);
    }
    for pagination in [
        json!({"page": 1, "per_page": 0, "total": 9}),
        json!({"page": "1"}),
        json!({"page": u64::MAX, "total_pages": u64::MAX}),
    ] {
        let mut page = pagination.clone();
        page["agents"] = json!([entry("a")]);
        server.json(list, page);
        assert_eq!(
            ids(&poll_and_acknowledge(&mut server.feed(SourceKind::AgentFramework, list)).await),
            ["a"],
            "{pagination}"
        );
    }
}

#[tokio::test]
async fn r58_r60_a_domain_is_read_from_its_map_of_agents() {
    let server = FakeRegistryServer::start().await;
    let descriptor =
        json!({"name": "Planner", "version": "1.0", "url": "https://p.example/", "capabilities": [{"name": "plan"}]});
    let map = json!({"agents": {"planner": "/planner/agent.json", "translator": format!("{}/card.json", server.url)}});
    server.json("/.well-known/agents.json", map);
    server.json("/planner/agent.json", descriptor).json("/card.json", card("Translator"));
    let result = poll_and_acknowledge(&mut server.feed(SourceKind::AgentUri, "")).await;
    assert_eq!(ids(&result), ["planner", "translator"]);
    assert_eq!(poll_documents(&result)[1].as_ref().unwrap()["agent_card"]["name"], "Translator");
}

#[tokio::test]
async fn r57_r153_a_single_agent_domain_is_read_from_its_descriptor_or_card() {
    for path in ["/.well-known/agent.json", "/.well-known/agent-card.json"] {
        let server = FakeRegistryServer::start().await;
        server.json(path, card("Alone"));
        let mut feed = server.feed(SourceKind::AgentUri, "");
        assert_eq!(ids(&poll_and_acknowledge(&mut feed).await), ["Alone"], "{path}");
        server.json("/.well-known/agents.json", json!({"agents": {"other": card("Other")}}));
        assert_eq!(
            ids(&poll_and_acknowledge(&mut feed).await),
            ["other"],
            "a map has precedence, even if it appears later"
        );
    }
    let server = FakeRegistryServer::start().await;
    server.json("/x/agent.json", card("Deep"));
    assert_eq!(ids(&poll_and_acknowledge(&mut server.feed(SourceKind::AgentUri, "/x/agent.json")).await), ["Deep"]);
}

#[tokio::test]
async fn r58_a_failing_map_does_not_fall_back_to_a_single_card() {
    let server = FakeRegistryServer::start().await;
    server.json("/.well-known/agents.json", json!({"agents": {"a": card("A"), "b": card("B")}}));
    server.json("/.well-known/agent.json", card("Alone"));
    let mut feed = server.feed(SourceKind::AgentUri, "");
    poll_and_acknowledge(&mut feed).await;
    server.put("/.well-known/agents.json", Status(503));
    let result = poll_and_acknowledge(&mut feed).await;
    assert!(result.parts.is_empty() && result.error.unwrap().contains("503"));
}

#[tokio::test]
async fn r58_a_domain_without_agents_reports_every_url_tried() {
    let server = FakeRegistryServer::start().await;
    let why = server.feed(SourceKind::AgentUri, "").poll().await.error.unwrap();
    for path in ["agents.json", "agent.json", "agent-card.json"] {
        assert!(why.contains(path), "{why}");
    }
}

#[tokio::test]
async fn r59_an_ai_catalog_has_cards_by_url_and_inline() {
    let server = FakeRegistryServer::start().await;
    let media = "application/a2a-agent-card+json";
    let urn = "urn:air:example.com:agent:inline";
    let entries = json!([
        {"identifier": "urn:air:example.com:agent:linked", "type": media, "url": "/cards/linked.json"},
        {"identifier": urn, "type": media, "data": card("Inline")},
        {"identifier": "urn:air:example.com:mcp:x", "type": "application/mcp-server-card+json", "url": "/mcp"},
        {"identifier": "urn:air:example.com:agent:none", "type": media},
    ]);
    server.json(
        "/.well-known/ai-catalog.json",
        json!({"specVersion": "1.0", "host": {"displayName": "x"}, "entries": entries}),
    );
    server.json("/cards/linked.json", card("Linked"));
    let result = poll_and_acknowledge(&mut server.feed(SourceKind::Catalog, "")).await;
    assert_eq!(ids(&result), ["urn-air-example.com-agent-linked", "urn-air-example.com-agent-inline"]);
    assert_eq!(poll_documents(&result)[1].as_ref().unwrap()["identifier"], urn);
    let reasons = rejection_reasons(&result);
    assert!(reasons[0].contains("mcp") && reasons[1].contains("neither a url nor data"), "{reasons:?}");
    assert!(unsupported_reasons(&result).is_empty(), "the card of the MCP server cannot be fetched: {reasons:?}");
}

#[tokio::test]
async fn r59_ard_pages_are_followed() {
    let server = FakeRegistryServer::start().await;
    let item = |name: &str| {
        let identifier = format!("urn:air:x:{name}");
        json!({"identifier": identifier, "type": "application/a2a-agent-card+json", "data": card(name)})
    };
    server.json("/agents", json!({"items": [item("a")], "total": 2, "pageToken": "next"}));
    server.json("/agents?pageToken=next", json!({"items": [item("b")], "total": 2}));
    let result = poll_and_acknowledge(&mut server.feed(SourceKind::Ard, "")).await;
    assert_eq!(ids(&result), ["urn-air-x-a", "urn-air-x-b"]);
}

#[tokio::test]
async fn r108_names_with_the_same_slug_reach_the_catalogue_as_two_documents() {
    let server = FakeRegistryServer::start().await;
    server.json("/.well-known/agents.json", json!({"agents": {"a b": card("A"), "a/b": card("B")}}));
    assert_eq!(ids(&poll_and_acknowledge(&mut server.feed(SourceKind::AgentUri, "")).await), ["a-b", "a-b"]);
}

#[tokio::test]
async fn r62_entries_that_are_no_agents_are_no_mistakes_of_a_catalogue() {
    let server = FakeRegistryServer::start().await;
    let list = |entries: Value| json!({"specVersion": "1.0", "entries": entries});
    let media = "application/a2a-agent-card+json";
    let mut grpc = card("Grpc");
    grpc["preferredTransport"] = json!("GRPC");
    let others = json!([
        {"identifier": "urn:air:x:skill:a", "type": "application/ai-skill", "url": "/skill"},
        {"identifier": "urn:air:x:agent:grpc", "type": media, "data": grpc},
        {"identifier": "urn:air:x:agent:linked", "type": media, "url": "/grpc.json"},
        {"apiVersion": "v1", "kind": "Skill", "metadata": {"name": "s"}, "spec": {}},
    ]);
    server.json("/grpc.json", grpc);
    server.json("/.well-known/ai-catalog.json", list(others.clone()));
    let mut feed = server.feed(SourceKind::Catalog, "");
    let result = poll_and_acknowledge(&mut feed).await;
    let reasons = unsupported_reasons(&result);
    assert_eq!(reasons.len(), 4, "{reasons:?}");
    for (reason, expected) in
        reasons.iter().zip(["of type 'application/ai-skill'", "'GRPC' only", "'GRPC' only", "of kind 'Skill'"])
    {
        assert!(reason.contains(expected), "{reason}");
    }
    // A list that had agents and has only such entries now is no broken list.
    let agent = json!([{"identifier": "urn:air:x:agent:a", "type": media, "data": card("A")}]);
    server.json("/.well-known/ai-catalog.json", list(agent));
    assert_eq!(ids(&poll_and_acknowledge(&mut feed).await).len(), 1);
    server.json("/.well-known/ai-catalog.json", list(others));
    assert_eq!(unsupported_reasons(&poll_and_acknowledge(&mut feed).await).len(), 4);
}

#[tokio::test]
async fn r59_a_source_is_the_url_of_one_card_or_openapi_document() {
    let server = FakeRegistryServer::start().await;
    server.json("/agents/planner/agent-card.json", card("Planner"));
    server.json("/openapi.json", openapi_documents::document());
    for kind in [SourceKind::AgentUri, SourceKind::Catalog] {
        let mut feed = server.feed(kind, "/agents/planner/agent-card.json");
        assert_eq!(ids(&poll_and_acknowledge(&mut feed).await), ["Planner"], "{kind:?}");
        let result = poll_and_acknowledge(&mut server.feed(kind, "/openapi.json")).await;
        assert_eq!(ids(&result), ["Trip-planner"], "{kind:?}");
        assert_eq!(poll_documents(&result)[0].as_ref().unwrap()["endpoint"], format!("{}/api", server.url));
    }
}
