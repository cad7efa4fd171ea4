//! Readiness: a gateway that does not know its agents yet says so, and does not answer 404 to agents that may exist.

use crate::support::{
    agent::{Agent, Step, changeable_agent, http_response, json_response},
    closed_port::ClosedPort,
    eventually,
    gateway::{Gateway, GatewayBuilder, gatepost_command, gateway, send},
    gateway_response::GatewayResponse,
};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};

type CurrentResponse = Arc<Mutex<Vec<Step>>>;

/// Starts a registry whose response can be changed at any time; at first it fails.
async fn failing_registry() -> (Agent, CurrentResponse) {
    changeable_agent(http_response("500 Internal Server Error", "text/plain", "down")).await
}

fn source(registry: &Agent, settings: &str) -> String {
    let url = registry.url();
    format!(
        "{{kind: aidip, url: '{url}', name: reg, poll_interval: 1s, fetch_timeout: 2s, \
         endpoints: ['http://127.0.0.1:*']{settings}}}"
    )
}

fn agents_section(registry: &Agent, settings: &str) -> String {
    format!("agents:\n  sources:\n    - agents.json\n    - {}\n", source(registry, settings))
}

fn respond(response: &CurrentResponse, documents: &Value) {
    *response.lock().unwrap() = json_response(documents);
}

/// Answers of every way to an agent: calls, pipelines, WebSockets, documents and names.
async fn answers(gate: &Gateway, caller: &str, id: &str) -> Vec<GatewayResponse> {
    let request = |method: &str, path: &str| gate.request(method, path).header("x-api-key", gate.key(caller));
    let name = json!({"uri": format!("agent://{}/{id}", gate.address())});
    let pipeline = json!({"steps": [{"agent": id}], "input": {}});
    let invoke = format!("/agents/{id}/invoke");
    let handshake = [
        ("connection", "upgrade"),
        ("upgrade", "websocket"),
        ("sec-websocket-version", "13"),
        ("sec-websocket-key", "AAAAAAAAAAAAAAAAAAAAAA=="),
    ];
    let websocket =
        handshake.into_iter().fold(request("GET", &invoke), |request, (name, value)| request.header(name, value));
    let mut answers = Vec::new();
    for request in [
        request("POST", &invoke).json(&json!({})),
        request("POST", &invoke).header("idempotency-key", "one").json(&json!({})),
        websocket,
        request("GET", &format!("/agents/{id}")),
        request("GET", &format!("/agents/{id}/agent.json")),
        request("GET", &format!("/agents/{id}/.well-known/agent-card.json")),
        request("POST", "/resolve").json(&name),
        request("POST", "/pipelines/invoke").json(&pipeline),
    ] {
        answers.push(send(request).await);
    }
    answers
}

async fn not_ready_reasons(gate: &Gateway) -> Value {
    let page = gate.admin_page("/readyz").await;
    assert_eq!(page.status == 200, page.json()["ready"] == true, "{}", page.text());
    page.json()["reasons"].clone()
}

#[tokio::test]
async fn until_each_required_source_was_read_the_gateway_is_not_ready_and_unknown_agents_are_503() {
    let echo = Agent::echo().await;
    let (registry, response) = failing_registry().await;
    let gate = gateway()
        .agent("near", &echo)
        .agent("hidden", &echo)
        .caller("outsider", &[])
        .access("access:\n  grants:\n    - {callers: ['key:team-a'], agents: ['near', 'far']}\n    - {callers: ['key:outsider'], agents: ['else']}\n")
        .section(&agents_section(&registry, ""))
        .start()
        .await;
    assert_eq!(not_ready_reasons(&gate).await, json!(["source reg was not read yet"]));
    assert_eq!(gate.metric("gatepost_ready").await, Some(0.0));
    assert_eq!(gate.metric("gatepost_source_read{source=\"reg\"}").await, Some(0.0));
    assert!(gate.stderr().contains("required sources were not read yet"), "{}", gate.stderr());
    let row = gate.admin_page("/sources").await.json()["sources"][1].clone();
    assert_eq!((&row["required"], &row["read"]), (&json!(true), &json!(false)));

    // Known agents are served; unknown agents, and those that the caller may not see, get the same answer.
    gate.invoke("near", &json!({})).await.expect_ok();
    for (caller, id) in [("team-a", "far"), ("team-a", "nowhere"), ("team-a", "hidden"), ("outsider", "near")] {
        for answer in answers(&gate, caller, id).await {
            let error = answer.expect_fault(503, "AgentUnavailable");
            assert!(answer.header("retry-after").is_some(), "{error}");
            assert!(error.to_string().contains("not read yet"), "{error}");
        }
    }
    // Who the caller is comes first.
    send(gate.request("POST", "/agents/far/invoke").json(&json!({}))).await.expect_fault(401, "Unauthorized");

    respond(&response, &json!([echo.document("far")]));
    eventually("the gateway is ready", async || not_ready_reasons(&gate).await == json!([])).await;
    assert_eq!(gate.metric("gatepost_ready").await, Some(1.0));
    assert_eq!(gate.metric("gatepost_source_read{source=\"reg\"}").await, Some(1.0));
    assert!(gate.stderr().contains("ready: every required source was read"), "{}", gate.stderr());
    gate.invoke("far", &json!({})).await.expect_ok();
    for (caller, id) in [("team-a", "nowhere"), ("team-a", "hidden"), ("outsider", "near")] {
        for answer in answers(&gate, caller, id).await {
            answer.expect_fault(404, "NotFound");
        }
    }

    // A source that fails later is reported, and changes nothing.
    *response.lock().unwrap() = http_response("500 Internal Server Error", "text/plain", "down");
    eventually("the failure is reported", async || {
        gate.admin_page("/readyz").await.json()["sources"][0]["error"].as_str().is_some()
    })
    .await;
    assert_eq!(not_ready_reasons(&gate).await, json!([]));
    gate.invoke("far", &json!({})).await.expect_ok();
    gate.invoke("nowhere", &json!({})).await.expect_fault(404, "NotFound");
}

#[tokio::test]
async fn a_call_that_waits_for_an_unread_source_is_not_stored_under_its_idempotency_key() {
    let echo = Agent::echo().await;
    let (registry, response) = failing_registry().await;
    let gate = gateway().section(&agents_section(&registry, "")).start().await;
    let call = || gate.post("/agents/far/invoke").header("idempotency-key", "order-1").json(&json!({"n": 1}));
    send(call()).await.expect_fault(503, "AgentUnavailable");
    respond(&response, &json!([echo.document("far")]));
    eventually("the agent answers", async || send(call()).await.status == 200).await;
}

#[tokio::test]
async fn a_source_that_is_not_required_does_not_delay_readiness() {
    let (registry, _response) = failing_registry().await;
    let gate = gateway().section(&agents_section(&registry, ", required: false")).start().await;
    assert_eq!(not_ready_reasons(&gate).await, json!([]));
    gate.invoke("far", &json!({})).await.expect_fault(404, "NotFound");
    assert_eq!(gate.admin_page("/readyz").await.json()["sources"][0]["name"], "reg", "the failure is reported");
}

#[tokio::test]
async fn an_on_demand_source_has_nothing_to_copy_and_is_not_awaited() {
    let (registry, _response) = failing_registry().await;
    let gate = gateway().section(&agents_section(&registry, ", on_demand: true")).start().await;
    assert_eq!(not_ready_reasons(&gate).await, json!([]));
    // The lookup itself fails, so that the caller does not read 404 either.
    gate.invoke("far", &json!({})).await.expect_fault(503, "Overloaded");
}

fn with_unreachable_database(settings: &str) -> (GatewayBuilder, ClosedPort) {
    let closed = ClosedPort::new();
    let url = format!("postgres://user@{}/none", closed.address);
    (gateway().section(&format!("registry: {{database: '{url}'{settings}}}\n")), closed)
}

#[tokio::test]
async fn a_registry_database_that_is_down_at_the_start_is_reported_and_unknown_agents_are_503() {
    let echo = Agent::echo().await;
    let (build, _closed) = with_unreachable_database("");
    let gate = build.agent("near", &echo).start().await;
    assert_eq!(not_ready_reasons(&gate).await, json!(["source registry was not read yet"]));
    gate.invoke("near", &json!({})).await.expect_ok();
    gate.invoke("published", &json!({})).await.expect_fault(503, "AgentUnavailable");

    let (build, _closed) = with_unreachable_database(", required: false");
    let gate = build.start().await;
    assert_eq!(not_ready_reasons(&gate).await, json!([]));
    gate.invoke("published", &json!({})).await.expect_fault(404, "NotFound");
}

#[tokio::test]
async fn a_file_that_cannot_be_parsed_at_the_start_is_not_a_source_without_agents() {
    let echo = Agent::echo().await;
    let build = gateway().agent("near", &echo).section("agents:\n  sources: [agents.json, more.json]\n");
    std::fs::write(build.folder().join("more.json"), "[{").unwrap();
    let gate = build.start().await;
    let reasons = not_ready_reasons(&gate).await.to_string();
    assert!(reasons.contains("more.json was not read yet"), "{reasons}");
    gate.invoke("far", &json!({})).await.expect_fault(503, "AgentUnavailable");
    gate.write_file("more.json", &json!([echo.document("far")]).to_string());
    eventually("the gateway is ready", async || not_ready_reasons(&gate).await == json!([])).await;
    gate.invoke("far", &json!({})).await.expect_ok();
    // A file that breaks later keeps its agents, and the gateway stays ready.
    gate.write_file("more.json", "[{");
    eventually("the file is reported", async || {
        gate.admin_page("/readyz").await.json()["problems"].to_string().contains("more.json")
    })
    .await;
    assert_eq!(not_ready_reasons(&gate).await, json!([]));
    gate.invoke("far", &json!({})).await.expect_ok();
}

#[tokio::test]
async fn a_source_that_a_reload_adds_is_awaited_for_its_agents_but_the_gateway_stays_ready() {
    let echo = Agent::echo().await;
    let (registry, response) = failing_registry().await;
    let gate = gateway().agent("near", &echo).section("agents:\n  sources:\n    - agents.json\n").start().await;
    gate.invoke("far", &json!({})).await.expect_fault(404, "NotFound");
    let config = gate.read_file("gatepost.yaml");
    let sources = format!("    - agents.json\n    - {}\n", source(&registry, ""));
    gate.write_file("gatepost.yaml", &config.replace("    - agents.json\n", &sources));
    gate.send_signal(Signal::HUP);
    eventually("the agent may belong to the new source", async || gate.invoke("far", &json!({})).await.status == 503)
        .await;
    assert_eq!(not_ready_reasons(&gate).await, json!([]));
    gate.invoke("near", &json!({})).await.expect_ok();
    respond(&response, &json!([]));
    eventually("the source has no such agent", async || gate.invoke("far", &json!({})).await.status == 404).await;
}

async fn restart(gate: Gateway) -> Gateway {
    let keys = gate.keys.clone();
    let (folder, _child) = gate.into_folder_and_child();
    tokio::task::spawn_blocking(move || Gateway::spawn(folder, keys, &[], &[])).await.unwrap()
}

#[tokio::test]
async fn a_change_is_stored_within_seconds_and_the_last_one_at_sigterm() {
    let echo = Agent::echo().await;
    let (registry, response) = failing_registry().await;
    respond(&response, &json!([echo.document("first")]));
    let mut gate = gateway().section(&agents_section(&registry, "")).start().await;
    gate.invoke("first", &json!({})).await.expect_ok();
    let stored = gate.folder().join("gatepost.state/reg.agents");
    let contains = |id: &str| {
        let bytes = std::fs::read(&stored).unwrap_or_default();
        String::from_utf8_lossy(&bytes).contains(&format!("\"{id}\""))
    };
    eventually("the first agent is stored", async || contains("first")).await;
    for id in ["second", "third"] {
        respond(&response, &json!([echo.document("first"), echo.document(id)]));
        eventually("the agent is known", async || gate.invoke(id, &json!({})).await.status == 200).await;
        crate::support::eventually_within(std::time::Duration::from_secs(3), "the agent is stored", async || {
            contains(id)
        })
        .await;
    }
    respond(&response, &json!([echo.document("first"), echo.document("last")]));
    eventually("the last agent is known", async || gate.invoke("last", &json!({})).await.status == 200).await;
    gate.send_signal(Signal::TERM);
    assert!(gate.wait_for_exit().await.success());
    assert!(contains("last"), "the last change was not stored at SIGTERM");

    *response.lock().unwrap() = http_response("500 Internal Server Error", "text/plain", "down");
    let gate = restart(gate).await;
    assert_eq!(not_ready_reasons(&gate).await, json!([]), "last known good agents make the gateway ready");
    gate.invoke("last", &json!({})).await.expect_ok();
    gate.invoke("nowhere", &json!({})).await.expect_fault(404, "NotFound");
}

#[tokio::test]
async fn a_successor_that_could_not_read_its_sources_does_not_take_over() {
    let echo = Agent::echo().await;
    let (registry, response) = failing_registry().await;
    respond(&response, &json!([echo.document("far")]));
    let agents = agents_section(&registry, "") + "  last_known_good: null\n";
    let gate = gateway().section(&agents).section("shutdown:\n  handover_socket: handover.sock\n").start().await;
    gate.invoke("far", &json!({})).await.expect_ok();
    *response.lock().unwrap() = http_response("500 Internal Server Error", "text/plain", "down");
    let mut command = gatepost_command();
    command.args(["run", "--take-over", "-c"]).arg(gate.folder().join("gatepost.yaml"));
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && message.contains("required sources were not read: reg"), "{message}");
    gate.invoke("far", &json!({})).await.expect_ok();
}
