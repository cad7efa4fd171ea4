//! Catalogues that lead to further catalogues: by link and inline, in circles, too many, and out of reach.

use super::*;

const CATALOG: &str = "application/ai-catalog+json";
const ROOT: &str = "/.well-known/ai-catalog.json";

fn agent_entry(name: &str) -> Value {
    json!({"identifier": format!("urn:air:x:{name}"), "type": "application/a2a-agent-card+json", "data": card(name)})
}

fn catalog_entry(url: &str) -> Value {
    json!({"identifier": format!("urn:air:x:catalog:{url}"), "type": CATALOG, "url": url})
}

fn catalog(entries: Vec<Value>) -> Value {
    json!({"specVersion": "1.0", "entries": entries})
}

fn errors_of_parts(result: &PollResult) -> Vec<String> {
    let errors = result.parts.iter().filter_map(|part| match &part.update {
        PartUpdate::Unreadable(why) => Some(why.clone()),
        _ => None,
    });
    errors.collect()
}

#[tokio::test]
async fn r59_nested_catalogues_are_followed_by_link_and_inline() {
    let server = FakeRegistryServer::start().await;
    let inline = json!({"identifier": "urn:air:x:inline", "type": CATALOG, "data": catalog(vec![agent_entry("c"), catalog_entry("/deep")])});
    server.json(ROOT, catalog(vec![agent_entry("a"), catalog_entry("/nested"), inline]));
    server.json("/nested", catalog(vec![agent_entry("b")])).json("/deep", catalog(vec![agent_entry("d")]));
    let mut feed = server.feed(SourceKind::Catalog, "");
    let result = poll_and_acknowledge(&mut feed).await;
    assert_eq!(ids(&result), ["urn-air-x-a", "urn-air-x-c", "urn-air-x-b", "urn-air-x-d"]);
    let again = poll_and_acknowledge(&mut feed).await;
    assert!(again.parts.is_empty() && again.error.is_none(), "{again:?}");
    server.json("/nested", catalog(vec![agent_entry("b"), agent_entry("e")]));
    assert_eq!(ids(&poll_and_acknowledge(&mut feed).await).len(), 5);
    server.json(ROOT, catalog(vec![agent_entry("a")]));
    assert_eq!(ids(&poll_and_acknowledge(&mut feed).await), ["urn-air-x-a"]);
}

#[tokio::test]
async fn r62_a_nested_catalogue_that_fails_keeps_its_entries_and_affects_no_other() {
    let server = FakeRegistryServer::start().await;
    server.json(ROOT, catalog(vec![agent_entry("a"), catalog_entry("/one"), catalog_entry("/two")]));
    server.json("/one", catalog(vec![agent_entry("b")])).json("/two", catalog(vec![agent_entry("c")]));
    let mut feed = server.feed(SourceKind::Catalog, "");
    assert_eq!(ids(&poll_and_acknowledge(&mut feed).await).len(), 3);
    for failure in [Status(500), Text("{}".to_owned()), Text("<html>".to_owned()), Huge((16 << 20) + 1)] {
        server.put("/one", failure);
        server.json("/two", catalog(vec![agent_entry("c"), agent_entry("d")]));
        let result = poll_and_acknowledge(&mut feed).await;
        assert_eq!(ids(&result).len(), 4, "{result:?}");
        let errors = errors_of_parts(&result);
        assert!(errors[0].contains("1 nested catalogues cannot be read") && errors[0].contains("/one"), "{errors:?}");
        server.json("/one", catalog(vec![agent_entry("b")])).json("/two", catalog(vec![agent_entry("c")]));
        let result = poll_and_acknowledge(&mut feed).await;
        assert_eq!(ids(&result).len(), 3, "{result:?}");
        assert!(result.parts.iter().any(|part| matches!(part.update, PartUpdate::Removed)), "the error is over");
    }
}

#[tokio::test]
async fn r62_the_first_polls_wait_for_a_nested_catalogue_that_was_never_read() {
    let server = FakeRegistryServer::start().await;
    server.json(ROOT, catalog(vec![agent_entry("a"), catalog_entry("/one")]));
    server.put("/one", Status(503));
    let mut feed = server.feed(SourceKind::Catalog, "");
    for _ in 0..3 {
        assert!(feed.poll().await.error.unwrap().contains("still being fetched"));
    }
    let result = poll_and_acknowledge(&mut feed).await;
    assert_eq!(ids(&result), ["urn-air-x-a"]);
    assert!(errors_of_parts(&result)[0].contains("503"));
}

#[tokio::test]
async fn r62_circles_depth_and_numbers_of_catalogues_are_bounded() {
    let server = FakeRegistryServer::start().await;
    // A circle, and two entries for one catalogue.
    server.json(ROOT, catalog(vec![catalog_entry("/a"), catalog_entry("/a"), agent_entry("x")]));
    server.json("/a", catalog(vec![catalog_entry(ROOT), catalog_entry("/a"), agent_entry("y")]));
    let result = poll_and_acknowledge(&mut server.feed(SourceKind::Catalog, "")).await;
    assert_eq!(ids(&result), ["urn-air-x-x", "urn-air-x-y"]);
    let reasons = unsupported_reasons(&result);
    assert!(!reasons.is_empty() && reasons.iter().all(|why| why.contains("leads to already")), "{reasons:?}");
    assert_eq!(server.take_requests(), [ROOT, "/a"]);
    // An endless chain.
    server.json(ROOT, catalog(vec![catalog_entry("/0")]));
    for at in 0..10 {
        server.json(
            &format!("/{at}"),
            catalog(vec![agent_entry(&at.to_string()), catalog_entry(&format!("/{}", at + 1))]),
        );
    }
    let result = poll_and_acknowledge(&mut server.feed(SourceKind::Catalog, "")).await;
    assert_eq!(ids(&result).len(), 3);
    assert!(unsupported_reasons(&result)[0].contains("below more than 3 nested catalogues"));
    assert_eq!(server.take_requests().len(), 4);
    // Many catalogues.
    let many: Vec<Value> = (0..150).map(|at| catalog_entry(&format!("/many/{at}"))).collect();
    server.json(ROOT, catalog(many));
    for at in 0..150 {
        server.json(&format!("/many/{at}"), catalog(vec![]));
    }
    let result = poll_and_acknowledge(&mut server.feed(SourceKind::Catalog, "")).await;
    assert_eq!(unsupported_reasons(&result).len(), 50);
    assert_eq!(server.take_requests().len(), 101);
}

#[tokio::test]
async fn r41_a_nested_catalogue_leads_to_no_forbidden_address() {
    let server = FakeRegistryServer::start().await;
    let forbidden = ["http://169.254.169.254/latest", "http://0.0.0.0/catalog", "file:///etc/passwd"];
    let entries = forbidden.map(catalog_entry).into_iter().chain([agent_entry("a")]).collect();
    server.json(ROOT, catalog(entries));
    let mut feed = server.feed(SourceKind::Catalog, "");
    let mut result = feed.poll().await;
    while result.error.is_some() {
        result = feed.poll().await;
    }
    assert_eq!(ids(&result), ["urn-air-x-a"]);
    assert!(rejection_reasons(&result)[0].contains("not a URL over HTTP"));
    assert!(errors_of_parts(&result)[0].contains("2 nested catalogues cannot be read"), "{result:?}");
}

#[tokio::test]
async fn r62_an_inline_catalogue_that_is_malformed_affects_only_itself() {
    let server = FakeRegistryServer::start().await;
    let inline = |data: Value| json!({"identifier": "urn:air:x:i", "type": CATALOG, "data": data});
    let nested = (0..20).fold(catalog(vec![agent_entry("deep")]), |inner, _| catalog(vec![inline(inner)]));
    server
        .json(ROOT, catalog(vec![inline(json!({"entries": 1})), inline(json!("x")), inline(nested), agent_entry("a")]));
    let result = poll_and_acknowledge(&mut server.feed(SourceKind::Catalog, "")).await;
    assert_eq!(ids(&result), ["urn-air-x-a", "urn-air-x-deep"]);
    assert_eq!(rejection_reasons(&result).len(), 2);
}

#[tokio::test]
async fn r62_a_nested_catalogue_without_an_end_is_not_read_to_the_end() {
    let server = FakeRegistryServer::start().await;
    server.json(ROOT, catalog(vec![agent_entry("a"), catalog_entry("/paged")]));
    server.json("/paged", json!({"entries": [agent_entry("first")], "pageToken": "1"}));
    for page in 1..200 {
        let next = (page + 1).to_string();
        server.json(&format!("/paged?pageToken={page}"), json!({"entries": [agent_entry(&next)], "pageToken": next}));
    }
    let mut feed = server.feed(SourceKind::Catalog, "");
    let mut result = feed.poll().await;
    while result.error.is_some() {
        result = feed.poll().await;
    }
    assert_eq!(ids(&result), ["urn-air-x-a"]);
    assert!(errors_of_parts(&result)[0].contains("more than 100 pages"), "{result:?}");
    let pages: std::collections::BTreeSet<String> = server.take_requests().into_iter().collect();
    assert_eq!(pages.len(), 101, "the list and 100 pages");
}
