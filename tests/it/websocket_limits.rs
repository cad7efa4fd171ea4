//! What a WebSocket is no way around: the contract, the limits, the bounds of the other side, versions, the caller's
//! rights; and an agent's own words, wherever in a message they are.

use crate::support::{
    agent::Agent,
    eventually,
    gateway::{Build, Gate, gateway},
    served::Raw,
    websocket::{agent, answering, closed, dial, document, echo, hear_json, hear_text, next, open, say, until_end},
};
use futures_util::SinkExt;
use serde_json::{Value, json};
use std::time::Instant;
use tokio_tungstenite::tungstenite::Message;

const INVOKE: &str = "/agents/a/invoke";

/// A gateway whose agents over WebSocket have these settings.
fn with(record: Value, settings: &str) -> Build {
    let section = format!("agents:\n  from: [agents.json]\n  defaults: {{websocket: {{{settings}}}}}\n");
    gateway().document(record).section(&section)
}

fn counting(agent: &Raw) -> Value {
    let mut record = document(agent, "a");
    let inputs = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
    record["operations"] = json!([{"name": "count", "inputs": inputs}]);
    record
}

/// The code of the failure that the next message is.
async fn refused(socket: &mut crate::support::websocket::Socket) -> Value {
    hear_json(socket).await["error"]["code"].clone()
}

#[tokio::test]
async fn r41_a_failure_in_any_line_of_a_message_is_told_in_the_gateways_words() {
    let leak = "{\"n\":1}\n{\"error\":{\"code\":\"Boom\",\"message\":\"Traceback at /srv/app\"}}\r\n\n{\"n\":2}\n";
    let whole = "{\"n\":3}\n\n{\"n\":4}";
    let (peer, _) = answering(vec![Message::text(leak), Message::text(whole)], None).await;
    let gate = gateway().document(document(&peer, "a")).start().await;
    let mut socket = open(&gate, INVOKE).await;
    say(&mut socket, "{}").await;
    let told = hear_text(&mut socket).await;
    let lines: Vec<&str> = told.lines().collect();
    assert_eq!((lines.len(), lines[0], lines[2]), (3, "{\"n\":1}", "{\"n\":2}"), "{told}");
    assert!(lines[1].contains("AgentError") && !told.contains("Traceback"), "{told}");
    assert_eq!(hear_text(&mut socket).await, whole, "what is fine passes as it is");
}

#[tokio::test]
async fn r32_a_list_is_not_checked_as_if_it_were_one_request() {
    let (peer, heard) = echo().await;
    let gate = with(counting(&peer), "frames: json_rpc").start().await;
    let mut socket = open(&gate, INVOKE).await;
    let hidden = json!({"jsonrpc": "2.0", "id": 1, "method": "count", "params": {"n": "x"}});
    for list in [json!(["2.0", hidden, "count", {"n": 1}]), json!(["2.0", 1, "invoke", {"n": 1}]), json!([hidden])] {
        say(&mut socket, list.to_string()).await;
        assert_eq!(refused(&mut socket).await, "InvalidInput", "{list}");
    }
    assert_eq!(heard.texts(), Vec::<String>::new());
}

#[tokio::test]
async fn r5_every_input_in_a_message_counts_as_a_call() {
    let (peer, heard) = echo().await;
    let gate = with(document(&peer, "a"), "check: false").section("limits:\n  per_caller: 6/h\n").start().await;
    let mut socket = open(&gate, INVOKE).await;
    say(&mut socket, "{}\n{}\n\n{}\n").await;
    hear_text(&mut socket).await;
    say(&mut socket, "{}\n{}\n{}").await;
    assert_eq!(refused(&mut socket).await, "RateLimited", "two are left");
    say(&mut socket, "{}\n{}").await;
    hear_text(&mut socket).await;
    assert_eq!(heard.texts().len(), 2);
    let gate = with(document(&peer, "a"), "frames: json_rpc").section("limits:\n  per_caller: 3/h\n").start().await;
    let mut socket = open(&gate, INVOKE).await;
    let request = json!({"jsonrpc": "2.0", "id": 1, "method": "m"});
    say(&mut socket, json!([request, request, request]).to_string()).await;
    assert_eq!(refused(&mut socket).await, "RateLimited");
    say(&mut socket, json!([request, request]).to_string()).await;
    hear_text(&mut socket).await;
}

#[tokio::test]
async fn r5_a_message_is_a_request_of_its_address() {
    let ((peer, _), http) = (echo().await, Agent::echo().await);
    let limits = "limits:\n  per_address: 3/h\n";
    for build in [gateway().document(document(&peer, "a")), gateway().agent("a", &http)] {
        let gate = build.section(limits).start().await;
        let mut socket = open(&gate, INVOKE).await;
        for _ in 0..2 {
            say(&mut socket, "{}").await;
            hear_text(&mut socket).await;
        }
        say(&mut socket, "{}").await;
        assert_eq!(refused(&mut socket).await, "RateLimited");
    }
}

#[tokio::test]
async fn a_message_that_is_too_large_for_the_other_side_is_refused_and_the_socket_goes_on() {
    let (peer, heard) = echo().await;
    let gate = with(document(&peer, "a"), "max_message: 8KiB").start().await;
    let mut socket = open(&gate, INVOKE).await;
    for size in [9 << 10, 600 << 10] {
        say(&mut socket, "x".repeat(size)).await;
        assert_eq!(refused(&mut socket).await, "PayloadTooLarge", "{size}");
    }
    say(&mut socket, "{}").await;
    assert_eq!(hear_text(&mut socket).await, "{}");
    assert_eq!(heard.texts(), ["{}"]);
    let large = ["x".repeat(9 << 10), "x".repeat(600 << 10)].map(Message::text);
    let (peer, _) = answering(large.into_iter().chain([Message::text("{}")]).collect(), None).await;
    let gate = gateway().document(document(&peer, "a")).section("websocket: {max_message: 8KiB}\n").start().await;
    let mut socket = open(&gate, INVOKE).await;
    say(&mut socket, "{}").await;
    for _ in 0..2 {
        assert_eq!(refused(&mut socket).await, "AgentError");
    }
    assert_eq!(hear_text(&mut socket).await, "{}");
}

#[tokio::test]
async fn r33_where_it_is_asked_for_an_agents_messages_are_checked_too() {
    let answers = ["{\"ok\":1}", "{\"no\":1}", "nonsense", "{\"ok\":2}\n{\"no\":2}"];
    let (peer, _) = answering(answers.map(Message::text).to_vec(), None).await;
    let mut record = document(&peer, "a");
    record["operations"] = json!([{"name": "count", "outputs": {"type": "object", "required": ["ok"]}}]);
    let enforced = |settings: &str| with(record.clone(), settings).section("contract: {output: enforce}\n");
    let gate = enforced("check: true").start().await;
    let mut socket = open(&gate, INVOKE).await;
    say(&mut socket, "{}").await;
    assert_eq!(hear_text(&mut socket).await, answers[0]);
    for _ in 0..2 {
        assert_eq!(refused(&mut socket).await, "AgentError");
    }
    let told = hear_text(&mut socket).await;
    assert!(told.starts_with("{\"ok\":2}\n") && told.contains("AgentError") && !told.contains("\"no\""), "{told}");
    let gate = enforced("ping: 20s").start().await;
    let mut socket = open(&gate, INVOKE).await;
    say(&mut socket, "{}").await;
    for answer in answers {
        assert_eq!(hear_text(&mut socket).await, answer, "nobody asked for it");
    }
    let results = [json!({"jsonrpc": "2.0", "id": 4, "result": {"no": 1}}), json!({"jsonrpc": "2.0", "method": "m"})];
    let (peer, _) = answering(results.iter().map(|result| Message::text(result.to_string())).collect(), None).await;
    record["endpoint"] = document(&peer, "a")["endpoint"].clone();
    let build = with(record, "check: true, frames: json_rpc").section("contract: {output: enforce}\n");
    let gate = build.start().await;
    let mut socket = open(&gate, INVOKE).await;
    say(&mut socket, "{}").await;
    let told = hear_json(&mut socket).await;
    assert_eq!((&told["id"], &told["error"]["data"]["code"]), (&json!(4), &json!("AgentError")), "{told}");
    assert_eq!(hear_json(&mut socket).await, results[1]);
}

#[tokio::test]
async fn r3_a_caller_who_only_listens_is_sent_away_when_its_key_is_withdrawn() {
    let (peer, heard) = echo().await;
    let pings = "websocket: {ping: 100ms, pong: 2s}\n";
    let gate = gateway().document(document(&peer, "a")).section(pings).start().await;
    let mut socket = open(&gate, INVOKE).await;
    gate.write("keys.jsonl", "");
    assert_eq!(refused(&mut socket).await, "Unauthorized");
    assert_eq!(closed(&mut socket).await, Some(1008));
    eventually("the agent's socket ends", async || heard.ends().len() == 1).await;
    assert_eq!(heard.texts(), Vec::<String>::new());
}

async fn versioned(agent: &Agent) -> Gate {
    let mut record = agent.document("a");
    record["version"] = json!("2.0.0");
    record["supportedVersions"] = json!({"1.4.0": "/old"});
    gateway().document(record).start().await
}

#[tokio::test]
async fn r68_the_version_that_a_handshake_asks_for_is_the_one_that_is_called() {
    let agent = Agent::echo().await;
    let gate = versioned(&agent).await;
    for (path, served) in [
        (INVOKE, "2.0.0"),
        ("/agents/a@1.x/invoke", "1.4.0"),
        ("/agents/a/invoke?version=%5E1", "1.4.0"),
        ("/agents/a@2/invoke?version=2", "2.0.0"),
    ] {
        let (mut socket, head) = dial(&gate, path, &[("x-api-key", gate.key("team-a"))]).await.unwrap();
        assert_eq!(head.headers()["x-agent-version"], served, "{path}");
        say(&mut socket, "{}").await;
        hear_json(&mut socket).await;
        let got = agent.got();
        let last = got.last().unwrap();
        assert_eq!(last.header("x-agent-version"), Some(served), "{path}");
        assert_eq!(last.head.contains(" /old "), served == "1.4.0", "{path}: {}", last.head);
    }
    let Err(tokio_tungstenite::tungstenite::Error::Http(refused)) =
        dial(&gate, "/agents/a@3/invoke", &[("x-api-key", gate.key("team-a"))]).await
    else {
        panic!("there is no such version")
    };
    assert_eq!(refused.status(), 406);
}

#[tokio::test]
async fn r45_the_key_of_a_handshake_is_not_the_key_of_every_message() {
    let agent = Agent::echo().await;
    let gate = gateway().agent("a", &agent).start().await;
    let fields = [("x-api-key", gate.key("team-a")), ("idempotency-key", "k-1"), ("x-session-id", "s-1")];
    let (mut socket, _) = dial(&gate, INVOKE, &fields).await.unwrap();
    say(&mut socket, "{}").await;
    hear_json(&mut socket).await;
    let got = agent.got();
    assert_eq!((got[0].header("idempotency-key"), got[0].header("x-session-id")), (None, Some("s-1")));
}

#[tokio::test]
async fn r94_an_agent_that_could_not_read_the_request_is_not_waited_for() {
    let (peer, _) = agent(|mut socket, heard| async move {
        next(&mut socket, &heard).await;
        let error = json!({"jsonrpc": "2.0", "id": null, "error": {"code": -32700, "message": "at /srv/app"}});
        let _ = socket.send(Message::text(error.to_string())).await;
        until_end(&mut socket, &heard).await;
    })
    .await;
    let gate = with(document(&peer, "a"), "frames: json_rpc").start().await;
    let began = Instant::now();
    let answer = gate.invoke("a", &json!({})).await;
    answer.is_fault(502, "AgentError");
    answer.hides(&["/srv"]);
    assert!(began.elapsed().as_secs() < 10, "{:?}", began.elapsed());
}

#[tokio::test]
async fn r35_an_agent_that_dies_before_it_answers_is_left_alone_after_a_while() {
    let (peer, heard) = agent(|mut socket, heard| async move { drop(next(&mut socket, &heard).await) }).await;
    let section = "agents:\n  from: [agents.json]\n  defaults: {breaker: {failures: 2, open_for: 60s}}\n";
    let gate = gateway().document(document(&peer, "a")).section(section).start().await;
    for _ in 0..2 {
        gate.invoke("a", &json!({})).await.is_fault(502, "AgentError");
    }
    gate.invoke("a", &json!({})).await.is_fault(503, "AgentUnavailable");
    assert_eq!(heard.texts().len(), 2);
}
