//! Checks that hold for WebSocket messages too: schemas, rate limits, message sizes, versions, revoked credentials, and
//! the redaction of agents' errors anywhere in a message.

use crate::support::{
    agent::Agent,
    eventually,
    gateway::{Gateway, GatewayBuilder, gateway},
    servers::RawAgent,
    websocket::{
        connect, connect_with_headers, echo_agent, receive_close_code, receive_json, receive_text, record_next,
        record_until_end, responding_agent, send_text, websocket_agent, websocket_document,
    },
};
use futures_util::SinkExt;
use serde_json::{Value, json};
use std::time::Instant;
use tokio_tungstenite::tungstenite::Message;

const INVOKE: &str = "/agents/a/invoke";

/// A gateway with this agent and these WebSocket settings.
fn with_settings(agent_document: Value, settings: &str) -> GatewayBuilder {
    let section = format!("agents:\n  sources: [agents.json]\n  defaults: {{websocket: {{{settings}}}}}\n");
    gateway().document(agent_document).section(&section)
}

fn document_with_schema(agent: &RawAgent) -> Value {
    let mut agent_document = websocket_document(agent, "a");
    let inputs = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
    agent_document["operations"] = json!([{"name": "count", "inputs": inputs}]);
    agent_document
}

/// The code of the error in the next message.
async fn error_code(socket: &mut crate::support::websocket::Socket) -> Value {
    receive_json(socket).await["error"]["code"].clone()
}

#[tokio::test]
async fn r41_an_error_in_any_line_of_a_message_is_replaced_by_the_gateways_error() {
    let leak = "{\"n\":1}\n{\"error\":{\"code\":\"Boom\",\"message\":\"Traceback at /srv/app\"}}\r\n\n{\"n\":2}\n";
    let clean = "{\"n\":3}\n\n{\"n\":4}";
    let (peer, _) = responding_agent(vec![Message::text(leak), Message::text(clean)], None).await;
    let gate = gateway().document(websocket_document(&peer, "a")).start().await;
    let mut socket = connect(&gate, INVOKE).await;
    send_text(&mut socket, "{}").await;
    let message = receive_text(&mut socket).await;
    let lines: Vec<&str> = message.lines().collect();
    assert_eq!((lines.len(), lines[0], lines[2]), (3, "{\"n\":1}", "{\"n\":2}"), "{message}");
    assert!(lines[1].contains("AgentError") && !message.contains("Traceback"), "{message}");
    assert_eq!(receive_text(&mut socket).await, clean, "a message without errors passes unchanged");
}

#[tokio::test]
async fn r32_an_array_is_not_validated_as_one_request() {
    let (peer, agent_log) = echo_agent().await;
    let gate = with_settings(document_with_schema(&peer), "framing: json_rpc").start().await;
    let mut socket = connect(&gate, INVOKE).await;
    let invalid = json!({"jsonrpc": "2.0", "id": 1, "method": "count", "params": {"n": "x"}});
    for list in [json!(["2.0", invalid, "count", {"n": 1}]), json!(["2.0", 1, "invoke", {"n": 1}]), json!([invalid])] {
        send_text(&mut socket, list.to_string()).await;
        assert_eq!(error_code(&mut socket).await, "InvalidInput", "{list}");
    }
    assert_eq!(agent_log.messages(), Vec::<String>::new());
}

#[tokio::test]
async fn r5_each_input_in_a_message_counts_as_a_call() {
    let (peer, agent_log) = echo_agent().await;
    let gate = with_settings(websocket_document(&peer, "a"), "validate_messages: false")
        .section("limits:\n  per_caller: 6/h\n")
        .start()
        .await;
    let mut socket = connect(&gate, INVOKE).await;
    send_text(&mut socket, "{}\n{}\n\n{}\n").await;
    receive_text(&mut socket).await;
    send_text(&mut socket, "{}\n{}\n{}").await;
    assert_eq!(error_code(&mut socket).await, "RateLimited", "three calls need three tokens and two are left");
    send_text(&mut socket, "{}\n{}").await;
    receive_text(&mut socket).await;
    assert_eq!(agent_log.messages().len(), 2);
    let gate = with_settings(websocket_document(&peer, "a"), "framing: json_rpc")
        .section("limits:\n  per_caller: 3/h\n")
        .start()
        .await;
    let mut socket = connect(&gate, INVOKE).await;
    let request = json!({"jsonrpc": "2.0", "id": 1, "method": "m"});
    send_text(&mut socket, json!([request, request, request]).to_string()).await;
    assert_eq!(error_code(&mut socket).await, "RateLimited");
    send_text(&mut socket, json!([request, request]).to_string()).await;
    receive_text(&mut socket).await;
}

#[tokio::test]
async fn r5_each_message_counts_for_the_address_limit() {
    let ((peer, _), http) = (echo_agent().await, Agent::echo().await);
    let limits = "limits:\n  per_address: 3/h\n";
    for build in [gateway().document(websocket_document(&peer, "a")), gateway().agent("a", &http)] {
        let gate = build.section(limits).start().await;
        let mut socket = connect(&gate, INVOKE).await;
        for _ in 0..2 {
            send_text(&mut socket, "{}").await;
            receive_text(&mut socket).await;
        }
        send_text(&mut socket, "{}").await;
        assert_eq!(error_code(&mut socket).await, "RateLimited");
    }
}

#[tokio::test]
async fn an_oversized_message_is_refused_and_the_connection_stays_open() {
    let (peer, agent_log) = echo_agent().await;
    let gate = with_settings(websocket_document(&peer, "a"), "max_message_size: 8KiB").start().await;
    let mut socket = connect(&gate, INVOKE).await;
    for size in [9 << 10, 600 << 10] {
        send_text(&mut socket, "x".repeat(size)).await;
        assert_eq!(error_code(&mut socket).await, "PayloadTooLarge", "{size}");
    }
    send_text(&mut socket, "{}").await;
    assert_eq!(receive_text(&mut socket).await, "{}");
    assert_eq!(agent_log.messages(), ["{}"]);
    let large = ["x".repeat(9 << 10), "x".repeat(600 << 10)].map(Message::text);
    let (peer, _) = responding_agent(large.into_iter().chain([Message::text("{}")]).collect(), None).await;
    let gate = gateway()
        .document(websocket_document(&peer, "a"))
        .section("websocket: {max_message_size: 8KiB}\n")
        .start()
        .await;
    let mut socket = connect(&gate, INVOKE).await;
    send_text(&mut socket, "{}").await;
    for _ in 0..2 {
        assert_eq!(error_code(&mut socket).await, "AgentError");
    }
    assert_eq!(receive_text(&mut socket).await, "{}");
}

#[tokio::test]
async fn r33_validate_messages_validates_messages_of_the_agent_too() {
    let answers = ["{\"ok\":1}", "{\"no\":1}", "nonsense", "{\"ok\":2}\n{\"no\":2}"];
    let (peer, _) = responding_agent(answers.map(Message::text).to_vec(), None).await;
    let mut agent_document = websocket_document(&peer, "a");
    agent_document["operations"] = json!([{"name": "count", "outputs": {"type": "object", "required": ["ok"]}}]);
    let with_output_enforced =
        |settings: &str| with_settings(agent_document.clone(), settings).section("contract: {output: enforce}\n");
    let gate = with_output_enforced("validate_messages: true").start().await;
    let mut socket = connect(&gate, INVOKE).await;
    send_text(&mut socket, "{}").await;
    assert_eq!(receive_text(&mut socket).await, answers[0]);
    for _ in 0..2 {
        assert_eq!(error_code(&mut socket).await, "AgentError");
    }
    let message = receive_text(&mut socket).await;
    assert!(
        message.starts_with("{\"ok\":2}\n") && message.contains("AgentError") && !message.contains("\"no\""),
        "{message}"
    );
    let gate = with_output_enforced("ping_interval: 20s").start().await;
    let mut socket = connect(&gate, INVOKE).await;
    send_text(&mut socket, "{}").await;
    for answer in answers {
        assert_eq!(receive_text(&mut socket).await, answer, "messages are not validated by default");
    }
    let results = [json!({"jsonrpc": "2.0", "id": 4, "result": {"no": 1}}), json!({"jsonrpc": "2.0", "method": "m"})];
    let (peer, _) =
        responding_agent(results.iter().map(|result| Message::text(result.to_string())).collect(), None).await;
    agent_document["endpoint"] = websocket_document(&peer, "a")["endpoint"].clone();
    let build = with_settings(agent_document, "validate_messages: true, framing: json_rpc")
        .section("contract: {output: enforce}\n");
    let gate = build.start().await;
    let mut socket = connect(&gate, INVOKE).await;
    send_text(&mut socket, "{}").await;
    let message = receive_json(&mut socket).await;
    assert_eq!((&message["id"], &message["error"]["data"]["code"]), (&json!(4), &json!("AgentError")), "{message}");
    assert_eq!(receive_json(&mut socket).await, results[1]);
}

#[tokio::test]
async fn r3_an_idle_caller_is_disconnected_when_its_key_is_revoked() {
    let (peer, agent_log) = echo_agent().await;
    let pings = "websocket: {ping_interval: 100ms, pong_timeout: 2s}\n";
    let gate = gateway().document(websocket_document(&peer, "a")).section(pings).start().await;
    let mut socket = connect(&gate, INVOKE).await;
    gate.write_file("keys.jsonl", "");
    assert_eq!(error_code(&mut socket).await, "Unauthorized");
    assert_eq!(receive_close_code(&mut socket).await, Some(1008));
    eventually("the connection to the agent ends", async || agent_log.close_codes().len() == 1).await;
    assert_eq!(agent_log.messages(), Vec::<String>::new());
}

async fn start_with_versions(agent: &Agent) -> Gateway {
    let mut agent_document = agent.document("a");
    agent_document["version"] = json!("2.0.0");
    agent_document["supportedVersions"] = json!({"1.4.0": "/old"});
    gateway().document(agent_document).start().await
}

#[tokio::test]
async fn r68_a_websocket_calls_the_version_that_its_handshake_requests() {
    let agent = Agent::echo().await;
    let gate = start_with_versions(&agent).await;
    for (path, served) in [
        (INVOKE, "2.0.0"),
        ("/agents/a@1.x/invoke", "1.4.0"),
        ("/agents/a/invoke?version=%5E1", "1.4.0"),
        ("/agents/a@2/invoke?version=2", "2.0.0"),
    ] {
        let (mut socket, head) = connect_with_headers(&gate, path, &[("x-api-key", gate.key("team-a"))]).await.unwrap();
        assert_eq!(head.headers()["x-agent-version"], served, "{path}");
        send_text(&mut socket, "{}").await;
        receive_json(&mut socket).await;
        let got = agent.requests();
        let last = got.last().unwrap();
        assert_eq!(last.header("x-agent-version"), Some(served), "{path}");
        assert_eq!(last.head.contains(" /old "), served == "1.4.0", "{path}: {}", last.head);
    }
    let Err(tokio_tungstenite::tungstenite::Error::Http(refused)) =
        connect_with_headers(&gate, "/agents/a@3/invoke", &[("x-api-key", gate.key("team-a"))]).await
    else {
        panic!("the handshake succeeded with an unknown version")
    };
    assert_eq!(refused.status(), 406);
}

#[tokio::test]
async fn r45_an_idempotency_key_of_the_handshake_does_not_apply_to_messages() {
    let agent = Agent::echo().await;
    let gate = gateway().agent("a", &agent).start().await;
    let fields = [("x-api-key", gate.key("team-a")), ("idempotency-key", "k-1"), ("x-session-id", "s-1")];
    let (mut socket, _) = connect_with_headers(&gate, INVOKE, &fields).await.unwrap();
    send_text(&mut socket, "{}").await;
    receive_json(&mut socket).await;
    let got = agent.requests();
    assert_eq!((got[0].header("idempotency-key"), got[0].header("x-session-id")), (None, Some("s-1")));
}

#[tokio::test]
async fn r94_an_error_with_a_null_id_ends_the_call() {
    let (peer, _) = websocket_agent(|mut socket, agent_log| async move {
        record_next(&mut socket, &agent_log).await;
        let error = json!({"jsonrpc": "2.0", "id": null, "error": {"code": -32700, "message": "at /srv/app"}});
        let _ = socket.send(Message::text(error.to_string())).await;
        record_until_end(&mut socket, &agent_log).await;
    })
    .await;
    let gate = with_settings(websocket_document(&peer, "a"), "framing: json_rpc").start().await;
    let started = Instant::now();
    let answer = gate.invoke("a", &json!({})).await;
    answer.expect_fault(502, "AgentError");
    answer.assert_hides(&["/srv"]);
    assert!(started.elapsed().as_secs() < 10, "{:?}", started.elapsed());
}

#[tokio::test]
async fn r35_repeated_disconnects_before_an_answer_open_the_circuit_breaker() {
    let (peer, agent_log) =
        websocket_agent(|mut socket, agent_log| async move { drop(record_next(&mut socket, &agent_log).await) }).await;
    let section = "agents:\n  sources: [agents.json]\n  defaults: {circuit_breaker: {consecutive_failures: 2, open_duration: 60s}}\n";
    let gate = gateway().document(websocket_document(&peer, "a")).section(section).start().await;
    for _ in 0..2 {
        gate.invoke("a", &json!({})).await.expect_fault(502, "AgentError");
    }
    gate.invoke("a", &json!({})).await.expect_fault(503, "AgentUnavailable");
    assert_eq!(agent_log.messages().len(), 2);
}
