//! Calls to an agent without the gateway, over the transport that the gateway would use: what a call through it is
//! compared with.

use crate::client::{Connection, Request};
use crate::mqtt::Mqtt;
use crate::peers::{ON_BROKER, Places};
use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::Duration;
use tungstenite::{Message, WebSocket};

/// How long an answer may take; a run must end.
const PATIENCE: Duration = Duration::from_secs(10);

/// A caller that knows where the agent is.
pub(crate) enum Direct {
    Http(Box<Connection>, Request),
    Unix(UnixStream, Request),
    Ws(Box<WebSocket<TcpStream>>, String),
    Mqtt(Box<Mqtt>, Value),
}

impl Direct {
    /// Connects to the agent of this kind; every call asks it `body`.
    pub(crate) fn to(kind: &str, places: &Places, body: &str) -> anyhow::Result<Self> {
        let request = Request::post("/invoke", "", body);
        Ok(match kind {
            "http" => Self::Http(Box::new(Connection::open(places.http)?), request),
            "unix" => {
                let stream = UnixStream::connect(&places.unix)?;
                stream.set_read_timeout(Some(PATIENCE))?;
                Self::Unix(stream, request)
            }
            "ws" => {
                let stream = TcpStream::connect(places.ws)?;
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(PATIENCE))?;
                let (socket, _) = tungstenite::client(format!("ws://{}/", places.ws), stream).ok().context("ws")?;
                Self::Ws(Box::new(socket), body.to_owned())
            }
            "mqtt" => {
                let mut mqtt = Mqtt::connect(places.broker, "loadtest-caller", Some(PATIENCE))?;
                mqtt.subscribe("/conversations/direct/+")?;
                let input: Value = serde_json::from_str(body)?;
                let task = json!({"task_id": "t", "conversation_id": "direct", "instruction": null, "input": input});
                Self::Mqtt(Box::new(mqtt), task)
            }
            _ => anyhow::bail!("there is no transport {kind}"),
        })
    }

    /// One call and its answer.
    pub(crate) fn call(&mut self) -> anyhow::Result<()> {
        match self {
            Self::Http(connection, request) => {
                let status = connection.call(request)?;
                ensure!(status == 200, "status {status}");
            }
            Self::Unix(stream, request) => {
                stream.write_all(&request.bytes)?;
                let mut room = [0; 4096];
                let mut got = 0;
                // The agent's answers are a head, and a body that ends in a brace.
                while !room.get(..got).is_some_and(|got| got.ends_with(b"}")) {
                    let count = stream.read(room.get_mut(got..).context("a larger answer than expected")?)?;
                    ensure!(count > 0, "closed inside an answer");
                    got += count;
                }
            }
            Self::Ws(socket, text) => {
                socket.send(Message::text(text.as_str()))?;
                while !socket.read()?.is_text() {}
            }
            Self::Mqtt(mqtt, task) => {
                mqtt.publish(&format!("/control/agents/{ON_BROKER}/input"), task.to_string().as_bytes(), false)?;
                mqtt.message()?;
            }
        }
        Ok(())
    }
}
