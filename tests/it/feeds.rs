//! Agents from a registry beyond this machine: found, kept when it fails, and remembered over a restart.

use crate::support::{
    agent::{Agent, Do, answer, json_answer},
    eventually,
    gateway::{Gate, gateway},
};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};

/// A registry that answers with what is said at the moment.
async fn registry(first: Vec<Do>) -> (Agent, Arc<Mutex<Vec<Do>>>) {
    let says = Arc::new(Mutex::new(first));
    let now = Arc::clone(&says);
    (Agent::scripted(move |_| now.lock().unwrap().clone()).await, says)
}

fn section(registry: &Agent) -> String {
    let url = registry.url();
    format!(
        "agents:\n  from:\n    - agents.json\n    - {{kind: aidip, url: '{url}', name: reg, poll: 1s, timeout: 2s}}\n"
    )
}

fn documents(agent: &Agent, count: usize) -> Value {
    (0..count).map(|at| agent.document(&format!("far-{at}"))).collect()
}

async fn feed(gate: &Gate) -> Value {
    gate.admin("/sources").await.json()["sources"][1].clone()
}

#[tokio::test]
async fn agents_of_a_registry_are_called_and_stay_while_it_fails_and_over_a_restart() {
    let echo = Agent::echo().await;
    let (registry, says) = registry(json_answer(&documents(&echo, 12))).await;
    let gate = gateway().agent("near", &echo).section(&section(&registry)).start().await;
    for id in ["near", "far-0", "far-11"] {
        gate.invoke(id, &json!({})).await.is_ok();
    }
    assert_eq!(feed(&gate).await["agents"], 12);
    eventually("its agents are kept on disk", async || gate.folder().join("gatepost.state/reg.agents").exists()).await;

    *says.lock().unwrap() = json_answer(&json!([]));
    eventually("the empty list is held", async || feed(&gate).await["withheld"] == 12).await;
    assert_eq!(gate.metric("gatepost_source_pending_removals{source=\"reg\"}").await, Some(12.0));
    gate.invoke("far-0", &json!({})).await.is_ok();
    *says.lock().unwrap() = answer("500 Internal Server Error", "text/plain", "boom");
    eventually("the trouble is shown", async || {
        let ready = gate.admin("/readyz").await;
        ready.status == 200 && ready.json()["sources"][0]["trouble"].as_str().is_some_and(|why| why.contains("500"))
    })
    .await;
    gate.invoke("far-11", &json!({})).await.is_ok();

    let keys = gate.keys.clone();
    let (folder, mut child) = gate.into_folder();
    child.kill().unwrap();
    child.wait().unwrap();
    let gate = tokio::task::spawn_blocking(move || Gate::spawn(folder, keys, &[], &[])).await.unwrap();
    gate.invoke("far-0", &json!({})).await.is_ok();
    assert_eq!(feed(&gate).await["from_last_known_good"], true);

    *says.lock().unwrap() = json_answer(&json!([echo.document("far-0"), echo.document("near")]));
    eventually("the loss is held", async || feed(&gate).await["withheld"] == 11).await;
    let confirm = format!("http://{}/sources/reg/confirm", gate.admin);
    let confirmed = reqwest::Client::builder().no_proxy().build().unwrap().post(confirm).send().await.unwrap();
    assert_eq!(confirmed.status(), 200);
    gate.invoke("far-11", &json!({})).await.is_fault(404, "NotFound");
    let refused = gate.admin("/agents").await.json()["rejected"].clone();
    assert!(refused[0]["reasons"][0].as_str().unwrap().contains("has precedence"), "{refused}");
}

#[tokio::test]
async fn r41_a_socket_that_is_not_listed_is_not_reached() {
    let build = gateway();
    let path = build.folder().join("agent.sock");
    let listener = tokio::net::UnixListener::bind(&path).unwrap();
    let endpoint = format!("agent+unix://{}#/invoke", path.display());
    let gate = build
        .document(json!({"id": "local", "name": "local", "endpoint": endpoint, "authentication": {"type": "api_key"}}))
        .section("network:\n  allow: [127.0.0.0/8]\n  allow_sockets: ['/run/agents/*']\n")
        .start()
        .await;
    gate.invoke("local", &json!({})).await.is_fault(503, "AgentUnavailable");
    let waited = tokio::time::timeout(std::time::Duration::from_millis(50), listener.accept()).await;
    assert!(waited.is_err(), "something connected");
}
