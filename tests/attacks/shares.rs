//! One caller, or one address, that wants everything that all callers share. The bounds are the defaults, unless the
//! maximum that is shared is smaller, so that the test needs fewer connections.

use super::resident_bytes;
use crate::support::{
    agent::{Agent, ReceivedRequest, Step, json_response, latch, write},
    eventually, eventually_within,
    gateway::{Gateway, GatewayBuilder, gateway, send},
    gateway_response::GatewayResponse,
    websocket::{connect_with_headers, receive_close_code, receive_text, send_text},
};
use futures_util::SinkExt;
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpSocket, TcpStream},
};
use tokio_tungstenite::tungstenite::{self, Message};

/// The longest time of an honest call while the attack runs.
const MAX_DELAY: Duration = Duration::from_secs(2);

/// A gateway with the honest caller `team-a` and the hostile caller `mallory`.
fn gateway_with_mallory() -> GatewayBuilder {
    gateway().caller("mallory", &[])
}

/// An agent that answers the calls whose input is not `{"wait": true}`.
async fn agent_that_waits_when_asked() -> Agent {
    let never = latch();
    Agent::scripted(move |request| {
        let answer = json_response(&json!({"answer": 1}));
        if waits(request) { [vec![Step::WaitForLatch(never.clone())], answer].concat() } else { answer }
    })
    .await
}

fn waits(request: &ReceivedRequest) -> bool {
    serde_json::from_slice::<Value>(&request.body).is_ok_and(|input| input["wait"] == true)
}

fn head(gate: &Gateway, agent: &str, media_type: &str, length: usize) -> String {
    format!(
        "POST /agents/{agent}/invoke HTTP/1.1\r\nhost: x\r\nx-api-key: {}\r\ncontent-type: {media_type}\r\n\
         content-length: {length}\r\n\r\n",
        gate.key("mallory")
    )
}

async fn open_with(gate: &Gateway, bytes: &[u8]) -> TcpStream {
    let mut connection = TcpStream::connect(gate.address()).await.unwrap();
    connection.write_all(bytes).await.unwrap();
    connection
}

fn call_of_mallory(gate: &Gateway, agent: &str, input: &Value) -> reqwest::RequestBuilder {
    gate.request("POST", &format!("/agents/{agent}/invoke")).header("x-api-key", gate.key("mallory")).json(input)
}

/// Makes a call of the honest caller, which must succeed within [`MAX_DELAY`].
async fn expect_honest_call(gate: &Gateway, agent: &str) {
    let started_at = Instant::now();
    gate.invoke(agent, &json!({"text": "hi"})).await.expect_ok();
    assert!(started_at.elapsed() < MAX_DELAY, "{:?}", started_at.elapsed());
}

/// Sends requests at once, and counts the statuses of those that end within `limit`.
async fn statuses_within(limit: Duration, requests: Vec<reqwest::RequestBuilder>) -> BTreeMap<u16, usize> {
    let count = requests.len();
    let (sender, mut statuses) = tokio::sync::mpsc::channel(count);
    for request in requests {
        let sender = sender.clone();
        tokio::spawn(async move {
            let status = request.send().await.map_or(0, |response| response.status().as_u16());
            let _ = sender.send(status).await;
        });
    }
    drop(sender);
    let mut counts = BTreeMap::new();
    let deadline = tokio::time::Instant::now() + limit;
    while let Ok(Some(status)) = tokio::time::timeout_at(deadline, statuses.recv()).await {
        *counts.entry(status).or_default() += 1;
    }
    counts
}

#[track_caller]
fn expect_share_used_up(response: &GatewayResponse) {
    let error = response.expect_fault(429, "RateLimited");
    assert!(error["message"].as_str().unwrap().contains("limits.max_share"), "{error}");
    assert!(response.header("retry-after").is_some());
}

#[tokio::test]
async fn r5_bodies_at_a_byte_in_10_s_hold_no_slot_of_an_agent() {
    let echo = Agent::echo().await;
    let (mut checked, unchecked) = (echo.document("checked"), echo.document("unchecked"));
    checked["inputs"] = json!({"type": "object"});
    let rules = "agents:\n  sources: [agents.json]\n  rules:\n    - {agents: ['*'], max_concurrency: 4}\n";
    let gate = gateway_with_mallory().document(checked).document(unchecked).section(rules).start().await;
    let mut connections = Vec::new();
    for _ in 0..4 {
        // Checked bodies; bodies that pass unchecked, without a byte and with their first byte.
        connections
            .push(open_with(&gate, format!("{}{{", head(&gate, "checked", "application/json", 900)).as_bytes()).await);
        connections.push(open_with(&gate, head(&gate, "unchecked", "text/plain", 900).as_bytes()).await);
        connections
            .push(open_with(&gate, format!("{}x", head(&gate, "unchecked", "text/plain", 900)).as_bytes()).await);
    }
    eventually("the gateway reads every body", async || {
        gate.metric("gatepost_calls_in_flight").await.is_some_and(|calls| calls >= 10.0)
    })
    .await;
    for agent in ["checked", "unchecked"] {
        for _ in 0..5 {
            expect_honest_call(&gate, agent).await;
        }
    }
    // After 10 s the slow bodies are refused, and their connections closed.
    let (started_at, mut slow) = (Instant::now(), 0);
    for mut connection in connections {
        let mut response = Vec::new();
        let read = connection.read_to_end(&mut response);
        tokio::time::timeout(Duration::from_secs(20), read).await.expect("the connection is closed").unwrap();
        let response = String::from_utf8_lossy(&response);
        let is_refused = response.starts_with("HTTP/1.1 408 ") && response.contains("connections.min_body_rate");
        // Beyond two of four, a call with its first byte has used up the share of its caller.
        assert!(is_refused || response.starts_with("HTTP/1.1 429 "), "{response}");
        slow += usize::from(is_refused);
    }
    // The bodies that hold no slot, at least: four that are checked, and four without a byte.
    assert!(slow >= 8, "{slow}");
    println!("the last slow body ended after {:?}", started_at.elapsed());
}

#[tokio::test]
async fn r5_the_slow_calls_of_one_caller_leave_slots_to_others() {
    let agent = agent_that_waits_when_asked().await;
    let gate = gateway_with_mallory().agent("slow", &agent).start().await;
    let wait = json!({"wait": true});
    let calls = (0..1_000).map(|_| call_of_mallory(&gate, "slow", &wait)).collect();
    let attack = tokio::spawn(statuses_within(Duration::from_secs(8), calls));
    eventually("the caller has its share", async || {
        gate.metric("gatepost_limited_requests_total{limit=\"share\"}").await.is_some_and(|calls| calls > 0.0)
    })
    .await;
    for _ in 0..10 {
        expect_honest_call(&gate, "slow").await;
    }
    let statuses = attack.await.unwrap();
    println!("1000 slow calls: {statuses:?}");
    // The agent has 1000 slots: half of the calls hold one, the others are refused.
    assert_eq!(statuses, BTreeMap::from([(429, 500)]));
    expect_honest_call(&gate, "slow").await;
}

#[tokio::test]
async fn r5_a_caller_that_does_not_read_its_answers_leaves_slots_to_others() {
    let agent = Agent::scripted(|request| {
        if !waits(request) {
            return json_response(&json!({"answer": 1}));
        }
        let head = write("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n");
        vec![head, Step::Repeat(vec![write(vec![b'x'; 64 << 10])])]
    })
    .await;
    let rules = "agents:\n  sources: [agents.json]\n  rules:\n    - {agents: ['*'], max_concurrency: 4}\n";
    let build = gateway_with_mallory().agent("stream", &agent).section(rules);
    let gate = build.section("connections: {body_idle_timeout: 2s}\n").start().await;
    let input = r#"{"wait":true}"#;
    let mut connections = Vec::new();
    for _ in 0..4 {
        let request = format!("{}{input}", head(&gate, "stream", "application/json", input.len()));
        connections.push(open_with(&gate, request.as_bytes()).await);
    }
    eventually("two of the calls are refused", async || {
        gate.metric("gatepost_limited_requests_total{limit=\"share\"}").await == Some(2.0)
    })
    .await;
    for _ in 0..5 {
        expect_honest_call(&gate, "stream").await;
    }
    // A write that waits for too long ends its call.
    eventually("the calls end", async || gate.metric("gatepost_calls_in_flight").await == Some(0.0)).await;
    drop(connections);
}

#[tokio::test]
async fn r5_the_tasks_of_one_caller_leave_tasks_to_others() {
    let agent = agent_that_waits_when_asked().await;
    let tasks = "tasks: {sqlite_file: tasks.db}\n";
    // Two agents, so that the share of tasks is used up before that of an agent.
    let gate = gateway_with_mallory().agent("slow", &agent).agent("slower", &agent).section(tasks).start().await;
    let start = |agent| call_of_mallory(&gate, agent, &json!({"wait": true})).header("prefer", "respond-async");
    let calls = (0..1_000).map(|at| start(if at % 2 == 0 { "slow" } else { "slower" })).collect();
    let statuses = statuses_within(Duration::from_secs(20), calls).await;
    println!("1000 tasks: {statuses:?}");
    assert_eq!(statuses, BTreeMap::from([(202, 500), (429, 500)]));
    expect_share_used_up(&send(start("slow")).await);
    let path = "/agents/slow/invoke";
    let honest = send(gate.post(path).header("prefer", "respond-async, wait=5").json(&json!({"text": "hi"}))).await;
    assert_eq!((honest.status, honest.json()), (200, json!({"answer": 1})));
    expect_honest_call(&gate, "slow").await;
}

#[tokio::test]
async fn r45_the_idempotency_keys_of_one_caller_do_not_make_a_payment_of_another_run_twice() {
    let agent = Agent::echo().await;
    let keys = "idempotency: {max_keys: 1000}\n";
    let gate = gateway_with_mallory().agent("bank", &agent).section(keys).start().await;
    let payment = || gate.post("/agents/bank/invoke").header("idempotency-key", "payment").json(&json!({"pay": 1}));
    send(payment()).await.expect_ok();
    let flood = |from: usize| {
        (from..from + 200)
            .map(|at| call_of_mallory(&gate, "bank", &json!({})).header("idempotency-key", format!("k{at}")))
            .collect()
    };
    for batch in 0..6 {
        let statuses = statuses_within(Duration::from_secs(10), flood(200 * batch)).await;
        assert_eq!(statuses, BTreeMap::from([(200, 200)]));
    }
    let repeated = send(payment()).await;
    repeated.expect_ok();
    assert_eq!(repeated.header("idempotent-replayed"), Some("true"));
    let payments = agent.requests().iter().filter(|request| request.json() == json!({"pay": 1})).count();
    assert_eq!(payments, 1);
}

async fn connect_from(address: &str, gate: &Gateway) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(format!("{address}:0").parse().unwrap()).unwrap();
    socket.connect(gate.address()).await.unwrap()
}

#[tokio::test]
async fn r5_the_connections_of_one_address_leave_connections_to_others() {
    let agent = Agent::echo().await;
    let gate =
        gateway_with_mallory().agent("echo", &agent).section("connections: {max_connections: 100}\n").start().await;
    let mut connections = Vec::new();
    for _ in 0..120 {
        connections.push(connect_from("127.0.0.9", &gate).await);
    }
    eventually("the connections beyond the share are closed", async || {
        gate.metric("gatepost_connections_total{result=\"refused_address\"}").await == Some(70.0)
    })
    .await;
    assert_eq!(gate.metric("gatepost_connections_open").await, Some(50.0));
    expect_honest_call(&gate, "echo").await;
    // A closed connection makes room for one of the same address.
    drop(connections);
    eventually("the connections are closed", async || {
        gate.metric("gatepost_connections_open").await.is_some_and(|open| open < 50.0)
    })
    .await;
    let mut again = connect_from("127.0.0.9", &gate).await;
    again.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await.unwrap();
    let mut response = String::new();
    again.read_to_string(&mut response).await.unwrap();
    assert!(response.starts_with("HTTP/1.1 4"), "{response}");
}

#[tokio::test]
async fn r5_the_websockets_of_one_caller_leave_websockets_to_others() {
    let agent = Agent::echo().await;
    let gate = gateway_with_mallory().agent("echo", &agent).section("websocket: {max_connections: 10}\n").start().await;
    let open = async |caller: &str| {
        let headers = [("x-api-key", gate.key(caller))];
        connect_with_headers(&gate, "/agents/echo/invoke", &headers).await.map(|(socket, _)| socket)
    };
    let mut sockets = Vec::new();
    for _ in 0..5 {
        sockets.push(open("mallory").await.unwrap());
    }
    let refusal = match open("mallory").await.unwrap_err() {
        tungstenite::Error::Http(response) => response,
        error => panic!("{error}"),
    };
    let body = String::from_utf8_lossy(refusal.body().as_deref().unwrap()).into_owned();
    assert!(refusal.status() == 429 && body.contains("limits.max_share"), "{body}");
    assert!(refusal.headers().contains_key("retry-after"));
    for _ in 0..5 {
        sockets.push(open("team-a").await.unwrap());
    }
    // A closed WebSocket makes room for one of the same caller.
    drop(sockets);
    eventually("a closed WebSocket makes room", async || open("mallory").await.is_ok()).await;
}

#[tokio::test]
async fn r5_a_websocket_message_beyond_the_memory_of_its_caller_closes_its_connection_only() {
    let agent = Agent::echo().await;
    let limits = "limits: {max_buffered_bodies: 1MiB}\n";
    let gate = gateway_with_mallory().agent("echo", &agent).section(limits).start().await;
    let open = async |caller: &str| {
        let headers = [("x-api-key", gate.key(caller))];
        connect_with_headers(&gate, "/agents/echo/invoke", &headers).await.unwrap().0
    };
    let message = |length: usize| json!({"text": "x".repeat(length)}).to_string();
    let (mut hostile, mut honest) = (open("mallory").await, open("team-a").await);
    // What a message used is returned once it is handled: these are longer together than the share.
    for _ in 0..8 {
        send_text(&mut hostile, message(200_000)).await;
        assert!(receive_text(&mut hostile).await.starts_with(r#"{"echo":"#));
    }
    // The connection may be closed before the whole message is sent.
    let _ = hostile.send(Message::text(message(700_000))).await;
    let code = receive_close_code(&mut hostile).await;
    assert!(matches!(code, Some(1013) | None), "{code:?}");
    assert_eq!(gate.metric("gatepost_limited_requests_total{limit=\"bodies\"}").await, Some(1.0));
    send_text(&mut honest, message(200_000)).await;
    assert!(receive_text(&mut honest).await.starts_with(r#"{"echo":"#));
    drop(hostile);
    let log = gate.access_log(10).await;
    assert!(log.iter().any(|entry| entry["code"] == "RateLimited" && entry["caller"] == "key:mallory"), "{log:?}");
}

#[tokio::test]
async fn r5_the_bodies_of_one_caller_leave_memory_to_others() {
    const SENT: usize = 900 << 10;
    let echo = Agent::echo().await;
    let mut document = echo.document("a");
    document["inputs"] = json!({"type": "object"});
    let gate = gateway_with_mallory().document(document).start().await;
    expect_honest_call(&gate, "a").await;
    let before = resident_bytes(&gate);
    let body = [head(&gate, "a", "application/json", 1_000_000).into_bytes(), vec![b' '; SENT]].concat();
    let mut connections = Vec::new();
    for _ in 0..400 {
        let mut connection = TcpStream::connect(gate.address()).await.unwrap();
        // A body that is refused is not read to its end.
        let _ = connection.write_all(&body).await;
        connections.push(connection);
    }
    eventually_within(Duration::from_secs(20), "bodies beyond the share are refused", async || {
        gate.metric("gatepost_limited_requests_total{limit=\"bodies\"}").await.is_some_and(|bodies| bodies >= 200.0)
    })
    .await;
    // The bodies of the caller take 128 MiB; the allocator returns what refused bodies took a little later.
    eventually_within(Duration::from_secs(10), "400 bodies of 900 KiB take less than 256 MiB", async || {
        resident_bytes(&gate).saturating_sub(before) < 256 << 20
    })
    .await;
    // An honest body of several pieces, which is counted as well.
    let honest = send(gate.post("/agents/a/invoke").json(&json!({"text": "x".repeat(500_000)}))).await;
    honest.expect_ok();
}
