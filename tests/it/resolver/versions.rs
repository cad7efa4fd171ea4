//! Version negotiation (R66–R69): in the path, the query or the header; ranges; the served version in the response.

use super::*;
use crate::support::websocket;

async fn start_with_versions() -> (Site, Gateway) {
    let authority = CertificateAuthority::new("Sites");
    let site = Site::start(&authority).await;
    let agent = json!({
        "id": "a", "name": "A", "version": "3.1.4", "endpoint": site.url("/agent/own"),
        "supportedVersions": {"1.0.0": "/agent/v1", "1.4.2": "v1.4", "2.0.0": site.url("/agent/v2?x=1"),
            "0.9.0": "https://elsewhere.example/x", "0.8.0": "//elsewhere.example/x", "0.7.0": "http://localhost/x"},
    });
    let plain = json!({"id": "plain", "name": "P", "endpoint": site.url("/agent/plain")});
    let own = json!({"id": "own", "name": "O", "version": "1.0.0", "endpoint": site.url("/agent/own"), "operations": [
        {"name": "op", "inputs": {"type": "object", "properties": {"version": {"type": "string"}}}}]});
    let gate = gateway_trusting(&authority).document(agent).document(plain).document(own).start().await;
    (site, gate)
}

#[tokio::test]
async fn r68_a_version_is_requested_in_the_path_the_query_or_the_header() {
    let (_site, gate) = start_with_versions().await;
    for (path, field, served, target) in [
        ("/agents/a/invoke", None, "3.1.4", "/agent/own"),
        ("/agents/a@1.0.0/invoke", None, "1.0.0", "/agent/v1"),
        ("/agents/a@%5E1.0/invoke", None, "1.4.2", "/agent/v1.4"),
        ("/agents/a/invoke?version=1.x", None, "1.4.2", "/agent/v1.4"),
        ("/agents/a/invoke?version=%3E%3D1,+%3C3", None, "2.0.0", "/agent/v2?x=1"),
        ("/agents/a/invoke", Some("2"), "2.0.0", "/agent/v2?x=1"),
        ("/agents/a/invoke", Some("latest"), "3.1.4", "/agent/own"),
        ("/agents/a@2.0.0/invoke?version=2.0.0", Some("2.0.0"), "2.0.0", "/agent/v2?x=1"),
    ] {
        let request = gate.post(path).json(&json!({"n": 1}));
        let request = field.into_iter().fold(request, |request, field| request.header("x-agent-version", field));
        let answer = send(request).await;
        let body = answer.expect_ok();
        assert_eq!(answer.header("x-agent-version"), Some(served), "{path}");
        assert_eq!((&body["target"], &body["version"]), (&json!(target), &json!(served)), "{path}");
    }
}

#[tokio::test]
async fn r68_an_unknown_version_is_refused_with_the_list_of_versions() {
    let (site, gate) = start_with_versions().await;
    for (path, field) in [
        ("/agents/a@1.0.1/invoke", None),
        ("/agents/a/invoke?version=4", None),
        ("/agents/a/invoke", Some("^5")),
        ("/agents/a/invoke", Some("0.9.0")),
        ("/agents/a/invoke", Some("0.8.0")),
        ("/agents/a/invoke", Some("0.7.0")),
    ] {
        let request = gate.post(path).json(&json!({}));
        let request = field.into_iter().fold(request, |request, field| request.header("x-agent-version", field));
        let error = send(request).await.expect_fault(406, "NotAcceptable");
        let message = error["message"].as_str().unwrap();
        assert!(message.contains("3.1.4") && message.contains("1.4.2") && !message.contains("it has: 0"), "{message}");
    }
    for (path, field) in [
        ("/agents/a@one/invoke", "1.0.0"),
        ("/agents/a/invoke?version=%ff", "1.0.0"),
        ("/agents/a@1.0.0/invoke", "2.0.0"),
        ("/agents/a/invoke?version=1.0.0", "1.0.1"),
        ("/agents/a/invoke", "1..0"),
    ] {
        let request = gate.post(path).json(&json!({})).header("x-agent-version", field);
        send(request).await.expect_fault(400, "InvalidInput");
    }
    send(gate.post("/agents/unknown@1.0.0/invoke").json(&json!({}))).await.expect_fault(404, "NotFound");
    send(gate.request("POST", "/agents/a@9/invoke").json(&json!({}))).await.expect_fault(401, "Unauthorized");
    assert_eq!(site.request_count("/agent/own"), 0, "a refused call reached the agent");
}

#[tokio::test]
async fn r68_a_websocket_uses_the_version_that_its_handshake_requests() {
    let (_site, gate) = start_with_versions().await;
    let key = ("x-api-key", gate.key("team-a"));
    for (path, field, served, target) in [
        ("/agents/a@1.0.0/invoke", None, "1.0.0", "/agent/v1"),
        ("/agents/a/invoke?version=1.x", Some("1.4.2"), "1.4.2", "/agent/v1.4"),
        ("/agents/a/invoke", Some("2"), "2.0.0", "/agent/v2?x=1"),
        ("/agents/a/invoke", None, "3.1.4", "/agent/own"),
    ] {
        let fields: Vec<_> = [key].into_iter().chain(field.map(|field| ("x-agent-version", field))).collect();
        let (mut socket, response) = websocket::connect_with_headers(&gate, path, &fields).await.unwrap();
        assert_eq!(response.headers()["x-agent-version"], served, "{path}");
        for _ in 0..2 {
            websocket::send_text(&mut socket, "{}").await;
            let echo = websocket::receive_json(&mut socket).await;
            assert_eq!((&echo["target"], &echo["version"]), (&json!(target), &json!(served)), "{path}");
        }
    }
    assert!(websocket::connect_with_headers(&gate, "/agents/a@9/invoke", &[key]).await.is_err());
}

#[tokio::test]
async fn r45_an_idempotency_key_is_bound_to_one_version() {
    let (site, gate) = start_with_versions().await;
    let call = async |path: &str| send(gate.post(path).json(&json!({"n": 1})).header("idempotency-key", "k-1")).await;
    for _ in 0..2 {
        let answer = call("/agents/a@1.0.0/invoke").await;
        assert_eq!(
            (&answer.expect_ok()["target"], answer.header("x-agent-version")),
            (&json!("/agent/v1"), Some("1.0.0"))
        );
    }
    assert_eq!(site.request_count("/agent/v1"), 1);
    for other in ["/agents/a@2.0.0/invoke", "/agents/a/invoke"] {
        call(other).await.expect_fault(422, "IdempotencyMismatch");
    }
    assert_eq!((site.request_count("/agent/v2?x=1"), site.request_count("/agent/own")), (0, 0));
}

#[tokio::test]
async fn an_agent_without_versions_receives_the_requested_version_unchanged() {
    let (_site, gate) = start_with_versions().await;
    let answer = send(gate.post("/agents/plain/invoke").json(&json!({})).header("x-agent-version", "7")).await;
    assert_eq!((&answer.expect_ok()["version"], answer.header("x-agent-version")), (&json!("7"), None));
    send(gate.post("/agents/plain@7/invoke").json(&json!({}))).await.expect_fault(406, "NotAcceptable");
}

#[tokio::test]
async fn r49_a_version_in_the_query_is_input_only_where_the_schema_declares_it() {
    let (_site, gate) = start_with_versions().await;
    let get = async |path: &str| send(gate.request("GET", path).header("x-api-key", gate.key("team-a"))).await;
    let answer = get("/agents/a/invoke?version=1.0.0&city=Rio").await;
    assert_eq!(
        (&answer.expect_ok()["body"], answer.header("x-agent-version")),
        (&json!({"city": "Rio"}), Some("1.0.0"))
    );
    let answer = get("/agents/own/invoke?version=draft").await;
    assert_eq!(
        (&answer.expect_ok()["body"], answer.header("x-agent-version")),
        (&json!({"version": "draft"}), Some("1.0.0"))
    );
}

#[tokio::test]
async fn r69_the_descriptor_lists_the_negotiation_methods_and_the_endpoint_of_each_version() {
    let (_site, gate) = start_with_versions().await;
    let descriptor =
        send(gate.request("GET", "/agents/a/agent.json").header("x-api-key", gate.key("team-a"))).await.expect_ok();
    assert_eq!(descriptor["versionNegotiation"]["methods"], json!(["header", "query", "path"]));
    assert_eq!(descriptor["supportedVersions"]["1.4.2"], gate.url("/agents/a@1.4.2/invoke"));
    let link = descriptor["supportedVersions"]["1.0.0"].as_str().unwrap();
    let path = link.strip_prefix(&gate.url("")).unwrap();
    assert_eq!(send(gate.post(path).json(&json!({}))).await.expect_ok()["target"], "/agent/v1");
}

#[tokio::test]
async fn r67_a_version_of_a_remote_descriptor_is_selected_during_resolution() {
    let (site, gate) = start("").await;
    site.json(
        "/p/agent.json",
        json!({"name": "p", "version": "2.0.0", "endpoint": "/agent/p",
        "supportedVersions": {"1.0.0": "/agent/old", "0.1.0": "https://elsewhere.example/"}}),
    );
    let resolve_body = async |body: Value| resolve(&gate, &body).await;
    let found = resolve_body(json!({"uri": site.agent_uri("/p/x"), "version": "1"})).await.expect_ok();
    assert_eq!((&found["endpoint"], &found["version"]), (&json!(site.url("/agent/old/x")), &json!("1.0.0")));
    for name in ["/p@1.x/x", "/p/x?version=%5E1.0"] {
        let found = resolve_body(json!({"uri": site.agent_uri(name)})).await.expect_ok();
        assert!(found["endpoint"].as_str().unwrap().starts_with(&site.url("/agent/old/x")), "{found}");
    }
    assert_eq!(resolve_body(json!({"uri": site.agent_uri("/p")})).await.expect_ok()["version"], "2.0.0");
    for unknown in ["9", "0.1.0"] {
        resolve_body(json!({"uri": site.agent_uri("/p"), "version": unknown})).await.expect_fault(406, "NotAcceptable");
    }
    resolve_body(json!({"uri": site.agent_uri("/p"), "version": "one"})).await.expect_fault(400, "InvalidInput");
    resolve_body(json!({"uri": site.agent_uri("/nothing"), "version": "1"})).await.expect_fault(406, "NotAcceptable");
}
