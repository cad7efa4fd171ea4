//! `GET /agents` and `/.well-known/agents.json`.

use super::*;

#[tokio::test]
async fn r22_the_list_is_an_array_of_summaries_with_the_gateways_endpoints() {
    let fixture = test_directory(&[translator(), minimal_agent("b")]);
    let list = fixture.get_json("/agents").await;
    assert_eq!(ids(&list), ["b", "translator"]);
    assert_eq!(
        list[1],
        json!({
            "id": "translator",
            "name": "Chinese-English Translator",
            "description": "Translates text. Runs at https://gw.example/agents/translator/invoke for now.",
            "version": "1.2.0",
            "publisher": "ExampleAI Inc.",
            "endpoint": "https://gw.example/agents/translator/invoke",
            "capabilities": ["translation"],
            "tags": ["nlp", "chinese"],
            "supported_languages": ["en", "zh"],
            "status": "active",
        })
    );
}

#[tokio::test]
async fn r11_with_direct_endpoints_documents_show_the_agents_own_endpoints() {
    let socket = json!({"id": "socket", "name": "S", "endpoint": "agent+unix:///run/s.sock"});
    let mut fixture = test_directory(&[translator(), socket]);
    fixture.directory.config.advertised_endpoints = EndpointExposure::Direct;
    let list = fixture.get_json("/agents").await;
    assert_eq!(list[1]["endpoint"], "http://10.0.0.7:8000/translate?key=internal");
    assert_eq!(list[0]["endpoint"], "https://gw.example/agents/socket/invoke", "a socket is of no use to a caller");
    let mut expected = translator();
    expected["operations"][1]["outputs"] = crate::agent::undeclared_schema();
    assert_eq!(fixture.get_json("/agents/translator").await, expected);
}

#[tokio::test]
async fn a_long_list_is_paginated_with_links_to_the_next_page() {
    let documents: Vec<Value> = (0..250).map(|number| minimal_agent(&format!("agent-{number:03}"))).collect();
    let fixture = test_directory(&documents);
    let mut target = "/agents?tag=&per_page=100&q=".to_owned();
    let mut listed_ids = Vec::new();
    for _ in 0..10 {
        let response = fixture.expect_response(get(&target)).await;
        listed_ids.extend(ids(&response.json()).into_iter().map(str::to_owned));
        let Some(next) = response.header("link").strip_suffix(">; rel=\"next\"") else { break };
        target = next.strip_prefix(&format!("<{BASE}")).unwrap().to_owned();
    }
    assert_eq!(listed_ids.len(), 250);
    assert!(listed_ids.is_sorted());
    let first = fixture.expect_response(get("/agents")).await;
    assert_eq!(
        (ids(&first.json()).len(), first.header("link")),
        (100, "<https://gw.example/agents?page=2>; rel=\"next\"")
    );
    let best = fixture.expect_response(get("/agents?top=3")).await;
    assert_eq!((ids(&best.json()).len(), best.header("link")), (3, ""));
    assert_eq!(fixture.get_json("/agents?page=1000000&per_page=1000").await, json!([]));
}

#[tokio::test]
async fn a_link_repeats_the_query_with_delimiters_escaped() {
    let documents: Vec<Value> = (0..3).map(|number| minimal_agent(&format!("a{number}"))).collect();
    let response = test_directory(&documents)
        .expect_response(get("/agents?per_page=1&x=%3E%3B%20%22%0d%0aSet-Cookie:1&page=1"))
        .await;
    assert_eq!(
        response.header("link"),
        "<https://gw.example/agents?per_page=1&x=%3E%3B%20%22%0D%0ASet-Cookie%3A1&page=2>; rel=\"next\""
    );
}

#[tokio::test]
async fn r21_invalid_parameters_are_refused_by_name() {
    let fixture = test_directory(&[translator()]);
    let long = format!("/agents?tags={}", "a,".repeat(65));
    let many = format!("/agents?{}", "a=1&".repeat(300));
    let wordy = format!("/agents?capability={}", "x".repeat(201));
    let refusals = [
        ("/agents?page=0", "page"),
        ("/agents?page=-1", "page"),
        ("/agents?page=%2B1", "page"),
        ("/agents?page=1&page=2", "page"),
        ("/agents?page=99999999999999999999999", "page"),
        ("/agents?per_page=1001", "per_page must be a whole number from 1 to 1000"),
        ("/agents?top=ten", "top"),
        ("/agents?status=asleep", "status must be active"),
        ("/agents?q=a&query=b", "'q' appears twice"),
        ("/agents?q=%", "'q' is not percent-encoded"),
        ("/agents?q=%zz", "'q'"),
        ("/agents?q=%ff", "'q'"),
        ("/agents?tags=%C3%28", "'tags'"),
        (&long, "'tags' is too long"),
        (&wordy, "'capability' is too long"),
        (&many, "more than 272 parameters"),
    ];
    for (target, expected) in refusals {
        let fault = fixture.expect_fault(get(target)).await;
        assert_eq!(fault.code(), FaultCode::InvalidInput, "{target}");
        assert!(fault.message().contains(expected), "{target}: {}", fault.message());
    }
    let endless = format!("/agents?q={}", "a".repeat(9_000));
    assert_eq!(fixture.expect_fault(get(&endless)).await.http_status(), 414);
}

#[tokio::test]
async fn r103_unknown_parameters_are_ignored() {
    let fixture = test_directory(&[translator()]);
    for target in ["/agents?utm_source=x&&=&a", "/agents?page=&top=", "/agents?capabilities=&tag=,,"] {
        assert_eq!(ids(&fixture.get_json(target).await), ["translator"], "{target}");
    }
}

#[test]
fn r21_filters_are_parsed_in_plural_singular_repeated_and_as_lists() {
    let parse = |query: &str| {
        search_filters::filters_from_query(&query_params::QueryParams::parse(Some(query)).unwrap()).unwrap()
    };
    for query in ["capabilities=a,b", "capability=a&capability=b", "capabilities=a&capability=b", "capabilities=a%2Cb"]
    {
        assert_eq!(parse(query).capabilities, ["a", "b"], "{query}");
    }
    for name in ["language", "languages", "supported_language", "supported_languages"] {
        assert_eq!(parse(&format!("{name}=en")).languages, ["en"], "{name}");
    }
    assert_eq!(parse("tag=x+y&tags=%C3%A9").tags, ["x y", "é"]);
    assert_eq!(
        parse("status=ACTIVE,deprecated").status,
        [search::StatusFilter::Active, search::StatusFilter::Deprecated]
    );
    assert_eq!(parse("status=all").status.len(), 3);
}

#[tokio::test]
async fn r60_the_map_lists_each_agents_descriptor_and_is_paginated() {
    let fixture = test_directory(&[translator(), minimal_agent("b"), minimal_agent("c")]);
    assert_eq!(
        fixture.get_json("/.well-known/agents.json").await,
        json!({"agents": {
            "b": "https://gw.example/agents/b/agent.json",
            "c": "https://gw.example/agents/c/agent.json",
            "translator": "https://gw.example/agents/translator/agent.json",
        }})
    );
    let page = fixture.expect_response(get("/.well-known/agents.json?per_page=2")).await;
    assert_eq!(page.header("link"), "<https://gw.example/.well-known/agents.json?per_page=2&page=2>; rel=\"next\"");
    let fault = fixture.expect_fault(get("/.well-known/agents.json?per_page=10001")).await;
    assert_eq!(fault.code(), FaultCode::InvalidInput);
}

#[tokio::test]
async fn r21_a_page_that_ends_early_links_to_the_next_entry_and_no_more_than_top_are_listed() {
    let words: Vec<String> = (0..400).map(|number| format!("word number {number:08}")).collect();
    let documents: Vec<Value> = (0..150)
        .map(|number| {
            let mut document = minimal_agent(&format!("agent-{number:03}"));
            (document["tags"], document["capabilities"]) = (json!(words), json!(words));
            document
        })
        .collect();
    let fixture = test_directory(&documents);
    for (query, all, min_pages) in [("per_page=150", 150, 3), ("top=120", 120, 2), ("page=2&per_page=75", 75, 2)] {
        let (mut target, mut listed, mut pages) = (format!("/agents?{query}"), Vec::new(), 0);
        loop {
            let page = fixture.expect_response(get(&target)).await;
            assert!(page.body.len() <= (1 << 20) + 2, "{target}: {} bytes", page.body.len());
            listed.extend(ids(&page.json()).into_iter().map(str::to_owned));
            pages += 1;
            let Some((_, rest)) = page.header("link").split_once("/agents?") else { break };
            target = format!("/agents?{}", rest.split_once('>').unwrap().0);
        }
        let distinct: std::collections::BTreeSet<_> = listed.iter().collect();
        assert_eq!((listed.len(), distinct.len()), (all, all), "{query}");
        assert!(pages >= min_pages, "{query}: {pages} pages");
    }
}
