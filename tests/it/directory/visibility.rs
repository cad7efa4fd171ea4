//! Discovery and calls agree on who may see what: every kind of credential, agents of each authentication type, and every
//! path of discovery.

use crate::{
    callers::{document_with, with_tls_listener},
    support::{
        agent::{Agent, json_response},
        certs::CertificateAuthority,
        gateway::{Gateway, GatewayBuilder, gateway, send},
        gateway_response::GatewayResponse,
        issuer::TokenIssuer,
        servers::tls_client,
    },
};
use serde_json::{Value, json};

/// One agent of each authentication type, each with the ids `granted-…`, which a grant covers, and `hidden-…`.
const KINDS: [&str; 5] = ["api_key", "oauth2_bearer", "mtls", "none", "scoped"];
const ACCESS: &str = "access:
  grants:
    - callers: ['key:team-a', 'oauth:signed/app-1', 'oauth:opaque/app-1', 'cert:dns:robot.example', anonymous]
      agents: ['granted-*']
";
/// Documents of one agent, after `/agents/{id}`.
const AGENT_DOCUMENTS: [&str; 6] =
    ["", "/agent.json", "/.well-known/agent.json", "/agent-card.json", "/.well-known/agent-card.json", "/openapi.json"];
/// Lists and searches of all agents.
const LISTS: [&str; 12] = [
    "/agents",
    "/agents?q=agent",
    "/agents?tags=",
    "/.well-known/agents.json",
    "/agent.json",
    "/.well-known/agent.json",
    "/.well-known/agent-card.json",
    "/.well-known/agent-card",
    "/v1/card",
    "/.well-known/agentframework/v1/agents",
    "/.well-known/agentframework/v1/agents?view=full",
    "/.agent-framework/v1/agents",
];
const FRAMEWORK_PREFIXES: [&str; 2] = ["/.well-known/agentframework/v1/agents", "/.agent-framework/v1/agents"];

struct Credential {
    name: &'static str,
    client: reqwest::Client,
    headers: Vec<(&'static str, String)>,
}

impl Credential {
    async fn send(&self, gate: &Gateway, method: &str, path: &str, body: Option<&Value>) -> GatewayResponse {
        let url = format!("https://localhost:{}{path}", gate.address().port());
        let request = self.client.request(method.parse().unwrap(), url);
        let request = self.headers.iter().fold(request, |request, (name, value)| request.header(*name, value));
        send(match body {
            Some(body) => request.json(body),
            None => request,
        })
        .await
    }

    /// A call that becomes a task.
    async fn send_async(&self, gate: &Gateway, path: &str) -> GatewayResponse {
        let headers = self.headers.iter().cloned().chain([("prefer", "respond-async".to_owned())]).collect();
        let credential = Self { name: self.name, client: self.client.clone(), headers };
        credential.send(gate, "POST", path, Some(&json!({}))).await
    }

    /// The status of a WebSocket handshake.
    async fn handshake(&self, gate: &Gateway, path: &str) -> u16 {
        let upgrade = [
            ("connection", "Upgrade"),
            ("upgrade", "websocket"),
            ("sec-websocket-version", "13"),
            ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ];
        let headers = upgrade.map(|(name, value)| (name, value.to_owned())).into_iter().chain(self.headers.clone());
        let url = format!("https://localhost:{}{path}", gate.address().port());
        let request = self.client.get(url);
        let request = headers.fold(request, |request, (name, value)| request.header(name, value));
        // The body of a 101 is the connection, which ends here.
        request.send().await.unwrap().status().as_u16()
    }
}

fn documents(agent: &Agent) -> Vec<Value> {
    let of_kind = |prefix: &str, kind: &str| {
        let authentication = match kind {
            "scoped" => json!({"type": "oauth2_bearer", "scopes": ["admin"], "instructions": "Ask the operator."}),
            kind => json!({"type": kind, "instructions": "Ask the operator."}),
        };
        let mut document = document_with(agent, &format!("{prefix}-{kind}"), &authentication);
        document["description"] = json!("An agent of this test.");
        document
    };
    ["granted", "hidden"].iter().flat_map(|prefix| KINDS.map(|kind| of_kind(prefix, kind))).collect()
}

/// Whether a caller with this kind of credential sees the agent: with a credential, by the grant alone; without one, if
/// it may call the agent.
fn sees(credential: &str, id: &str) -> bool {
    match credential {
        "invalid key" => false,
        "none" => id == "granted-none",
        _ => id.starts_with("granted-"),
    }
}

/// A gateway with the agents, and every kind of credential. The servers listen as long as this exists.
struct Scene {
    gate: Gateway,
    credentials: [Credential; 6],
    echo: Agent,
    _servers: (TokenIssuer, Agent),
}

impl Scene {
    async fn start() -> Self {
        let echo = Agent::echo().await;
        let (issuer, authority) = (TokenIssuer::start().await, CertificateAuthority::new("ours"));
        let claims = json!({"active": true, "client_id": "app-1", "scope": "read", "token_type": "Bearer"});
        let introspection = Agent::with_steps(json_response(&claims)).await;
        let bearer = format!(
            "{}    introspection: {{endpoint: '{}', client_id: gateway, client_secret: 'env:SECRET', label: opaque}}\n",
            issuer.section().replace("algorithms: [ES256]}", "algorithms: [ES256], label: signed}"),
            introspection.url()
        );
        let build = documents(&echo).into_iter().fold(gateway(), GatewayBuilder::document);
        let build = build.access(ACCESS).section(&bearer).section("  mtls: {}\n").env("SECRET", "of-the-gateway");
        let build = build.section("tasks: {}\n");
        let gate = with_tls_listener(build, &authority, "").start().await;
        let plain = tls_client(&authority, None).http1_only().build().unwrap();
        let certified = tls_client(&authority, Some(&authority.client("robot.example"))).http1_only().build().unwrap();
        let token = format!("Bearer {}", issuer.token(&json!({})));
        let credential = |name, client: &reqwest::Client, headers| Credential { name, client: client.clone(), headers };
        let credentials = [
            credential("none", &plain, vec![]),
            credential("API key", &plain, vec![("x-api-key", gate.key("team-a").to_owned())]),
            credential("token", &plain, vec![("authorization", token)]),
            credential("opaque token", &plain, vec![("authorization", "Bearer an-opaque-token".to_owned())]),
            credential("certificate", &certified, vec![]),
            credential("invalid key", &plain, vec![("x-api-key", "gp_wrong".to_owned())]),
        ];
        Self { gate, credentials, echo, _servers: (issuer, introspection) }
    }
}

#[tokio::test]
async fn r12_r3_a_document_is_missing_exactly_where_a_call_is_and_lists_leave_its_agent_out() {
    let scene = Scene::start().await;
    let Scene { gate, credentials, echo, .. } = &scene;
    for credential in credentials {
        let name = credential.name;
        let mut calls = Vec::new();
        for id in documents(echo).iter().map(|document| document["id"].as_str().unwrap()) {
            let call = credential.send(gate, "POST", &format!("/agents/{id}/invoke"), Some(&json!({}))).await.status;
            calls.push((id.to_owned(), call));
            let documents = AGENT_DOCUMENTS.iter().map(|document| format!("/agents/{id}{document}"));
            for path in documents.chain(FRAMEWORK_PREFIXES.iter().map(|prefix| format!("{prefix}/{id}"))) {
                let document = credential.send(gate, "GET", &path, None).await;
                assert_eq!(document.status == 404, call == 404, "{name}: {path} is {}, a call {call}", document.status);
                assert_eq!(document.status == 200, sees(name, id), "{name}: {path}: {}", document.text());
            }
            if id.starts_with("hidden") {
                let expected = if matches!(name, "none" | "invalid key") { 401 } else { 404 };
                assert_eq!(call, expected, "{name}: {id}");
                let unknown = credential.send(gate, "GET", "/agents/unknown", None).await;
                assert_eq!(unknown.status, expected, "{name}: an unknown agent");
            }
        }
        assert_eq!(calls.iter().any(|(_, status)| *status == 200), name != "invalid key", "{name}: {calls:?}");
        let bodies = [
            ("/agents/search", json!({"query": "agent", "top": 50})),
            ("/agents/search", json!({"filters": {}})),
            ("/agents/resolve", json!({"intent": "agent", "top": 20})),
        ];
        let gets = LISTS.iter().map(|path| ("GET", *path, None));
        for (method, path, body) in gets.chain(bodies.iter().map(|(path, body)| ("POST", *path, Some(body)))) {
            let list = credential.send(gate, method, path, body).await;
            if name == "invalid key" {
                list.expect_fault(401, "Unauthorized");
                continue;
            }
            assert_eq!(list.status, 200, "{name}: {path}: {}", list.text());
            list.assert_hides(&["hidden-"]);
            for id in KINDS.map(|kind| format!("granted-{kind}")) {
                assert_eq!(list.text().contains(&id), sees(name, &id), "{name}: {path}: {id}");
            }
        }
        credential.send(gate, "GET", "/openapi.json", None).await.assert_hides(&["hidden-", "granted-"]);
    }
    // The kind of credential and the scopes are judged at the call, with the reason.
    let [_, key, token, ..] = credentials;
    let instructions =
        key.send(gate, "GET", "/agents/granted-scoped", None).await.expect_ok()["authentication"].clone();
    assert_eq!(
        instructions,
        json!({"type": "oauth2_bearer", "scopes": ["admin"], "instructions": "Ask the operator."})
    );
    let call = key.send(gate, "POST", "/agents/granted-scoped/invoke", Some(&json!({}))).await;
    let error = call.expect_fault(401, "Unauthorized");
    assert!(error["message"].as_str().unwrap().contains("a bearer token"), "{error}");
    let call = token.send(gate, "POST", "/agents/granted-scoped/invoke", Some(&json!({}))).await;
    let error = call.expect_fault(403, "PermissionDenied");
    assert!(error["message"].as_str().unwrap().contains("admin"), "{error}");
}

#[tokio::test]
async fn r3_every_way_to_call_an_agent_refuses_each_credential_as_a_call_does() {
    let scene = Scene::start().await;
    let Scene { gate, credentials, echo, .. } = &scene;
    for credential in credentials {
        let name = credential.name;
        for document in documents(echo) {
            let id = document["id"].as_str().unwrap();
            let call = credential.send(gate, "POST", &format!("/agents/{id}/invoke"), Some(&json!({}))).await.status;
            let calls_so_far = echo.call_count();
            let pipeline = json!({"steps": [{"agent": id}], "input": {}});
            let input = json!({});
            for (method, path, body) in [
                ("GET", format!("/agents/{id}/invoke"), None),
                ("GET", format!("/agents/{id}/agent.json/{id}"), None),
                ("POST", format!("/agents/{id}/agent.json/{id}/invoke"), Some(&input)),
                ("POST", format!("/agents/{id}/v1/message:send"), Some(&input)),
                ("POST", "/pipelines/invoke".to_owned(), Some(&pipeline)),
            ] {
                let other = credential.send(gate, method, &path, body).await;
                assert_eq!(other.status, call, "{name}: {method} {path}: {}", other.text());
            }
            let is_refused = call != 200;
            assert_eq!(is_refused, echo.call_count() == calls_so_far, "{name}: {id} is {call}");
            let handshake = credential.handshake(gate, &format!("/agents/{id}/invoke")).await;
            assert_eq!(handshake, if is_refused { call } else { 101 }, "{name}: WebSocket of {id}");
            let task = credential.send_async(gate, &format!("/agents/{id}/invoke")).await;
            assert_eq!(task.status, if is_refused { call } else { 202 }, "{name}: task of {id}: {}", task.text());
            if is_refused {
                continue;
            }
            let path = format!("/tasks/{}", task.json()["taskId"].as_str().unwrap());
            for other in credentials {
                let status = other.send(gate, "GET", &path, None).await.status;
                let expected = match other.name {
                    own if own == name => 200,
                    "invalid key" => 401,
                    _ => 404,
                };
                assert_eq!(status, expected, "{}: the task of {name}", other.name);
            }
        }
    }
}

#[tokio::test]
async fn r12_a_public_agent_without_a_grant_is_403_and_a_denied_one_as_configured() {
    let echo = Agent::echo().await;
    let gate = gateway()
        .agent("open", &echo)
        .agent("closed", &echo)
        .access("access: {grants: []}\n")
        .section("directory: {public_agents: [open]}\n")
        .start()
        .await;
    let get = async |path: &str| send(gate.request("GET", path).header("x-api-key", gate.key("team-a"))).await;
    get("/agents/open").await.expect_ok();
    gate.invoke("open", &json!({})).await.expect_fault(403, "PermissionDenied");
    get("/agents/closed").await.expect_fault(404, "NotFound");
    gate.invoke("closed", &json!({})).await.expect_fault(404, "NotFound");
    send(gate.request("GET", "/agents/closed")).await.expect_fault(401, "Unauthorized");
    assert_eq!(echo.call_count(), 0);

    let gate = gateway().agent("closed", &echo).access("access: {on_denied: forbidden, grants: []}\n").start().await;
    let get = async |path: &str| send(gate.request("GET", path).header("x-api-key", gate.key("team-a"))).await;
    for document in AGENT_DOCUMENTS {
        get(&format!("/agents/closed{document}")).await.expect_fault(403, "PermissionDenied");
    }
    gate.invoke("closed", &json!({})).await.expect_fault(403, "PermissionDenied");
    get("/agents/unknown").await.expect_fault(404, "NotFound");
    assert_eq!(get("/agents").await.expect_ok(), json!([]));
}
