//! Agents that are no plain HTTP servers on TCP alone: one process with an agent over HTTP, a unix socket, WebSocket and
//! MQTT (2389). Each answers what it was asked, and notes the number in it where it is told to.

use crate::mqtt::Mqtt;
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
pub(crate) const ON_BROKER: &str = "mqtt";

/// Where the agents are.
#[derive(Clone, clap::Args)]
pub(crate) struct Places {
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
    /// A file to which every number is added that an agent was asked, after the agent's kind.
    #[arg(long)]
    pub(crate) seen: Option<PathBuf>,
}

impl Places {
    /// The arguments that name these places.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let mut named = vec![
            ("--http", self.http.to_string()),
            ("--ws", self.ws.to_string()),
            ("--unix", self.unix.display().to_string()),
            ("--broker", self.broker.to_string()),
        ];
        named.extend(self.seen.as_ref().map(|seen| ("--seen", seen.display().to_string())));
        named.into_iter().flat_map(|(name, value)| [name.to_owned(), value]).collect()
    }
}

/// What an agent was asked, on file: a line for each, written at once, so that a kill loses none.
struct Seen(Option<File>);

impl Seen {
    fn open(path: Option<&Path>) -> anyhow::Result<Arc<Self>> {
        let file = path.map(|path| OpenOptions::new().create(true).append(true).open(path)).transpose()?;
        Ok(Arc::new(Self(file)))
    }

    fn note(&self, kind: &str, asked: &[u8]) -> anyhow::Result<()> {
        let Some(mut file) = self.0.as_ref() else { return Ok(()) };
        let asked: Value = serde_json::from_slice(asked)?;
        let line = format!("{kind} {}\n", asked.get("n").and_then(Value::as_u64).unwrap_or_default());
        Ok(file.write_all(line.as_bytes())?)
    }
}

/// Serves until killed; the first line on stdout says where.
pub(crate) fn serve(places: &Places) -> anyhow::Result<()> {
    let seen = Seen::open(places.seen.as_deref())?;
    // Left behind by the process before, which was killed.
    let _ = std::fs::remove_file(&places.unix);
    let (http, ws) = (TcpListener::bind(places.http)?, TcpListener::bind(places.ws)?);
    let unix = UnixListener::bind(&places.unix)?;
    println!("listening on http://{}", places.http);
    let (of_ws, of_unix, of_mqtt) = (Arc::clone(&seen), Arc::clone(&seen), Arc::clone(&seen));
    let broker = places.broker;
    std::thread::spawn(move || {
        for stream in unix.incoming().flatten() {
            let seen = Arc::clone(&of_unix);
            std::thread::spawn(move || answer(stream.try_clone(), stream, ("unix", &seen)));
        }
    });
    std::thread::spawn(move || {
        for stream in ws.incoming().flatten() {
            let seen = Arc::clone(&of_ws);
            std::thread::spawn(move || converse(stream, &seen));
        }
    });
    std::thread::spawn(move || {
        loop {
            // The broker is killed, too: it is waited for.
            let _ = on_broker(broker, &of_mqtt);
            std::thread::park_timeout(Duration::from_millis(100));
        }
    });
    for stream in http.incoming() {
        let (stream, seen) = (stream?, Arc::clone(&seen));
        stream.set_nodelay(true)?;
        std::thread::spawn(move || answer(stream.try_clone(), stream, ("http", &seen)));
    }
    Ok(())
}

/// HTTP/1.1: each request with a length is answered with its body.
fn answer(from: std::io::Result<impl Read>, mut to: impl Write, (kind, seen): (&str, &Seen)) -> anyhow::Result<()> {
    let mut from = BufReader::new(from?);
    loop {
        let mut length = 0;
        loop {
            let mut line = String::new();
            if from.read_line(&mut line)? == 0 {
                return Ok(());
            }
            if line == "\r\n" {
                break;
            }
            let lower = line.to_ascii_lowercase();
            if let Some(told) = lower.strip_prefix("content-length:") {
                length = told.trim().parse()?;
            }
        }
        let mut body = vec![0; length];
        from.read_exact(&mut body)?;
        seen.note(kind, &body)?;
        let mut bytes =
            format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n")
                .into_bytes();
        bytes.extend(&body);
        to.write_all(&bytes)?;
    }
}

/// WebSocket: each message is answered with itself.
fn converse(stream: std::net::TcpStream, seen: &Seen) -> anyhow::Result<()> {
    stream.set_nodelay(true)?;
    let mut socket = tungstenite::accept(stream).ok().context("a handshake")?;
    loop {
        let message = socket.read()?;
        if message.is_text() || message.is_binary() {
            seen.note("ws", &message.clone().into_data())?;
            socket.send(message)?;
        }
    }
}

/// The 2389 protocol: each task is answered with its input.
fn on_broker(broker: SocketAddr, seen: &Seen) -> anyhow::Result<()> {
    let mut mqtt = Mqtt::connect(broker, "loadtest-agent", None)?;
    mqtt.subscribe(&format!("/control/agents/{ON_BROKER}/input"))?;
    let status = json!({"agent_id": ON_BROKER, "status": "available", "timestamp": "2026-01-01T00:00:00Z"});
    mqtt.publish(&format!("/control/agents/{ON_BROKER}/status"), status.to_string().as_bytes(), true)?;
    loop {
        let task: Value = serde_json::from_slice(&mqtt.message()?.payload)?;
        let input = task.get("input").cloned().unwrap_or_default();
        seen.note("mqtt", input.to_string().as_bytes())?;
        let conversation = task.get("conversation_id").and_then(Value::as_str).context("a conversation")?;
        let answer = json!({"response": input, "task_id": task.get("task_id")});
        mqtt.publish(&format!("/conversations/{conversation}/{ON_BROKER}"), answer.to_string().as_bytes(), false)?;
    }
}
