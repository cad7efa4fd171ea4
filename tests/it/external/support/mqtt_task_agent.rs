//! An agent of the 2389 protocol at a real broker that answers each task by a script, and a proxy between clients and
//! the broker that misbehaves in one of several ways.

use crate::support::{
    TEST_TIMEOUT,
    agent::{Latch, latch},
};
use rumqttc_v5::{AsyncClient, Event, MqttOptions, Packet, PublishOptions, QoS};
use serde_json::{Value, json};
use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};

/// A message that an agent publishes.
#[derive(Clone, Debug)]
pub struct Publication {
    pub topic: String,
    pub payload: Vec<u8>,
    /// Delay before the message.
    pub delay: Duration,
}

impl Publication {
    /// A message of the agent `id` in the conversation of `task`.
    pub fn in_conversation(task: &Value, id: &str, payload: impl Into<Vec<u8>>) -> Self {
        let conversation = task["conversation_id"].as_str().unwrap();
        Self::on_topic(&format!("/conversations/{conversation}/{id}"), payload)
    }

    pub fn on_topic(topic: &str, payload: impl Into<Vec<u8>>) -> Self {
        Self { topic: topic.to_owned(), payload: payload.into(), delay: Duration::ZERO }
    }

    pub fn after_millis(self, millis: u64) -> Self {
        Self { delay: Duration::from_millis(millis), ..self }
    }
}

/// The payload of a response to a task.
pub fn response_payload(task: &Value, response: Value) -> String {
    json!({"response": response, "task_id": task["task_id"]}).to_string()
}

/// A task that an agent received.
#[derive(Clone, Debug)]
pub struct ReceivedTask {
    pub task: Value,
    pub retained: bool,
    pub qos: QoS,
}

/// An agent that answers tasks.
pub struct TaskAgent {
    tasks: Arc<Mutex<Vec<ReceivedTask>>>,
    connection: JoinHandle<()>,
}

impl Drop for TaskAgent {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

impl TaskAgent {
    /// Starts an agent that answers each task with the messages that `script` returns. It has subscribed when this
    /// function returns.
    pub async fn start(
        port: u16,
        id: &str,
        script: impl Fn(&Value) -> Vec<Publication> + Send + Sync + 'static,
    ) -> Self {
        let topic = format!("/control/agents/{id}/input");
        let mut options = MqttOptions::new(format!("{id}-{}", uuid::Uuid::new_v4()), ("127.0.0.1", port));
        let mut network = options.network_options();
        network.set_tcp_nodelay(true);
        options.set_network_options(network);
        options.set_max_packet_size(Some(8 << 20));
        let (client, mut events) = AsyncClient::builder(options).capacity(100).build();
        client.subscribe(topic, QoS::AtLeastOnce).await.unwrap();
        let (subscribed, mut subscription) = tokio::sync::mpsc::channel(1);
        let (tasks, script) = (Arc::new(Mutex::new(Vec::new())), Arc::new(script));
        let received = Arc::clone(&tasks);
        let connection = tokio::spawn(async move {
            loop {
                match events.poll().await {
                    Ok(Event::Incoming(Packet::SubAck(_))) => drop(subscribed.try_send(())),
                    Ok(Event::Incoming(Packet::Publish(message))) => {
                        let task: Value = serde_json::from_slice(&message.payload).unwrap();
                        let messages = script(&task);
                        let received_task = ReceivedTask { task, retained: message.retain, qos: message.qos };
                        received.lock().unwrap().push(received_task);
                        let client = client.clone();
                        tokio::spawn(async move {
                            for message in messages {
                                tokio::time::sleep(message.delay).await;
                                let options = PublishOptions::new(QoS::AtLeastOnce);
                                let _ = client.publish(message.topic, message.payload, options).await;
                            }
                        });
                    }
                    Ok(_) => {}
                    Err(_) => return,
                }
            }
        });
        tokio::time::timeout(TEST_TIMEOUT, subscription.recv()).await.unwrap().unwrap();
        Self { tasks, connection }
    }

    /// Starts an agent that answers `{"echo": <the task's input>}`.
    pub async fn echo(port: u16, id: &str) -> Self {
        let agent_id = id.to_owned();
        Self::start(port, id, move |task| {
            vec![Publication::in_conversation(task, &agent_id, response_payload(task, json!({"echo": task["input"]})))]
        })
        .await
    }

    /// The tasks received so far.
    pub fn tasks(&self) -> Vec<ReceivedTask> {
        self.tasks.lock().unwrap().clone()
    }
}

/// How a proxy between clients and a broker misbehaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyFault {
    /// Refuses MQTT 5, as a broker of MQTT 3.1.1 does.
    RejectsMqtt5,
    /// Drops every PUBACK of the broker.
    DropsPuback,
    /// Drops every PUBACK of the clients.
    DropsClientPuback,
    /// Closes the connection instead of forwarding the first message in a conversation.
    ClosesOnce,
    /// Closes the connection of a client that publishes on a topic with the level `closing`, as some brokers do where they
    /// do not accept a message.
    ClosesOnClosingTopic,
    /// Closes the connection of a client that subscribes to a status, as some brokers do where it is not permitted.
    ClosesOnStatusSubscription,
    /// Closes the connection once for such a subscription.
    ClosesOnceOnStatusSubscription,
}

/// Starts a proxy to the broker at `port`. It forwards whole packets, and lasts as long as the runtime.
pub async fn start_broker_proxy(port: u16, kind: ProxyFault) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let breaks =
        Arc::new(AtomicBool::new(kind == ProxyFault::ClosesOnce || kind == ProxyFault::ClosesOnceOnStatusSubscription));
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let breaks = Arc::clone(&breaks);
            tokio::spawn(async move {
                let _ = forward(client, port, Some(kind), &breaks, None).await;
            });
        }
    });
    address
}

/// A proxy to a broker that holds each SUBACK back until the test releases them.
pub struct SubackHoldingProxy {
    pub address: SocketAddr,
    hold: SubackHold,
    task: JoinHandle<()>,
}

/// The SUBACKs that a proxy holds back.
#[derive(Clone)]
struct SubackHold {
    latch: Latch,
    held_count: Arc<AtomicUsize>,
}

impl SubackHold {
    /// Returns once the SUBACKs are released. The SUBACK of a connection that ends before is no longer held.
    async fn wait(&self) {
        struct Held<'a>(&'a AtomicUsize);
        impl Drop for Held<'_> {
            fn drop(&mut self) {
                self.0.fetch_sub(1, Ordering::SeqCst);
            }
        }
        self.held_count.fetch_add(1, Ordering::SeqCst);
        let _held = Held(&self.held_count);
        // The latch opens by closing its semaphore.
        drop(self.latch.acquire().await);
    }
}

impl SubackHoldingProxy {
    /// Starts a proxy to the broker at `port`.
    pub async fn start(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let hold = SubackHold { latch: latch(), held_count: Arc::default() };
        let shared = hold.clone();
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let hold = shared.clone();
                tokio::spawn(async move {
                    let _ = forward(client, port, None, &AtomicBool::new(false), Some(&hold)).await;
                });
            }
        });
        Self { address, hold, task }
    }

    /// The number of SUBACKs that are held back for connections that are still open.
    pub fn held_count(&self) -> usize {
        self.hold.held_count.load(Ordering::SeqCst)
    }

    /// Forwards the SUBACKs, these and all later ones.
    pub fn release(&self) {
        self.hold.latch.close();
    }
}

impl Drop for SubackHoldingProxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn forward(
    mut client: TcpStream,
    port: u16,
    fault: Option<ProxyFault>,
    breaks: &AtomicBool,
    hold: Option<&SubackHold>,
) -> std::io::Result<()> {
    client.set_nodelay(true)?;
    let connect = read_packet(&mut client).await?;
    // The protocol name is MQTT in both versions; the protocol version follows it.
    let version = connect.iter().position(|byte| *byte == b'Q').and_then(|at| connect.get(at + 3)).copied();
    if fault == Some(ProxyFault::RejectsMqtt5) && version != Some(4) {
        return client.write_all(b"\x20\x03\x00\x84\x00").await;
    }
    let mut broker = TcpStream::connect(("127.0.0.1", port)).await?;
    broker.set_nodelay(true)?;
    broker.write_all(&connect).await?;
    let ((mut from_client, mut to_client), (mut from_broker, mut to_broker)) = (client.split(), broker.split());
    let to_client_loop = async {
        loop {
            let packet = read_packet(&mut from_broker).await?;
            if let (Some(hold), 9) = (hold, packet[0] >> 4) {
                hold.wait().await;
            }
            if !(fault == Some(ProxyFault::DropsPuback) && packet[0] >> 4 == 4) {
                to_client.write_all(&packet).await?;
            }
        }
    };
    let to_broker_loop = async {
        loop {
            let packet = read_packet(&mut from_client).await?;
            let in_conversation = packet[0] >> 4 == 3 && packet.windows(15).any(|part| part == b"/conversations/");
            if in_conversation && fault == Some(ProxyFault::ClosesOnce) && breaks.swap(false, Ordering::SeqCst) {
                return Ok(());
            }
            let on_closing_topic = packet[0] >> 4 == 3 && packet.windows(9).any(|part| part == b"/closing/");
            if fault == Some(ProxyFault::ClosesOnClosingTopic) && on_closing_topic {
                return Ok(());
            }
            let is_status_subscription = packet[0] >> 4 == 8 && packet.windows(7).any(|part| part == b"/status");
            let closes = match fault {
                Some(ProxyFault::ClosesOnStatusSubscription) => is_status_subscription,
                Some(ProxyFault::ClosesOnceOnStatusSubscription) => {
                    is_status_subscription && breaks.swap(false, Ordering::SeqCst)
                }
                _ => false,
            };
            if closes {
                return Ok(());
            }
            if !(fault == Some(ProxyFault::DropsClientPuback) && packet[0] >> 4 == 4) {
                to_broker.write_all(&packet).await?;
            }
        }
    };
    tokio::select! {
        result = to_broker_loop => result,
        result = to_client_loop => result,
    }
}

/// Reads the next packet, with its fixed header.
async fn read_packet(from: &mut (impl AsyncReadExt + Unpin)) -> std::io::Result<Vec<u8>> {
    let (mut bytes, mut length, mut shift) = (vec![from.read_u8().await?], 0_usize, 0);
    loop {
        let byte = from.read_u8().await?;
        bytes.push(byte);
        length |= usize::from(byte & 0x7f) << shift;
        shift += 7;
        if byte & 0x80 == 0 || shift > 21 {
            break;
        }
    }
    let header_length = bytes.len();
    bytes.resize(header_length + length, 0);
    from.read_exact(&mut bytes[header_length..]).await?;
    Ok(bytes)
}
