//! Calls with an idempotency key: replayed responses, concurrent duplicates, different bodies, and responses that are
//! not stored.

use crate::support::{
    agent::{Agent, Step, http_response, json_response, latch, write},
    eventually,
    gateway::{Gateway, gateway, send},
    gateway_response::GatewayResponse,
};
use futures_util::future::join_all;
use serde_json::{Value, json};
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};
use tokio::io::AsyncWriteExt;

async fn call_with_key(gate: &Gateway, caller: &str, agent: &str, key: &str, body: &Value) -> GatewayResponse {
    let call = gate.request("POST", &format!("/agents/{agent}/invoke")).header("x-api-key", gate.key(caller));
    send(call.header("idempotency-key", key).json(body)).await
}

/// An agent that answers each request with its number.
async fn counting_agent() -> Agent {
    let count = Arc::new(AtomicUsize::new(0));
    Agent::scripted(move |_| json_response(&json!({ "number": count.fetch_add(1, Ordering::SeqCst) }))).await
}

#[tokio::test]
async fn r45_the_first_response_is_replayed_for_the_same_caller_and_agent_only() {
    let agent = counting_agent().await;
    let gate = gateway().agent("one", &agent).agent("two", &agent).caller("team-b", &[]).start().await;
    let first = call_with_key(&gate, "team-a", "one", "k", &json!({"a": 1})).await;
    assert_eq!((first.expect_ok(), first.header("idempotent-replayed")), (json!({"number": 0}), None));
    for _ in 0..3 {
        let replayed = call_with_key(&gate, "team-a", "one", "k", &json!({"a": 1})).await;
        assert_eq!(
            (replayed.expect_ok(), replayed.header("idempotent-replayed")),
            (json!({"number": 0}), Some("true"))
        );
        assert_eq!(replayed.header("content-type"), first.header("content-type"));
        assert_ne!(replayed.header("x-request-id"), first.header("x-request-id"));
    }
    assert_eq!(call_with_key(&gate, "team-a", "two", "k", &json!({"a": 1})).await.expect_ok()["number"], 1);
    assert_eq!(call_with_key(&gate, "team-b", "one", "k", &json!({"a": 1})).await.expect_ok()["number"], 2);
    assert_eq!(call_with_key(&gate, "team-a", "one", "other", &json!({"a": 1})).await.expect_ok()["number"], 3);
    assert_eq!(gate.metric("gatepost_events_total{event=\"response_replayed\"}").await, Some(3.0));
    assert_eq!(agent.requests()[0].header("idempotency-key"), Some("k"), "the agent gets the key as well");
}

#[tokio::test]
async fn r45_another_body_or_operation_with_the_same_key_is_422_and_does_not_reach_the_agent() {
    let agent = counting_agent().await;
    let mut document = agent.document("ops");
    document["operations"] = json!([{"name": "a"}, {"name": "b"}]);
    let gate = gateway().agent("one", &agent).document(document).start().await;
    call_with_key(&gate, "team-a", "one", "k", &json!({"a": 1})).await.expect_ok();
    for other_body in [json!({"a": 2}), json!({}), json!([1]), json!([{"a": 1}])] {
        call_with_key(&gate, "team-a", "one", "k", &other_body).await.expect_fault(422, "IdempotencyMismatch");
    }
    let call_operation = async |name: &str| {
        let call = gate.post(&format!("/agents/ops/invoke/{name}")).header("idempotency-key", "k");
        send(call.json(&json!({}))).await
    };
    call_operation("a").await.expect_ok();
    call_operation("b").await.expect_fault(422, "IdempotencyMismatch");
    assert_eq!(agent.call_count(), 2);
}

#[tokio::test]
async fn r45_r68_another_version_in_the_path_is_another_call_and_a_replay_names_its_version() {
    let agent = counting_agent().await;
    let mut document = agent.document("versioned");
    document["version"] = json!("2.0.0");
    document["supportedVersions"] = json!({"1.0.0": "/v1"});
    let gate = gateway().document(document).start().await;
    let call = async |version: &str| {
        let call = gate.post(&format!("/agents/versioned@{version}/invoke")).header("idempotency-key", "k");
        send(call.json(&json!({}))).await
    };
    for replayed in [None, Some("true")] {
        let response = call("1.0.0").await;
        assert_eq!(response.expect_ok()["number"], 0);
        let version_and_replayed = (response.header("x-agent-version"), response.header("idempotent-replayed"));
        assert_eq!(version_and_replayed, (Some("1.0.0"), replayed));
    }
    call("2.0.0").await.expect_fault(422, "IdempotencyMismatch");
    assert_eq!(agent.call_count(), 1);
}

#[tokio::test]
async fn r45_r33_an_empty_response_violates_an_enforced_schema_with_a_key_as_well() {
    let agent = Agent::with_steps(http_response("200 OK", "application/json", "")).await;
    let mut document = agent.document("strict");
    document["outputs"] = json!({"type": "object"});
    let gate = gateway().section("contract: {output: enforce}\n").document(document).start().await;
    gate.invoke("strict", &json!({})).await.expect_fault(502, "AgentError");
    call_with_key(&gate, "team-a", "strict", "k", &json!({})).await.expect_fault(502, "AgentError");
}

#[tokio::test]
async fn r44_r45_each_item_of_a_batch_reaches_the_agent_with_its_own_key() {
    let agent = Agent::echo().await;
    let gate = gateway().agent("one", &agent).start().await;
    call_with_key(&gate, "team-a", "one", "k", &json!([{"a": 1}, {"a": 1}])).await.expect_ok();
    let mut keys: Vec<String> =
        agent.requests().iter().map(|request| request.header("idempotency-key").unwrap().to_owned()).collect();
    keys.sort();
    assert_eq!(keys, ["k.0", "k.1"]);
}

#[tokio::test]
async fn r45_duplicates_wait_for_the_first_call_even_with_a_concurrency_limit_of_one() {
    let agent_latch = latch();
    let (script_latch, count) = (agent_latch.clone(), Arc::new(AtomicUsize::new(0)));
    let agent = Agent::scripted(move |_| {
        let number = count.fetch_add(1, Ordering::SeqCst);
        [vec![Step::WaitForLatch(script_latch.clone())], json_response(&json!({ "number": number }))].concat()
    })
    .await;
    let rules = "agents:\n  sources: [agents.json]\n  rules:\n    - {agents: ['*'], max_concurrency: 1}\n";
    let gate = gateway().section(rules).agent("one", &agent).start().await;
    let body = json!({});
    let calls = join_all((0..20).map(|_| call_with_key(&gate, "team-a", "one", "k", &body)));
    let (answers, ()) = tokio::join!(calls, async {
        eventually("the agent is called", async || agent.call_count() == 1).await;
        let in_flight = async || gate.metric("gatepost_calls_in_flight").await;
        eventually("all calls are in flight", async || in_flight().await >= Some(20.0)).await;
        agent_latch.close();
    });
    assert!(answers.iter().all(|response| response.expect_ok() == json!({"number": 0})));
    assert_eq!(answers.iter().filter(|response| response.header("idempotent-replayed").is_some()).count(), 19);
    assert_eq!(agent.call_count(), 1);
}

#[tokio::test]
async fn r45_a_caller_that_disconnected_gets_the_response_when_it_repeats_the_call() {
    let agent_latch = latch();
    let (script_latch, count) = (agent_latch.clone(), Arc::new(AtomicUsize::new(0)));
    let agent = Agent::scripted(move |_| {
        let number = count.fetch_add(1, Ordering::SeqCst);
        [vec![Step::WaitForLatch(script_latch.clone())], json_response(&json!({ "number": number }))].concat()
    })
    .await;
    let gate = gateway().agent("one", &agent).start().await;
    let disconnected = gate.post("/agents/one/invoke").header("idempotency-key", "k").json(&json!({}));
    let disconnected = tokio::spawn(disconnected.send());
    eventually("the agent is called", async || agent.call_count() == 1).await;
    disconnected.abort();
    let _ = disconnected.await;
    gate.access_log(1).await;
    agent_latch.close();
    let repeated = call_with_key(&gate, "team-a", "one", "k", &json!({})).await;
    assert_eq!(repeated.expect_ok(), json!({"number": 0}));
    assert_eq!((repeated.header("idempotent-replayed"), agent.call_count()), (Some("true"), 1));
}

#[tokio::test]
async fn r45_only_a_call_that_the_agent_did_not_process_runs_again() {
    let failing = Agent::with_steps(http_response("500 Oops", "text/plain", "no")).await;
    let busy = Agent::with_steps(http_response("503 Busy", "text/plain", "no")).await;
    let closed = Agent::echo().await;
    let gate = gateway().agent("failing", &failing).agent("busy", &busy).agent("closed", &closed).start().await;
    for (agent, status, calls) in [("failing", 500, 1), ("busy", 503, 2)] {
        for _ in 0..2 {
            assert_eq!(call_with_key(&gate, "team-a", agent, "k", &json!({})).await.status, status);
        }
        let agent = if agent == "busy" { &busy } else { &failing };
        assert_eq!(agent.call_count(), calls);
    }
    let address = closed.url().split('/').nth(2).unwrap().to_owned();
    drop(closed);
    let refuses = async || tokio::net::TcpStream::connect(&address).await.is_err();
    eventually("nothing listens at the address", refuses).await;
    call_with_key(&gate, "team-a", "closed", "k", &json!({})).await.expect_fault(503, "AgentUnavailable");
    call_with_key(&gate, "team-a", "closed", "k", &json!({"other": "body"}))
        .await
        .expect_fault(503, "AgentUnavailable");
}

#[tokio::test]
async fn r45_a_call_that_did_not_reach_the_agent_is_never_replayed() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut document = Agent::echo().await.document("untrusted");
    document["endpoint"] = json!(format!("https://{}/x", listener.local_addr().unwrap()));
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.write_all(b"this is not TLS\r\n\r\n").await;
        }
    });
    let gate = gateway().document(document).start().await;
    for _ in 0..2 {
        let response = call_with_key(&gate, "team-a", "untrusted", "k", &json!({})).await;
        response.expect_fault(502, "AgentError");
        assert_eq!(response.header("idempotent-replayed"), None);
    }
}

#[tokio::test]
async fn r45_a_stream_or_a_large_response_is_not_stored_and_a_duplicate_gets_409() {
    let events = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: 1\n\n";
    let stream = Agent::with_steps(vec![write(events), Step::Close]).await;
    let large = Agent::with_steps(json_response(&json!("x".repeat(5_000)))).await;
    let section = "idempotency:\n  max_response_size: 1KiB\n";
    let gate = gateway().section(section).agent("stream", &stream).agent("large", &large).start().await;
    for agent in ["stream", "large"] {
        let first = call_with_key(&gate, "team-a", agent, "k", &json!({})).await;
        assert_eq!(first.status, 200, "{}", first.text());
        assert!(!first.body.is_empty());
        call_with_key(&gate, "team-a", agent, "k", &json!({})).await.expect_fault(409, "Conflict");
    }
    assert_eq!((stream.call_count(), large.call_count()), (1, 1));
}

#[tokio::test]
async fn r45_an_invalid_key_is_refused_and_an_invalid_input_does_not_use_up_the_key() {
    let agent = counting_agent().await;
    let mut document = agent.document("strict");
    document["inputs"] = json!({"type": "object", "required": ["a"]});
    let gate = gateway().document(document).start().await;
    for key in ["a b", &"x".repeat(256), ""] {
        call_with_key(&gate, "team-a", "strict", key, &json!({"a": 1})).await.expect_fault(400, "InvalidInput");
    }
    call_with_key(&gate, "team-a", "strict", "k", &json!({})).await.expect_fault(400, "InvalidInput");
    call_with_key(&gate, "team-a", "strict", "k", &json!({"a": 1})).await.expect_ok();
    assert_eq!(agent.call_count(), 1);
}

#[tokio::test]
async fn r45_asynchronous_calls_with_the_same_key_start_one_task() {
    let agent = counting_agent().await;
    let gate = gateway().section("tasks: {sqlite_file: tasks.db}\n").agent("one", &agent).start().await;
    let begin = async || {
        let call = gate.post("/agents/one/invoke").header("idempotency-key", "k").header("prefer", "respond-async");
        send(call.json(&json!({}))).await
    };
    let (first, repeated) = (begin().await, begin().await);
    assert_eq!((first.status, repeated.status), (202, 202), "{}", repeated.text());
    assert_eq!(first.header("location"), repeated.header("location"));
    assert_eq!(repeated.header("idempotent-replayed"), Some("true"));
    eventually("the agent is called", async || agent.call_count() == 1).await;
}
