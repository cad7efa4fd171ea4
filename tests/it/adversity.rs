//! Tasks under failures: agents that fail in various media types, webhooks that hang and a gateway that dies while a task runs.

use crate::{
    support::{
        agent::{Agent, Step, http_response},
        eventually,
        gateway::{Gateway, send},
    },
    tasks::{
        CALLBACK_SETTINGS, WEBHOOK_SECRET, call_with_prefer, gateway_with_tasks, request_as, restart_after_crash,
        task_path, wait_for_status,
    },
};
use serde_json::json;

#[tokio::test]
async fn r41_r96_an_error_response_fails_the_task_in_any_media_type() {
    let body = "{\"error\":\"Traceback /srv/secret.py\"}\n";
    for media_type in ["application/x-ndjson", "application/jsonl", "text/event-stream", "text/plain"] {
        let agent = Agent::with_steps(http_response("500 Oops", media_type, body)).await;
        let gate = gateway_with_tasks("").agent("odd", &agent).start().await;
        let task =
            wait_for_status(&gate, &task_path(&call_with_prefer(&gate, "odd", "respond-async").await), "failed").await;
        assert_eq!(task["error"]["code"], "AgentError", "{media_type}: {task}");
        assert!(!task.to_string().contains("secret"), "{media_type}: {task}");
    }
}

#[tokio::test]
async fn r79_a_deeply_nested_result_survives_a_crash_byte_for_byte() {
    let deep = format!("{}12345678901234567890.10{}", "[".repeat(300), "]".repeat(300));
    let agent = Agent::with_steps(http_response("200 OK", "application/json", &deep)).await;
    let gate = gateway_with_tasks("").agent("deep", &agent).start().await;
    let path = task_path(&call_with_prefer(&gate, "deep", "respond-async").await);
    let state = async |gate: &Gateway| request_as(gate, "team-a", "GET", &path).await;
    eventually("the task is completed", async || state(&gate).await.text().contains("\"completed\"")).await;
    assert!(state(&gate).await.text().contains(&deep));
    // The second task is stored after the first, so that the first is on disk when the second is accepted.
    task_path(&call_with_prefer(&gate, "deep", "respond-async").await);
    let gate = restart_after_crash(gate).await;
    let after = state(&gate).await;
    assert!(after.status == 200 && after.text().contains(&deep), "{}", after.text());
}

#[tokio::test]
async fn r80_the_events_of_a_task_whose_gateway_died_end_with_one_failure() {
    let agent = Agent::with_steps(vec![Step::Hang]).await;
    let gate = gateway_with_tasks("").agent("silent", &agent).start().await;
    let path = task_path(&call_with_prefer(&gate, "silent", "respond-async").await);
    eventually("the agent is called", async || agent.call_count() == 1).await;
    let gate = restart_after_crash(gate).await;
    wait_for_status(&gate, &path, "failed").await;
    let events_after = async |id: &str| {
        let events = gate.request("GET", &format!("{path}/events")).header("x-api-key", gate.key("team-a"));
        send(events.header("last-event-id", id)).await
    };
    let response = events_after("7").await;
    let text = response.text();
    assert!(response.status == 200 && text.contains("\"status\":\"failed\""), "{} {text}", response.status);
    let id = text.lines().find_map(|line| line.strip_prefix("id: ")).unwrap();
    assert_eq!(events_after(id).await.status, 204);
}

#[tokio::test]
async fn r79_webhooks_that_hang_do_not_delay_other_webhooks() {
    let agent = Agent::echo().await;
    let (hanging_hook, working_hook) = (
        Agent::with_steps(vec![Step::Hang]).await,
        Agent::with_steps(http_response("204 No Content", "text/plain", "")).await,
    );
    let callbacks = CALLBACK_SETTINGS.replace("timeout: 1s", "timeout: 1m");
    let gate = gateway_with_tasks(&callbacks).env("HOOK_SECRET", WEBHOOK_SECRET).agent("echo", &agent).start().await;
    let call_with_hook = async |hook: &Agent| {
        let call = gate.post("/agents/echo/invoke").header("x-callback-url", format!("http://{}/", hook.address));
        task_path(&send(call.json(&json!({}))).await);
    };
    for _ in 0..20 {
        call_with_hook(&hanging_hook).await;
    }
    // One receiver has 16 places at most.
    eventually("hanging webhooks are called", async || hanging_hook.call_count() == 16).await;
    call_with_hook(&working_hook).await;
    eventually("the working webhook is called", async || working_hook.call_count() == 1).await;
}

#[tokio::test]
async fn a_configuration_whose_callback_secret_is_missing_is_rejected_as_a_whole() {
    let agent = Agent::echo().await;
    let build = gateway_with_tasks("  callbacks: {secret: file:secret}\n").section("limits:\n  per_caller: 1000/h\n");
    std::fs::write(build.folder().join("secret"), WEBHOOK_SECRET).unwrap();
    let gate = build.agent("echo", &agent).start().await;
    let text = gate.read_file("gatepost.yaml");
    gate.write_file("gatepost.yaml", &text.replace("file:secret", "file:missing").replace("1000/h", "1/h"));
    eventually("the configuration is rejected", async || gate.stderr().contains("tasks.callbacks.secret")).await;
    for _ in 0..3 {
        gate.invoke("echo", &json!({})).await.expect_ok();
    }
}
