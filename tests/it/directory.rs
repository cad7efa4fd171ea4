//! The directory, end to end: a published agent can be called at once, callers discover only the agents that they may
//! call, and acknowledged documents survive a crash.

use crate::support::{
    agent::Agent,
    eventually,
    gateway::{Gateway, GatewayBuilder, gateway, send},
    gateway_response::GatewayResponse,
};
use serde_json::{Value, json};

mod hidden_agents;
mod published_metadata;
mod visibility;

pub const PUBLISHERS: &str = "registry:
  publishers:
    - callers: ['key:team-a']
    - callers: ['key:team-b']
      agents: ['b-*']
";

/// A gateway where team-a and team-b may publish. The caller `reader` may not.
fn registry() -> GatewayBuilder {
    gateway().section(PUBLISHERS).caller("team-b", &[]).caller("reader", &[])
}

/// Sends a request with the key of a caller.
pub async fn send_as(
    gate: &Gateway,
    caller: &str,
    (method, path): (&str, &str),
    body: Option<&Value>,
) -> GatewayResponse {
    let request = gate.request(method, path).header("x-api-key", gate.key(caller));
    send(match body {
        Some(body) => request.json(body),
        None => request,
    })
    .await
}

pub async fn publish(gate: &Gateway, caller: &str, document: &Value) -> GatewayResponse {
    send_as(gate, caller, ("POST", "/agents"), Some(document)).await
}

async fn get(gate: &Gateway, caller: &str, path: &str) -> GatewayResponse {
    send_as(gate, caller, ("GET", path), None).await
}

fn ids(list: &Value) -> Vec<String> {
    list.as_array().unwrap().iter().map(|agent| agent["id"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn r17_r20_an_agent_is_published_called_changed_and_removed() {
    let echo = Agent::echo().await;
    let gate = registry().start().await;
    let document = echo.document("echo");
    let created = publish(&gate, "team-a", &document).await;
    assert_eq!(created.status, 201, "{}", created.text());
    assert!(created.header("location").is_some_and(|location| location.ends_with("/agents/echo")));
    assert_eq!(created.json(), document, "the response is the stored document");
    assert_eq!(gate.invoke("echo", &json!({"a": 1})).await.status, 200, "an acknowledged agent can be called at once");

    let updated = publish(&gate, "team-a", &document).await;
    assert_eq!(updated.status, 200, "{}", updated.text());
    let read = get(&gate, "team-a", "/agents/echo").await;
    assert_eq!(read.expect_ok(), document, "the publisher reads the document unchanged");
    let etag = read.header("etag").unwrap().to_owned();

    let patch = gate.request("PATCH", "/agents/echo").header("x-api-key", gate.key("team-a"));
    let patch = patch.header("content-type", "application/merge-patch+json").header("if-match", &etag);
    let patched = send(patch.body(r#"{"version":"2.0.0","tags":["new"]}"#)).await;
    assert_eq!(patched.expect_ok()["version"], "2.0.0");
    let outdated = gate.request("PUT", "/agents/echo").header("x-api-key", gate.key("team-a"));
    send(outdated.header("if-match", &etag).json(&document)).await.expect_fault(412, "PreconditionFailed");

    let history = get(&gate, "team-a", "/agents/echo/history").await.expect_ok();
    assert!(history.to_string().contains("key:team-a"), "{history}");
    assert_eq!(send_as(&gate, "team-a", ("DELETE", "/agents/echo"), None).await.status, 204);
    gate.invoke("echo", &json!({})).await.expect_fault(404, "NotFound");
    get(&gate, "team-a", "/agents/echo").await.expect_fault(404, "NotFound");
    send_as(&gate, "team-a", ("DELETE", "/agents/echo"), None).await.expect_fault(404, "NotFound");
}

#[tokio::test]
async fn r17_an_agent_without_an_id_gets_one() {
    let echo = Agent::echo().await;
    let gate = registry().start().await;
    let mut document = echo.document("x");
    document.as_object_mut().unwrap().remove("id");
    let created = publish(&gate, "team-a", &document).await;
    assert_eq!(created.status, 201, "{}", created.text());
    let id = created.json()["id"].as_str().unwrap().to_owned();
    assert!(created.header("location").is_some_and(|location| location.ends_with(&format!("/agents/{id}"))));
    assert_eq!(gate.invoke(&id, &json!({})).await.status, 200);
}

#[tokio::test]
async fn r17_r18_r32_an_invalid_document_is_refused_with_every_reason() {
    let gate = registry().start().await;
    let invalid = json!({"id": "a b", "endpoint": "ftp://x", "tags": "t", "status": "asleep", "version": 3.1});
    let error = publish(&gate, "team-a", &invalid).await.expect_fault(400, "InvalidInput");
    let details = error["details"].to_string();
    for field in ["/id", "/endpoint", "/tags", "/status", "/version"] {
        assert!(details.contains(field), "{field}: {details}");
    }
    for malformed in ["", "{", "[]", "null", "3", "\"x\"", "{\"id\":\"a\",\"id\":\"b\"}"] {
        let request = gate.post("/agents").header("content-type", "application/json").body(malformed);
        send(request).await.expect_fault(400, "InvalidInput");
    }
    let text = gate.post("/agents").header("content-type", "text/plain").body("{}");
    send(text).await.expect_fault(415, "UnsupportedMediaType");
    let large = format!("{{\"id\":\"a\",\"x\":\"{}\"}}", "x".repeat(2 << 20));
    let large = gate.post("/agents").header("content-type", "application/json").body(large);
    send(large).await.expect_fault(413, "PayloadTooLarge");
    assert_eq!(ids(&get(&gate, "team-a", "/agents").await.expect_ok()), Vec::<String>::new());
}

#[tokio::test]
async fn r18_endpoints_are_checked_against_the_address_policy_on_publication() {
    let gate = registry().section("network:\n  allowed_addresses: []\n").start().await;
    let own_listener = format!("http://{}/agents/x/invoke", gate.address());
    for endpoint in [
        "http://169.254.169.254/latest/meta-data",
        "https://127.0.0.1/x",
        "https://[::1]/x",
        "https://0.0.0.0/x",
        "agent+unix:///run/docker.sock#/containers",
        "file:///etc/passwd",
        &own_listener,
    ] {
        let document = json!({"id": "x", "name": "X", "endpoint": endpoint});
        let error = publish(&gate, "team-a", &document).await.expect_fault(400, "InvalidInput");
        assert!(error.to_string().contains("endpoint"), "{endpoint}: {error}");
    }
}

#[tokio::test]
async fn r18_only_publishers_may_publish_and_change_only_their_own_documents() {
    let (echo, other) = (Agent::echo().await, Agent::echo().await);
    let gate = registry().agent("from-file", &other).start().await;
    let anonymous = send(gate.request("POST", "/agents").json(&echo.document("x"))).await;
    anonymous.expect_fault(401, "Unauthorized");
    publish(&gate, "reader", &echo.document("x")).await.expect_fault(403, "PermissionDenied");
    publish(&gate, "team-b", &echo.document("x")).await.expect_fault(403, "PermissionDenied");
    assert_eq!(publish(&gate, "team-b", &echo.document("b-1")).await.status, 201);
    publish(&gate, "team-a", &echo.document("b-1")).await.expect_fault(409, "Conflict");
    for method in ["PUT", "PATCH", "DELETE"] {
        let response = send_as(&gate, "team-a", (method, "/agents/b-1"), Some(&echo.document("b-1"))).await;
        response.expect_fault(403, "PermissionDenied");
    }
    publish(&gate, "team-a", &echo.document("from-file")).await.expect_fault(409, "Conflict");
    assert_eq!(gate.invoke("b-1", &json!({})).await.status, 200);
}

#[tokio::test]
async fn without_a_registry_nothing_can_be_published() {
    let echo = Agent::echo().await;
    let gate = gateway().agent("echo", &echo).start().await;
    let refused = publish(&gate, "team-a", &echo.document("x")).await;
    refused.expect_fault(405, "MethodNotAllowed");
    assert_eq!(ids(&get(&gate, "team-a", "/agents").await.expect_ok()), ["echo"]);
}

#[tokio::test]
async fn r3_every_discovery_path_shows_only_agents_that_the_caller_may_call() {
    let echo = Agent::echo().await;
    let access = "access:\n  grants:\n    - {callers: ['key:team-a'], agents: ['*']}\n    - {callers: ['key:reader'], agents: [open]}\n";
    let gate = gateway().caller("reader", &[]).access(access);
    let gate = gate.agent("open", &echo).agent("secret", &echo).start().await;
    for path in [
        "/agents",
        "/agents?q=secret",
        "/agents?capabilities=",
        "/.well-known/agentframework/v1/agents",
        "/.agent-framework/v1/agents",
        "/.well-known/agents.json",
        "/agent.json",
        "/.well-known/agent.json",
        "/.well-known/agent-card.json",
        "/v1/card",
        "/openapi.json",
    ] {
        let response = get(&gate, "reader", path).await;
        assert_eq!(response.status, 200, "{path}: {}", response.text());
        response.assert_hides(&["secret"]);
        send(gate.request("GET", path)).await.expect_fault(401, "Unauthorized");
    }
    for (path, body) in [
        ("/agents/search", json!({"query": "secret", "top": 5})),
        ("/agents/search", json!({"filters": {}})),
        ("/agents/resolve", json!({"intent": "secret"})),
    ] {
        let response = send_as(&gate, "reader", ("POST", path), Some(&body)).await;
        assert_eq!(response.status, 200, "{path}: {}", response.text());
        assert!(!response.text().contains("\"secret\""), "{path}: {}", response.text());
    }
    for path in [
        "",
        "/history",
        "/agent.json",
        "/.well-known/agent.json",
        "/agent-card.json",
        "/.well-known/agent-card.json",
        "/openapi.json",
    ] {
        get(&gate, "reader", &format!("/agents/secret{path}")).await.expect_fault(404, "NotFound");
    }
    get(&gate, "reader", "/.well-known/agentframework/v1/agents/secret").await.expect_fault(404, "NotFound");
    assert_eq!(ids(&get(&gate, "team-a", "/agents").await.expect_ok()), ["open", "secret"]);
}

#[tokio::test]
async fn r146_the_version_of_agent_framework_is_in_the_path_alone() {
    let echo = Agent::echo().await;
    let gate = gateway().agent("echo", &echo).start().await;
    let list_path = "/.well-known/agentframework/v1/agents";
    let list = get(&gate, "team-a", list_path).await.expect_ok();
    // What a later minor version may add to a request is ignored, and no media type is needed.
    for (target, accept) in [("", "*/*"), ("?include=later&later=1", "application/json"), ("", "text/html, */*;q=0.1")]
    {
        let request = gate.request("GET", &format!("{list_path}{target}")).header("x-api-key", gate.key("team-a"));
        assert_eq!(send(request.header("accept", accept)).await.expect_ok(), list, "{target} {accept}");
    }
    for path in
        ["/.well-known/agentframework/v2/agents", "/.agent-framework/v2/agents", "/.well-known/agentframework/agents"]
    {
        get(&gate, "team-a", path).await.expect_fault(404, "NotFound");
    }
}

#[tokio::test]
async fn r148_agent_framework_errors_have_the_published_statuses_and_problem_details_on_request() {
    let echo = Agent::echo().await;
    let access = "access:\n  grants:\n    - {callers: ['key:team-a'], agents: [open]}\n";
    let gate = gateway().access(access).agent("open", &echo).agent("secret", &echo).start().await;
    let item_path = "/.well-known/agentframework/v1/agents/";
    let unknown = get(&gate, "team-a", &format!("{item_path}unknown")).await.expect_fault(404, "NotFound");
    let secret = get(&gate, "team-a", &format!("{item_path}secret")).await.expect_fault(404, "NotFound");
    assert_eq!(unknown["message"], secret["message"]);
    let anonymous = send(gate.request("GET", &format!("{item_path}open"))).await;
    anonymous.expect_fault(401, "Unauthorized");
    // Nothing is registered here.
    let publication = send_as(&gate, "team-a", ("POST", item_path.trim_end_matches('/')), Some(&json!({}))).await;
    assert_eq!(publication.status, 405, "{}", publication.text());
    let request = gate.request("GET", &format!("{item_path}unknown")).header("x-api-key", gate.key("team-a"));
    let problem = send(request.header("accept", "application/json;q=0.5, application/problem+json")).await;
    assert_eq!((problem.status, problem.header("content-type")), (404, Some("application/problem+json")));
    for member in ["type", "title", "status", "detail", "instance"] {
        assert!(problem.json().get(member).is_some(), "{member}: {}", problem.text());
    }
}

#[tokio::test]
async fn r2_r3_public_agents_are_discovered_without_a_credential_but_not_called() {
    let echo = Agent::echo().await;
    let gate = gateway().section("directory:\n  public_agents: ['open*']\n");
    let gate = gate.agent("open-1", &echo).agent("closed", &echo).start().await;
    let list = send(gate.request("GET", "/agents")).await.expect_ok();
    assert_eq!(ids(&list), ["open-1"]);
    let endpoint = list[0]["endpoint"].as_str().unwrap();
    assert!(endpoint.ends_with("/agents/open-1/invoke"), "not the gateway's URL: {endpoint}");
    send(gate.request("GET", "/agents/closed")).await.expect_fault(401, "Unauthorized");
    send(gate.request("POST", "/agents/open-1/invoke").json(&json!({}))).await.expect_fault(401, "Unauthorized");
    let publication = send(gate.request("POST", "/agents").json(&echo.document("open-2"))).await;
    publication.expect_fault(401, "Unauthorized");
    assert!(publication.header("www-authenticate").is_some());
    let unknown_key = gate.request("GET", "/agents").header("x-api-key", "gp_000000000000_wrong");
    send(unknown_key).await.expect_fault(401, "Unauthorized");
}

#[tokio::test]
async fn r4_the_address_of_an_agent_is_not_disclosed() {
    let echo = Agent::echo().await;
    let gate = gateway().agent("echo", &echo).start().await;
    for path in [
        "/agents",
        "/agents/echo",
        "/agents/echo/agent.json",
        "/agents/echo/agent-card.json",
        "/agents/echo/openapi.json",
        "/.well-known/agentframework/v1/agents/echo?include=endpoints",
    ] {
        let response = get(&gate, "team-a", path).await;
        assert_eq!(response.status, 200, "{path}");
        response.assert_hides(&[echo.url().trim_start_matches("http://").trim_end_matches('/')]);
    }
}

#[tokio::test]
async fn r5_searches_have_their_own_rate_limit() {
    let echo = Agent::echo().await;
    let gate = gateway().section("limits:\n  per_caller_search: 1/min burst 3\n").agent("echo", &echo).start().await;
    let search = async || send_as(&gate, "team-a", ("POST", "/agents/search"), Some(&json!({"query": "echo"}))).await;
    for _ in 0..3 {
        search().await.expect_ok();
    }
    let refused = search().await;
    refused.expect_fault(429, "RateLimited");
    get(&gate, "team-a", "/agents?%71=echo").await.expect_fault(429, "RateLimited");
    assert!(refused.header("retry-after").is_some());
    assert_eq!(gate.invoke("echo", &json!({})).await.status, 200, "calls are not limited");
    assert_eq!(get(&gate, "team-a", "/agents/echo").await.status, 200, "reading a document is not limited");
}

#[tokio::test]
async fn r62_r149_unchanged_documents_are_answered_with_304() {
    for algorithm in [None, Some(&rcgen::PKCS_ECDSA_P256_SHA256), Some(&rcgen::PKCS_ED25519)] {
        let echo = Agent::echo().await;
        let mut build = gateway().agent("echo", &echo);
        if let Some(algorithm) = algorithm {
            let pem = rcgen::KeyPair::generate_for(algorithm).unwrap().serialize_pem();
            std::fs::write(build.folder().join("own.pem"), pem).unwrap();
            build = build.section("directory:\n  external_url: https://gateway.example\n  signing_key: file:own.pem\n");
        }
        let gate = build.start().await;
        for path in [
            "/agents",
            "/agents/echo",
            "/agents/echo/agent.json",
            "/.well-known/agents.json",
            "/openapi.json",
            "/agents/echo/.well-known/agent-card.json",
            "/.well-known/agent-card.json",
        ] {
            let full = get(&gate, "team-a", path).await;
            let etag = full.header("etag").unwrap_or_else(|| panic!("{path}")).to_owned();
            assert!(etag.starts_with('"'), "{path}: {etag} is not strong");
            assert!(full.header("last-modified").is_some(), "{path}");
            assert!(full.header("vary").is_some(), "{path}");
            let conditional = gate.request("GET", path).header("x-api-key", gate.key("team-a"));
            let not_modified = send(conditional.header("if-none-match", &etag)).await;
            assert_eq!((not_modified.status, not_modified.body.len()), (304, 0), "{path} {algorithm:?}");
            assert_eq!(not_modified.header("etag"), Some(&*etag), "{path}");
            let head = send_as(&gate, "team-a", ("HEAD", path), None).await;
            assert_eq!((head.status, head.body.len()), (200, 0), "{path}");
            assert_eq!(head.header("content-length"), Some(&*full.body.len().to_string()), "{path}");
        }
        let card_aliases = [
            "/agents/echo/agent-card.json",
            "/agents/echo/.well-known/agent-card.json",
            "/agents/echo/.well-known/agent.json",
            "/.well-known/agent-card.json",
            "/.well-known/agent.json",
        ];
        for aliases in [&card_aliases[..], &["/.well-known/agent-card", "/v1/card"]] {
            let first = get(&gate, "team-a", aliases[0]).await;
            assert_eq!(first.json().get("signatures").is_some(), algorithm.is_some(), "{algorithm:?}");
            let etag = first.header("etag").unwrap().to_owned();
            for alias in aliases {
                let other = get(&gate, "team-a", alias).await;
                assert_eq!((&other.body, other.header("etag")), (&first.body, Some(&*etag)), "{alias} {algorithm:?}");
                let conditional = gate.request("GET", alias).header("x-api-key", gate.key("team-a"));
                let not_modified = send(conditional.header("if-none-match", &etag)).await;
                assert_eq!((not_modified.status, not_modified.body.len()), (304, 0), "{alias} {algorithm:?}");
            }
        }
    }
}

#[tokio::test]
async fn r8_requests_to_the_directory_are_logged_and_counted() {
    let echo = Agent::echo().await;
    let gate = gateway().agent("echo", &echo).start().await;
    get(&gate, "team-a", "/agents").await.expect_ok();
    let entry = gate.access_log(1).await.remove(0);
    assert_eq!((&entry["operation"], &entry["caller"]), (&json!("directory"), &json!("key:team-a")), "{entry}");
    let page = gate.admin_page("/metrics").await.text();
    assert!(page.lines().any(|line| line.starts_with("gatepost_calls_total") && line.contains("directory")), "{page}");
}

#[tokio::test]
async fn r21_r24_search_finds_a_newly_published_agent() {
    let echo = Agent::echo().await;
    let gate = registry().start().await;
    let mut document = echo.document("brief");
    document["description"] = json!("Condenses long contracts into one page.");
    document["capabilities"] = json!(["summarization"]);
    document["supported_languages"] = json!(["zh", "en"]);
    assert_eq!(publish(&gate, "team-a", &document).await.status, 201);
    assert_eq!(publish(&gate, "team-a", &echo.document("other")).await.status, 201);
    eventually("the search finds the agent", async || {
        let body = json!({"filters": {"capabilities": ["summarization"], "supported_languages": ["zh"]}, "top": 5});
        ids(&send_as(&gate, "team-a", ("POST", "/agents/search"), Some(&body)).await.expect_ok()) == ["brief"]
    })
    .await;
    let list = get(&gate, "team-a", "/agents?capabilities=summarization&language=en").await.expect_ok();
    assert_eq!(ids(&list), ["brief"]);
    let query = json!({"query": "shorten legal documents"});
    let ranked = send_as(&gate, "team-a", ("POST", "/agents/search"), Some(&query)).await.expect_ok();
    assert_eq!(ranked[0]["id"], "brief", "{ranked}");
    assert!(ranked[0]["score"].as_f64().is_some_and(|score| (0.0..=1.0).contains(&score)), "{ranked}");
    for invalid in [json!({"top": 0}), json!({"top": "many"}), json!({"filters": []}), json!({"query": 3}), json!([])] {
        let response = send_as(&gate, "team-a", ("POST", "/agents/search"), Some(&invalid)).await;
        response.expect_fault(400, "InvalidInput");
    }
}

#[tokio::test]
async fn r16_r20_a_gateway_is_a_registry_for_another_that_copies_it_or_looks_up_single_agents() {
    let echo = Agent::echo().await;
    let source = registry().section("directory:\n  advertised_endpoints: direct\n").start().await;
    assert_eq!(publish(&source, "team-a", &echo.document("far")).await.status, 201);
    for on_demand in [false, true] {
        let agents = format!(
            "agents:\n  sources:\n    - kind: aidip\n      url: {}\n      poll_interval: 1s\n      \
             on_demand: {on_demand}\n      credential: {{header: {{name: X-API-Key, value: 'env:SOURCE_KEY'}}}}\n",
            source.url("/agents")
        );
        let gate = gateway().section(&agents).env("SOURCE_KEY", source.key("team-a")).start().await;
        assert_eq!(gate.invoke("far", &json!({"a": 1})).await.status, 200, "on_demand: {on_demand}");
        let document = get(&gate, "team-a", "/agents/far").await.expect_ok();
        assert_eq!(document["endpoint"], gate.url("/agents/far/invoke"), "on_demand: {on_demand}");
        gate.invoke("unknown", &json!({})).await.expect_fault(404, "NotFound");
        send(gate.request("POST", "/agents/far/invoke").json(&json!({}))).await.expect_fault(401, "Unauthorized");
        let list = ids(&get(&gate, "team-a", "/agents").await.expect_ok());
        assert_eq!(list.len(), usize::from(!on_demand), "{list:?}");
    }
}

#[tokio::test]
async fn r16_the_registry_is_asked_once_for_an_unknown_id_and_never_without_a_credential() {
    let remote_registry =
        Agent::with_steps(crate::support::agent::http_response("404 Not Found", "application/json", "{}")).await;
    let url = remote_registry.url();
    let agents = format!("agents:\n  sources:\n    - {{kind: aidip, url: '{url}', on_demand: true}}\n");
    let gate = gateway().section(&agents).start().await;
    for _ in 0..5 {
        send(gate.request("POST", "/agents/x/invoke").json(&json!({}))).await.expect_fault(401, "Unauthorized");
    }
    assert_eq!(remote_registry.call_count(), 0, "a call without a credential causes no lookup");
    for _ in 0..5 {
        gate.invoke("x", &json!({})).await.expect_fault(404, "NotFound");
    }
    assert_eq!(remote_registry.call_count(), 1, "an unknown id is looked up once");
}
