//! The timeouts of calls: presets, and faults that say which timeout ended a call and where it is set.

use crate::support::{
    agent::{Agent, Step, http_response, json_response, write},
    eventually,
    gateway::{Gateway, gateway, send},
    gateway_response::send_raw,
    websocket::{connect, receive_json, send_text},
};
use serde_json::{Value, json};

fn rules(settings: &str) -> String {
    format!("agents:\n  sources: [agents.json]\n  rules:\n    - {{agents: [planner], settings: {settings}}}\n")
}

async fn start(agent: &Agent, settings: &str) -> Gateway {
    gateway().agent("planner", agent).section(&rules(settings)).start().await
}

fn invoke(gate: &Gateway) -> reqwest::RequestBuilder {
    gate.post("/agents/planner/invoke").json(&json!({}))
}

#[track_caller]
fn assert_named(error: &Value, name: &str, after: &str, setting: Option<&str>) {
    let timeout = &error["timeout"];
    assert_eq!((timeout["name"].as_str(), timeout["after"].as_str()), (Some(name), Some(after)), "{error}");
    assert_eq!(timeout["setting"].as_str(), setting, "{error}");
    let message = error["message"].as_str().or_else(|| error["detail"].as_str()).unwrap();
    assert!(message.contains(&format!("({name}: {after}")), "{error}");
}

const FIRST_BYTE: &str = "agents.rules[0].settings.timeouts.first_byte";

#[tokio::test]
async fn r96_a_504_says_which_timeout_ended_the_call_and_where_it_is_set() {
    let agent = Agent::with_steps(vec![Step::Hang]).await;
    let gate = start(&agent, "{timeouts: {first_byte: 300ms}}").await;
    let error = send(invoke(&gate)).await.expect_fault(504, "Timeout");
    assert_named(&error, "timeouts.first_byte", "300ms", Some(FIRST_BYTE));
    let problem = send(invoke(&gate).header("accept", "application/problem+json")).await;
    assert_eq!(problem.status, 504);
    assert_named(&problem.json(), "timeouts.first_byte", "300ms", Some(FIRST_BYTE));
    let error = send(invoke(&gate).header("x-request-timeout", "100ms")).await.expect_fault(504, "Timeout");
    assert_named(&error, "X-Request-Timeout", "100ms", None);
    assert_eq!(error["timeout"]["source"], "request");
    let keyed = send(invoke(&gate).header("idempotency-key", "k")).await.expect_fault(504, "Timeout");
    assert_named(&keyed, "timeouts.first_byte", "300ms", Some(FIRST_BYTE));
    let rpc = json!({"jsonrpc": "2.0", "id": 7, "method": "x"});
    let answer = send(gate.post("/agents/planner/invoke").json(&rpc)).await.json();
    assert_named(&answer["error"]["data"], "timeouts.first_byte", "300ms", Some(FIRST_BYTE));
    let logged = gate.access_log(5).await;
    assert!(
        logged.iter().all(|line| line["message"].as_str().unwrap().contains("(timeouts.")
            || line["message"].as_str().unwrap().contains("(X-Request-Timeout")),
        "{logged:?}"
    );
}

#[tokio::test]
async fn r96_total_timeouts_name_themselves_in_defaults_and_in_pipelines() {
    let agent = Agent::with_steps(vec![Step::Hang]).await;
    let section = "agents:\n  sources: [agents.json]\n  defaults: {timeouts: {total: 400ms}}\n";
    let gate = gateway().agent("planner", &agent).section(section).start().await;
    let total = Some("agents.defaults.timeouts.total");
    assert_named(&send(invoke(&gate)).await.expect_fault(504, "Timeout"), "timeouts.total", "400ms", total);
    let steps = json!({"steps": [{"agent": "planner"}], "input": {}});
    let error = send(gate.post("/pipelines/invoke").json(&steps)).await.expect_fault(504, "Timeout");
    assert_named(&error, "timeouts.total", "400ms", total);
    let mut socket = connect(&gate, "/agents/planner/invoke").await;
    send_text(&mut socket, "{\"n\": 1}").await;
    assert_named(&receive_json(&mut socket).await["error"], "timeouts.total", "400ms", total);
}

#[tokio::test]
async fn r96_a_stream_that_falls_silent_ends_with_an_event_that_names_the_timeout() {
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
    let agent = Agent::with_steps(vec![write(format!("{head}d\r\ndata: \"one\"\n\n\r\n")), Step::Hang]).await;
    let gate = start(&agent, "{timeouts: {idle: 400ms}}").await;
    let text = send(invoke(&gate).header("accept", "text/event-stream")).await.text();
    let data = text.lines().skip_while(|line| *line != "event: error").nth(1).unwrap_or_else(|| panic!("{text}"));
    let event: Value = serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap();
    let setting = Some("agents.rules[0].settings.timeouts.idle");
    assert_named(&event["error"], "timeouts.idle", "400ms", setting);
    // The deadline of the caller ends a stream as well.
    let text =
        send(invoke(&gate).header("accept", "text/event-stream").header("x-request-timeout", "200ms")).await.text();
    assert!(text.contains("(X-Request-Timeout: 200ms)"), "{text}");
}

#[tokio::test]
async fn r96_a_reply_without_a_pause_ends_with_the_time_of_its_call() {
    let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Type: ";
    // A chunk size that never ends has no content.
    let zeros = Step::Repeat(vec![write("0".repeat(32 << 10))]);
    let agent = Agent::with_steps(vec![write(format!("{head}application/json\r\n\r\n")), zeros]).await;
    let gate = start(&agent, "{timeouts: {first_byte: 20s}}").await;
    let started = std::time::Instant::now();
    send(invoke(&gate).header("x-request-timeout", "4s")).await.expect_fault(502, "AgentError");
    assert!(started.elapsed().as_secs() < 10, "{:?}", started.elapsed());
    // Content without end, of which the next part is always there.
    let chunk = format!("400\r\n{}\r\n", ": comment of 16\n\n".repeat(64).get(..1_024).unwrap());
    let comments = Step::Repeat(vec![write(chunk.repeat(16))]);
    let agent = Agent::with_steps(vec![write(format!("{head}text/event-stream\r\n\r\n")), comments]).await;
    let gate = start(&agent, "{timeouts: {first_byte: 20s}}").await;
    let started = std::time::Instant::now();
    let stream = send(invoke(&gate).header("accept", "text/event-stream").header("x-request-timeout", "1s")).await;
    assert!(started.elapsed().as_secs() < 10, "{:?}", started.elapsed());
    assert!(stream.text().contains("(X-Request-Timeout: 1s)"), "the stream does not name its timeout");
}

#[tokio::test]
async fn r96_the_agents_api_and_openais_shape_name_the_timeout() {
    let agent = Agent::with_steps(vec![Step::Hang]).await;
    let section = "agents:\n  sources: [agents.json]\n  rules:\n    - agents: [planner]\n      settings: {timeouts: {first_byte: 300ms}}\n      api: {preset: langgraph}\n";
    let gate = gateway().agent("planner", &agent).section("    accept_bearer: true\n").section(section).start().await;
    let api = gate.request("GET", "/agents/planner/api/threads/1").header("x-api-key", gate.key("team-a"));
    assert_named(&send(api).await.expect_fault(504, "Timeout"), "timeouts.first_byte", "300ms", Some(FIRST_BYTE));
    let body = json!({"model": "planner", "messages": [{"role": "user", "content": "Hi"}]});
    let chat = gate.request("POST", "/openai/v1/chat/completions").bearer_auth(gate.key("team-a")).json(&body);
    let answer = send(chat).await;
    assert_eq!(answer.status, 504);
    assert_named(&answer.json()["error"], "timeouts.first_byte", "300ms", Some(FIRST_BYTE));
}

#[tokio::test]
async fn a_preset_gives_an_agent_minutes_to_think_and_what_is_set_beside_it_wins() {
    // The agent says how much time the call has left, which is all that a test can wait for.
    let agent = Agent::scripted(|request| json_response(&json!({"left": request.header("x-request-timeout")}))).await;
    for (settings, seconds) in [
        ("{}", 300),
        ("{timeouts: {preset: interactive}}", 300),
        ("{timeouts: {preset: thinking}}", 900),
        ("{timeouts: {preset: long_running}}", 3_600),
        ("{timeouts: {preset: thinking, total: 20m}}", 1_200),
    ] {
        let gate = start(&agent, settings).await;
        let left = send(invoke(&gate)).await.expect_ok()["left"].as_str().unwrap().trim_end_matches("ms").to_owned();
        let left: u64 = left.parse().unwrap();
        assert!((seconds * 1_000 - 20_000..=seconds * 1_000).contains(&left), "{settings}: {left}");
    }
    let hanging = Agent::with_steps(vec![Step::Hang]).await;
    let gate = start(&hanging, "{timeouts: {preset: thinking, first_byte: 200ms}}").await;
    assert_named(
        &send(invoke(&gate)).await.expect_fault(504, "Timeout"),
        "timeouts.first_byte",
        "200ms",
        Some(FIRST_BYTE),
    );
}

#[tokio::test]
async fn the_api_of_a_framework_has_the_time_to_think_unless_a_timeout_is_set() {
    let agent = Agent::scripted(|request| json_response(&json!({"left": request.header("x-request-timeout")}))).await;
    for (settings, seconds) in [("{}", 900), ("{timeouts: {total: 30s}}", 30)] {
        let section = format!(
            "agents:\n  sources: [agents.json]\n  rules:\n    - agents: [planner]\n      settings: {settings}\n      api: {{preset: langgraph}}\n"
        );
        let gate = gateway().agent("planner", &agent).section(&section).start().await;
        let api = gate.request("GET", "/agents/planner/api/threads/1").header("x-api-key", gate.key("team-a"));
        let left = send(api).await.expect_ok()["left"].as_str().unwrap().trim_end_matches("ms").to_owned();
        let left: u64 = left.parse().unwrap();
        assert!((seconds * 1_000 - 20_000..=seconds * 1_000).contains(&left), "{settings}: {left}");
    }
}

#[tokio::test]
async fn a_call_that_waits_in_vain_for_a_slot_is_told_how_long_it_waited() {
    let agent = Agent::with_steps(vec![Step::Hang]).await;
    let section = "limits: {concurrency: {max_per_agent: 1, max_queued: 8, queue_timeout: 200ms}}\n";
    let gate = gateway().agent("planner", &agent).caller("team-b", &[]).section(section).start().await;
    let first = tokio::spawn(send(invoke(&gate)));
    eventually("the first call is with the agent", async || agent.call_count() == 1).await;
    // A caller that has its own share waits for that; another one waits for the agent.
    let second = gate.request("POST", "/agents/planner/invoke").header("x-api-key", gate.key("team-b"));
    let error = send(second.json(&json!({}))).await.expect_fault(503, "Overloaded");
    assert_named(&error, "limits.concurrency.queue_timeout", "200ms", Some("limits.concurrency.queue_timeout"));
    first.abort();
}

/// A document with an A2A card, and a schema, so that bodies are checked.
fn a2a_document(agent: &Agent, has_schema: bool) -> Value {
    let mut document = agent.document("planner");
    let card = json!({"name": "planner", "description": "Plans.", "url": agent.url(), "version": "1", "protocolVersion": "0.3.0", "capabilities": {}, "defaultInputModes": ["text/plain"], "defaultOutputModes": ["text/plain"], "skills": []});
    document["agent_card"] = card;
    if has_schema {
        document["operations"] = json!([{"name": "send", "inputs": {"type": "object", "required": ["jsonrpc"]}}]);
    }
    document
}

fn message_with_file(bytes: usize) -> Value {
    let file = json!({"kind": "file", "file": {"name": "a.pdf", "bytes": "A".repeat(bytes)}});
    json!({"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": {"message": {"parts": [file]}}})
}

#[tokio::test]
async fn r43_messages_with_files_have_a_bound_of_their_own_which_the_413_names() {
    let agent =
        Agent::with_steps(http_response("200 OK", "application/json", "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}"))
            .await;
    let post = |gate: &Gateway, body: &Value| gate.post("/agents/planner/invoke").json(body);
    // By default a file may be larger than other checked bodies.
    let gate = gateway().document(a2a_document(&agent, true)).start().await;
    assert_eq!(send(post(&gate, &message_with_file(3 << 20))).await.status, 200);
    assert_eq!(agent.requests()[0].body.len(), message_with_file(3 << 20).to_string().len());
    // The head is enough: a client that still writes may not read the answer.
    let (key, length) = (gate.key("team-a"), 17 << 20);
    let head = format!(
        "POST /agents/planner/invoke HTTP/1.1\r\nHost: gateway\r\nX-API-Key: {key}\r\n\
         Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
    );
    let answer = send_raw(gate.address(), head.as_bytes()).await.unwrap();
    assert_eq!((answer.status, answer.text().contains("agents.a2a.max_body_size")), (413, true), "{}", answer.text());
    // Each agent may have its own, checked or not.
    for has_schema in [true, false] {
        let section =
            "agents:\n  sources: [agents.json]\n  rules:\n    - {agents: [planner], a2a: {max_body_size: 64KiB}}\n";
        let gate = gateway().document(a2a_document(&agent, has_schema)).section(section).start().await;
        assert_eq!(send(post(&gate, &message_with_file(32 << 10))).await.status, 200);
        let answer = send(post(&gate, &message_with_file(70 << 10))).await;
        assert_eq!(
            (answer.status, answer.text().contains("agents.a2a.max_body_size")),
            (413, true),
            "{}",
            answer.text()
        );
    }
}

#[tokio::test]
async fn r5_messages_with_files_take_no_more_memory_than_the_share_of_their_caller() {
    let agent = Agent::with_steps(http_response("200 OK", "application/json", "{}")).await;
    let gate =
        gateway().document(a2a_document(&agent, true)).section("limits: {max_buffered_bodies: 8MiB}\n").start().await;
    // Many small values take 8 bytes each beside the body; together they are more than half of 8 MiB.
    let many = json!({"jsonrpc": "2.0", "id": 1, "params": vec![1; 600 << 10]});
    for body in [message_with_file(5 << 20), many] {
        let answer = send(gate.post("/agents/planner/invoke").json(&body)).await;
        assert_eq!((answer.status, agent.call_count()), (429, 0), "{}", answer.text());
    }
    // A file takes little memory beside the body.
    assert_eq!(send(gate.post("/agents/planner/invoke").json(&message_with_file(2 << 20))).await.status, 200);
}
