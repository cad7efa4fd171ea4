//! Agents that always have the next bytes ready: other calls go on, and each call ends in its time.

use crate::support::{
    agent::{Agent, Step, write},
    eventually,
    gateway::{gateway, send},
};
use std::time::{Duration, Instant};

const HEAD: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Type: ";

/// How long another caller waits at most while agents flood, in a development build beside other tests.
const MAX_DELAY: Duration = Duration::from_secs(5);

#[tokio::test]
async fn agents_whose_replies_never_pause_stop_no_other_call_and_end_with_their_time() {
    // Four calls: more than there are threads for calls.
    for (name, head, flood) in [
        ("events that never end", format!("{HEAD}text/event-stream\r\n\r\n"), "1\r\n\n\r\n".repeat(4_000)),
        ("comments", format!("{HEAD}text/event-stream\r\n\r\n"), format!("4000\r\n{}\r\n", ":\n".repeat(8 << 10))),
        ("spaces", format!("{HEAD}application/json\r\n\r\n"), "1\r\n \r\n".repeat(4_000)),
        ("lines", format!("{HEAD}application/x-ndjson\r\n\r\n"), "2\r\n1\n\r\n".repeat(4_000)),
    ] {
        let agent = Agent::with_steps(vec![write(head), Step::Repeat(vec![write(flood)])]).await;
        let gate = gateway().agent("flood", &agent).section("tasks: {resume: {window: 2s}}\n").start().await;
        for asynchronous in [false, true] {
            let mut calls = tokio::task::JoinSet::new();
            for _ in 0..4 {
                let call = gate.post("/agents/flood/invoke").json(&serde_json::json!({}));
                let call = call.header("accept", "text/event-stream, */*").header("x-request-timeout", "3s");
                let call = if asynchronous { call.header("prefer", "respond-async") } else { call };
                // The caller leaves, and its stream may be resumed.
                calls.spawn(tokio::time::timeout(Duration::from_secs(1), call.send()));
            }
            calls.join_all().await;
            let began = Instant::now();
            while began.elapsed() < Duration::from_millis(1_500) {
                let started = Instant::now();
                send(gate.request("GET", "/agents/flood").header("x-api-key", gate.key("team-a"))).await.expect_ok();
                assert!(started.elapsed() < MAX_DELAY, "{name}, asynchronous: {asynchronous}: {:?}", started.elapsed());
            }
        }
        for gauge in ["gatepost_calls_in_flight", "gatepost_tasks_running"] {
            eventually("every call has ended", async || gate.metric(gauge).await == Some(0.0)).await;
        }
    }
}

#[tokio::test]
async fn interim_responses_without_end_are_refused_by_name() {
    let interim = "HTTP/1.1 103 Early Hints\r\nLink: </a>; rel=preload\r\n\r\n".repeat(1_000);
    let agent = Agent::with_steps(vec![Step::Repeat(vec![write(interim)])]).await;
    let gate = gateway().agent("flood", &agent).start().await;
    let started = Instant::now();
    gate.invoke("flood", &serde_json::json!({})).await.expect_fault(502, "AgentError");
    assert!(started.elapsed() < MAX_DELAY, "{:?}", started.elapsed());
}
