//! Agents and callers over WebSocket: tungstenite for those that follow the protocol, raw frames for those that do not.

use super::{PATIENCE, gateway::Gate, served::Raw};
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
pub struct Heard {
    pub heads: Arc<Mutex<Vec<HandshakeHeaders>>>,
    pub texts: Arc<Mutex<Vec<String>>>,
    pub ends: Arc<Mutex<Vec<String>>>,
}

impl Heard {
    pub fn texts(&self) -> Vec<String> {
        self.texts.lock().unwrap().clone()
    }

    pub fn ends(&self) -> Vec<String> {
        self.ends.lock().unwrap().clone()
    }

    /// A header of the last handshake.
    pub fn field(&self, name: &str) -> Option<String> {
        let heads = self.heads.lock().unwrap();
        heads.last()?.iter().find(|(header, _)| header == name).map(|(_, value)| value.clone())
    }
}

/// Starts an agent that serves each connection with `serve` after the handshake. It accepts the first subprotocol that
/// the client offers.
pub async fn agent<F: Future<Output = ()> + Send + 'static>(
    serve: impl Fn(Socket, Heard) -> F + Send + Sync + 'static,
) -> (Raw, Heard) {
    let record = Heard::default();
    let (serve, shared) = (Arc::new(serve), record.clone());
    let raw = Raw::new(move |stream, _| {
        let (serve, record) = (Arc::clone(&serve), shared.clone());
        async move {
            let handshake_record = record.clone();
            #[allow(clippy::result_large_err)]
            let callback = move |request: &Request, mut response: Response| {
                let text = |value: &http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
                let headers = request.headers().iter().map(|(name, value)| (name.to_string(), text(value)));
                let path = (":path".to_owned(), request.uri().to_string());
                handshake_record.heads.lock().unwrap().push(headers.chain([path]).collect());
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
pub async fn answering(messages: Vec<Message>, code: Option<u16>) -> (Raw, Heard) {
    agent(move |mut socket, record| {
        let messages = messages.clone();
        async move {
            if next(&mut socket, &record).await.is_none() {
                return;
            }
            for message in messages {
                let _ = socket.send(message).await;
            }
            if let Some(code) = code {
                let _ = socket.close(Some(closing(code))).await;
            }
            until_end(&mut socket, &record).await;
        }
    })
    .await
}

/// Starts an agent that echoes every message.
pub async fn echo() -> (Raw, Heard) {
    agent(|mut socket, record| async move {
        while let Some(message) = next(&mut socket, &record).await {
            let _ = socket.send(message).await;
        }
        until_end(&mut socket, &record).await;
    })
    .await
}

pub fn closing(code: u16) -> tokio_tungstenite::tungstenite::protocol::CloseFrame {
    tokio_tungstenite::tungstenite::protocol::CloseFrame { code: code.into(), reason: "db at 10.0.0.9 is down".into() }
}

/// Receives the next message, and records it or the end of the connection.
pub async fn next(socket: &mut Socket, record: &Heard) -> Option<Message> {
    loop {
        match socket.next().await {
            Some(Ok(message @ (Message::Text(_) | Message::Binary(_)))) => {
                record.texts.lock().unwrap().push(message.to_text().unwrap_or("binary").to_owned());
                return Some(message);
            }
            Some(Ok(Message::Close(frame))) => {
                let code = frame.map_or(1005, |frame| u16::from(frame.code));
                record.ends.lock().unwrap().push(code.to_string());
                return None;
            }
            Some(Ok(_)) => {}
            Some(Err(_)) | None => {
                record.ends.lock().unwrap().push("gone".into());
                return None;
            }
        }
    }
}

pub async fn until_end(socket: &mut Socket, record: &Heard) {
    if record.ends().is_empty() {
        while next(socket, record).await.is_some() {}
    }
    while let Some(Ok(_)) = socket.next().await {}
}

pub fn document(agent: &Raw, id: &str) -> Value {
    let mut document = agent.document(id);
    document["endpoint"] = json!(format!("agent+ws://{}/talk?x=1", agent.address));
    document
}

/// Connects a caller with the key of `team-a`.
pub async fn open(gate: &Gate, path: &str) -> Socket {
    dial(gate, path, &[("x-api-key", gate.key("team-a"))]).await.unwrap().0
}

/// Performs a handshake with these headers.
pub async fn dial(
    gate: &Gate,
    path: &str,
    headers: &[(&'static str, &str)],
) -> Result<(Socket, http::Response<Option<Vec<u8>>>), Error> {
    let mut request = format!("ws://{}{path}", gate.address()).into_client_request().unwrap();
    for (name, value) in headers {
        request.headers_mut().insert(*name, value.parse().unwrap());
    }
    let stream = TcpStream::connect(gate.address()).await.unwrap();
    timeout(PATIENCE, client_async(request, stream)).await.expect("no handshake response in time")
}

pub async fn say(socket: &mut Socket, text: impl Into<String>) {
    socket.send(Message::text(text.into())).await.unwrap();
}

/// Receives the next message other than pings and pongs.
pub async fn hear(socket: &mut Socket) -> Message {
    loop {
        match timeout(PATIENCE, socket.next()).await.expect("no message in time") {
            Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
            Some(Ok(message)) => return message,
            end => panic!("the connection ended: {end:?}"),
        }
    }
}

pub async fn hear_text(socket: &mut Socket) -> String {
    match hear(socket).await {
        Message::Text(text) => text.to_string(),
        other => panic!("not a text message: {other:?}"),
    }
}

pub async fn hear_json(socket: &mut Socket) -> Value {
    serde_json::from_str(&hear_text(socket).await).unwrap()
}

/// Reads until the gateway closes the connection, and returns the close code, if there is a close frame.
pub async fn closed(socket: &mut Socket) -> Option<u16> {
    loop {
        match timeout(PATIENCE, socket.next()).await.expect("no close in time") {
            Some(Ok(Message::Close(frame))) => return Some(frame.map_or(1005, |frame| frame.code.into())),
            Some(Ok(_)) => {}
            Some(Err(_)) | None => return None,
        }
    }
}

/// A frame of a client, with a masking key of zeros.
pub fn frame(first_byte: u8, payload: &[u8]) -> Vec<u8> {
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
pub async fn raw_close(stream: &mut TcpStream) -> Option<u16> {
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
        match timeout(PATIENCE, stream.read(&mut chunk)).await.expect("no close frame in time") {
            Ok(0) | Err(_) => return None,
            Ok(count) => bytes.extend_from_slice(&chunk[..count]),
        }
    }
}
