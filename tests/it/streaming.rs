//! Streamed bodies: events, chunks, uploads and downloads in bounded memory, over HTTP/1.1, HTTP/2, TLS and unix
//! sockets, and failures of either side.

use crate::support::{
    agent::{Agent, Step, find_bytes, http_response, json_response, write},
    certs::CertificateAuthority,
    eventually,
    gateway::{Gateway, gateway, send},
    gateway_response::{read_response, send_raw},
    servers::{self, EchoServer, tls_listener_section},
};
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

const EVENTS: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";

fn chunk(text: &str) -> Step {
    write(format!("{:x}\r\n{text}\r\n", text.len()))
}

fn pause(millis: u64) -> Step {
    Step::Sleep(Duration::from_millis(millis))
}

fn end() -> Step {
    write("0\r\n\r\n")
}

/// An agent that streams events in these steps, and a gateway that sends comments at the interval `keep_alive`.
async fn start_streaming(steps: Vec<Step>, keep_alive: &str) -> (Gateway, Agent) {
    let agent = Agent::with_steps([vec![write(EVENTS)], steps].concat()).await;
    let section = format!(
        "agents:\n  sources: [agents.json]\n  sse_keep_alive_interval: {keep_alive}\n  defaults: {{timeouts: {{idle: 1500ms}}}}\n"
    );
    (gateway().agent("stream", &agent).section(&section).start().await, agent)
}

async fn streamed_text(gate: &Gateway) -> String {
    send(gate.post("/agents/stream/invoke").json(&json!({}))).await.text()
}

#[tokio::test]
async fn r43_an_idle_stream_gets_keep_alive_comments_between_events() {
    let steps = vec![chunk("data: 1\n\n"), pause(350), chunk("data: 2\n\n"), end()];
    let (gate, _agent) = start_streaming(steps, "100ms").await;
    let text = streamed_text(&gate).await;
    assert!(text.matches(": keep-alive\n\n").count() >= 2, "{text}");
    assert_eq!(text.replace(": keep-alive\n\n", ""), "data: 1\n\ndata: 2\n\n");
}

#[tokio::test]
async fn r43_a_comment_is_never_inserted_into_an_event() {
    let steps = vec![
        chunk("id: 1\ndata: a"),
        pause(250),
        chunk("b\ndata: c\n"),
        pause(250),
        chunk("\n"),
        chunk("data: 2\r\n\r"),
        pause(250),
        chunk("\ndata: 3\r\n\r\n"),
        end(),
    ];
    let (gate, _agent) = start_streaming(steps, "50ms").await;
    let text = streamed_text(&gate).await;
    assert!(text.contains("id: 1\ndata: ab\ndata: c\n\n"), "{text}");
    assert!(text.contains("data: 2\r\n\r\n"), "{text}");
    assert_eq!(text.replace(": keep-alive\n\n", ""), "id: 1\ndata: ab\ndata: c\n\ndata: 2\r\n\r\ndata: 3\r\n\r\n");
}

#[tokio::test]
async fn r40_a_stream_is_logged_as_a_failure_if_its_last_event_states_one() {
    let retried = "data: {\"type\":\"tool_result\",\"status\":\"error\",\"message\":\"timed out, retrying\"}\n\n";
    let result = "data: {\"result\":{\"answer\":42}}\n\n";
    let done = "data: [DONE]\n\n";
    // Streams that can be resumed are written by another part of the gateway.
    for section in ["", "tasks:\n  sqlite_file: tasks.db\n"] {
        for (events, code) in [(vec![retried, result, done], "ok"), (vec![result, retried, done], "AgentError")] {
            let steps = events.iter().flat_map(|event| [chunk(event), pause(150)]);
            let agent = Agent::with_steps([write(EVENTS)].into_iter().chain(steps).chain([end()]).collect()).await;
            let gate = gateway().agent("stream", &agent).section(section).start().await;
            let text = streamed_text(&gate).await;
            assert!(events.iter().all(|event| text.contains(event)), "{text}");
            let line = gate.access_log(1).await.remove(0);
            assert_eq!((&line["status"], &line["code"]), (&json!(200), &json!(code)), "{section:?} {line}");
        }
    }
}

#[tokio::test]
async fn r43_an_interval_of_zero_sends_no_comments() {
    let (gate, _agent) =
        start_streaming(vec![chunk("data: 1\n\n"), pause(300), chunk("data: 2\n\n"), end()], "0s").await;
    assert_eq!(streamed_text(&gate).await, "data: 1\n\ndata: 2\n\n");
}

/// Asserts that the stream ends with an error event; returns the text before it.
fn before_error_event(text: &str, code: &str) -> String {
    let (before, error) = text.split_once("event: error\ndata: ").unwrap_or_else(|| panic!("no error event: {text}"));
    let error: Value = serde_json::from_str(error.trim_end()).unwrap();
    assert_eq!(error["error"]["code"], code, "{text}");
    assert!(error["error"]["request_id"].is_string());
    assert!(text.ends_with("\n\n"));
    before.to_owned()
}

#[tokio::test]
async fn r43_a_stream_whose_agent_fails_ends_with_an_error_event() {
    let cases = [
        ("between", vec![chunk("data: 1\n\n"), Step::Close], "AgentError"),
        ("inside", vec![chunk("data: 1\n\n"), chunk("data: ha"), Step::Close], "AgentError"),
        ("inside-crlf", vec![chunk("data: 1\n\n"), chunk("data: ha\r\n\r"), Step::Close], "AgentError"),
        ("reset", vec![chunk("data: 1\n\n"), pause(50), Step::Reset], "AgentError"),
        ("bad-chunk", vec![chunk("data: 1\n\n"), write("zz\r\n"), Step::Close], "AgentError"),
        ("half-chunk", vec![chunk("data: 1\n\n"), write("40\r\ndata: half"), Step::Close], "AgentError"),
        ("stalls", vec![chunk("data: 1\n\n"), Step::Hang], "Timeout"),
    ];
    let mut agents = Vec::new();
    let mut build = gateway().section(
        "agents:\n  sources: [agents.json]\n  sse_keep_alive_interval: 0s\n  defaults: {timeouts: {idle: 700ms}}\n",
    );
    for (id, steps, _) in &cases {
        let agent = Agent::with_steps([vec![write(EVENTS)], steps.clone()].concat()).await;
        build = build.agent(id, &agent);
        agents.push(agent);
    }
    let gate = build.start().await;
    for (at, (id, _, code)) in cases.iter().enumerate() {
        let text = gate.invoke(id, &json!({})).await.text();
        assert_eq!(before_error_event(&text, code), "data: 1\n\n", "{id}");
        let line = gate.access_log(at + 1).await.remove(at);
        assert_eq!((line["code"].as_str(), line["aborted"].as_str()), (Some(*code), Some("broken off")), "{line}");
        assert_eq!((&line["status"], &line["agent"]), (&json!(200), &json!(id)));
    }
}

#[tokio::test]
async fn r43_events_with_a_content_length_or_until_close_pass_too() {
    let events = "data: 1\n\ndata: 2\n\n";
    let with_length = http_response("200 OK", "Text/Event-Stream; charset=utf-8", events);
    let cut = vec![
        write("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 100\r\n\r\ndata: 1\n\n"),
        Step::Close,
    ];
    let unframed =
        vec![write(format!("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n{events}")), Step::Close];
    let old = vec![write(format!("HTTP/1.0 200 OK\r\nContent-Type: text/event-stream\r\n\r\n{events}")), Step::Close];
    let torn = vec![write("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: 1\n\ndata: 2"), Step::Close];
    let agent = Agent::scripted(move |got| match got.json()["want"].as_str() {
        Some("length") => with_length.clone(),
        Some("cut") => cut.clone(),
        Some("unframed") => unframed.clone(),
        Some("old") => old.clone(),
        _ => torn.clone(),
    })
    .await;
    let gate = gateway().agent("stream", &agent).start().await;
    let want = async |want: &str| gate.invoke("stream", &json!({ "want": want })).await.text();
    for framing in ["length", "unframed", "old"] {
        assert_eq!(want(framing).await, events, "{framing}");
    }
    assert_eq!(before_error_event(&want("cut").await, "AgentError"), "data: 1\n\n");
    assert_eq!(want("torn").await, "data: 1\n\ndata: 2");
}

#[tokio::test]
async fn r43_a_huge_event_passes_unchanged_and_is_visibly_truncated_when_its_agent_dies() {
    let huge = format!("data: {}\n\n", "x".repeat(700_000));
    let (gate, _agent) = start_streaming(vec![chunk(&huge), chunk("data: 2\n\n"), end()], "50ms").await;
    assert_eq!(streamed_text(&gate).await.replace(": keep-alive\n\n", ""), huge.clone() + "data: 2\n\n");
    let (gate, _agent) = start_streaming(vec![chunk(&huge[..600_000]), Step::Close], "0s").await;
    let mut response = gate.post("/agents/stream/invoke").json(&json!({})).send().await.unwrap();
    let ended = loop {
        match response.chunk().await {
            Ok(Some(_)) => {}
            Ok(None) => break "whole",
            Err(_) => break "cut",
        }
    };
    assert_eq!(ended, "cut", "half an event ended like a complete stream");
}

#[tokio::test]
async fn an_event_is_forwarded_as_soon_as_it_arrives() {
    let mut steps = Vec::new();
    for n in 0..40 {
        steps.extend([chunk(&format!("data: {n}\n\n")), pause(10)]);
    }
    steps.push(end());
    let (gate, _agent) = start_streaming(steps, "0s").await;
    let mut response = gate.post("/agents/stream/invoke").json(&json!({})).send().await.unwrap();
    let (mut chunks, mut previous, mut longest) = (0, Instant::now(), Duration::ZERO);
    while let Some(bytes) = response.chunk().await.unwrap() {
        if chunks > 0 {
            longest = longest.max(previous.elapsed());
        }
        previous = Instant::now();
        chunks += 1;
        assert!(bytes.len() <= 40, "events were buffered: {bytes:?}");
    }
    assert!(chunks >= 30, "{chunks} chunks for 40 events");
    assert!(longest < Duration::from_millis(500), "{longest:?}");
}

#[tokio::test]
async fn chunks_of_any_answer_are_forwarded_as_they_arrive() {
    let agent = Agent::scripted(|got| {
        let head = match got.json()["want"].as_str() {
            Some("lines") => "Content-Type: application/x-ndjson\r\nTransfer-Encoding: chunked\r\n",
            Some("text") => "Content-Type: text/plain\r\nTransfer-Encoding: chunked\r\n",
            Some("length") => "Content-Type: text/plain\r\nContent-Length: 22\r\n",
            _ => "Content-Type: application/octet-stream\r\nConnection: close\r\n",
        };
        let part = |text: &str| if head.contains("chunked") { chunk(text) } else { write(text) };
        let mut steps = vec![write(format!("HTTP/1.1 200 OK\r\n{head}\r\n")), part("{\"first\":1}"), Step::Hang];
        if head.contains("close") || got.json()["finish"] == true {
            steps.truncate(2);
            steps.extend([pause(300), part("{\"secnd\":2}")]);
            steps.push(if head.contains("chunked") { end() } else { Step::Close });
        }
        steps
    })
    .await;
    let gate = gateway().agent("parts", &agent).start().await;
    for want in ["lines", "text", "length", "close"] {
        let input = json!({"want": want, "finish": true});
        let mut response = gate.post("/agents/parts/invoke").json(&input).send().await.unwrap();
        let first = tokio::time::timeout(Duration::from_secs(5), response.chunk()).await.expect(want).unwrap().unwrap();
        assert_eq!(first, "{\"first\":1}", "{want}: buffered");
        assert_eq!(response.chunk().await.unwrap().unwrap(), "{\"secnd\":2}", "{want}");
        assert!(response.chunk().await.unwrap().is_none(), "{want}");
    }
}

#[tokio::test]
async fn chunked_json_passes_unchanged_and_a_truncated_answer_never_looks_complete() {
    let large = format!("{{\"text\": \"{}\"}}", "y".repeat(200_000));
    let body = large.clone();
    let agent = Agent::scripted(move |got| {
        let json = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n";
        match got.json()["want"].as_str() {
            Some("small") => vec![write(json), chunk("{\"a\":"), pause(20), chunk("[1, 2]}"), end()],
            Some("large") => vec![write(json), chunk(&body[..100_000]), pause(20), chunk(&body[100_000..]), end()],
            Some("dies-early") => vec![write(json), chunk("{\"a\":"), Step::Close],
            Some("dies-late") => vec![write(json), chunk(&body[..100_000]), pause(50), Step::Close],
            Some("dies-text") => vec![write(json.replace("json", "octet")), chunk("abc"), pause(50), Step::Reset],
            _ => vec![
                write("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 200000\r\n\r\nabc"),
                pause(50),
                Step::Close,
            ],
        }
    })
    .await;
    let gate = gateway().agent("json", &agent).start().await;
    let want = |want: &str| gate.post("/agents/json/invoke").json(&json!({ "want": want }));
    assert_eq!(send(want("small")).await.text(), "{\"a\":[1, 2]}");
    assert_eq!(send(want("large")).await.text(), large);
    send(want("dies-early")).await.expect_fault(502, "AgentError");
    for dies in ["dies-late", "dies-text", "dies-length"] {
        let response = want(dies).send().await.unwrap();
        assert!(response.bytes().await.is_err(), "{dies}: a truncated answer ended like a complete one");
    }
    let log = gate.access_log(6).await;
    assert_eq!(log.iter().filter(|line| line["aborted"] == "broken off" && line["code"] == "AgentError").count(), 3);
}

#[tokio::test]
async fn large_bodies_stream_both_ways_in_bounded_memory() {
    const DOWN: usize = 64 << 20;
    const UP: usize = 32 << 20;
    let agent = Agent::scripted(|got| {
        if got.body.len() > 1000 {
            return json_response(&json!({"bytes": got.body.len()}));
        }
        let part = write(vec![b'x'; 1 << 20]);
        let head = write(format!(
            "HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nContent-Length: {DOWN}\r\n\r\n"
        ));
        [vec![head], vec![part; DOWN >> 20]].concat()
    })
    .await;
    let gate = gateway().agent("bulk", &agent).start().await;
    gate.invoke("bulk", &json!({"warm": "x".repeat(2000)})).await.expect_ok();
    let before = gate.peak_memory();
    let upload = gate.post("/agents/bulk/invoke").header("content-type", "application/octet-stream").body(vec![1; UP]);
    assert_eq!(send(upload).await.expect_ok()["bytes"], UP);
    let mut response =
        gate.post("/agents/bulk/invoke").header("content-type", "text/plain").body("x").send().await.unwrap();
    let mut count = 0;
    while let Some(bytes) = response.chunk().await.unwrap() {
        count += bytes.len();
    }
    assert_eq!(count, DOWN);
    let growth = gate.peak_memory() - before;
    assert!(growth < 12, "{growth} MiB for bodies that are only passed through");
    let lines = gate.access_log(3).await;
    assert_eq!((&lines[1]["bytes_in"], &lines[2]["bytes_out"]), (&json!(UP), &json!(DOWN)));
    // Above max_streamed_body_size the declared length is refused before the agent is called.
    let calls = agent.call_count();
    let oversized = format!(
        "POST /agents/bulk/invoke HTTP/1.1\r\nHost: x\r\nX-API-Key: {}\r\nContent-Type: application/octet-stream\r\n\
         Content-Length: {}\r\n\r\n",
        gate.key("team-a"),
        65 << 20
    );
    let response = send_raw(gate.address(), oversized.as_bytes()).await.expect("the head suffices for an answer");
    response.expect_fault(413, "PayloadTooLarge");
    assert_eq!(agent.call_count(), calls);
    let within = oversized.replace(&(65 << 20).to_string(), "1") + "x";
    assert_eq!(send_raw(gate.address(), within.as_bytes()).await.unwrap().status, 200, "the size alone was the reason");
    assert_eq!(agent.call_count(), calls + 1);
}

#[tokio::test]
async fn a_caller_that_does_not_read_blocks_its_agent() {
    let part = vec![b'x'; 64 << 10];
    let sent = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let count = std::sync::Arc::clone(&sent);
    let agent = servers::RawAgent::start(move |mut stream, _| {
        let (part, count) = (part.clone(), std::sync::Arc::clone(&count));
        async move {
            let mut head = [0; 4096];
            let _ = stream.read(&mut head).await;
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n").await;
            while stream.write_all(&part).await.is_ok() {
                count.fetch_add(part.len(), std::sync::atomic::Ordering::SeqCst);
            }
        }
    })
    .await;
    let gate = gateway().document(agent.document("endless")).start().await;
    let before = gate.peak_memory();
    let mut stream = start_call(&gate, "endless", "Content-Length: 2\r\n", "{}").await;
    let mut start = [0; 1000];
    stream.read_exact(&mut start).await.unwrap();
    let (mut last, mut unchanged) = (0, 0);
    eventually("the agent is blocked", async || {
        let now = sent.load(std::sync::atomic::Ordering::SeqCst);
        unchanged = if now == last { unchanged + 1 } else { 0 };
        last = now;
        unchanged >= 15
    })
    .await;
    assert!(last < 32 << 20, "{last} bytes were buffered");
    assert!(gate.peak_memory() - before < 12, "{} MiB", gate.peak_memory() - before);
    // Once the caller reads again, the agent continues.
    let mut rest = vec![0; 1 << 20];
    for _ in 0..40 {
        stream.read_exact(&mut rest).await.unwrap();
    }
    assert!(sent.load(std::sync::atomic::Ordering::SeqCst) > 40 << 20);
}

/// Sends a call without reading its answer.
async fn start_call(gate: &Gateway, id: &str, fields: &str, body: &str) -> TcpStream {
    let mut stream = TcpStream::connect(gate.address()).await.unwrap();
    let head = format!(
        "POST /agents/{id}/invoke HTTP/1.1\r\nHost: gate\r\nX-API-Key: {}\r\nContent-Type: application/x-bytes\r\n{fields}\r\n{body}",
        gate.key("team-a")
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream
}

/// Reads until `what` has arrived.
async fn read_until(stream: &mut TcpStream, what: &str) -> String {
    let mut bytes = Vec::new();
    while find_bytes(&bytes, what.as_bytes()).is_none() {
        let mut part = [0; 4096];
        let read = tokio::time::timeout(Duration::from_secs(8), stream.read(&mut part));
        let count = read.await.unwrap_or_else(|_| panic!("{what} did not arrive: {}", String::from_utf8_lossy(&bytes)));
        let count = count.unwrap();
        assert!(count > 0, "the connection ended before {what}: {}", String::from_utf8_lossy(&bytes));
        bytes.extend_from_slice(&part[..count]);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[tokio::test]
async fn request_and_response_stream_at_the_same_time() {
    let plain = EchoServer::start(None).await;
    let rules = "agents:\n  sources: [agents.json]\n  rules: [{agents: [h2], settings: {h2c: true}}]\n";
    let gate = gateway()
        .document(plain.document("h1", "http"))
        .document(plain.document("h2", "http"))
        .section(rules)
        .start()
        .await;
    for id in ["h1", "h2"] {
        let mut stream = start_call(&gate, id, "Transfer-Encoding: chunked\r\n", "").await;
        for word in ["one", "two", "three"] {
            stream.write_all(format!("{:x}\r\n{word}\r\n", word.len()).as_bytes()).await.unwrap();
            read_until(&mut stream, &format!("\r\n{word}\r\n")).await;
        }
        stream.write_all(b"0\r\n\r\n").await.unwrap();
        read_until(&mut stream, "0\r\n\r\n").await;
    }
    assert_eq!(*plain.observed.versions.lock().unwrap(), ["HTTP/1.1", "HTTP/2.0"]);
    assert!(gate.access_log(2).await.iter().all(|line| line["bytes_in"] == 11 && line["bytes_out"] == 11));
}

#[tokio::test]
async fn a_truncated_upload_never_reaches_the_agent_as_a_complete_one() {
    let agent = Agent::scripted(|got| json_response(&json!({"bytes": got.body.len()}))).await;
    let gate = gateway().agent("bulk", &agent).start().await;
    for fields in ["Content-Length: 1000\r\n", "Transfer-Encoding: chunked\r\n"] {
        let mut stream = start_call(&gate, "bulk", fields, "5\r\nhello\r\n").await;
        stream.shutdown().await.unwrap();
        let answer = read_response(&mut stream).await.expect("an answer");
        answer.expect_fault(400, "InvalidInput");
        drop(start_call(&gate, "bulk", fields, "5\r\nhello\r\n").await);
    }
    assert_eq!(gate.access_log(4).await.len(), 4);
    assert_eq!(agent.call_count(), 0);
}

#[tokio::test]
async fn a_caller_that_disconnects_during_a_stream_frees_its_agent_within_a_second() {
    let ticking = || vec![chunk("data: 1\n\n"), Step::Repeat(vec![chunk("data: 2\n\n"), pause(50)])];
    let silent = || vec![chunk("data: 1\n\n"), Step::Hang];
    for (agent_kind, steps) in [("ticking", ticking()), ("silent", silent())] {
        let (gate, agent) = start_streaming(steps, "30s").await;
        for (at, ending) in ["closes", "resets"].into_iter().enumerate() {
            let mut stream = start_call(&gate, "stream", "Content-Length: 2\r\n", "{}").await;
            read_until(&mut stream, "data: 1\n\n").await;
            if ending == "resets" {
                stream.set_zero_linger().unwrap();
            }
            drop(stream);
            let started = Instant::now();
            eventually("the gateway disconnects from the agent", async || agent.aborted_responses() == at + 1).await;
            assert!(started.elapsed() < Duration::from_millis(1400), "{agent_kind} {ending}: {:?}", started.elapsed());
        }
        for line in gate.access_log(2).await {
            assert_eq!(
                (line["aborted"].as_str(), line["status"].as_u64()),
                (Some("caller gone"), Some(200)),
                "{agent_kind}: {line}"
            );
        }
    }
}

/// A client that speaks only HTTP/2.
fn h2_client(authority: Option<&CertificateAuthority>) -> reqwest::Client {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let builder = reqwest::Client::builder().no_proxy().http2_prior_knowledge();
    let builder = match authority {
        Some(authority) => {
            builder.tls_certs_only([reqwest::Certificate::from_pem(authority.pem().as_bytes()).unwrap()])
        }
        None => builder,
    };
    builder.build().unwrap()
}

#[tokio::test]
async fn r43_http_2_callers_get_the_same_answers_with_and_without_tls() {
    for tls in [false, true] {
        let agent = Agent::scripted(|got| match serde_json::from_slice::<Value>(&got.body).unwrap_or_default()["want"]
            .as_str()
        {
            Some("events") => vec![write(EVENTS), chunk("data: 1\n\n"), pause(200), chunk("data: 2\n\n"), end()],
            Some("dies") => vec![write(EVENTS), chunk("data: 1\n\n"), Step::Close],
            Some("cut") => vec![
                write("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 99999\r\n\r\nabc"),
                pause(50),
                Step::Close,
            ],
            Some("hangs") => vec![Step::Hang],
            Some("fails") => http_response("500 Oops", "text/html", "<html>"),
            _ => json_response(&json!({"length": got.body.len()})),
        })
        .await;
        let authority = CertificateAuthority::new("ours");
        let mut checked = agent.document("checked");
        checked["inputs"] = json!({"type": "object", "required": ["want"]});
        let build = gateway().agent("any", &agent).document(checked);
        let gate = if tls {
            let listen = tls_listener_section(&build, &authority, None);
            build.listeners(&listen)
        } else {
            build
        };
        let gate = gate.start().await;
        let client = h2_client(tls.then_some(&authority));
        let scheme = if tls { "https" } else { "http" };
        let post = |path: &str| {
            client.post(format!("{scheme}://{}{path}", gate.address())).header("x-api-key", gate.key("team-a"))
        };
        let want = |want: &str| post("/agents/any/invoke").json(&json!({ "want": want }));
        let response = want("json").send().await.unwrap();
        assert_eq!(response.version(), reqwest::Version::HTTP_2);
        send(post("/agents/checked/invoke").json(&json!({"want": "x".repeat(900_000)}))).await.expect_ok();
        send(post("/agents/checked/invoke").json(&json!({}))).await.expect_fault(400, "InvalidInput");
        send(post("/agents/checked/invoke").header("content-type", "application/json").body(vec![b' '; 2 << 20]))
            .await
            .expect_fault(413, "PayloadTooLarge");
        send(post("/agents/unknown/invoke").json(&json!({}))).await.expect_fault(404, "NotFound");
        send(want("fails")).await.expect_fault(500, "AgentError");
        let upload =
            post("/agents/any/invoke").header("content-type", "application/octet-stream").body(vec![b'{'; 3 << 20]);
        assert_eq!(send(upload).await.status, 200);
        let mut response = want("events").send().await.unwrap();
        assert_eq!(response.chunk().await.unwrap().unwrap(), "data: 1\n\n");
        assert_eq!(response.bytes().await.unwrap(), "data: 2\n\n");
        assert_eq!(before_error_event(&send(want("dies")).await.text(), "AgentError"), "data: 1\n\n");
        assert!(
            want("cut").send().await.unwrap().bytes().await.is_err(),
            "a truncated answer ended like a complete one"
        );
        // The caller resets a stream.
        let hung = want("hangs").timeout(Duration::from_millis(300)).send().await;
        assert!(hung.is_err());
        eventually("the gateway disconnects from the agent", async || agent.aborted_responses() == 1).await;
        let log = gate.access_log(11).await;
        assert!(log.iter().all(|line| line["protocol"] == "HTTP/2"));
        assert!(log.iter().any(|line| line["aborted"] == "caller gone"));
    }
}

#[tokio::test]
async fn r51_an_agent_on_a_unix_socket_is_called() {
    let build = gateway();
    let path = build.folder().join("agent.sock");
    let served = EchoServer::start_on_unix_socket(&path);
    let endpoint = format!("agent+unix://{}#/invoke", path.display());
    let gate = build
        .document(json!({"id": "local", "name": "local", "endpoint": endpoint, "authentication": {"type": "api_key"}}))
        .start()
        .await;
    assert_eq!(gate.invoke("local", &json!({"a": 1})).await.expect_ok(), json!({"a": 1}));
    drop(served);
    std::fs::remove_file(&path).unwrap();
    let answer = gate.invoke("local", &json!({"a": 1})).await;
    if answer.status != 200 {
        answer.expect_fault(503, "AgentUnavailable");
        answer.assert_hides(&["agent.sock"]);
    }
}

#[tokio::test]
async fn r1_r4_an_agent_over_tls_is_verified_and_gets_the_gateways_client_certificate() {
    let (ours, other) = (CertificateAuthority::new("ours"), CertificateAuthority::new("other"));
    let valid =
        servers::server_tls_config(&ours.server(&["localhost", "127.0.0.1"]), Some(&ours), &[b"h2", b"http/1.1"]);
    let valid = EchoServer::start(Some(valid)).await;
    let misnamed = servers::server_tls_config(&ours.server(&["elsewhere.example"]), Some(&ours), &[b"http/1.1"]);
    let misnamed = EchoServer::start(Some(misnamed)).await;
    let foreign = servers::server_tls_config(&other.server(&["localhost", "127.0.0.1"]), None, &[b"h2"]);
    let foreign = EchoServer::start(Some(foreign)).await;
    let plain = EchoServer::start(None).await;
    let build = gateway()
        .document(valid.document("valid", "https"))
        .document(valid.document("bare", "https"))
        .document(misnamed.document("misnamed", "https"))
        .document(misnamed.document("renamed", "https"))
        .document(foreign.document("foreign", "https"))
        .document(plain.document("not-tls", "https"));
    std::fs::write(build.folder().join("ours.pem"), ours.pem()).unwrap();
    ours.client("the-gateway").write(build.folder(), "gateway");
    let client_tls = "ca: ours.pem, certificate: gateway.pem, key: gateway.key, destinations: {sources: [files]}";
    let rules = format!(
        "agents:\n  sources: [agents.json]\n  rules:\n    - {{agents: ['*'], settings: {{tls: {{ca: ours.pem}}}}}}\n    - {{agents: [valid, misnamed], settings: {{tls: {{{client_tls}}}}}}}\n    - {{agents: [renamed], settings: {{tls: {{{client_tls}, server_name: elsewhere.example}}}}}}\n"
    );
    let gate = build.section(&rules).start().await;
    for id in ["valid", "renamed"] {
        assert_eq!(gate.invoke(id, &json!({"a": 1})).await.expect_ok(), json!({"a": 1}), "{id}");
    }
    assert_eq!(valid.observed.versions.lock().unwrap()[0], "HTTP/2.0");
    assert_eq!(misnamed.observed.versions.lock().unwrap()[0], "HTTP/1.1");
    assert!(valid.observed.certificates.load(std::sync::atomic::Ordering::SeqCst) > 0);
    for id in ["bare", "misnamed", "foreign", "not-tls"] {
        let answer = gate.invoke(id, &json!({"a": 1})).await;
        assert_eq!(answer.status, 502, "{id}: {}", answer.text());
        answer.expect_fault(502, "AgentError");
        answer.assert_hides(&["elsewhere", "ertificate", "127.0.0.1", "BadSignature", "UnknownIssuer"]);
    }
    // All further calls share the one connection.
    let before = valid.observed.connections.load(std::sync::atomic::Ordering::SeqCst);
    let calls = (0..40).map(|n| gate.post("/agents/valid/invoke").json(&json!({ "n": n })));
    for (n, answer) in futures_util::future::join_all(calls.map(send)).await.into_iter().enumerate() {
        assert_eq!(answer.expect_ok()["n"], n);
    }
    assert_eq!(valid.observed.connections.load(std::sync::atomic::Ordering::SeqCst), before);
}
