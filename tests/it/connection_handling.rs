//! Known pitfalls of Pingora and of HTTP connection handling, each with a test through the real gateway.

use crate::support::{
    agent::{Agent, Step, http_response, json_response, write},
    certs::CertificateAuthority,
    eventually,
    gateway::{Gateway, gateway, send},
    gateway_response::{read_response, send_raw},
    servers::{self, tls_listener_section},
};
use serde_json::json;
use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

/// The bytes of a call with these header lines besides Host and the key.
fn raw_call(gate: &Gateway, id: &str, fields: &str, body: &str) -> String {
    format!(
        "POST /agents/{id}/invoke HTTP/1.1\r\nHost: gate\r\nX-API-Key: {}\r\nContent-Type: application/json\r\n{fields}\r\n{body}",
        gate.key("team-a")
    )
}

fn complete_call(gate: &Gateway, id: &str, body: &str) -> String {
    raw_call(gate, id, &format!("Content-Length: {}\r\n", body.len()), body)
}

async fn connect(gate: &Gateway) -> TcpStream {
    TcpStream::connect(gate.address()).await.unwrap()
}

/// Reads until the gateway closes the connection.
async fn read_to_close(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    let read = tokio::time::timeout(Duration::from_secs(8), stream.read_to_end(&mut bytes)).await;
    let _ = read.expect("the connection stays open");
    String::from_utf8_lossy(&bytes).into_owned()
}

#[tokio::test]
async fn a_pooled_connection_is_never_reused_for_another_authority() {
    let (ours, theirs) = (CertificateAuthority::new("ours"), CertificateAuthority::new("theirs"));
    let server = servers::server_tls_config(&ours.server(&["localhost", "127.0.0.1"]), None, &[b"http/1.1"]);
    let agent = servers::EchoServer::start(Some(server)).await;
    let document = |id: &str| json!({"id": id, "name": id, "endpoint": format!("https://{}/", agent.address), "authentication": {"type": "api_key"}});
    let build = gateway().document(document("trusts")).document(document("distrusts"));
    std::fs::write(build.folder().join("ours.pem"), ours.pem()).unwrap();
    std::fs::write(build.folder().join("theirs.pem"), theirs.pem()).unwrap();
    let rules = "agents:\n  sources: [agents.json]\n  rules:\n    - {agents: [trusts], settings: {tls: {ca: ours.pem}}}\n    - {agents: [distrusts], settings: {tls: {ca: theirs.pem}}}\n";
    let gate = build.section(rules).start().await;
    for _ in 0..3 {
        gate.invoke("trusts", &json!({})).await.expect_ok();
        gate.invoke("distrusts", &json!({})).await.expect_fault(502, "AgentError");
    }
    // The file changes while a connection is pooled: the gateway does not reuse that connection.
    std::fs::write(gate.folder().join("ours.pem"), theirs.pem()).unwrap();
    eventually("the changed authority takes effect", async || gate.invoke("trusts", &json!({})).await.status == 502)
        .await;
}

#[tokio::test]
async fn r38_an_empty_5xx_gets_a_body_and_the_connection_stays_open() {
    let agent = Agent::with_steps(vec![write("HTTP/1.1 503 Away\r\nContent-Length: 0\r\n\r\n")]).await;
    let gate = gateway().agent("empty", &agent).start().await;
    let mut stream = connect(&gate).await;
    for _ in 0..3 {
        stream.write_all(complete_call(&gate, "empty", "{}").as_bytes()).await.unwrap();
        read_response(&mut stream).await.unwrap().expect_fault(503, "AgentUnavailable");
    }
}

#[tokio::test]
async fn r96_response_headers_that_trickle_in_end_at_the_deadline_of_the_call() {
    let drip = [write("X-A: 1\r\n"), Step::Sleep(Duration::from_millis(50))];
    let agent = Agent::with_steps(vec![write("HTTP/1.1 200 OK\r\n"), Step::Repeat(drip.to_vec())]).await;
    let section = "agents:\n  sources: [agents.json]\n  defaults: {timeouts: {total: 500ms}}\n";
    let gate = gateway().agent("drips", &agent).section(section).start().await;
    let started = Instant::now();
    gate.invoke("drips", &json!({})).await.expect_fault(504, "Timeout");
    assert!(started.elapsed() < Duration::from_secs(2), "{:?}", started.elapsed());
    eventually("the gateway disconnects from the agent", async || agent.aborted_responses() == 1).await;
}

#[tokio::test]
async fn slow_heads_and_slow_bodies_time_out_while_other_calls_are_served() {
    let echo = Agent::echo().await;
    let mut document = echo.document("echo");
    document["inputs"] = json!({"type": "object"});
    let gate = gateway()
        .document(document)
        .section("connections: {header_timeout: 600ms, body_idle_timeout: 600ms, idle_timeout: 900ms}\n")
        .start()
        .await;
    let head = complete_call(&gate, "echo", "{}").replace("Length: 2", "Length: 200");
    let slow = (0..20).map(|index| {
        // Half of the callers never finish the head and send a byte at intervals, the others never finish the body.
        let (sent, trickle) = if index % 2 == 0 { (&head[..40], "X") } else { (&head[..], "") };
        let (sent, address) = (sent.to_owned(), gate.address());
        tokio::spawn(async move {
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream.write_all(sent.as_bytes()).await.unwrap();
            let started = Instant::now();
            let (mut read, mut write) = stream.split();
            let sending = async {
                while started.elapsed() < Duration::from_secs(8) {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    if write.write_all(trickle.as_bytes()).await.is_err() {
                        break;
                    }
                }
                std::future::pending::<()>().await;
            };
            let mut text = Vec::new();
            tokio::select! {
                _ = read.read_to_end(&mut text) => {}
                () = sending => {}
            }
            (started.elapsed(), String::from_utf8_lossy(&text).into_owned())
        })
    });
    let slow: Vec<_> = slow.collect();
    for _ in 0..5 {
        gate.invoke("echo", &json!({})).await.expect_ok();
    }
    for task in slow {
        let (duration, text) = task.await.unwrap();
        assert!(text.starts_with("HTTP/1.1 408 "), "{text}");
        assert!(text.contains("\"code\":\"Timeout\""), "{text}");
        assert!(duration < Duration::from_secs(5), "{duration:?}");
    }
    // Connections without any request are closed without a response.
    assert_eq!(read_to_close(&mut connect(&gate).await).await, "");
}

#[tokio::test]
async fn an_idle_http_2_connection_is_closed() {
    let gate = gateway().section("connections: {idle_timeout: 300ms, header_timeout: 300ms}\n").start().await;
    let preface: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    let settings: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];
    for sent in [preface[..10].to_vec(), preface.to_vec(), [preface, settings].concat()] {
        let mut stream = connect(&gate).await;
        stream.write_all(&sent).await.unwrap();
        let started = Instant::now();
        read_to_close(&mut stream).await;
        assert!(started.elapsed() < Duration::from_secs(5), "{} bytes: {:?}", sent.len(), started.elapsed());
    }
    eventually("no connection is counted as open", async || {
        gate.metric("gatepost_connections_open").await == Some(0.0)
    })
    .await;
}

#[tokio::test]
async fn a_caller_that_half_closes_still_gets_its_answer() {
    let late = Agent::scripted(|_| {
        let mut steps = vec![Step::Sleep(Duration::from_millis(1600))];
        steps.extend(json_response(&json!({"late": true})));
        steps
    })
    .await;
    let echo = Agent::echo().await;
    let gate = gateway().agent("late", &late).agent("echo", &echo).start().await;
    for (id, min_millis) in [("echo", 0), ("late", 1500)] {
        let mut stream = connect(&gate).await;
        stream.write_all(complete_call(&gate, id, "{}").as_bytes()).await.unwrap();
        stream.shutdown().await.unwrap();
        let started = Instant::now();
        let text = read_to_close(&mut stream).await;
        assert!(started.elapsed().as_millis() >= min_millis);
        // An interim response is allowed before a late answer (RFC 9110 §15.2).
        let text = text.strip_prefix("HTTP/1.1 100 Continue\r\n\r\n").unwrap_or(&text);
        assert!(text.starts_with("HTTP/1.1 200 "), "{text}");
    }
}

#[tokio::test]
async fn r45_a_post_on_a_dead_connection_is_retried_only_with_an_idempotency_key() {
    // The agent answers the first request of each connection, and closes at the second without a response.
    let requests = Arc::new(Mutex::new(Vec::<String>::new()));
    let log = Arc::clone(&requests);
    let agent = servers::RawAgent::start(move |mut stream, number| {
        let log = Arc::clone(&log);
        async move {
            for turn in 0..2 {
                let mut head = vec![0; 4096];
                let Ok(count @ 1..) = stream.read(&mut head).await else { return };
                let head = String::from_utf8_lossy(&head[..count]).into_owned();
                log.lock().unwrap().push(format!("{number}.{turn}"));
                // A third connection would be a second retry.
                if turn == 1 {
                    drop(head);
                    return;
                }
                let _ = stream
                    .write_all(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}")
                    .await;
            }
        }
    })
    .await;
    let gate = gateway().document(agent.document("once")).start().await;
    gate.invoke("once", &json!({})).await.expect_ok();
    gate.invoke("once", &json!({})).await.expect_fault(502, "AgentError");
    assert_eq!(*requests.lock().unwrap(), ["0.0", "0.1"], "a POST that the agent may have read was retried");
    gate.invoke("once", &json!({})).await.expect_ok();
    send(gate.post("/agents/once/invoke").header("idempotency-key", "k1").json(&json!({}))).await.expect_ok();
    assert_eq!(*requests.lock().unwrap(), ["0.0", "0.1", "1.0", "1.1", "2.0"]);
}

#[tokio::test]
async fn a_connection_that_the_agent_closed_while_idle_is_not_reused() {
    let agent = Agent::scripted(|_| [json_response(&json!({})), vec![Step::Close]].concat()).await;
    let gate = gateway().agent("closes", &agent).start().await;
    for _ in 0..30 {
        gate.invoke("closes", &json!({})).await.expect_ok();
    }
    assert_eq!(agent.call_count(), 30);
}

#[tokio::test]
async fn r43_a_stream_may_last_longer_than_any_idle_timeout() {
    let mut steps =
        vec![write("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")];
    for at in 0..8 {
        steps.extend([write(format!("9\r\ndata: {at}\n\n\r\n")), Step::Sleep(Duration::from_millis(150))]);
    }
    steps.push(write("0\r\n\r\n"));
    let agent = Agent::with_steps(steps).await;
    let gate = gateway()
        .agent("stream", &agent)
        .section("agents:\n  sources: [agents.json]\n  defaults: {timeouts: {first_byte: 300ms, idle: 600ms}}\n")
        .section("connections: {header_timeout: 300ms, body_idle_timeout: 400ms, idle_timeout: 300ms}\n")
        .start()
        .await;
    let text = send(gate.post("/agents/stream/invoke").json(&json!({}))).await.text();
    let expected: String = (0..8).map(|at| format!("data: {at}\n\n")).collect();
    assert_eq!(text, expected);
}

#[tokio::test]
async fn expect_100_continue_is_answered_once_the_body_is_needed() {
    let echo = Agent::echo().await;
    let mut checked = echo.document("checked");
    checked["inputs"] = json!({"type": "object"});
    let gate = gateway().agent("open", &echo).document(checked).start().await;
    for id in ["open", "checked"] {
        let mut stream = connect(&gate).await;
        for _ in 0..2 {
            let head = raw_call(&gate, id, "Content-Length: 2\r\nExpect: 100-continue\r\n", "");
            stream.write_all(head.as_bytes()).await.unwrap();
            let mut interim = [0; 25];
            stream.read_exact(&mut interim).await.unwrap();
            assert_eq!(&interim, b"HTTP/1.1 100 Continue\r\n\r\n");
            stream.write_all(b"{}").await.unwrap();
            read_response(&mut stream).await.unwrap().expect_ok();
        }
    }
    assert_eq!(echo.call_count(), 4);
    // A refusal comes without 100 Continue: the body is too large, the agent is unknown, the key is wrong.
    let large = raw_call(&gate, "checked", "Content-Length: 2000000\r\nExpect: 100-continue\r\n", "");
    send_raw(gate.address(), large.as_bytes()).await.unwrap().expect_fault(413, "PayloadTooLarge");
    let unknown = raw_call(&gate, "unknown", "Content-Length: 2\r\nExpect: 100-continue\r\n", "");
    send_raw(gate.address(), unknown.as_bytes()).await.unwrap().expect_fault(404, "NotFound");
    let wrong_key = large.replace(gate.key("team-a"), "gp_wrong");
    send_raw(gate.address(), wrong_key.as_bytes()).await.unwrap().expect_fault(401, "Unauthorized");
    assert_eq!(echo.call_count(), 4);
}

/// Reads `count` answers; the end of each is its last chunk or its content length.
async fn read_answers(stream: &mut TcpStream, count: usize) -> Vec<String> {
    let mut buffer = Vec::new();
    let mut answers = Vec::new();
    while answers.len() < count {
        let text = String::from_utf8_lossy(&buffer).into_owned();
        if let Some(end) = end_of_answer(&text) {
            answers.push(text[..end].to_owned());
            buffer.drain(..end);
            continue;
        }
        let mut part = [0; 16 << 10];
        let read =
            tokio::time::timeout(Duration::from_secs(8), stream.read(&mut part)).await.expect("an answer in time");
        match read.unwrap() {
            0 => panic!("the connection ended after {} answers: {text}", answers.len()),
            count => buffer.extend_from_slice(&part[..count]),
        }
    }
    assert!(buffer.is_empty(), "more bytes than the answers: {}", String::from_utf8_lossy(&buffer));
    answers
}

fn end_of_answer(text: &str) -> Option<usize> {
    let body = text.find("\r\n\r\n")? + 4;
    let head = text[..body].to_ascii_lowercase();
    if head.contains("transfer-encoding: chunked") {
        return text[body..].find("0\r\n\r\n").map(|at| body + at + 5);
    }
    let length: usize = head.split("content-length: ").nth(1)?.lines().next()?.parse().ok()?;
    (text.len() >= body + length).then_some(body + length)
}

#[tokio::test]
async fn no_byte_of_the_next_request_is_lost_after_any_kind_of_answer() {
    let agent = Agent::scripted(|got| match got.json()["kind"].as_str() {
        Some("events") => vec![
            write("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"),
            write("9\r\ndata: 1\n\n\r\n"),
            write("9\r\ndata: 2\n\n\r\n0\r\n\r\n"),
        ],
        Some("chunks") => vec![
            write("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"),
            write("3\r\ndef\r\n0\r\n\r\n"),
        ],
        Some("length") => http_response("200 OK", "text/plain", "abcdef"),
        Some("fails") => http_response("500 Oops", "text/plain", ""),
        _ => json_response(&json!({"ok": true})),
    })
    .await;
    let gate = gateway().agent("any", &agent).start().await;
    let kinds = ["events", "json", "chunks", "length", "fails", "events", "chunks", "json"];
    let request = |kind: &str| complete_call(&gate, "any", &json!({ "kind": kind }).to_string());
    let assert_answer = |kind: &str, text: &str| {
        let matches = match kind {
            "events" => text.contains("data: 1\n\n") && text.contains("data: 2\n\n"),
            "chunks" => text.contains("abc") && text.contains("def"),
            "length" => text.ends_with("abcdef"),
            "fails" => text.starts_with("HTTP/1.1 500 "),
            _ => text.ends_with("{\"ok\":true}"),
        };
        assert!(matches, "{kind}: {text}");
    };
    // Sequential requests on one connection, each sent as soon as the previous answer is complete.
    let mut stream = connect(&gate).await;
    for round in 0..25 {
        for kind in kinds {
            stream.write_all(request(kind).as_bytes()).await.unwrap();
            let answers = read_answers(&mut stream, 1).await;
            assert_answer(kind, &answers[0]);
            assert!(round < 25);
        }
    }
    // Pipelined requests: each is answered, in order.
    for _ in 0..5 {
        let all: String = kinds.iter().map(|kind| request(kind)).collect();
        stream.write_all(all.as_bytes()).await.unwrap();
        let answers = read_answers(&mut stream, kinds.len()).await;
        for (kind, text) in kinds.iter().zip(&answers) {
            assert_answer(kind, text);
        }
    }
    // Two requests split at any byte: the start of the second may arrive with the first.
    let pair = request("events") + &request("json");
    for cut in (1..pair.len()).step_by(7) {
        let mut stream = connect(&gate).await;
        stream.write_all(&pair.as_bytes()[..cut]).await.unwrap();
        tokio::task::yield_now().await;
        stream.write_all(&pair.as_bytes()[cut..]).await.unwrap();
        let answers = read_answers(&mut stream, 2).await;
        assert_answer("events", &answers[0]);
        assert_answer("json", &answers[1]);
    }
}

#[tokio::test]
async fn r97_a_resumed_tls_session_does_not_authenticate_without_the_certificate() {
    let authority = CertificateAuthority::new("clients");
    let echo = Agent::echo().await;
    let mut document = echo.document("mutual");
    document["authentication"] = json!({"type": "mtls"});
    let build = gateway().document(document);
    std::fs::write(build.folder().join("clients.pem"), authority.pem()).unwrap();
    let listen = tls_listener_section(&build, &authority, Some("clients.pem"));
    let gate = build.listeners(&listen).section("  mtls: {caller_from: [subject_cn]}\n").start().await;
    let alice = authority.client("alice");
    let client = servers::ResumingTlsClient::new(&authority, &alice);
    for (shows, status) in [(true, "200"), (false, "401"), (true, "200"), (false, "401")] {
        let text = client.call(gate.address(), shows, "POST /agents/mutual/invoke HTTP/1.1\r\nHost: gate\r\nContent-Type: application/json\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}").await;
        assert!(text.starts_with(&format!("HTTP/1.1 {status} ")), "shows {shows}: {text}");
    }
}
