//! The bridge: agents of the gateway as agents of the 2389 protocol, on a real broker and met by a client that knows the
//! protocol and nothing of the gateway.

use crate::support::{
    agent::{Agent, Do, answer, json_answer, latch},
    eventually,
    gateway::{Build, Gate, gateway, new_key, translator},
    mosquitto::{Mosquitto, status, topic},
    worker::{Wire, wire},
};
use rumqttc_v5::{AsyncClient, Event, MqttOptions, Packet, PublishOptions, QoS, SubscribeFilter};
use serde_json::{Value, json};
use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};
use uuid::Uuid;

/// A message as a client hears it.
#[derive(Clone, Debug)]
struct Heard {
    topic: String,
    payload: Value,
    retained: bool,
}

/// A client of the protocol: it hears conversations and statuses.
struct Peer {
    client: AsyncClient,
    heard: Arc<Mutex<Vec<Heard>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Peer {
    async fn join(broker: &Mosquitto) -> Self {
        Self::hears(broker, &["/conversations/#", "/control/agents/+/status"]).await
    }

    async fn hears(broker: &Mosquitto, filters: &[&str]) -> Self {
        let mut options = MqttOptions::new(format!("peer-{}", Uuid::new_v4()), ("127.0.0.1", broker.port));
        options.set_max_packet_size(Some(8 << 20));
        let mut network = options.network_options();
        network.set_tcp_nodelay(true);
        options.set_network_options(network);
        let (client, mut events) = AsyncClient::builder(options).capacity(100).build();
        let (heard, subscribed) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
        let (hears, granted) = (Arc::clone(&heard), Arc::clone(&subscribed));
        let task = tokio::spawn(async move {
            while let Ok(event) = events.poll().await {
                match event {
                    Event::Incoming(Packet::SubAck(_)) => granted.store(true, SeqCst),
                    Event::Incoming(Packet::Publish(message)) => hears.lock().unwrap().push(Heard {
                        topic: String::from_utf8(message.topic.to_vec()).unwrap(),
                        payload: serde_json::from_slice(&message.payload).unwrap_or_default(),
                        retained: message.retain,
                    }),
                    _ => {}
                }
            }
        });
        let filters = filters.iter().map(|filter| SubscribeFilter::new(*filter, QoS::AtLeastOnce));
        client.subscribe_many(filters.collect::<Vec<_>>()).await.unwrap();
        eventually("the client has subscribed", async || subscribed.load(SeqCst)).await;
        Self { client, heard, task }
    }

    async fn publish(&self, topic: &str, payload: impl Into<Vec<u8>>, retain: bool) {
        let options = PublishOptions::new(QoS::AtLeastOnce).retain(retain);
        self.client.publish(topic, payload.into(), options).await.unwrap();
    }

    async fn sends(&self, agent: &str, envelope: &Value) {
        self.publish(&format!("/control/agents/{agent}/input"), envelope.to_string(), false).await;
    }

    fn on(&self, topic: &str) -> Vec<Heard> {
        self.heard.lock().unwrap().iter().filter(|heard| heard.topic == topic).cloned().collect()
    }

    /// The first message on `topic`.
    async fn first(&self, topic: &str) -> Heard {
        eventually(&format!("something on {topic}"), async || !self.on(topic).is_empty()).await;
        self.on(topic).remove(0)
    }

    /// Waits until the agent's last word is this.
    async fn sees(&self, agent: &str, word: &str) -> Heard {
        let last = || self.on(&topic(agent)).pop();
        eventually(&format!("{agent} is {word}"), async || last().is_some_and(|heard| heard.payload["status"] == word))
            .await;
        last().unwrap()
    }

    /// Asks, and waits for what comes back.
    async fn asks(&self, agent: &str, envelope: &Value) -> Value {
        self.sends(agent, envelope).await;
        let conversation = envelope["conversation_id"].as_str().unwrap();
        self.first(&format!("/conversations/{conversation}/{agent}")).await.payload
    }
}

fn task(agent: &str, input: Value) -> Value {
    json!({
        "task_id": Uuid::new_v4().to_string(), "conversation_id": Uuid::new_v4().to_string(),
        "topic": format!("/control/agents/{agent}/input"), "instruction": null, "input": input, "next": null,
    })
}

fn answers_to(task: &Value, agent: &str) -> String {
    format!("/conversations/{}/{agent}", task["conversation_id"].as_str().unwrap())
}

/// A gateway that offers what it has, with a key of the bridge's own.
fn bridged(broker: &Mosquitto, more: &str) -> Build {
    bridged_at(&broker.url(), more)
}

fn bridged_at(url: &str, more: &str) -> Build {
    let build = gateway();
    let key = new_key(build.folder(), "bridge", &[]);
    std::fs::write(build.folder().join("bridge.key"), key).unwrap();
    build.section(&format!("bridge:\n  - url: {url}\n    key: file:bridge.key\n    agents: ['*']\n{more}"))
}

#[tokio::test]
async fn r118_r124_an_agent_over_http_is_one_over_mqtt_to_a_client_that_knows_only_the_protocol() {
    let (broker, agent) = (Mosquitto::start().await, Agent::echo().await);
    let peer = Peer::join(&broker).await;
    let mut document = agent.document("echo");
    document["description"] = json!("Says it again");
    document["capabilities"] = json!(["echo"]);
    let gate = bridged(&broker, "").document(document).document(translator(&agent)).start().await;
    let available = peer.sees("echo", "available").await.payload;
    assert_eq!((&available["agent_id"], &available["description"]), (&json!("echo"), &json!("Says it again")));
    assert_eq!(available["capabilities"], json!(["echo"]));
    assert!(available["timestamp"].as_str().unwrap().ends_with('Z'));
    let later = Peer::join(&broker).await;
    assert!(later.sees("echo", "available").await.retained, "R107");
    let asked = task("echo", json!({"text": "hi"}));
    let answer = peer.asks("echo", &asked).await;
    assert_eq!(answer, json!({"response": {"echo": {"text": "hi"}}, "task_id": asked["task_id"]}));
    let mut told = task("echo", json!("a string"));
    told["instruction"] = json!("repeat");
    let answer = peer.asks("echo", &told).await;
    assert_eq!(answer["response"]["echo"], json!({"instruction": "repeat", "input": "a string"}));
    let mut named = task("agent-12345", json!({"text": "hi", "source_language": "en", "target_language": "zh"}));
    named["instruction"] = json!("translateText");
    peer.sees("agent-12345", "available").await;
    assert!(peer.asks("agent-12345", &named).await["response"]["echo"].is_object(), "it names an operation");
    assert_eq!(agent.got()[2].header("x-operation"), Some("translateText"));
    assert!(agent.got()[2].json().get("instruction").is_none());
    let after = Peer::join(&broker).await;
    after.sees("echo", "available").await;
    assert!(after.on(&answers_to(&asked, "echo")).is_empty(), "answers are not retained (R107)");
    let line = gate.log(2).await.remove(0);
    assert_eq!(
        (&line["caller"], &line["agent"], &line["request_id"]),
        (&json!("key:bridge"), &json!("echo"), &asked["task_id"])
    );
}

#[tokio::test]
async fn r118_an_agent_that_cannot_be_reached_is_not_available() {
    let (broker, agent) = (Mosquitto::start().await, Agent::echo().await);
    let peer = Peer::join(&broker).await;
    let (address, document) = (agent.address, agent.document("echo"));
    drop(agent);
    let _gate = bridged(&broker, "").document(document).start().await;
    peer.sees("echo", "unavailable").await;
    assert!(peer.on(&topic("echo")).iter().all(|heard| heard.payload["status"] == "unavailable"));
    let listener = tokio::net::TcpListener::bind(address).await.unwrap();
    peer.sees("echo", "available").await;
    drop(listener);
    peer.sees("echo", "unavailable").await;
}

#[tokio::test]
async fn an_agent_that_is_withdrawn_while_it_appears_is_gone_and_may_come_again() {
    let (broker, agent) = (Mosquitto::start().await, Agent::echo().await);
    let peer = Peer::join(&broker).await;
    let slow = format!("mqtt://{}", wire(broker.port, Wire::Slow).await);
    let gate = bridged_at(&slow, "").agent("echo", &agent).start().await;
    gate.write("agents.json", "[]");
    eventually("it is gone", async || gate.invoke("echo", &json!({})).await.status == 404).await;
    // The broker has answered by now.
    tokio::time::sleep(Duration::from_secs(2)).await;
    gate.write("agents.json", &json!([agent.document("echo")]).to_string());
    peer.sees("echo", "available").await;
}

#[tokio::test]
async fn r119_a_gateway_that_is_killed_leaves_its_last_will() {
    let (broker, agent) = (Mosquitto::start().await, Agent::echo().await);
    let peer = Peer::join(&broker).await;
    let mut gate = bridged(&broker, "").agent("echo", &agent).start().await;
    peer.sees("echo", "available").await;
    gate.child.kill().unwrap();
    let last = peer.sees("echo", "unavailable").await.payload;
    assert_eq!(last["agent_id"], "echo");
    assert!(last["timestamp"].as_str().unwrap().ends_with('Z'));
    let later = Peer::join(&broker).await;
    assert!(later.sees("echo", "unavailable").await.retained);
}

#[tokio::test]
async fn r119_a_clean_stop_says_so_first_and_finishes_what_is_in_hand() {
    let broker = Mosquitto::start().await;
    let held = latch();
    let until = held.clone();
    let agent = Agent::scripted(move |_| [vec![Do::Until(until.clone())], json_answer(&json!("done"))].concat()).await;
    let peer = Peer::join(&broker).await;
    let mut gate = bridged(&broker, "").agent("slow", &agent).start().await;
    peer.sees("slow", "available").await;
    let asked = task("slow", json!({}));
    peer.sends("slow", &asked).await;
    eventually("the agent is asked", async || agent.calls() == 1).await;
    gate.signal(rustix::process::Signal::TERM);
    peer.sees("slow", "unavailable").await;
    assert!(peer.on(&answers_to(&asked, "slow")).is_empty());
    held.close();
    assert_eq!(peer.first(&answers_to(&asked, "slow")).await.payload["response"], "done");
    assert!(gate.ended().await.success());
    assert_eq!(peer.on(&topic("slow")).iter().filter(|heard| heard.payload["status"] == "unavailable").count(), 1);
}

#[tokio::test]
async fn r119_r122_a_task_that_outlasts_the_stop_is_told_so() {
    let (broker, agent) = (Mosquitto::start().await, Agent::doing(vec![Do::Hang]).await);
    let peer = Peer::join(&broker).await;
    let build = bridged(&broker, "    concurrency: 1\n").section("shutdown:\n  drain: 1s\n");
    let mut gate = build.agent("slow", &agent).start().await;
    peer.sees("slow", "available").await;
    let tasks = [task("slow", json!({})), task("slow", json!({}))];
    for task in &tasks {
        peer.sends("slow", task).await;
    }
    eventually("the agent is asked", async || agent.calls() == 1).await;
    gate.signal(rustix::process::Signal::TERM);
    for task in &tasks {
        let told = peer.first(&answers_to(task, "slow")).await.payload;
        assert_eq!((&told["error"]["code"], &told["task_id"]), (&json!("internal_error"), &task["task_id"]), "{told}");
    }
    gate.ended().await;
    assert_eq!(agent.calls(), 1);
}

#[tokio::test]
async fn r120_the_steps_discard_what_they_should_and_processing_goes_on() {
    let (broker, agent) = (Mosquitto::start().await, Agent::echo().await);
    let peer = Peer::join(&broker).await;
    // There before the agent is, and so retained (R106).
    let early = task("echo", json!({"early": true}));
    peer.publish("/control/agents/echo/input", early.to_string(), true).await;
    let _gate = bridged(&broker, "").agent("echo", &agent).agent("other", &agent).start().await;
    peer.sees("echo", "available").await;
    peer.sees("other", "available").await;
    let mut foreign = task("other", json!({}));
    foreign["next"] = json!(3);
    peer.sends("echo", &foreign).await;
    let once = task("echo", json!({"once": true}));
    for _ in 0..3 {
        peer.sends("echo", &once).await;
    }
    let deep = (0..17).fold(Value::Null, |next, _| json!({"topic": "/control/agents/echo/input", "next": next}));
    let mut deeper = task("echo", json!({}));
    deeper["next"] = deep;
    let depth = peer.asks("echo", &deeper).await;
    assert_eq!((&depth["error"]["code"], &depth["task_id"]), (&json!("pipeline_depth_exceeded"), &deeper["task_id"]));
    let mut broken = task("echo", json!({}));
    broken["task_id"] = json!("not a uuid");
    assert_eq!(peer.asks("echo", &broken).await["error"]["code"], "invalid_input");
    let mut odd = task("echo", json!({"odd": true}));
    odd["topic"] = json!("//control/agents//echo/input/");
    assert_eq!(peer.asks("echo", &odd).await["response"]["echo"]["odd"], true);
    let spelled = task("echo", json!({"spelled": true}));
    peer.publish("control/agents/echo/input", spelled.to_string(), false).await;
    peer.first(&answers_to(&spelled, "echo")).await;
    peer.first(&answers_to(&once, "echo")).await;
    let inputs: Vec<Value> = agent.got().iter().map(|got| got.json()).collect();
    assert_eq!(inputs.len(), 3, "{inputs:?}");
    assert!(!inputs.contains(&json!({"early": true})), "{inputs:?}");
    assert_eq!(peer.on(&answers_to(&once, "echo")).len(), 1);
    assert!(peer.on(&answers_to(&foreign, "echo")).is_empty() && peer.on(&answers_to(&foreign, "other")).is_empty());
}

#[tokio::test]
async fn r112_a_pipeline_goes_from_agent_to_agent_and_only_the_last_answers() {
    let broker = Mosquitto::start().await;
    let first = Agent::doing(json_answer(&json!({"from": "first"}))).await;
    let second = Agent::echo().await;
    let peer = Peer::join(&broker).await;
    let _gate = bridged(&broker, "").agent("first", &first).agent("second", &second).start().await;
    peer.sees("first", "available").await;
    peer.sees("second", "available").await;
    let mut asked = task("first", json!({"a": 1}));
    asked["next"] =
        json!({"topic": "/control/agents/second/input", "instruction": "go on", "input": null, "next": null});
    peer.sends("first", &asked).await;
    let answer = peer.first(&answers_to(&asked, "second")).await.payload;
    assert_eq!(answer["response"]["echo"], json!({"instruction": "go on", "from": "first"}));
    assert_eq!(answer["task_id"], asked["task_id"]);
    assert!(peer.on(&answers_to(&asked, "first")).is_empty());
    let mut nowhere = task("first", json!({}));
    nowhere["next"] = json!({"topic": "/control/agents/+/input"});
    assert_eq!(peer.asks("first", &nowhere).await["error"]["code"], "invalid_input");
    assert_eq!((first.calls(), second.calls()), (1, 1), "what cannot go on is not begun");
}

#[tokio::test]
async fn r115_r117_failures_have_the_codes_of_the_protocol_and_tell_nothing_of_the_inside() {
    let broker = Mosquitto::start().await;
    let failing =
        Agent::doing(answer("500 Internal Server Error", "text/plain", "Traceback at /srv/app.py key sk-1")).await;
    let dying = Agent::doing(vec![Do::Reset]).await;
    let silent = Agent::doing(vec![Do::Hang]).await;
    let large = Agent::doing(json_answer(&json!("x".repeat(300 << 10)))).await;
    let strict = Agent::echo().await;
    let mut gone = strict.document("gone");
    gone["endpoint"] = json!("http://127.0.0.1:1/");
    let peer = Peer::join(&broker).await;
    let from = "agents:\n  from: [agents.json]\n  defaults: {timeouts: {total: 500ms}}\n";
    let build = bridged(&broker, "").section(from).agent("failing", &failing).agent("dying", &dying);
    let build = build.agent("silent", &silent).agent("large", &large).document(gone).document(translator(&strict));
    let _gate = build.start().await;
    for (agent, code) in [
        ("failing", "tool_execution_failed"),
        ("dying", "tool_execution_failed"),
        ("silent", "tool_execution_failed"),
        ("large", "tool_execution_failed"),
        ("gone", "tool_execution_failed"),
        ("agent-12345", "invalid_input"),
    ] {
        peer.sees(agent, if agent == "gone" { "unavailable" } else { "available" }).await;
        let asked = task(agent, json!({"text": "hi"}));
        let told = peer.asks(agent, &asked).await;
        assert_eq!((&told["error"]["code"], &told["task_id"]), (&json!(code), &asked["task_id"]), "{agent}: {told}");
        assert!(!told["error"]["message"].as_str().unwrap().is_empty());
        for inside in ["Traceback", "/srv", "sk-1", "127.0.0.1", "key:bridge"] {
            assert!(!told.to_string().contains(inside), "{told}");
        }
    }
    assert_eq!(strict.calls(), 0);
}

#[tokio::test]
async fn r122_r123_hostile_messages_cost_nobody_a_task() {
    let (broker, agent) = (Mosquitto::start().await, Agent::echo().await);
    let peer = Peer::join(&broker).await;
    let _gate = bridged(&broker, "").agent("echo", &agent).start().await;
    peer.sees("echo", "available").await;
    let input = "/control/agents/echo/input";
    let nested = format!("{{\"topic\":\"{input}\",\"input\":{}{}}}", "[".repeat(50_000), "]".repeat(50_000));
    let huge = json!({"topic": input, "conversation_id": "huge", "input": "x".repeat(400 << 10)}).to_string();
    for payload in [&b""[..], b"\0\xff\xfe", b"{", b"null", b"[]", b"\"text\"", nested.as_bytes(), huge.as_bytes()] {
        peer.publish(input, payload, false).await;
    }
    for (member, value) in [
        ("conversation_id", json!("../control/agents/echo")),
        ("conversation_id", json!("#")),
        ("conversation_id", json!("a/b")),
        ("conversation_id", json!("")),
        ("conversation_id", Value::Null),
    ] {
        let mut odd = task("echo", json!({}));
        odd[member] = value;
        peer.sends("echo", &odd).await;
    }
    for (member, value) in
        [("input", json!([1])), ("input", Value::Null), ("instruction", json!([])), ("next", json!("x"))]
    {
        let mut odd = task("echo", json!({}));
        odd[member] = value;
        assert_eq!(peer.asks("echo", &odd).await["error"]["code"], "invalid_input");
    }
    for round in 0..200 {
        peer.publish(input, format!("garbage {round}"), false).await;
    }
    let good = task("echo", json!({"still": "here"}));
    assert_eq!(peer.asks("echo", &good).await["response"]["echo"]["still"], "here");
    assert_eq!(agent.calls(), 1);
    assert_eq!(peer.on(&topic("echo")).len(), 1, "it stayed connected");
}

#[tokio::test]
async fn a_broker_that_restarts_finds_the_agents_again_and_a_task_in_hand_is_answered() {
    let mut broker = Mosquitto::start().await;
    let held = latch();
    let until = held.clone();
    let agent = Agent::scripted(move |_| [vec![Do::Until(until.clone())], json_answer(&json!("done"))].concat()).await;
    let peer = Peer::join(&broker).await;
    let _gate = bridged(&broker, "").agent("slow", &agent).start().await;
    peer.sees("slow", "available").await;
    let asked = task("slow", json!({}));
    peer.sends("slow", &asked).await;
    eventually("the agent is asked", async || agent.calls() == 1).await;
    broker.kill();
    drop(peer);
    broker.again().await;
    let peer = Peer::join(&broker).await;
    peer.sees("slow", "available").await;
    held.close();
    assert_eq!(peer.first(&answers_to(&asked, "slow")).await.payload["response"], "done");
    peer.sends("slow", &asked).await;
    let after = task("slow", json!({}));
    assert_eq!(peer.asks("slow", &after).await["response"], "done");
    assert_eq!(agent.calls(), 2, "a task is remembered over a lost connection (R125)");
}

#[tokio::test]
async fn r105_an_answer_whose_connection_breaks_is_said_on_the_next() {
    let (broker, agent) = (Mosquitto::start().await, Agent::echo().await);
    let peer = Peer::join(&broker).await;
    let breaks = format!("mqtt://{}", wire(broker.port, Wire::Breaks).await);
    let _gate = bridged_at(&breaks, "").agent("echo", &agent).start().await;
    peer.sees("echo", "available").await;
    let asked = task("echo", json!({"n": 1}));
    assert_eq!(peer.asks("echo", &asked).await["response"]["echo"]["n"], 1);
    peer.sees("echo", "available").await;
    assert_eq!(peer.asks("echo", &task("echo", json!({"n": 2}))).await["response"]["echo"]["n"], 2);
    assert_eq!(peer.on(&answers_to(&asked, "echo")).len(), 1);
    assert_eq!(agent.calls(), 2);
}

#[tokio::test]
async fn more_tasks_than_may_wait_are_told_so() {
    let broker = Mosquitto::start().await;
    let held = latch();
    let until = held.clone();
    let agent = Agent::scripted(move |_| [vec![Do::Until(until.clone())], json_answer(&json!("done"))].concat()).await;
    let peer = Peer::join(&broker).await;
    let _gate = bridged(&broker, "    concurrency: 1\n    waiting: 1\n").agent("slow", &agent).start().await;
    peer.sees("slow", "available").await;
    let tasks: Vec<Value> = (0..3).map(|_| task("slow", json!({}))).collect();
    for task in &tasks {
        peer.sends("slow", task).await;
    }
    let busy = peer.first(&answers_to(&tasks[2], "slow")).await.payload;
    assert_eq!(busy["error"]["code"], "internal_error");
    // The turn is taken before the agent has read anything.
    eventually("the first is asked", async || agent.calls() == 1).await;
    held.close();
    for task in &tasks[..2] {
        assert_eq!(peer.first(&answers_to(task, "slow")).await.payload["response"], "done");
    }
}

#[tokio::test]
async fn r3_only_what_is_active_and_granted_to_the_key_is_offered_and_changes_are_followed() {
    let (broker, agent) = (Mosquitto::start().await, Agent::echo().await);
    let peer = Peer::join(&broker).await;
    let mut idle = agent.document("idle");
    idle["status"] = json!("inactive");
    let access = "access:\n  grants:\n    - {callers: ['key:bridge'], agents: [good, idle]}\n    - {callers: ['key:team-a'], agents: ['*']}\n";
    let build = bridged(&broker, "").access(access).agent("good", &agent).agent("hidden", &agent).document(idle);
    let gate = build.start().await;
    peer.sees("good", "available").await;
    assert!(peer.on(&topic("hidden")).is_empty() && peer.on(&topic("idle")).is_empty());
    let (mut good, mut idle) = (agent.document("good"), agent.document("idle"));
    good["description"] = json!("Better now");
    idle["status"] = json!("active");
    gate.write("agents.json", &json!([good, idle]).to_string());
    peer.sees("idle", "available").await;
    eventually("the new description", async || {
        peer.on(&topic("good")).last().is_some_and(|heard| heard.payload["description"] == "Better now")
    })
    .await;
    gate.write("agents.json", &json!([good]).to_string());
    peer.sees("idle", "unavailable").await;
    let config = gate.read("gatepost.yaml");
    gate.write("gatepost.yaml", &config.replace("agents: ['*']\n", "agents: ['nothing*']\n"));
    peer.sees("good", "unavailable").await;
    gate.write("gatepost.yaml", &config);
    peer.sees("good", "available").await;
    assert_eq!(peer.asks("good", &task("good", json!({"a": 1}))).await["response"]["echo"]["a"], 1);
}

#[tokio::test]
async fn a_status_that_another_has_published_is_put_right() {
    let (broker, agent) = (Mosquitto::start().await, Agent::echo().await);
    let peer = Peer::join(&broker).await;
    let _gate = bridged(&broker, "").agent("echo", &agent).start().await;
    peer.sees("echo", "available").await;
    peer.publish(&topic("echo"), status("echo", "unavailable").to_string(), true).await;
    peer.sees("echo", "unavailable").await;
    peer.sees("echo", "available").await;
}

#[tokio::test]
async fn a_successor_takes_the_agents_over_and_no_task_is_done_by_both() {
    let (broker, agent) = (Mosquitto::start().await, Agent::echo().await);
    let peer = Peer::join(&broker).await;
    let build = bridged(&broker, "").agent("echo", &agent).section("shutdown:\n  handover_socket: handover.sock\n");
    let mut before = build.start().await;
    peer.sees("echo", "available").await;
    let _after: Gate = before.hand_over().await;
    assert!(before.ended().await.success());
    peer.sees("echo", "available").await;
    let tasks: Vec<Value> = (0..5).map(|_| task("echo", json!({}))).collect();
    for task in &tasks {
        peer.asks("echo", task).await;
    }
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(tasks.iter().all(|task| peer.on(&answers_to(task, "echo")).len() == 1));
    assert_eq!(agent.calls(), tasks.len());
    peer.sees("echo", "available").await;
}

#[tokio::test]
async fn r129_r130_a_bridge_that_cannot_work_is_refused_by_its_path() {
    let folder = tempfile::TempDir::new().unwrap();
    let config =
        "listen:\n  - address: 127.0.0.1:0\nagents:\n  from: [agents.json]\nauth:\n  api_keys: {files: [keys.jsonl]}\n";
    std::fs::write(folder.path().join("agents.json"), "[]").unwrap();
    new_key(folder.path(), "team-a", &[]);
    let path = folder.path().join("gatepost.yaml");
    let check = |bridge: &str| {
        std::fs::write(&path, format!("{config}{bridge}")).unwrap();
        let checked = crate::support::gateway::command().args(["check", "-c"]).arg(&path).output().unwrap();
        assert!(!checked.status.success(), "{bridge}");
        String::from_utf8_lossy(&checked.stderr).into_owned()
    };
    let told =
        check("bridge:\n  - {url: 'mqtt://broker.example', key: 'env:NO_SUCH_KEY', agents: ['*'], remember: 0s}\n");
    for problem in ["bridge[0].url: is plain text", "bridge[0].key", "bridge[0].remember"] {
        assert!(told.contains(problem), "{problem} is not told: {told}");
    }
    let told = check("bridge:\n  - {url: 'mqtts://broker.example', key: 'env:NO_SUCH_KEY', agents: []}\n");
    assert!(told.contains("bridge[0].agents"), "{told}");
}
