//! Hidden agents, end to end: publishing and removing an agent that a caller may not see changes no byte that the
//! caller reads.

use super::{get, publish, send_as};
use crate::support::{agent::Agent, gateway::Gateway, gateway::gateway};
use serde_json::{Value, json};

const SECTIONS: &str = "registry:
  publishers:
    - callers: ['key:team-a']
      endpoints: ['http://127.0.0.1:*']
";
const ACCESS: &str = "access:
  grants:
    - {callers: ['key:team-a'], agents: ['*']}
    - {callers: ['key:reader'], agents: ['open-*']}
";
/// Headers that differ between any two responses.
const PER_RESPONSE_HEADERS: [&str; 4] = ["date", "x-request-id", "ratelimit", "x-ratelimit-remaining"];

fn open_documents(agent: &Agent) -> Vec<Value> {
    let mut documents = Vec::new();
    for (id, description) in [
        ("open-merger", "Prepares an acquisition of a company."),
        ("open-weather", "Forecasts rain. Knows nothing of an acquisition."),
        ("open-ledger", "Books the invoices of a company."),
        ("open-projects", "Lists projects."),
    ] {
        let mut document = agent.document(id);
        document["description"] = json!(description);
        documents.push(document);
    }
    documents.extend((0..8).map(|number| agent.document(&format!("open-{number}"))));
    documents
}

/// All that `reader` can read: status, headers and body of every kind of list, search and document.
async fn everything_visible(gate: &Gateway) -> Vec<(String, String)> {
    let mut responses = Vec::new();
    for path in [
        "/agents",
        "/agents?per_page=3",
        "/agents?per_page=3&page=2",
        "/agents?q=acquisition",
        "/agents?q=acquisition&per_page=1",
        "/agents?q=projectx",
        "/agents?q=buying+a+firm&top=3",
        "/agents?tag=secret",
        "/.well-known/agents.json",
        "/.well-known/agents.json?per_page=2",
        "/.well-known/agent.json",
        "/.well-known/agent-card.json",
        "/.well-known/agentframework/v1/agents?q=acquisition&view=full",
        "/openapi.json",
        "/agents/open-merger",
        "/agents/open-merger/agent.json",
        "/agents/open-merger/agent-card.json",
        "/agents/secret",
        "/agents/secret/history",
        "/agents/secret/openapi.json",
    ] {
        responses.push((path.to_owned(), get(gate, "reader", path).await));
    }
    for (path, body) in [
        ("/agents/search", json!({"query": "acquisition"})),
        ("/agents/search", json!({"query": "projectx", "top": 2})),
        ("/agents/search", json!({"query": "acquisition of a company", "skip": 1, "top": 1})),
        ("/agents/search", json!({"filters": {"status": "all"}})),
        ("/agents/resolve", json!({"intent": "acquisition of a company", "policy": {"status": "active"}})),
    ] {
        responses.push((format!("{path} {body}"), send_as(gate, "reader", ("POST", path), Some(&body)).await));
    }
    let to_text = |(request, response): (String, crate::support::gateway_response::GatewayResponse)| {
        let mut headers: Vec<_> = response.headers.iter().collect();
        headers.retain(|(name, _)| !PER_RESPONSE_HEADERS.contains(&name.as_str()));
        let mut body = response.text();
        if let Some(id) = response.header("x-request-id") {
            body = body.replace(id, "ID");
        }
        (request, format!("{} {headers:?} {body}", response.status))
    };
    responses.into_iter().map(to_text).collect()
}

fn assert_equal(one: &[(String, String)], other: &[(String, String)], when: &str) {
    for ((request, one), (_, other)) in one.iter().zip(other) {
        assert_eq!(one, other, "{when}: {request}");
    }
}

#[tokio::test]
async fn r3_a_hidden_agent_changes_no_byte_of_a_list_a_search_or_a_document() {
    let echo = Agent::echo().await;
    for ranking in ["text", "semantic", "hybrid"] {
        let search = format!("directory:\n  search: {{ranking: {ranking}}}\n");
        let mut builder = gateway().caller("reader", &[]).access(ACCESS).section(SECTIONS).section(&search);
        for document in open_documents(&echo) {
            builder = builder.document(document);
        }
        let gate = builder.start().await;
        let before = everything_visible(&gate).await;
        assert!(before[3].1.contains("open-merger") && before[3].1.contains("score"), "{:?}", before[3]);
        let mut secret = echo.document("secret");
        secret["description"] = json!("acquisition company rain projectx ".repeat(40));
        secret["tags"] = json!(["secret", "acquisition"]);
        assert_eq!(publish(&gate, "team-a", &secret).await.status, 201);
        let found = get(&gate, "team-a", "/agents?q=projectx").await.text();
        assert!(found.contains("\"secret\""), "the index has the agent: {found}");
        assert_equal(&before, &everything_visible(&gate).await, &format!("{ranking}: published"));
        secret["description"] = json!("projects and firms");
        assert_eq!(publish(&gate, "team-a", &secret).await.status, 200);
        assert_equal(&before, &everything_visible(&gate).await, &format!("{ranking}: changed"));
        assert_eq!(send_as(&gate, "team-a", ("DELETE", "/agents/secret"), None).await.status, 204);
        assert_equal(&before, &everything_visible(&gate).await, &format!("{ranking}: removed"));
    }
}

#[tokio::test]
async fn a_list_has_a_new_date_when_a_visible_agent_changes() {
    let echo = Agent::echo().await;
    let access = ACCESS.replace("'open-*'", "'open-*', shown");
    let builder = gateway().caller("reader", &[]).access(&access).section(SECTIONS);
    let gate = builder.agent("open-a", &echo).start().await;
    let date = get(&gate, "reader", "/agents").await.header("last-modified").unwrap().to_owned();
    let list_since = async |date: &str| {
        let request = gate.request("GET", "/agents").header("x-api-key", gate.key("reader"));
        crate::support::gateway::send(request.header("if-modified-since", date)).await
    };
    assert_eq!(list_since(&date).await.status, 304);
    assert_eq!(publish(&gate, "team-a", &echo.document("shown")).await.status, 201);
    let changed = list_since(&date).await;
    assert_eq!(changed.status, 200);
    assert!(changed.text().contains("\"shown\""));
    assert_eq!(send_as(&gate, "team-a", ("DELETE", "/agents/shown"), None).await.status, 204);
    let changed = list_since(&date).await;
    assert_eq!(changed.status, 200, "the list is as it was at that date, but its reader may have another one since");
    assert!(!changed.text().contains("\"shown\""));
}

#[tokio::test]
async fn an_agent_that_becomes_visible_or_hidden_is_found_or_not_at_once() {
    let echo = Agent::echo().await;
    let access = "access:\n  grants:\n    - {callers: ['key:team-a'], agents: ['*']}\n    - {callers: ['key:reader'], tags: [open]}\n";
    let gate = gateway().caller("reader", &[]).access(access).section(SECTIONS).start().await;
    let found = async |caller: &str| super::ids(&get(&gate, caller, "/agents?q=rainfall").await.expect_ok());
    let mut document = echo.document("rain");
    document["description"] = json!("Forecasts rainfall.");
    for (tags, visible) in
        [(json!([]), false), (json!(["open"]), true), (json!(["closed"]), false), (json!(["open"]), true)]
    {
        document["tags"] = tags.clone();
        assert!(publish(&gate, "team-a", &document).await.status < 300);
        assert_eq!(found("team-a").await, ["rain"], "{tags}");
        assert_eq!(found("reader").await.len(), usize::from(visible), "{tags}");
    }
    assert_eq!(send_as(&gate, "team-a", ("DELETE", "/agents/rain"), None).await.status, 204);
    assert!(found("reader").await.is_empty() && found("team-a").await.is_empty());
}
