//! `peers`: agents over every transport, in one process: HTTP, a unix socket, WebSocket and MQTT (2389). Each answers a
//! call with the call's input, and logs the number in the input if it has a log file.

use crate::mqtt_connection::MqttConnection;
use anyhow::Context as _;
use serde_json::{Value, json};
use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The agent's id on the broker.
pub(crate) const MQTT_AGENT_ID: &str = "mqtt";

/// The addresses of the agents.
#[derive(Clone, clap::Args)]
pub(crate) struct AgentAddresses {
    /// The agent over HTTP.
    #[arg(long)]
    pub(crate) http: SocketAddr,
    /// The agent over WebSocket.
    #[arg(long)]
    pub(crate) ws: SocketAddr,
    /// The agent on a unix socket.
    #[arg(long)]
    pub(crate) unix: PathBuf,
    /// The broker of the agent over MQTT.
    #[arg(long)]
    pub(crate) broker: SocketAddr,
    /// A log file. For every call, an agent appends its transport and the number in the input.
    #[arg(long = "seen")]
    pub(crate) call_log: Option<PathBuf>,
}

impl AgentAddresses {
    /// Returns the command-line arguments with these addresses.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let mut options = vec![
            ("--http", self.http.to_string()),
            ("--ws", self.ws.to_string()),
            ("--unix", self.unix.display().to_string()),
            ("--broker", self.broker.to_string()),
        ];
        options.extend(self.call_log.as_ref().map(|path| ("--seen", path.display().to_string())));
        options.into_iter().flat_map(|(name, value)| [name.to_owned(), value]).collect()
    }
}

/// The log of the calls that agents receive: one line for each, written at once, so that a kill loses none.
struct ReceivedCallLog(Option<File>);

impl ReceivedCallLog {
    fn open(path: Option<&Path>) -> anyhow::Result<Arc<Self>> {
        let file = path.map(|path| OpenOptions::new().create(true).append(true).open(path)).transpose()?;
        Ok(Arc::new(Self(file)))
    }

    fn record(&self, transport: &str, input: &[u8]) -> anyhow::Result<()> {
        let Some(mut file) = self.0.as_ref() else { return Ok(()) };
        let input: Value = serde_json::from_slice(input)?;
        let line = format!("{transport} {}\n", input.get("n").and_then(Value::as_u64).unwrap_or_default());
        Ok(file.write_all(line.as_bytes())?)
    }
}

/// Serves until killed. The first line on stdout names the HTTP address.
pub(crate) fn serve(addresses: &AgentAddresses) -> anyhow::Result<()> {
    let log = ReceivedCallLog::open(addresses.call_log.as_deref())?;
    // A killed predecessor leaves its socket file behind.
    let _ = std::fs::remove_file(&addresses.unix);
    let (http, ws) = (TcpListener::bind(addresses.http)?, TcpListener::bind(addresses.ws)?);
    let unix = UnixListener::bind(&addresses.unix)?;
    println!("listening on http://{}", addresses.http);
    let (ws_log, unix_log, mqtt_log) = (Arc::clone(&log), Arc::clone(&log), Arc::clone(&log));
    let broker = addresses.broker;
    std::thread::spawn(move || {
        for stream in unix.incoming().flatten() {
            let log = Arc::clone(&unix_log);
            std::thread::spawn(move || serve_http(stream.try_clone(), stream, "unix", &log));
        }
    });
    std::thread::spawn(move || {
        for stream in ws.incoming().flatten() {
            let log = Arc::clone(&ws_log);
            std::thread::spawn(move || serve_websocket(stream, &log));
        }
    });
    std::thread::spawn(move || {
        loop {
            // The connection ends when the broker is killed. It is retried until the broker is back.
            let _ = serve_mqtt(broker, &mqtt_log);
            std::thread::park_timeout(Duration::from_millis(100));
        }
    });
    for stream in http.incoming() {
        let (stream, log) = (stream?, Arc::clone(&log));
        stream.set_nodelay(true)?;
        std::thread::spawn(move || serve_http(stream.try_clone(), stream, "http", &log));
    }
    Ok(())
}

/// Serves an HTTP/1.1 connection: answers each request that has a length with the request's body.
fn serve_http(
    reader: std::io::Result<impl Read>,
    mut writer: impl Write,
    transport: &str,
    log: &ReceivedCallLog,
) -> anyhow::Result<()> {
    let mut reader = BufReader::new(reader?);
    loop {
        let mut length = 0;
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line)? == 0 {
                return Ok(());
            }
            if line == "\r\n" {
                break;
            }
            let lower = line.to_ascii_lowercase();
            if let Some(value) = lower.strip_prefix("content-length:") {
                length = value.trim().parse()?;
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body)?;
        log.record(transport, &body)?;
        let mut bytes =
            format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n")
                .into_bytes();
        bytes.extend(&body);
        writer.write_all(&bytes)?;
    }
}

/// Serves a WebSocket: answers each message with the same message.
fn serve_websocket(stream: std::net::TcpStream, log: &ReceivedCallLog) -> anyhow::Result<()> {
    stream.set_nodelay(true)?;
    let mut socket = tungstenite::accept(stream).ok().context("the WebSocket handshake failed")?;
    loop {
        let message = socket.read()?;
        if message.is_text() || message.is_binary() {
            log.record("ws", &message.clone().into_data())?;
            socket.send(message)?;
        }
    }
}

/// Serves the 2389 protocol on a broker: answers each task with its input.
fn serve_mqtt(broker: SocketAddr, log: &ReceivedCallLog) -> anyhow::Result<()> {
    let mut mqtt = MqttConnection::connect(broker, "loadtest-agent", None)?;
    mqtt.subscribe(&format!("/control/agents/{MQTT_AGENT_ID}/input"))?;
    let status = json!({"agent_id": MQTT_AGENT_ID, "status": "available", "timestamp": "2026-01-01T00:00:00Z"});
    mqtt.publish(&format!("/control/agents/{MQTT_AGENT_ID}/status"), status.to_string().as_bytes(), true)?;
    loop {
        let task: Value = serde_json::from_slice(&mqtt.receive()?.payload)?;
        let input = task.get("input").cloned().unwrap_or_default();
        log.record("mqtt", input.to_string().as_bytes())?;
        let conversation =
            task.get("conversation_id").and_then(Value::as_str).context("a task without conversation_id")?;
        let response = json!({"response": input, "task_id": task.get("task_id")});
        mqtt.publish(
            &format!("/conversations/{conversation}/{MQTT_AGENT_ID}"),
            response.to_string().as_bytes(),
            false,
        )?;
    }
}
