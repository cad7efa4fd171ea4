//! An agent of the 2389 protocol at a real broker, which does with each task what its script says; and a wire to the
//! broker that knows only MQTT 3.1.1, swallows what the broker acknowledges, is slow, or breaks.

use rumqttc_v5::{AsyncClient, Event, MqttOptions, Packet, PublishOptions, QoS};
use serde_json::{Value, json};
use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};

/// One thing that an agent publishes.
#[derive(Clone, Debug)]
pub struct Say {
    pub topic: String,
    pub payload: Vec<u8>,
    /// How long it waits before.
    pub after: Duration,
}

impl Say {
    /// A message on the conversation of `task`, from the agent `id`.
    pub fn on(task: &Value, id: &str, payload: impl Into<Vec<u8>>) -> Self {
        let conversation = task["conversation_id"].as_str().unwrap();
        Self::at(&format!("/conversations/{conversation}/{id}"), payload)
    }

    pub fn at(topic: &str, payload: impl Into<Vec<u8>>) -> Self {
        Self { topic: topic.to_owned(), payload: payload.into(), after: Duration::ZERO }
    }

    pub fn after(self, millis: u64) -> Self {
        Self { after: Duration::from_millis(millis), ..self }
    }
}

/// The usual answer to a task.
pub fn response(task: &Value, response: Value) -> String {
    json!({"response": response, "task_id": task["task_id"]}).to_string()
}

/// A task as it came.
#[derive(Clone, Debug)]
pub struct Got {
    pub task: Value,
    pub retained: bool,
    pub qos: QoS,
}

/// An agent that works.
pub struct Worker {
    got: Arc<Mutex<Vec<Got>>>,
    connection: JoinHandle<()>,
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

impl Worker {
    /// An agent that answers each task with what `script` says; it listens when this resolves.
    pub async fn start(port: u16, id: &str, script: impl Fn(&Value) -> Vec<Say> + Send + Sync + 'static) -> Self {
        let topic = format!("/control/agents/{id}/input");
        let mut options = MqttOptions::new(format!("{id}-{}", uuid::Uuid::new_v4()), ("127.0.0.1", port));
        let mut network = options.network_options();
        network.set_tcp_nodelay(true);
        options.set_network_options(network);
        options.set_max_packet_size(Some(8 << 20));
        let (client, mut events) = AsyncClient::builder(options).capacity(100).build();
        client.subscribe(topic, QoS::AtLeastOnce).await.unwrap();
        let (tell, mut listens) = tokio::sync::mpsc::channel(1);
        let (got, script) = (Arc::new(Mutex::new(Vec::new())), Arc::new(script));
        let seen = Arc::clone(&got);
        let connection = tokio::spawn(async move {
            loop {
                match events.poll().await {
                    Ok(Event::Incoming(Packet::SubAck(_))) => drop(tell.try_send(())),
                    Ok(Event::Incoming(Packet::Publish(message))) => {
                        let task: Value = serde_json::from_slice(&message.payload).unwrap();
                        let says = script(&task);
                        seen.lock().unwrap().push(Got { task, retained: message.retain, qos: message.qos });
                        let client = client.clone();
                        tokio::spawn(async move {
                            for say in says {
                                tokio::time::sleep(say.after).await;
                                let options = PublishOptions::new(QoS::AtLeastOnce);
                                let _ = client.publish(say.topic, say.payload, options).await;
                            }
                        });
                    }
                    Ok(_) => {}
                    Err(_) => return,
                }
            }
        });
        tokio::time::timeout(super::PATIENCE, listens.recv()).await.unwrap().unwrap();
        Self { got, connection }
    }

    /// One that answers each task with what came in.
    pub async fn echo(port: u16, id: &str) -> Self {
        let name = id.to_owned();
        Self::start(port, id, move |task| vec![Say::on(task, &name, response(task, json!({"echo": task["input"]})))])
            .await
    }

    /// The tasks that came.
    pub fn got(&self) -> Vec<Got> {
        self.got.lock().unwrap().clone()
    }
}

/// What a wire between a client and a broker does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wire {
    /// It refuses MQTT 5 as a broker of the older version does.
    Older,
    /// It lets no PUBACK through.
    Unacknowledged,
    /// It takes two seconds over each SUBACK.
    Slow,
    /// It breaks instead of carrying the first message on a conversation.
    Breaks,
}

/// A wire to the broker at `port`; its packets are whole, and it lasts as long as the runtime.
pub async fn wire(port: u16, kind: Wire) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let whole = Arc::new(AtomicBool::new(kind == Wire::Breaks));
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let whole = Arc::clone(&whole);
            tokio::spawn(async move {
                let _ = carry(client, port, kind, &whole).await;
            });
        }
    });
    address
}

async fn carry(mut client: TcpStream, port: u16, kind: Wire, whole: &AtomicBool) -> std::io::Result<()> {
    client.set_nodelay(true)?;
    let greeting = packet(&mut client).await?;
    // The protocol's name is MQTT in both; its version follows.
    let version = greeting.iter().position(|byte| *byte == b'Q').and_then(|at| greeting.get(at + 3)).copied();
    if kind == Wire::Older && version != Some(4) {
        return client.write_all(b"\x20\x03\x00\x84\x00").await;
    }
    let mut broker = TcpStream::connect(("127.0.0.1", port)).await?;
    broker.set_nodelay(true)?;
    broker.write_all(&greeting).await?;
    let ((mut from_client, mut to_client), (mut from_broker, mut to_broker)) = (client.split(), broker.split());
    let back = async {
        loop {
            let packet = packet(&mut from_broker).await?;
            if kind == Wire::Slow && packet[0] >> 4 == 9 {
                tokio::time::sleep(Duration::from_secs(2)).await;
            }
            if !(kind == Wire::Unacknowledged && packet[0] >> 4 == 4) {
                to_client.write_all(&packet).await?;
            }
        }
    };
    let forth = async {
        loop {
            let packet = packet(&mut from_client).await?;
            let answers = packet[0] >> 4 == 3 && packet.windows(15).any(|part| part == b"/conversations/");
            if answers && whole.swap(false, Ordering::SeqCst) {
                return Ok(());
            }
            to_broker.write_all(&packet).await?;
        }
    };
    tokio::select! {
        forth = forth => forth,
        back = back => back,
    }
}

/// The next packet, as it came.
async fn packet(from: &mut (impl AsyncReadExt + Unpin)) -> std::io::Result<Vec<u8>> {
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
    let head = bytes.len();
    bytes.resize(head + length, 0);
    from.read_exact(&mut bytes[head..]).await?;
    Ok(bytes)
}
