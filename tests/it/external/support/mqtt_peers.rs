//! Programs of others that speak MQTT (Python): agents and clients with paho-mqtt (MQTT 5 and 3.1.1) and amqtt (3.1.1),
//! and the broker of amqtt.

use super::python_packages::PythonPackages;
use crate::support::ports::ReservedPort;
use serde_json::Value;
use std::{
    io::{BufRead, BufReader, Write},
    process::{Child, Stdio},
    time::Duration,
};
use tokio::sync::mpsc;

/// The libraries, each with one version of MQTT.
pub const LIBRARIES: [&str; 3] = ["paho-5", "paho-3.1.1", "amqtt"];

/// How long a program may take for its next line, imports of Python modules included.
const LINE_TIMEOUT: Duration = Duration::from_secs(60);

/// A program of `tests/mqtt_peers` that runs until it is dropped.
pub struct MqttPeer {
    process: Child,
    lines: mpsc::UnboundedReceiver<String>,
}

impl MqttPeer {
    /// Starts an agent that answers with the task that it received. It is available when this function returns.
    pub async fn agent(library: &str, port: u16, id: &str) -> Self {
        let mut agent =
            Self::run("agent.py", &["--library", library, "--port", &port.to_string(), "--id", id], &[]).await;
        agent.expect_line("ready").await;
        agent
    }

    /// Starts a client that subscribes to the topics and publishes the tasks. The broker has them when this function
    /// returns.
    pub async fn client(library: &str, port: u16, topics: &[&str], tasks: &[&Value]) -> Self {
        let port = port.to_string();
        let args = [&["--library", library, "--port", &port], topics].concat();
        let mut client = Self::run("client.py", &args, tasks).await;
        client.expect_line("published").await;
        client
    }

    async fn run(program: &str, args: &[&str], input: &[&Value]) -> Self {
        let packages = tokio::task::spawn_blocking(|| PythonPackages::install("mqtt_peers")).await.unwrap();
        let mut python = packages.python();
        python.arg(packages.source().join(program)).args(args).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = python.spawn().unwrap();
        let mut stdin = process.stdin.take().unwrap();
        input.iter().for_each(|line| writeln!(stdin, "{line}").unwrap());
        let output = BufReader::new(process.stdout.take().unwrap()).lines();
        let (sender, lines) = mpsc::unbounded_channel();
        std::thread::spawn(move || {
            for line in output.map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        Self { process, lines }
    }

    async fn next_line(&mut self) -> String {
        let line =
            tokio::time::timeout(LINE_TIMEOUT, self.lines.recv()).await.expect("the program prints a line in time");
        line.expect("the program runs (its standard error says why it does not)")
    }

    /// Waits for the next line, which must be this one.
    pub async fn expect_line(&mut self, line: &str) {
        assert_eq!(self.next_line().await, line);
    }

    /// The next message that a client received: its topic and its payload.
    pub async fn next_message(&mut self) -> (String, Value) {
        let mut line: Value = serde_json::from_str(&self.next_line().await).unwrap();
        (line["topic"].as_str().unwrap().to_owned(), line["message"].take())
    }
}

impl Drop for MqttPeer {
    fn drop(&mut self) {
        // An error means that the process has ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The broker of amqtt, which runs until it is dropped.
pub struct AmqttBroker {
    port: ReservedPort,
    _process: MqttPeer,
}

impl AmqttBroker {
    pub async fn start() -> Self {
        let port = ReservedPort::new();
        let mut process = MqttPeer::run("broker.py", &["--port", &port.number().to_string()], &[]).await;
        process.expect_line("ready").await;
        Self { port, _process: process }
    }

    pub fn port(&self) -> u16 {
        self.port.number()
    }
}
