//! Callers over WebSocket: the handshake and its refusals, messages to agents over WebSocket and HTTP, frames that
//! violate the protocol, and each way in which a connection ends.

use crate::support::{
    agent::{Agent, Step, http_response, json_response, latch, write},
    closed_port::ClosedPort,
    eventually,
    gateway::{Gateway, GatewayBuilder, gateway},
    gateway_response::{read_response, send_raw},
    servers::RawAgent,
    settled,
    websocket::{
        close_frame, connect, connect_with_headers, echo_agent, masked_frame, read_close_code, receive,
        receive_close_code, receive_json, receive_text, record_next, responding_agent, send_text, websocket_agent,
        websocket_document,
    },
};
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::SeqCst},
};
use tokio::{io::AsyncWriteExt, net::TcpStream};
use tokio_tungstenite::tungstenite::{Error, Message};

const INVOKE: &str = "/agents/a/invoke";

async fn start_gateway(agent: &RawAgent) -> Gateway {
    gateway().document(websocket_document(agent, "a")).start().await
}

fn document_with_schema(agent: &RawAgent) -> Value {
    let mut agent_document = websocket_document(agent, "a");
    let inputs = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
    agent_document["operations"] = json!([{"name": "count", "inputs": inputs}]);
    agent_document
}

#[tokio::test]
async fn r43_r82_messages_pass_both_ways_and_the_connection_has_one_access_log_entry() {
    let (peer, agent_log) = echo_agent().await;
    let gate = start_gateway(&peer).await;
    let fields =
        [("x-api-key", gate.key("team-a")), ("sec-websocket-protocol", "chat, other"), ("x-request-id", "r-9")];
    let (mut socket, head) = connect_with_headers(&gate, INVOKE, &fields).await.unwrap();
    assert_eq!(head.headers()["sec-websocket-protocol"], "chat");
    assert_eq!(head.headers()["x-request-id"], "r-9");
    assert!(!head.headers().contains_key("server"));
    for text in ["{\"n\":1}", "plain", "ünïcode"] {
        send_text(&mut socket, text).await;
        assert_eq!(receive_text(&mut socket).await, text);
    }
    socket.send(Message::binary(vec![0, 1, 2])).await.unwrap();
    assert_eq!(receive(&mut socket).await.into_data().as_ref(), [0, 1, 2]);
    let large = "x".repeat(300_000);
    send_text(&mut socket, large.clone()).await;
    assert_eq!(receive_text(&mut socket).await, large);
    assert_eq!(agent_log.handshake_header("x-api-key"), None);
    assert_eq!(agent_log.handshake_header("x-request-id").as_deref(), Some("r-9"));
    socket.close(Some(close_frame(4321))).await.unwrap();
    assert_eq!(receive_close_code(&mut socket).await, Some(4321));
    eventually("the agent receives the caller's close code", async || agent_log.close_codes() == ["4321"]).await;
    let line = gate.access_log(1).await.remove(0);
    assert_eq!(
        (&line["status"], &line["agent"], &line["request_id"]),
        (&json!(101), &json!("a"), &json!("r-9")),
        "{line}"
    );
    assert_eq!(line["code"], "ok");
    assert!(line["bytes_in"].as_u64() > Some(300_000) && line["bytes_out"].as_u64() > Some(300_000), "{line}");
}

#[tokio::test]
async fn a_refused_handshake_gets_an_http_error_and_reaches_no_agent() {
    let (peer, agent_log) = echo_agent().await;
    let gate =
        gateway().document(websocket_document(&peer, "a")).document(websocket_document(&peer, "b")).start().await;
    let key = gate.key("team-a").to_owned();
    let upgrade = "Upgrade: websocket\nConnection: keep-alive, Upgrade\nSec-WebSocket-Version: 13\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\n";
    let key_header = format!("X-API-Key: {key}\n");
    let cases = [
        (INVOKE, upgrade.to_owned(), 401, "Unauthorized"),
        (INVOKE, format!("{upgrade}X-API-Key: wrong\n"), 401, "Unauthorized"),
        ("/agents/unknown/invoke", format!("{upgrade}{key_header}"), 404, "NotFound"),
        ("/agents/a/invoke/nothing", format!("{upgrade}{key_header}"), 404, "CapabilityNotFound"),
        (INVOKE, upgrade.replace("keep-alive, Upgrade", "keep-alive") + &key_header, 400, "InvalidInput"),
        (INVOKE, upgrade.replace("13", "8") + &key_header, 426, "InvalidInput"),
        (INVOKE, upgrade.replace("Sec-WebSocket-Version: 13\n", "") + &key_header, 426, "InvalidInput"),
        (INVOKE, upgrade.replace("AAAAAA==", "==") + &key_header, 400, "InvalidInput"),
        (INVOKE, upgrade.replace("Sec-WebSocket-Key: ", "X: ") + &key_header, 400, "InvalidInput"),
        (INVOKE, format!("{upgrade}Sec-WebSocket-Key: BAAAAAAAAAAAAAAAAAAAAA==\n{key_header}"), 400, "InvalidInput"),
        (INVOKE, format!("{upgrade}Content-Length: 2\n{key_header}"), 400, "InvalidInput"),
        (INVOKE, format!("{upgrade}Transfer-Encoding: chunked\n{key_header}"), 400, "InvalidInput"),
        (INVOKE, format!("{upgrade}Origin: https://evil.example\n{key_header}"), 403, "PermissionDenied"),
        (INVOKE, format!("{upgrade}Origin: null\n{key_header}"), 403, "PermissionDenied"),
        (INVOKE, format!("{upgrade}Origin: http://g.evil.example\n{key_header}"), 403, "PermissionDenied"),
        (INVOKE, format!("{upgrade}Origin: http://g\nOrigin: http://g\n{key_header}"), 403, "PermissionDenied"),
        (INVOKE, format!("{upgrade}X-Request-Timeout: soon\n{key_header}"), 400, "InvalidInput"),
    ];
    for (path, fields, status, code) in cases {
        let request = format!("GET {path} HTTP/1.1\nHost: g\n{fields}\n").replace('\n', "\r\n");
        let refused = send_raw(gate.address(), request.as_bytes()).await.unwrap();
        let actual = (refused.status, refused.json()["error"]["code"].as_str().map(str::to_owned));
        assert_eq!(actual, (status, Some(code.to_owned())), "{fields}: {}", refused.text());
        if status == 426 {
            assert_eq!(refused.header("sec-websocket-version"), Some("13"));
        }
    }
    assert_eq!(agent_log.handshakes.lock().unwrap().len(), 0, "a refused handshake reached the agent");
    // Pages of the gateway's own origin are allowed, also with the default port written out.
    for origin in ["http://g", "https://G:443"] {
        let request =
            format!("GET {INVOKE} HTTP/1.1\nHost: g\n{upgrade}Origin: {origin}\n{key_header}\n").replace('\n', "\r\n");
        let mut stream = TcpStream::connect(gate.address()).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut head = vec![0; 2048];
        let count = tokio::io::AsyncReadExt::read(&mut stream, &mut head).await.unwrap();
        assert!(head[..count].starts_with(b"HTTP/1.1 101"), "{origin}: {}", String::from_utf8_lossy(&head[..count]));
    }
    assert_eq!(agent_log.handshake_header("origin"), None);
}

#[tokio::test]
async fn other_upgrades_are_ignored_and_the_connection_stays_http() {
    let echo = Agent::echo().await;
    let gate = gateway().agent("a", &echo).start().await;
    let key = gate.key("team-a");
    for (method, fields) in [
        ("POST", "Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n"),
        (
            "POST",
            "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n",
        ),
        ("POST", "Upgrade: TLS/1.0\r\nConnection: Upgrade\r\n"),
    ] {
        let request = format!(
            "{method} {INVOKE} HTTP/1.1\r\nHost: g\r\nX-API-Key: {key}\r\n{fields}Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{{}}"
        );
        let mut stream = TcpStream::connect(gate.address()).await.unwrap();
        for _ in 0..2 {
            stream.write_all(request.as_bytes()).await.unwrap();
            read_response(&mut stream).await.unwrap().expect_ok();
        }
    }
    for got in echo.requests() {
        for field in ["upgrade", "sec-websocket-key", "sec-websocket-version", "http2-settings"] {
            assert_eq!(got.header(field), None);
        }
    }
    let client = reqwest::Client::builder().no_proxy().http2_prior_knowledge().build().unwrap();
    let request =
        client.get(gate.url(INVOKE)).header("x-api-key", key).header("sec-websocket-key", "AAAAAAAAAAAAAAAAAAAAAA==");
    crate::support::gateway::send(request).await.expect_fault(400, "InvalidInput");
}

#[tokio::test]
async fn bytes_after_a_handshake_are_frames_and_never_another_request() {
    let (peer, agent_log) = echo_agent().await;
    let gate = start_gateway(&peer).await;
    let head = |gate: &Gateway| {
        format!("GET {INVOKE} HTTP/1.1\r\nHost: g\r\nX-API-Key: {}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n", gate.key("team-a")).into_bytes()
    };
    let mut early = head(&gate);
    early.extend(masked_frame(0x81, b"{\"early\":1}"));
    let mut stream = TcpStream::connect(gate.address()).await.unwrap();
    stream.write_all(&early).await.unwrap();
    eventually("a frame in the same packet arrives", async || agent_log.messages() == ["{\"early\":1}"]).await;
    let mut smuggled = head(&gate);
    smuggled.extend(b"GET /agents HTTP/1.1\r\nHost: g\r\n\r\n");
    let mut stream = TcpStream::connect(gate.address()).await.unwrap();
    stream.write_all(&smuggled).await.unwrap();
    let mut response = Vec::new();
    tokio::io::AsyncReadExt::read_to_end(&mut stream, &mut response).await.unwrap();
    let response = String::from_utf8_lossy(&response);
    assert_eq!(response.matches("HTTP/1.1").count(), 1, "{response}");
    assert!(response.starts_with("HTTP/1.1 101"));
}

#[tokio::test]
async fn r98_a_browser_script_may_send_its_key_as_a_subprotocol() {
    let (peer, agent_log) = echo_agent().await;
    let gate = start_gateway(&peer).await;
    let offered = format!("gatepost.key.{}, gatepost", gate.key("team-a"));
    let (mut socket, head) =
        connect_with_headers(&gate, INVOKE, &[("sec-websocket-protocol", &offered)]).await.unwrap();
    assert_eq!(head.headers()["sec-websocket-protocol"], "gatepost");
    send_text(&mut socket, "{}").await;
    assert_eq!(receive_text(&mut socket).await, "{}");
    assert_eq!(agent_log.handshake_header("sec-websocket-protocol"), None);
    let Err(Error::Http(refused)) =
        connect_with_headers(&gate, INVOKE, &[("sec-websocket-protocol", "gatepost.key.wrong, gatepost")]).await
    else {
        panic!("the handshake succeeded with a wrong key")
    };
    assert_eq!(refused.status(), 401);
}

#[tokio::test]
async fn r38_an_unreachable_agent_refuses_the_handshake() {
    let closed = ClosedPort::new();
    let agent_document = json!({"id": "a", "name": "a", "endpoint": format!("ws://{}/", closed.address), "authentication": {"type": "api_key"}});
    let gate = gateway().document(agent_document).start().await;
    let Err(Error::Http(refused)) = connect_with_headers(&gate, INVOKE, &[("x-api-key", gate.key("team-a"))]).await
    else {
        panic!("the handshake succeeded without a reachable agent")
    };
    assert_eq!(refused.status(), 503);
    let line = gate.access_log(1).await.remove(0);
    assert_eq!((&line["status"], &line["code"]), (&json!(503), &json!("AgentUnavailable")));
}

#[tokio::test]
async fn r32_messages_are_validated_and_invalid_ones_are_not_forwarded() {
    let (peer, agent_log) = echo_agent().await;
    let gate = gateway().document(document_with_schema(&peer)).start().await;
    let mut socket = connect(&gate, INVOKE).await;
    for invalid in ["{\"n\":\"one\"}", "{}", "nonsense", "{\"n\":1}\n{\"n\":\"two\"}"] {
        send_text(&mut socket, invalid).await;
        let error = receive_json(&mut socket).await;
        assert_eq!(error["error"]["code"], "InvalidInput", "{invalid}: {error}");
        for member in ["message", "type", "title", "status", "detail", "request_id"] {
            assert!(!error["error"][member].is_null(), "{member}: {error}");
        }
    }
    socket.send(Message::binary(vec![1])).await.unwrap();
    assert_eq!(receive_json(&mut socket).await["error"]["code"], "UnsupportedMediaType");
    assert_eq!(agent_log.messages(), Vec::<String>::new());
    send_text(&mut socket, "{\"n\":1}").await;
    assert_eq!(receive_text(&mut socket).await, "{\"n\":1}");
    let unchecked = "agents:\n  sources: [agents.json]\n  defaults: {websocket: {validate_messages: false}}\n";
    let gate = gateway().document(document_with_schema(&peer)).section(unchecked).start().await;
    let mut socket = connect(&gate, INVOKE).await;
    send_text(&mut socket, "nonsense").await;
    assert_eq!(receive_text(&mut socket).await, "nonsense");
}

#[tokio::test]
async fn r94_json_rpc_params_are_validated_and_errors_are_json_rpc() {
    let (peer, agent_log) = echo_agent().await;
    let section = "agents:\n  sources: [agents.json]\n  defaults: {websocket: {framing: json_rpc}}\n";
    let gate = gateway().document(document_with_schema(&peer)).section(section).start().await;
    let mut socket = connect(&gate, INVOKE).await;
    for (invalid, code) in [
        (json!({"jsonrpc": "2.0", "id": 7, "method": "count", "params": {"n": "x"}}), -32602),
        (json!({"jsonrpc": "2.0", "id": 7, "method": "other", "params": {"n": 1}}), -32601),
    ] {
        send_text(&mut socket, invalid.to_string()).await;
        let error = receive_json(&mut socket).await;
        assert_eq!(
            (&error["id"], &error["error"]["code"], &error["jsonrpc"]),
            (&json!(7), &json!(code), &json!("2.0"))
        );
        assert!(error["error"]["data"]["title"].is_string(), "{error}");
    }
    send_text(&mut socket, "{\"n\":1}").await;
    assert_eq!(receive_json(&mut socket).await["error"]["code"], "InvalidInput");
    let valid = json!({"jsonrpc": "2.0", "id": 7, "method": "count", "params": {"n": 1}}).to_string();
    send_text(&mut socket, valid.clone()).await;
    assert_eq!(receive_text(&mut socket).await, valid);
    assert_eq!(agent_log.messages(), [valid]);
}

#[tokio::test]
async fn r41_an_error_of_the_agent_is_replaced_by_the_gateways_error() {
    let leak = "{\"error\":{\"code\":\"Boom\",\"message\":\"Traceback at /srv/app\"}}";
    let (peer, _) = responding_agent(vec![Message::text(leak), Message::text("{\"ok\":1}")], None).await;
    let gate = start_gateway(&peer).await;
    let mut socket = connect(&gate, INVOKE).await;
    send_text(&mut socket, "{}").await;
    let message = receive_text(&mut socket).await;
    assert!(message.contains("AgentError") && !message.contains("Traceback"), "{message}");
    assert_eq!(receive_text(&mut socket).await, "{\"ok\":1}");
}

#[tokio::test]
async fn frames_that_violate_the_protocol_close_the_connection_and_never_reach_the_agent() {
    let (peer, agent_log) = echo_agent().await;
    let section = "websocket: {max_message_size: 4KiB}\n";
    let gate = gateway().document(websocket_document(&peer, "a")).section(section).start().await;
    let unmasked = vec![0x81, 2, b'h', b'i'];
    let mut fragments = masked_frame(0x01, &[b'x'; 3000]);
    fragments.extend(masked_frame(0x80, &[b'x'; 3000]));
    let mut huge = vec![0x81, 0x80 | 127];
    huge.extend(u64::MAX.to_be_bytes());
    huge.extend([0; 4]);
    let mut interleaved = masked_frame(0x01, b"a");
    interleaved.extend(masked_frame(0x81, b"b"));
    let pings = masked_frame(0x89, b"x").repeat(200);
    for (case, bytes, code) in [
        ("a reserved bit", masked_frame(0xc1, b"hi"), 1002),
        ("a reserved opcode", masked_frame(0x83, b"hi"), 1002),
        ("a reserved control opcode", masked_frame(0x8b, b""), 1002),
        ("an unmasked frame", unmasked, 1002),
        ("a continuation without a start", masked_frame(0x80, b"hi"), 1002),
        ("a message within a message", interleaved, 1002),
        ("a long control frame", masked_frame(0x89, &[0; 126]), 1002),
        ("a fragmented control frame", masked_frame(0x09, b"hi"), 1002),
        ("invalid UTF-8", masked_frame(0x81, &[0xc3, 0x28]), 1007),
        ("a large message", masked_frame(0x81, &[b'x'; 5000]), 1009),
        ("a message too large in fragments", fragments, 1009),
        ("a length of 2^64 - 1", huge, 1009),
        ("too many pings", pings, 1008),
    ] {
        let mut stream =
            connect_with_headers(&gate, INVOKE, &[("x-api-key", gate.key("team-a"))]).await.unwrap().0.into_inner();
        stream.write_all(&bytes).await.unwrap();
        assert_eq!(read_close_code(&mut stream).await, Some(code), "{case}");
    }
    assert_eq!(agent_log.messages(), Vec::<String>::new());
    eventually("all connections to the agent end", async || agent_log.close_codes().len() == 13).await;
    let lines = gate.access_log(13).await;
    assert!(lines.iter().all(|line| line["status"] == 101 && line["code"] != "ok"), "{lines:?}");
}

#[tokio::test]
async fn the_close_code_of_the_agent_reaches_the_caller_or_becomes_an_error() {
    for (code, caller_code, error) in [
        (Some(1000), 1000, false),
        (Some(1001), 1001, false),
        (Some(4999), 4999, false),
        (Some(1011), 1011, true),
        (Some(1008), 1011, true),
    ] {
        let (peer, _) = responding_agent(Vec::new(), code).await;
        let gate = start_gateway(&peer).await;
        let mut socket = connect(&gate, INVOKE).await;
        send_text(&mut socket, "{}").await;
        if error {
            let error = receive_text(&mut socket).await;
            assert!(error.contains("AgentError") && !error.contains("10.0.0.9"), "{error}");
        }
        assert_eq!(receive_close_code(&mut socket).await, Some(caller_code), "{code:?}");
    }
    let (peer, _) = websocket_agent(|mut socket, agent_log| async move {
        record_next(&mut socket, &agent_log).await;
        socket.get_ref().set_zero_linger().unwrap();
    })
    .await;
    let gate = start_gateway(&peer).await;
    let mut socket = connect(&gate, INVOKE).await;
    send_text(&mut socket, "{}").await;
    assert_eq!(receive_json(&mut socket).await["error"]["code"], "AgentError");
    assert_eq!(receive_close_code(&mut socket).await, Some(1011));
    let line = gate.access_log(1).await.remove(0);
    assert_eq!((&line["code"], &line["aborted"]), (&json!("AgentError"), &json!("broken off")));
}

#[tokio::test]
async fn a_caller_that_resets_the_connection_ends_the_connection_to_the_agent() {
    let (peer, agent_log) = echo_agent().await;
    let gate = start_gateway(&peer).await;
    let socket = connect(&gate, INVOKE).await;
    let stream = socket.into_inner();
    stream.set_zero_linger().unwrap();
    drop(stream);
    eventually("the connection to the agent ends", async || agent_log.close_codes() == ["1001"]).await;
    let line = gate.access_log(1).await.remove(0);
    assert_eq!(line["aborted"], "caller gone", "{line}");
}

#[tokio::test]
async fn a_connection_without_messages_or_pongs_is_closed() {
    let (peer, agent_log) = echo_agent().await;
    let idle = "websocket: {idle_timeout: 300ms}\n";
    let gate = gateway().document(websocket_document(&peer, "a")).section(idle).start().await;
    let mut socket = connect(&gate, INVOKE).await;
    assert_eq!(receive_close_code(&mut socket).await, Some(1001));
    eventually("the connection to the agent ends", async || agent_log.close_codes().len() == 1).await;
    let pings = "websocket: {ping_interval: 100ms, pong_timeout: 1500ms}\n";
    let gate = gateway().document(websocket_document(&peer, "a")).section(pings).start().await;
    // A client that reads answers pings, which keeps its connection open.
    let mut alive = connect(&gate, INVOKE).await;
    let reads = tokio::spawn(async move { while let Some(Ok(Message::Ping(_))) = alive.next().await {} });
    let mut silent = connect(&gate, INVOKE).await.into_inner();
    assert_eq!(read_close_code(&mut silent).await, Some(1001));
    assert!(!reads.is_finished(), "a client that answers pings was disconnected");
    reads.abort();
}

#[tokio::test]
async fn an_agent_that_answers_no_ping_is_disconnected() {
    let (peer, _) = websocket_agent(|socket, _| async move {
        let stream = socket.into_inner();
        let mut rest = [0; 1024];
        let mut stream = stream;
        while tokio::io::AsyncReadExt::read(&mut stream, &mut rest).await.is_ok_and(|count| count > 0) {}
    })
    .await;
    let section =
        "agents:\n  sources: [agents.json]\n  defaults: {websocket: {ping_interval: 100ms, pong_timeout: 200ms}}\n";
    let gate = gateway().document(websocket_document(&peer, "a")).section(section).start().await;
    let mut socket = connect(&gate, INVOKE).await;
    assert_eq!(receive_json(&mut socket).await["error"]["code"], "Timeout");
    assert_eq!(receive_close_code(&mut socket).await, Some(1011));
}

#[tokio::test]
async fn each_message_counts_as_a_call_and_a_connection_holds_its_permit() {
    let (peer, agent_log) = echo_agent().await;
    let section = "limits:\n  per_caller: 3/min\n  concurrency: {max_per_agent: 1, max_queued: 0}\n";
    let gate = gateway().document(websocket_document(&peer, "a")).section(section).start().await;
    let mut socket = connect(&gate, INVOKE).await;
    for _ in 0..2 {
        send_text(&mut socket, "{}").await;
        assert_eq!(receive_text(&mut socket).await, "{}");
    }
    send_text(&mut socket, "{}").await;
    let refused = receive_json(&mut socket).await;
    assert_eq!(refused["error"]["code"], "RateLimited");
    assert!(refused["error"]["retry_after"].is_number(), "{refused}");
    assert_eq!(agent_log.messages().len(), 2);
    let other = gateway()
        .document(websocket_document(&peer, "a"))
        .section("limits:\n  concurrency: {max_per_agent: 1, max_queued: 0}\n");
    let gate = other.start().await;
    let mut socket = connect(&gate, INVOKE).await;
    let Err(Error::Http(refused)) = connect_with_headers(&gate, INVOKE, &[("x-api-key", gate.key("team-a"))]).await
    else {
        panic!("two connections share one permit")
    };
    assert_eq!(refused.status(), 503);
    socket.close(None).await.unwrap();
    eventually("the permit is free again", async || {
        connect_with_headers(&gate, INVOKE, &[("x-api-key", gate.key("team-a"))]).await.is_ok()
    })
    .await;
}

#[tokio::test]
async fn a_revoked_key_ends_the_connections_opened_with_it() {
    let (peer, agent_log) = echo_agent().await;
    let gate = start_gateway(&peer).await;
    let mut socket = connect(&gate, INVOKE).await;
    send_text(&mut socket, "{}").await;
    assert_eq!(receive_text(&mut socket).await, "{}");
    gate.write_file("keys.jsonl", "");
    let mut message = String::new();
    eventually("the caller is refused", async || {
        if message.contains("Unauthorized") {
            return true;
        }
        send_text(&mut socket, "{}").await;
        message = receive_text(&mut socket).await;
        message.contains("Unauthorized")
    })
    .await;
    assert_eq!(receive_close_code(&mut socket).await, Some(1008));
    eventually("the connection to the agent ends", async || agent_log.close_codes().len() == 1).await;
}

#[tokio::test]
async fn a_caller_that_does_not_read_blocks_its_agent() {
    let sent = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&sent);
    let (peer, _) = websocket_agent(move |mut socket, agent_log| {
        let count = Arc::clone(&count);
        async move {
            record_next(&mut socket, &agent_log).await;
            while count.load(SeqCst) < 200 << 20 {
                if socket.send(Message::text("x".repeat(64 << 10))).await.is_err() {
                    return;
                }
                count.fetch_add(64 << 10, SeqCst);
            }
        }
    })
    .await;
    let gate = start_gateway(&peer).await;
    let mut socket = connect(&gate, INVOKE).await;
    send_text(&mut socket, "{}").await;
    let buffered = settled("the agent cannot send more", || sent.load(SeqCst)).await;
    assert!(buffered < 60 << 20, "{buffered} bytes were buffered");
    for _ in 0..20 {
        assert_eq!(receive_text(&mut socket).await.len(), 64 << 10);
    }
}

#[tokio::test]
async fn on_sigterm_connections_are_closed_with_1001_and_the_process_exits() {
    let (peer, agent_log) = echo_agent().await;
    let http = Agent::echo().await;
    let mut gate = gateway().document(websocket_document(&peer, "a")).agent("h", &http).start().await;
    let (mut one, mut two) = (connect(&gate, INVOKE).await, connect(&gate, "/agents/h/invoke").await);
    gate.send_signal(rustix::process::Signal::TERM);
    assert_eq!(receive_close_code(&mut one).await, Some(1001));
    assert_eq!(receive_close_code(&mut two).await, Some(1001));
    drop((one, two));
    assert!(gate.wait_for_exit().await.success());
    eventually("the agent receives close code 1001", async || agent_log.close_codes() == ["1001"]).await;
}

fn gateway_for_http_agent(agent: &Agent) -> GatewayBuilder {
    gateway().agent("a", agent)
}

#[tokio::test]
async fn r80_each_message_is_a_call_to_an_agent_over_http() {
    let agent = Agent::echo().await;
    let gate = gateway_for_http_agent(&agent).start().await;
    let mut socket = connect(&gate, INVOKE).await;
    for n in 0..3 {
        send_text(&mut socket, json!({ "n": n }).to_string()).await;
    }
    for n in 0..3 {
        assert_eq!(receive_json(&mut socket).await, json!({"echo": {"n": n}}));
    }
    send_text(&mut socket, "nonsense {").await;
    assert_eq!(receive_json(&mut socket).await["error"]["code"], "InvalidInput");
    socket.send(Message::binary(vec![1])).await.unwrap();
    assert_eq!(receive_json(&mut socket).await["error"]["code"], "UnsupportedMediaType");
    send_text(&mut socket, json!({"jsonrpc": "2.0", "id": "x", "method": "invoke", "params": {"n": 9}}).to_string())
        .await;
    assert_eq!(receive_json(&mut socket).await, json!({"jsonrpc": "2.0", "id": "x", "result": {"echo": {"n": 9}}}));
    // A request whose method is neither `invoke` nor an operation reaches the agent as it is.
    send_text(&mut socket, json!({"jsonrpc": "2.0", "id": 1, "method": "message/send"}).to_string()).await;
    let forwarded = receive_json(&mut socket).await;
    assert_eq!(forwarded["result"]["echo"]["method"], "message/send", "{forwarded}");
    socket.close(None).await.unwrap();
    assert_eq!(receive_close_code(&mut socket).await, Some(1005));
    assert_eq!(agent.call_count(), 5);
    assert_eq!(agent.requests()[0].header("x-api-key"), None);
    // One access-log entry for each call, and one for the connection.
    let lines = gate.access_log(7).await;
    assert_eq!(lines.iter().filter(|line| line["status"] == 101).count(), 1, "{lines:?}");
}

#[tokio::test]
async fn r40_r41_errors_of_agents_over_http_are_messages() {
    let cases = [
        ("boom", http_response("500 X", "application/json", "{\"error\":\"Traceback /srv\"}"), "AgentError"),
        ("down", http_response("503 X", "text/plain", ""), "AgentUnavailable"),
        ("gone", vec![Step::Close], "AgentError"),
        ("mute", vec![Step::Hang], "Timeout"),
        ("hidden", json_response(&json!({"error": {"code": "X", "message": "Traceback /srv"}})), "AgentError"),
        ("stated", json_response(&json!({"success": false, "message": "Traceback /srv"})), "AgentError"),
        ("beside-data", json_response(&json!({"error": "Traceback /srv", "data": {"n": 1}})), "AgentError"),
    ];
    let (mut build, mut agents) = (gateway(), Vec::new());
    for (id, steps, _) in &cases {
        let agent = Agent::with_steps(steps.clone()).await;
        build = build.agent(id, &agent);
        agents.push(agent);
    }
    let section = "agents:\n  sources: [agents.json]\n  defaults: {timeouts: {first_byte: 1500ms}}\n";
    let gate = build.section(section).start().await;
    for (id, _, code) in cases {
        let mut socket = connect(&gate, &format!("/agents/{id}/invoke")).await;
        send_text(&mut socket, "{}").await;
        let message = receive_text(&mut socket).await;
        assert!(message.contains(&format!("\"code\":\"{code}\"")) && !message.contains("Traceback"), "{id}: {message}");
        send_text(&mut socket, "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"invoke\"}").await;
        let message = receive_json(&mut socket).await;
        assert_eq!((&message["id"], &message["error"]["data"]["code"]), (&json!(1), &json!(code)), "{id}");
    }
}

#[tokio::test]
async fn r43_r80_each_part_of_a_streamed_answer_is_a_message() {
    let events = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n: hello\n\nid: 1\nevent: e\ndata: {\"n\":1}\r\n\r\ndata: two\ndata: lines\n\n";
    let lines = "HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\nConnection: close\r\n\r\n{\"n\":1}\n\n{\"n\":2}\r\n{\"n\":3}";
    let latch_to_close = latch();
    let one = Agent::with_steps(vec![
        write(events),
        Step::WaitForLatch(Arc::clone(&latch_to_close)),
        write("data: 3\n\n"),
        Step::Close,
    ])
    .await;
    let two = Agent::with_steps(vec![write(lines), Step::Close]).await;
    let cut = Agent::with_steps(vec![
        write("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n9\r\ndata: 1\n\n\r\n"),
        Step::Close,
    ])
    .await;
    let section = "websocket: {end_marker: '[DONE]'}\n";
    let gate = gateway().agent("a", &one).agent("b", &two).agent("c", &cut).section(section).start().await;
    let mut socket = connect(&gate, INVOKE).await;
    send_text(&mut socket, "{}").await;
    assert_eq!(receive_text(&mut socket).await, "{\"n\":1}");
    assert_eq!(receive_text(&mut socket).await, "two\nlines");
    latch_to_close.close();
    assert_eq!(receive_text(&mut socket).await, "3");
    assert_eq!(receive_text(&mut socket).await, "[DONE]");
    assert!(one.requests()[0].header("accept").is_some_and(|accept| accept.contains("text/event-stream")));
    let mut socket = connect(&gate, "/agents/b/invoke").await;
    send_text(&mut socket, "{\"jsonrpc\":\"2.0\",\"id\":5,\"method\":\"invoke\"}").await;
    for n in 1..=3 {
        assert_eq!(receive_json(&mut socket).await["params"], json!({"id": 5, "data": {"n": n}}));
    }
    assert_eq!(receive_json(&mut socket).await, json!({"jsonrpc": "2.0", "id": 5, "result": null}));
    let mut socket = connect(&gate, "/agents/c/invoke").await;
    send_text(&mut socket, "{}").await;
    assert_eq!(receive_text(&mut socket).await, "1");
    assert_eq!(receive_json(&mut socket).await["error"]["code"], "AgentError");
}

#[tokio::test]
async fn a_caller_that_disconnects_ends_the_call_in_flight() {
    let agent = Agent::with_steps(vec![Step::Hang]).await;
    let gate = gateway_for_http_agent(&agent).start().await;
    let mut socket = connect(&gate, INVOKE).await;
    send_text(&mut socket, "{}").await;
    eventually("the agent receives the call", async || agent.call_count() == 1).await;
    drop(socket);
    eventually("the connection to the agent ends", async || agent.aborted_responses() == 1).await;
    eventually("there is one entry for the call and one for the connection", async || {
        gate.access_log(2).await.len() == 2
    })
    .await;
}

#[tokio::test]
async fn idle_connections_hold_no_permit_of_an_agent_over_http() {
    let agent = Agent::echo().await;
    let gate = gateway_for_http_agent(&agent)
        .section("limits:\n  concurrency: {max_per_agent: 1, max_queued: 0}\n")
        .start()
        .await;
    let (mut one, mut two) = (connect(&gate, INVOKE).await, connect(&gate, INVOKE).await);
    for socket in [&mut one, &mut two] {
        send_text(socket, "{}").await;
        assert_eq!(receive_json(socket).await, json!({"echo": {}}));
    }
}

#[tokio::test]
async fn r48_a_method_that_is_a_path_calls_the_agent_of_the_websocket_only() {
    let agent = Agent::echo().await;
    let mut document = agent.document("a");
    document["operations"] = json!([{"name": "one"}, {"name": "two"}]);
    document["version"] = json!("1.0.0");
    let gate = gateway().document(document).document(agent.document("b")).start().await;
    let mut socket = connect(&gate, "/agents/a/one").await;
    let request =
        |id: u32, method: &str| json!({"jsonrpc": "2.0", "id": id, "method": method, "params": {"n": id}}).to_string();
    for (id, method) in
        [(1, "agents/a/one"), (2, "agents/a/two"), (3, "agents/a/invoke"), (4, "agents/a/agent.json/a/two")]
    {
        send_text(&mut socket, request(id, method)).await;
        let answer = receive_json(&mut socket).await;
        assert_eq!(answer, json!({"jsonrpc": "2.0", "id": id, "result": {"echo": {"n": id}}}), "{method}");
    }
    for method in ["agents/b/invoke", "agents/unknown/invoke", "agents/a@1.0.0/one", "agents/b/one"] {
        send_text(&mut socket, request(9, method)).await;
        let answer = receive_json(&mut socket).await;
        assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!(9), &json!(-32602)), "{method}: {answer}");
    }
    // What is no path of a call is input, because an agent may speak JSON-RPC itself.
    for method in ["agents/a", "agents", "tasks/agents/a/invoke", "agents/tasks/create", "agents/card/get"] {
        send_text(&mut socket, request(10, method)).await;
        let answer = receive_json(&mut socket).await;
        assert_eq!(answer["result"]["echo"]["method"], method, "{answer}");
    }
    let operations: Vec<_> =
        agent.requests().iter().take(4).map(|request| request.header("x-operation").map(str::to_owned)).collect();
    assert_eq!(operations, ["one", "two", "one", "two"].map(|name| Some(name.to_owned())));
}

#[tokio::test]
async fn r48_a_refused_path_of_another_agent_is_logged_and_counts_for_the_rate_of_the_caller() {
    let agent = Agent::echo().await;
    let gate = gateway().agent("a", &agent).agent("b", &agent).section("limits:\n  per_caller: 3/h\n").start().await;
    // The handshake counts as one request.
    let mut socket = connect(&gate, INVOKE).await;
    for code in ["InvalidInput", "InvalidInput", "RateLimited"] {
        send_text(&mut socket, json!({"jsonrpc": "2.0", "id": 1, "method": "agents/b/invoke"}).to_string()).await;
        assert_eq!(receive_json(&mut socket).await["error"]["data"]["code"], code);
    }
    socket.close(None).await.unwrap();
    let lines = gate.access_log(4).await;
    let refused = lines.iter().filter(|line| line["code"] == "InvalidInput" && line["agent"] == "a").count();
    assert_eq!((refused, agent.call_count()), (2, 0), "{lines:?}");
}

#[tokio::test]
async fn r48_a_method_that_names_an_agent_which_the_caller_may_not_discover_reaches_the_agent() {
    let agent = Agent::echo().await;
    let gate = gateway()
        .agent("a", &agent)
        .agent("secret", &agent)
        .access("access:\n  grants:\n    - {callers: ['key:team-a'], agents: [a]}\n")
        .start()
        .await;
    let mut socket = connect(&gate, INVOKE).await;
    for name in ["secret", "missing"] {
        let method = format!("agents/{name}/status");
        send_text(&mut socket, json!({"jsonrpc": "2.0", "id": 1, "method": method}).to_string()).await;
        let answer = receive_json(&mut socket).await;
        assert_eq!(answer["result"]["echo"]["method"], method, "{answer}");
    }
}

#[tokio::test]
async fn without_a_relay_each_message_to_a_websocket_agent_is_a_call() {
    let (peer, agent_log) = echo_agent().await;
    let rule = "agents:\n  sources: [agents.json]\n  rules:\n    - {agents: ['*'], settings: {websocket: {framing: bare, relay: false}}}\n";
    let gate = gateway().document(document_with_schema(&peer)).section(rule).start().await;
    let mut socket = connect(&gate, INVOKE).await;
    for id in [1, 2] {
        send_text(&mut socket, json!({"jsonrpc": "2.0", "id": id, "method": "count", "params": {"n": id}}).to_string())
            .await;
        assert_eq!(receive_json(&mut socket).await, json!({"jsonrpc": "2.0", "id": id, "result": {"n": id}}));
    }
    send_text(&mut socket, json!({"jsonrpc": "2.0", "id": 3, "method": "count", "params": {"n": "x"}}).to_string())
        .await;
    assert_eq!(receive_json(&mut socket).await["error"]["code"], -32602);
    // The agent received inputs, each over a connection of its own.
    assert_eq!(agent_log.messages(), ["{\"n\":1}", "{\"n\":2}"]);
    assert_eq!(agent_log.handshakes.lock().unwrap().len(), 2);
    let lines = gate.access_log(3).await;
    assert!(lines.iter().all(|line| line["agent"] == "a"), "{lines:?}");
}
