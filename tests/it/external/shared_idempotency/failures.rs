//! What callers with idempotency keys see while a gateway, or the server of the shared state, is gone, paused, empty or
//! replaced.

use super::{counting_agent::CountingAgent, process, servers};
use crate::{
    explain::Call,
    external::support::{sentinel::RedisWithSentinel, state_server::StateServer},
    support::{
        eventually, eventually_within,
        gateway::{Gateway, send},
        gateway_response::GatewayResponse,
    },
};
use rustix::process::Signal;
use serde_json::json;
use std::time::{Duration, Instant};

/// How long gateways may take to notice that the server is back.
const RECOVERY_TIME: Duration = Duration::from_secs(15);

async fn call(gate: &Gateway, key: &str) -> GatewayResponse {
    send(gate.post("/agents/counter/invoke").header("idempotency-key", key).json(&json!({"key": key}))).await
}

async fn two_gateways(server: &StateServer, agent: &CountingAgent, idempotency: &str) -> [Gateway; 2] {
    let start = || process(&server.section(), idempotency).document(agent.document("counter")).start();
    [start().await, start().await]
}

fn is_unknown(response: &GatewayResponse) -> bool {
    response.status == 409 && response.text().contains("is unknown")
}

#[tokio::test]
async fn r45_a_call_at_one_gateway_is_answered_by_the_other_and_reaches_the_agent_once() {
    for server in servers().await {
        let agent = CountingAgent::start(Duration::from_millis(300)).await;
        let [one, other] = two_gateways(&server, &agent, "{}").await;
        let calls = (0..20).map(|n| call(if n % 2 == 0 { &one } else { &other }, "k"));
        for response in futures_util::future::join_all(calls).await {
            assert_eq!(response.expect_ok(), json!({"key": "k", "execution": 1}));
        }
        let replayed = call(&other, "k").await;
        assert_eq!((replayed.status, replayed.header("idempotent-replayed")), (200, Some("true")));
        let other_body = one.post("/agents/counter/invoke").header("idempotency-key", "k").json(&json!({"key": "x"}));
        send(other_body).await.expect_fault(422, "IdempotencyMismatch");
        assert_eq!(agent.executions_of("k"), 1);
    }
}

#[tokio::test]
async fn r45_explanations_claim_no_key() {
    let server = StateServer::redis().await;
    let agent = CountingAgent::start(Duration::ZERO).await;
    let gate = process(&server.section(), "{}").document(agent.document("counter")).start().await;
    let request = Call::post("/agents/counter/invoke", "{}").header("idempotency-key", "k");
    assert_eq!(request.explain(&gate).await["verdict"], "admitted");
    assert_eq!(server.idempotency_keys().await, 0);
    assert_eq!(request.make(&gate).await.status, 200);
    assert_eq!(server.idempotency_keys().await, 1);
}

#[tokio::test]
async fn r45_after_its_gateway_was_killed_a_call_is_unknown_everywhere_and_never_repeated() {
    for server in servers().await {
        let agent = CountingAgent::start(Duration::from_secs(120)).await;
        let [one, other] = two_gateways(&server, &agent, "{}").await;
        let request = one.post("/agents/counter/invoke").header("idempotency-key", "k").json(&json!({"key": "k"}));
        let lost = tokio::spawn(request.send());
        eventually("the agent has the call", async || agent.executions_of("k") == 1).await;
        one.send_signal(Signal::KILL);
        assert!(lost.await.unwrap().is_err());
        let started = Instant::now();
        // The caller asks again, waits for the lease to end, and is told.
        let answer = call(&other, "k").await;
        assert!(is_unknown(&answer), "{}", answer.text());
        assert!((3..10).contains(&started.elapsed().as_secs()), "{:?}", started.elapsed());
        let fault = call(&other, "k").await.expect_fault(409, "Conflict");
        assert!(fault["message"].as_str().unwrap().contains("the agent may have executed the call"), "{fault}");
        assert_eq!(agent.executions_of("k"), 1);
    }
}

#[tokio::test]
async fn r45_a_gateway_that_wakes_up_after_its_lease_completes_its_call_and_no_other_is_made() {
    for server in servers().await {
        let agent = CountingAgent::start(Duration::from_secs(2)).await;
        let [one, other] = two_gateways(&server, &agent, "{}").await;
        let request = one.post("/agents/counter/invoke").header("idempotency-key", "k").json(&json!({"key": "k"}));
        let paused = tokio::spawn(request.send());
        eventually("the agent has the call", async || agent.executions_of("k") == 1).await;
        one.send_signal(Signal::STOP);
        eventually_within(RECOVERY_TIME, "the outcome is unknown", async || is_unknown(&call(&other, "k").await)).await;
        one.send_signal(Signal::CONT);
        assert_eq!(paused.await.unwrap().unwrap().status().as_u16(), 200);
        eventually("the stored answer is there", async || call(&other, "k").await.status == 200).await;
        assert_eq!(agent.executions_of("k"), 1);
    }
}

#[tokio::test]
async fn r45_a_gateway_that_stops_stores_the_answers_of_calls_whose_callers_have_left() {
    for server in servers().await {
        let agent = CountingAgent::start(Duration::from_secs(3)).await;
        let [mut one, other] = two_gateways(&server, &agent, "{}").await;
        let request = one.post("/agents/counter/invoke").header("idempotency-key", "k").json(&json!({"key": "k"}));
        let left = tokio::spawn(request.send());
        eventually("the agent has the call", async || agent.executions_of("k") == 1).await;
        left.abort();
        one.send_signal(Signal::TERM);
        one.wait_for_exit().await;
        assert_eq!(call(&other, "k").await.expect_ok()["execution"], 1);
        assert_eq!(agent.executions_of("k"), 1);
    }
}

#[tokio::test]
async fn r45_while_the_server_is_paused_or_gone_keys_are_503_and_calls_without_a_key_are_made() {
    for mut server in servers().await {
        let agent = CountingAgent::start(Duration::ZERO).await;
        let [one, other] = two_gateways(&server, &agent, "{store_timeout: 200ms}").await;
        assert_eq!(call(&one, "before").await.status, 200);
        for is_pause in [true, false] {
            if is_pause {
                server.pause();
            } else {
                server.stop();
            }
            for (number, gate) in [&one, &other, &one, &other].into_iter().enumerate() {
                let started = Instant::now();
                let refused = call(gate, &format!("{is_pause}-{number}")).await;
                refused.expect_fault(503, "Overloaded");
                assert_eq!(refused.header("retry-after"), Some("1"));
                assert!(started.elapsed() < Duration::from_secs(1), "{:?}", started.elapsed());
                one.invoke("counter", &json!({})).await.expect_ok();
            }
            if is_pause {
                server.resume();
            } else {
                server.restart().await;
            }
            for (number, gate) in [&other, &one, &other, &one].into_iter().enumerate() {
                let key = format!("{is_pause}-{number}");
                eventually_within(RECOVERY_TIME, "the key is claimed", async || call(gate, &key).await.status == 200)
                    .await;
                assert_eq!(agent.executions_of(&key), 1);
            }
        }
        assert_eq!(call(&other, "before").await.header("idempotent-replayed"), Some("true"));
        assert_eq!(agent.executions_of("before"), 1);
    }
}

#[tokio::test]
async fn r45_after_a_restart_without_data_keys_are_503_for_a_ttl_and_then_claimed() {
    for mut server in servers().await {
        let agent = CountingAgent::start(Duration::ZERO).await;
        let [one, other] = two_gateways(&server, &agent, "{ttl: 4s}").await;
        assert_eq!(call(&one, "before").await.status, 200);
        assert_eq!(call(&other, "before").await.status, 200);
        server.lose_data().await;
        let lost_at = Instant::now();
        let refusal = "refuses new ones until it is certain";
        for gate in [&one, &other] {
            eventually_within(RECOVERY_TIME, "the loss is found", async || {
                let response = call(gate, "before").await;
                assert_eq!(response.status, 503, "{}", response.text());
                response.text().contains(refusal)
            })
            .await;
            one.invoke("counter", &json!({})).await.expect_ok();
        }
        let started = process(&server.section(), "{ttl: 4s}").document(agent.document("counter")).start().await;
        let response = call(&started, "new").await;
        assert!(response.text().contains(refusal), "a gateway that starts now: {}", response.text());
        eventually_within(RECOVERY_TIME, "keys are claimed", async || call(&started, "new").await.status == 200).await;
        assert!(lost_at.elapsed() > Duration::from_secs(8), "{:?}", lost_at.elapsed());
        assert_eq!(agent.executions_of("before"), 1);
    }
}

#[tokio::test]
async fn r45_after_a_restart_without_data_keys_are_claimed_if_the_operator_wants_it() {
    for mut server in servers().await {
        let agent = CountingAgent::start(Duration::ZERO).await;
        let [one, other] = two_gateways(&server, &agent, "{on_data_loss: open}").await;
        assert_eq!(call(&one, "before").await.status, 200);
        server.lose_data().await;
        eventually_within(RECOVERY_TIME, "the key is claimed", async || call(&other, "before").await.status == 200)
            .await;
        assert_eq!(agent.executions_of("before"), 2, "this is what the operator accepts");
        let losses = async || one.metric("gatepost_events_total{event=\"idempotency_keys_lost\"}").await;
        eventually("the loss is counted", async || losses().await == Some(1.0)).await;
    }
}

#[tokio::test]
async fn r45_after_a_failover_to_a_replica_keys_are_known() {
    let mut redis = RedisWithSentinel::start().await;
    let agent = CountingAgent::start(Duration::ZERO).await;
    let state = json!({"redis": redis.section()});
    let start = || process(&state, "{store_timeout: 1s}").document(agent.document("counter")).start();
    let (one, other) = (start().await, start().await);
    for number in 0..20 {
        assert_eq!(call(&one, &format!("k{number}")).await.status, 200);
    }
    redis.wait_for_replica().await;
    redis.fail_over().await;
    for number in 0..20 {
        let key = format!("k{number}");
        eventually_within(Duration::from_secs(30), "the new primary answers", async || {
            call(&other, &key).await.status == 200
        })
        .await;
        assert_eq!(agent.executions_of(&key), 1);
    }
    assert_eq!(one.metric("gatepost_events_total{event=\"idempotency_keys_lost\"}").await, Some(0.0));
    eventually_within(Duration::from_secs(30), "a key is claimed", async || call(&one, "after").await.status == 200)
        .await;
}

#[tokio::test]
async fn r45_a_server_that_comes_back_with_older_data_is_found_by_the_gateway_that_knows_better() {
    for mut server in servers().await {
        let agent = CountingAgent::start(Duration::ZERO).await;
        let [one, other] = two_gateways(&server, &agent, "{ttl: 1m}").await;
        assert_eq!(call(&one, "old").await.status, 200);
        let backup = server.back_up().await;
        eventually_within(RECOVERY_TIME, "the server is back", async || call(&one, "new").await.status == 200).await;
        server.restore(&backup).await;
        // As after a failover to a replica that is behind. Until the gateway that knows better has looked, which takes a
        // second, the other cannot know.
        let losses = async || one.metric("gatepost_events_total{event=\"idempotency_keys_lost\"}").await;
        eventually_within(RECOVERY_TIME, "the loss is found", async || losses().await == Some(1.0)).await;
        eventually_within(RECOVERY_TIME, "the old key is known", async || call(&other, "old").await.status == 200)
            .await;
        assert_eq!(call(&one, "old").await.header("idempotent-replayed"), Some("true"));
        for gate in [&one, &other] {
            call(gate, "new").await.expect_fault(503, "Overloaded");
        }
        assert_eq!((agent.executions_of("old"), agent.executions_of("new")), (1, 1));
    }
}
