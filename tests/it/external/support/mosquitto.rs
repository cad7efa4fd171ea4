//! A real MQTT broker (mosquitto) on a free port of loopback, which can be killed and restarted, and agents that
//! publish their status as the reference agent does.

use crate::support::{certs::IssuedCertificate, eventually, ports::ReservedPort};
use rumqttc_v5::{AsyncClient, Event, LastWill, MqttOptions, Packet, PublishOptions, QoS};
use serde_json::{Value, json};
use std::{
    io::ErrorKind,
    net::TcpStream,
    process::{Child, Command, Stdio},
    time::Duration,
};
use tempfile::TempDir;
use tokio::task::JoinHandle;

/// A broker that runs until it is dropped. Retained messages are lost with its process.
pub struct Mosquitto {
    pub port: u16,
    _reservation: ReservedPort,
    config_lines: String,
    folder: TempDir,
    process: Option<Child>,
}

impl Drop for Mosquitto {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Mosquitto {
    /// Starts a broker that accepts anonymous clients.
    pub async fn start() -> Self {
        let mut broker = Self::stopped("allow_anonymous true\n");
        broker.restart().await;
        broker
    }

    /// Starts a broker with a single user.
    pub async fn start_with_user(user: &str, password: &str) -> Self {
        let mut broker = Self::stopped("allow_anonymous false\npassword_file FOLDER/users\n");
        let users = broker.folder.path().join("users");
        let output = Command::new("mosquitto_passwd").args(["-b", "-c"]).arg(&users).args([user, password]).output();
        let output = output.unwrap_or_else(|why| panic_missing_package(why.kind()));
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        broker.restart().await;
        broker
    }

    /// Starts a broker that speaks TLS with this certificate.
    pub async fn start_with_tls(issued: &IssuedCertificate) -> Self {
        let mut broker = Self::stopped("allow_anonymous true\ncertfile FOLDER/server.pem\nkeyfile FOLDER/server.key\n");
        issued.write(broker.folder.path(), "server");
        broker.restart().await;
        broker
    }

    /// Starts a broker that keeps sessions and retained messages on disk; see [`stop`](Self::stop).
    pub async fn start_with_persistence() -> Self {
        let mut broker = Self::stopped("allow_anonymous true\npersistence true\npersistence_location FOLDER/\n");
        broker.restart().await;
        broker
    }

    /// A broker with this configuration that is not running yet; `FOLDER` stands for its folder.
    pub fn stopped(config_lines: &str) -> Self {
        let reservation = ReservedPort::new();
        Self {
            port: reservation.number(),
            _reservation: reservation,
            config_lines: config_lines.to_owned(),
            folder: TempDir::new().unwrap(),
            process: None,
        }
    }

    /// Starts or restarts the broker on its port, with what it has on disk.
    pub async fn restart(&mut self) {
        self.kill();
        let lines = self.config_lines.replace("FOLDER", &self.folder.path().display().to_string());
        // Started by root, mosquitto would switch to a user that cannot read this folder.
        let config = format!(
            "user root\nset_tcp_nodelay true\nlog_dest file {}\nlog_type notice\nlistener {} 127.0.0.1\n{lines}",
            self.log_path().display(),
            self.port
        );
        let path = self.folder.path().join("mosquitto.conf");
        std::fs::write(&path, config).unwrap();
        let mut command = Command::new("mosquitto");
        // Debian installs mosquitto in /usr/sbin, which is not in the PATH of ordinary users.
        command.env("PATH", format!("{}:/usr/local/sbin:/usr/sbin", std::env::var("PATH").unwrap_or_default()));
        command.arg("-c").arg(path).stdout(Stdio::null()).stderr(Stdio::null());
        self.process = Some(command.spawn().unwrap_or_else(|why| panic_missing_package(why.kind())));
        eventually("mosquitto listens", async || TcpStream::connect(("127.0.0.1", self.port)).is_ok()).await;
    }

    /// Lets the broker write its state and end.
    pub async fn stop(&mut self) {
        let mut process = self.process.take().unwrap();
        rustix::process::kill_process(rustix::process::Pid::from_child(&process), rustix::process::Signal::TERM)
            .unwrap();
        eventually("mosquitto ends", async || process.try_wait().unwrap().is_some()).await;
    }

    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            // An error means that the process has ended already.
            let _ = process.kill();
            let _ = process.wait();
        }
    }

    /// How the gateway connected for its bridged agents: the version of MQTT (`p5`, or `p2` for 3.1.1) and whether the
    /// session began clean (`c1`), of each connection.
    pub fn bridge_connections(&self) -> Vec<String> {
        let log = std::fs::read_to_string(self.log_path()).unwrap();
        let connections = log.lines().filter(|line| line.contains("New client connected") && line.contains(" as gp"));
        connections.map(|line| line.split_once('(').unwrap().1.split(", k").next().unwrap().to_owned()).collect()
    }

    fn log_path(&self) -> std::path::PathBuf {
        self.folder.path().join("mosquitto.log")
    }

    pub fn url(&self) -> String {
        format!("mqtt://127.0.0.1:{}", self.port)
    }

    /// Connects an agent that sets its last will and publishes that it is available (R118).
    pub async fn connect_agent(&self, id: &str) -> StatusAgent {
        StatusAgent::connect(self.port, id).await
    }

    /// Publishes one message.
    pub async fn publish(&self, topic: &str, payload: impl Into<Vec<u8>>, retain: bool) {
        let client = StatusAgent::connect_client(self.port, "publisher", None).await;
        client.publish(topic, payload.into(), retain).await;
    }
}

fn panic_missing_package<T>(why: ErrorKind) -> T {
    panic!("the Debian package mosquitto is missing (run: sudo apt-get install mosquitto) [{why}]");
}

/// The topic of an agent's status.
pub fn status_topic(id: &str) -> String {
    format!("/control/agents/{id}/status")
}

/// The payload of a status message.
pub fn status_payload(id: &str, status: &str) -> Value {
    json!({"agent_id": id, "status": status, "timestamp": "2026-11-22T03:00:00Z"})
}

/// An agent that publishes its status at a broker.
pub struct StatusAgent {
    id: String,
    client: AsyncClient,
    acknowledged_count: tokio::sync::watch::Receiver<usize>,
    published_count: std::sync::atomic::AtomicUsize,
    connection: JoinHandle<()>,
}

impl Drop for StatusAgent {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

impl StatusAgent {
    async fn connect(port: u16, id: &str) -> Self {
        let will = LastWill::new(
            status_topic(id),
            status_payload(id, "unavailable").to_string(),
            QoS::AtLeastOnce,
            true,
            None,
        );
        let agent = Self::connect_client(port, id, Some(will)).await;
        let mut available = status_payload(id, "available");
        available["capabilities"] = json!(["plan", "write_file"]);
        available["description"] = json!("Plans things");
        agent.publish(&status_topic(id), available.to_string().into_bytes(), true).await;
        agent
    }

    async fn connect_client(port: u16, id: &str, will: Option<LastWill>) -> Self {
        let mut options = MqttOptions::new(format!("{id}-{}", uuid::Uuid::new_v4()), ("127.0.0.1", port));
        let mut network = options.network_options();
        network.set_tcp_nodelay(true);
        options.set_network_options(network);
        if let Some(will) = will {
            options.set_last_will(will);
        }
        let (client, mut events) = AsyncClient::builder(options).capacity(10).build();
        let (acknowledged, acknowledged_count) = tokio::sync::watch::channel(0);
        let connection = tokio::spawn(async move {
            while let Ok(event) = events.poll().await {
                if let Event::Incoming(Packet::PubAck(_)) = event {
                    acknowledged.send_modify(|count| *count += 1);
                }
            }
        });
        Self { id: id.to_owned(), client, acknowledged_count, published_count: Default::default(), connection }
    }

    /// Publishes a message, and waits until the broker has acknowledged it.
    pub async fn publish(&self, topic: &str, payload: Vec<u8>, retain: bool) {
        let options = PublishOptions::new(QoS::AtLeastOnce).retain(retain);
        self.client.publish(topic, payload, options).await.unwrap();
        let published = 1 + self.published_count.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        let mut acknowledged = self.acknowledged_count.clone();
        let all_acknowledged = acknowledged.wait_for(|count| *count >= published);
        tokio::time::timeout(Duration::from_secs(10), all_acknowledged).await.unwrap().unwrap();
    }

    /// Publishes this status and stays connected (R119).
    pub async fn publish_status(&self, new_status: &str) {
        self.publish(&status_topic(&self.id), status_payload(&self.id, new_status).to_string().into_bytes(), true)
            .await;
    }

    /// Ends like a killed process: the connection breaks, and the broker publishes the last will.
    pub fn kill(self) {
        self.connection.abort();
    }
}
