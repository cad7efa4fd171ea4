//! The fields that tell agents who calls: what the operator chose, by every front end, and never what a caller sent.

use crate::{
    explain::Call,
    support::{
        agent::{Agent, ReceivedRequest},
        gateway::{Gateway, GatewayBuilder, gatepost_command, gateway, send},
        gateway_response::send_raw,
        issuer::TokenIssuer,
        websocket::{connect, connect_with_headers, echo_agent, receive_text, send_text, websocket_document},
    },
};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::{Value, json};
use std::fs;

/// Rules by which every agent is told its caller, and forwards as much as an operator may allow.
const RULES: &str = "agents:
  sources: [agents.json]
  defaults:
    forwarded_headers: ['X-*']
    caller_headers: {X-User: {value: id}, X-Groups: {value: groups}, X-Tenant: {claim: tenant}}
  rules:
    - agents: [planner]
      api: {routes: [{methods: [GET, POST], path: /threads/**}]}
    - agents: [silent]
      settings: {caller_headers: {}}
";

/// Fields by which a caller claims to be somebody else, in every spelling that a server may read as one of the fields.
const FORGED: [(&str, &str); 7] = [
    ("x-user", "key:admin"),
    ("X-USER", "key:admin"),
    ("x_user", "key:admin"),
    ("x.user", "key:admin"),
    ("x-groups", "admins"),
    ("x_groups", "admins"),
    ("x-tenant", "other"),
];

fn forged(request: reqwest::RequestBuilder) -> reqwest::RequestBuilder {
    FORGED.into_iter().fold(request, |request, (name, value)| request.header(name, value))
}

/// Returns the values of all fields that a server may read as the field `name`, which has hyphens.
fn values(request: &ReceivedRequest, name: &str) -> Vec<String> {
    let lines = request.head.lines().skip(1).filter_map(|line| line.split_once(':'));
    let is_field = |field: &str| field.to_ascii_lowercase().replace(|c: char| !c.is_ascii_alphanumeric(), "-") == name;
    lines.filter(|(field, _)| is_field(field)).map(|(_, value)| value.trim().to_owned()).collect()
}

#[track_caller]
fn assert_told(request: &ReceivedRequest, user: &str, groups: &str) {
    assert_eq!(values(request, "x-user"), [user], "{}", request.head);
    assert_eq!(values(request, "x-groups"), [groups], "{}", request.head);
    assert_eq!(values(request, "x-tenant"), [""; 0], "{}", request.head);
}

fn with_member(build: GatewayBuilder) -> GatewayBuilder {
    build.caller("member", &["--group", "staff", "--group", "writers"])
}

async fn start(agent: &Agent) -> Gateway {
    let build = with_member(gateway()).agent("planner", agent).agent("silent", agent).section(RULES);
    build.section("    accept_bearer: true\n").section("tasks: {sqlite_file: tasks.db}\n").start().await
}

#[tokio::test]
async fn r3_every_path_over_http_tells_the_caller_and_passes_no_forged_field() {
    let agent = Agent::echo().await;
    let gate = start(&agent).await;
    let key = gate.key("member").to_owned();
    let request = |method: &str, path: &str| forged(gate.request(method, path)).header("x-api-key", &key);
    let invoke = "/agents/planner/invoke";
    let calls = [
        request("POST", invoke).json(&json!({"a": 1})),
        request("GET", &format!("{invoke}?a=1&x-user=key:admin")),
        request("POST", invoke).header("accept", "text/event-stream").json(&json!({})),
        request("POST", invoke).header("idempotency-key", "k1").json(&json!({})),
        request("POST", invoke).header("prefer", "wait=20").json(&json!({})),
        request("GET", "/agents/planner/api/threads/1"),
        request("POST", "/agents/planner/api/threads/1").json(&json!({})),
        request("POST", "/agents/planner/v1/message:send").json(&json!({})),
        request("POST", "/pipelines/invoke").json(&json!({"steps": [{"agent": "planner"}], "input": {}})),
        forged(gate.request("POST", "/openai/v1/chat/completions"))
            .bearer_auth(&key)
            .json(&json!({"model": "planner", "messages": [{"role": "user", "content": "Hi"}]})),
    ];
    for (at, call) in calls.into_iter().enumerate() {
        send(call).await;
        assert_eq!(agent.call_count(), at + 1, "call {at}");
        assert_told(agent.requests().last().unwrap(), "key:member", "staff,writers");
    }
    let before = agent.call_count();
    send(request("POST", invoke).json(&json!([{"n": 1}, {"n": 2}, {"n": 3}]))).await.expect_ok();
    let batch = agent.requests().split_off(before);
    assert_eq!(batch.len(), 3);
    batch.iter().for_each(|request| assert_told(request, "key:member", "staff,writers"));
    // An agent that is told nothing reads what its operator lets pass.
    send(request("POST", "/agents/silent/invoke").json(&json!({}))).await.expect_ok();
    assert!(values(agent.requests().last().unwrap(), "x-user").contains(&"key:admin".to_owned()));
}

#[tokio::test]
async fn r3_messages_of_a_websocket_and_its_handshake_tell_the_caller() {
    let (agent, (peer, record)) = (Agent::echo().await, echo_agent().await);
    let build = with_member(gateway()).agent("planner", &agent).document(websocket_document(&peer, "socket"));
    let gate = build.section(RULES).start().await;
    let fields: Vec<(&str, &str)> = [("x-api-key", gate.key("member"))].into_iter().chain(FORGED).collect();
    let (mut relayed, _) = connect_with_headers(&gate, "/agents/socket/invoke", &fields).await.unwrap();
    send_text(&mut relayed, "{}").await;
    receive_text(&mut relayed).await;
    let handshake = record.handshakes.lock().unwrap().last().unwrap().clone();
    let of = |name: &str| -> Vec<String> {
        let is_field = |field: &str| field.replace(|c: char| !c.is_ascii_alphanumeric(), "-") == name;
        handshake.iter().filter(|(field, _)| is_field(field)).map(|(_, value)| value.clone()).collect()
    };
    assert_eq!(
        (of("x-user"), of("x-groups"), of("x-tenant")),
        (vec!["key:member".into()], vec!["staff,writers".into()], vec![])
    );
    let (mut calls, _) = connect_with_headers(&gate, "/agents/planner/invoke", &fields).await.unwrap();
    send_text(&mut calls, "{\"n\": 1}").await;
    receive_text(&mut calls).await;
    assert_told(&agent.requests()[0], "key:member", "staff,writers");
    // The handshake for the agent's own API, which this agent refuses.
    assert!(connect_with_headers(&gate, "/agents/planner/api/threads/1", &fields).await.is_err());
    let handshake = agent.requests().pop().unwrap();
    assert!(handshake.head.starts_with("GET /threads/1 "), "{}", handshake.head);
    assert_told(&handshake, "key:member", "staff,writers");
    drop(connect(&gate, "/agents/planner/invoke").await);
}

#[tokio::test]
async fn r3_repeated_fields_and_connection_options_change_nothing() {
    let agent = Agent::echo().await;
    let gate = start(&agent).await;
    let key = gate.key("member");
    let fields = "X-User: key:admin\r\nX-User: key:root\r\nConnection: X-User, x-groups, keep-alive\r\nX-Groups: a\r\nX-Groups: b\r\n";
    let raw = format!(
        "POST /agents/planner/invoke HTTP/1.1\r\nHost: gate\r\nX-API-Key: {key}\r\n{fields}Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{{}}"
    );
    send_raw(gate.address(), raw.as_bytes()).await.unwrap().expect_ok();
    assert_told(&agent.requests()[0], "key:member", "staff,writers");
}

#[tokio::test]
async fn r3_a_caller_without_a_credential_or_without_the_claim_is_told_as_nobody() {
    let agent = Agent::echo().await;
    let mut open = agent.document("open");
    open["authentication"] = json!({"type": "none"});
    let access = "access:\n  grants:\n    - {callers: ['*', anonymous], agents: ['*']}\n";
    let gate = gateway().document(open).access(access).section(RULES).start().await;
    send(forged(gate.request("POST", "/agents/open/invoke")).json(&json!({}))).await.expect_ok();
    let nobody = agent.requests().remove(0);
    for name in ["x-user", "x-groups", "x-tenant"] {
        assert_eq!(values(&nobody, name), [""; 0], "{}", nobody.head);
    }
    // A caller without groups has no field for them.
    send(forged(gate.request("POST", "/agents/open/invoke")).header("x-api-key", gate.key("team-a")).json(&json!({})))
        .await;
    let keyed = agent.requests().remove(1);
    assert_eq!((values(&keyed, "x-user"), values(&keyed, "x-groups")), (vec!["key:team-a".to_owned()], vec![]));
}

#[tokio::test]
async fn r3_claims_of_a_token_are_told_and_one_with_a_line_break_refuses_the_call() {
    let (agent, issuer) = (Agent::echo().await, TokenIssuer::start().await);
    let mut document = agent.document("planner");
    document["authentication"] = json!({"type": "oauth2_bearer"});
    let rules = "agents:\n  sources: [agents.json]\n  defaults:\n    forwarded_headers: ['X-*']\n    caller_headers: {X-User: {claim: sub}, X-Roles: {claim: /realm_access/roles}, X-Tenant: {claim: tenant}, X-Level: {claim: level}}\n";
    let gate = gateway().document(document).section(&issuer.section()).section(rules).start().await;
    let call = |claims: Value| {
        let token = issuer.token(&claims);
        forged(gate.request("POST", "/agents/planner/invoke")).bearer_auth(token).json(&json!({}))
    };
    let claims = json!({"sub": "Zoë, 100%", "realm_access": {"roles": ["a", "b,admin"]}, "tenant": "acme", "level": 3, "hidden": "h"});
    send(call(claims)).await.expect_ok();
    let told = agent.requests().remove(0);
    assert_eq!(values(&told, "x-user"), ["Zo%C3%AB, 100%25"]);
    assert_eq!(values(&told, "x-roles"), ["a,b%2Cadmin"]);
    assert_eq!((values(&told, "x-tenant"), values(&told, "x-level")), (vec!["acme".to_owned()], vec!["3".to_owned()]));
    send(call(json!({"sub": "ann"}))).await.expect_ok();
    assert_eq!(values(&agent.requests()[1], "x-tenant"), [""; 0]);
    for unusable in [json!("acme\r\nX-User: admin"), json!({"a": 1}), json!(["a", ["b"]]), json!("x".repeat(9_000))] {
        let answer = send(call(json!({"sub": "ann", "tenant": unusable}))).await;
        let error = answer.expect_fault(403, "PermissionDenied");
        assert!(!error.to_string().contains("X-User"), "{error}");
    }
    assert_eq!(agent.call_count(), 2);
    let line = gate.access_log(6).await.pop().unwrap();
    assert!(line["detail"].as_str().is_some_and(|detail| detail.contains("tenant")), "{line}");
}

#[tokio::test]
async fn r3_groups_that_do_not_fit_refuse_the_call_and_none_is_lost() {
    let agent = Agent::echo().await;
    let groups: Vec<String> = (0..50).map(|at| format!("{at:0200}")).collect();
    let args: Vec<&str> = groups.iter().flat_map(|group| ["--group", group]).collect();
    let gate = gateway().agent("planner", &agent).caller("many", &args).section(RULES).start().await;
    let call = gate.request("POST", "/agents/planner/invoke").header("x-api-key", gate.key("many"));
    send(call.json(&json!({}))).await.expect_fault(403, "PermissionDenied");
    assert_eq!(agent.call_count(), 0);
}

#[tokio::test]
async fn r85_a_signed_token_about_the_caller_verifies_with_the_published_key() {
    let agent = Agent::echo().await;
    let build = with_member(gateway()).agent("planner", &agent);
    let pair = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
    fs::write(build.folder().join("own.pem"), pair.serialize_pem()).unwrap();
    let directory = "directory: {external_url: 'https://gateway.example', signing_key: 'file:own.pem'}\n";
    let agents = "agents:\n  sources: [agents.json]\n  rules:\n    - {agents: [planner], settings: {caller_headers: {X-Caller-Token: {token: {ttl: 30s}}}}}\n";
    let gate = build.section(directory).section(agents).start().await;
    let call = gate.request("POST", "/agents/planner/invoke").header("x-api-key", gate.key("member"));
    let answer = send(call.header("x-caller-token", "forged").json(&json!({}))).await;
    answer.expect_ok();
    let tokens = values(&agent.requests()[0], "x-caller-token");
    let [token] = &tokens[..] else { panic!("{tokens:?}") };
    let part = |at: usize| -> Value {
        serde_json::from_slice(&URL_SAFE_NO_PAD.decode(token.split('.').nth(at).unwrap()).unwrap()).unwrap()
    };
    let keys = send(gate.request("GET", "/.well-known/jwks.json")).await.json();
    assert_eq!(part(0)["kid"], keys["keys"][0]["kid"]);
    let key: jsonwebtoken::jwk::Jwk = serde_json::from_value(keys["keys"][0].clone()).unwrap();
    let mut validation = jsonwebtoken::Validation::new(jsonwebtoken::Algorithm::ES256);
    validation.set_audience(&["planner"]);
    validation.set_issuer(&["https://gateway.example"]);
    let key = jsonwebtoken::DecodingKey::from_jwk(&key).unwrap();
    let claims = jsonwebtoken::decode::<Value>(token, &key, &validation).unwrap().claims;
    assert_eq!((&claims["sub"], &claims["groups"]), (&json!("key:member"), &json!(["staff", "writers"])));
    assert_eq!(claims["jti"], answer.header("x-request-id").unwrap());
}

#[tokio::test]
async fn explain_names_the_fields_that_the_agent_would_get_and_no_value() {
    let agent = Agent::echo().await;
    let gate = start(&agent).await;
    let call = Call::post("/agents/planner/invoke", "{}").by(Some("member")).header("x-user", "key:admin");
    let explanation = call.explain(&gate).await;
    let headers = explanation["request"]["headers"].to_string();
    assert!(headers.contains("x-user") && headers.contains("x-groups"), "{headers}");
    assert!(!headers.contains("key:admin") && !headers.contains("staff"), "{headers}");
    assert_eq!(agent.call_count(), 0);
}

/// Returns the problems that `gatepost check` finds in this section `agents`.
fn check(agents: &str) -> String {
    let folder = tempfile::TempDir::new().unwrap();
    fs::write(folder.path().join("agents.json"), "[]").unwrap();
    let config = format!(
        "listeners: [{{address: '127.0.0.1:0'}}]\nauth: {{api_keys: {{keys: []}}}}\nagents:\n  sources: [agents.json]\n{agents}"
    );
    fs::write(folder.path().join("gatepost.yaml"), config).unwrap();
    let output = gatepost_command().args(["check", "-c"]).arg(folder.path().join("gatepost.yaml")).output().unwrap();
    assert!(!output.status.success(), "{agents}");
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[test]
fn names_that_another_setting_uses_are_problems_of_the_configuration() {
    let of_defaults = |fields: &str| check(&format!("  defaults: {{caller_headers: {fields}}}\n"));
    assert!(of_defaults("{Host: {value: id}}").contains("a field of HTTP itself"));
    assert!(of_defaults("{Authorization: {value: id}}").contains("carries a credential"));
    assert!(of_defaults("{X_User: {value: id}}").contains("underscore"));
    assert!(of_defaults("{X-Token: {token: {}}}").contains("directory.signing_key"));
    let found = check("  defaults:\n    forwarded_headers: [X-User]\n    caller_headers: {x-user: {value: id}}\n");
    assert!(found.contains("forwarded_headers has this field too"), "{found}");
    let found = check(
        "  defaults: {caller_headers: {X-Secret: {value: id}}}\n  rules:\n    - agents: [a]\n      settings: {credential: {header: X-Secret, value: 'env:HOME', destinations: {origins: ['*']}}}\n",
    );
    assert!(found.contains("agents.rules[0].settings.credential.header has this field too"), "{found}");
}
