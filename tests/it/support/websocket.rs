//! Agents and callers over WebSocket: tungstenite for those that follow the protocol, raw frames for those that do not.

use super::{TEST_TIMEOUT, gateway::Gateway, servers::RawAgent};
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use tokio::{io::AsyncReadExt, net::TcpStream, time::timeout};
use tokio_tungstenite::{
    WebSocketStream, accept_hdr_async, client_async,
    tungstenite::{
        Error, Message,
        client::IntoClientRequest,
        handshake::server::{Request, Response},
    },
};

/// The headers of one handshake, and its path as `:path`.
pub type HandshakeHeaders = Vec<(String, String)>;

pub type Socket = WebSocketStream<TcpStream>;

/// What an agent received: the headers of each handshake, each message, and the close code of each connection, or
/// `gone` for a connection without a close frame.
#[derive(Clone, Default)]
pub struct AgentRecord {
    pub handshakes: Arc<Mutex<Vec<HandshakeHeaders>>>,
    pub messages: Arc<Mutex<Vec<String>>>,
    pub close_codes: Arc<Mutex<Vec<String>>>,
}

impl AgentRecord {
    pub fn messages(&self) -> Vec<String> {
        self.messages.lock().unwrap().clone()
    }

    pub fn close_codes(&self) -> Vec<String> {
        self.close_codes.lock().unwrap().clone()
    }

    /// A header of the last handshake.
    pub fn handshake_header(&self, name: &str) -> Option<String> {
        let heads = self.handshakes.lock().unwrap();
        heads.last()?.iter().find(|(header, _)| header == name).map(|(_, value)| value.clone())
    }
}

/// Starts an agent that serves each connection with `serve` after the handshake. It accepts the first subprotocol that
/// the client offers.
pub async fn websocket_agent<F: Future<Output = ()> + Send + 'static>(
    serve: impl Fn(Socket, AgentRecord) -> F + Send + Sync + 'static,
) -> (RawAgent, AgentRecord) {
    let record = AgentRecord::default();
    let (serve, shared) = (Arc::new(serve), record.clone());
    let raw = RawAgent::start(move |stream, _| {
        let (serve, record) = (Arc::clone(&serve), shared.clone());
        async move {
            let handshake_record = record.clone();
            #[allow(clippy::result_large_err)]
            let callback = move |request: &Request, mut response: Response| {
                let text = |value: &http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
                let headers = request.headers().iter().map(|(name, value)| (name.to_string(), text(value)));
                let path = (":path".to_owned(), request.uri().to_string());
                handshake_record.handshakes.lock().unwrap().push(headers.chain([path]).collect());
                if let Some(offered) = request.headers().get("sec-websocket-protocol") {
                    let first = text(offered).split(',').next().unwrap().trim().to_owned();
                    response.headers_mut().insert("sec-websocket-protocol", first.parse().unwrap());
                }
                Ok(response)
            };
            if let Ok(socket) = accept_hdr_async(stream, callback).await {
                serve(socket, record).await;
            }
        }
    })
    .await;
    (raw, record)
}

/// Starts an agent that answers the first message with these messages, and then closes the connection if `code` is set.
pub async fn responding_agent(messages: Vec<Message>, code: Option<u16>) -> (RawAgent, AgentRecord) {
    websocket_agent(move |mut socket, record| {
        let messages = messages.clone();
        async move {
            if record_next(&mut socket, &record).await.is_none() {
                return;
            }
            for message in messages {
                let _ = socket.send(message).await;
            }
            if let Some(code) = code {
                let _ = socket.close(Some(close_frame(code))).await;
            }
            record_until_end(&mut socket, &record).await;
        }
    })
    .await
}

/// Starts an agent that echoes every message.
pub async fn echo_agent() -> (RawAgent, AgentRecord) {
    websocket_agent(|mut socket, record| async move {
        while let Some(message) = record_next(&mut socket, &record).await {
            let _ = socket.send(message).await;
        }
        record_until_end(&mut socket, &record).await;
    })
    .await
}

pub fn close_frame(code: u16) -> tokio_tungstenite::tungstenite::protocol::CloseFrame {
    tokio_tungstenite::tungstenite::protocol::CloseFrame { code: code.into(), reason: "db at 10.0.0.9 is down".into() }
}

/// Receives the next message, and records it or the end of the connection.
pub async fn record_next(socket: &mut Socket, record: &AgentRecord) -> Option<Message> {
    loop {
        match socket.next().await {
            Some(Ok(message @ (Message::Text(_) | Message::Binary(_)))) => {
                record.messages.lock().unwrap().push(message.to_text().unwrap_or("binary").to_owned());
                return Some(message);
            }
            Some(Ok(Message::Close(frame))) => {
                let code = frame.map_or(1005, |frame| u16::from(frame.code));
                record.close_codes.lock().unwrap().push(code.to_string());
                return None;
            }
            Some(Ok(_)) => {}
            Some(Err(_)) | None => {
                record.close_codes.lock().unwrap().push("gone".into());
                return None;
            }
        }
    }
}

pub async fn record_until_end(socket: &mut Socket, record: &AgentRecord) {
    if record.close_codes().is_empty() {
        while record_next(socket, record).await.is_some() {}
    }
    while let Some(Ok(_)) = socket.next().await {}
}

pub fn websocket_document(agent: &RawAgent, id: &str) -> Value {
    let mut document = agent.document(id);
    document["endpoint"] = json!(format!("agent+ws://{}/talk?x=1", agent.address));
    document
}

/// Connects a caller with the key of `team-a`.
pub async fn connect(gate: &Gateway, path: &str) -> Socket {
    connect_with_headers(gate, path, &[("x-api-key", gate.key("team-a"))]).await.unwrap().0
}

/// Performs a handshake with these headers.
pub async fn connect_with_headers(
    gate: &Gateway,
    path: &str,
    headers: &[(&'static str, &str)],
) -> Result<(Socket, http::Response<Option<Vec<u8>>>), Error> {
    let mut request = format!("ws://{}{path}", gate.address()).into_client_request().unwrap();
    for (name, value) in headers {
        request.headers_mut().insert(*name, value.parse().unwrap());
    }
    let stream = TcpStream::connect(gate.address()).await.unwrap();
    timeout(TEST_TIMEOUT, client_async(request, stream)).await.expect("no handshake response in time")
}

pub async fn send_text(socket: &mut Socket, text: impl Into<String>) {
    socket.send(Message::text(text.into())).await.unwrap();
}

/// Receives the next message other than pings and pongs.
pub async fn receive(socket: &mut Socket) -> Message {
    loop {
        match timeout(TEST_TIMEOUT, socket.next()).await.expect("no message in time") {
            Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
            Some(Ok(message)) => return message,
            end => panic!("the connection ended: {end:?}"),
        }
    }
}

pub async fn receive_text(socket: &mut Socket) -> String {
    match receive(socket).await {
        Message::Text(text) => text.to_string(),
        other => panic!("not a text message: {other:?}"),
    }
}

pub async fn receive_json(socket: &mut Socket) -> Value {
    serde_json::from_str(&receive_text(socket).await).unwrap()
}

/// Reads until the gateway closes the connection, and returns the close code, if there is a close frame.
pub async fn receive_close_code(socket: &mut Socket) -> Option<u16> {
    loop {
        match timeout(TEST_TIMEOUT, socket.next()).await.expect("no close in time") {
            Some(Ok(Message::Close(frame))) => return Some(frame.map_or(1005, |frame| frame.code.into())),
            Some(Ok(_)) => {}
            Some(Err(_)) | None => return None,
        }
    }
}

/// A frame of a client, with a masking key of zeros.
pub fn masked_frame(first_byte: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![first_byte];
    match payload.len() {
        short @ 0..=125 => frame.push(0x80 | short as u8),
        middle @ 126..=0xffff => {
            frame.push(0x80 | 126);
            frame.extend((middle as u16).to_be_bytes());
        }
        long => {
            frame.push(0x80 | 127);
            frame.extend((long as u64).to_be_bytes());
        }
    }
    frame.extend([0; 4]);
    frame.extend(payload);
    frame
}

/// Reads frames from a raw connection until a close frame, and returns its code.
pub async fn read_close_code(stream: &mut TcpStream) -> Option<u16> {
    let mut bytes = Vec::new();
    loop {
        if let [first_byte, length, rest @ ..] = bytes.as_slice() {
            let (size, payload_at) = match length & 0x7f {
                126 if rest.len() >= 2 => (usize::from(u16::from_be_bytes([rest[0], rest[1]])), 4),
                126 | 127 => (usize::MAX, 0),
                short => (usize::from(short), 2),
            };
            if size != usize::MAX && bytes.len() >= payload_at + size {
                if first_byte & 0x0f == 8 {
                    return (size >= 2).then(|| u16::from_be_bytes([bytes[payload_at], bytes[payload_at + 1]]));
                }
                bytes.drain(..payload_at + size);
                continue;
            }
        }
        let mut chunk = [0; 4096];
        match timeout(TEST_TIMEOUT, stream.read(&mut chunk)).await.expect("no close frame in time") {
            Ok(0) | Err(_) => return None,
            Ok(count) => bytes.extend_from_slice(&chunk[..count]),
        }
    }
}
