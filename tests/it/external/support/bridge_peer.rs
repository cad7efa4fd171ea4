//! A client of the 2389 protocol, and a gateway that offers agents to it at a broker.

use super::mosquitto::{Mosquitto, status_topic};
use crate::support::{
    agent::{Agent, Latch, Step, json_response, latch},
    eventually,
    gateway::{Gateway, GatewayBuilder, gateway, new_key},
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
pub struct ReceivedMessage {
    pub topic: String,
    pub payload: Value,
    pub retained: bool,
}

/// A client of the protocol, with the messages that it received.
pub struct Peer {
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
    pub async fn connect(broker: &Mosquitto) -> Self {
        Self::subscribe(broker, &["/conversations/#", "/control/agents/+/status"]).await
    }

    pub async fn subscribe(broker: &Mosquitto, filters: &[&str]) -> Self {
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

    pub async fn publish(&self, topic: &str, payload: impl Into<Vec<u8>>, retain: bool) {
        let options = PublishOptions::new(QoS::AtLeastOnce).retain(retain);
        self.client.publish(topic, payload.into(), options).await.unwrap();
    }

    pub async fn send_task(&self, agent: &str, envelope: &Value) {
        self.publish(&format!("/control/agents/{agent}/input"), envelope.to_string(), false).await;
    }

    /// The messages received on `topic`.
    pub fn all_on(&self, topic: &str) -> Vec<ReceivedMessage> {
        self.received.lock().unwrap().iter().filter(|message| message.topic == topic).cloned().collect()
    }

    /// Waits for the first message on `topic`, and returns it.
    pub async fn first_on(&self, topic: &str) -> ReceivedMessage {
        eventually(&format!("a message on {topic}"), async || !self.all_on(topic).is_empty()).await;
        self.all_on(topic).remove(0)
    }

    /// Waits until this is the last status of the agent, and returns the message.
    pub async fn wait_for_status(&self, agent: &str, status: &str) -> ReceivedMessage {
        let last_status = || self.all_on(&status_topic(agent)).pop();
        eventually(&format!("{agent} is {status}"), async || {
            last_status().is_some_and(|message| message.payload["status"] == status)
        })
        .await;
        last_status().unwrap()
    }

    /// Sends a task, and waits for the first message of the agent in its conversation.
    pub async fn call(&self, agent: &str, envelope: &Value) -> Value {
        self.send_task(agent, envelope).await;
        let conversation = envelope["conversation_id"].as_str().unwrap();
        self.first_on(&format!("/conversations/{conversation}/{agent}")).await.payload
    }
}

pub fn task(agent: &str, input: Value) -> Value {
    json!({
        "task_id": Uuid::new_v4().to_string(), "conversation_id": Uuid::new_v4().to_string(),
        "topic": format!("/control/agents/{agent}/input"), "instruction": null, "input": input, "next": null,
    })
}

/// An agent that answers "done" once the latch is closed.
pub async fn latched_agent() -> (Agent, Latch) {
    let agent_latch = latch();
    let script_latch = agent_latch.clone();
    let agent = Agent::scripted(move |_| {
        [vec![Step::WaitForLatch(script_latch.clone())], json_response(&json!("done"))].concat()
    })
    .await;
    (agent, agent_latch)
}

/// An agent that answers "done": an input with the member `is_slow` once the latch is closed, others at once.
pub async fn partly_latched_agent() -> (Agent, Latch) {
    let agent_latch = latch();
    let script_latch = agent_latch.clone();
    let agent = Agent::scripted(move |request| match request.json().get("is_slow") {
        Some(_) => [vec![Step::WaitForLatch(script_latch.clone())], json_response(&json!("done"))].concat(),
        None => json_response(&json!("done")),
    })
    .await;
    (agent, agent_latch)
}

/// The topic on which the agent answers the task.
pub fn reply_topic(task: &Value, agent: &str) -> String {
    format!("/conversations/{}/{agent}", task["conversation_id"].as_str().unwrap())
}

/// A gateway that offers its agents at the broker. The bridge has its own API key.
pub fn bridged(broker: &Mosquitto, bridge_settings: &str) -> GatewayBuilder {
    bridged_at(&broker.url(), bridge_settings)
}

pub fn bridged_at(url: &str, bridge_settings: &str) -> GatewayBuilder {
    let build = gateway();
    let key = new_key(build.folder(), "bridge", &[]);
    std::fs::write(build.folder().join("bridge.key"), key).unwrap();
    build.section(&format!(
        "mqtt_bridge:\n  - url: {url}\n    api_key: file:bridge.key\n    agents: ['*']\n{bridge_settings}"
    ))
}

/// Starts a gateway again, in the folder of a process that ends.
pub async fn start_again(mut gate: Gateway) -> Gateway {
    gate.wait_for_exit().await;
    let keys = gate.keys.clone();
    let (folder, _) = gate.into_folder_and_child();
    tokio::task::spawn_blocking(move || Gateway::spawn(folder, keys, &[], &[])).await.unwrap()
}
