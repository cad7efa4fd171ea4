//! Calls that are made once: the first answer again, whoever waits, another body, and what is not kept.

use crate::support::{
    agent::{Agent, Do, answer, json_answer, latch, write},
    eventually,
    gateway::{Gate, gateway, send},
    reply::Answer,
};
use futures_util::future::join_all;
use serde_json::{Value, json};
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};
use tokio::io::AsyncWriteExt;

async fn keyed(gate: &Gate, caller: &str, agent: &str, key: &str, body: &Value) -> Answer {
    let call = gate.request("POST", &format!("/agents/{agent}/invoke")).header("x-api-key", gate.key(caller));
    send(call.header("idempotency-key", key).json(body)).await
}

/// Answers each request with its number.
async fn counting() -> Agent {
    let count = Arc::new(AtomicUsize::new(0));
    Agent::scripted(move |_| json_answer(&json!({ "number": count.fetch_add(1, Ordering::SeqCst) }))).await
}

#[tokio::test]
async fn r45_the_first_answer_is_given_again_to_the_same_caller_and_agent_and_to_nobody_else() {
    let agent = counting().await;
    let gate = gateway().agent("one", &agent).agent("two", &agent).caller("team-b", &[]).start().await;
    let first = keyed(&gate, "team-a", "one", "k", &json!({"a": 1})).await;
    assert_eq!((first.is_ok(), first.header("idempotent-replayed")), (json!({"number": 0}), None));
    for _ in 0..3 {
        let again = keyed(&gate, "team-a", "one", "k", &json!({"a": 1})).await;
        assert_eq!((again.is_ok(), again.header("idempotent-replayed")), (json!({"number": 0}), Some("true")));
        assert_eq!(again.header("content-type"), first.header("content-type"));
        assert_ne!(again.header("x-request-id"), first.header("x-request-id"));
    }
    assert_eq!(keyed(&gate, "team-a", "two", "k", &json!({"a": 1})).await.is_ok()["number"], 1);
    assert_eq!(keyed(&gate, "team-b", "one", "k", &json!({"a": 1})).await.is_ok()["number"], 2);
    assert_eq!(keyed(&gate, "team-a", "one", "other", &json!({"a": 1})).await.is_ok()["number"], 3);
    assert_eq!(gate.metric("gatepost_events_total{event=\"response_replayed\"}").await, Some(3.0));
    assert_eq!(agent.got()[0].header("idempotency-key"), Some("k"), "the agent may count by it too");
}

#[tokio::test]
async fn r45_another_body_or_operation_under_the_same_key_is_422_and_never_reaches_the_agent() {
    let agent = counting().await;
    let mut document = agent.document("ops");
    document["operations"] = json!([{"name": "a"}, {"name": "b"}]);
    let gate = gateway().agent("one", &agent).document(document).start().await;
    keyed(&gate, "team-a", "one", "k", &json!({"a": 1})).await.is_ok();
    for other in [json!({"a": 2}), json!({}), json!([1]), json!([{"a": 1}])] {
        keyed(&gate, "team-a", "one", "k", &other).await.is_fault(422, "IdempotencyMismatch");
    }
    let op = async |name: &str| {
        let call = gate.post(&format!("/agents/ops/invoke/{name}")).header("idempotency-key", "k");
        send(call.json(&json!({}))).await
    };
    op("a").await.is_ok();
    op("b").await.is_fault(422, "IdempotencyMismatch");
    assert_eq!(agent.calls(), 2);
}

#[tokio::test]
async fn r45_r68_another_version_in_the_path_is_another_call_and_the_one_served_is_told_again() {
    let agent = counting().await;
    let mut document = agent.document("versioned");
    document["version"] = json!("2.0.0");
    document["supportedVersions"] = json!({"1.0.0": "/v1"});
    let gate = gateway().document(document).start().await;
    let call = async |version: &str| {
        let call = gate.post(&format!("/agents/versioned@{version}/invoke")).header("idempotency-key", "k");
        send(call.json(&json!({}))).await
    };
    for replayed in [None, Some("true")] {
        let answer = call("1.0.0").await;
        assert_eq!(answer.is_ok()["number"], 0);
        let told = (answer.header("x-agent-version"), answer.header("idempotent-replayed"));
        assert_eq!(told, (Some("1.0.0"), replayed));
    }
    call("2.0.0").await.is_fault(422, "IdempotencyMismatch");
    assert_eq!(agent.calls(), 1);
}

#[tokio::test]
async fn r45_r33_an_empty_answer_keeps_no_enforced_contract_with_a_key_either() {
    let agent = Agent::doing(answer("200 OK", "application/json", "")).await;
    let mut document = agent.document("strict");
    document["outputs"] = json!({"type": "object"});
    let gate = gateway().section("contract: {output: enforce}\n").document(document).start().await;
    gate.invoke("strict", &json!({})).await.is_fault(502, "AgentError");
    keyed(&gate, "team-a", "strict", "k", &json!({})).await.is_fault(502, "AgentError");
}

#[tokio::test]
async fn r44_r45_no_two_items_of_a_batch_have_the_same_key_for_their_agent() {
    let agent = Agent::echo().await;
    let gate = gateway().agent("one", &agent).start().await;
    keyed(&gate, "team-a", "one", "k", &json!([{"a": 1}, {"a": 1}])).await.is_ok();
    let mut keys: Vec<String> =
        agent.got().iter().map(|got| got.header("idempotency-key").unwrap().to_owned()).collect();
    keys.sort();
    assert_eq!(keys, ["k.0", "k.1"]);
}

#[tokio::test]
async fn r45_duplicates_wait_for_the_first_even_where_the_agent_takes_one_call_at_a_time() {
    let hold = latch();
    let (held, count) = (hold.clone(), Arc::new(AtomicUsize::new(0)));
    let agent = Agent::scripted(move |_| {
        let number = count.fetch_add(1, Ordering::SeqCst);
        [vec![Do::Until(held.clone())], json_answer(&json!({ "number": number }))].concat()
    })
    .await;
    let rules = "agents:\n  from: [agents.json]\n  rules:\n    - {agents: ['*'], concurrency: 1}\n";
    let gate = gateway().section(rules).agent("one", &agent).start().await;
    let body = json!({});
    let all = join_all((0..20).map(|_| keyed(&gate, "team-a", "one", "k", &body)));
    let (answers, ()) = tokio::join!(all, async {
        eventually("the agent is called", async || agent.calls() == 1).await;
        eventually("all have come", async || gate.metric("gatepost_calls_in_flight").await >= Some(20.0)).await;
        hold.close();
    });
    assert!(answers.iter().all(|answer| answer.is_ok() == json!({"number": 0})));
    assert_eq!(answers.iter().filter(|answer| answer.header("idempotent-replayed").is_some()).count(), 19);
    assert_eq!(agent.calls(), 1);
}

#[tokio::test]
async fn r45_a_caller_that_left_finds_the_answer_when_it_asks_again() {
    let hold = latch();
    let (held, count) = (hold.clone(), Arc::new(AtomicUsize::new(0)));
    let agent = Agent::scripted(move |_| {
        let number = count.fetch_add(1, Ordering::SeqCst);
        [vec![Do::Until(held.clone())], json_answer(&json!({ "number": number }))].concat()
    })
    .await;
    let gate = gateway().agent("one", &agent).start().await;
    let left = gate.post("/agents/one/invoke").header("idempotency-key", "k").json(&json!({}));
    let left = tokio::spawn(left.send());
    eventually("the agent is called", async || agent.calls() == 1).await;
    left.abort();
    let _ = left.await;
    gate.log(1).await;
    hold.close();
    let again = keyed(&gate, "team-a", "one", "k", &json!({})).await;
    assert_eq!(again.is_ok(), json!({"number": 0}));
    assert_eq!((again.header("idempotent-replayed"), agent.calls()), (Some("true"), 1));
}

#[tokio::test]
async fn r45_what_may_have_run_is_not_run_again_and_what_was_never_begun_is() {
    let failing = Agent::doing(answer("500 Oops", "text/plain", "no")).await;
    let busy = Agent::doing(answer("503 Busy", "text/plain", "no")).await;
    let gone = Agent::echo().await;
    let gate = gateway().agent("failing", &failing).agent("busy", &busy).agent("gone", &gone).start().await;
    for (agent, status, calls) in [("failing", 500, 1), ("busy", 503, 2)] {
        for _ in 0..2 {
            assert_eq!(keyed(&gate, "team-a", agent, "k", &json!({})).await.status, status);
        }
        let agent = if agent == "busy" { &busy } else { &failing };
        assert_eq!(agent.calls(), calls);
    }
    let address = gone.url().split('/').nth(2).unwrap().to_owned();
    drop(gone);
    eventually("nobody listens there", async || tokio::net::TcpStream::connect(&address).await.is_err()).await;
    keyed(&gate, "team-a", "gone", "k", &json!({})).await.is_fault(503, "AgentUnavailable");
    keyed(&gate, "team-a", "gone", "k", &json!({"other": "body"})).await.is_fault(503, "AgentUnavailable");
}

#[tokio::test]
async fn r45_what_never_reached_an_agent_may_be_tried_again_whatever_it_is_called() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut document = Agent::echo().await.document("untrusted");
    document["endpoint"] = json!(format!("https://{}/x", listener.local_addr().unwrap()));
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.write_all(b"this is no TLS\r\n\r\n").await;
        }
    });
    let gate = gateway().document(document).start().await;
    for _ in 0..2 {
        let answer = keyed(&gate, "team-a", "untrusted", "k", &json!({})).await;
        answer.is_fault(502, "AgentError");
        assert_eq!(answer.header("idempotent-replayed"), None);
    }
}

#[tokio::test]
async fn r45_a_stream_or_an_answer_that_is_too_large_is_given_once_and_the_duplicate_is_told() {
    let events = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: 1\n\n";
    let stream = Agent::doing(vec![write(events), Do::Close]).await;
    let large = Agent::doing(json_answer(&json!("x".repeat(5_000)))).await;
    let section = "idempotency:\n  max_answer: 1KiB\n";
    let gate = gateway().section(section).agent("stream", &stream).agent("large", &large).start().await;
    for agent in ["stream", "large"] {
        let first = keyed(&gate, "team-a", agent, "k", &json!({})).await;
        assert_eq!(first.status, 200, "{}", first.text());
        assert!(!first.body.is_empty());
        keyed(&gate, "team-a", agent, "k", &json!({})).await.is_fault(409, "Conflict");
    }
    assert_eq!((stream.calls(), large.calls()), (1, 1));
}

#[tokio::test]
async fn r45_a_key_that_is_none_is_refused_and_a_bad_input_takes_none() {
    let agent = counting().await;
    let mut document = agent.document("strict");
    document["inputs"] = json!({"type": "object", "required": ["a"]});
    let gate = gateway().document(document).start().await;
    for key in ["a b", &"x".repeat(256), ""] {
        keyed(&gate, "team-a", "strict", key, &json!({"a": 1})).await.is_fault(400, "InvalidInput");
    }
    keyed(&gate, "team-a", "strict", "k", &json!({})).await.is_fault(400, "InvalidInput");
    keyed(&gate, "team-a", "strict", "k", &json!({"a": 1})).await.is_ok();
    assert_eq!(agent.calls(), 1);
}

#[tokio::test]
async fn r45_a_key_with_a_call_that_is_answered_later_leads_to_one_task() {
    let agent = counting().await;
    let gate = gateway().section("tasks: {store: tasks.db}\n").agent("one", &agent).start().await;
    let begin = async || {
        let call = gate.post("/agents/one/invoke").header("idempotency-key", "k").header("prefer", "respond-async");
        send(call.json(&json!({}))).await
    };
    let (first, again) = (begin().await, begin().await);
    assert_eq!((first.status, again.status), (202, 202), "{}", again.text());
    assert_eq!(first.header("location"), again.header("location"));
    assert_eq!(again.header("idempotent-replayed"), Some("true"));
    eventually("the agent is called", async || agent.calls() == 1).await;
}
