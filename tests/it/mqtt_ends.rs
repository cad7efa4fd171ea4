//! Agents over MQTT as endpoints among others: what is tried elsewhere, what a breaker learns, what a pipeline says to
//! them, and what becomes of many calls when the broker dies under them or an agent reads nothing.

use crate::support::{
    PATIENCE,
    agent::Agent,
    eventually,
    gateway::{Gate, gateway, send},
    mosquitto::Mosquitto,
    worker::{Say, Worker, response},
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

/// Settings for all agents, in one line.
fn settings(more: &str) -> String {
    format!("agents:\n  from: [agents.json]\n  rules:\n    - agents: ['*']\n      settings: {{{more}}}\n")
}

#[tokio::test]
async fn r45_where_a_broker_or_its_agent_is_away_a_call_goes_to_the_next_endpoint() {
    let (empty, away) = (Mosquitto::start().await, Mosquitto::configured("allow_anonymous true\n"));
    let other = Agent::echo().await;
    for broker in [&empty, &away] {
        let rule = settings(&format!("timeouts: {{connect: 1s}}, endpoints: ['{}']", other.url()));
        let gate = gateway().section(&rule).document(document(broker, "a")).start().await;
        for n in 0..4 {
            assert_eq!(gate.invoke("a", &json!({"n": n})).await.is_ok(), json!({"echo": {"n": n}}));
        }
    }
    assert_eq!(other.calls(), 8);
}

#[tokio::test]
async fn r45_the_loss_of_a_broker_and_its_absence_open_the_breaker() {
    let mut broker = Mosquitto::start().await;
    let silent = Worker::start(broker.port, "a", |_| Vec::new()).await;
    let rule = settings("timeouts: {connect: 1s}, breaker: {failures: 2, open_for: 1m}");
    let gate = gateway().section(&rule).document(document(&broker, "a")).start().await;
    let nothing = json!({});
    let call = gate.invoke("a", &nothing);
    let loss = async {
        eventually("the task is there", async || silent.got().len() == 1).await;
        broker.kill();
    };
    let (lost, ()) = tokio::join!(call, loss);
    lost.is_fault(502, "AgentError");
    let told = |answer: crate::support::reply::Answer| {
        answer.is_fault(503, "AgentUnavailable");
        answer.json()["error"]["message"].as_str().unwrap().to_owned()
    };
    assert!(told(gate.invoke("a", &nothing).await).contains("cannot be reached"));
    assert!(told(gate.invoke("a", &nothing).await).contains("after repeated failures"));
}

#[tokio::test]
async fn r107_r108_an_endpoint_that_is_no_agents_input_topic_is_refused_by_name() {
    let broker = Mosquitto::configured("");
    let mut odd = document(&broker, "odd");
    odd["endpoint"] = json!(format!("{}/control/agents/odd/status", broker.url()));
    let mut named = document(&broker, "named");
    named["endpoint"] = json!(format!("{}/control/agents/a%2Fb/input", broker.url()));
    let gate = gateway().document(odd).document(named).start().await;
    for agent in ["odd", "named"] {
        gate.invoke(agent, &json!({})).await.is_fault(404, "NotFound");
    }
    let told = gate.stderr();
    assert!(told.contains("does not end with the input topic of an agent"), "{told}");
}

#[tokio::test]
async fn r110_r112_a_step_over_mqtt_has_its_instruction_beside_the_input_and_not_in_it() {
    let broker = Mosquitto::start().await;
    let first =
        Worker::start(broker.port, "first", |task| vec![Say::on(task, "first", response(task, json!("a text")))]).await;
    let second = Worker::echo(broker.port, "second").await;
    let gate = gateway().document(document(&broker, "first")).document(document(&broker, "second")).start().await;
    let steps = json!([{"agent": "first", "instruction": "begin"}, {"agent": "second", "instruction": "go on"}]);
    let asked = gate.post("/pipelines/invoke").json(&json!({"steps": steps, "input": {"a": 1}}));
    assert_eq!(send(asked).await.is_ok(), json!({"echo": "a text"}));
    let told = |worker: &Worker| {
        let task = worker.got().remove(0).task;
        (task["instruction"].clone(), task["input"].clone())
    };
    assert_eq!(told(&first), (json!("begin"), json!({"a": 1})));
    assert_eq!(told(&second), (json!("go on"), json!("a text")));
}

/// Calls `a` again and again until it is enough, each time with another number.
async fn caller(gate: &Gate, number: &AtomicUsize, enough: &AtomicBool) -> Vec<(usize, u16)> {
    let mut made = Vec::new();
    while !enough.load(SeqCst) {
        let (n, began) = (number.fetch_add(1, SeqCst), Instant::now());
        let answer = gate.invoke("a", &json!({"n": n})).await;
        match answer.status {
            200 => assert_eq!(answer.json(), json!({"n": n})),
            502..=504 => assert!(answer.json()["error"]["code"].is_string()),
            other => panic!("{other}: {}", answer.text()),
        }
        assert!(began.elapsed() < PATIENCE, "{:?}", began.elapsed());
        made.push((n, answer.status));
    }
    made
}

#[tokio::test]
async fn r105_a_broker_killed_under_many_calls_costs_each_a_reason_at_most_and_no_task_comes_twice() {
    let mut broker = Mosquitto::start().await;
    let port = broker.port;
    let start =
        || Worker::start(port, "a", |task| vec![Say::on(task, "a", response(task, task["input"].clone())).after(5)]);
    let mut workers = vec![start().await];
    let mut many = document(&broker, "a");
    many["max_concurrency"] = json!(8);
    let rule = settings("timeouts: {connect: 1s, first_byte: 3s}, breaker: {failures: 0}");
    let gate = gateway().section(&rule).document(many).start().await;
    let (number, enough) = (AtomicUsize::new(0), AtomicBool::new(false));
    let calls = join_all((0..6).map(|_| caller(&gate, &number, &enough)));
    let deaths = async {
        for round in 0..3 {
            let worker = workers.last().unwrap();
            eventually("calls are answered", async || worker.got().len() >= 40).await;
            if round < 2 {
                broker.again().await;
                workers.push(start().await);
            }
        }
        enough.store(true, SeqCst);
    };
    let (made, ()) = tokio::join!(calls, deaths);
    let mut seen: HashMap<u64, usize> = HashMap::new();
    for got in workers.iter().flat_map(Worker::got) {
        *seen.entry(got.task["input"]["n"].as_u64().unwrap()).or_default() += 1;
    }
    assert!(seen.values().all(|times| *times == 1), "a task came twice");
    let made: Vec<(usize, u16)> = made.into_iter().flatten().collect();
    assert!(made.iter().all(|(n, status)| *status != 200 || seen.contains_key(&(*n as u64))));
    assert_eq!(made.len(), number.load(SeqCst), "every call has its end");
}

/// Subscribes as the agent `id` would, and reads nothing any more.
async fn deaf(port: u16, id: &str) -> TcpStream {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    stream.write_all(b"\x10\x10\x00\x04MQTT\x04\x02\x00\x00\x00\x04deaf").await.unwrap();
    let topic = format!("/control/agents/{id}/input");
    let mut ask = vec![0x82, topic.len() as u8 + 5, 0, 1, 0, topic.len() as u8];
    ask.extend_from_slice(topic.as_bytes());
    ask.push(1);
    stream.write_all(&ask).await.unwrap();
    // CONNACK and SUBACK
    stream.read_exact(&mut [0; 9]).await.unwrap();
    stream
}

#[tokio::test]
async fn an_agent_that_reads_nothing_costs_its_own_calls_their_time_and_nobody_elses() {
    let broker = Mosquitto::start().await;
    let _deaf = deaf(broker.port, "deaf").await;
    let _worker = Worker::echo(broker.port, "a").await;
    let mut slow = document(&broker, "deaf");
    slow["max_concurrency"] = json!(16);
    let rule = settings("timeouts: {first_byte: 2s}, breaker: {failures: 0}");
    let gate = gateway().section(&rule).document(slow).document(document(&broker, "a")).start().await;
    let long = json!({"text": "x".repeat(200 << 10)});
    let calls = join_all((0..16).map(|_| gate.invoke("deaf", &long)));
    let others = async {
        for n in 0..20 {
            assert_eq!(gate.invoke("a", &json!({"n": n})).await.is_ok(), json!({"echo": {"n": n}}));
        }
    };
    let began = Instant::now();
    let (calls, ()) = tokio::join!(calls, others);
    for call in calls {
        call.is_fault(504, "Timeout");
    }
    assert!(began.elapsed() < PATIENCE);
}
