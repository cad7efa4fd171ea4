//! What an agent's own API says of where it is, in its card (`preset: a2a`), in its OpenAPI document and in header fields:
//! a client that follows it never leaves the gateway, and so sends its key nowhere else.

use crate::support::{
    agent::{Agent, ReceivedRequest, Step, http_response, write},
    gateway::{Gateway, gateway, send},
    gateway_response::GatewayResponse,
};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};

const CARD: &str = "/agents/a/api/.well-known/agent-card.json";

/// Starts an agent whose replies the test changes, in front of which the gateway passes A2A.
async fn start() -> (Arc<Mutex<Vec<Step>>>, Agent, Gateway) {
    let reply: Arc<Mutex<Vec<Step>>> = Arc::default();
    let shared = Arc::clone(&reply);
    let agent = Agent::scripted(move |_: &ReceivedRequest| shared.lock().unwrap().clone()).await;
    let section = "agents:\n  sources: [agents.json]\n  rules:\n    - {agents: [a], api: {preset: a2a, base: 'http://ADDRESS/'}}\n";
    let section = section.replace("ADDRESS", &agent.address.to_string());
    let gate = gateway().agent("a", &agent).section(&section).start().await;
    (reply, agent, gate)
}

async fn get(gate: &Gateway, path: &str) -> GatewayResponse {
    send(gate.request("GET", path).header("x-api-key", gate.key("team-a"))).await
}

fn card(agent: &Agent) -> Value {
    let own = format!("http://{}", agent.address);
    json!({
        "name": "agent", "description": "d", "version": "1", "skills": [{"id": "s", "name": "s", "security": [{"own": []}]}],
        "url": "http://elsewhere.example/rpc", "preferredTransport": "JSONRPC",
        "additionalInterfaces": [
            {"url": "http://elsewhere.example/rest", "transport": "HTTP+JSON"},
            {"url": format!("{own}/v1"), "transport": "HTTP+JSON"},
        ],
        "supportedInterfaces": [
            {"url": format!("{own}/"), "protocolBinding": "JSONRPC", "protocolVersion": "1.0"},
            {"url": format!("http://localhost:{}/", agent.address.port()), "protocolBinding": "JSONRPC"},
            {"url": "127.0.0.1:9001", "protocolBinding": "GRPC"},
            {"url": "dns:///elsewhere.example:9001", "protocolBinding": "GRPC"},
            {"url": "https://elsewhere.example", "protocolBinding": "HTTP+JSON"},
            {"protocolBinding": "GRPC"},
            "text",
        ],
        "securitySchemes": {"own": {"type": "http", "scheme": "basic"}}, "security": [{"own": []}],
        "signatures": [{"protected": "x", "signature": "y"}],
    })
}

#[tokio::test]
async fn a_card_has_only_interfaces_below_the_gateway_and_the_gateway_s_credentials() {
    let (reply, agent, gate) = start().await;
    let public = gate.url("/agents/a/api");
    let check = |card: &Value| {
        let text = card.to_string();
        for foreign in ["elsewhere.example", "9001", "basic", "\"own\"", "signatures", &agent.address.to_string()] {
            assert!(!text.contains(foreign), "{foreign}: {text}");
        }
        let urls: Vec<&str> =
            card["supportedInterfaces"].as_array().unwrap().iter().map(|each| each["url"].as_str().unwrap()).collect();
        assert_eq!(urls, [format!("{public}/")], "{text}");
        assert_eq!((&card["url"], &card["preferredTransport"]), (&json!(format!("{public}/v1")), &json!("HTTP+JSON")));
        assert!(text.contains("x-api-key"), "{text}");
    };
    for media in ["application/json", "text/plain", "application/a2a+json"] {
        *reply.lock().unwrap() = http_response("200 OK", media, &card(&agent).to_string());
        check(&get(&gate, CARD).await.expect_ok());
    }
    // Also with escapes in the names of members.
    let escaped = card(&agent).to_string().replace("supportedInterfaces", "supported\\u0049nterfaces");
    *reply.lock().unwrap() = http_response("200 OK", "application/json", &escaped);
    check(&get(&gate, CARD).await.expect_ok());
    // The extended card, as JSON-RPC returns it.
    let extended = json!({"jsonrpc": "2.0", "id": 1, "result": card(&agent)}).to_string();
    *reply.lock().unwrap() = http_response("200 OK", "application/json", &extended);
    check(&send(gate.post("/agents/a/api/").json(&json!({}))).await.expect_ok()["result"]);
}

#[tokio::test]
async fn what_cannot_be_read_as_a_card_does_not_pass_as_one_and_other_results_are_left_alone() {
    let (reply, agent, gate) = start().await;
    let long = json!({"url": "http://elsewhere.example", "skills": [], "pad": "x".repeat(2 << 20)}).to_string();
    for body in ["[]", "{", "url: http://elsewhere.example", &long] {
        *reply.lock().unwrap() = http_response("200 OK", "application/json", body);
        get(&gate, CARD).await.expect_fault(502, "AgentError");
    }
    *reply.lock().unwrap() = http_response("404 Not Found", "application/json", "{}");
    assert_eq!(get(&gate, CARD).await.status, 404);
    // The URL of a caller's webhook.
    let webhook = json!({"jsonrpc": "2.0", "id": 1, "result": {"taskId": "1", "url": "http://caller.example/hook"}});
    *reply.lock().unwrap() = http_response("200 OK", "application/json", &webhook.to_string());
    let answer = send(gate.post("/agents/a/api/").json(&json!({}))).await;
    assert_eq!(answer.expect_ok(), webhook);
    drop(agent);
}

#[tokio::test]
async fn an_extended_card_that_the_agent_compresses_does_not_pass_unread() {
    let (reply, _agent, gate) = start().await;
    for coding in ["gzip", "br", "zstd", "x-unknown"] {
        let head = format!("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Encoding: {coding}\r\n");
        *reply.lock().unwrap() = vec![write(format!("{head}Content-Length: 4\r\n\r\nabcd"))];
        send(gate.post("/agents/a/api/").json(&json!({}))).await.expect_fault(502, "AgentError");
        get(&gate, CARD).await.expect_fault(502, "AgentError");
    }
}

#[tokio::test]
async fn an_openapi_document_of_an_agent_names_no_server_but_the_gateway() {
    let reply: Arc<Mutex<Vec<Step>>> = Arc::default();
    let shared = Arc::clone(&reply);
    let agent = Agent::scripted(move |_: &ReceivedRequest| shared.lock().unwrap().clone()).await;
    let section = "agents:\n  sources: [agents.json]\n  rules:\n    - {agents: [a], api: {base: 'http://ADDRESS/', routes: [{methods: [GET], path: /**}]}}\n";
    let gate =
        gateway().agent("a", &agent).section(&section.replace("ADDRESS", &agent.address.to_string())).start().await;
    let public = gate.url("/agents/a/api");
    let elsewhere = json!([{"url": "http://elsewhere.example/"}, {"url": format!("http://{}", agent.address)}]);
    let document = json!({"openapi": "3.1.0", "info": {"title": "t", "version": "1"}, "servers": elsewhere,
        "paths": {"/a": {"servers": elsewhere, "get": {"servers": elsewhere, "responses": {}}}}});
    let yaml = "openapi: 3.1.0\nservers: [{url: 'http://elsewhere.example/'}]\npaths: {}\n".to_owned();
    for (path, media, body) in [
        ("/openapi.json", "application/json", document.to_string()),
        ("/v3/api-docs?group=a", "application/json", document.to_string()),
        ("/openapi.yaml", "application/yaml", yaml.clone()),
        ("/openapi.yml", "text/plain", yaml),
    ] {
        *reply.lock().unwrap() = http_response("200 OK", media, &body);
        let answer = get(&gate, &format!("/agents/a/api{path}")).await;
        let text = answer.expect_ok().to_string();
        assert!(!text.contains("elsewhere") && !text.contains(&agent.address.to_string()), "{path}: {text}");
        assert_eq!(answer.json()["servers"], json!([{"url": public}]), "{path}");
    }
    // What cannot be read, and what is no such document.
    for (body, status) in [("{", 502), ("\u{1f}\u{8}", 502), ("{\"a\": 1}", 200)] {
        *reply.lock().unwrap() = http_response("200 OK", "application/json", body);
        assert_eq!(get(&gate, "/agents/a/api/openapi.json").await.status, status, "{body}");
    }
    *reply.lock().unwrap() = http_response("200 OK", "application/json", &document.to_string().repeat(9_000));
    get(&gate, "/agents/a/api/openapi.json").await.expect_fault(502, "AgentError");
    for name in ["Location", "Content-Location", "Operation-Location", "Azure-AsyncOperation", "Link", "Content-Base"] {
        for (target, expected) in [
            ("http://elsewhere.example/b".to_owned(), None),
            ("//elsewhere.example/b".to_owned(), None),
            (format!("http://{}/b", agent.address), Some(format!("{public}/b"))),
        ] {
            let is_link = name == "Link";
            let value = if is_link { format!("<{target}>; rel=\"next\"") } else { target };
            *reply.lock().unwrap() =
                vec![write(format!("HTTP/1.1 200 OK\r\n{name}: {value}\r\nContent-Length: 0\r\n\r\n"))];
            let answer = get(&gate, "/agents/a/api/b").await;
            let expected = expected.filter(|_| name != "Content-Base");
            let expected = expected.map(|url| if is_link { format!("<{url}>; rel=\"next\"") } else { url });
            assert_eq!(answer.header(name), expected.as_deref(), "{name}: {value}");
        }
    }
}
