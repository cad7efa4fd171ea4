//! Agents over MQTT beside other endpoints: failover, circuit breaker, pipeline steps, and many calls while the broker
//! dies or an agent stops reading.

use super::support::{
    mosquitto::Mosquitto,
    mqtt_task_agent::{ProxyFault, Publication, TaskAgent, response_payload, start_broker_proxy},
};
use crate::support::{
    TEST_TIMEOUT,
    agent::Agent,
    eventually,
    gateway::{Gateway, gateway, send},
};
use futures_util::future::join_all;
use serde_json::{Value, json};
use std::{
    collections::HashMap,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    time::Instant,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

fn document(broker: &Mosquitto, id: &str) -> Value {
    json!({"id": id, "name": id, "endpoint": format!("{}/control/agents/{id}/input", broker.url())})
}

/// A section with these settings for all agents.
fn settings(more: &str) -> String {
    format!("agents:\n  sources: [agents.json]\n  rules:\n    - agents: ['*']\n      settings: {{{more}}}\n")
}

#[tokio::test]
async fn r45_a_call_fails_over_when_the_broker_is_unreachable_or_the_agent_is_not_connected() {
    let (empty, unreachable) = (Mosquitto::start().await, Mosquitto::stopped("allow_anonymous true\n"));
    let other = Agent::echo().await;
    for broker in [&empty, &unreachable] {
        let rule = settings(&format!("timeouts: {{connect: 1s}}, additional_endpoints: ['{}']", other.url()));
        let gate = gateway().section(&rule).document(document(broker, "a")).start().await;
        for n in 0..4 {
            assert_eq!(gate.invoke("a", &json!({"n": n})).await.expect_ok(), json!({"echo": {"n": n}}));
        }
    }
    assert_eq!(other.call_count(), 8);
}

#[tokio::test]
async fn r118_a_broker_that_closes_connections_for_subscriptions_to_statuses_serves_every_call() {
    let broker = Mosquitto::start().await;
    let agents = [TaskAgent::echo(broker.port, "a").await, TaskAgent::echo(broker.port, "b").await];
    let port = start_broker_proxy(broker.port, ProxyFault::ClosesOnStatusSubscription).await.port();
    let of = |id: &str| json!({"id": id, "name": id, "endpoint": format!("mqtt://127.0.0.1:{port}/control/agents/{id}/input")});
    let gate = gateway().document(of("a")).document(of("b")).start().await;
    let input = json!({"n": 1});
    let calls = ["a", "a", "b", "a"].map(|id| gate.invoke(id, &input));
    for answer in join_all(calls).await {
        assert_eq!(answer.expect_ok(), json!({"echo": {"n": 1}}));
    }
    assert_eq!(gate.invoke("b", &input).await.expect_ok(), json!({"echo": {"n": 1}}));
    assert_eq!(agents.each_ref().map(|agent| agent.tasks().len()), [3, 2], "each task once");
    assert_eq!(gate.stderr().matches("statuses of agents are not read").count(), 1);
}

#[tokio::test]
async fn r118_last_wills_end_calls_after_one_connection_was_lost_during_a_subscription_to_statuses() {
    let broker = Mosquitto::start().await;
    let (echo, dying) =
        (TaskAgent::echo(broker.port, "a").await, TaskAgent::start(broker.port, "b", |_| Vec::new()).await);
    let presence = broker.connect_agent("b").await;
    let port = start_broker_proxy(broker.port, ProxyFault::ClosesOnceOnStatusSubscription).await.port();
    let of = |id: &str| json!({"id": id, "name": id, "endpoint": format!("mqtt://127.0.0.1:{port}/control/agents/{id}/input")});
    let gate = gateway().document(of("a")).document(of("b")).start().await;
    let input = json!({"n": 1});
    assert_eq!(gate.invoke("a", &input).await.expect_ok(), json!({"echo": {"n": 1}}));
    assert_eq!(echo.tasks().len(), 1);
    let death = async {
        eventually("the agent has its task", async || dying.tasks().len() == 1).await;
        presence.kill();
    };
    let (lost, ()) = tokio::join!(gate.invoke("b", &input), death);
    lost.expect_fault(502, "AgentError");
    assert!(!gate.stderr().contains("statuses of agents are not read"));
}

#[tokio::test]
async fn r45_a_lost_connection_and_an_unreachable_broker_open_the_circuit_breaker() {
    let mut broker = Mosquitto::start().await;
    let silent = TaskAgent::start(broker.port, "a", |_| Vec::new()).await;
    let rule = settings("timeouts: {connect: 1s}, circuit_breaker: {consecutive_failures: 2, open_duration: 1m}");
    let gate = gateway().section(&rule).document(document(&broker, "a")).start().await;
    let input = json!({});
    let call = gate.invoke("a", &input);
    let loss = async {
        eventually("the agent receives the task", async || silent.tasks().len() == 1).await;
        broker.kill();
    };
    let (lost, ()) = tokio::join!(call, loss);
    lost.expect_fault(502, "AgentError");
    let unavailable_message = |answer: crate::support::gateway_response::GatewayResponse| {
        answer.expect_fault(503, "AgentUnavailable");
        answer.json()["error"]["message"].as_str().unwrap().to_owned()
    };
    assert!(unavailable_message(gate.invoke("a", &input).await).contains("cannot be reached"));
    assert!(unavailable_message(gate.invoke("a", &input).await).contains("after repeated failures"));
}

#[tokio::test]
async fn r107_r108_an_endpoint_without_an_input_topic_is_refused_with_the_reason() {
    let broker = Mosquitto::stopped("");
    let mut odd = document(&broker, "odd");
    odd["endpoint"] = json!(format!("{}/control/agents/odd/status", broker.url()));
    let mut escaped = document(&broker, "named");
    escaped["endpoint"] = json!(format!("{}/control/agents/a%2Fb/input", broker.url()));
    let gate = gateway().document(odd).document(escaped).start().await;
    for agent in ["odd", "named"] {
        gate.invoke(agent, &json!({})).await.expect_fault(404, "NotFound");
    }
    let stderr = gate.stderr();
    assert!(stderr.contains("does not end with the input topic of an agent"), "{stderr}");
}

#[tokio::test]
async fn r110_r112_a_pipeline_step_over_mqtt_has_its_instruction_beside_the_input() {
    let broker = Mosquitto::start().await;
    let first = TaskAgent::start(broker.port, "first", |task| {
        vec![Publication::in_conversation(task, "first", response_payload(task, json!("a text")))]
    })
    .await;
    let second = TaskAgent::echo(broker.port, "second").await;
    let gate = gateway().document(document(&broker, "first")).document(document(&broker, "second")).start().await;
    let steps = json!([{"agent": "first", "instruction": "begin"}, {"agent": "second", "instruction": "go on"}]);
    let call = gate.post("/pipelines/invoke").json(&json!({"steps": steps, "input": {"a": 1}}));
    assert_eq!(send(call).await.expect_ok(), json!({"echo": "a text"}));
    let task_of = |worker: &TaskAgent| {
        let task = worker.tasks().remove(0).task;
        (task["instruction"].clone(), task["input"].clone())
    };
    assert_eq!(task_of(&first), (json!("begin"), json!({"a": 1})));
    assert_eq!(task_of(&second), (json!("go on"), json!("a text")));
}

/// Calls the agent `a` until `stop` is set, each time with another number. Returns the numbers with their statuses.
async fn call_until_stopped(gate: &Gateway, number: &AtomicUsize, stop: &AtomicBool) -> Vec<(usize, u16)> {
    let mut results = Vec::new();
    while !stop.load(SeqCst) {
        let (n, started) = (number.fetch_add(1, SeqCst), Instant::now());
        let answer = gate.invoke("a", &json!({"n": n})).await;
        match answer.status {
            200 => assert_eq!(answer.json(), json!({"n": n})),
            502..=504 => assert!(answer.json()["error"]["code"].is_string()),
            other => panic!("{other}: {}", answer.text()),
        }
        assert!(started.elapsed() < TEST_TIMEOUT, "{:?}", started.elapsed());
        results.push((n, answer.status));
    }
    results
}

#[tokio::test]
async fn r105_a_broker_killed_during_many_calls_fails_them_cleanly_and_repeats_no_task() {
    let mut broker = Mosquitto::start().await;
    let port = broker.port;
    let start_worker = || {
        TaskAgent::start(port, "a", |task| {
            vec![Publication::in_conversation(task, "a", response_payload(task, task["input"].clone())).after_millis(5)]
        })
    };
    let mut workers = vec![start_worker().await];
    let mut concurrent = document(&broker, "a");
    concurrent["max_concurrency"] = json!(8);
    let rule = settings("timeouts: {connect: 1s, first_byte: 3s}, circuit_breaker: {consecutive_failures: 0}");
    let gate = gateway().section(&rule).document(concurrent).start().await;
    let (number, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
    let calls = join_all((0..6).map(|_| call_until_stopped(&gate, &number, &stop)));
    let restarts = async {
        for round in 0..3 {
            let worker = workers.last().unwrap();
            eventually("calls are answered", async || worker.tasks().len() >= 40).await;
            if round < 2 {
                broker.restart().await;
                workers.push(start_worker().await);
            }
        }
        stop.store(true, SeqCst);
    };
    let (results, ()) = tokio::join!(calls, restarts);
    let mut task_counts: HashMap<u64, usize> = HashMap::new();
    for got in workers.iter().flat_map(TaskAgent::tasks) {
        *task_counts.entry(got.task["input"]["n"].as_u64().unwrap()).or_default() += 1;
    }
    assert!(task_counts.values().all(|count| *count == 1), "an agent received a task twice");
    let results: Vec<(usize, u16)> = results.into_iter().flatten().collect();
    assert!(results.iter().all(|(n, status)| *status != 200 || task_counts.contains_key(&(*n as u64))));
    assert_eq!(results.len(), number.load(SeqCst), "a call never ended");
}

/// Subscribes like the agent `id`, and then reads nothing.
async fn subscribe_without_reading(port: u16, id: &str) -> TcpStream {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    stream.write_all(b"\x10\x10\x00\x04MQTT\x04\x02\x00\x00\x00\x04deaf").await.unwrap();
    let topic = format!("/control/agents/{id}/input");
    let mut subscribe = vec![0x82, topic.len() as u8 + 5, 0, 1, 0, topic.len() as u8];
    subscribe.extend_from_slice(topic.as_bytes());
    subscribe.push(1);
    stream.write_all(&subscribe).await.unwrap();
    // CONNACK and SUBACK
    stream.read_exact(&mut [0; 9]).await.unwrap();
    stream
}

#[tokio::test]
async fn an_agent_that_reads_nothing_delays_only_its_own_calls() {
    let broker = Mosquitto::start().await;
    let _subscriber = subscribe_without_reading(broker.port, "stuck").await;
    let _worker = TaskAgent::echo(broker.port, "a").await;
    let mut stuck = document(&broker, "stuck");
    stuck["max_concurrency"] = json!(16);
    let rule = settings("timeouts: {first_byte: 2s}, circuit_breaker: {consecutive_failures: 0}");
    let limits = "limits: {max_share: 1}\n";
    let documents = gateway().section(&rule).section(limits).document(stuck).document(document(&broker, "a"));
    let gate = documents.start().await;
    let long = json!({"text": "x".repeat(200 << 10)});
    let calls = join_all((0..16).map(|_| gate.invoke("stuck", &long)));
    let others = async {
        for n in 0..20 {
            assert_eq!(gate.invoke("a", &json!({"n": n})).await.expect_ok(), json!({"echo": {"n": n}}));
        }
    };
    let started = Instant::now();
    let (calls, ()) = tokio::join!(calls, others);
    for call in calls {
        call.expect_fault(504, "Timeout");
    }
    assert!(started.elapsed() < TEST_TIMEOUT);
}
