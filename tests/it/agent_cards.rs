//! The card that an A2A agent serves at its own API (`preset: a2a`): a client that follows it never leaves the gateway,
//! and so sends its key nowhere else.

use crate::support::{
    agent::{Agent, ReceivedRequest, Step, http_response},
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
