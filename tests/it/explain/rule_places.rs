//! Where explained rules stand: in the configuration of the call's time, in the documents of agents, and in the settings
//! that end a call at its agent. docs/explain.md lists them.

use super::{Call, decisions, step};
use crate::support::{
    agent::{Agent, Step, json_response},
    eventually,
    gateway::{Gateway, gateway, send},
};
use serde_json::{Value, json};

/// Asserts that a decision or a step names this rule, and a line that contains `text`.
#[track_caller]
fn assert_rule(gate: &Gateway, explained: &Value, rule: &str, text: &str) {
    assert_eq!(explained["rule"], rule, "{explained}");
    assert_line(&gate.read_file("gatepost.yaml"), explained, text);
}

#[track_caller]
fn assert_line(file: &str, explained: &Value, text: &str) {
    let line = explained["line"].as_str().unwrap_or_else(|| panic!("no line: {explained}"));
    let number: usize = line.rsplit_once(':').unwrap().1.parse().unwrap();
    assert!(file.lines().nth(number - 1).unwrap().contains(text), "{explained}");
}

fn invoke() -> Call {
    Call::post("/agents/echo/invoke", "{}")
}

#[tokio::test]
async fn a_refusal_keeps_the_rule_and_the_line_of_its_time_after_a_reload_that_moves_rules() {
    let echo = Agent::echo().await;
    let access = "access:\n  grants:\n    - {callers: ['*'], agents: ['*']}\n  denials:\n    - {callers: ['key:team-a'], agents: [echo]}\n";
    let gate = gateway().agent("echo", &echo).access(access).start().await;
    let response = invoke().make(&gate).await;
    response.expect_fault(404, "NotFound");
    let before = decisions(&gate, &response).await[0].clone();
    assert_rule(&gate, &before, "access.denials[0]", "key:team-a");
    let config = gate.read_file("gatepost.yaml");
    let reordered = "  denials:\n    - {callers: ['key:other'], agents: [nothing]}\n    - {callers: ['key:team-b'], agents: ['*']}\n";
    gate.write_file("gatepost.yaml", &config.replace("  denials:\n", reordered));
    eventually("the reload is in force", async || {
        decisions(&gate, &response).await[0].get("configuration_changed_since").is_some()
    })
    .await;
    let after = decisions(&gate, &response).await[0].clone();
    assert_eq!((&after["rule"], &after["line"]), (&before["rule"], &before["line"]), "{after}");
    // A call of now has the rule of now.
    let response = invoke().make(&gate).await;
    let now = decisions(&gate, &response).await[0].clone();
    assert_rule(&gate, &now, "access.denials[2]", "key:team-a");
    assert!(now.get("configuration_changed_since").is_none(), "{now}");
}

#[tokio::test]
async fn a_call_that_takes_too_long_is_explained_with_what_bounds_its_time() {
    let slow = Agent::with_steps(vec![Step::Hang]).await;
    let agents = "agents:\n  sources: [agents.json]\n  defaults:\n    timeouts: {total: 400ms}\n  rules:\n    - {agents: [other], get: true}\n    - agents: [e*]\n      settings:\n        timeouts:\n          total: 300ms\n";
    let gate = gateway().agent("echo", &slow).agent("plain", &slow).section(agents).start().await;
    for (call, rule, line) in [
        (invoke(), "agents.rules[1].settings.timeouts.total", "total: 300ms"),
        (Call::post("/agents/plain/invoke", "{}"), "agents.defaults.timeouts.total", "total: 400ms"),
    ] {
        let response = call.make(&gate).await;
        response.expect_fault(504, "Timeout");
        let found = decisions(&gate, &response).await;
        assert_eq!((&found[0]["verdict"], &found[0]["step"]), (&json!("failed"), &json!("agent")), "{found:?}");
        assert_rule(&gate, &found[0], rule, line);
    }
    let response = invoke().header("x-request-timeout", "100ms").make(&gate).await;
    response.expect_fault(504, "Timeout");
    let found = decisions(&gate, &response).await;
    assert_eq!(found[0]["rule"], "the request: X-Request-Timeout", "{found:?}");
    assert!(found[0].get("line").is_none(), "{found:?}");
}

#[tokio::test]
async fn an_output_that_violates_the_document_is_explained_with_the_setting_and_the_document() {
    let liar = Agent::with_steps(json_response(&json!({"total": 1}))).await;
    let mut document = liar.document("echo");
    document["outputs"] = json!({"type": "object", "required": ["sum"]});
    let gate = gateway().document(document).section("contract:\n  output: enforce\n").start().await;
    let response = invoke().make(&gate).await;
    response.expect_fault(502, "AgentError");
    let found = decisions(&gate, &response).await;
    assert_rule(&gate, &found[0], "contract.output", "output: enforce");
    assert_eq!(found[0]["applies_to"]["rule"], "document of echo: outputs", "{found:?}");
    assert!(found[0]["applies_to"]["line"].as_str().unwrap().ends_with("agents.json:1"), "{found:?}");
    let detail = found[0]["detail"].as_str().unwrap();
    assert!(detail.contains("sum") && !detail.starts_with(':'), "{detail}");
}

#[tokio::test]
async fn a_rule_of_a_document_has_the_file_and_the_line_of_its_member() {
    let echo = Agent::echo().await;
    let builder = gateway().section("agents:\n  sources: [documents]\n");
    let documents = builder.folder().join("documents");
    std::fs::create_dir(&documents).unwrap();
    let typed = format!(
        "id: typed\nname: typed\nendpoint: {}\nauthentication: {{type: api_key}}\nstatus: active\noperations:\n  - name: add\n    inputs:\n      type: object\n      required: [a]\n",
        echo.url()
    );
    let asleep = format!(
        "- id: asleep\n  name: asleep\n  endpoint: {}\n  authentication: {{type: api_key}}\n  status: inactive\n",
        echo.url()
    );
    std::fs::write(documents.join("typed.yaml"), &typed).unwrap();
    std::fs::write(documents.join("others.yaml"), &asleep).unwrap();
    let gate = builder.start().await;
    for (agent, rule, file, text, line) in [
        ("typed", "document of typed: operations[0].inputs", "typed.yaml", &typed, "inputs:"),
        ("asleep", "document of asleep: status", "others.yaml", &asleep, "status: inactive"),
    ] {
        let call = Call::post(&format!("/agents/{agent}/invoke"), "{}");
        let explanation = call.explain(&gate).await;
        let steps = explanation["steps"].as_array().unwrap();
        let refused = steps.iter().find(|step| step["verdict"] == "refused").unwrap_or_else(|| panic!("{explanation}"));
        let response = call.make(&gate).await;
        for explained in [refused, &decisions(&gate, &response).await[0]] {
            assert_eq!(explained["rule"], rule, "{explained}");
            assert!(explained["line"].as_str().unwrap().contains(file), "{explained}");
            assert_line(text, explained, line);
        }
    }
    // Without its file, the document has no line.
    std::fs::remove_file(documents.join("others.yaml")).unwrap();
    let response = Call::post("/agents/typed/invoke", "{}").make(&gate).await;
    assert!(decisions(&gate, &response).await[0]["line"].is_string());
}

#[tokio::test]
async fn a_call_that_waits_for_its_callers_share_names_the_share_and_the_limit() {
    let busy = Agent::with_steps(vec![Step::Hang]).await;
    let agents = "agents:\n  sources: [agents.json]\n  rules:\n    - {agents: [busy], max_concurrency: 2, adaptive_concurrency: false}\n";
    let gate = gateway()
        .agent("busy", &busy)
        .section(agents)
        .section("limits:\n  concurrency:\n    queue_timeout: 100ms\n")
        .start()
        .await;
    let held = tokio::spawn(send(gate.post("/agents/busy/invoke").body("{}")));
    eventually("the agent is busy", async || busy.call_count() == 1).await;
    let call = Call::post("/agents/busy/invoke", "{}");
    let explanation = call.explain(&gate).await;
    assert_eq!(explanation["verdict"], "admitted", "{explanation}");
    let response = call.make(&gate).await;
    response.expect_fault(429, "RateLimited");
    for explained in [step(&explanation, "concurrency"), &decisions(&gate, &response).await[0]] {
        assert_eq!(explained["rule"], "limits.max_share", "{explained}");
        assert_rule(&gate, &explained["applies_to"], "agents.rules[0].max_concurrency", "max_concurrency: 2");
    }
    held.abort();
}

#[tokio::test]
async fn an_idempotency_key_of_another_call_is_explained() {
    let echo = Agent::echo().await;
    let gate = gateway().agent("echo", &echo).start().await;
    let call = |body: &str| Call::post("/agents/echo/invoke", body).header("idempotency-key", "k1");
    call(r#"{"a": 1}"#).make(&gate).await.expect_ok();
    let response = call(r#"{"a": 2}"#).make(&gate).await;
    assert!((400..500).contains(&response.status), "{}", response.text());
    let found = decisions(&gate, &response).await;
    assert_eq!((&found[0]["step"], &found[0]["rule"]), (&json!("idempotency_key"), &json!("the request")), "{found:?}");
}
