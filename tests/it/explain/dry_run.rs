//! A dry run changes nothing, shows no secret, and is bounded; and the command around it.

use super::{Call, ask, step};
use crate::support::{
    agent::{Agent, Step},
    eventually,
    gateway::{Gateway, gatepost_command, gateway, send, translator_document},
    issuer::TokenIssuer,
};
use serde_json::{Value, json};
use std::process::Output;

/// Runs `gatepost explain` against this gateway.
async fn explain_command(gate: &Gateway, args: &[&str]) -> Output {
    let mut command = gatepost_command();
    command.args(["explain", "--url", &format!("http://{}", gate.admin_address)]).args(args);
    tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

const LIMITS: &str =
    "limits:\n  per_address: 50/h\n  per_caller: 3/h\n  per_caller_agent: 30/h\n  quota: {per_day: 20}\n";

#[tokio::test]
async fn a_dry_run_changes_no_limit_and_reaches_no_agent() {
    let echo = Agent::echo().await;
    let gate = gateway().agent("echo", &echo).section(LIMITS).start().await;
    let call = Call::post("/agents/echo/invoke", r#"{"a": 1}"#);
    let first = call.explain(&gate).await;
    for _ in 0..20 {
        let again = call.explain(&gate).await;
        let remaining = |explanation: &Value| {
            explanation["limits"].as_array().unwrap().iter().map(|limit| limit["remaining"].clone()).collect::<Vec<_>>()
        };
        assert_eq!(again["verdict"], "admitted", "{again}");
        assert_eq!(remaining(&again), remaining(&first));
    }
    let limits: Vec<(String, u64)> = first["limits"]
        .as_array()
        .unwrap()
        .iter()
        .map(|limit| (limit["limit"].as_str().unwrap().to_owned(), limit["remaining"].as_u64().unwrap()))
        .collect();
    let expected = [("address", 49), ("caller", 2), ("caller-agent", 29), ("day", 19)];
    assert_eq!(limits, expected.map(|(name, remaining)| (name.to_owned(), remaining)));
    assert_eq!(echo.call_count(), 0);
    // The three calls of the caller are still there, and the log knows of no other.
    for remaining in ["r=2", "r=1", "r=0"] {
        let response = call.make(&gate).await;
        response.expect_ok();
        assert!(response.header("ratelimit").unwrap().contains(remaining), "{:?}", response.headers);
    }
    assert_eq!(gate.access_log(3).await.len(), 3);
    assert_eq!(gate.metric("gatepost_limited_requests_total").await.unwrap_or_default(), 0.0);
    assert_eq!(call.explain(&gate).await["code"], "RateLimited");
    assert_eq!(gate.metric("gatepost_limited_requests_total").await.unwrap_or_default(), 0.0);
}

#[tokio::test]
async fn a_dry_run_shows_the_request_that_would_be_sent_without_secrets() {
    let (echo, issuer) = (Agent::echo().await, TokenIssuer::start().await);
    let agents = "agents:\n  sources: [agents.json]\n  defaults:\n    credential: {header: Authorization, value: env:AGENT_SECRET, destinations: {sources: [files]}}\n    forwarded_headers: [x-tenant]\n";
    let mut document = echo.document("echo");
    document["authentication"] = json!({"type": "oauth2_bearer"});
    let gate = gateway()
        .document(document)
        .section(&issuer.section())
        .section(agents)
        .env("AGENT_SECRET", "hunter2-hunter2")
        .start()
        .await;
    let token = issuer.token(&json!({}));
    let call = Call::post("/agents/echo/invoke?page=2&token=abcdefghijkl", r#"{"password": "swordfish"}"#)
        .by(None)
        .header("authorization", &format!("Bearer {token}"))
        .header("content-type", "application/json")
        .header("x-tenant", "blue")
        .header("cookie", "session=chocolate");
    let explanation = call.explain(&gate).await;
    assert_eq!(explanation["verdict"], "admitted", "{explanation}");
    assert_eq!(explanation["caller"], "oauth:app-1", "{explanation}");
    assert_eq!(step(&explanation, "authorization")["rule"], "access.grants[0]");
    assert_eq!(step(&explanation, "concurrency")["detail"], "0 calls to the agent are in progress");
    assert_eq!(explanation["endpoint"], json!({"address": echo.url(), "circuit_breaker": "closed"}));
    let request = &explanation["request"];
    assert_eq!((&request["method"], &request["body_length"]), (&json!("POST"), &json!(25)));
    let headers: Vec<(String, String)> = serde_json::from_value(request["headers"].clone()).unwrap();
    let header = |name: &str| headers.iter().find(|(field, _)| field == name).map(|(_, value)| value.as_str());
    assert_eq!(header("authorization"), Some("[redacted]"));
    assert_eq!(header("x-tenant"), Some("blue"));
    assert_eq!(header("cookie"), None);
    for secret in ["hunter2", "swordfish", "chocolate", &token, "abcdefghijkl"] {
        assert!(!explanation.to_string().contains(secret), "'{secret}' is in {explanation}");
    }
    // What was announced is what arrives.
    call.make(&gate).await.expect_ok();
    let received = &echo.requests()[0];
    assert_eq!(received.header("x-tenant"), Some("blue"));
    for (name, _) in &headers {
        assert!(received.header(name).is_some(), "{name} was announced: {}", received.head);
    }
}

#[tokio::test]
async fn a_contract_that_is_not_enforced_is_explained_and_not_counted() {
    let echo = Agent::echo().await;
    let contract = "contract:\n  input: report\n";
    let gate = gateway().document(translator_document(&echo)).section(contract).start().await;
    let explanation = Call::post("/agents/agent-12345/invoke", r#"{"text": 7}"#).explain(&gate).await;
    assert_eq!(explanation["verdict"], "admitted", "{explanation}");
    assert!(explanation["unenforced_violations"].as_array().unwrap().len() >= 2, "{explanation}");
    assert_eq!(gate.metric("gatepost_contract_violations_total").await.unwrap_or_default(), 0.0);
}

#[tokio::test]
async fn what_cannot_be_explained_is_refused_by_name_and_without_the_callers_words() {
    let echo = Agent::echo().await;
    let gate = gateway().agent("echo", &echo).start().await;
    let call = |changes: Value| {
        let mut request = json!({"method": "POST", "path": "/agents/echo/invoke"});
        request.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        request
    };
    for (request, why) in [
        (json!("hunter2"), "is not a request to explain"),
        (call(json!({"secret": "hunter2"})), "is not a request to explain"),
        (call(json!({"method": "P T"})), "method:"),
        (call(json!({"path": "agents"})), "path:"),
        (call(json!({"path": "/a b"})), "path:"),
        (call(json!({"headers": [["a b", "hunter2"]]})), "headers:"),
        (call(json!({"headers": [["a", "hunter2\r\nx: y"]]})), "headers:"),
        (call(json!({"as": "key:nobody"})), "no API key"),
        (call(json!({"as": "oauth:app"})), "key:ID"),
        (call(json!({"as": "key:team-a", "headers": [["x-api-key", "hunter2"]]})), "beside a header"),
        (call(json!({"path": "/tasks/1", "method": "GET"})), "Only calls"),
        (call(json!({"path": "/agents", "method": "GET"})), "Only calls"),
        (call(json!({"path": "/openai/v1/models", "method": "GET"})), "Only calls"),
    ] {
        let response = ask(&gate, &request).await;
        assert_eq!(response.status, 400, "{request}: {}", response.text());
        assert!(response.text().contains(why), "{request}: {}", response.text());
        response.assert_hides(&["hunter2"]);
    }
    let large = call(json!({"body": "x".repeat(5 << 20)}));
    assert_eq!(ask(&gate, &large).await.status, 413);
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let page = client.post(format!("http://{}/explain", gate.admin_address)).header("origin", "https://evil.example");
    assert_eq!(send(page.body(call(json!({})).to_string())).await.status, 403);
    assert_eq!(echo.call_count(), 0);
}

#[tokio::test]
async fn the_command_prints_a_table_and_its_exit_code_is_the_verdict() {
    let echo = Agent::echo().await;
    let gate = gateway().agent("echo", &echo).section("limits:\n  per_caller: 7/h\n").start().await;
    let path = "/agents/echo/invoke";
    let admitted = explain_command(&gate, &["--as", "key:team-a", "POST", path, "-d", "{}"]).await;
    let table = text(&admitted.stdout);
    assert_eq!(admitted.status.code(), Some(0), "{table}{}", text(&admitted.stderr));
    assert!(table.starts_with("admitted\n") && table.contains("limits.per_caller"), "{table}");
    assert!(table.contains("access.grants[0]  gatepost.yaml:"), "{table}");
    let refused = explain_command(&gate, &["--as", "anonymous", "--json", "POST", path]).await;
    let answer: Value = serde_json::from_slice(&refused.stdout).unwrap();
    assert_eq!((refused.status.code(), &answer["code"]), (Some(1), &json!("Unauthorized")));
    let unknown = explain_command(&gate, &["--as", "key:nobody", "POST", path]).await;
    assert_eq!(unknown.status.code(), Some(2));
    assert!(text(&unknown.stderr).contains("no API key"), "{}", text(&unknown.stderr));
    for (name, content) in [("body.json", "{}"), ("token", "not-a-token")] {
        gate.write_file(name, content);
    }
    let file = |name: &str| gate.folder().join(name).display().to_string();
    let (body, token) = (format!("@{}", file("body.json")), format!("token:@{}", file("token")));
    let forged = explain_command(&gate, &["--as", &token, "-d", &body, "-H", "X-Tenant: a", "POST", path]).await;
    assert_eq!(forged.status.code(), Some(1), "{}", text(&forged.stderr));
    assert!(!text(&forged.stdout).contains("not-a-token"), "{}", text(&forged.stdout));
    // The configuration names the address of the admin listener.
    let port = gate.admin_address.port();
    gate.write_file(
        "asked.yaml",
        &format!("listeners: [{{address: '127.0.0.1:0'}}]\nadmin: {{address: '127.0.0.1:{port}'}}\n"),
    );
    let asked = gatepost_command()
        .args(["explain", "-c", &file("asked.yaml"), "--as", "key:team-a", "POST", path, "-d", "{}"])
        .output();
    assert_eq!(asked.unwrap().status.code(), Some(0));
    assert_eq!(gatepost_command().args(["explain", "POST"]).output().unwrap().status.code(), Some(2));
    assert_eq!(echo.call_count(), 0);
}

#[tokio::test]
async fn r8_a_refusal_is_told_by_its_request_id_with_the_pseudonym_of_the_log_and_no_query() {
    let echo = Agent::echo().await;
    let log = "access_log:\n  output: access.log\n  callers: pseudonym\n";
    let gate = gateway().agent("echo", &echo).section(log).access("access: {grants: []}\n").start().await;
    let call = Call::post("/agents/echo/invoke?password=swordfish", r#"{"secret": "body-words"}"#);
    let response = call.header("x-request-id", "call-7").make(&gate).await;
    response.expect_fault(404, "NotFound");
    eventually("the refusal is remembered", async || gate.admin_page("/explain/call-7").await.status == 200).await;
    let page = gate.admin_page("/explain/call-7").await;
    page.assert_hides(&["swordfish", "body-words", "team-a", gate.key("team-a")]);
    let decision = page.json()["decisions"][0].clone();
    assert_eq!((&decision["path"], &decision["method"]), (&json!("/agents/echo/invoke"), &json!("POST")));
    assert_eq!(decision["caller"], gate.access_log(1).await[0]["caller"], "{decision}");
    let secret = "sk-abcdefghijklmnop1234";
    let call = Call::post(&format!("/agents/{secret}/invoke/nothing/at/all"), "").header("x-request-id", "call-9");
    call.make(&gate).await.expect_fault(404, "NotFound");
    eventually("the refusal is remembered", async || gate.admin_page("/explain/call-9").await.status == 200).await;
    gate.admin_page("/explain/call-9").await.assert_hides(&[secret]);
    let told = explain_command(&gate, &["--request", "call-7"]).await;
    assert_eq!(told.status.code(), Some(1), "{}", text(&told.stderr));
    assert!(text(&told.stdout).contains("access.grants (none names both"), "{}", text(&told.stdout));
    let unknown = explain_command(&gate, &["--request", "call-8"]).await;
    assert_eq!(unknown.status.code(), Some(3), "{}", text(&unknown.stdout));
    assert!(text(&unknown.stderr).contains("admitted calls are not"), "{}", text(&unknown.stderr));
}

#[tokio::test]
async fn the_command_takes_what_operators_write_and_never_repeats_a_key() {
    let echo = Agent::echo().await;
    let gate = gateway().agent("echo", &echo).caller("vip", &["--tier", "platinum"]).start().await;
    let key = gate.key("team-a");
    let (prefix, whole) = (format!("key:{}", &key[..15]), format!("key:{key}"));
    for (caller, method, path) in [
        (&*prefix, "POST", "/agents/echo/invoke"),
        ("key:team-a", "post", "/agents/echo/invoke"),
        ("key:team-a", "POST", "https://gw.example/agents/echo/invoke?a=b"),
    ] {
        let output = explain_command(&gate, &["--as", caller, method, path, "-d", "{}"]).await;
        assert_eq!(output.status.code(), Some(0), "{}{}", text(&output.stdout), text(&output.stderr));
    }
    for (caller, hint) in
        [(&*whole, "never the whole key"), ("oauth:fresh/bot", "token:@FILE"), ("token:words", "token:@FILE")]
    {
        let output = explain_command(&gate, &["--as", caller, "POST", "/agents/echo/invoke"]).await;
        assert_eq!(output.status.code(), Some(2), "{}", text(&output.stdout));
        let message = text(&output.stderr);
        assert!(message.contains(hint) && !message.contains(&key[3..]) && !message.contains("words"), "{message}");
    }
    let request = json!({"method": "POST", "path": "/agents/echo/invoke", "as": whole});
    ask(&gate, &request).await.assert_hides(&[key]);
    let explanation = Call::post("/agents/echo/invoke", "{}").by(Some("vip")).explain(&gate).await;
    let detail = step(&explanation, "rate_limits")["detail"].as_str().unwrap().to_owned();
    assert!(detail.contains("no tier 'platinum'"), "{explanation}");
    let unreachable = gatepost_command().args(["explain", "--url", "http://127.0.0.1:9", "--request", "a"]).output();
    assert_eq!(unreachable.unwrap().status.code(), Some(2));
}

#[tokio::test]
async fn refusals_are_not_remembered_where_that_is_off_and_the_line_of_a_changed_rule_is_marked() {
    let echo = Agent::echo().await;
    let access = "access:\n  denials:\n    - {callers: ['*'], agents: ['*']}\n";
    let gate = gateway().agent("echo", &echo).access(access).section("explain: {recent_decisions: 5}\n").start().await;
    let call = Call::post("/agents/echo/invoke", "{}");
    call.clone().header("x-request-id", "first").make(&gate).await;
    eventually("the refusal is remembered", async || gate.admin_page("/explain/first").await.status == 200).await;
    let config = gate.read_file("gatepost.yaml");
    gate.write_file("gatepost.yaml", &format!("# a comment\n{config}"));
    let page = async || gate.admin_page("/explain/first").await.json()["decisions"][0].clone();
    eventually("the new configuration is in force", async || page().await.get("configuration_changed_since").is_some())
        .await;
    gate.write_file("gatepost.yaml", &config.replace("recent_decisions: 5", "recent_decisions: 0"));
    eventually("nothing is remembered", async || gate.admin_page("/explain/first").await.status == 404).await;
    call.header("x-request-id", "second").make(&gate).await;
    gate.access_log(2).await;
    assert_eq!(gate.admin_page("/explain/second").await.status, 404);
}

#[tokio::test]
async fn r127_explanations_at_once_are_bounded() {
    let (echo, silent) = (Agent::echo().await, Agent::with_steps(vec![Step::Hang]).await);
    let issuer = format!(
        "  bearer:\n    issuers:\n      - {{issuer: 'http://{0}', jwks_url: 'http://{0}/jwks', audience: [gatepost], algorithms: [ES256]}}\n",
        silent.address
    );
    let mut document = echo.document("echo");
    document["authentication"] = json!({"type": "oauth2_bearer"});
    let gate = gateway().document(document).section(&issuer).start().await;
    let token = TokenIssuer::start().await.token(&json!({"iss": format!("http://{}", silent.address)}));
    let call = Call::post("/agents/echo/invoke", "{}").by(None).header("authorization", &format!("Bearer {token}"));
    let held: Vec<_> = (0..4)
        .map(|_| {
            let client = reqwest::Client::builder().no_proxy().build().unwrap();
            let url = format!("http://{}/explain", gate.admin_address);
            let body = call.to_json().to_string();
            tokio::spawn(async move {
                // One that comes while the test asks finds no place, and comes again.
                while client.post(&url).body(body.clone()).send().await.is_ok_and(|reply| reply.status() == 503) {}
            })
        })
        .collect();
    // The issuer does not answer, so that four explanations wait for it.
    let plain = Call::post("/agents/echo/invoke", "{}").by(None).to_json();
    eventually("four explanations are in progress", async || ask(&gate, &plain).await.status == 503).await;
    held.iter().for_each(tokio::task::JoinHandle::abort);
}
