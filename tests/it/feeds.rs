//! Agents from a remote registry: they stay while the registry fails and over a restart, and the loss guard protects
//! them.

use crate::support::{
    agent::{Agent, changeable_agent, http_response, json_response},
    eventually,
    gateway::{Gateway, gateway, send},
};
use rustix::process::Signal;
use serde_json::{Value, json};

fn agents_section(registry: &Agent) -> String {
    let url = registry.url();
    format!(
        "agents:\n  sources:\n    - agents.json\n    - {{kind: aidip, url: '{url}', name: reg, poll_interval: 1s, \
         fetch_timeout: 2s, endpoints: ['http://127.0.0.1:*']}}\n"
    )
}

fn documents(agent: &Agent, count: usize) -> Value {
    (0..count).map(|at| agent.document(&format!("far-{at}"))).collect()
}

/// The registry's row of the page of sources.
async fn registry_row(gate: &Gateway) -> Value {
    gate.admin_page("/sources").await.json()["sources"][1].clone()
}

#[tokio::test]
async fn agents_of_a_registry_stay_while_it_fails_and_over_a_restart() {
    let echo = Agent::echo().await;
    let (registry, response) = changeable_agent(json_response(&documents(&echo, 12))).await;
    let gate = gateway().agent("near", &echo).section(&agents_section(&registry)).start().await;
    for id in ["near", "far-0", "far-11"] {
        gate.invoke(id, &json!({})).await.expect_ok();
    }
    assert_eq!(registry_row(&gate).await["agents"], 12);
    let stored = gate.folder().join("gatepost.state/reg.agents");
    eventually("the agents are stored on disk", async || stored.exists()).await;

    *response.lock().unwrap() = json_response(&json!([]));
    eventually("the empty list is withheld", async || registry_row(&gate).await["withheld"] == 12).await;
    assert_eq!(gate.metric("gatepost_source_pending_removals{source=\"reg\"}").await, Some(12.0));
    gate.invoke("far-0", &json!({})).await.expect_ok();
    *response.lock().unwrap() = http_response("500 Internal Server Error", "text/plain", "boom");
    eventually("the error is reported", async || {
        let ready = gate.admin_page("/readyz").await;
        ready.status == 200 && ready.json()["sources"][0]["error"].as_str().is_some_and(|why| why.contains("500"))
    })
    .await;
    gate.invoke("far-11", &json!({})).await.expect_ok();

    let keys = gate.keys.clone();
    let (folder, mut child) = gate.into_folder_and_child();
    child.kill().unwrap();
    child.wait().unwrap();
    let gate = tokio::task::spawn_blocking(move || Gateway::spawn(folder, keys, &[], &[])).await.unwrap();
    gate.invoke("far-0", &json!({})).await.expect_ok();
    assert_eq!(registry_row(&gate).await["from_last_known_good"], true);

    *response.lock().unwrap() = json_response(&json!([echo.document("far-0"), echo.document("near")]));
    eventually("the smaller list is withheld", async || registry_row(&gate).await["withheld"] == 11).await;
    assert_eq!(post_admin_page(&gate, "/sources/reg/confirm").await, 200);
    gate.invoke("far-11", &json!({})).await.expect_fault(404, "NotFound");
    let rejected = gate.admin_page("/agents").await.json()["rejected"].clone();
    assert!(rejected[0]["reasons"][0].as_str().unwrap().contains("has precedence"), "{rejected}");
}

/// Posts to a page of the admin listener; returns the status.
async fn post_admin_page(gate: &Gateway, path: &str) -> u16 {
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    client.post(format!("http://{}{path}", gate.admin_address)).send().await.unwrap().status().as_u16()
}

#[tokio::test]
async fn the_pause_of_a_broken_source_ends_by_a_refresh_by_sighup_and_by_a_changed_configuration() {
    let echo = Agent::echo().await;
    let broken = http_response("500 Internal Server Error", "text/plain", "boom");
    let (registry, response) = changeable_agent(broken.clone()).await;
    let source = format!(
        "agents:\n  sources:\n    - agents.json\n    - {{kind: aidip, url: '{}', name: reg, required: false, \
         poll_interval: 1h, max_backoff: 1h, endpoints: ['http://127.0.0.1:*']}}\n",
        registry.url()
    );
    let gate = gateway().agent("near", &echo).section(&source).start().await;
    let has_failed = async || registry_row(&gate).await["error"].as_str().is_some_and(|why| why.contains("500"));
    eventually("the poll fails", has_failed).await;
    let polls = registry.call_count();
    assert_eq!(post_admin_page(&gate, "/sources/unknown/refresh").await, 404);
    *response.lock().unwrap() = json_response(&json!([echo.document("far-0")]));
    assert_eq!(registry.call_count(), polls, "the next poll is in an hour");

    assert_eq!(post_admin_page(&gate, "/sources/reg/refresh").await, 202);
    eventually("the source is read", async || registry_row(&gate).await["agents"] == 1).await;
    gate.invoke("far-0", &json!({})).await.expect_ok();

    // No reload begins the polls again: the configuration is not valid.
    let config = gate.read_file("gatepost.yaml");
    gate.write_file("gatepost.yaml", &format!("{config}surprise: 1\n"));
    eventually("the rejection is reported", async || gate.admin_page("/readyz").await.text().contains("surprise"))
        .await;
    *response.lock().unwrap() = broken;
    let polls = registry.call_count();
    gate.send_signal(Signal::HUP);
    eventually("SIGHUP polls", async || registry.call_count() > polls).await;
    eventually("the poll fails", has_failed).await;

    *response.lock().unwrap() = json_response(&json!([echo.document("far-0"), echo.document("far-1")]));
    gate.write_file("gatepost.yaml", &config.replace("max_backoff: 1h", "max_backoff: 2h"));
    eventually("a changed configuration polls", async || registry_row(&gate).await["agents"] == 2).await;
}

#[tokio::test]
async fn r41_a_socket_outside_allowed_sockets_is_not_reached() {
    let build = gateway();
    let path = build.folder().join("agent.sock");
    let listener = tokio::net::UnixListener::bind(&path).unwrap();
    let endpoint = format!("agent+unix://{}#/invoke", path.display());
    let gate = build
        .document(json!({"id": "local", "name": "local", "endpoint": endpoint, "authentication": {"type": "api_key"}}))
        .section("network:\n  allowed_addresses: [127.0.0.0/8]\n  allowed_sockets: ['/run/agents/*']\n")
        .start()
        .await;
    gate.invoke("local", &json!({})).await.expect_fault(503, "AgentUnavailable");
    let connection = tokio::time::timeout(std::time::Duration::from_millis(50), listener.accept()).await;
    assert!(connection.is_err(), "the gateway connected");
}

#[tokio::test]
async fn r60_a_gateway_calls_the_agents_of_another_gateway_by_their_descriptors() {
    let agent = Agent::echo().await;
    let mut document = agent.document("parrot");
    document["version"] = json!("1.0.0");
    document["operations"] =
        json!([{"name": "echo", "uriTemplate": "agent://parrot.example/echo{?n}"}, {"name": "other"}]);
    let first = gateway().document(document).section("directory:\n  public_agents: ['*']\n").start().await;
    let section = format!(
        "agents:\n  sources:\n    - {{kind: agent_uri, url: 'http://{0}', name: first, endpoints: ['http://{0}']}}\n  \
         defaults:\n    credential: {{header: X-API-Key, value: env:FIRST_KEY, destinations: {{sources: [first]}}}}\n  \
         rules:\n    - {{agents: ['*'], authentication: any}}\n",
        first.address()
    );
    let second = gateway().section(&section).env("FIRST_KEY", first.key("team-a")).start().await;
    eventually("the source is read", async || second.invoke("parrot", &json!({})).await.status != 503).await;
    for operation in ["echo", "other"] {
        let path = format!("/agents/parrot/{operation}");
        let answer = send(second.post(&path).json(&json!({"n": 1}))).await.expect_ok();
        assert_eq!(answer, json!({"echo": {"n": 1}}));
        assert_eq!(agent.requests().last().unwrap().header("x-operation"), Some(operation));
    }
    // The first gateway was called at the path of each operation, and its descriptors hide that from callers.
    let paths: Vec<Value> = first.access_log(4).await.iter().map(|line| line["path"].clone()).collect();
    assert!(paths.contains(&json!("/agents/parrot/invoke/echo")), "{paths:?}");
    let descriptor = send(second.request("GET", "/agents/parrot/agent.json").header("x-api-key", second.key("team-a")));
    let descriptor = descriptor.await.text();
    assert!(!descriptor.contains(&first.address().to_string()), "{descriptor}");
    assert!(descriptor.contains("/agents/parrot/invoke/echo{?n}"), "{descriptor}");
}
