//! Client that calls an agent directly, over the transport that the gateway would use. A call through the gateway is
//! compared with it.

use crate::http1_client::{Http1Connection, PreparedRequest};
use crate::mqtt_connection::MqttConnection;
use crate::transport_agents::{AgentAddresses, MQTT_AGENT_ID};
use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::Duration;
use tungstenite::{Message, WebSocket};

/// How long a response may take, because a run must end.
const READ_TIMEOUT: Duration = Duration::from_secs(10);

/// A client that knows the agent's address.
pub(crate) enum DirectClient {
    Http(Box<Http1Connection>, PreparedRequest),
    Unix(UnixStream, PreparedRequest),
    Ws(Box<WebSocket<TcpStream>>, String),
    Mqtt(Box<MqttConnection>, Value),
}

impl DirectClient {
    /// Connects to the agent of this transport. Every call sends `body`.
    pub(crate) fn connect(transport: &str, addresses: &AgentAddresses, body: &str) -> anyhow::Result<Self> {
        let request = PreparedRequest::post_json("/invoke", "", body);
        Ok(match transport {
            "http" => Self::Http(Box::new(Http1Connection::connect_plain(addresses.http)?), request),
            "unix" => {
                let stream = UnixStream::connect(&addresses.unix)?;
                stream.set_read_timeout(Some(READ_TIMEOUT))?;
                Self::Unix(stream, request)
            }
            "ws" => {
                let stream = TcpStream::connect(addresses.ws)?;
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(READ_TIMEOUT))?;
                let (socket, _) = tungstenite::client(format!("ws://{}/", addresses.ws), stream).ok().context("ws")?;
                Self::Ws(Box::new(socket), body.to_owned())
            }
            "mqtt" => {
                let mut mqtt = MqttConnection::connect(addresses.broker, "loadtest-caller", Some(READ_TIMEOUT))?;
                mqtt.subscribe("/conversations/direct/+")?;
                let input: Value = serde_json::from_str(body)?;
                let task = json!({"task_id": "t", "conversation_id": "direct", "instruction": null, "input": input});
                Self::Mqtt(Box::new(mqtt), task)
            }
            _ => anyhow::bail!("unknown transport {transport}"),
        })
    }

    /// Makes one call and reads its response.
    pub(crate) fn call(&mut self) -> anyhow::Result<()> {
        match self {
            Self::Http(connection, request) => {
                let status = connection.call(request)?;
                ensure!(status == 200, "status {status}");
            }
            Self::Unix(stream, request) => {
                stream.write_all(&request.bytes)?;
                let mut buffer = [0; 4096];
                let mut filled = 0;
                // The agent's response is a head, and a body that ends with a brace.
                while !buffer.get(..filled).is_some_and(|received| received.ends_with(b"}")) {
                    let free = buffer.get_mut(filled..).context("the response is larger than expected")?;
                    let count = stream.read(free)?;
                    ensure!(count > 0, "the connection was closed before the end of the response");
                    filled += count;
                }
            }
            Self::Ws(socket, text) => {
                socket.send(Message::text(text.as_str()))?;
                while !socket.read()?.is_text() {}
            }
            Self::Mqtt(mqtt, task) => {
                mqtt.publish(&format!("/control/agents/{MQTT_AGENT_ID}/input"), task.to_string().as_bytes(), false)?;
                mqtt.receive()?;
            }
        }
        Ok(())
    }
}
