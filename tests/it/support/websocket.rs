//! Agents and callers with a WebSocket: real ones of tungstenite, and frames byte by byte for those that misbehave.

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

/// The fields of one handshake.
pub type Head = Vec<(String, String)>;

pub type Socket = WebSocketStream<TcpStream>;

/// What an agent was asked: each handshake's fields, each message, and how each connection ended.
#[derive(Clone, Default)]
pub struct Heard {
    pub heads: Arc<Mutex<Vec<Head>>>,
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

    pub fn field(&self, name: &str) -> Option<String> {
        let heads = self.heads.lock().unwrap();
        heads.last()?.iter().find(|(field, _)| field == name).map(|(_, value)| value.clone())
    }
}

/// An agent whose every connection is served by `talk`, after its handshake.
pub async fn agent<F: Future<Output = ()> + Send + 'static>(
    talk: impl Fn(Socket, Heard) -> F + Send + Sync + 'static,
) -> (Raw, Heard) {
    let heard = Heard::default();
    let (talk, shared) = (Arc::new(talk), heard.clone());
    let raw = Raw::new(move |stream, _| {
        let (talk, heard) = (Arc::clone(&talk), shared.clone());
        async move {
            let note = heard.clone();
            #[allow(clippy::result_large_err)]
            let callback = move |request: &Request, mut response: Response| {
                let text = |value: &http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
                let fields = request.headers().iter().map(|(name, value)| (name.to_string(), text(value)));
                let path = (":path".to_owned(), request.uri().to_string());
                note.heads.lock().unwrap().push(fields.chain([path]).collect());
                if let Some(offered) = request.headers().get("sec-websocket-protocol") {
                    let first = text(offered).split(',').next().unwrap().trim().to_owned();
                    response.headers_mut().insert("sec-websocket-protocol", first.parse().unwrap());
                }
                Ok(response)
            };
            if let Ok(socket) = accept_hdr_async(stream, callback).await {
                talk(socket, heard).await;
            }
        }
    })
    .await;
    (raw, heard)
}

/// Answers the first message with these, and then closes with a code, where there is one.
pub async fn answering(messages: Vec<Message>, code: Option<u16>) -> (Raw, Heard) {
    agent(move |mut socket, heard| {
        let messages = messages.clone();
        async move {
            if next(&mut socket, &heard).await.is_none() {
                return;
            }
            for message in messages {
                let _ = socket.send(message).await;
            }
            if let Some(code) = code {
                let _ = socket.close(Some(closing(code))).await;
            }
            until_end(&mut socket, &heard).await;
        }
    })
    .await
}

/// Answers every message with itself.
pub async fn echo() -> (Raw, Heard) {
    agent(|mut socket, heard| async move {
        while let Some(message) = next(&mut socket, &heard).await {
            let _ = socket.send(message).await;
        }
        until_end(&mut socket, &heard).await;
    })
    .await
}

pub fn closing(code: u16) -> tokio_tungstenite::tungstenite::protocol::CloseFrame {
    tokio_tungstenite::tungstenite::protocol::CloseFrame { code: code.into(), reason: "db at 10.0.0.9 is down".into() }
}

/// The next message; notes it, and the end.
pub async fn next(socket: &mut Socket, heard: &Heard) -> Option<Message> {
    loop {
        match socket.next().await {
            Some(Ok(message @ (Message::Text(_) | Message::Binary(_)))) => {
                heard.texts.lock().unwrap().push(message.to_text().unwrap_or("binary").to_owned());
                return Some(message);
            }
            Some(Ok(Message::Close(frame))) => {
                let code = frame.map_or(1005, |frame| u16::from(frame.code));
                heard.ends.lock().unwrap().push(code.to_string());
                return None;
            }
            Some(Ok(_)) => {}
            Some(Err(_)) | None => {
                heard.ends.lock().unwrap().push("gone".into());
                return None;
            }
        }
    }
}

pub async fn until_end(socket: &mut Socket, heard: &Heard) {
    if heard.ends().is_empty() {
        while next(socket, heard).await.is_some() {}
    }
    while let Some(Ok(_)) = socket.next().await {}
}

pub fn document(agent: &Raw, id: &str) -> Value {
    let mut document = agent.document(id);
    document["endpoint"] = json!(format!("agent+ws://{}/talk?x=1", agent.address));
    document
}

/// A caller's socket with the key of `team-a`.
pub async fn open(gate: &Gate, path: &str) -> Socket {
    dial(gate, path, &[("x-api-key", gate.key("team-a"))]).await.unwrap().0
}

/// A handshake with these fields.
pub async fn dial(
    gate: &Gate,
    path: &str,
    fields: &[(&'static str, &str)],
) -> Result<(Socket, http::Response<Option<Vec<u8>>>), Error> {
    let mut request = format!("ws://{}{path}", gate.address()).into_client_request().unwrap();
    for (name, value) in fields {
        request.headers_mut().insert(*name, value.parse().unwrap());
    }
    let stream = TcpStream::connect(gate.address()).await.unwrap();
    timeout(PATIENCE, client_async(request, stream)).await.expect("no handshake in time")
}

pub async fn say(socket: &mut Socket, text: impl Into<String>) {
    socket.send(Message::text(text.into())).await.unwrap();
}

/// The next message that is no ping.
pub async fn hear(socket: &mut Socket) -> Message {
    loop {
        match timeout(PATIENCE, socket.next()).await.expect("no message in time") {
            Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
            Some(Ok(message)) => return message,
            over => panic!("the socket is over: {over:?}"),
        }
    }
}

pub async fn hear_text(socket: &mut Socket) -> String {
    match hear(socket).await {
        Message::Text(text) => text.to_string(),
        other => panic!("no text: {other:?}"),
    }
}

pub async fn hear_json(socket: &mut Socket) -> Value {
    serde_json::from_str(&hear_text(socket).await).unwrap()
}

/// The code with which the gateway closes; what comes before is passed over.
pub async fn closed(socket: &mut Socket) -> Option<u16> {
    loop {
        match timeout(PATIENCE, socket.next()).await.expect("no end in time") {
            Some(Ok(Message::Close(frame))) => return Some(frame.map_or(1005, |frame| frame.code.into())),
            Some(Ok(_)) => {}
            Some(Err(_)) | None => return None,
        }
    }
}

/// A frame with the client's mask (of zeros).
pub fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![first];
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

/// The code of the first close frame that a raw connection gets; frames before it are passed over.
pub async fn raw_close(stream: &mut TcpStream) -> Option<u16> {
    let mut bytes = Vec::new();
    loop {
        if let [first, length, rest @ ..] = bytes.as_slice() {
            let (size, at) = match length & 0x7f {
                126 if rest.len() >= 2 => (usize::from(u16::from_be_bytes([rest[0], rest[1]])), 4),
                126 | 127 => (usize::MAX, 0),
                short => (usize::from(short), 2),
            };
            if size != usize::MAX && bytes.len() >= at + size {
                if first & 0x0f == 8 {
                    return (size >= 2).then(|| u16::from_be_bytes([bytes[at], bytes[at + 1]]));
                }
                bytes.drain(..at + size);
                continue;
            }
        }
        let mut part = [0; 4096];
        match timeout(PATIENCE, stream.read(&mut part)).await.expect("no end in time") {
            Ok(0) | Err(_) => return None,
            Ok(count) => bytes.extend_from_slice(&part[..count]),
        }
    }
}
