//! Agents from cards, OpenAPI documents and MCP servers: how they are called, and what is said of those that are not.

use crate::support::{
    agent::{Agent, json_response},
    eventually,
    gateway::{Gateway, gateway, send},
};
use serde_json::{Value, json};

/// Starts an agent that answers with the request line and the body that it received.
async fn line_agent() -> Agent {
    Agent::scripted(|request| {
        let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        json_response(&json!({"line": request.head.lines().next(), "body": body}))
    })
    .await
}

/// Returns the URL of the server, without a path.
fn origin(agent: &Agent) -> String {
    agent.url().trim_end_matches("/invoke").to_owned()
}

/// Starts a server with documents by path.
async fn document_server(documents: Vec<(&'static str, Value)>) -> Agent {
    Agent::scripted(move |request| {
        let path = request.head.split(' ').nth(1).unwrap_or_default().to_owned();
        let document = documents.iter().find(|(known, _)| *known == path).map(|(_, document)| document.clone());
        json_response(&document.unwrap_or_else(|| json!({"agents": []})))
    })
    .await
}

fn source(kind: &str, url: &str, rules: &str) -> String {
    format!(
        "agents:\n  sources:\n    - agents.json\n    - {{kind: {kind}, url: '{url}', name: src, poll_interval: 1s, \
         endpoints: ['http://127.0.0.1:*']}}\n{rules}"
    )
}

async fn source_row(gate: &Gateway) -> Value {
    gate.admin_page("/sources").await.json()["sources"][1].clone()
}

#[tokio::test]
async fn r13_each_operation_of_an_openapi_document_reaches_its_own_path() {
    let agent = line_agent().await;
    let body = |schema: Value| json!({"content": {"application/json": {"schema": schema}}});
    let trip =
        json!({"type": "object", "properties": {"to": {"$ref": "#/components/schemas/Place"}}, "required": ["to"]});
    let document = json!({
        "openapi": "3.1.0", "info": {"title": "Trips", "version": "1.0.0"}, "servers": [{"url": format!("{}/api/v1", origin(&agent))}],
        "paths": {
            "/plan": {"post": {"operationId": "plan", "summary": "Plans", "requestBody": body(trip)}},
            "/runs/wait": {"post": {"requestBody": body(json!({}))}},
            "/runs/{id}": {"get": {}},
        },
        "components": {"schemas": {"Place": {"type": "string", "maxLength": 10}}},
    });
    let server = document_server(vec![("/openapi.json", document.clone())]).await;
    let url = format!("{}/openapi.json", origin(&server));
    let from_url = gateway().section(&source("catalog", &url, "")).start().await;
    let from_file = gateway().document(document).start().await;
    for gate in [&from_url, &from_file] {
        eventually("the source is read", async || gate.invoke("Trips", &json!({})).await.status != 503).await;
        for (operation, path) in [("plan", "/api/v1/plan"), ("runs-wait", "/api/v1/runs/wait")] {
            let input = json!({"to": "Rio"});
            let answer = send(gate.post(&format!("/agents/Trips/{operation}")).json(&input)).await.expect_ok();
            assert_eq!(answer, json!({"line": format!("POST {path} HTTP/1.1"), "body": input}));
        }
        let calls = agent.call_count();
        for input in [json!({}), json!({"to": 1}), json!({"to": "longer than ten"})] {
            send(gate.post("/agents/Trips/plan").json(&input)).await.expect_fault(400, "InvalidInput");
        }
        gate.invoke("Trips", &json!({"to": "Rio"})).await.expect_fault(400, "InvalidInput");
        assert_eq!(agent.call_count(), calls);
        let shown = gate.request("GET", "/agents/Trips").header("X-API-Key", gate.key("team-a"));
        assert_eq!(send(shown).await.expect_ok()["operations"][0]["description"], "Plans");
    }
    let findings = source_row(&from_url).await["document_findings"][0].as_str().unwrap().to_owned();
    assert!(findings.contains("GET '/runs/{id}' is left out (the gateway calls operations by POST)"), "{findings}");
}

#[tokio::test]
async fn r30_an_mcp_server_is_listed_only_where_a_rule_lets_its_api_pass() {
    let agent = line_agent().await;
    let card = json!({
        "name": "com.example/weather", "version": "1.0.0", "description": "Weather",
        "remotes": [{"type": "streamable-http", "url": format!("{}/mcp", origin(&agent))}],
    });
    let entries = json!([
        {"identifier": "weather", "type": "application/mcp-server-card+json", "data": card},
        {"identifier": "local", "type": "application/mcp-server-card+json", "data": {"name": "local", "packages": []}},
        {"identifier": "skill", "type": "application/ai-skill", "url": "/skill"},
    ]);
    let server = document_server(vec![("/catalog.json", json!({"specVersion": "1.0", "entries": entries}))]).await;
    let url = format!("{}/catalog.json", origin(&server));
    let config = source("catalog", &url, "");
    let gate = gateway().section(&config).start().await;
    eventually("the catalogue is read", async || source_row(&gate).await["unsupported_documents"] == 3).await;
    let row = source_row(&gate).await;
    let reasons = row["unsupported"].to_string();
    for reason in
        ["weather: protocol: is mcp", "api: {preset: mcp}", "packages that run", "of type 'application/ai-skill'"]
    {
        assert!(reasons.contains(reason), "{reason}: {reasons}");
    }
    assert_eq!((&row["agents"], row.get("error")), (&json!(0), None), "the catalogue is not broken");
    assert_eq!(gate.admin_page("/agents").await.json()["rejected_total"], 0);
    assert_eq!(gate.metric("gatepost_agents{state=\"unsupported\"}").await, Some(3.0));
    gate.invoke("weather", &json!({})).await.expect_fault(404, "NotFound");

    let file = gate.read_file("gatepost.yaml");
    for (rule, served) in [
        ("{agents: [weather], api: {routes: [{methods: [POST], path: /}], base: 'ftp://x/'}}", false),
        ("{agents: [weather], api: {preset: openai}}", false),
        ("{agents: [weather], api: {preset: mcp}}", true),
    ] {
        let rules = format!("{config}  rules:\n    - {rule}\n");
        gate.write_file("gatepost.yaml", &file.replace(&config, &rules));
        if served {
            eventually("the server is an agent", async || gate.invoke("weather", &json!({})).await.status != 404).await;
        }
    }
    assert_eq!(source_row(&gate).await["agents"], 1);
    let keyed = |method: &str, path: &str| gate.request(method, path).header("X-API-Key", gate.key("team-a"));
    let document = send(keyed("GET", "/agents/weather")).await.expect_ok();
    assert_eq!(document["protocol"], "mcp");
    let message = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"});
    let through_api = send(keyed("POST", "/agents/weather/api").json(&message)).await.expect_ok();
    assert_eq!(through_api, json!({"line": "POST /mcp HTTP/1.1", "body": message}));
    // One message works as a call, and what is no message is refused.
    let called = gate.invoke("weather", &message).await.expect_ok();
    assert_eq!(called["body"], message);
    let calls = agent.call_count();
    gate.invoke("weather", &json!({"text": "hi"})).await.expect_fault(400, "InvalidInput");
    assert_eq!(agent.call_count(), calls);
}

#[tokio::test]
async fn r59_nested_catalogues_bring_their_agents_and_lose_only_them() {
    let echo = Agent::echo().await;
    let card = |name: &str| json!({"name": name, "protocolVersion": "0.3.0", "url": echo.url(), "skills": []});
    let entry = |name: &str| json!({"identifier": name, "type": "application/a2a-agent-card+json", "data": card(name)});
    let nested = |url: &str| json!({"identifier": url, "type": "application/ai-catalog+json", "url": url});
    let server = document_server(vec![
        ("/catalog.json", json!({"entries": [entry("top"), nested("/team.json"), nested("/gone.json")]})),
        ("/team.json", json!({"entries": [entry("team"), nested("/catalog.json")]})),
        ("/gone.json", json!({"nothing": 1})),
    ])
    .await;
    let url = format!("{}/catalog.json", origin(&server));
    let gate = gateway().section(&source("catalog", &url, "")).start().await;
    eventually("the nested agent is served", async || gate.invoke("team", &json!({})).await.status == 200).await;
    gate.invoke("top", &json!({})).await.expect_ok();
    eventually("the failure is reported", async || {
        let ready = gate.admin_page("/readyz").await;
        ready.text().contains("1 nested catalogues cannot be read")
    })
    .await;
    let row = source_row(&gate).await;
    assert!(row["unsupported"][0].as_str().unwrap().contains("another entry leads to already"), "{row}");
    assert_eq!((&row["read"], row.get("error")), (&json!(true), None), "the source's own list was read");
    assert!(row["unreadable"].to_string().contains("/gone.json"), "{row}");
    assert!(row["warning"].as_str().unwrap().contains("/gone.json"), "{row}");
}

#[tokio::test]
async fn r41_a_catalogue_of_another_publisher_takes_no_agent_and_no_credential() {
    let (echo, thief) = (Agent::echo().await, line_agent().await);
    let card =
        |name: &str, agent: &Agent| json!({"name": name, "protocolVersion": "0.3.0", "url": agent.url(), "skills": []});
    let a2a = "application/a2a-agent-card+json";
    let entry = |name: &str, agent: &Agent| json!({"identifier": name, "type": a2a, "data": card(name, agent)});
    let link = |name: &str, url: &str| json!({"identifier": name, "type": a2a, "url": url});
    let nested = |url: &str| json!({"identifier": url, "type": "application/ai-catalog+json", "url": url});
    // The source's server shows what is private to the gateway's credential only, and leads to the other server.
    let (private, other_url) = (card("private", &echo), std::sync::Arc::new(std::sync::OnceLock::<String>::new()));
    let (shared, good, shown) =
        (std::sync::Arc::clone(&other_url), entry("good", &echo), link("private", "/private/a"));
    let server = Agent::scripted(move |request| {
        let path = request.head.split(' ').nth(1).unwrap_or_default();
        let is_authorized = request.header("authorization") == Some("Bearer hunter2");
        json_response(&match (path, is_authorized) {
            ("/catalog.json", _) => json!({"entries": [nested(shared.get().unwrap()), good, shown]}),
            ("/private/a" | "/private/b", true) => private.clone(),
            _ => json!({"error": "no"}),
        })
    })
    .await;
    let stolen = format!("{}/private/b", origin(&server));
    let entries = json!([entry("good", &thief), entry("extra", &thief), link("stolen", &stolen)]);
    let other = document_server(vec![("/evil.json", json!({"entries": entries}))]).await;
    other_url.set(format!("{}/evil.json", origin(&other))).unwrap();
    let config = format!(
        "agents:\n  sources:\n    - agents.json\n    - {{kind: catalog, url: \
         '{}/catalog.json', name: src, poll_interval: 1s, credential: {{bearer: 'env:CATALOG_TOKEN'}}, endpoints: \
         ['http://127.0.0.1:*']}}\n",
        origin(&server)
    );
    let gate = gateway().env("CATALOG_TOKEN", "hunter2").section(&config).start().await;
    eventually("the other catalogue is read", async || gate.invoke("extra", &json!({})).await.status == 200).await;
    let answer = gate.invoke("good", &json!({"text": "hi"})).await.expect_ok();
    assert!(answer.get("line").is_none(), "the source's own agent answers: {answer}");
    gate.invoke("private", &json!({})).await.expect_ok();
    gate.invoke("stolen", &json!({})).await.expect_fault(404, "NotFound");
    let rejected = gate.admin_page("/agents").await.text();
    assert!(rejected.contains("belongs to the list src: ") && rejected.contains("which has precedence"), "{rejected}");
    let requests = server.requests();
    let of_thief: Vec<_> = requests.iter().filter(|request| request.head.contains("/private/b")).collect();
    assert!(!of_thief.is_empty() && of_thief.iter().all(|request| request.header("authorization").is_none()));
}

#[tokio::test]
async fn r17_r59_a_published_card_is_an_agent_and_one_without_json_rpc_is_refused() {
    let echo = Agent::echo().await;
    let registry = "registry:\n  publishers:\n    - {callers: ['key:team-a'], endpoints: ['http://127.0.0.1:*']}\n";
    let gate = gateway().section(registry).start().await;
    let card = |transport: &str| {
        json!({
            "name": "Trip Planner", "version": "1.0.0", "protocolVersion": "0.3.0", "url": echo.url(), "capabilities": {},
            "preferredTransport": transport, "skills": [{"id": "plan", "name": "Plan", "description": "Plans", "tags": []}],
        })
    };
    let publish = async |card: &Value| {
        send(gate.request("POST", "/agents").header("X-API-Key", gate.key("team-a")).json(card)).await
    };
    for transport in ["GRPC", "HTTP+JSON"] {
        let refused = publish(&card(transport)).await;
        refused.expect_fault(400, "InvalidInput");
        assert!(
            refused.text().contains(&format!("'{transport}' only (the gateway calls JSONRPC)")),
            "{}",
            refused.text()
        );
    }
    let created = publish(&card("JSONRPC")).await;
    assert_eq!(created.status, 201, "{}", created.text());
    eventually("the agent is served", async || gate.invoke("Trip-Planner", &json!({})).await.status == 200).await;
    let shown = gate.request("GET", "/agents/Trip-Planner/agent-card.json").header("X-API-Key", gate.key("team-a"));
    let shown = send(shown).await.expect_ok();
    assert_eq!(shown["skills"][0]["id"], "plan");
    assert!(!shown.to_string().contains(&echo.url()), "{shown}");
    assert_eq!(publish(&card("JSONRPC")).await.status, 200, "the same card is the same agent");
}
