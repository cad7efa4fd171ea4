//! Refused calls, each explained by the step and the rule that refused it: before the call, and afterwards by its request
//! id. docs/explain.md lists them.

use super::{Call, step};
use crate::support::{
    agent::{Agent, Step},
    closed_port::ClosedPort,
    eventually,
    gateway::{Gateway, GatewayBuilder, gatepost_command, gateway, send, translator_document},
    issuer::TokenIssuer,
};
use serde_json::{Value, json};
use std::time::Duration;

/// What an explanation must say.
struct Expected {
    status: u16,
    code: &'static str,
    step: &'static str,
    rule: &'static str,
    /// What the line of the configuration contains; `None` for a rule that is not in the configuration.
    line: Option<&'static str>,
}

fn expected(status: u16, code: &'static str, step: &'static str, rule: &'static str) -> Expected {
    Expected { status, code, step, rule, line: None }
}

impl Expected {
    fn at(self, line: &'static str) -> Self {
        Self { line: Some(line), ..self }
    }
}

/// Asserts that rule and line are the expected ones.
#[track_caller]
fn check_rule(gate: &Gateway, explained: &Value, expected: &Expected) {
    let rule = explained["rule"].as_str().unwrap_or_default();
    assert!(rule.starts_with(expected.rule), "{rule} is not {}: {explained}", expected.rule);
    match expected.line {
        None if rule.starts_with("document of ") => {
            let line = explained["line"].as_str().unwrap_or_else(|| panic!("no line: {explained}"));
            assert!(line.ends_with("agents.json:1"), "{explained}");
        }
        None => assert!(explained.get("line").is_none(), "{explained}"),
        Some(text) => {
            let line = explained["line"].as_str().unwrap_or_else(|| panic!("no line: {explained}"));
            let number: usize = line.strip_prefix("gatepost.yaml:").unwrap().parse().unwrap();
            let config = gate.read_file("gatepost.yaml");
            let written = config.lines().nth(number - 1).unwrap();
            assert!(written.contains(text), "line {number} is {written:?}, without {text:?}");
        }
    }
}

/// Asserts that the dry run, the call, and the memory of the call agree.
async fn assert_refused(gate: &Gateway, call: &Call, expected: Expected) -> Value {
    let explanation = call.explain(gate).await;
    assert_eq!(explanation["verdict"], "refused", "{explanation}");
    assert_eq!(
        (&explanation["status"], &explanation["code"]),
        (&json!(expected.status), &json!(expected.code)),
        "{explanation}"
    );
    let refused: Vec<&Value> =
        explanation["steps"].as_array().unwrap().iter().filter(|step| step["verdict"] == "refused").collect();
    assert_eq!(refused.len(), 1, "{explanation}");
    assert_eq!(refused[0]["step"], expected.step, "{explanation}");
    check_rule(gate, refused[0], &expected);
    let response = call.make(gate).await;
    let error = response.expect_fault(expected.status, expected.code);
    let page = format!("/explain/{}", error["request_id"].as_str().unwrap());
    let mut decision = Value::Null;
    eventually("the refusal is remembered", async || {
        let response = gate.admin_page(&page).await;
        decision = if response.status == 200 { response.json()["decisions"][0].clone() } else { Value::Null };
        !decision.is_null()
    })
    .await;
    assert_eq!(decision["step"], expected.step, "{decision}");
    assert_eq!(
        (&decision["verdict"], &decision["message"]),
        (&json!("refused"), &explanation["message"]),
        "{decision}"
    );
    assert_eq!(
        (&decision["status"], &decision["code"]),
        (&json!(expected.status), &json!(expected.code)),
        "{decision}"
    );
    check_rule(gate, &decision, &expected);
    explanation
}

fn invoke() -> Call {
    Call::post("/agents/echo/invoke", "{}")
}

/// A gateway with the agent `echo`.
async fn with_echo(echo: &Agent, change: impl FnOnce(GatewayBuilder) -> GatewayBuilder) -> Gateway {
    change(gateway().agent("echo", echo)).start().await
}

#[tokio::test]
async fn a_call_of_an_agent_that_no_source_has_is_explained() {
    let echo = Agent::echo().await;
    let gate = with_echo(&echo, |builder| builder).await;
    let expected = expected(404, "NotFound", "agent_lookup", "agents.sources (none").at("sources:");
    assert_refused(&gate, &Call::post("/agents/nothing/invoke", "{}"), expected).await;
}

#[tokio::test]
async fn a_call_without_a_grant_is_explained() {
    let echo = Agent::echo().await;
    let access = "access:\n  grants:\n    - {callers: ['key:other'], agents: ['*']}\n";
    let gate = with_echo(&echo, |builder| builder.access(access)).await;
    let expected = expected(404, "NotFound", "authorization", "access.grants (none").at("grants:");
    let explanation = assert_refused(&gate, &invoke(), expected).await;
    assert_eq!(explanation["caller"], "key:team-a");
    assert_eq!(step(&explanation, "authentication")["verdict"], "passed");
    assert_eq!(step(&explanation, "rate_limits")["verdict"], "skipped");
}

#[tokio::test]
async fn a_call_that_a_denial_refuses_is_explained() {
    let echo = Agent::echo().await;
    let access = "access:\n  on_denied: forbidden\n  grants:\n    - {callers: ['*'], agents: ['*']}\n  denials:\n    - {callers: ['key:x'], agents: ['*']}\n    - {callers: ['key:team-*'], agents: [echo]}\n";
    let gate = with_echo(&echo, |builder| builder.access(access)).await;
    let expected = expected(403, "PermissionDenied", "authorization", "access.denials[1]").at("key:team-*");
    assert_refused(&gate, &invoke(), expected).await;
}

#[tokio::test]
async fn a_call_that_a_denial_of_a_tag_refuses_is_explained() {
    let echo = Agent::echo().await;
    let mut document = echo.document("echo");
    document["tags"] = json!(["secret"]);
    let access = "access:\n  grants:\n    - {callers: ['*'], agents: ['*']}\n  denials:\n    - {callers: ['key:x'], agents: ['*']}\n    - {callers: ['key:team-a'], tags: [secret]}\n";
    let gate = gateway().document(document).access(access).start().await;
    let expected = expected(404, "NotFound", "authorization", "access.denials[1]").at("tags: [secret]");
    assert_refused(&gate, &invoke(), expected).await;
}

#[tokio::test]
async fn a_call_without_a_credential_is_explained() {
    let echo = Agent::echo().await;
    let gate = with_echo(&echo, |builder| builder).await;
    let expected = expected(401, "Unauthorized", "authentication", "auth").at("auth:");
    assert_refused(&gate, &invoke().by(None), expected).await;
}

#[tokio::test]
async fn a_call_with_a_wrong_key_is_explained() {
    let echo = Agent::echo().await;
    let gate = with_echo(&echo, |builder| builder).await;
    let key = format!("gp_abcdefghijkl_{}", "x".repeat(32));
    let expected = expected(401, "Unauthorized", "authentication", "auth.api_keys").at("api_keys:");
    let explanation = assert_refused(&gate, &invoke().by(None).header("x-api-key", &key), expected).await;
    assert!(!explanation.to_string().contains(&key), "{explanation}");
}

#[tokio::test]
async fn a_call_with_a_disabled_key_is_explained() {
    let echo = Agent::echo().await;
    let gate = with_echo(&echo, |builder| builder.caller("former", &[])).await;
    let disabled = gatepost_command()
        .args(["key", "disable", "--caller", "former", "--file"])
        .arg(gate.folder().join("keys.jsonl"))
        .output()
        .unwrap();
    assert!(disabled.status.success(), "{}", String::from_utf8_lossy(&disabled.stderr));
    let call = invoke().by(Some("former"));
    eventually("the key is disabled", async || call.explain(&gate).await["verdict"] == "refused").await;
    let expected = expected(401, "Unauthorized", "authentication", "auth.api_keys").at("api_keys:");
    let explanation = assert_refused(&gate, &call, expected).await;
    assert_eq!(step(&explanation, "authentication")["detail"], "the key is disabled");
}

#[tokio::test]
async fn a_call_with_another_kind_of_credential_is_explained() {
    let (echo, issuer) = (Agent::echo().await, TokenIssuer::start().await);
    let mut document = echo.document("echo");
    document["authentication"] = json!({"type": "oauth2_bearer"});
    let gate = gateway().document(document).section(&issuer.section()).start().await;
    let expected = expected(401, "Unauthorized", "authentication", "document of echo: authentication");
    assert_refused(&gate, &invoke(), expected).await;
}

#[tokio::test]
async fn a_token_without_a_scope_is_explained() {
    let (echo, issuer) = (Agent::echo().await, TokenIssuer::start().await);
    let mut document = echo.document("echo");
    document["authentication"] = json!({"type": "oauth2_bearer", "scopes": ["write"]});
    let gate = gateway().document(document).section(&issuer.section()).start().await;
    let token = issuer.token(&json!({}));
    let call = invoke().by(None).header("authorization", &format!("Bearer {token}"));
    let expected = expected(403, "PermissionDenied", "authorization", "document of echo: authentication.scopes");
    let explanation = assert_refused(&gate, &call, expected).await;
    assert!(!explanation.to_string().contains(&token), "{explanation}");
}

#[tokio::test]
async fn a_call_beyond_the_rate_of_its_address_is_explained() {
    let echo = Agent::echo().await;
    let gate = with_echo(&echo, |builder| builder.section("limits:\n  per_address: 1/h\n")).await;
    invoke().make(&gate).await.expect_ok();
    let expected = expected(429, "RateLimited", "address_limit", "limits.per_address").at("per_address: 1/h");
    assert_refused(&gate, &invoke(), expected).await;
}

#[tokio::test]
async fn a_call_beyond_the_rate_of_its_tier_is_explained() {
    let echo = Agent::echo().await;
    let limits = "limits:\n  per_caller: 100/h\n  tiers:\n    gold:\n      per_caller: 1/h\n";
    let gate = with_echo(&echo, |builder| builder.caller("g", &["--tier", "gold"]).section(limits)).await;
    let call = invoke().by(Some("g"));
    call.make(&gate).await.expect_ok();
    let expected = expected(429, "RateLimited", "rate_limits", "limits.tiers.gold.per_caller").at("per_caller: 1/h");
    let explanation = assert_refused(&gate, &call, expected).await;
    assert_eq!(explanation["limits"][1]["limit"], "caller", "{explanation}");
    assert_eq!(explanation["limits"][1]["verdict"], "refused", "{explanation}");
}

#[tokio::test]
async fn a_call_beyond_the_rate_of_a_caller_at_one_agent_is_explained() {
    let echo = Agent::echo().await;
    let gate = with_echo(&echo, |builder| builder.section("limits:\n  per_caller_agent: 1/h\n")).await;
    invoke().make(&gate).await.expect_ok();
    let expected = expected(429, "RateLimited", "rate_limits", "limits.per_caller_agent").at("per_caller_agent: 1/h");
    assert_refused(&gate, &invoke(), expected).await;
}

#[tokio::test]
async fn a_call_beyond_the_rate_that_a_rule_gives_an_agent_is_explained() {
    let echo = Agent::echo().await;
    let agents = "agents:\n  sources: [agents.json]\n  rules:\n    - {agents: ['*'], get: true}\n    - {agents: ['e*'], rate_limit: 1/h}\n";
    let gate = with_echo(&echo, |builder| builder.section(agents)).await;
    invoke().make(&gate).await.expect_ok();
    let expected = expected(429, "RateLimited", "rate_limits", "agents.rules[1].rate_limit").at("rate_limit: 1/h");
    assert_refused(&gate, &invoke(), expected).await;
}

#[tokio::test]
async fn a_call_beyond_the_rate_that_an_agent_declares_is_explained() {
    let echo = Agent::echo().await;
    let mut document = echo.document("echo");
    document["rate_limits"] = json!({"requests_per_day": 1});
    let gate = gateway().document(document).start().await;
    invoke().make(&gate).await.expect_ok();
    let expected = expected(429, "RateLimited", "rate_limits", "document of echo: rate_limits");
    assert_refused(&gate, &invoke(), expected).await;
}

#[tokio::test]
async fn a_call_beyond_the_daily_quota_is_explained() {
    let echo = Agent::echo().await;
    let limits = "limits:\n  quota:\n    per_month: 100\n    per_day: 1\n";
    let gate = with_echo(&echo, |builder| builder.section(limits)).await;
    invoke().make(&gate).await.expect_ok();
    let expected = expected(429, "RateLimited", "rate_limits", "limits.quota.per_day").at("per_day: 1");
    assert_refused(&gate, &invoke(), expected).await;
}

#[tokio::test]
async fn a_call_of_an_inactive_agent_is_explained() {
    let echo = Agent::echo().await;
    let mut document = echo.document("echo");
    document["status"] = json!("inactive");
    let gate = gateway().document(document).start().await;
    let expected = expected(503, "AgentUnavailable", "agent_status", "document of echo: status");
    assert_refused(&gate, &invoke(), expected).await;
}

#[tokio::test]
async fn a_call_of_a_web_page_is_explained() {
    let echo = Agent::echo().await;
    let mut document = echo.document("echo");
    document["authentication"] = json!({"type": "none"});
    let access = "access:\n  grants:\n    - {callers: [anonymous], agents: [echo]}\n";
    let cors = "cors:\n  allowed_origins: ['https://app.example']\n";
    let gate = gateway().document(document).access(access).section(cors).start().await;
    let call = invoke().by(None).header("origin", "https://other.example");
    let expected = expected(403, "PermissionDenied", "web_page", "cors.allowed_origins").at("https://app.example");
    assert_refused(&gate, &call, expected).await;
}

#[tokio::test]
async fn a_call_of_an_operation_that_the_agent_does_not_have_is_explained() {
    let echo = Agent::echo().await;
    let gate = gateway().document(translator_document(&echo)).start().await;
    let call = Call::post("/agents/agent-12345/operations/sing", "{}").header("x-operation", "sing");
    let call = Call { path: "/agents/agent-12345/invoke".into(), ..call };
    let expected = expected(404, "CapabilityNotFound", "operation", "document of agent-12345: operations");
    assert_refused(&gate, &call, expected).await;
}

#[tokio::test]
async fn a_call_of_a_version_that_the_agent_does_not_have_is_explained() {
    let echo = Agent::echo().await;
    let mut document = echo.document("echo");
    document["version"] = json!("1.0.0");
    let gate = gateway().document(document.clone()).start().await;
    let expected = expected(406, "NotAcceptable", "version", "document of echo: version");
    assert_refused(&gate, &invoke().header("x-agent-version", "9.9.9"), expected).await;
    document["supportedVersions"] = json!({"0.9.0": "/old"});
    let gate = gateway().document(document).start().await;
    let expected =
        Expected { rule: "document of echo: supportedVersions", ..self::expected(406, "NotAcceptable", "version", "") };
    assert_refused(&gate, &invoke().header("x-agent-version", "9.9.9"), expected).await;
}

#[tokio::test]
async fn a_call_that_accepts_no_format_of_the_agent_is_explained() {
    let echo = Agent::echo().await;
    let gate = gateway().document(translator_document(&echo)).start().await;
    let call = Call::post("/agents/agent-12345/invoke", "{}").header("accept", "image/png");
    let refused = expected(406, "NotAcceptable", "response_format", "the request: Accept");
    let explanation = assert_refused(&gate, &call, refused).await;
    assert!(explanation["message"].as_str().unwrap().contains("application/json"), "{explanation}");
    let mut document = translator_document(&echo);
    document["operations"][0]["outputFormats"] = json!(["text/csv"]);
    let gate = gateway().document(document).start().await;
    let rule = "document of agent-12345: operations[0].outputFormats";
    assert_refused(&gate, &call, expected(406, "NotAcceptable", "response_format", rule)).await;
}

#[tokio::test]
async fn a_call_with_a_timeout_that_is_no_duration_is_explained() {
    let echo = Agent::echo().await;
    let gate = with_echo(&echo, |builder| builder).await;
    let expected = expected(400, "InvalidInput", "deadline", "the request");
    assert_refused(&gate, &invoke().header("x-request-timeout", "soon"), expected).await;
}

#[tokio::test]
async fn a_get_that_a_rule_refuses_is_explained() {
    let echo = Agent::echo().await;
    let agents = "agents:\n  sources: [agents.json]\n  rules:\n    - {agents: [echo], get: false}\n";
    let gate = with_echo(&echo, |builder| builder.section(agents)).await;
    let call = Call { method: "GET", ..Call::post("/agents/echo/invoke?a=1", "") };
    let expected = expected(405, "MethodNotAllowed", "method", "agents.rules[0].get").at("get: false");
    assert_refused(&gate, &call, expected).await;
}

#[tokio::test]
async fn a_body_that_violates_the_schema_is_explained_with_its_violations() {
    let echo = Agent::echo().await;
    let gate = gateway().document(translator_document(&echo)).start().await;
    let call = Call::post("/agents/agent-12345/invoke", r#"{"text": 7, "source_language": "en"}"#);
    let expected = expected(400, "InvalidInput", "input", "document of agent-12345: operations[0].inputs");
    let explanation = assert_refused(&gate, &call, expected).await;
    let pointers: Vec<&str> =
        explanation["violations"].as_array().unwrap().iter().map(|it| it["pointer"].as_str().unwrap()).collect();
    assert!(pointers.contains(&"/text"), "{explanation}");
}

#[tokio::test]
async fn a_body_that_is_too_large_is_explained() {
    let echo = Agent::echo().await;
    let contract = "contract:\n  max_body_size: 1KiB\n";
    let gate = gateway().document(translator_document(&echo)).section(contract).start().await;
    let body = json!({"text": "x".repeat(2_000)}).to_string();
    let expected = expected(413, "PayloadTooLarge", "input", "contract.max_body_size").at("max_body_size: 1KiB");
    assert_refused(&gate, &Call::post("/agents/agent-12345/invoke", &body), expected).await;
}

#[tokio::test]
async fn a_body_that_is_no_json_is_explained() {
    let echo = Agent::echo().await;
    let gate = gateway().document(translator_document(&echo)).start().await;
    let call = Call::post("/agents/agent-12345/invoke", "hello").header("content-type", "text/plain");
    let expected = expected(415, "UnsupportedMediaType", "input", "the request");
    assert_refused(&gate, &call, expected).await;
}

#[tokio::test]
async fn a_batch_with_too_many_items_is_explained() {
    let echo = Agent::echo().await;
    let contract = "contract:\n  batch:\n    max_items: 2\n";
    let gate = gateway().document(translator_document(&echo)).section(contract).start().await;
    let expected = expected(400, "InvalidInput", "input", "contract.batch.max_items").at("max_items: 2");
    assert_refused(&gate, &Call::post("/agents/agent-12345/invoke", "[{},{},{}]"), expected).await;
}

#[tokio::test]
async fn a_query_that_a_rule_refuses_is_explained() {
    let echo = Agent::echo().await;
    let agents = "agents:\n  sources: [agents.json]\n  rules:\n    - agents: [echo]\n      query: refuse\n";
    let gate = with_echo(&echo, |builder| builder.section(agents)).await;
    let expected = expected(400, "InvalidInput", "query", "agents.rules[0].query").at("query: refuse");
    assert_refused(&gate, &Call::post("/agents/echo/invoke?a=1", "{}"), expected).await;
}

#[tokio::test]
async fn a_call_of_a_busy_agent_is_explained() {
    let busy = Agent::with_steps(vec![Step::Hang]).await;
    let sections = "agents:\n  sources: [agents.json]\n  rules:\n    - {agents: [busy], max_concurrency: 1}\n";
    let gate = gateway()
        .agent("busy", &busy)
        .section(sections)
        .section("limits:\n  concurrency:\n    max_queued: 0\n    adaptive: false\n    queue_timeout: 100ms\n  max_share: 1\n")
        .start()
        .await;
    let held = tokio::spawn(send(gate.post("/agents/busy/invoke").body("{}")));
    eventually("the agent is busy", async || busy.call_count() == 1).await;
    let expected =
        expected(503, "Overloaded", "concurrency", "agents.rules[0].max_concurrency").at("max_concurrency: 1");
    assert_refused(&gate, &Call::post("/agents/busy/invoke", "{}"), expected).await;
    assert_eq!(busy.call_count(), 1);
    held.abort();
}

#[tokio::test]
async fn a_call_that_the_circuit_breaker_refuses_is_explained() {
    let port = ClosedPort::new();
    let document = json!({"id": "gone", "name": "gone", "endpoint": format!("http://{}/invoke", port.address), "authentication": {"type": "api_key"}});
    let agents = "agents:\n  sources: [agents.json]\n  defaults:\n    circuit_breaker:\n      consecutive_failures: 1\n      open_duration: 1h\n";
    let gate = gateway().document(document).section(agents).start().await;
    let call = Call::post("/agents/gone/invoke", "{}");
    let explanation = call.explain(&gate).await;
    assert_eq!(
        (&explanation["verdict"], &explanation["endpoint"]["circuit_breaker"]),
        (&json!("admitted"), &json!("closed"))
    );
    call.make(&gate).await.expect_fault(503, "AgentUnavailable");
    let expected = expected(503, "AgentUnavailable", "agent", "agents.defaults.circuit_breaker").at("circuit_breaker:");
    let explanation = assert_refused(&gate, &call, expected).await;
    assert_eq!(explanation["endpoint"]["circuit_breaker"], "open", "{explanation}");
    assert!(explanation["retry_after"].as_u64().unwrap() <= Duration::from_secs(3_600).as_secs());
}

#[tokio::test]
async fn a_path_that_does_not_exist_is_explained() {
    let echo = Agent::echo().await;
    let gate = with_echo(&echo, |builder| builder).await;
    assert_refused(&gate, &Call::post("/nothing", "{}"), expected(404, "NotFound", "path", "the request")).await;
}

#[tokio::test]
async fn a_head_that_is_too_large_is_explained() {
    let echo = Agent::echo().await;
    let gate = with_echo(&echo, |builder| builder.section("connections:\n  max_header_size: 4KiB\n")).await;
    let call = invoke().header("x-long", &"x".repeat(8_000));
    let explanation = call.explain(&gate).await;
    assert_eq!((&explanation["status"], &explanation["code"]), (&json!(431), &json!("InvalidInput")), "{explanation}");
    assert_eq!(step(&explanation, "request_head")["verdict"], "refused");
    assert_eq!(step(&explanation, "request_head")["rule"], "connections.max_header_size");
    assert_eq!(call.make(&gate).await.status, 431);
}
