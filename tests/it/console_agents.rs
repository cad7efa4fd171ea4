//! The console's pages about agents, and its first page.

use crate::support::{
    agent::Agent,
    closed_port::ClosedPort,
    eventually_within,
    gateway::{Gateway, gateway},
};
use serde_json::json;
use std::time::{Duration, Instant};

const HTML: &str = "<script>alert(1)</script>\"'<img src=x>";

/// Gets a page of the console that must exist.
async fn page(gate: &Gateway, path: &str) -> String {
    let response = gate.admin_page(path).await;
    assert_eq!(response.status, 200, "{path}: {}", response.text());
    response.text()
}

/// Whether the list has an agent.
fn lists(page: &str, id: &str) -> bool {
    page.contains(&format!("<th scope=\"row\"><a href=\"/console/agents/{id}\">{id}</a></th>"))
}

fn row_count(page: &str) -> usize {
    page.matches("<th scope=\"row\">").count()
}

#[tokio::test]
async fn ten_thousand_agents_are_listed_in_pages_searched_and_answered_quickly() {
    let echo = Agent::echo().await;
    let mut build = gateway();
    for number in 0..10_000 {
        let mut document = echo.document(&format!("agent-{number:05}"));
        document["name"] = format!("Number {number} of the ÄGENTS").into();
        build = build.document(document);
    }
    let gate = build.start().await;
    let first = page(&gate, "/console/agents").await;
    assert!(row_count(&first) == 100 && lists(&first, "agent-00000") && lists(&first, "agent-00099"));
    assert!(!first.contains("First page") && first.contains("/console/agents?after=agent-00099"), "{first}");
    let second = page(&gate, "/console/agents?after=agent-00099").await;
    assert!(row_count(&second) == 100 && lists(&second, "agent-00100") && lists(&second, "agent-00199"));
    assert!(second.contains("First page"));
    let last = page(&gate, "/console/agents?after=agent-09949").await;
    assert!(row_count(&last) == 50 && !last.contains("Next page"));
    let found = page(&gate, "/console/agents?q=NUMBER+123+of+the+%C3%A4gents").await;
    assert!(row_count(&found) == 1 && lists(&found, "agent-00123"), "{found}");
    let by_id = page(&gate, "/console/agents?q=GENT-0012").await;
    assert!(row_count(&by_id) == 10 && lists(&by_id, "agent-00129"));
    let many = page(&gate, "/console/agents?q=number%209&state=all").await;
    assert!(row_count(&many) == 100 && many.contains("?q=number%209&amp;after="), "the search stays on the next page");
    for path in [
        "/console",
        "/console/agents",
        "/console/agents?q=ber+9999",
        "/console/agents?state=failing",
        "/console/agents/agent-05000",
        "/console/rejected-documents",
    ] {
        let mut elapsed = Duration::MAX;
        // The fastest of three: other tests use the processors too.
        for _ in 0..3 {
            let started = Instant::now();
            page(&gate, path).await;
            elapsed = elapsed.min(started.elapsed());
        }
        println!("{path}: {elapsed:?}");
        assert!(elapsed < Duration::from_millis(500), "{path}: {elapsed:?}");
    }
}

#[tokio::test]
async fn an_agent_behind_an_open_circuit_breaker_is_failing_and_its_calls_say_why() {
    let (echo, closed) = (Agent::echo().await, ClosedPort::new());
    let down = json!({"id": "down", "name": "Down", "endpoint": format!("http://{}/", closed.address),
        "authentication": {"type": "api_key"}});
    let settings = "agents:\n  sources: [agents.json]\n  \
        defaults: {circuit_breaker: {consecutive_failures: 2, open_duration: 10m}}\n";
    let gate = gateway().agent("echo", &echo).document(down).section(settings).start().await;
    assert!(page(&gate, "/console").await.contains("Nothing needs attention."));
    let none = page(&gate, "/console/agents?state=failing").await;
    assert!(none.contains("No agent matches the search") && row_count(&none) == 0, "{none}");
    assert_eq!(gate.invoke("echo", &json!({})).await.status, 200);
    let mut ids = Vec::new();
    for _ in 0..3 {
        let response = gate.invoke("down", &json!({})).await;
        assert!(response.status >= 500);
        ids.push(response.header("x-request-id").unwrap().to_owned());
    }
    let failing = page(&gate, "/console/agents?state=failing").await;
    assert!(lists(&failing, "down") && !lists(&failing, "echo"), "{failing}");
    assert!(failing.contains("<span class=\"badge bad\">open</span>"), "{failing}");
    let overview = page(&gate, "/console").await;
    assert!(overview.contains("Calls do not reach <a href=\"/console/agents/down\">down</a>"), "{overview}");
    assert!(!overview.contains("Nothing needs attention."));
    let down = page(&gate, "/console/agents/down").await;
    for id in &ids {
        assert!(down.contains(&format!("href=\"/console/explain?request={id}\"")), "{id}: {down}");
    }
    assert!(down.contains("failed at agent") && down.contains("refused at agent"), "{down}");
    let other = page(&gate, "/console/agents/echo").await;
    assert!(other.contains("None is remembered.") && other.contains("badge \">closed"), "{other}");
    eventually_within(Duration::from_secs(20), "the counters are read", async || {
        page(&gate, "/console").await.contains("</a> failed 3 of 3 calls in the last 15 minutes.")
    })
    .await;
    assert!(
        page(&gate, "/console/agents/echo").await.contains("aria-label=\"Calls in the last 15 minutes: at most 0.1")
    );
}

#[tokio::test]
async fn a_document_with_html_and_secrets_is_escaped_and_redacted() {
    let echo = Agent::echo().await;
    let mut document = echo.document("hostile");
    document["name"] = HTML.into();
    document["description"] = format!("{HTML} Authorization: Bearer abcdefghijklmnop").into();
    document["tags"] = json!([HTML]);
    document["operations"] = json!([{
        "name": "say",
        "description": HTML,
        "inputs": {"type": "object", "properties": {HTML: {"type": "string"}}},
        "examples": [{"input": {HTML: HTML, "password": "correct horse"}}],
    }]);
    let mut inactive = echo.document("sleeping");
    inactive["status"] = "inactive".into();
    let rejected = json!({"id": HTML, "name": HTML, "endpoint": format!("https://user:hunter2@{HTML}/")});
    let access = "access:\n  grants:\n    - {callers: ['key:team-*'], groups: [ops], agents: [hostile]}\n    \
        - {callers: ['*'], agents: [sleeping]}\n  denials:\n    - {callers: ['key:team-b'], agents: ['*']}\n";
    let build = gateway().access(access).document(document).document(inactive).document(rejected);
    let gate = build.start().await;
    let query = "/console/agents?q=%3Cscript%3E&state=%3Cscript%3E&after=%3Cb";
    let paths = ["/console", "/console/agents", query, "/console/agents/hostile", "/console/rejected-documents"];
    for path in paths {
        let text = page(&gate, path).await;
        for raw in ["<script>alert", "<script>\"", "<img", "hunter2", "abcdefghijklmnop", "correct horse"] {
            assert!(!text.contains(raw), "{path}: {raw}: {text}");
        }
    }
    let hostile = page(&gate, "/console/agents/hostile").await;
    for part in ["&lt;script&gt;alert(1)&lt;/script&gt;", "Input schema", "Output schema: not declared", "Example 1"] {
        assert!(hostile.contains(part), "{part}: {hostile}");
    }
    // Who may call it, with the lines of the configuration.
    for part in [
        "grant <code>access.grants[0]</code>",
        "<code>key:team-*</code>",
        "<code>ops</code>",
        "gatepost.yaml:5",
        "denial <code>access.denials[0]</code>",
        "href=\"/console/agents/hostile/try\"",
    ] {
        assert!(hostile.contains(part), "{part}: {hostile}");
    }
    assert!(!hostile.contains("access.grants[1]"), "the other grant names another agent");
    let inactive = page(&gate, "/console/agents?state=inactive").await;
    assert!(lists(&inactive, "sleeping") && row_count(&inactive) == 1, "{inactive}");
    let overview = page(&gate, "/console").await;
    assert!(overview.contains("One document is rejected") && overview.contains("/console/rejected-documents"));
    let rejected = page(&gate, "/console/rejected-documents").await;
    assert!(rejected.contains("agents.json") && row_count(&rejected) == 1, "{rejected}");
}

#[tokio::test]
async fn an_agent_that_is_not_served_has_no_page() {
    let echo = Agent::echo().await;
    let gate = gateway().agent("echo", &echo).start().await;
    for id in ["other", "%3Cscript%3E", "a%2Fb", "echo%00", "ECHO", &"a".repeat(300)] {
        let response = gate.admin_page(&format!("/console/agents/{id}")).await;
        assert_eq!(response.status, 404, "{id}");
        assert!(!response.text().contains("<script>"), "{id}");
    }
    let page = page(&gate, "/console/rejected-documents").await;
    assert!(page.contains("No document is rejected"), "{page}");
}

#[tokio::test]
async fn a_gateway_without_agents_says_where_agents_come_from() {
    let gate = gateway().start().await;
    assert!(page(&gate, "/console/agents").await.contains("agents.sources"));
    // An invalid query is none.
    assert!(page(&gate, "/console/agents?q=%ff&q=x").await.contains("agents.sources"));
}
