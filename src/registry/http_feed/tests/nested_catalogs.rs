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

/// What the catalogue has after the polls of a feed.
#[derive(Default)]
struct Served {
    parts: HashMap<String, Vec<String>>,
    lists: Vec<String>,
}

impl Served {
    /// Polls until a result is accepted.
    async fn poll(&mut self, feed: &mut Box<dyn Feed>) -> PollResult {
        let result = poll_and_acknowledge(feed).await;
        assert_eq!(result.error, None);
        for part in &result.parts {
            let name = part.name.to_string();
            match &part.update {
                PartUpdate::Removed => drop(self.parts.remove(&name)),
                PartUpdate::Replaced(_) => drop(self.parts.insert(name, ids_of_part(part))),
                PartUpdate::Unreadable(_) | PartUpdate::ReadableAgain => {}
            }
        }
        self.lists = result.lists.iter().map(ToString::to_string).collect();
        result
    }

    /// Returns the ids of all agents, in order of the lists.
    fn ids(&self) -> Vec<String> {
        self.lists.iter().filter_map(|list| self.parts.get(list)).flatten().cloned().collect()
    }
}

/// Returns the ids of the agents of a part, without the prefix that the entries have.
fn ids_of_part(part: &FeedPart) -> Vec<String> {
    let PartUpdate::Replaced(documents) = &part.update else { return Vec::new() };
    let texts = documents.iter().filter_map(|document| match &document.body {
        DocumentBody::Text(text) => Some(DocumentBody::Text(text.clone())),
        _ => None,
    });
    let ids = texts.map(|text| document_parser::parse_value(text).unwrap()["id"].as_str().unwrap().to_owned());
    ids.map(|id| id.trim_start_matches("urn-air-x-").to_owned()).collect()
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
    let mut served = Served::default();
    served.poll(&mut feed).await;
    assert_eq!(served.ids(), ["a", "c", "b", "d"]);
    assert!(served.poll(&mut feed).await.parts.is_empty());
    server.json("/nested", catalog(vec![agent_entry("b"), agent_entry("e")]));
    assert_eq!(served.poll(&mut feed).await.parts.len(), 1, "the list that changed");
    assert_eq!(served.ids(), ["a", "c", "b", "e", "d"]);
    server.json(ROOT, catalog(vec![agent_entry("a")]));
    served.poll(&mut feed).await;
    assert_eq!((served.ids(), served.parts.len()), (vec!["a".to_owned()], 1));
}

#[tokio::test]
async fn r62_a_nested_catalogue_that_fails_keeps_its_entries_and_affects_no_other() {
    let server = FakeRegistryServer::start().await;
    server.json(ROOT, catalog(vec![agent_entry("a"), catalog_entry("/one"), catalog_entry("/two")]));
    server.json("/one", catalog(vec![agent_entry("b")])).json("/two", catalog(vec![agent_entry("c")]));
    let mut feed = server.feed(SourceKind::Catalog, "");
    let mut served = Served::default();
    served.poll(&mut feed).await;
    assert_eq!(served.ids(), ["a", "b", "c"]);
    for failure in [Status(500), Text("{}".to_owned()), Text("<html>".to_owned()), Huge((16 << 20) + 1)] {
        server.put("/one", failure);
        server.json("/two", catalog(vec![agent_entry("c"), agent_entry("d")]));
        let result = served.poll(&mut feed).await;
        assert_eq!(served.ids(), ["a", "b", "c", "d"]);
        let errors = errors_of_parts(&result);
        assert!(errors[0].contains("1 nested catalogues cannot be read") && errors[0].contains("/one"), "{errors:?}");
        server.json("/one", catalog(vec![agent_entry("b")])).json("/two", catalog(vec![agent_entry("c")]));
        let result = served.poll(&mut feed).await;
        assert_eq!(served.ids(), ["a", "b", "c"]);
        assert!(result.parts.iter().any(|part| matches!(part.update, PartUpdate::Removed)), "the error is over");
    }
}

#[tokio::test]
async fn r62_only_the_own_list_decides_whether_the_first_poll_is_complete() {
    let server = FakeRegistryServer::start().await;
    server.json(ROOT, catalog(vec![agent_entry("a"), catalog_entry("/one")]));
    server.put("/one", Status(503));
    let mut feed = server.feed(SourceKind::Catalog, "");
    let mut served = Served::default();
    let result = served.poll(&mut feed).await;
    assert_eq!(served.ids(), ["a"]);
    let one = result.parts.iter().find(|part| part.name.ends_with("/one")).expect("the catalogue is a part");
    let PartUpdate::Unreadable(why) = &one.update else { panic!("agents from disk stay: {one:?}") };
    assert!(why.contains("/one: status 503"), "{why}");
    assert!(errors_of_parts(&result).iter().any(|why| why.contains("1 nested catalogues cannot be read")));
    server.json("/one", catalog(vec![agent_entry("b")]));
    served.poll(&mut feed).await;
    assert_eq!(served.ids(), ["a", "b"]);
}

#[tokio::test]
async fn r62_a_list_that_is_linked_twice_is_read_once() {
    let server = FakeRegistryServer::start().await;
    let entries = ["#me", "/nested", "/nested#x", "/alias"]
        .map(|url| catalog_entry(&if url.starts_with('#') { format!("{ROOT}{url}") } else { url.to_owned() }));
    server.json(ROOT, catalog(entries.into_iter().chain([agent_entry("a")]).collect()));
    server.json("/nested", catalog(vec![agent_entry("b"), agent_entry("b")]));
    server.put("/alias", Moved(ROOT.to_owned()));
    let mut served = Served::default();
    let result = served.poll(&mut server.feed(SourceKind::Catalog, "")).await;
    assert_eq!(served.ids(), ["a", "b"], "equal documents of a list are one");
    let reasons = unsupported_reasons(&result);
    assert!(reasons.len() == 3 && reasons.iter().all(|why| why.contains("leads to already")), "{reasons:?}");
}

#[tokio::test]
async fn r62_a_catalogue_beyond_its_share_of_entries_fails_alone_and_keeps_its_agents() {
    let server = FakeRegistryServer::start().await;
    server.json(ROOT, catalog(vec![catalog_entry("/evil"), catalog_entry("/good"), agent_entry("a")]));
    server.json("/evil", catalog(vec![agent_entry("e")])).json("/good", catalog(vec![agent_entry("b")]));
    let mut feed = server.feed(SourceKind::Catalog, "");
    let mut served = Served::default();
    served.poll(&mut feed).await;
    assert_eq!(served.ids(), ["a", "e", "b"]);
    // The source may have 1,000 agents, two catalogues 498 each.
    for count in [499, 100_001] {
        server.json("/evil", json!({"entries": vec![1; count]}));
        server.json("/good", catalog(vec![agent_entry(&format!("b{count}"))]));
        let result = served.poll(&mut feed).await;
        assert_eq!(served.ids(), ["a".to_owned(), "e".to_owned(), format!("b{count}")]);
        assert!(errors_of_parts(&result)[0].contains("/evil: more than"), "{result:?}");
        feed.refresh();
    }
}

#[tokio::test]
async fn r62_pages_of_nested_catalogues_count_while_they_are_read() {
    let server = FakeRegistryServer::start().await;
    server.json(ROOT, catalog((0..60).map(|at| catalog_entry(&format!("/many/{at}"))).collect()));
    for at in 0..60 {
        server.json(&format!("/many/{at}"), json!({"entries": [], "nextCursor": "0"}));
        for page in 0..60 {
            let next = json!({"entries": [], "nextCursor": (page + 1).to_string()});
            server.json(&format!("/many/{at}?cursor={page}"), next);
        }
    }
    let result = server.feed(SourceKind::Catalog, "").poll().await;
    assert!(errors_of_parts(&result).iter().any(|why| why.contains("more than 1000 pages")), "{result:?}");
    assert_eq!(server.take_requests().len(), 1_000);
}

#[tokio::test]
async fn r62_places_are_given_to_the_catalogues_of_every_parent_in_turn() {
    let server = FakeRegistryServer::start().await;
    server.json(ROOT, catalog(vec![catalog_entry("/evil"), catalog_entry("/good"), agent_entry("a")]));
    server.json("/evil", catalog((0..99).map(|at| catalog_entry(&format!("/slow/{at}"))).collect()));
    server.json("/good", catalog(vec![catalog_entry("/sub"), agent_entry("b")]));
    server.json("/sub", catalog(vec![agent_entry("c"), catalog_entry("/subsub")]));
    server.json("/subsub", catalog(vec![agent_entry("d")]));
    for at in 0..99 {
        server.json(&format!("/slow/{at}"), catalog(vec![]));
    }
    let mut served = Served::default();
    let result = served.poll(&mut server.feed(SourceKind::Catalog, "")).await;
    assert_eq!(served.ids(), ["a", "b", "c", "d"]);
    assert!(result.warnings[0].contains("50 nested catalogues are left out"), "{:?}", result.warnings);
    assert!(unsupported_reasons(&result).is_empty());
}

#[tokio::test]
async fn r62_a_link_that_fails_is_fetched_in_fewer_polls_and_delays_no_other() {
    let server = FakeRegistryServer::start().await;
    let link = |name: &str| json!({"identifier": format!("urn:air:x:{name}"), "type": "application/a2a-agent-card+json", "url": format!("/cards/{name}")});
    server.json(ROOT, catalog(vec![link("a"), catalog_entry("/evil")]));
    server.json("/evil", catalog((0..20).map(|at| link(&format!("h{at}"))).collect()));
    server.json("/cards/a", card("a"));
    let mut feed = server.feed(SourceKind::Catalog, "");
    let mut requests = Vec::new();
    for _ in 0..8 {
        poll_and_acknowledge(&mut feed).await;
        let all = server.take_requests();
        assert!(all.contains(&"/cards/a".to_owned()), "{all:?}");
        requests.push(all.iter().filter(|path| path.starts_with("/cards/h")).count());
    }
    assert_eq!(requests, [20, 20, 0, 20, 0, 0, 0, 20]);
    feed.refresh();
    poll_and_acknowledge(&mut feed).await;
    assert_eq!(server.take_requests().iter().filter(|path| path.starts_with("/cards/h")).count(), 20);
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
    assert!(result.warnings[0].contains("below more than 3 nested catalogues"), "{:?}", result.warnings);
    assert_eq!(server.take_requests().len(), 4);
    // Many catalogues.
    let many: Vec<Value> = (0..150).map(|at| catalog_entry(&format!("/many/{at}"))).collect();
    server.json(ROOT, catalog(many));
    for at in 0..150 {
        server.json(&format!("/many/{at}"), catalog(vec![]));
    }
    let result = poll_and_acknowledge(&mut server.feed(SourceKind::Catalog, "")).await;
    assert!(result.warnings[0].contains("50 nested catalogues are left out"), "{:?}", result.warnings);
    assert_eq!(server.take_requests().len(), 101);
}

#[tokio::test]
async fn r41_a_nested_catalogue_leads_to_no_forbidden_address() {
    let server = FakeRegistryServer::start().await;
    let forbidden = ["http://169.254.169.254/latest", "http://0.0.0.0/catalog", "file:///etc/passwd"];
    let entries = forbidden.map(catalog_entry).into_iter().chain([agent_entry("a")]).collect();
    server.json(ROOT, catalog(entries));
    let mut feed = server.feed(SourceKind::Catalog, "");
    let result = feed.poll().await;
    assert_eq!(ids(&result), ["urn-air-x-a"]);
    assert!(rejection_reasons(&result)[0].contains("not a URL over HTTP"));
    let errors = errors_of_parts(&result);
    assert!(errors.iter().any(|why| why.contains("2 nested catalogues cannot be read")), "{errors:?}");
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
    let result = feed.poll().await;
    assert_eq!(ids(&result), ["urn-air-x-a"]);
    assert!(errors_of_parts(&result)[0].contains("more than 100 pages"), "{result:?}");
    let pages: std::collections::BTreeSet<String> = server.take_requests().into_iter().collect();
    assert_eq!(pages.len(), 101, "the list and 100 pages");
}
