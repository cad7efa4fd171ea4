//! Servers that misbehave: the poll fails or one entry is rejected, and known agents stay.

use super::*;

const KINDS: [(SourceKind, &str); 5] = [
    (SourceKind::Aidip, "/agents"),
    (SourceKind::AgentFramework, "/.well-known/agentframework/v1/agents"),
    (SourceKind::AgentUri, "/.well-known/agents.json"),
    (SourceKind::Catalog, "/.well-known/ai-catalog.json"),
    (SourceKind::Ard, "/agents"),
];

/// Returns a list that every kind accepts.
fn valid_list() -> Value {
    json!({"agents": {"a": agent("a"), "b": agent("b")}})
}

#[tokio::test]
async fn r62_an_unreadable_list_fails_the_poll_of_every_kind() {
    for (kind, path) in KINDS {
        let server = FakeRegistryServer::start().await;
        let text = valid_list().to_string();
        server.json(path, valid_list());
        let mut feed = server.feed(kind, "");
        assert_eq!(ids(&poll_and_acknowledge(&mut feed).await), ["a", "b"]);
        for (response, reason) in [
            (Status(500), "500"),
            (Status(404), "404"),
            (Status(204), "204"),
            (Half(text.clone()), ""),
            (Text(text[..text.len() / 2].to_owned()), "truncated"),
            (Text("<html>".to_owned()), "neither"),
            (Text(String::new()), "empty"),
            (Text("null".to_owned()), "neither"),
            (Text("\"agents\"".to_owned()), "neither"),
            (Text("{}".to_owned()), "no list"),
            (Text(r#"{"error":{"code":"Internal","message":"x"}}"#.to_owned()), "no list"),
            (Text(r#"{"agents": null}"#.to_owned()), "no list"),
            (Text(r#"{"agents": [], "agents": []}"#.to_owned()), "twice"),
            (Text(format!("{text}{text}")), "after its end"),
            (Text("[".repeat(100_000)), ""),
            (Huge((16 << 20) + 1), "longer than"),
            (Moved(path.to_owned()), ""),
            (Moved("http://169.254.169.254/latest/meta-data".to_owned()), ""),
        ] {
            server.put(path, response);
            let result = poll_and_acknowledge(&mut feed).await;
            assert!(result.parts.is_empty(), "{kind:?} {result:?}");
            assert!(result.error.as_ref().is_some_and(|why| why.contains(reason)), "{kind:?} {reason}: {result:?}");
            server.json(path, valid_list());
            let result = poll_and_acknowledge(&mut feed).await;
            assert!(result.parts.is_empty() && result.error.is_none(), "{kind:?} {result:?}");
        }
    }
}

#[tokio::test]
async fn r51_remote_documents_cannot_expose_a_local_runtime() {
    for (kind, path) in KINDS {
        let server = FakeRegistryServer::start().await;
        let agent_at = |endpoint: &str| {
            let mut agent = agent("local");
            agent["endpoint"] = json!(endpoint);
            agent
        };
        let card = json!({
            "name": "local", "url": "agent+local://inner", "preferredTransport": "JSONRPC", "protocolVersion": "0.3.0",
            "version": "1", "capabilities": {}, "skills": [],
        });
        let descriptor = json!({"name": "local", "version": "1", "capabilities": [], "url": "agent+local://inner"});
        for document in [agent_at("agent+local://inner"), card, descriptor] {
            server.json(path, json!({"agents": {"a": agent("a"), "local": document}}));
            let result = poll_and_acknowledge(&mut server.feed(kind, "")).await;
            assert_eq!(ids(&result), ["a"], "{kind:?} {document}");
            let reasons = rejection_reasons(&result).concat();
            assert!(reasons.contains("of the gateway's own machine"), "{kind:?} {document}: {reasons}");
        }
    }
}

#[tokio::test]
async fn r74_an_invalid_entry_affects_only_itself_in_every_kind() {
    for (kind, path) in KINDS {
        let server = FakeRegistryServer::start().await;
        let mut feed = server.feed(kind, "");
        for (entry, reason) in [
            ("7", "must be an object, not a number"),
            ("null", "must be an object, not null"),
            ("[]", "must be an object, not an array"),
            ("{", ""),
            (r#"{"id": "x", "version": 3.1.4}"#, "'x': version: 3.1.4 is not JSON; write it in quotes: \"3.1.4\""),
            (r#"{"id": "x", "id": "y", "endpoint": ""}"#, "'x': "),
            (r#"{"name": "n", "skills": [], "url": "https://n.example/", "preferredTransport": "GRPC"}"#, "'n': "),
            (r#""ftp://x.example/card""#, "not a URL over HTTP"),
            (r#""http://""#, "not a URL over HTTP"),
            (
                r#"{"identifier": "urn:air:x:y", "type": "application/mcp-server-card+json", "url": "/x"}"#,
                "cannot be fetched",
            ),
            (r#"{"identifier": "urn:air:x:y", "type": "application/ai-skills+zip", "url": "/x"}"#, "not an agent"),
            (r#"{"name": "u", "skills": [7], "url": "https://u.example/"}"#, "skills[0]: must be an object"),
        ] {
            let list = format!(r#"{{"agents": [{}, {entry}, {}]}}"#, agent("a"), agent("b"));
            server.put(path, Text(list));
            let result = feed.poll().await;
            if entry == "{" {
                assert!(result.error.is_some(), "an open bracket makes the whole list malformed");
                continue;
            }
            assert_eq!(ids(&result), ["a", "b"], "{kind:?} {entry}");
            let reasons = rejection_reasons(&result);
            assert!(reasons.len() == 1 && reasons[0].contains(reason), "{kind:?} {reason}: {reasons:?}");
        }
    }
}

#[tokio::test]
async fn r62_a_failed_page_fails_the_poll() {
    for (kind, path) in KINDS {
        let server = FakeRegistryServer::start().await;
        server.json(path, json!({"agents": [agent("a")], "nextCursor": "2"}));
        let second = format!("{path}?cursor=2");
        server.json(&second, json!({"agents": [agent("b")]}));
        let mut feed = server.feed(kind, "");
        assert_eq!(ids(&poll_and_acknowledge(&mut feed).await), ["a", "b"]);
        for response in [Status(500), Text("{".to_owned()), Half(valid_list().to_string()), Json(json!({"agents": 1}))]
        {
            server.put(&second, response);
            let result = poll_and_acknowledge(&mut feed).await;
            assert!(result.error.is_some() && result.parts.is_empty(), "{result:?}");
        }
    }
}

#[tokio::test]
async fn r62_cyclic_and_endless_cursors_fail_the_poll() {
    let server = FakeRegistryServer::start().await;
    let page = |next: &str| json!({"agents": [agent("a")], "nextCursor": next});
    server.json("/agents", page("2")).json("/agents?cursor=2", page("3")).json("/agents?cursor=3", page("2"));
    let why = server.feed(SourceKind::Aidip, "").poll().await.error.unwrap();
    assert!(why.contains("read already"), "{why}");
    for number in 0..1_001 {
        server.json(&format!("/agents?cursor={number}"), page(&(number + 1).to_string()));
    }
    server.json("/agents", page("0"));
    let why = server.feed(SourceKind::Aidip, "").poll().await.error.unwrap();
    assert!(why.contains("1000 pages"), "{why}");
    server.json("/agents", json!({"agents": [], "nextCursor": "x".repeat(5_000)}));
    let why = server.feed(SourceKind::Aidip, "").poll().await.error.unwrap();
    assert!(why.contains("4096"), "{why}");
    for odd in [json!([]), json!({"a": 1})] {
        server.json("/agents", json!({"agents": [agent("a")], "nextCursor": odd}));
        assert_eq!(ids(&server.feed(SourceKind::Aidip, "").poll().await), ["a"]);
    }
}

#[tokio::test]
async fn r62_a_document_that_fails_to_refresh_stays_and_is_reported() {
    let server = FakeRegistryServer::start().await;
    server.json("/agents", json!([summary("a"), summary("b")]));
    server.json("/agents/a", agent("a")).json("/agents/b", agent("b"));
    let mut feed = server.feed(SourceKind::Aidip, "");
    poll_and_acknowledge(&mut feed).await;
    let garbage =
        [Text("garbage".to_owned()), Text(agent("a").to_string()[..40].to_owned()), Json(json!({"error": "x"}))];
    let responses = [Status(500), Status(404), Half(agent("a").to_string()), Huge((16 << 20) + 1)];
    for response in responses.into_iter().chain(garbage) {
        server.put("/agents/a", response);
        let result = poll_and_acknowledge(&mut feed).await;
        assert_eq!(result.error, None);
        let updates: Vec<_> = result.parts.iter().map(|part| (&*part.name, &part.update)).collect();
        let reported = matches!(
            updates.as_slice(),
            [(name, PartUpdate::Unreadable(why))] if name.ends_with("(documents)") && why.contains("1 documents")
        );
        assert!(reported, "{updates:?}");
        assert_eq!(poll_and_acknowledge(&mut feed).await.parts.len(), 0, "reported once");
        server.json("/agents/a", agent("a"));
        // After two failures, the link is not fetched in the next poll.
        assert_eq!(poll_and_acknowledge(&mut feed).await.parts.len(), 0);
        let result = poll_and_acknowledge(&mut feed).await;
        assert!(matches!(result.parts.as_slice(), [FeedPart { update: PartUpdate::Removed, .. }]), "{result:?}");
    }
}

#[tokio::test]
async fn r12_a_document_that_becomes_invalid_is_not_served_as_before() {
    let server = FakeRegistryServer::start().await;
    server.json("/.well-known/agents.json", json!({"agents": {"a": "/a.json", "b": "/b.json"}}));
    server.json("/a.json", card("A")).json("/b.json", card("B"));
    let mut feed = server.feed(SourceKind::AgentUri, "");
    assert_eq!(ids(&poll_and_acknowledge(&mut feed).await), ["a", "b"]);
    let mut closed = card("A");
    closed["authentication"] = json!({"schemes": ["Riddle"]});
    server.json("/a.json", closed);
    let result = poll_and_acknowledge(&mut feed).await;
    assert_eq!(ids(&result), ["b"]);
    assert!(rejection_reasons(&result)[0].contains("'Riddle'"));
}

#[test]
fn r62_entries_are_counted_before_they_are_stored() {
    let commas =
        |count: usize| list_parser::parse_page(&base(), &format!("[{}]", ",".repeat(count)).into()).unwrap_err();
    assert!(commas(300_000).contains("at most 200000"), "{}", commas(300_000));
    assert!(commas(2_000_000).contains("more than 1000000"));
    let members = format!("{{\"agents\": {{{}}}}}", "\"a\":,".repeat(1_100_000));
    assert!(list_parser::parse_page(&base(), &members.into()).unwrap_err().contains("more than 1000000"));
}

#[tokio::test]
async fn r74_a_document_that_was_never_fetched_is_rejected_by_name() {
    let server = FakeRegistryServer::start().await;
    server.json("/agents", json!([summary("a"), summary("b"), summary("c"), summary("d")]));
    server.json("/agents/b", agent("b")).put("/agents/c", Text("{\"version\": 1.2.3}".to_owned()));
    server.put("/agents/d", Text(format!("{{\"x\": \"{}\"}}", "y".repeat(1 << 20))));
    let result = server.feed(SourceKind::Aidip, "").poll().await;
    assert_eq!(ids(&result), ["b"]);
    let reasons = rejection_reasons(&result);
    assert!(reasons[0].contains("/agents/a'") && reasons[0].contains("404"), "{reasons:?}");
    assert!(reasons[1].contains("\"1.2.3\""), "{reasons:?}");
    assert!(reasons[2].contains("at most 1048576"), "{reasons:?}");
}

#[tokio::test]
async fn r61_links_to_forbidden_addresses_are_never_followed() {
    let server = FakeRegistryServer::start().await;
    let links = ["http://169.254.169.254/card", "http://10.0.0.1/card", "https://[fe80::1]/card", "file:///etc/passwd"];
    let map: serde_json::Map<_, _> = links.iter().map(|url| ((*url).to_owned(), json!(url))).collect();
    server.json("/.well-known/agents.json", json!({"agents": map}));
    let result = server.feed(SourceKind::AgentUri, "").poll().await;
    assert_eq!(rejection_reasons(&result).len(), 4, "{:?}", poll_documents(&result));
}

#[tokio::test]
async fn r74_a_list_without_usable_entries_keeps_previous_agents() {
    let server = FakeRegistryServer::start().await;
    server.json("/agents", json!([1, 2]));
    let mut feed = server.feed(SourceKind::Aidip, "");
    assert_eq!(
        rejection_reasons(&poll_and_acknowledge(&mut feed).await).len(),
        2,
        "without previous agents, every reason is reported"
    );
    server.json("/agents", json!([agent("a")]));
    poll_and_acknowledge(&mut feed).await;
    server.json("/agents", json!([1, 2]));
    let result = poll_and_acknowledge(&mut feed).await;
    assert!(result.parts.is_empty() && result.error.unwrap().contains("none of the 2 entries"));
    server.json("/agents", json!([]));
    assert_eq!(poll_documents(&poll_and_acknowledge(&mut feed).await).len(), 0, "an empty list is accepted");
}

#[tokio::test]
async fn r10_duplicate_ids_are_kept_and_duplicate_map_keys_rejected() {
    let server = FakeRegistryServer::start().await;
    server.json("/agents", json!([agent("a"), agent("a")]));
    assert_eq!(ids(&server.feed(SourceKind::Aidip, "").poll().await), ["a", "a"]);
    let (one, other) = (agent("a"), agent("b"));
    server.put("/agents", Text(format!(r#"{{"agents": {{"x": {one}, "x": {other}, "y": {one}}}}}"#)));
    let result = server.feed(SourceKind::Aidip, "").poll().await;
    assert_eq!(ids(&result), ["a"]);
    assert!(rejection_reasons(&result).iter().all(|why| why.contains("'x': the name appears twice")));
}

#[tokio::test]
async fn r74_a_hostile_id_cannot_escape_the_registrys_path() {
    let server = FakeRegistryServer::start().await;
    server.json("/agents", json!([summary("../admin"), summary(".."), summary("a?b#c"), summary("%2e%2e")]));
    let result = server.feed(SourceKind::Aidip, "").poll().await;
    let requests = server.take_requests();
    assert!(requests.iter().all(|path| path == "/agents" || path.starts_with("/agents/")), "{requests:?}");
    assert!(requests.contains(&"/agents/..%2Fadmin".to_owned()) && requests.contains(&"/agents/a%3Fb%23c".to_owned()));
    let agents = poll_documents(&result).into_iter().flatten();
    assert!(agents.into_iter().all(|document| Agent::from_document(&document, [0; 32]).is_err()));
}
