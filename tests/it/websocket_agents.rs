//! Agents over WebSocket, called by `POST`: the framings of messages and answers, and failures of the agent.

use crate::support::{
    certs::CertificateAuthority,
    closed_port::ClosedPort,
    eventually,
    gateway::{Gateway, gateway, send},
    gateway_response::GatewayResponse,
    servers::{self, RawAgent},
    websocket::{record_next, record_until_end, responding_agent, websocket_agent, websocket_document},
};
use futures_util::SinkExt;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::TlsAcceptor;
use tokio_tungstenite::{accept_async, tungstenite::Message};

fn text(text: &str) -> Message {
    Message::text(text)
}

fn settings(yaml: &str) -> String {
    format!("agents:\n  sources: [agents.json]\n  defaults: {{{yaml}}}\n")
}

async fn start_gateway(agent: &RawAgent, yaml: &str) -> Gateway {
    gateway().document(websocket_document(agent, "a")).section(&settings(yaml)).start().await
}

async fn invoke_accepting(gate: &Gateway, media: &str) -> GatewayResponse {
    send(gate.post("/agents/a/invoke").header("accept", media).json(&json!({"q": 1}))).await
}

#[tokio::test]
async fn r51_r80_a_call_is_one_message_and_the_first_message_is_its_answer() {
    let (peer, agent_log) = responding_agent(vec![text("{\"answer\": 42}\n")], None).await;
    let gate = start_gateway(&peer, "").await;
    let call = gate.post("/agents/a/invoke").header("x-request-id", "r-1").header("content-type", "application/json");
    let answer = send(call.body("{\n  \"q\": \"a\\nb\"\n}")).await;
    assert_eq!(answer.expect_ok(), json!({"answer": 42}));
    assert_eq!(agent_log.messages(), ["{   \"q\": \"a\\nb\" }\n"]);
    assert_eq!(agent_log.handshake_header("x-request-id").as_deref(), Some("r-1"));
    assert_eq!(agent_log.handshake_header(":path").as_deref(), Some("/talk?x=1"));
    for name in ["x-api-key", "authorization", "content-type", "content-length", "sec-websocket-extensions"] {
        assert_eq!(agent_log.handshake_header(name), None, "{name}");
    }
    eventually("the agent receives close code 1000", async || agent_log.close_codes() == ["1000"]).await;
}

#[tokio::test]
async fn r80_messages_are_streamed_as_lines_or_events() {
    let (peer, _) = responding_agent(vec![text("{\"n\":1}"), text("{\"n\":2}\n{\"n\":3}\n")], Some(1000)).await;
    let gate = start_gateway(&peer, "").await;
    let lines = invoke_accepting(&gate, "application/x-ndjson").await;
    assert_eq!((lines.status, lines.header("content-type")), (200, Some("application/x-ndjson")));
    assert_eq!(lines.text(), "{\"n\":1}\n{\"n\":2}\n{\"n\":3}\n");
    let events = invoke_accepting(&gate, "text/event-stream").await;
    assert_eq!(events.text(), "data: {\"n\":1}\n\ndata: {\"n\":2}\n\ndata: {\"n\":3}\n\n");
    // R43: the input may request a stream where Accept allows any media type.
    let streamed = send(gate.post("/agents/a/invoke").header("accept", "*/*").json(&json!({"stream": true}))).await;
    assert_eq!(streamed.text(), lines.text());
    assert_eq!(invoke_accepting(&gate, "application/json, text/event-stream").await.expect_ok(), json!({"n": 1}));
}

#[tokio::test]
async fn r80_the_last_line_and_an_end_marker_can_be_configured() {
    let (peer, _) = responding_agent(vec![text("{\"n\":1}"), text("{\"n\":2}"), text("[DONE]")], None).await;
    let gate = start_gateway(&peer, "websocket: {result_message: last, end_marker: '[DONE]'}").await;
    assert_eq!(invoke_accepting(&gate, "application/json").await.expect_ok(), json!({"n": 2}));
    assert_eq!(invoke_accepting(&gate, "application/x-ndjson").await.text(), "{\"n\":1}\n{\"n\":2}\n");
}

#[tokio::test]
async fn bare_framing_sends_the_input_alone_and_one_message_is_the_answer() {
    let (peer, agent_log) = responding_agent(vec![text("{\"n\":1}"), text("{\"n\":2}")], None).await;
    let gate = start_gateway(&peer, "websocket: {framing: bare}").await;
    assert_eq!(invoke_accepting(&gate, "application/json").await.expect_ok(), json!({"n": 1}));
    assert_eq!(invoke_accepting(&gate, "text/event-stream").await.text(), "data: {\"n\":1}\n\n");
    assert_eq!(agent_log.messages(), ["{\"q\":1}", "{\"q\":1}"]);
}

/// An agent that speaks JSON-RPC: it sends two notifications, a response to another id, and the response that `last`
/// makes of the request id.
async fn json_rpc_agent(last: fn(&Value) -> Value) -> (RawAgent, crate::support::websocket::AgentRecord) {
    websocket_agent(move |mut socket, agent_log| async move {
        let Some(request) = record_next(&mut socket, &agent_log).await else { return };
        let request: Value = serde_json::from_str(request.to_text().unwrap()).unwrap();
        for message in [
            json!({"jsonrpc": "2.0", "method": "progress", "params": {"done": 0.5}}),
            json!({"jsonrpc": "2.0", "id": "another", "result": "not yours"}),
            json!({"jsonrpc": "2.0", "method": "progress", "params": {"done": 0.9}}),
            last(&request["id"]),
        ] {
            let _ = socket.send(Message::text(message.to_string())).await;
        }
        record_until_end(&mut socket, &agent_log).await;
    })
    .await
}

#[tokio::test]
async fn r92_json_rpc_carries_the_operation_and_only_the_matching_response_is_the_answer() {
    let (peer, agent_log) = json_rpc_agent(|id| json!({"jsonrpc": "2.0", "id": id, "result": {"ok": true}})).await;
    let mut agent_document = websocket_document(&peer, "a");
    agent_document["operations"] = json!([{"name": "plan"}]);
    let gate = gateway().document(agent_document).section(&settings("websocket: {framing: json_rpc}")).start().await;
    assert_eq!(invoke_accepting(&gate, "application/json").await.expect_ok(), json!({"ok": true}));
    let request: Value = serde_json::from_str(&agent_log.messages()[0]).unwrap();
    assert_eq!(
        (&request["method"], &request["params"], &request["jsonrpc"]),
        (&json!("plan"), &json!({"q": 1}), &json!("2.0"))
    );
    let events = invoke_accepting(&gate, "text/event-stream").await.text();
    let progress = "event: progress\ndata: {\"done\":0.5}\n\nevent: progress\ndata: {\"done\":0.9}\n\n";
    assert_eq!(events, format!("{progress}data: {{\"ok\":true}}\n\n"));
}

#[tokio::test]
async fn r41_r94_json_rpc_errors_are_mapped_and_redacted() {
    type LastResponse = fn(&Value) -> Value;
    let cases: [(LastResponse, u16, &str); 4] = [
        (|id| json!({"id": id, "error": {"code": -32602, "message": "field 'q' must be text"}}), 400, "InvalidInput"),
        (|id| json!({"id": id, "error": {"code": -32601, "message": "no such thing"}}), 404, "CapabilityNotFound"),
        (|id| json!({"id": id, "error": {"code": -32603, "message": "Traceback: /srv/app"}}), 500, "AgentError"),
        (|id| json!({"id": id, "error": {"code": 7, "message": "Traceback: /srv/app"}}), 502, "AgentError"),
    ];
    for (last, status, code) in cases {
        let (peer, _) = json_rpc_agent(last).await;
        let gate = start_gateway(&peer, "websocket: {framing: json_rpc}").await;
        let answer = invoke_accepting(&gate, "application/json").await;
        answer.expect_fault(status, code);
        answer.assert_hides(&["Traceback", "/srv"]);
    }
}

#[tokio::test]
async fn r38_a_close_without_an_answer_is_mapped_by_its_code() {
    for (code, status, name) in [
        (1000, 502, "AgentError"),
        (1001, 503, "AgentUnavailable"),
        (1002, 502, "AgentError"),
        (1003, 415, "UnsupportedMediaType"),
        (1007, 400, "InvalidInput"),
        (1008, 502, "AgentError"),
        (1009, 413, "PayloadTooLarge"),
        (1011, 502, "AgentError"),
        (1012, 503, "AgentUnavailable"),
        (1013, 503, "AgentUnavailable"),
        (4401, 502, "AgentError"),
    ] {
        let (peer, _) = responding_agent(Vec::new(), Some(code)).await;
        let gate = start_gateway(&peer, "").await;
        for media in ["application/json", "text/event-stream"] {
            let answer = invoke_accepting(&gate, media).await;
            assert_eq!(
                (answer.status, answer.json()["error"]["code"].as_str()),
                (status, Some(name)),
                "{code} {media}"
            );
            answer.assert_hides(&["10.0.0.9"]);
        }
    }
}

#[tokio::test]
async fn r45_an_agent_that_goes_away_during_a_call_may_have_executed_it_and_one_that_refuses_has_not() {
    let part = || vec![text("{\"n\":1}")];
    for (messages, code, calls) in [
        (vec![], 1001, 1),
        (vec![], 1012, 1),
        // "Try again later": the key is free, and the second call reaches the agent.
        (vec![], 1013, 2),
        (part(), 1001, 1),
        (part(), 1013, 1),
    ] {
        let case = format!("{code} after {} messages", messages.len());
        let (peer, log) = responding_agent(messages, Some(code)).await;
        let gate = start_gateway(&peer, "websocket: {result_message: last}").await;
        for _ in 0..2 {
            let call = gate.post("/agents/a/invoke").header("idempotency-key", "once").json(&json!({"q": 1}));
            let answer = send(call.header("accept", "application/json")).await;
            assert_eq!((answer.status, &answer.json()["error"]["code"]), (503, &json!("AgentUnavailable")), "{case}");
        }
        assert_eq!(log.messages().len(), calls, "{case}");
    }
}

#[tokio::test]
async fn r38_invalid_messages_are_errors_of_the_agent() {
    let oversized = format!("\"{}\"", "x".repeat(5000));
    for (messages, reason) in [
        (vec![text("nonsense")], "not valid JSON"),
        (vec![text("{\"a\":")], "not valid JSON"),
        (vec![Message::binary(vec![1, 2])], "not text"),
        (vec![text(&oversized)], "too large"),
        (vec![text("{\"error\": {\"code\": \"Boom\", \"message\": \"Traceback at /srv/app\"}}")], ""),
    ] {
        let (peer, _) = responding_agent(messages, None).await;
        let gate = start_gateway(&peer, "websocket: {max_message_size: 4KiB}").await;
        for media in ["application/json", "application/x-ndjson"] {
            let answer = send(
                gate.post("/agents/a/invoke")
                    .header("accept", format!("{media}, application/json;q=0.1"))
                    .json(&json!({})),
            )
            .await;
            let error = answer.expect_fault(502, "AgentError");
            assert!(error.to_string().contains(reason), "{error}");
            answer.assert_hides(&["Traceback", "/srv", "nonsense"]);
        }
    }
}

#[tokio::test]
async fn the_answer_is_awaited_only_up_to_max_messages() {
    let notification = text(&json!({"jsonrpc": "2.0", "method": "m"}).to_string());
    let (peer, _) = responding_agent(vec![notification; 30], None).await;
    let gate = start_gateway(&peer, "websocket: {framing: json_rpc, max_messages: 20}").await;
    invoke_accepting(&gate, "application/json").await.expect_fault(502, "AgentError");
}

/// An agent that reads the handshake request and writes these bytes.
async fn agent_writing(response: &'static str, closes: bool) -> RawAgent {
    RawAgent::start(move |mut stream, _| async move {
        let mut head = vec![0; 4096];
        let _ = stream.read(&mut head).await;
        let _ = stream.write_all(response.as_bytes()).await;
        if !closes {
            while stream.read(&mut head).await.is_ok_and(|count| count > 0) {}
        }
    })
    .await
}

#[tokio::test]
async fn r38_a_refused_handshake_is_mapped_like_any_response() {
    const OPEN: &str = "HTTP/1.1 101 X\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n";
    for (answer, status, code) in [
        ("HTTP/1.1 401 X\r\nContent-Length: 0\r\n\r\n".to_owned(), 502, "AgentError"),
        ("HTTP/1.1 404 X\r\nContent-Length: 2\r\n\r\n{}".to_owned(), 502, "AgentError"),
        ("HTTP/1.1 503 X\r\nContent-Length: 0\r\n\r\n".to_owned(), 503, "AgentUnavailable"),
        ("HTTP/1.1 429 X\r\nContent-Length: 0\r\n\r\n".to_owned(), 429, "RateLimited"),
        ("HTTP/1.1 500 X\r\nContent-Length: 10\r\n\r\nTraceback!".to_owned(), 500, "AgentError"),
        ("HTTP/1.1 200 X\r\nContent-Length: 2\r\n\r\n{}".to_owned(), 502, "AgentError"),
        ("HTTP/1.1 302 X\r\nLocation: http://x/\r\nContent-Length: 0\r\n\r\n".to_owned(), 502, "AgentError"),
        (format!("{OPEN}\r\n"), 502, "AgentError"),
        (format!("{OPEN}Sec-WebSocket-Accept: AAAAAAAAAAAAAAAAAAAAAAAAAAA=\r\n\r\n"), 502, "AgentError"),
        ("hello".to_owned(), 502, "AgentError"),
        (String::new(), 502, "AgentError"),
    ] {
        let peer = agent_writing(answer.clone().leak(), true).await;
        let gate = start_gateway(&peer, "").await;
        let refused = invoke_accepting(&gate, "application/json").await;
        assert_eq!((refused.status, refused.json()["error"]["code"].as_str()), (status, Some(code)), "{answer}");
        refused.assert_hides(&["Traceback"]);
    }
}

#[tokio::test]
async fn r38_r96_silence_is_a_timeout_and_a_closed_port_is_unavailable() {
    let timeouts = "timeouts: {first_byte: 300ms, idle: 300ms, total: 5s}";
    let silent = agent_writing("", false).await;
    invoke_accepting(&start_gateway(&silent, timeouts).await, "application/json").await.expect_fault(504, "Timeout");
    let (silent_after_handshake, _) = responding_agent(Vec::new(), None).await;
    invoke_accepting(
        &start_gateway(&silent_after_handshake, timeouts).await,
        "text/event-stream, application/json;q=0.1",
    )
    .await
    .expect_fault(504, "Timeout");
    let closed = ClosedPort::new();
    let agent_document = json!({"id": "a", "name": "a", "endpoint": format!("ws://{}/", closed.address), "authentication": {"type": "api_key"}});
    let gate = gateway().document(agent_document).start().await;
    invoke_accepting(&gate, "application/json").await.expect_fault(503, "AgentUnavailable");
}

#[tokio::test]
async fn r80_a_stream_that_breaks_off_ends_with_an_error_event() {
    for (close_code, code) in [(Some(1011), "AgentError"), (Some(1001), "AgentUnavailable"), (None, "Timeout")] {
        let (peer, _) = responding_agent(vec![text("{\"n\":1}")], close_code).await;
        let gate = start_gateway(&peer, "timeouts: {idle: 400ms}").await;
        let answer = invoke_accepting(&gate, "text/event-stream").await;
        let text = answer.text();
        let (before, error) = text.split_once("event: error\ndata: ").unwrap_or_else(|| panic!("{text}"));
        assert_eq!(before, "data: {\"n\":1}\n\n");
        assert!(error.contains(code), "{error}");
        answer.assert_hides(&["10.0.0.9"]);
    }
    let (peer, _) =
        responding_agent(vec![text("{\"n\":1}"), text("{\"error\":\"Traceback at /srv\"}")], Some(1000)).await;
    let answer = invoke_accepting(&start_gateway(&peer, "").await, "text/event-stream").await;
    assert!(answer.text().contains("event: error"), "{}", answer.text());
    answer.assert_hides(&["Traceback"]);
}

#[tokio::test]
async fn a_caller_that_disconnects_ends_the_connection_to_the_agent() {
    for media in ["application/json", "text/event-stream"] {
        let messages = if media.ends_with("json") { Vec::new() } else { vec![text("{}")] };
        let (peer, agent_log) = responding_agent(messages, None).await;
        let gate = start_gateway(&peer, "").await;
        let head = format!(
            "POST /agents/a/invoke HTTP/1.1\r\nHost: g\r\nX-API-Key: {}\r\nAccept: {media}\r\nContent-Length: 2\r\n\r\n{{}}",
            gate.key("team-a")
        );
        let mut stream = tokio::net::TcpStream::connect(gate.address()).await.unwrap();
        stream.write_all(head.as_bytes()).await.unwrap();
        eventually("the agent receives the call", async || agent_log.messages().len() == 1).await;
        stream.set_zero_linger().unwrap();
        drop(stream);
        eventually("the agent's connection ends", async || !agent_log.close_codes().is_empty()).await;
    }
}

#[tokio::test]
async fn r1_tls_is_verified_and_plain_text_stays_on_this_machine() {
    let (authority, other) = (CertificateAuthority::new("right"), CertificateAuthority::new("wrong"));
    let acceptor =
        TlsAcceptor::from(servers::server_tls_config(&authority.server(&["localhost"]), None, &[b"http/1.1"]));
    let peer = RawAgent::start(move |stream, _| {
        let acceptor = acceptor.clone();
        async move {
            let Ok(stream) = acceptor.accept(stream).await else { return };
            let Ok(mut socket) = accept_async(stream).await else { return };
            let _ = socket.send(Message::text("{\"secure\":true}")).await;
            while let Some(Ok(_)) = futures_util::StreamExt::next(&mut socket).await {}
        }
    })
    .await;
    let agent_document = |id: &str, endpoint: String| json!({"id": id, "name": id, "endpoint": endpoint, "authentication": {"type": "api_key"}});
    let port = peer.address.port();
    let build = gateway();
    std::fs::write(build.folder().join("right.pem"), authority.pem()).unwrap();
    std::fs::write(build.folder().join("wrong.pem"), other.pem()).unwrap();
    let rules = "agents:\n  sources: [agents.json]\n  rules:\n    - {agents: [a], settings: {tls: {ca: right.pem}}}\n    - {agents: [b], settings: {tls: {ca: wrong.pem}}}\n";
    let gate = build
        .document(agent_document("a", format!("agent+wss://localhost:{port}/")))
        .document(agent_document("b", format!("wss://localhost:{port}/")))
        .document(agent_document("c", "ws://192.0.2.1/".into()))
        .section(rules)
        .start()
        .await;
    assert_eq!(invoke_accepting(&gate, "application/json").await.expect_ok(), json!({"secure": true}));
    gate.invoke("b", &json!({})).await.expect_fault(502, "AgentError");
    gate.invoke("c", &json!({})).await.expect_fault(404, "NotFound");
}
