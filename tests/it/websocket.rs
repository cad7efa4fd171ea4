//! Agents over WebSocket, called by `POST`: the forms of messages and answers, and everything that an agent can do
//! wrong.

use crate::support::{
    certs::Authority,
    eventually,
    gateway::{Gate, gateway, send},
    reply::Answer,
    served::{self, Raw},
    websocket::{agent, answering, document, next, until_end},
};
use futures_util::SinkExt;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};
use tokio_rustls::TlsAcceptor;
use tokio_tungstenite::{accept_async, tungstenite::Message};

fn text(text: &str) -> Message {
    Message::text(text)
}

fn settings(yaml: &str) -> String {
    format!("agents:\n  from: [agents.json]\n  defaults: {{{yaml}}}\n")
}

async fn gate(agent: &Raw, yaml: &str) -> Gate {
    gateway().document(document(agent, "a")).section(&settings(yaml)).start().await
}

async fn accepting(gate: &Gate, media: &str) -> Answer {
    send(gate.post("/agents/a/invoke").header("accept", media).json(&json!({"q": 1}))).await
}

#[tokio::test]
async fn r51_r80_a_call_is_one_line_and_its_answer_the_first() {
    let (peer, heard) = answering(vec![text("{\"answer\": 42}\n")], None).await;
    let gate = gate(&peer, "").await;
    let call = gate.post("/agents/a/invoke").header("x-request-id", "r-1").header("content-type", "application/json");
    let answer = send(call.body("{\n  \"q\": \"a\\nb\"\n}")).await;
    assert_eq!(answer.is_ok(), json!({"answer": 42}));
    assert_eq!(heard.texts(), ["{   \"q\": \"a\\nb\" }\n"]);
    assert_eq!(heard.field("x-request-id").as_deref(), Some("r-1"));
    assert_eq!(heard.field(":path").as_deref(), Some("/talk?x=1"));
    for hidden in ["x-api-key", "authorization", "content-type", "content-length", "sec-websocket-extensions"] {
        assert_eq!(heard.field(hidden), None, "{hidden}");
    }
    eventually("the agent is told that this was all", async || heard.ends() == ["1000"]).await;
}

#[tokio::test]
async fn r80_lines_and_events_come_as_the_agent_sends_them() {
    let (peer, _) = answering(vec![text("{\"n\":1}"), text("{\"n\":2}\n{\"n\":3}\n")], Some(1000)).await;
    let gate = gate(&peer, "").await;
    let lines = accepting(&gate, "application/x-ndjson").await;
    assert_eq!((lines.status, lines.header("content-type")), (200, Some("application/x-ndjson")));
    assert_eq!(lines.text(), "{\"n\":1}\n{\"n\":2}\n{\"n\":3}\n");
    let events = accepting(&gate, "text/event-stream").await;
    assert_eq!(events.text(), "data: {\"n\":1}\n\ndata: {\"n\":2}\n\ndata: {\"n\":3}\n\n");
    // R43: the input may ask for a stream where Accept leaves it open.
    let asked = send(gate.post("/agents/a/invoke").header("accept", "*/*").json(&json!({"stream": true}))).await;
    assert_eq!(asked.text(), lines.text());
    assert_eq!(accepting(&gate, "application/json, text/event-stream").await.is_ok(), json!({"n": 1}));
}

#[tokio::test]
async fn r80_the_last_line_and_an_end_marker_can_be_configured() {
    let (peer, _) = answering(vec![text("{\"n\":1}"), text("{\"n\":2}"), text("[DONE]")], None).await;
    let gate = gate(&peer, "websocket: {document: last, end: '[DONE]'}").await;
    assert_eq!(accepting(&gate, "application/json").await.is_ok(), json!({"n": 2}));
    assert_eq!(accepting(&gate, "application/x-ndjson").await.text(), "{\"n\":1}\n{\"n\":2}\n");
}

#[tokio::test]
async fn bare_is_the_input_alone_and_one_message_answers_whatever_is_accepted() {
    let (peer, heard) = answering(vec![text("{\"n\":1}"), text("{\"n\":2}")], None).await;
    let gate = gate(&peer, "websocket: {frames: bare}").await;
    assert_eq!(accepting(&gate, "application/json").await.is_ok(), json!({"n": 1}));
    assert_eq!(accepting(&gate, "text/event-stream").await.text(), "data: {\"n\":1}\n\n");
    assert_eq!(heard.texts(), ["{\"q\":1}", "{\"q\":1}"]);
}

/// An agent that speaks JSON-RPC: two notifications, an answer to somebody else, and what `end` makes of the id.
async fn rpc(end: fn(&Value) -> Value) -> (Raw, crate::support::websocket::Heard) {
    agent(move |mut socket, heard| async move {
        let Some(asked) = next(&mut socket, &heard).await else { return };
        let asked: Value = serde_json::from_str(asked.to_text().unwrap()).unwrap();
        for message in [
            json!({"jsonrpc": "2.0", "method": "progress", "params": {"done": 0.5}}),
            json!({"jsonrpc": "2.0", "id": "another", "result": "not yours"}),
            json!({"jsonrpc": "2.0", "method": "progress", "params": {"done": 0.9}}),
            end(&asked["id"]),
        ] {
            let _ = socket.send(Message::text(message.to_string())).await;
        }
        until_end(&mut socket, &heard).await;
    })
    .await
}

#[tokio::test]
async fn r92_json_rpc_names_the_operation_and_only_its_own_response_answers() {
    let (peer, heard) = rpc(|id| json!({"jsonrpc": "2.0", "id": id, "result": {"ok": true}})).await;
    let mut record = document(&peer, "a");
    record["operations"] = json!([{"name": "plan"}]);
    let gate = gateway().document(record).section(&settings("websocket: {frames: json_rpc}")).start().await;
    assert_eq!(accepting(&gate, "application/json").await.is_ok(), json!({"ok": true}));
    let asked: Value = serde_json::from_str(&heard.texts()[0]).unwrap();
    assert_eq!(
        (&asked["method"], &asked["params"], &asked["jsonrpc"]),
        (&json!("plan"), &json!({"q": 1}), &json!("2.0"))
    );
    let events = accepting(&gate, "text/event-stream").await.text();
    let progress = "event: progress\ndata: {\"done\":0.5}\n\nevent: progress\ndata: {\"done\":0.9}\n\n";
    assert_eq!(events, format!("{progress}data: {{\"ok\":true}}\n\n"));
}

#[tokio::test]
async fn r41_r94_errors_of_json_rpc_are_mapped_and_their_words_stay_inside() {
    type Ending = fn(&Value) -> Value;
    let cases: [(Ending, u16, &str); 4] = [
        (|id| json!({"id": id, "error": {"code": -32602, "message": "field 'q' must be text"}}), 400, "InvalidInput"),
        (|id| json!({"id": id, "error": {"code": -32601, "message": "no such thing"}}), 404, "CapabilityNotFound"),
        (|id| json!({"id": id, "error": {"code": -32603, "message": "Traceback: /srv/app"}}), 500, "AgentError"),
        (|id| json!({"id": id, "error": {"code": 7, "message": "Traceback: /srv/app"}}), 502, "AgentError"),
    ];
    for (end, status, code) in cases {
        let (peer, _) = rpc(end).await;
        let gate = gate(&peer, "websocket: {frames: json_rpc}").await;
        let answer = accepting(&gate, "application/json").await;
        answer.is_fault(status, code);
        answer.hides(&["Traceback", "/srv"]);
    }
}

#[tokio::test]
async fn r38_an_agent_that_closes_without_an_answer_is_told_by_its_code() {
    for (code, status, name) in [
        (1000, 502, "AgentError"),
        (1001, 503, "AgentUnavailable"),
        (1002, 502, "AgentError"),
        (1003, 415, "UnsupportedMediaType"),
        (1007, 400, "InvalidInput"),
        (1008, 502, "AgentError"),
        (1009, 413, "PayloadTooLarge"),
        (1011, 502, "AgentError"),
        (1013, 503, "AgentUnavailable"),
        (4401, 502, "AgentError"),
    ] {
        let (peer, _) = answering(Vec::new(), Some(code)).await;
        let gate = gate(&peer, "").await;
        for media in ["application/json", "text/event-stream"] {
            let answer = accepting(&gate, media).await;
            assert_eq!(
                (answer.status, answer.json()["error"]["code"].as_str()),
                (status, Some(name)),
                "{code} {media}"
            );
            answer.hides(&["10.0.0.9"]);
        }
    }
}

#[tokio::test]
async fn r38_messages_that_are_no_answers_are_the_agents_failure() {
    let large = format!("\"{}\"", "x".repeat(5000));
    for (messages, told) in [
        (vec![text("nonsense")], "not valid JSON"),
        (vec![text("{\"a\":")], "not valid JSON"),
        (vec![Message::binary(vec![1, 2])], "not text"),
        (vec![text(&large)], "too large"),
        (vec![text("{\"error\": {\"code\": \"Boom\", \"message\": \"Traceback at /srv/app\"}}")], ""),
    ] {
        let (peer, _) = answering(messages, None).await;
        let gate = gate(&peer, "websocket: {max_message: 4KiB}").await;
        for media in ["application/json", "application/x-ndjson"] {
            let answer = send(
                gate.post("/agents/a/invoke")
                    .header("accept", format!("{media}, application/json;q=0.1"))
                    .json(&json!({})),
            )
            .await;
            let error = answer.is_fault(502, "AgentError");
            assert!(error.to_string().contains(told), "{error}");
            answer.hides(&["Traceback", "/srv", "nonsense"]);
        }
    }
}

#[tokio::test]
async fn a_document_is_not_waited_for_through_any_number_of_messages() {
    let notification = text(&json!({"jsonrpc": "2.0", "method": "m"}).to_string());
    let (peer, _) = answering(vec![notification; 30], None).await;
    let gate = gate(&peer, "websocket: {frames: json_rpc, max_messages: 20}").await;
    accepting(&gate, "application/json").await.is_fault(502, "AgentError");
}

/// An agent that is bytes: reads the head of the handshake and writes this.
async fn bytes(answer: &'static str, closes: bool) -> Raw {
    Raw::new(move |mut stream, _| async move {
        let mut head = vec![0; 4096];
        let _ = stream.read(&mut head).await;
        let _ = stream.write_all(answer.as_bytes()).await;
        if !closes {
            while stream.read(&mut head).await.is_ok_and(|count| count > 0) {}
        }
    })
    .await
}

#[tokio::test]
async fn r38_a_refused_handshake_is_judged_like_any_answer() {
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
        let peer = bytes(answer.clone().leak(), true).await;
        let gate = gate(&peer, "").await;
        let refused = accepting(&gate, "application/json").await;
        assert_eq!((refused.status, refused.json()["error"]["code"].as_str()), (status, Some(code)), "{answer}");
        refused.hides(&["Traceback"]);
    }
}

#[tokio::test]
async fn r38_r96_silence_is_a_timeout_and_nobody_there_is_unavailable() {
    let timeouts = "timeouts: {first_byte: 300ms, idle: 300ms, total: 5s}";
    let silent = bytes("", false).await;
    accepting(&gate(&silent, timeouts).await, "application/json").await.is_fault(504, "Timeout");
    let (mute, _) = answering(Vec::new(), None).await;
    accepting(&gate(&mute, timeouts).await, "text/event-stream, application/json;q=0.1").await.is_fault(504, "Timeout");
    let gone = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let record =
        json!({"id": "a", "name": "a", "endpoint": format!("ws://{gone}/"), "authentication": {"type": "api_key"}});
    let gate = gateway().document(record).start().await;
    accepting(&gate, "application/json").await.is_fault(503, "AgentUnavailable");
}

#[tokio::test]
async fn r80_a_stream_that_breaks_off_ends_with_an_error_of_the_gateways() {
    for (after, code) in [(Some(1011), "AgentError"), (Some(1001), "AgentUnavailable"), (None, "Timeout")] {
        let (peer, _) = answering(vec![text("{\"n\":1}")], after).await;
        let gate = gate(&peer, "timeouts: {idle: 400ms}").await;
        let told = accepting(&gate, "text/event-stream").await;
        let told_text = told.text();
        let (good, error) = told_text.split_once("event: error\ndata: ").unwrap_or_else(|| panic!("{told_text}"));
        assert_eq!(good, "data: {\"n\":1}\n\n");
        assert!(error.contains(code), "{error}");
        told.hides(&["10.0.0.9"]);
    }
    let (peer, _) = answering(vec![text("{\"n\":1}"), text("{\"error\":\"Traceback at /srv\"}")], Some(1000)).await;
    let told = accepting(&gate(&peer, "").await, "text/event-stream").await;
    assert!(told.text().contains("event: error"), "{}", told.text());
    told.hides(&["Traceback"]);
}

#[tokio::test]
async fn a_caller_who_leaves_ends_the_agents_connection() {
    for media in ["application/json", "text/event-stream"] {
        let messages = if media.ends_with("json") { Vec::new() } else { vec![text("{}")] };
        let (peer, heard) = answering(messages, None).await;
        let gate = gate(&peer, "").await;
        let head = format!(
            "POST /agents/a/invoke HTTP/1.1\r\nHost: g\r\nX-API-Key: {}\r\nAccept: {media}\r\nContent-Length: 2\r\n\r\n{{}}",
            gate.key("team-a")
        );
        let mut stream = tokio::net::TcpStream::connect(gate.address()).await.unwrap();
        stream.write_all(head.as_bytes()).await.unwrap();
        eventually("the call is with the agent", async || heard.texts().len() == 1).await;
        stream.set_zero_linger().unwrap();
        drop(stream);
        eventually("the agent's connection ends", async || !heard.ends().is_empty()).await;
    }
}

#[tokio::test]
async fn r1_tls_is_verified_and_plain_text_stays_on_this_machine() {
    let (authority, other) = (Authority::new("right"), Authority::new("wrong"));
    let acceptor = TlsAcceptor::from(served::tls(&authority.server(&["localhost"]), None, &[b"http/1.1"]));
    let peer = Raw::new(move |stream, _| {
        let acceptor = acceptor.clone();
        async move {
            let Ok(stream) = acceptor.accept(stream).await else { return };
            let Ok(mut socket) = accept_async(stream).await else { return };
            let _ = socket.send(Message::text("{\"secure\":true}")).await;
            while let Some(Ok(_)) = futures_util::StreamExt::next(&mut socket).await {}
        }
    })
    .await;
    let record = |id: &str, endpoint: String| json!({"id": id, "name": id, "endpoint": endpoint, "authentication": {"type": "api_key"}});
    let port = peer.address.port();
    let build = gateway();
    std::fs::write(build.folder().join("right.pem"), authority.pem()).unwrap();
    std::fs::write(build.folder().join("wrong.pem"), other.pem()).unwrap();
    let rules = "agents:\n  from: [agents.json]\n  rules:\n    - {agents: [a], settings: {tls: {ca: right.pem}}}\n    - {agents: [b], settings: {tls: {ca: wrong.pem}}}\n";
    let gate = build
        .document(record("a", format!("agent+wss://localhost:{port}/")))
        .document(record("b", format!("wss://localhost:{port}/")))
        .document(record("c", "ws://192.0.2.1/".into()))
        .section(rules)
        .start()
        .await;
    assert_eq!(accepting(&gate, "application/json").await.is_ok(), json!({"secure": true}));
    gate.invoke("b", &json!({})).await.is_fault(502, "AgentError");
    gate.invoke("c", &json!({})).await.is_fault(404, "NotFound");
}
