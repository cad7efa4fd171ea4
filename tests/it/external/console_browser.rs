//! The console in headless Chromium: every page, by keyboard alone, without scripts, on a narrow screen. What the browser
//! reports as a violation of the content security policy, and what axe reports as serious, fails the test.
//! `GATEPOST_SCREENSHOTS=FOLDER` keeps pictures of the pages.

use super::support::npm::{install_packages, node_command};
use crate::support::{
    agent::{Agent, http_response},
    browser::operators,
    gateway::{Gateway, gateway, send},
};
use serde_json::{Value, json};

/// The pages of a console with an agent `echo`.
fn pages() -> Value {
    json!([
        {"name": "overview", "path": "/console"},
        {"name": "agents", "path": "/console/agents"},
        {"name": "agent", "path": "/console/agents/echo"},
        {"name": "try", "path": "/console/agents/echo/try"},
        {"name": "calls", "path": "/console/calls"},
        {"name": "call", "path": "/console/call?id=refused-1"},
        {"name": "explain", "path": "/console/explain?request=refused-1"},
        {"name": "callers", "path": "/console/callers"},
        {"name": "caller", "path": "/console/callers/key:team-a"},
        {"name": "sources", "path": "/console/sources"},
        {"name": "tasks", "path": "/console/tasks"},
        {"name": "configuration", "path": "/console/configuration"},
        {"name": "audit", "path": "/console/audit"},
    ])
}

/// A gateway with agents that answer, fail and are down, and a few calls.
async fn busy_gateway(echo: &Agent, failing: &Agent) -> Gateway {
    let mut document = echo.document("echo");
    document["name"] = "Echo".into();
    document["description"] = "Returns what it is told.".into();
    document["inputs"] = json!({"type": "object", "required": ["text"], "properties": {
        "text": {"type": "string", "description": "What to return"}, "loud": {"type": "boolean"}, "tone": {"enum": ["calm", "excited"]},
    }});
    let down =
        json!({"id": "down", "name": "Down", "endpoint": "http://127.0.0.1:9/", "authentication": {"type": "api_key"}});
    let build = gateway().document(document).agent("failing", failing).document(down);
    let build = build.caller("alice", &[]).caller("team-b", &["--group", "sre"]);
    let build = build.section(&operators(&["{role: admin, callers: ['key:alice']}"]));
    let build = build.section("audit:\n  file: audit.log\n").section("tasks:\n  sqlite_file: tasks.sqlite\n");
    let gate = build.section("limits:\n  per_caller: 100/s\n").start().await;
    for agent in ["echo", "echo", "failing", "down", "nobody"] {
        gate.invoke(agent, &json!({"text": "hello"})).await;
    }
    let refused = gate.post("/agents/echo/invoke").header("x-request-id", "refused-1").json(&json!({"txt": 1}));
    send(refused).await.expect_fault(400, "InvalidInput");
    let task = gate.post("/agents/echo/invoke").header("prefer", "respond-async").json(&json!({"text": "later"}));
    send(task).await;
    gate.access_log(7).await;
    gate
}

/// Lets the browser visit the pages, and returns what it reports.
async fn visit(gate: &Gateway, key: &str, pages: Value) -> String {
    let plan = json!({
        "base": format!("http://{}", gate.admin_address), "key": key, "pages": pages, "agent": "echo",
        "screenshots": std::env::var("GATEPOST_SCREENSHOTS").ok(),
    });
    gate.write_file("plan.json", &plan.to_string());
    let plan = gate.folder().join("plan.json");
    let run = move || node_command().arg("visit.mjs").arg(plan).current_dir(install_packages("console")).output();
    let output = tokio::task::spawn_blocking(run).await.unwrap().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() || text.contains("findings"), "the browser did not run: {text}");
    text
}

#[tokio::test]
async fn every_page_works_by_keyboard_without_scripts_and_within_its_policy() {
    let echo = Agent::echo().await;
    let failing = Agent::with_steps(http_response("500 Oops", "text/plain", "broken")).await;
    let gate = busy_gateway(&echo, &failing).await;
    let report = visit(&gate, gate.key("alice"), pages()).await;
    assert!(report.ends_with(" 0 findings\n"), "{report}");
}
