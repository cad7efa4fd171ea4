//! Tasks when things go wrong around them: agents that fail in odd media types, webhooks that hang, a gateway or the
//! database that dies while somebody waits.

use crate::{
    support::{
        agent::{Agent, Do, answer},
        eventually,
        gateway::{Gate, gateway, send},
        postgres::Postgres,
    },
    tasks::{CALLBACKS, SECRET, ask, begin, crashed, place, until, with},
};
use serde_json::json;
use std::time::Duration;

#[tokio::test]
async fn r41_r96_a_failure_is_one_in_whatever_media_type_it_comes() {
    let body = "{\"error\":\"Traceback /srv/secret.py\"}\n";
    for media in ["application/x-ndjson", "application/jsonl", "text/event-stream", "text/plain"] {
        let agent = Agent::doing(answer("500 Oops", media, body)).await;
        let gate = with("").agent("odd", &agent).start().await;
        let task = until(&gate, &place(&begin(&gate, "odd", "respond-async").await), "failed").await;
        assert_eq!(task["error"]["code"], "AgentError", "{media}: {task}");
        assert!(!task.to_string().contains("secret"), "{media}: {task}");
    }
}

#[tokio::test]
async fn r79_a_result_stays_as_the_agent_wrote_it_over_a_crash_however_deep_it_is() {
    let deep = format!("{}12345678901234567890.10{}", "[".repeat(300), "]".repeat(300));
    let agent = Agent::doing(answer("200 OK", "application/json", &deep)).await;
    let gate = with("").agent("deep", &agent).start().await;
    let path = place(&begin(&gate, "deep", "respond-async").await);
    let state = async |gate: &Gate| ask(gate, "team-a", "GET", &path).await;
    eventually("it is completed", async || state(&gate).await.text().contains("\"completed\"")).await;
    assert!(state(&gate).await.text().contains(&deep));
    // Kept behind the first, and answered only then.
    place(&begin(&gate, "deep", "respond-async").await);
    let gate = crashed(gate).await;
    let after = state(&gate).await;
    assert!(after.status == 200 && after.text().contains(&deep), "{}", after.text());
}

#[tokio::test]
async fn r80_who_follows_a_task_hears_that_its_gateway_died_once_and_is_then_told_that_nothing_follows() {
    let agent = Agent::doing(vec![Do::Hang]).await;
    let gate = with("").agent("silent", &agent).start().await;
    let path = place(&begin(&gate, "silent", "respond-async").await);
    eventually("the agent is called", async || agent.calls() == 1).await;
    let gate = crashed(gate).await;
    until(&gate, &path, "failed").await;
    let after = async |id: &str| {
        let events = gate.request("GET", &format!("{path}/events")).header("x-api-key", gate.key("team-a"));
        send(events.header("last-event-id", id)).await
    };
    let told = after("7").await;
    let text = told.text();
    assert!(told.status == 200 && text.contains("\"status\":\"failed\""), "{} {text}", told.status);
    let id = text.lines().find_map(|line| line.strip_prefix("id: ")).unwrap();
    assert_eq!(after(id).await.status, 204);
}

#[tokio::test]
async fn r79_webhooks_that_hang_hold_up_nobody_elses() {
    let agent = Agent::echo().await;
    let (dead, good) =
        (Agent::doing(vec![Do::Hang]).await, Agent::doing(answer("204 No Content", "text/plain", "")).await);
    let hooks = CALLBACKS.replace("timeout: 1s", "timeout: 1m");
    let gate = with(&hooks).env("HOOK_SECRET", SECRET).agent("echo", &agent).start().await;
    let told = async |hook: &Agent| {
        let call = gate.post("/agents/echo/invoke").header("x-callback-url", format!("http://{}/", hook.address));
        place(&send(call.json(&json!({}))).await);
    };
    for _ in 0..20 {
        told(&dead).await;
    }
    eventually("all of these are tried", async || dead.calls() == 20).await;
    told(&good).await;
    eventually("the other is told at once", async || good.calls() == 1).await;
}

#[tokio::test]
async fn r79_a_database_that_was_away_longer_than_the_lease_costs_no_living_gateway_its_tasks() {
    let mut server = Postgres::start().await;
    let address = server.database().await;
    let silent = Agent::doing(vec![Do::Hang]).await;
    let shared = format!("tasks:\n  database: {address}\n  lease: 1s\n  poll: 1s\n  most_own: 8\n");
    let echo = Agent::echo().await;
    let build = || gateway().section(&shared).agent("silent", &silent).agent("echo", &echo);
    let (one, two) = (build().start().await, build().start().await);
    let mut tasks = Vec::new();
    for gate in [&one, &two, &one, &two] {
        tasks.push(place(&begin(gate, "silent", "respond-async").await));
    }
    eventually("all are called", async || silent.calls() == 4).await;
    for _ in 0..12 {
        // Each finds room once another has ended.
        eventually("it is begun", async || begin(&one, "echo", "respond-async").await.status == 202).await;
    }
    server.stop();
    // What is waited for is silence, longer than the lease.
    tokio::time::sleep(Duration::from_secs(4)).await;
    server.again().await;
    for path in &tasks {
        for gate in [&one, &two] {
            eventually("the database is asked again", async || ask(gate, "team-a", "GET", path).await.status == 200)
                .await;
        }
    }
    tokio::time::sleep(Duration::from_secs(3)).await;
    for path in &tasks {
        for gate in [&one, &two] {
            assert_eq!(ask(gate, "team-a", "GET", path).await.json()["status"], "working");
        }
    }
    assert_eq!(silent.left(), 0, "no agent was left");
}

#[tokio::test]
async fn a_refused_configuration_changes_nothing_even_where_it_is_a_secret_of_tasks_that_is_missing() {
    let agent = Agent::echo().await;
    let build = with("  callbacks: {secret: file:secret}\n").section("limits:\n  per_caller: 1000/h\n");
    std::fs::write(build.folder().join("secret"), SECRET).unwrap();
    let gate = build.agent("echo", &agent).start().await;
    let text = gate.read("gatepost.yaml");
    gate.write("gatepost.yaml", &text.replace("file:secret", "file:missing").replace("1000/h", "1/h"));
    eventually("it is refused", async || gate.stderr().contains("tasks.callbacks.secret")).await;
    for _ in 0..3 {
        gate.invoke("echo", &json!({})).await.is_ok();
    }
}
