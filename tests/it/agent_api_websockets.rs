//! WebSockets of an agent's own API: what passes, what is refused, and each way in which a connection ends.

use crate::support::{
    agent::{Agent, Step, http_response, json_response, write},
    eventually,
    gateway::{Gateway, GatewayBuilder, gateway},
    gateway_response::send_raw,
    servers::RawAgent,
    settled,
    websocket::{
        AgentRecord, Socket, close_frame, connect, connect_with_headers, echo_agent, masked_frame, read_close_code,
        receive, receive_close_code, receive_text, record_next, record_until_end, send_text, websocket_agent,
    },
};
use futures_util::{SinkExt, StreamExt};
use serde_json::json;
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};
use tokio_tungstenite::tungstenite::{Error, Message, handshake::derive_accept_key};

const LIVE: &str = "/agents/planner/api/live/7";
const UPGRADE: &str = "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n";

fn rules(rule: &str) -> String {
    let api = "api: {routes: [{methods: [GET], path: '/live/{id}'}, {methods: [POST], path: /threads}]}";
    format!("agents:\n  sources: [agents.json]\n  rules:\n    - agents: [planner]\n      {api}\n{rule}")
}

fn builder(agent: &RawAgent, rule: &str) -> GatewayBuilder {
    gateway().document(agent.document("planner")).section(&rules(rule))
}

async fn start(agent: &RawAgent) -> Gateway {
    builder(agent, "").start().await
}

/// An agent that answers each handshake with these fields besides the valid ones, and serves the connection by hand.
async fn raw_agent<F: Future<Output = ()> + Send + 'static>(
    fields: &'static str,
    serve: impl Fn(TcpStream) -> F + Send + Sync + 'static,
) -> RawAgent {
    let serve = Arc::new(serve);
    RawAgent::start(move |mut stream, _| {
        let serve = Arc::clone(&serve);
        async move {
            let head = read_head(&mut stream).await;
            let key = head.lines().find_map(|line| line.strip_prefix("sec-websocket-key: ")).unwrap_or_default();
            let accept = derive_accept_key(key.as_bytes());
            let response = format!(
                "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: {accept}\r\n{fields}\r\n"
            );
            if stream.write_all(response.as_bytes()).await.is_ok() {
                serve(stream).await;
            }
        }
    })
    .await
}

async fn read_head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => break,
        }
    }
    String::from_utf8(head).unwrap()
}

/// Opens a WebSocket by hand, and returns its stream after the 101.
async fn connect_raw(gate: &Gateway, fields: &str) -> (TcpStream, String) {
    let mut stream = TcpStream::connect(gate.address()).await.unwrap();
    let key = gate.key("team-a");
    let request = format!("GET {LIVE} HTTP/1.1\r\nHost: gate\r\nX-API-Key: {key}\r\n{UPGRADE}{fields}\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let head = read_head(&mut stream).await;
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    (stream, head)
}

/// An agent that sends this without an end, and counts what it could send.
async fn flooding_agent(limit: usize) -> (RawAgent, Arc<AtomicUsize>) {
    let sent = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&sent);
    let (agent, _) = websocket_agent(move |mut socket, _| {
        let count = Arc::clone(&count);
        async move {
            while count.load(SeqCst) < limit {
                if socket.send(Message::binary(vec![7; 64 << 10])).await.is_err() {
                    return;
                }
                count.fetch_add(64 << 10, SeqCst);
            }
            let _ = socket.close(None).await;
            record_until_end(&mut socket, &AgentRecord::default()).await;
        }
    })
    .await;
    (agent, sent)
}

#[tokio::test]
async fn r43_r82_messages_of_an_api_pass_both_ways_and_the_connection_has_one_access_log_entry() {
    let (agent, record) = echo_agent().await;
    let gate = start(&agent).await;
    let fields = [
        ("x-api-key", gate.key("team-a")),
        ("cookie", "a=b"),
        ("origin", &*gate.url("")),
        ("sec-websocket-protocol", "chat, openai-insecure-api-key.sk-1, base64UrlBearerAuthorization.eyJ"),
        ("x-request-id", "r-9"),
    ];
    let (mut socket, head) = connect_with_headers(&gate, &format!("{LIVE}?a=%20b"), &fields).await.unwrap();
    assert_eq!(head.headers()["sec-websocket-protocol"], "chat");
    assert_eq!(head.headers()["x-request-id"], "r-9");
    // The gateway's limit of messages is that of its own WebSockets: here no message is buffered.
    for text in ["{\"n\":1}".to_owned(), "ünïcode".to_owned(), String::new(), "x".repeat(3 << 20)] {
        send_text(&mut socket, text.clone()).await;
        assert_eq!(receive_text(&mut socket).await, text);
    }
    socket.send(Message::binary(vec![0, 1, 2])).await.unwrap();
    assert_eq!(receive(&mut socket).await.into_data().as_ref(), [0, 1, 2]);
    assert_eq!(record.handshake_header(":path").as_deref(), Some("/live/7?a=%20b"));
    assert_eq!(record.handshake_header("sec-websocket-protocol").as_deref(), Some("chat"));
    for name in ["x-api-key", "cookie", "origin", "authorization", "x-request-timeout"] {
        assert_eq!(record.handshake_header(name), None, "{name}");
    }
    socket.close(Some(close_frame(4321))).await.unwrap();
    assert_eq!(receive_close_code(&mut socket).await, Some(4321));
    eventually("the agent receives the caller's close code", async || record.close_codes() == ["4321"]).await;
    let line = gate.access_log(1).await.remove(0);
    assert_eq!((&line["status"], &line["operation"], &line["code"]), (&json!(101), &json!("/live/{id}"), &json!("ok")));
    assert!(line["bytes_in"].as_u64() > Some(3 << 20) && line["bytes_out"].as_u64() > Some(3 << 20), "{line}");
}

#[tokio::test]
async fn r43_frames_and_extensions_pass_as_they_are() {
    let agent =
        raw_agent("Sec-WebSocket-Extensions: permessage-deflate; server_no_context_takeover\r\n", |stream| async {
            let (mut from, mut to) = stream.into_split();
            let _ = tokio::io::copy(&mut from, &mut to).await;
        })
        .await;
    let gate = start(&agent).await;
    let offer =
        "Sec-WebSocket-Extensions: x-other\r\nSec-WebSocket-Extensions: permessage-deflate; client_max_window_bits\r\n";
    let (mut stream, head) = connect_raw(&gate, offer).await;
    assert!(
        head.to_ascii_lowercase()
            .contains("\r\nsec-websocket-extensions: permessage-deflate; server_no_context_takeover\r\n"),
        "{head}"
    );
    // A compressed message in two fragments, with a ping between them.
    let frames = [masked_frame(0x41, b"\x8a\x02"), masked_frame(0x89, b"ping"), masked_frame(0x80, &[9; 300])].concat();
    for piece in frames.chunks(5) {
        stream.write_all(piece).await.unwrap();
    }
    let mut echoed = vec![0; frames.len()];
    stream.read_exact(&mut echoed).await.unwrap();
    assert_eq!(echoed, frames);
}

#[tokio::test]
async fn r3_a_refused_handshake_of_an_api_reaches_no_agent() {
    let (agent, record) = echo_agent().await;
    let rule = "      rate_limit: 2/h\n";
    let gate = builder(&agent, rule).start().await;
    let key = format!("X-API-Key: {}\r\n", gate.key("team-a"));
    for (path, fields, status, code) in [
        (LIVE, UPGRADE.to_owned(), 401, "Unauthorized"),
        ("/agents/planner/api/threads", format!("{UPGRADE}{key}"), 405, "MethodNotAllowed"),
        ("/agents/planner/api/other", format!("{UPGRADE}{key}"), 404, "CapabilityNotFound"),
        (LIVE, format!("{UPGRADE}{key}Origin: https://evil.example\r\n"), 403, "PermissionDenied"),
        (LIVE, format!("{UPGRADE}{key}Content-Length: 2\r\n"), 400, "InvalidInput"),
        (LIVE, format!("{UPGRADE}{key}"), 429, "RateLimited"),
    ] {
        let request = format!("GET {path} HTTP/1.1\r\nHost: gate\r\n{fields}\r\n");
        send_raw(gate.address(), request.as_bytes()).await.unwrap().expect_fault(status, code);
    }
    let request = format!("GET {LIVE} HTTP/1.1\r\nHost: gate\r\n{}{key}\r\n", UPGRADE.replace("13", "8"));
    let refused = send_raw(gate.address(), request.as_bytes()).await.unwrap();
    assert_eq!((refused.status, refused.header("sec-websocket-version")), (426, Some("13")));
    assert!(record.handshakes.lock().unwrap().is_empty());
}

#[tokio::test]
async fn r3_a_route_for_some_callers_holds_for_its_websockets_and_a_subprotocol_may_carry_the_key() {
    let (agent, record) = echo_agent().await;
    let rules = "agents:\n  sources: [agents.json]\n  rules:\n    - agents: [planner]\n      api: {routes: [{methods: [GET], path: /live/**, callers: ['key:team-b']}]}\n";
    let gate = gateway().document(agent.document("planner")).caller("team-b", &[]).section(rules).start().await;
    let protocols = |caller: &str| format!("gatepost, gatepost.key.{}", gate.key(caller));
    let refused = connect_with_headers(&gate, LIVE, &[("sec-websocket-protocol", &protocols("team-a"))]).await;
    let Err(Error::Http(refused)) = refused else { panic!("{refused:?}") };
    assert_eq!(refused.status(), 403);
    let (mut socket, head) =
        connect_with_headers(&gate, LIVE, &[("sec-websocket-protocol", &protocols("team-b"))]).await.unwrap();
    assert_eq!(head.headers()["sec-websocket-protocol"], "gatepost");
    send_text(&mut socket, "hi").await;
    assert_eq!(receive_text(&mut socket).await, "hi");
    assert_eq!(record.handshake_header("sec-websocket-protocol"), None);
}

#[tokio::test]
async fn r5_a_websocket_of_an_api_holds_its_slot_until_it_closes() {
    let (agent, _) = echo_agent().await;
    let gate = builder(&agent, "      max_concurrency: 1\n").section("limits: {concurrency: {queue_timeout: 10ms}}\n");
    let gate = gate.start().await;
    let mut first = connect(&gate, LIVE).await;
    let second = connect_with_headers(&gate, LIVE, &[("x-api-key", gate.key("team-a"))]).await;
    let Err(Error::Http(refused)) = second else { panic!("{second:?}") };
    assert!(matches!(refused.status().as_u16(), 429 | 503), "{refused:?}");
    first.close(None).await.unwrap();
    assert_eq!(receive_close_code(&mut first).await, Some(1005));
    eventually("the slot is free", async || {
        connect_with_headers(&gate, LIVE, &[("x-api-key", gate.key("team-a"))]).await.is_ok()
    })
    .await;
}

#[tokio::test]
async fn r38_an_agents_refusal_of_a_handshake_passes_and_an_invalid_answer_is_its_error() {
    let refusal = Agent::with_steps(http_response("403 Forbidden", "application/json", "{\"detail\": \"no session\"}"));
    let refusal = refusal.await;
    let gate = gateway().agent("planner", &refusal).section(&rules("")).start().await;
    let fields = [("x-api-key", gate.key("team-a"))];
    let refused = connect_with_headers(&gate, LIVE, &fields).await;
    let Err(Error::Http(refused)) = refused else { panic!("{refused:?}") };
    assert_eq!(refused.status(), 403);
    let line = gate.access_log(1).await.remove(0);
    assert_eq!((&line["status"], &line["operation"]), (&json!(403), &json!("/live/{id}")), "{line}");
    for answer in [
        "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: AAAA\r\n\r\n",
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n",
    ] {
        let agent = Agent::with_steps(vec![write(answer), Step::Close]).await;
        let gate = gateway().agent("planner", &agent).section(&rules("")).start().await;
        let key = gate.key("team-a");
        let request = format!("GET {LIVE} HTTP/1.1\r\nHost: gate\r\nX-API-Key: {key}\r\n{UPGRADE}\r\n");
        send_raw(gate.address(), request.as_bytes()).await.unwrap().expect_fault(502, "AgentError");
        // A 101 that nobody asked for is an error, too.
        if answer.contains("101") {
            let request = format!("GET {LIVE} HTTP/1.1\r\nHost: gate\r\nX-API-Key: {key}\r\n\r\n");
            send_raw(gate.address(), request.as_bytes()).await.unwrap().expect_fault(502, "AgentError");
        }
    }
    for fields in ["Sec-WebSocket-Extensions: permessage-deflate\r\n", "Sec-WebSocket-Protocol: chat\r\n"] {
        let agent = raw_agent(fields, |_| async {}).await;
        let gate = start(&agent).await;
        let key = gate.key("team-a");
        let request = format!("GET {LIVE} HTTP/1.1\r\nHost: gate\r\nX-API-Key: {key}\r\n{UPGRADE}\r\n");
        send_raw(gate.address(), request.as_bytes()).await.unwrap().expect_fault(502, "AgentError");
    }
}

#[tokio::test]
async fn r38_a_handshake_that_an_agent_does_not_answer_is_a_timeout() {
    let agent = RawAgent::start(|stream, _| async move {
        tokio::time::sleep(Duration::from_secs(60)).await;
        drop(stream);
    })
    .await;
    let gate = builder(&agent, "      settings: {timeouts: {first_byte: 300ms}}\n").start().await;
    let key = gate.key("team-a");
    let request = format!("GET {LIVE} HTTP/1.1\r\nHost: gate\r\nX-API-Key: {key}\r\n{UPGRADE}\r\n");
    send_raw(gate.address(), request.as_bytes()).await.unwrap().expect_fault(504, "Timeout");
}

#[tokio::test]
async fn r40_an_agent_that_dies_closes_its_caller_and_inside_a_frame_cuts_it_off() {
    for (bytes, code) in [(&b"\x81\x02hi"[..], Some(1011)), (b"\x81\x7e\x01\x00half", None), (b"\x81", None)] {
        let agent = raw_agent("", move |mut stream| async move {
            stream.write_all(bytes).await.unwrap();
        })
        .await;
        let gate = start(&agent).await;
        let (mut stream, _) = connect_raw(&gate, "").await;
        assert_eq!(read_close_code(&mut stream).await, code, "{bytes:?}");
        let line = gate.access_log(1).await.remove(0);
        assert_eq!((&line["code"], &line["aborted"]), (&json!("AgentError"), &json!("broken off")), "{line}");
    }
}

#[tokio::test]
async fn r43_the_close_code_of_an_agent_reaches_its_caller_as_it_is() {
    for (code, name) in [(1000, "ok"), (1013, "ok"), (4999, "ok"), (1011, "AgentError"), (1008, "AgentError")] {
        let (agent, record) = websocket_agent(move |mut socket: Socket, record| async move {
            let _ = socket.close(Some(close_frame(code))).await;
            record_until_end(&mut socket, &record).await;
        })
        .await;
        let gate = start(&agent).await;
        let mut socket = connect(&gate, LIVE).await;
        assert_eq!(receive_close_code(&mut socket).await, Some(code));
        // The answer is sent with the next read.
        assert!(socket.next().await.is_none_or(|end| end.is_err()));
        eventually("the agent receives the answer", async || record.close_codes() == [code.to_string()]).await;
        assert_eq!(gate.access_log(1).await.remove(0)["code"], name, "{code}");
    }
}

#[tokio::test]
async fn a_caller_that_leaves_ends_the_connection_to_the_agent() {
    for half_closes in [true, false] {
        let (agent, record) = echo_agent().await;
        let gate = start(&agent).await;
        let mut stream = connect(&gate, LIVE).await.into_inner();
        stream.write_all(&masked_frame(0x81, b"hi")).await.unwrap();
        eventually("the message arrives", async || record.messages() == ["hi"]).await;
        let mut kept = None;
        if half_closes {
            stream.shutdown().await.unwrap();
            kept = Some(stream);
        } else {
            stream.set_zero_linger().unwrap();
            drop(stream);
        }
        eventually("the connection to the agent ends", async || record.close_codes() == ["1001"]).await;
        let line = gate.access_log(1).await.remove(0);
        assert_eq!(line["aborted"], "caller gone", "{line}");
        drop(kept);
    }
}

#[tokio::test]
async fn r43_a_caller_that_reads_slowly_stops_its_agent_and_loses_nothing() {
    const LENGTH: usize = 96 << 20;
    let (agent, sent) = flooding_agent(LENGTH).await;
    let gate = start(&agent).await;
    let before = gate.peak_memory();
    let (mut stream, _) = connect_raw(&gate, "").await;
    let blocked = settled("the agent is blocked", || sent.load(SeqCst)).await;
    assert!(blocked < LENGTH / 2, "{blocked} bytes were sent to a caller that reads nothing");
    let (mut received, mut buffer) = (0, vec![0; 256 << 10]);
    // Each message of 64 KiB has a head of ten bytes, and the close frame has two.
    let expected = LENGTH + LENGTH / (64 << 10) * 10 + 2;
    while received < expected {
        received += stream.read(&mut buffer).await.unwrap();
    }
    assert_eq!(received, expected);
    let growth = gate.peak_memory() - before;
    assert!(growth < 8, "{growth} MiB more for a stream of {} MiB", LENGTH >> 20);
}

#[tokio::test]
async fn r43_an_agent_that_reads_nothing_stops_its_caller_and_is_given_up() {
    let agent = raw_agent("", |stream| async move {
        tokio::time::sleep(Duration::from_secs(60)).await;
        drop(stream);
    })
    .await;
    let gate = builder(&agent, "      settings: {timeouts: {idle: 500ms}}\n").start().await;
    let (mut stream, _) = connect_raw(&gate, "").await;
    let frame = masked_frame(0x82, &[1; 64 << 10]);
    let mut sent = 0;
    while sent < 1 << 30 && stream.write_all(&frame).await.is_ok() {
        sent += frame.len();
    }
    assert!(sent < 256 << 20, "{sent} bytes were taken for an agent that reads nothing");
    let line = gate.access_log(1).await.remove(0);
    assert_eq!((&line["code"], &line["aborted"]), (&json!("Timeout"), &json!("broken off")), "{line}");
}

#[tokio::test]
async fn a_websocket_of_an_api_without_messages_is_closed_and_pings_are_no_messages() {
    let (agent, record) = echo_agent().await;
    let gate = builder(&agent, "").section("websocket: {idle_timeout: 1s}\n").start().await;
    let (mut stream, _) = connect_raw(&gate, "").await;
    let pings = async {
        let (mut from, mut to) = stream.split();
        let pinging = async {
            while to.write_all(&masked_frame(0x89, b"")).await.is_ok() {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        let mut bytes = Vec::new();
        let closing = async {
            while !bytes.windows(4).any(|end| end == b"\x03\xe9Id") {
                bytes.push(from.read_u8().await.unwrap());
            }
        };
        tokio::select! { () = pinging => panic!("cut off"), () = closing => {} }
    };
    tokio::time::timeout(Duration::from_secs(20), pings).await.expect("closed with 1001 for idleness");
    drop(stream);
    eventually("the connection to the agent ends", async || record.close_codes() == ["1001"]).await;
}

#[tokio::test]
async fn a_revoked_key_ends_the_websockets_of_an_api_that_were_opened_with_it() {
    let (agent, record) = echo_agent().await;
    let gate = start(&agent).await;
    let mut socket = connect(&gate, LIVE).await;
    send_text(&mut socket, "1").await;
    assert_eq!(receive_text(&mut socket).await, "1");
    gate.write_file("keys.jsonl", "");
    let mut code = None;
    eventually("the caller is closed", async || {
        while code.is_none() && socket.send(Message::text("1")).await.is_ok() {
            match receive(&mut socket).await {
                Message::Close(frame) => code = frame.map(|frame| u16::from(frame.code)),
                _ => return false,
            }
        }
        code.is_some()
    })
    .await;
    assert_eq!(code, Some(1008));
    eventually("the connection to the agent ends", async || record.close_codes() == ["1001"]).await;
}

/// A check of the caller waits for an issuer, while each of the agent's frames wakes the tunnel.
#[tokio::test]
async fn r97_an_agent_that_sends_much_delays_no_check_of_its_caller_and_repeats_none() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let issuer = Agent::scripted(move |_| {
        let is_first = count.fetch_add(1, SeqCst) == 0;
        let wait = Step::Sleep(Duration::from_millis(if is_first { 0 } else { 1_500 }));
        [vec![wait], json_response(&json!({"active": is_first, "sub": "client", "iss": "https://issuer.example"}))]
            .concat()
    })
    .await;
    let (agent, _) = websocket_agent(|mut socket, _| async move {
        while socket.send(Message::text("tick")).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    let bearer = format!(
        "  bearer:\n    introspection: {{endpoint: 'http://{}/', client_id: gate, client_secret: 'env:CLIENT_SECRET', cache_ttl: 1s}}\n",
        issuer.address
    );
    let gate =
        builder(&agent, "      authentication: any\n").env("CLIENT_SECRET", "secret").section(&bearer).start().await;
    let (socket, _) = connect_with_headers(&gate, LIVE, &[("authorization", "Bearer opaque")]).await.unwrap();
    let (mut to_gate, mut from_gate) = socket.split();
    let sends = async {
        while to_gate.send(Message::text("1")).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    let reads = async {
        loop {
            match from_gate.next().await {
                Some(Ok(Message::Close(frame))) => return frame.map(|frame| u16::from(frame.code)),
                Some(Ok(_)) => {}
                other => panic!("{other:?}"),
            }
        }
    };
    let code = tokio::select! {
        code = reads => code,
        () = sends => None,
        () = tokio::time::sleep(Duration::from_secs(30)) => panic!("the caller stays"),
    };
    assert_eq!(code, Some(1008));
    assert_eq!(asked.load(SeqCst), 2, "the issuer is asked at the handshake and once more");
}

#[tokio::test]
async fn a_shutdown_closes_the_websockets_of_an_api_with_1001() {
    let (agent, record) = echo_agent().await;
    let mut gate = start(&agent).await;
    let mut socket = connect(&gate, LIVE).await;
    send_text(&mut socket, "1").await;
    assert_eq!(receive_text(&mut socket).await, "1");
    gate.send_signal(rustix::process::Signal::TERM);
    assert_eq!(receive_close_code(&mut socket).await, Some(1001));
    assert!(gate.wait_for_exit().await.success());
    assert_eq!(record.close_codes(), ["1001"]);
}

#[tokio::test]
async fn r30_a_host_of_its_own_has_websockets_and_they_are_opened_over_http1() {
    let (agent, record) = echo_agent().await;
    let rules = "agents:\n  sources: [agents.json]\n  rules:\n    - agents: [planner]\n      api: {routes: [{methods: [GET], path: /live/**}], hosts: [planner.agents.example.com]}\n";
    let gate = gateway().document(agent.document("planner")).section(rules).start().await;
    let fields = [("x-api-key", gate.key("team-a")), ("host", "planner.agents.example.com")];
    let (mut socket, _) = connect_with_headers(&gate, "/live/7", &fields).await.unwrap();
    send_text(&mut socket, "hi").await;
    assert_eq!(receive_text(&mut socket).await, "hi");
    assert_eq!(record.handshake_header(":path").as_deref(), Some("/live/7"));
    let client = reqwest::Client::builder().http2_prior_knowledge().build().unwrap();
    let request = client.get(gate.url(LIVE)).header("X-API-Key", gate.key("team-a"));
    let request = request.header("Sec-WebSocket-Key", "AAAAAAAAAAAAAAAAAAAAAA==");
    let answer = crate::support::gateway::send(request).await;
    answer.expect_fault(400, "InvalidInput");
    assert!(answer.text().contains("HTTP/1.1"), "{}", answer.text());
}

#[tokio::test]
async fn the_websockets_of_a_session_reach_one_endpoint() {
    let named = |name: &'static str| {
        websocket_agent(move |mut socket, record| async move {
            while record_next(&mut socket, &record).await.is_some() {
                let _ = socket.send(Message::text(name)).await;
            }
            record_until_end(&mut socket, &record).await;
        })
    };
    let ((one, _), (two, _)) = (named("one").await, named("two").await);
    let rules = format!(
        "agents:\n  sources: [agents.json]\n  rules:\n    - agents: [planner]\n      settings: {{additional_endpoints: ['http://{}/']}}\n      api:\n        routes: [{{methods: [GET], path: '/live/{{id}}'}}]\n        session: {{path: id}}\n",
        two.address
    );
    let gate = gateway().document(one.document("planner")).section(&rules).start().await;
    let mut answers = std::collections::BTreeSet::new();
    for id in 0..12 {
        let mut names = Vec::new();
        for _ in 0..2 {
            let mut socket = connect(&gate, &format!("/agents/planner/api/live/{id}")).await;
            send_text(&mut socket, "who").await;
            names.push(receive_text(&mut socket).await);
        }
        assert_eq!(names[0], names[1], "{id}");
        answers.extend(names);
    }
    assert_eq!(answers.len(), 2, "both endpoints serve sessions");
}
