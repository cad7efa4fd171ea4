//! The end of a drain: calls that last longer are cut off, and their callers and the access log are told so.

use crate::support::{
    agent::{Agent, Step, latch, write},
    eventually,
    gateway::{GatewayBuilder, gateway, send},
    websocket::{connect, receive_close_code, send_text},
};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

const CUT_OFF: &str = "The gateway was stopped before the call ended";

fn with_short_drain() -> GatewayBuilder {
    gateway().section("shutdown:\n  drain_timeout: 300ms\n")
}

fn is_cut_off(entry: &Value) -> bool {
    entry["code"] == "Overloaded"
        && entry["blame"] == "gateway"
        && entry["detail"].as_str().is_some_and(|why| why.contains("drain_timeout"))
}

#[tokio::test]
async fn calls_that_outlast_the_drain_get_a_fault_over_http_1_and_2_and_are_logged() {
    let silent = Agent::with_steps(vec![Step::Hang]).await;
    let mut gate = with_short_drain().agent("silent", &silent).start().await;
    let body = json!({"jsonrpc": "2.0", "id": 7, "method": "x"});
    let http2 = reqwest::Client::builder().no_proxy().http2_prior_knowledge().build().unwrap();
    let calls = [
        gate.post("/agents/silent/invoke").json(&json!({})),
        http2.post(gate.url("/agents/silent/invoke")).header("x-api-key", gate.key("team-a")).json(&json!({})),
        gate.post("/agents/silent/invoke").header("idempotency-key", "one").json(&json!({})),
        gate.post("/pipelines/invoke").json(&json!({"steps": [{"agent": "silent"}], "input": {}})),
        gate.post("/agents/silent/invoke").json(&body),
    ]
    .map(|call| tokio::spawn(send(call)));
    eventually("the agent receives the calls", async || silent.call_count() == 5).await;
    let started = Instant::now();
    gate.send_signal(Signal::TERM);
    for (at, call) in calls.into_iter().enumerate() {
        let answer = call.await.unwrap();
        assert_eq!(answer.status, 503, "{at}: {}", answer.text());
        if at == 4 {
            assert_eq!((&answer.json()["id"], &answer.json()["error"]["message"]), (&json!(7), &json!(CUT_OFF)));
        } else {
            assert_eq!(answer.expect_fault(503, "Overloaded")["message"], CUT_OFF, "{at}");
        }
    }
    assert!(gate.wait_for_exit().await.success());
    assert!(started.elapsed() < Duration::from_secs(4), "{:?}", started.elapsed());
    // The step of the pipeline has an entry of its own.
    let entries = gate.access_log(6).await;
    assert!(entries.len() == 6 && entries.iter().all(is_cut_off), "{entries:?}");
    assert!(gate.stderr().contains("5 calls did not finish within"), "{}", gate.stderr());
}

#[tokio::test]
async fn r43_an_event_stream_that_outlasts_the_drain_ends_with_an_error_event() {
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
    let between = Agent::with_steps(vec![write(format!("{head}9\r\ndata: 1\n\n\r\n")), Step::Hang]).await;
    // The second event has begun; what the gateway holds of it is dropped.
    let inside = Agent::with_steps(vec![write(format!("{head}f\r\ndata: 1\n\ndata: \r\n")), Step::Hang]).await;
    let mut gate = with_short_drain().agent("between", &between).agent("inside", &inside).start().await;
    let mut answers = Vec::new();
    for id in ["between", "inside"] {
        let mut answer = gate.post(&format!("/agents/{id}/invoke")).json(&json!({})).send().await.unwrap();
        assert_eq!(
            (answer.status().as_u16(), answer.chunk().await.unwrap().unwrap().as_ref()),
            (200, &b"data: 1\n\n"[..])
        );
        answers.push(answer);
    }
    gate.send_signal(Signal::TERM);
    for answer in answers {
        let text = answer.text().await.unwrap();
        let event = text.strip_prefix("event: error\ndata: ").unwrap_or_else(|| panic!("{text}"));
        let error: Value = serde_json::from_str(event.trim_end()).unwrap();
        assert_eq!(error["error"]["code"], "Overloaded");
        assert_eq!(error["error"]["message"], CUT_OFF);
    }
    assert!(gate.wait_for_exit().await.success());
    let entries = gate.access_log(2).await;
    assert!(entries.iter().all(|entry| is_cut_off(entry) && entry["status"] == 200), "{entries:?}");
}

#[tokio::test]
async fn a_body_that_outlasts_the_drain_is_aborted_and_never_looks_complete() {
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n";
    let agent = Agent::with_steps(vec![write(head), Step::Hang]).await;
    let mut gate = with_short_drain().agent("half", &agent).start().await;
    let mut response = gate.post("/agents/half/invoke").json(&json!({})).send().await.unwrap();
    assert_eq!(response.chunk().await.unwrap().unwrap(), "half");
    gate.send_signal(Signal::TERM);
    assert!(response.chunk().await.is_err(), "the truncated body looks complete");
    assert!(gate.wait_for_exit().await.success());
    assert!(is_cut_off(&gate.access_log(1).await[0]));
}

#[tokio::test]
async fn a_websocket_with_a_message_in_progress_is_closed_with_1001() {
    let silent = Agent::with_steps(vec![Step::Hang]).await;
    let mut gate = with_short_drain().agent("silent", &silent).start().await;
    let mut socket = connect(&gate, "/agents/silent/invoke").await;
    send_text(&mut socket, "{}").await;
    eventually("the agent receives the message", async || silent.call_count() == 1).await;
    gate.send_signal(Signal::TERM);
    assert_eq!(receive_close_code(&mut socket).await, Some(1001));
    assert!(gate.wait_for_exit().await.success());
    let entries = gate.access_log(2).await;
    // The WebSocket, and its message.
    assert!(entries.iter().all(is_cut_off), "{entries:?}");
    assert!(entries.iter().any(|entry| entry["status"] == 101), "{entries:?}");
}

#[tokio::test]
async fn by_default_a_drain_lasts_as_long_as_the_longest_call_and_ends_with_the_last_one() {
    let latch = latch();
    let steps = vec![Step::WaitForLatch(Arc::clone(&latch)), write("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")];
    let slow = Agent::with_steps(steps).await;
    let silent = Agent::with_steps(vec![Step::Hang]).await;
    let agents = "agents:\n  sources: [agents.json]\n  defaults: {timeouts: {total: 2s}}\n";
    let mut gate = gateway().agent("slow", &slow).agent("silent", &silent).section(agents).start().await;
    let calls =
        ["slow", "silent"].map(|id| tokio::spawn(send(gate.post(&format!("/agents/{id}/invoke")).json(&json!({})))));
    eventually("the agents receive the calls", async || slow.call_count() + silent.call_count() == 2).await;
    let started = Instant::now();
    gate.send_signal(Signal::TERM);
    tokio::time::sleep(Duration::from_millis(500)).await;
    latch.close();
    let [slow_call, silent_call] = calls;
    slow_call.await.unwrap().expect_ok();
    // The other call ends by its own timeout, and the process with it: 5 s before the drain would have.
    silent_call.await.unwrap().expect_fault(504, "Timeout");
    assert!(gate.wait_for_exit().await.success());
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
}
