//! What is remembered of calls that failed or were refused: the reason that the access log has, the setting that ended
//! the call, and the steps of pipelines. docs/explain.md lists them.

use super::{Call, decisions, step};
use crate::support::{
    agent::{Agent, Step, http_response},
    closed_port::ClosedPort,
    gateway::{Gateway, gatepost_command, gateway, send, translator_document},
    gateway_response::send_raw,
};
use serde_json::{Value, json};

/// Asserts that the line of a decision contains `text`.
#[track_caller]
fn assert_line(gate: &Gateway, decision: &Value, text: &str) {
    let line = decision["line"].as_str().unwrap_or_else(|| panic!("no line: {decision}"));
    let number: usize = line.strip_prefix("gatepost.yaml:").unwrap().parse().unwrap();
    let config = gate.read_file("gatepost.yaml");
    assert!(config.lines().nth(number - 1).unwrap().contains(text), "{decision}");
}

#[track_caller]
fn assert_detail(decision: &Value, text: &str) {
    assert!(decision["detail"].as_str().is_some_and(|detail| detail.contains(text)), "{decision}");
}

fn invoke() -> Call {
    Call::post("/agents/echo/invoke", "{}")
}

#[tokio::test]
async fn an_agent_that_does_not_answer_in_time_is_explained_with_the_timeout() {
    let slow = Agent::with_steps(vec![Step::Hang]).await;
    let agents = "agents:\n  sources: [agents.json]\n  rules:\n    - agents: [e*]\n      settings: {timeouts: {first_byte: 100ms}}\n";
    let gate = gateway().agent("echo", &slow).section(agents).start().await;
    let response = invoke().make(&gate).await;
    response.expect_fault(504, "Timeout");
    let found = decisions(&gate, &response).await;
    assert_eq!((&found[0]["verdict"], &found[0]["step"]), (&json!("failed"), &json!("agent")), "{found:?}");
    assert_eq!(found[0]["rule"], "agents.rules[0].settings.timeouts.first_byte", "{found:?}");
    assert_line(&gate, &found[0], "first_byte: 100ms");
    assert_detail(&found[0], "no complete response head within 100ms");
}

#[tokio::test]
async fn an_agent_that_refuses_connections_is_explained_with_the_error() {
    let port = ClosedPort::new();
    let document = json!({"id": "echo", "name": "echo", "endpoint": format!("http://{}/", port.address), "authentication": {"type": "api_key"}});
    let gate = gateway().document(document).start().await;
    let response = invoke().make(&gate).await;
    response.expect_fault(503, "AgentUnavailable");
    let found = decisions(&gate, &response).await;
    assert_eq!((&found[0]["verdict"], &found[0]["rule"]), (&json!("failed"), &json!("the agent")), "{found:?}");
    assert_eq!(found[0]["message"], "The agent cannot be reached");
    assert_detail(&found[0], "refused");
}

#[tokio::test]
async fn an_agent_that_refuses_the_gateways_credential_is_explained_with_the_setting() {
    let strict = Agent::with_steps(http_response("401 Unauthorized", "application/json", "{}")).await;
    let agents = "agents:\n  sources: [agents.json]\n  defaults:\n    credential: {header: X-Key, value: 'env:AGENT_KEY', destinations: {sources: [agents.json]}}\n";
    let gate =
        gateway().agent("echo", &strict).section(agents).env("AGENT_KEY", "a-long-secret-of-the-agent").start().await;
    let response = invoke().make(&gate).await;
    response.expect_fault(502, "AgentError");
    let found = decisions(&gate, &response).await;
    assert_eq!(found[0]["rule"], "agents.defaults.credential", "{found:?}");
    assert_line(&gate, &found[0], "credential:");
    assert!(!found[0].to_string().contains("a-long-secret"), "{found:?}");
}

#[tokio::test]
async fn a_literal_address_that_may_not_be_reached_refuses_the_dry_run_as_well() {
    let document = json!({"id": "echo", "name": "echo", "endpoint": "https://169.254.169.254/invoke", "authentication": {"type": "api_key"}});
    let gate = gateway().document(document).start().await;
    let explanation = invoke().explain(&gate).await;
    assert_eq!((&explanation["verdict"], &explanation["status"]), (&json!("refused"), &json!(503)), "{explanation}");
    assert_eq!(step(&explanation, "agent")["rule"], "network.allowed_addresses", "{explanation}");
    let response = invoke().make(&gate).await;
    response.expect_fault(503, "AgentUnavailable");
    let found = decisions(&gate, &response).await;
    assert_eq!(found[0]["rule"], "network.allowed_addresses", "{found:?}");
    assert_detail(&found[0], "169.254.169.254:443, which may not be reached");
}

#[tokio::test]
async fn a_refused_key_is_remembered_with_the_reason_of_the_access_log() {
    let echo = Agent::echo().await;
    let gate = gateway().agent("echo", &echo).start().await;
    let key = format!("gp_abcdefghijkl_{}", "x".repeat(32));
    let response = invoke().by(None).header("x-api-key", &key).make(&gate).await;
    let error = response.expect_fault(401, "Unauthorized");
    let found = decisions(&gate, &response).await;
    assert_eq!(found[0]["message"], error["message"], "{found:?}");
    let log = gate.access_log(1).await;
    assert_eq!((&found[0]["message"], &found[0]["detail"]), (&log[0]["message"], &log[0]["detail"]));
    assert!(!found[0].to_string().contains(&key), "{found:?}");
}

#[tokio::test]
async fn a_request_whose_head_is_refused_is_remembered_with_what_could_be_read_of_it() {
    let echo = Agent::echo().await;
    let gate = gateway().agent("echo", &echo).section("connections:\n  max_header_size: 4KiB\n").start().await;
    let long = format!("X: {}", "x".repeat(8_000));
    for (path, line, rule, id) in [
        ("/agents/echo/../slow/invoke", "Host: a", "the request", "dot-segment"),
        ("/agents/echo%2finvoke", "Host: a", "the request", "encoded-slash"),
        ("/agents/echo/invoke", "Host: a\r\nHost: b", "the request", "two-hosts"),
        ("/agents/echo/invoke", &*long, "connections.max_header_size", "too-large"),
        (
            "/agents/echo/invoke",
            "Host: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 3",
            "the request",
            "two-lengths",
        ),
    ] {
        let head = format!("DELETE {path}?secret=1 HTTP/1.1\r\nX-Request-ID: {id}\r\n{line}\r\n\r\n");
        let response = send_raw(gate.address(), head.as_bytes()).await.unwrap();
        assert_eq!(response.header("x-request-id"), Some(id));
        let found = decisions(&gate, &response).await;
        assert_eq!((&found[0]["step"], &found[0]["rule"]), (&json!("request_head"), &json!(rule)), "{found:?}");
        assert_eq!((&found[0]["method"], &found[0]["path"]), (&json!("DELETE"), &json!(path)), "{found:?}");
        assert!(found[0]["message"].is_string(), "{found:?}");
    }
    // An id that another server may read differently, or that is not safe, is not taken.
    for ids in ["X-Request-ID: one\r\nX-Request-ID: two", "X-Request-ID: one\r\n folded", "X-Request-ID: a<b"] {
        let head = format!("DELETE /a//b HTTP/1.1\r\n{ids}\r\nHost: a\r\n\r\n");
        let response = send_raw(gate.address(), head.as_bytes()).await.unwrap();
        let found = decisions(&gate, &response).await;
        assert_eq!(found[0]["request_id"].as_str().unwrap().len(), 32, "{found:?}");
    }
    let unknown = gate.admin_page("/explain/nothing").await;
    assert_eq!(unknown.status, 404);
    assert!(unknown.text().contains("the response has in X-Request-ID"), "{}", unknown.text());
}

#[tokio::test]
async fn a_refused_step_of_a_pipeline_is_remembered_with_its_rule() {
    let echo = Agent::echo().await;
    let access = "access:\n  grants:\n    - {callers: ['*'], agents: ['*']}\n  denials:\n    - {callers: ['*'], agents: [other]}\n";
    let gate = gateway().agent("echo", &echo).agent("other", &echo).access(access).start().await;
    let body = json!({"steps": [{"agent": "echo"}, {"agent": "other"}], "input": {}});
    let response = send(gate.post("/pipelines/invoke").body(body.to_string())).await;
    assert_eq!(response.status, 404, "{}", response.text());
    let found = decisions(&gate, &response).await;
    assert_eq!(found[0]["rule"], "access.denials[0]", "{found:?}");
    assert_line(&gate, &found[0], "agents: [other]");
}

#[tokio::test]
async fn malformed_json_and_an_operation_that_nothing_names_are_explained() {
    let echo = Agent::echo().await;
    let mut document = echo.document("echo");
    document["operations"] =
        json!([{"name": "sing", "inputs": {"type": "object"}}, {"name": "dance", "inputs": {"type": "object"}}]);
    let gate = gateway().document(document).document(translator_document(&echo)).start().await;
    for (call, rule) in [
        (Call::post("/agents/agent-12345/invoke", "{\"text\": "), "the request"),
        (invoke(), "document of echo: default_operation"),
    ] {
        let explanation = call.explain(&gate).await;
        assert_eq!(step(&explanation, "input")["rule"], rule, "{explanation}");
        let response = call.make(&gate).await;
        response.expect_fault(400, "InvalidInput");
        assert_eq!(decisions(&gate, &response).await[0]["rule"], rule);
    }
}

#[tokio::test]
async fn commands_ask_a_gateway_whose_new_configuration_is_refused() {
    let echo = Agent::echo().await;
    let gate = gateway().agent("echo", &echo).start().await;
    let config = gate.read_file("gatepost.yaml");
    let listening = format!("address: {}", gate.admin_address);
    gate.write_file("gatepost.yaml", &format!("{}unknown: 1\n", config.replace("address: 127.0.0.1:0", &listening)));
    let run = |arguments: &[&str]| {
        let output =
            gatepost_command().args(arguments).arg("-c").arg(gate.folder().join("gatepost.yaml")).output().unwrap();
        (
            output.status.code(),
            String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr),
        )
    };
    let (code, text) = run(&["explain", "--as", "key:team-a", "POST", "/agents/echo/invoke", "-d", "{}"]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.starts_with("admitted"), "{text}");
    let (code, text) = run(&["health", "--live"]);
    assert_eq!(code, Some(0), "{text}");
    let (code, text) = run(&["explain", "--as", "key:nobody", "POST", "/agents/echo/invoke"]);
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("no API key with this id"), "{text}");
}
