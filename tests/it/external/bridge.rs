//! The MQTT bridge: agents of the gateway as agents of the 2389 protocol, at a real broker, called by a client that
//! speaks only the protocol.

use super::support::{
    mosquitto::{Mosquitto, status_payload, status_topic},
    mqtt_task_agent::{ProxyFault, SubackHoldingProxy, start_broker_proxy},
};
use crate::support::{
    agent::{Agent, Latch, Step, http_response, json_response, latch},
    closed_port::ClosedPort,
    eventually,
    gateway::{Gateway, GatewayBuilder, gateway, new_key, translator_document},
};
use rumqttc_v5::{AsyncClient, Event, MqttOptions, Packet, PublishOptions, QoS, SubscribeFilter};
use serde_json::{Value, json};
use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, Ordering::SeqCst},
};
use uuid::Uuid;

/// A message that a client received.
#[derive(Clone, Debug)]
struct ReceivedMessage {
    topic: String,
    payload: Value,
    retained: bool,
}

/// A client of the protocol, with the messages that it received.
struct Peer {
    client: AsyncClient,
    received: Arc<Mutex<Vec<ReceivedMessage>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Peer {
    /// Connects a client that subscribes to all conversations and statuses.
    async fn connect(broker: &Mosquitto) -> Self {
        Self::subscribe(broker, &["/conversations/#", "/control/agents/+/status"]).await
    }

    async fn subscribe(broker: &Mosquitto, filters: &[&str]) -> Self {
        let mut options = MqttOptions::new(format!("peer-{}", Uuid::new_v4()), ("127.0.0.1", broker.port));
        options.set_max_packet_size(Some(8 << 20));
        let mut network = options.network_options();
        network.set_tcp_nodelay(true);
        options.set_network_options(network);
        let (client, mut events) = AsyncClient::builder(options).capacity(100).build();
        let (received, subscribed) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
        let (messages, acknowledged) = (Arc::clone(&received), Arc::clone(&subscribed));
        let task = tokio::spawn(async move {
            while let Ok(event) = events.poll().await {
                match event {
                    Event::Incoming(Packet::SubAck(_)) => acknowledged.store(true, SeqCst),
                    Event::Incoming(Packet::Publish(message)) => messages.lock().unwrap().push(ReceivedMessage {
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
        Self { client, received, task }
    }

    async fn publish(&self, topic: &str, payload: impl Into<Vec<u8>>, retain: bool) {
        let options = PublishOptions::new(QoS::AtLeastOnce).retain(retain);
        self.client.publish(topic, payload.into(), options).await.unwrap();
    }

    async fn send_task(&self, agent: &str, envelope: &Value) {
        self.publish(&format!("/control/agents/{agent}/input"), envelope.to_string(), false).await;
    }

    /// The messages received on `topic`.
    fn all_on(&self, topic: &str) -> Vec<ReceivedMessage> {
        self.received.lock().unwrap().iter().filter(|message| message.topic == topic).cloned().collect()
    }

    /// Waits for the first message on `topic`, and returns it.
    async fn first_on(&self, topic: &str) -> ReceivedMessage {
        eventually(&format!("a message on {topic}"), async || !self.all_on(topic).is_empty()).await;
        self.all_on(topic).remove(0)
    }

    /// Waits until this is the last status of the agent, and returns the message.
    async fn wait_for_status(&self, agent: &str, status: &str) -> ReceivedMessage {
        let last_status = || self.all_on(&status_topic(agent)).pop();
        eventually(&format!("{agent} is {status}"), async || {
            last_status().is_some_and(|message| message.payload["status"] == status)
        })
        .await;
        last_status().unwrap()
    }

    /// Sends a task, and waits for the first message of the agent in its conversation.
    async fn call(&self, agent: &str, envelope: &Value) -> Value {
        self.send_task(agent, envelope).await;
        let conversation = envelope["conversation_id"].as_str().unwrap();
        self.first_on(&format!("/conversations/{conversation}/{agent}")).await.payload
    }
}

fn task(agent: &str, input: Value) -> Value {
    json!({
        "task_id": Uuid::new_v4().to_string(), "conversation_id": Uuid::new_v4().to_string(),
        "topic": format!("/control/agents/{agent}/input"), "instruction": null, "input": input, "next": null,
    })
}

/// An agent that answers "done" once the latch is closed.
async fn latched_agent() -> (Agent, Latch) {
    let agent_latch = latch();
    let script_latch = agent_latch.clone();
    let agent = Agent::scripted(move |_| {
        [vec![Step::WaitForLatch(script_latch.clone())], json_response(&json!("done"))].concat()
    })
    .await;
    (agent, agent_latch)
}

/// The topic on which the agent answers the task.
fn reply_topic(task: &Value, agent: &str) -> String {
    format!("/conversations/{}/{agent}", task["conversation_id"].as_str().unwrap())
}

/// A gateway that offers its agents at the broker. The bridge has its own API key.
fn bridged(broker: &Mosquitto, bridge_settings: &str) -> GatewayBuilder {
    bridged_at(&broker.url(), bridge_settings)
}

fn bridged_at(url: &str, bridge_settings: &str) -> GatewayBuilder {
    let build = gateway();
    let key = new_key(build.folder(), "bridge", &[]);
    std::fs::write(build.folder().join("bridge.key"), key).unwrap();
    build.section(&format!(
        "mqtt_bridge:\n  - url: {url}\n    api_key: file:bridge.key\n    agents: ['*']\n{bridge_settings}"
    ))
}

#[tokio::test]
async fn r118_r124_a_protocol_client_calls_an_http_agent_over_mqtt() {
    let (broker, agent) = (Mosquitto::start().await, Agent::echo().await);
    let peer = Peer::connect(&broker).await;
    let mut document = agent.document("echo");
    document["description"] = json!("Says it again");
    document["capabilities"] = json!(["echo"]);
    let gate = bridged(&broker, "").document(document).document(translator_document(&agent)).start().await;
    let available = peer.wait_for_status("echo", "available").await.payload;
    assert_eq!((&available["agent_id"], &available["description"]), (&json!("echo"), &json!("Says it again")));
    assert_eq!(available["capabilities"], json!(["echo"]));
    assert!(available["timestamp"].as_str().unwrap().ends_with('Z'));
    let late_peer = Peer::connect(&broker).await;
    assert!(late_peer.wait_for_status("echo", "available").await.retained, "R107");
    let plain_task = task("echo", json!({"text": "hi"}));
    let response = peer.call("echo", &plain_task).await;
    assert_eq!(response, json!({"response": {"echo": {"text": "hi"}}, "task_id": plain_task["task_id"]}));
    let mut instructed_task = task("echo", json!("a string"));
    instructed_task["instruction"] = json!("repeat");
    let response = peer.call("echo", &instructed_task).await;
    assert_eq!(response["response"]["echo"], json!({"instruction": "repeat", "input": "a string"}));
    let input = json!({"text": "hi", "source_language": "en", "target_language": "zh"});
    let mut operation_task = task("agent-12345", input);
    operation_task["instruction"] = json!("translateText");
    peer.wait_for_status("agent-12345", "available").await;
    let response = peer.call("agent-12345", &operation_task).await;
    assert!(response["response"]["echo"].is_object(), "the instruction is an operation");
    assert_eq!(agent.requests()[2].header("x-operation"), Some("translateText"));
    assert!(agent.requests()[2].json().get("instruction").is_none());
    let later_peer = Peer::connect(&broker).await;
    later_peer.wait_for_status("echo", "available").await;
    assert!(later_peer.all_on(&reply_topic(&plain_task, "echo")).is_empty(), "answers are not retained (R107)");
    let entry = gate.access_log(2).await.remove(0);
    assert_eq!(
        (&entry["caller"], &entry["agent"], &entry["request_id"]),
        (&json!("key:bridge"), &json!("echo"), &plain_task["task_id"])
    );
}

#[tokio::test]
async fn r118_an_unreachable_agent_is_announced_as_unavailable() {
    let (broker, port) = (Mosquitto::start().await, ClosedPort::new());
    let peer = Peer::connect(&broker).await;
    let endpoint = format!("http://{}/invoke", port.address);
    let document = json!({"id": "echo", "name": "echo", "endpoint": endpoint, "authentication": {"type": "api_key"}});
    let _gate = bridged(&broker, "").document(document).start().await;
    peer.wait_for_status("echo", "unavailable").await;
    assert!(peer.all_on(&status_topic("echo")).iter().all(|message| message.payload["status"] == "unavailable"));
    let listener = port.open();
    peer.wait_for_status("echo", "available").await;
    drop(listener);
    peer.wait_for_status("echo", "unavailable").await;
}

#[tokio::test]
async fn an_agent_that_is_withdrawn_while_it_connects_can_be_announced_again() {
    let (broker, agent) = (Mosquitto::start().await, Agent::echo().await);
    let peer = Peer::connect(&broker).await;
    let proxy = SubackHoldingProxy::start(broker.port).await;
    let gate = bridged_at(&format!("mqtt://{}", proxy.address), "").agent("echo", &agent).start().await;
    eventually("the agent subscribes", async || proxy.held_count() > 0).await;
    gate.write_file("agents.json", "[]");
    eventually("the agent is removed", async || gate.invoke("echo", &json!({})).await.status == 404).await;
    proxy.release();
    eventually("each SUBACK arrives or finds its connection closed", async || proxy.held_count() == 0).await;
    gate.write_file("agents.json", &json!([agent.document("echo")]).to_string());
    peer.wait_for_status("echo", "available").await;
}

#[tokio::test]
async fn r119_a_killed_gateway_leaves_its_last_will() {
    let (broker, agent) = (Mosquitto::start().await, Agent::echo().await);
    let peer = Peer::connect(&broker).await;
    let mut gate = bridged(&broker, "").agent("echo", &agent).start().await;
    peer.wait_for_status("echo", "available").await;
    gate.child.kill().unwrap();
    let last = peer.wait_for_status("echo", "unavailable").await.payload;
    assert_eq!(last["agent_id"], "echo");
    assert!(last["timestamp"].as_str().unwrap().ends_with('Z'));
    let late_peer = Peer::connect(&broker).await;
    assert!(late_peer.wait_for_status("echo", "unavailable").await.retained);
}

#[tokio::test]
async fn r119_a_graceful_stop_announces_unavailable_first_and_finishes_running_tasks() {
    let broker = Mosquitto::start().await;
    let (agent, agent_latch) = latched_agent().await;
    let peer = Peer::connect(&broker).await;
    let mut gate = bridged(&broker, "").agent("slow", &agent).start().await;
    peer.wait_for_status("slow", "available").await;
    let sent_task = task("slow", json!({}));
    peer.send_task("slow", &sent_task).await;
    eventually("the agent is called", async || agent.call_count() == 1).await;
    gate.send_signal(rustix::process::Signal::TERM);
    peer.wait_for_status("slow", "unavailable").await;
    assert!(peer.all_on(&reply_topic(&sent_task, "slow")).is_empty());
    agent_latch.close();
    assert_eq!(peer.first_on(&reply_topic(&sent_task, "slow")).await.payload["response"], "done");
    assert!(gate.wait_for_exit().await.success());
    let statuses = peer.all_on(&status_topic("slow"));
    assert_eq!(statuses.iter().filter(|message| message.payload["status"] == "unavailable").count(), 1);
}

#[tokio::test]
async fn r119_r122_a_task_that_outlasts_the_drain_timeout_fails() {
    let (broker, agent) = (Mosquitto::start().await, Agent::with_steps(vec![Step::Hang]).await);
    let peer = Peer::connect(&broker).await;
    let build = bridged(&broker, "    max_concurrency: 1\n").section("shutdown:\n  drain_timeout: 1s\n");
    let mut gate = build.agent("slow", &agent).start().await;
    peer.wait_for_status("slow", "available").await;
    let tasks = [task("slow", json!({})), task("slow", json!({}))];
    for task in &tasks {
        peer.send_task("slow", task).await;
    }
    eventually("the agent is called", async || agent.call_count() == 1).await;
    gate.send_signal(rustix::process::Signal::TERM);
    for task in &tasks {
        let reply = peer.first_on(&reply_topic(task, "slow")).await.payload;
        assert_eq!(reply["error"]["code"], "internal_error", "{reply}");
        assert_eq!(reply["task_id"], task["task_id"], "{reply}");
    }
    gate.wait_for_exit().await;
    assert_eq!(agent.call_count(), 1);
}

#[tokio::test]
async fn r120_invalid_tasks_are_discarded_and_later_tasks_are_processed() {
    let (broker, agent) = (Mosquitto::start().await, Agent::echo().await);
    let peer = Peer::connect(&broker).await;
    // Published before the agent subscribes, and therefore delivered as a retained message (R106).
    let early = task("echo", json!({"early": true}));
    peer.publish("/control/agents/echo/input", early.to_string(), true).await;
    let _gate = bridged(&broker, "").agent("echo", &agent).agent("other", &agent).start().await;
    peer.wait_for_status("echo", "available").await;
    peer.wait_for_status("other", "available").await;
    let mut foreign = task("other", json!({}));
    foreign["next"] = json!(3);
    peer.send_task("echo", &foreign).await;
    let repeated = task("echo", json!({"repeated": true}));
    for _ in 0..3 {
        peer.send_task("echo", &repeated).await;
    }
    let too_deep = (0..17).fold(Value::Null, |next, _| json!({"topic": "/control/agents/echo/input", "next": next}));
    let mut nested_task = task("echo", json!({}));
    nested_task["next"] = too_deep;
    let depth_error = peer.call("echo", &nested_task).await;
    assert_eq!(depth_error["error"]["code"], "pipeline_depth_exceeded");
    assert_eq!(depth_error["task_id"], nested_task["task_id"]);
    let mut broken = task("echo", json!({}));
    broken["task_id"] = json!("not a uuid");
    assert_eq!(peer.call("echo", &broken).await["error"]["code"], "invalid_input");
    let mut unnormalised = task("echo", json!({"unnormalised": true}));
    unnormalised["topic"] = json!("//control/agents//echo/input/");
    assert_eq!(peer.call("echo", &unnormalised).await["response"]["echo"]["unnormalised"], true);
    let relative = task("echo", json!({"relative": true}));
    peer.publish("control/agents/echo/input", relative.to_string(), false).await;
    peer.first_on(&reply_topic(&relative, "echo")).await;
    peer.first_on(&reply_topic(&repeated, "echo")).await;
    let inputs: Vec<Value> = agent.requests().iter().map(|request| request.json()).collect();
    assert_eq!(inputs.len(), 3, "{inputs:?}");
    assert!(!inputs.contains(&json!({"early": true})), "{inputs:?}");
    assert_eq!(peer.all_on(&reply_topic(&repeated, "echo")).len(), 1);
    for agent in ["echo", "other"] {
        assert!(peer.all_on(&reply_topic(&foreign, agent)).is_empty(), "{agent}");
    }
}

#[tokio::test]
async fn r112_a_pipeline_passes_each_result_on_and_only_the_last_agent_answers() {
    let broker = Mosquitto::start().await;
    let first = Agent::with_steps(json_response(&json!({"from": "first"}))).await;
    let second = Agent::echo().await;
    let peer = Peer::connect(&broker).await;
    let _gate = bridged(&broker, "").agent("first", &first).agent("second", &second).start().await;
    peer.wait_for_status("first", "available").await;
    peer.wait_for_status("second", "available").await;
    let mut sent_task = task("first", json!({"a": 1}));
    sent_task["next"] =
        json!({"topic": "/control/agents/second/input", "instruction": "go on", "input": null, "next": null});
    peer.send_task("first", &sent_task).await;
    let response = peer.first_on(&reply_topic(&sent_task, "second")).await.payload;
    assert_eq!(response["response"]["echo"], json!({"instruction": "go on", "from": "first"}));
    assert_eq!(response["task_id"], sent_task["task_id"]);
    assert!(peer.all_on(&reply_topic(&sent_task, "first")).is_empty());
    let mut invalid_next = task("first", json!({}));
    invalid_next["next"] = json!({"topic": "/control/agents/+/input"});
    assert_eq!(peer.call("first", &invalid_next).await["error"]["code"], "invalid_input");
    assert_eq!((first.call_count(), second.call_count()), (1, 1), "a pipeline with an invalid step is not started");
}

#[tokio::test]
async fn r115_r117_failures_have_the_codes_of_the_protocol_and_leak_no_internals() {
    let broker = Mosquitto::start().await;
    let failing = Agent::with_steps(http_response(
        "500 Internal Server Error",
        "text/plain",
        "Traceback at /srv/app.py key sk-1",
    ))
    .await;
    let dying = Agent::with_steps(vec![Step::Reset]).await;
    let silent = Agent::with_steps(vec![Step::Hang]).await;
    let large = Agent::with_steps(json_response(&json!("x".repeat(300 << 10)))).await;
    let strict = Agent::echo().await;
    let mut unreachable = strict.document("unreachable");
    unreachable["endpoint"] = json!("http://127.0.0.1:1/");
    let peer = Peer::connect(&broker).await;
    let agents = "agents:\n  sources: [agents.json]\n  defaults: {timeouts: {total: 500ms}}\n";
    let build = bridged(&broker, "").section(agents).agent("failing", &failing).agent("dying", &dying);
    let build = build.agent("silent", &silent).agent("large", &large).document(unreachable);
    let _gate = build.document(translator_document(&strict)).start().await;
    for (agent, code) in [
        ("failing", "tool_execution_failed"),
        ("dying", "tool_execution_failed"),
        ("silent", "tool_execution_failed"),
        ("large", "tool_execution_failed"),
        ("unreachable", "tool_execution_failed"),
        ("agent-12345", "invalid_input"),
    ] {
        peer.wait_for_status(agent, if agent == "unreachable" { "unavailable" } else { "available" }).await;
        let sent_task = task(agent, json!({"text": "hi"}));
        let failure = peer.call(agent, &sent_task).await;
        assert_eq!(failure["error"]["code"], code, "{agent}: {failure}");
        assert_eq!(failure["task_id"], sent_task["task_id"], "{agent}: {failure}");
        assert!(!failure["error"]["message"].as_str().unwrap().is_empty());
        for internal in ["Traceback", "/srv", "sk-1", "127.0.0.1", "key:bridge"] {
            assert!(!failure.to_string().contains(internal), "{failure}");
        }
    }
    assert_eq!(strict.call_count(), 0);
}

#[tokio::test]
async fn r122_r123_hostile_messages_do_not_disturb_other_tasks() {
    let (broker, agent) = (Mosquitto::start().await, Agent::echo().await);
    let peer = Peer::connect(&broker).await;
    let _gate = bridged(&broker, "").agent("echo", &agent).start().await;
    peer.wait_for_status("echo", "available").await;
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
        let mut invalid = task("echo", json!({}));
        invalid[member] = value;
        peer.send_task("echo", &invalid).await;
    }
    for (member, value) in
        [("input", json!([1])), ("input", Value::Null), ("instruction", json!([])), ("next", json!("x"))]
    {
        let mut invalid = task("echo", json!({}));
        invalid[member] = value;
        assert_eq!(peer.call("echo", &invalid).await["error"]["code"], "invalid_input");
    }
    for round in 0..200 {
        peer.publish(input, format!("garbage {round}"), false).await;
    }
    let valid = task("echo", json!({"still": "here"}));
    assert_eq!(peer.call("echo", &valid).await["response"]["echo"]["still"], "here");
    assert_eq!(agent.call_count(), 1);
    assert_eq!(peer.all_on(&status_topic("echo")).len(), 1, "the agent stayed connected");
}

#[tokio::test]
async fn after_a_broker_restart_the_agents_return_and_a_running_task_is_answered() {
    let mut broker = Mosquitto::start().await;
    let (agent, agent_latch) = latched_agent().await;
    let peer = Peer::connect(&broker).await;
    let _gate = bridged(&broker, "").agent("slow", &agent).start().await;
    peer.wait_for_status("slow", "available").await;
    let sent_task = task("slow", json!({}));
    peer.send_task("slow", &sent_task).await;
    eventually("the agent is called", async || agent.call_count() == 1).await;
    broker.kill();
    drop(peer);
    broker.restart().await;
    let peer = Peer::connect(&broker).await;
    peer.wait_for_status("slow", "available").await;
    agent_latch.close();
    assert_eq!(peer.first_on(&reply_topic(&sent_task, "slow")).await.payload["response"], "done");
    peer.send_task("slow", &sent_task).await;
    let after = task("slow", json!({}));
    assert_eq!(peer.call("slow", &after).await["response"], "done");
    assert_eq!(agent.call_count(), 2, "a task is remembered over a lost connection (R125)");
}

#[tokio::test]
async fn r105_a_result_lost_with_its_connection_is_sent_over_the_next_one() {
    let (broker, agent) = (Mosquitto::start().await, Agent::echo().await);
    let peer = Peer::connect(&broker).await;
    let breaking_url = format!("mqtt://{}", start_broker_proxy(broker.port, ProxyFault::ClosesOnce).await);
    let _gate = bridged_at(&breaking_url, "").agent("echo", &agent).start().await;
    peer.wait_for_status("echo", "available").await;
    let sent_task = task("echo", json!({"n": 1}));
    assert_eq!(peer.call("echo", &sent_task).await["response"]["echo"]["n"], 1);
    peer.wait_for_status("echo", "available").await;
    assert_eq!(peer.call("echo", &task("echo", json!({"n": 2}))).await["response"]["echo"]["n"], 2);
    assert_eq!(peer.all_on(&reply_topic(&sent_task, "echo")).len(), 1);
    assert_eq!(agent.call_count(), 2);
}

#[tokio::test]
async fn tasks_beyond_the_queue_limit_fail_at_once() {
    let broker = Mosquitto::start().await;
    let (agent, agent_latch) = latched_agent().await;
    let peer = Peer::connect(&broker).await;
    let _gate = bridged(&broker, "    max_concurrency: 1\n    max_queued: 1\n").agent("slow", &agent).start().await;
    peer.wait_for_status("slow", "available").await;
    let tasks: Vec<Value> = (0..3).map(|_| task("slow", json!({}))).collect();
    for task in &tasks {
        peer.send_task("slow", task).await;
    }
    let busy = peer.first_on(&reply_topic(&tasks[2], "slow")).await.payload;
    assert_eq!(busy["error"]["code"], "internal_error");
    // The first task holds its permit before the agent has read the call.
    eventually("the first task is with the agent", async || agent.call_count() == 1).await;
    agent_latch.close();
    for task in &tasks[..2] {
        assert_eq!(peer.first_on(&reply_topic(task, "slow")).await.payload["response"], "done");
    }
}

#[tokio::test]
async fn r3_only_active_agents_that_the_key_may_call_are_offered_and_changes_take_effect() {
    let (broker, agent) = (Mosquitto::start().await, Agent::echo().await);
    let peer = Peer::connect(&broker).await;
    let mut idle = agent.document("idle");
    idle["status"] = json!("inactive");
    let access = "access:\n  grants:\n    - {callers: ['key:bridge'], agents: [granted, idle]}\n    - {callers: ['key:team-a'], agents: ['*']}\n";
    let build = bridged(&broker, "").access(access).agent("granted", &agent).agent("hidden", &agent).document(idle);
    let gate = build.start().await;
    peer.wait_for_status("granted", "available").await;
    assert!(peer.all_on(&status_topic("hidden")).is_empty() && peer.all_on(&status_topic("idle")).is_empty());
    let (mut granted, mut idle) = (agent.document("granted"), agent.document("idle"));
    granted["description"] = json!("Better now");
    idle["status"] = json!("active");
    gate.write_file("agents.json", &json!([granted, idle]).to_string());
    peer.wait_for_status("idle", "available").await;
    eventually("the new description is published", async || {
        peer.all_on(&status_topic("granted"))
            .last()
            .is_some_and(|message| message.payload["description"] == "Better now")
    })
    .await;
    gate.write_file("agents.json", &json!([granted]).to_string());
    peer.wait_for_status("idle", "unavailable").await;
    let config = gate.read_file("gatepost.yaml");
    gate.write_file("gatepost.yaml", &config.replace("agents: ['*']\n", "agents: ['nothing*']\n"));
    peer.wait_for_status("granted", "unavailable").await;
    gate.write_file("gatepost.yaml", &config);
    peer.wait_for_status("granted", "available").await;
    assert_eq!(peer.call("granted", &task("granted", json!({"a": 1}))).await["response"]["echo"]["a"], 1);
}

#[tokio::test]
async fn a_status_that_another_client_published_is_corrected() {
    let (broker, agent) = (Mosquitto::start().await, Agent::echo().await);
    let peer = Peer::connect(&broker).await;
    let _gate = bridged(&broker, "").agent("echo", &agent).start().await;
    peer.wait_for_status("echo", "available").await;
    peer.publish(&status_topic("echo"), status_payload("echo", "unavailable").to_string(), true).await;
    peer.wait_for_status("echo", "unavailable").await;
    peer.wait_for_status("echo", "available").await;
}

#[tokio::test]
async fn a_successor_takes_over_the_agents_and_each_task_runs_once() {
    let (broker, agent) = (Mosquitto::start().await, Agent::echo().await);
    let peer = Peer::connect(&broker).await;
    let build = bridged(&broker, "").agent("echo", &agent).section("shutdown:\n  handover_socket: handover.sock\n");
    let mut predecessor = build.start().await;
    peer.wait_for_status("echo", "available").await;
    let _successor: Gateway = predecessor.start_successor().await;
    assert!(predecessor.wait_for_exit().await.success());
    peer.wait_for_status("echo", "available").await;
    let tasks: Vec<Value> = (0..5).map(|_| task("echo", json!({}))).collect();
    for task in &tasks {
        peer.call("echo", task).await;
    }
    // A second run of one of the tasks would have begun before this one.
    let last = task("echo", json!({}));
    peer.call("echo", &last).await;
    assert!(tasks.iter().all(|task| peer.all_on(&reply_topic(task, "echo")).len() == 1));
    assert_eq!(agent.call_count(), tasks.len() + 1);
    peer.wait_for_status("echo", "available").await;
}

#[tokio::test]
async fn r129_r130_problems_of_the_bridge_name_the_configuration_key() {
    let folder = tempfile::TempDir::new().unwrap();
    let config = "listeners:\n  - address: 127.0.0.1:0\nagents:\n  sources: [agents.json]\nauth:\n  api_keys: {files: [keys.jsonl]}\n";
    std::fs::write(folder.path().join("agents.json"), "[]").unwrap();
    new_key(folder.path(), "team-a", &[]);
    let path = folder.path().join("gatepost.yaml");
    let check = |bridge: &str| {
        std::fs::write(&path, format!("{config}{bridge}")).unwrap();
        let output = crate::support::gateway::gatepost_command().args(["check", "-c"]).arg(&path).output().unwrap();
        assert!(!output.status.success(), "{bridge}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let stderr = check(
        "mqtt_bridge:\n  - {url: 'mqtt://broker.example', api_key: 'env:NO_SUCH_KEY', agents: ['*'], deduplication_ttl: 0s}\n",
    );
    let problems = ["url: is plain text", "api_key", "deduplication_ttl"];
    for problem in problems.map(|problem| format!("mqtt_bridge[0].{problem}")) {
        assert!(stderr.contains(&problem), "{problem} is not reported: {stderr}");
    }
    let stderr = check("mqtt_bridge:\n  - {url: 'mqtts://broker.example', api_key: 'env:NO_SUCH_KEY', agents: []}\n");
    assert!(stderr.contains("mqtt_bridge[0].agents"), "{stderr}");
}
