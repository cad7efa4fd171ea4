//! Resumption of streams: no gap and no duplicate, within the limits, by the same caller only.

use crate::support::{
    agent::{Agent, Step, latch, write},
    eventually,
    gateway::{Gateway, GatewayBuilder, gateway, send},
    gateway_response::GatewayResponse,
};
use serde_json::json;
use std::time::Duration;

const EVENTS: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nX-Own: yes\r\n\r\n";

fn gateway_with_tasks(settings: &str) -> GatewayBuilder {
    gateway().section(&format!("tasks:\n  sqlite_file: tasks.db\n{settings}")).caller("team-b", &[])
}

async fn resume(gate: &Gateway, caller: &str, path: &str, last_event_id: &str) -> GatewayResponse {
    let call = gate.request("GET", path).header("x-api-key", gate.key(caller));
    send(if last_event_id.is_empty() { call } else { call.header("last-event-id", last_event_id) }).await
}

/// Reads a stream until `text` has arrived, then disconnects. Returns the path for resumption, and the text so far.
async fn disconnect_after(gate: &Gateway, agent: &str, text: &str) -> (String, String) {
    let mut answer = gate.post(&format!("/agents/{agent}/invoke")).json(&json!({})).send().await.unwrap();
    let id = answer.headers()["x-task-id"].to_str().unwrap().to_owned();
    let link = answer.headers()["link"].to_str().unwrap().to_owned();
    assert_eq!(link, format!("</tasks/{id}/events>; rel=\"monitor\""));
    let mut seen = String::new();
    while !seen.contains(text) {
        let chunk = tokio::time::timeout(Duration::from_secs(10), answer.chunk()).await.unwrap().unwrap().unwrap();
        seen.push_str(&String::from_utf8_lossy(&chunk));
    }
    (format!("/tasks/{id}/events"), seen)
}

#[tokio::test]
async fn r80_a_resumed_stream_has_no_gap_and_no_duplicate() {
    let hold = latch();
    let steps = vec![
        write(format!("{EVENTS}data: 1\n\nid: own\nevent: e\ndata: 2\n\n")),
        Step::WaitForLatch(hold.clone()),
        write("data: 3\n\ndata: 4\n\n"),
        Step::Close,
    ];
    let agent = Agent::with_steps(steps).await;
    let gate = gateway_with_tasks("").agent("stream", &agent).start().await;
    let (path, seen) = disconnect_after(&gate, "stream", "data: 2\n\n").await;
    assert_eq!(seen, "id: 1\ndata: 1\n\nid: 2-own\nevent: e\ndata: 2\n\n");
    gate.access_log(1).await;
    hold.close();
    assert_eq!(resume(&gate, "team-a", &path, "2-own").await.text(), "id: 3\ndata: 3\n\nid: 4\ndata: 4\n\n");
    let rest = "id: 2-own\nevent: e\ndata: 2\n\nid: 3\ndata: 3\n\nid: 4\ndata: 4\n\n";
    assert_eq!(resume(&gate, "team-a", &path, "1").await.text(), rest);
    assert_eq!(resume(&gate, "team-a", &path, "").await.text(), format!("id: 1\ndata: 1\n\n{rest}"));
    resume(&gate, "team-a", &path, "9").await.expect_fault(410, "Gone");
    resume(&gate, "team-b", &path, "1").await.expect_fault(404, "NotFound");
    assert_eq!(agent.call_count(), 1);
    assert!(gate.metric("gatepost_events_total{event=\"stream_resumed\"}").await >= Some(2.0));
}

#[tokio::test]
async fn r80_the_gateway_disconnects_from_the_agent_after_the_window() {
    let steps = vec![write(format!("{EVENTS}data: 1\n\n")), Step::Hang];
    let agent = Agent::with_steps(steps).await;
    let gate = gateway_with_tasks("  resume: {window: 1s}\n").agent("stream", &agent).start().await;
    let (path, _) = disconnect_after(&gate, "stream", "data: 1\n\n").await;
    eventually("the gateway disconnects from the agent", async || agent.aborted_responses() == 1).await;
    eventually("the stream is forgotten", async || resume(&gate, "team-a", &path, "1").await.status == 404).await;
}

#[tokio::test]
async fn r80_events_that_are_no_longer_kept_are_refused_and_not_skipped() {
    let events: String = (1..=50).map(|number| format!("data: {number}\n\n")).collect();
    let agent = Agent::with_steps(vec![write(format!("{EVENTS}{events}")), Step::Hang]).await;
    let gate = gateway_with_tasks("  resume: {max_events: 10}\n").agent("stream", &agent).start().await;
    let (path, _) = disconnect_after(&gate, "stream", "data: 50\n\n").await;
    resume(&gate, "team-a", &path, "3").await.expect_fault(410, "Gone");
    // Without Last-Event-ID a caller gets the events that are kept.
    let mut restarted = gate.request("GET", &path).header("x-api-key", gate.key("team-a")).send().await.unwrap();
    assert!(restarted.chunk().await.unwrap().unwrap().starts_with(b"id: 41\ndata: 41\n\n"));
    let resumed = gate.request("GET", &path).header("x-api-key", gate.key("team-a")).header("last-event-id", "45");
    let mut resumed = resumed.send().await.unwrap();
    assert_eq!(resumed.status(), 200);
    let mut seen = String::new();
    while !seen.contains("data: 50") {
        seen.push_str(&String::from_utf8_lossy(&resumed.chunk().await.unwrap().unwrap()));
    }
    assert!(seen.starts_with("id: 46\ndata: 46\n\n"), "{seen}");
    assert_eq!(
        send(gate.request("DELETE", path.trim_end_matches("/events")).header("x-api-key", gate.key("team-a")))
            .await
            .status,
        200
    );
    eventually("the gateway disconnects from the agent", async || agent.aborted_responses() == 1).await;
}

#[tokio::test]
async fn r80_a_resumed_stream_reports_that_its_agent_died() {
    let hold = latch();
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
    let steps = vec![write(format!("{head}9\r\ndata: 1\n\n\r\n")), Step::WaitForLatch(hold.clone()), Step::Reset];
    let agent = Agent::with_steps(steps).await;
    let gate = gateway_with_tasks("").agent("stream", &agent).start().await;
    let (path, _) = disconnect_after(&gate, "stream", "data: 1\n\n").await;
    hold.close();
    let rest = resume(&gate, "team-a", &path, "1").await.text();
    assert!(rest.starts_with("id: 2\nevent: error\ndata: {\"error\":{\"code\":\"AgentError\""), "{rest}");
}

#[tokio::test]
async fn r80_resuming_after_the_last_event_gives_204() {
    let agent = Agent::with_steps(vec![write(format!("{EVENTS}data: 1\n\ndata: 2\n\n")), Step::Close]).await;
    let gate = gateway_with_tasks("").agent("stream", &agent).start().await;
    let (path, _) = disconnect_after(&gate, "stream", "data: 1\n\n").await;
    assert!(resume(&gate, "team-a", &path, "1").await.text().ends_with("data: 2\n\n"));
    let nothing = resume(&gate, "team-a", &path, "2").await;
    assert_eq!((nothing.status, nothing.text().as_str()), (204, ""));
}

#[tokio::test]
async fn r94_a_resumable_json_rpc_stream_ends_with_a_json_rpc_error() {
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
    let agent = Agent::with_steps(vec![write(format!("{head}9\r\ndata: 1\n\n\r\n")), Step::Reset]).await;
    let gate = gateway_with_tasks("").agent("stream", &agent).start().await;
    let answer = gate.invoke("stream", &json!({"jsonrpc": "2.0", "id": "x", "method": "message/stream"})).await;
    let (_, error) = answer.text().split_once("data: 1\n\n").map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
    let data = error.strip_prefix("id: 2\ndata: ").unwrap_or_else(|| panic!("{error}"));
    let error: serde_json::Value = serde_json::from_str(data).unwrap();
    assert_eq!((&error["id"], &error["error"]["code"]), (&json!("x"), &json!(-32072)), "{error}");
}

#[tokio::test]
async fn r80_a_large_stream_passes_whole_through_a_small_buffer() {
    let body: String = (0..200).map(|number| format!("data: {number} {}\n\n", "x".repeat(2_000))).collect();
    let agent = Agent::with_steps(vec![write(format!("{EVENTS}{body}")), Step::Close]).await;
    let gate = gateway_with_tasks("  resume: {max_size: 1KiB}\n").agent("stream", &agent).start().await;
    let text = gate.invoke("stream", &json!({})).await.text();
    let plain: Vec<&str> =
        text.split("\n\n").filter_map(|event| event.split_once('\n')).map(|(_, data)| data).collect();
    let expected: Vec<&str> = body.split("\n\n").filter(|data| !data.is_empty()).collect();
    assert_eq!(plain, expected);
}

#[tokio::test]
async fn r80_without_resumption_a_stream_passes_unchanged_and_ends_with_its_caller() {
    for section in [
        "",
        "tasks: {sqlite_file: tasks.db, resume: null}\n",
        "tasks: {sqlite_file: tasks.db, resume: {max_streams: 0}}\n",
    ] {
        let agent = Agent::with_steps(vec![write(format!("{EVENTS}id: own\ndata: 1\n\n")), Step::Hang]).await;
        let build = gateway().agent("stream", &agent);
        let gate = if section.is_empty() { build } else { build.section(section) }.start().await;
        let mut answer = gate.post("/agents/stream/invoke").json(&json!({})).send().await.unwrap();
        assert!(!answer.headers().contains_key("x-task-id"), "{section}");
        assert_eq!(answer.chunk().await.unwrap().unwrap(), "id: own\ndata: 1\n\n", "{section}");
        drop(answer);
        eventually("the gateway disconnects from the agent", async || agent.aborted_responses() == 1).await;
    }
}
