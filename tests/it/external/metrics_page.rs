//! The metrics page, which promtool checks: calls by outcome, and labels that callers cannot create.

use crate::support::{
    agent::{Agent, Step, http_response},
    eventually,
    gateway::{Gateway, gateway, send, translator_document},
};
use serde_json::json;
use std::{
    io::Write,
    process::{Command, Stdio},
    time::Duration,
};

fn check_with_promtool(page: &str) {
    let promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut promtool = promtool.expect("promtool is missing (apt-get install prometheus)");
    promtool.stdin.take().unwrap().write_all(page.as_bytes()).unwrap();
    let output = promtool.wait_with_output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    assert!(output.status.success() && text.is_empty(), "{}\n{page}", String::from_utf8_lossy(&text));
}

async fn call_count(gate: &Gateway, agent: &str, code: &str, caller_class: &str, operation: &str) -> f64 {
    let labels = format!("agent=\"{agent}\",code=\"{code}\",caller_class=\"{caller_class}\",operation=\"{operation}\"");
    gate.metric(&format!("gatepost_calls_total{{{labels}}}")).await.unwrap_or_default()
}

#[tokio::test]
async fn calls_are_counted_by_outcome_and_the_metrics_page_passes_promtool() {
    let echo = Agent::echo().await;
    let broken = Agent::scripted(|_| http_response("500 Internal Server Error", "text/plain", "boom")).await;
    let silent = Agent::with_steps(vec![Step::Hang]).await;
    let dead = Agent::with_steps(vec![Step::Reset]).await;
    let gate = gateway()
        .document(translator_document(&echo))
        .agent("dead", &dead)
        .agent("echo", &echo)
        .agent("broken", &broken)
        .agent("silent", &silent)
        .agent("scarce", &echo)
        .section("agents:\n  sources: [agents.json]\n  rules:\n    - {agents: [scarce], rate_limit: 1/h}\n")
        .start()
        .await;
    check_with_promtool(&gate.admin_page("/metrics").await.text());
    let input = json!({"text": "x", "source_language": "en", "target_language": "zh"});
    gate.invoke("agent-12345", &input).await.expect_ok();
    gate.invoke("agent-12345", &json!({})).await.expect_fault(400, "InvalidInput");
    gate.invoke("echo", &json!({})).await.expect_ok();
    send(gate.request("POST", "/agents/echo/invoke").json(&json!({}))).await.expect_fault(401, "Unauthorized");
    gate.invoke("unknown", &json!({})).await.expect_fault(404, "NotFound");
    gate.invoke("scarce", &json!({})).await.expect_ok();
    assert_eq!(gate.invoke("scarce", &json!({})).await.status, 429);
    assert_eq!(gate.invoke("dead", &json!({})).await.status, 502);
    let failed = gate.invoke("broken", &json!({})).await;
    let failed = failed.json()["error"]["code"].as_str().unwrap().to_owned();
    let short_timeout = gate.post("/agents/silent/invoke").header("x-request-timeout", "150ms").json(&json!({}));
    send(short_timeout).await.expect_fault(504, "Timeout");
    let disconnected =
        gate.post("/agents/silent/invoke").json(&json!({})).timeout(Duration::from_millis(300)).send().await;
    assert!(disconnected.unwrap_err().is_timeout());
    eventually("the aborted call is counted", async || {
        call_count(&gate, "silent", "aborted", "key", "invoke").await == 1.0
    })
    .await;
    let codes = [
        ("agent-12345", "ok", "key", "translateText", 1.0),
        ("agent-12345", "InvalidInput", "key", "-", 1.0),
        ("echo", "ok", "key", "invoke", 1.0),
        ("scarce", "ok", "key", "invoke", 1.0),
        ("silent", "Timeout", "key", "invoke", 1.0),
        ("broken", &failed, "key", "invoke", 1.0),
        ("-", "Unauthorized", "none", "-", 1.0),
        ("-", "NotFound", "key", "-", 1.0),
    ];
    let page = gate.admin_page("/metrics").await.text();
    for (agent, code, caller_class, operation, count) in codes {
        assert_eq!(call_count(&gate, agent, code, caller_class, operation).await, count, "{agent} {code}: {page}");
    }
    assert_eq!(gate.metric("gatepost_limited_requests_total{limit=\"agent\"}").await, Some(1.0));
    assert_eq!(gate.metric("gatepost_calls_in_flight").await, Some(0.0));
    assert_eq!(gate.metric("gatepost_call_duration_seconds_count{agent=\"scarce\"}").await, Some(2.0));
    check_with_promtool(&page);
}

#[tokio::test]
async fn callers_cannot_create_metric_labels() {
    let echo = Agent::echo().await;
    let gate = gateway().agent("echo", &echo).start().await;
    for n in 0..20 {
        gate.invoke(&format!("made-up-{n}"), &json!({})).await.expect_fault(404, "NotFound");
        send(gate.post(&format!("/made-up/{n}")).json(&json!({}))).await;
        send(gate.post(&format!("/agents/echo/made-up-{n}")).json(&json!({}))).await;
        send(gate.request(&format!("MADEUP{n}"), "/agents/echo/invoke").header("x-api-key", gate.key("team-a"))).await;
        let call = gate.request("POST", "/agents/echo/invoke").header("x-api-key", format!("made-up-{n}"));
        send(call.json(&json!({}))).await.expect_fault(401, "Unauthorized");
    }
    let page = gate.admin_page("/metrics").await.text();
    assert!(!page.to_ascii_lowercase().contains("made-up") && !page.contains("MADEUP"), "{page}");
    let series = page.lines().filter(|line| line.starts_with("gatepost_calls_total{")).count();
    assert!(series <= 8, "{page}");
    check_with_promtool(&page);
}
