//! Discovery and calls agree on who may see what: every kind of credential, agents of each authentication type, and every
//! path of discovery.

use crate::{
    callers::{document_with, with_tls_listener},
    support::{
        agent::Agent,
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
    - {callers: ['key:team-a', 'oauth:app-1', 'cert:dns:robot.example', anonymous], agents: ['granted-*']}
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

#[tokio::test]
async fn r12_r3_a_document_is_missing_exactly_where_a_call_is_and_lists_leave_its_agent_out() {
    let echo = Agent::echo().await;
    let (issuer, authority) = (TokenIssuer::start().await, CertificateAuthority::new("ours"));
    let build = documents(&echo).into_iter().fold(gateway(), GatewayBuilder::document);
    let build = build.access(ACCESS).section(&issuer.section()).section("  mtls: {}\n");
    let gate = with_tls_listener(build, &authority, "").start().await;
    let plain = tls_client(&authority, None).build().unwrap();
    let certified = tls_client(&authority, Some(&authority.client("robot.example"))).build().unwrap();
    let token = format!("Bearer {}", issuer.token(&json!({})));
    let credentials = [
        Credential { name: "none", client: plain.clone(), headers: vec![] },
        Credential {
            name: "API key",
            client: plain.clone(),
            headers: vec![("x-api-key", gate.key("team-a").to_owned())],
        },
        Credential { name: "token", client: plain.clone(), headers: vec![("authorization", token)] },
        Credential { name: "certificate", client: certified, headers: vec![] },
        Credential { name: "invalid key", client: plain, headers: vec![("x-api-key", "gp_wrong".to_owned())] },
    ];
    for credential in &credentials {
        let name = credential.name;
        let mut calls = Vec::new();
        for id in documents(&echo).iter().map(|document| document["id"].as_str().unwrap()) {
            let call = credential.send(&gate, "POST", &format!("/agents/{id}/invoke"), Some(&json!({}))).await.status;
            calls.push((id.to_owned(), call));
            let documents = AGENT_DOCUMENTS.iter().map(|document| format!("/agents/{id}{document}"));
            for path in documents.chain(FRAMEWORK_PREFIXES.iter().map(|prefix| format!("{prefix}/{id}"))) {
                let document = credential.send(&gate, "GET", &path, None).await;
                assert_eq!(document.status == 404, call == 404, "{name}: {path} is {}, a call {call}", document.status);
                assert_eq!(document.status == 200, sees(name, id), "{name}: {path}: {}", document.text());
            }
            if id.starts_with("hidden") {
                let expected = if matches!(name, "none" | "invalid key") { 401 } else { 404 };
                assert_eq!(call, expected, "{name}: {id}");
                let unknown = credential.send(&gate, "GET", "/agents/unknown", None).await;
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
            let list = credential.send(&gate, method, path, body).await;
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
        credential.send(&gate, "GET", "/openapi.json", None).await.assert_hides(&["hidden-", "granted-"]);
    }
    // The kind of credential and the scopes are judged at the call, with the reason.
    let [_, key, token, ..] = &credentials;
    let instructions =
        key.send(&gate, "GET", "/agents/granted-scoped", None).await.expect_ok()["authentication"].clone();
    assert_eq!(
        instructions,
        json!({"type": "oauth2_bearer", "scopes": ["admin"], "instructions": "Ask the operator."})
    );
    let call = key.send(&gate, "POST", "/agents/granted-scoped/invoke", Some(&json!({}))).await;
    let error = call.expect_fault(401, "Unauthorized");
    assert!(error["message"].as_str().unwrap().contains("a bearer token"), "{error}");
    let call = token.send(&gate, "POST", "/agents/granted-scoped/invoke", Some(&json!({}))).await;
    let error = call.expect_fault(403, "PermissionDenied");
    assert!(error["message"].as_str().unwrap().contains("admin"), "{error}");
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
