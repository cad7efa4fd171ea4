//! A real broker (mosquitto) on a free port of loopback, which can be killed and started again, and agents that show
//! their status there as the reference agent does.

use super::{certs::Issued, eventually};
use rumqttc_v5::{AsyncClient, Event, LastWill, MqttOptions, Packet, PublishOptions, QoS};
use serde_json::{Value, json};
use std::{
    io::ErrorKind,
    net::{TcpListener, TcpStream},
    process::{Child, Command, Stdio},
    time::Duration,
};
use tempfile::TempDir;
use tokio::task::JoinHandle;

/// A broker that runs until it is dropped. What it is told to keep is lost with its process.
pub struct Mosquitto {
    pub port: u16,
    lines: String,
    folder: TempDir,
    process: Option<Child>,
}

impl Drop for Mosquitto {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Mosquitto {
    /// One that lets everybody in.
    pub async fn start() -> Self {
        Self::with("allow_anonymous true\n").await
    }

    /// One that knows a single user.
    pub async fn guarded(user: &str, password: &str) -> Self {
        let mut broker = Self::configured("allow_anonymous false\npassword_file FOLDER/users\n");
        let users = broker.folder.path().join("users");
        let made = Command::new("mosquitto_passwd").args(["-b", "-c"]).arg(&users).args([user, password]).output();
        let made = made.unwrap_or_else(|why| missing(why.kind()));
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        broker.again().await;
        broker
    }

    /// One that speaks TLS with this certificate.
    pub async fn secure(issued: &Issued) -> Self {
        let mut broker =
            Self::configured("allow_anonymous true\ncertfile FOLDER/server.pem\nkeyfile FOLDER/server.key\n");
        issued.write(broker.folder.path(), "server");
        broker.again().await;
        broker
    }

    async fn with(lines: &str) -> Self {
        let mut broker = Self::configured(lines);
        broker.again().await;
        broker
    }

    /// One that does not run yet.
    pub fn configured(lines: &str) -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        Self { port, lines: lines.to_owned(), folder: TempDir::new().unwrap(), process: None }
    }

    /// Starts it (again) on its port, with nothing kept.
    pub async fn again(&mut self) {
        self.kill();
        let lines = self.lines.replace("FOLDER", &self.folder.path().display().to_string());
        // As root it would leave for a user who may not read this folder.
        let config = format!("user root\nset_tcp_nodelay true\nlistener {} 127.0.0.1\n{lines}", self.port);
        let path = self.folder.path().join("mosquitto.conf");
        std::fs::write(&path, config).unwrap();
        let mut command = Command::new("mosquitto");
        // Servers live in folders that a plain user's PATH leaves out.
        command.env("PATH", format!("{}:/usr/local/sbin:/usr/sbin", std::env::var("PATH").unwrap_or_default()));
        command.arg("-c").arg(path).stdout(Stdio::null()).stderr(Stdio::null());
        self.process = Some(command.spawn().unwrap_or_else(|why| missing(why.kind())));
        eventually("mosquitto listens", async || TcpStream::connect(("127.0.0.1", self.port)).is_ok()).await;
    }

    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            // It may have ended by itself, which is what is wanted.
            let _ = process.kill();
            let _ = process.wait();
        }
    }

    pub fn url(&self) -> String {
        format!("mqtt://127.0.0.1:{}", self.port)
    }

    /// An agent that connects, sets its last will and says that it is available (R118).
    pub async fn player(&self, id: &str) -> Player {
        Player::connect(self.port, id).await
    }

    /// Publishes one message.
    pub async fn publish(&self, topic: &str, payload: impl Into<Vec<u8>>, retain: bool) {
        let speaker = Player::speaker(self.port, "speaker", None).await;
        speaker.publish(topic, payload.into(), retain).await;
    }
}

fn missing<T>(why: ErrorKind) -> T {
    panic!("the Debian package mosquitto is missing (run: sudo apt-get install mosquitto) [{why}]");
}

/// The topic of an agent's status.
pub fn topic(id: &str) -> String {
    format!("/control/agents/{id}/status")
}

/// A status as on the wire.
pub fn status(id: &str, word: &str) -> Value {
    json!({"agent_id": id, "status": word, "timestamp": "2026-11-22T03:00:00Z"})
}

/// An agent at a broker.
pub struct Player {
    id: String,
    client: AsyncClient,
    acknowledged: tokio::sync::watch::Receiver<usize>,
    sent: std::sync::atomic::AtomicUsize,
    connection: JoinHandle<()>,
}

impl Drop for Player {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

impl Player {
    async fn connect(port: u16, id: &str) -> Self {
        let will = LastWill::new(topic(id), status(id, "unavailable").to_string(), QoS::AtLeastOnce, true, None);
        let player = Self::speaker(port, id, Some(will)).await;
        let mut available = status(id, "available");
        available["capabilities"] = json!(["plan", "write_file"]);
        available["description"] = json!("Plans things");
        player.publish(&topic(id), available.to_string().into_bytes(), true).await;
        player
    }

    async fn speaker(port: u16, id: &str, will: Option<LastWill>) -> Self {
        let mut options = MqttOptions::new(format!("{id}-{}", uuid::Uuid::new_v4()), ("127.0.0.1", port));
        let mut network = options.network_options();
        network.set_tcp_nodelay(true);
        options.set_network_options(network);
        if let Some(will) = will {
            options.set_last_will(will);
        }
        let (client, mut events) = AsyncClient::builder(options).capacity(10).build();
        let (tell, acknowledged) = tokio::sync::watch::channel(0);
        let connection = tokio::spawn(async move {
            while let Ok(event) = events.poll().await {
                if let Event::Incoming(Packet::PubAck(_)) = event {
                    tell.send_modify(|count| *count += 1);
                }
            }
        });
        Self { id: id.to_owned(), client, acknowledged, sent: Default::default(), connection }
    }

    /// Publishes, and waits until the broker has it.
    pub async fn publish(&self, topic: &str, payload: Vec<u8>, retain: bool) {
        let options = PublishOptions::new(QoS::AtLeastOnce).retain(retain);
        self.client.publish(topic, payload, options).await.unwrap();
        let sent = 1 + self.sent.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        let mut acknowledged = self.acknowledged.clone();
        let all = acknowledged.wait_for(|count| *count >= sent);
        tokio::time::timeout(Duration::from_secs(10), all).await.unwrap().unwrap();
    }

    /// Says so and stays connected (R119).
    pub async fn says(&self, word: &str) {
        self.publish(&topic(&self.id), status(&self.id, word).to_string().into_bytes(), true).await;
    }

    /// Ends like a process that is killed: its connection breaks, and the broker carries out its last will.
    pub fn kill(self) {
        self.connection.abort();
    }
}
