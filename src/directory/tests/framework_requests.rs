//! Discovery API of Agent Framework.

use super::*;

const LIST_PATH: &str = "/.well-known/agentframework/v1/agents";

fn documented_agent() -> Value {
    json!({
        "id": "documented", "name": "Documented", "endpoint": "https://documented.inside.example/", "version": "2.0.0",
        "description": "First sentence. Second one.",
        "owner": {"name": "Vision Team", "email": "vision@example.com", "secret": "x"},
        "created_at": "2025-06-12T08:15:00Z", "updated_at": "yesterday",
        "metadata": {"tier": "gold", "status": "overwritten"},
    })
}

#[tokio::test]
async fn r138_the_list_is_an_envelope_of_summaries() {
    let fixture = test_directory(&[documented_agent(), translator()]);
    let list = fixture.get_json(LIST_PATH).await;
    assert_eq!(
        list["agents"][0],
        json!({"id": "documented", "name": "Documented", "summary": "First sentence.", "version": "2.0.0", "tags": []})
    );
    assert_eq!(list["agents"][1]["id"], "translator");
}

#[tokio::test]
async fn r136_the_alias_serves_the_same_documents() {
    let fixture = test_directory(&[documented_agent(), translator()]);
    for rest in ["", "?include=endpoints", "/translator", "/documented?view=summary"] {
        let canonical = fixture.expect_response(get(&format!("{LIST_PATH}{rest}"))).await;
        let alias = fixture.expect_response(get(&format!("/.agent-framework/v1/agents{rest}"))).await;
        assert_eq!((canonical.body, canonical.headers), (alias.body, alias.headers), "{rest}");
    }
}

#[tokio::test]
async fn r137_the_former_paths_redirect_with_308_and_keep_the_query() {
    let fixture = test_directory(&[]);
    for (target, location) in [
        ("/v1/agents", "https://gw.example/.well-known/agentframework/v1/agents"),
        ("/v1/agents?tag=a&tag=b%20c", "https://gw.example/.well-known/agentframework/v1/agents?tag=a&tag=b%20c"),
        ("/v1/agents/unknown?view=full", "https://gw.example/.well-known/agentframework/v1/agents/unknown?view=full"),
    ] {
        let response = fixture.expect_response(get(target)).await;
        assert_eq!((response.status.as_u16(), response.header("location")), (308, location));
    }
}

#[tokio::test]
async fn r140_the_document_is_full_unless_the_caller_requests_a_summary() {
    let fixture = test_directory(&[documented_agent()]);
    let full = fixture.get_json(&format!("{LIST_PATH}/documented")).await;
    assert_eq!(full["owner"], json!({"name": "Vision Team", "email": "vision@example.com"}));
    assert_eq!(full["description"], "First sentence. Second one.");
    assert_eq!(full["created_at"], "2025-06-12T08:15:00Z");
    assert!(full.get("updated_at").is_none(), "an invalid timestamp is omitted");
    assert_eq!(full["metadata"], json!({"tier": "gold", "status": "active", "capabilities": []}));
    assert_eq!(full["capabilities"], json!({}));
    let summary = fixture.get_json(&format!("{LIST_PATH}/documented?view=summary&include=endpoints,later")).await;
    let names: Vec<&String> = summary.as_object().unwrap().keys().collect();
    assert_eq!(names, ["endpoints", "id", "name", "summary", "tags", "version"]);
    assert_eq!(
        fixture.expect_fault(get(&format!("{LIST_PATH}/documented?view=whole"))).await.code(),
        FaultCode::InvalidInput
    );
}

#[tokio::test]
async fn r150_a_partial_document_has_only_the_included_groups() {
    let fixture = test_directory(&[documented_agent()]);
    for (include, groups) in [
        ("", &[][..]),
        ("capabilities", &["capabilities"]),
        ("endpoints", &["endpoints"]),
        ("endpoints,capabilities", &["capabilities", "endpoints"]),
    ] {
        let mut expected = [&["id", "name", "summary", "tags", "version"][..], groups].concat();
        expected.sort_unstable();
        for target in
            [format!("{LIST_PATH}?include={include}"), format!("{LIST_PATH}/documented?view=summary&include={include}")]
        {
            let mut document = fixture.get_json(&target).await;
            if let Some(first) = document.pointer_mut("/agents/0") {
                document = first.take();
            }
            let names: Vec<&String> = document.as_object().unwrap().keys().collect();
            assert_eq!(names, expected, "{target}");
        }
    }
}

#[tokio::test]
async fn r143_endpoints_are_gateway_paths_of_the_agent_and_of_each_operation() {
    let fixture = test_directory(&[translator(), minimal_agent("b")]);
    let agents = fixture.get_json(&format!("{LIST_PATH}?include=endpoints")).await;
    let message_paths = |id: &str| {
        [
            json!({"method": "POST", "path": format!("/agents/{id}/v1/message:send"), "description": "Sends a message to the agent."}),
            json!({"method": "POST", "path": format!("/agents/{id}/v1/message:stream"),
                "description": "Sends a message to the agent, which answers as an event stream."}),
        ]
    };
    let endpoints =
        |own: Value, id: &str| -> Value { own.as_array().unwrap().iter().cloned().chain(message_paths(id)).collect() };
    assert_eq!(
        agents["agents"][0]["endpoints"],
        endpoints(json!([{"method": "POST", "path": "/agents/b/invoke"}]), "b")
    );
    assert_eq!(
        agents["agents"][1]["endpoints"],
        endpoints(
            json!([
                {"method": "POST", "path": "/agents/translator/invoke", "description": "Translates text."},
                {"method": "POST", "path": "/agents/translator/invoke/translateText", "description": "Translates a text."},
                {"method": "POST", "path": "/agents/translator/invoke/detect", "description": "Detects the language of a text."},
            ]),
            "translator"
        )
    );
}

#[tokio::test]
async fn r142_the_owner_is_the_publisher_and_is_omitted_if_unknown() {
    let fixture = test_directory(&[translator(), minimal_agent("b")]);
    assert_eq!(fixture.get_json(&format!("{LIST_PATH}/translator")).await["owner"], json!({"name": "ExampleAI Inc."}));
    assert!(fixture.get_json(&format!("{LIST_PATH}/b")).await.get("owner").is_none());
}

#[tokio::test]
async fn r141_authentication_is_not_part_of_the_document() {
    let fixture = test_directory(&[translator()]);
    assert!(!fixture.expect_response(get(&format!("{LIST_PATH}/translator"))).await.text().contains("authentication"));
}

#[tokio::test]
async fn r139_pages_are_bounded_and_linked() {
    let fixture = test_directory(&[minimal_agent("a"), minimal_agent("b"), minimal_agent("c")]);
    let page = fixture.expect_response(get(&format!("{LIST_PATH}?per_page=2&view=full"))).await;
    assert_eq!(page.json()["agents"].as_array().unwrap().len(), 2);
    assert_eq!(page.header("link"), format!("<{BASE}{LIST_PATH}?per_page=2&view=full&page=2>; rel=\"next\""));
    for query in ["page=0", "per_page=0", "per_page=1001", "view=", "view=summary&view=full", "q=%e2"] {
        let response = fixture.respond(get(&format!("{LIST_PATH}?{query}"))).await;
        assert_eq!(response.is_ok(), query == "view=", "{query}");
    }
}

#[test]
fn a_summary_is_the_first_sentence_up_to_a_maximum_length() {
    for (text, first) in [
        ("One. Two.", "One."),
        ("Version 1.5 is out! Really.", "Version 1.5 is out!"),
        ("  no end\nsecond line", "no end"),
        ("翻译文本。然后更多。", "翻译文本。"),
        ("", ""),
    ] {
        assert_eq!(agent_summary::first_sentence(text), first);
    }
    assert_eq!(agent_summary::first_sentence(&"é".repeat(500)).chars().count(), 200);
}
