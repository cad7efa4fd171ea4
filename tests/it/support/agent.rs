//! Agents on raw sockets: each answers by a script, so that it can break every rule of HTTP.

use serde_json::{Value, json};
use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::Semaphore,
};

/// What an agent got.
#[derive(Clone, Debug, Default)]
pub struct Got {
    pub head: String,
    pub body: Vec<u8>,
}

impl Got {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().skip(1).find_map(|line| {
            let (field, value) = line.split_once(':')?;
            field.eq_ignore_ascii_case(name).then_some(value.trim())
        })
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

/// Holds answers back until the test closes it.
pub type Latch = Arc<Semaphore>;

pub fn latch() -> Latch {
    Arc::new(Semaphore::new(0))
}

/// One step of an answer.
#[derive(Clone, Debug)]
pub enum Do {
    Write(Vec<u8>),
    Wait(Duration),
    /// Ends the connection with a reset instead of a FIN.
    Reset,
    /// Ends the connection in order.
    Close,
    /// Says nothing more, and keeps the connection until the other side ends it; see [`Agent::left`].
    Hang,
    /// Goes on once the latch is closed.
    Until(Latch),
    /// The same steps again and again, until the other side ends the connection.
    Again(Vec<Do>),
}

pub fn write(bytes: impl Into<Vec<u8>>) -> Do {
    Do::Write(bytes.into())
}

/// A whole answer with a length.
pub fn answer(status: &str, media: &str, body: &str) -> Vec<Do> {
    vec![write(format!("HTTP/1.1 {status}\r\nContent-Type: {media}\r\nContent-Length: {}\r\n\r\n{body}", body.len()))]
}

pub fn json_answer(body: &Value) -> Vec<Do> {
    answer("200 OK", "application/json", &body.to_string())
}

type Script = dyn Fn(&Got) -> Vec<Do> + Send + Sync;

/// An agent on loopback; gone when dropped.
pub struct Agent {
    pub address: SocketAddr,
    got: Arc<Mutex<Vec<Got>>>,
    left: Arc<AtomicUsize>,
    task: tokio::task::JoinHandle<()>,
}

impl Agent {
    /// Answers every request by `script`.
    pub async fn scripted(script: impl Fn(&Got) -> Vec<Do> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let got = Arc::new(Mutex::new(Vec::new()));
        let (script, seen): (Arc<Script>, _) = (Arc::new(script), Arc::clone(&got));
        let left = Arc::new(AtomicUsize::new(0));
        let lost = Arc::clone(&left);
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                stream.set_nodelay(true).unwrap();
                let (script, seen, lost) = (Arc::clone(&script), Arc::clone(&seen), Arc::clone(&lost));
                tokio::spawn(async move {
                    if talk(stream, script, seen).await.is_err() {
                        lost.fetch_add(1, Ordering::SeqCst);
                    }
                });
            }
        });
        Self { address, got, left, task }
    }

    /// Always the same steps.
    pub async fn doing(steps: Vec<Do>) -> Self {
        Self::scripted(move |_| steps.clone()).await
    }

    /// Answers what it was sent, as JSON.
    pub async fn echo() -> Self {
        Self::scripted(|got| {
            let body = serde_json::from_slice(&got.body).unwrap_or(Value::Null);
            json_answer(&json!({ "echo": body }))
        })
        .await
    }

    /// What it got so far.
    pub fn got(&self) -> Vec<Got> {
        self.got.lock().unwrap().clone()
    }

    /// How many connections the other side ended in the middle of an answer.
    pub fn left(&self) -> usize {
        self.left.load(Ordering::SeqCst)
    }

    /// How many requests reached it.
    pub fn calls(&self) -> usize {
        self.got.lock().unwrap().len()
    }

    pub fn url(&self) -> String {
        format!("http://{}/invoke", self.address)
    }

    /// Its document, open to every caller that is granted it.
    pub fn document(&self, id: &str) -> Value {
        json!({"id": id, "name": id, "endpoint": self.url(), "authentication": {"type": "api_key"}})
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Answers requests until the connection ends; an error where the other side ended it inside an answer.
async fn talk(mut stream: TcpStream, script: Arc<Script>, seen: Arc<Mutex<Vec<Got>>>) -> std::io::Result<()> {
    let mut buffer = Vec::new();
    while let Some(got) = read_request(&mut stream, &mut buffer).await {
        let steps = script(&got);
        seen.lock().unwrap().push(got);
        if !perform(&mut stream, &steps).await? {
            return Ok(());
        }
    }
    Ok(())
}

/// Whether the connection goes on.
async fn perform(stream: &mut TcpStream, steps: &[Do]) -> std::io::Result<bool> {
    for step in steps {
        match step {
            Do::Write(bytes) => stream.write_all(bytes).await?,
            Do::Until(latch) => drop(latch.acquire().await),
            Do::Wait(time) => tokio::time::sleep(*time).await,
            Do::Close => return Ok(false),
            Do::Reset => {
                let _ = stream.set_zero_linger();
                return Ok(false);
            }
            Do::Hang => {
                let mut rest = [0; 1024];
                while stream.read(&mut rest).await? > 0 {}
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
            Do::Again(steps) => while Box::pin(perform(stream, steps)).await? {},
        }
    }
    Ok(true)
}

/// Reads one request; HTTP/1.1 with a length or chunked.
async fn read_request(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<Got> {
    let head_end = loop {
        if let Some(at) = find(buffer, b"\r\n\r\n") {
            break at + 4;
        }
        fill(stream, buffer).await?;
    };
    let head = String::from_utf8_lossy(&buffer[..head_end]).into_owned();
    buffer.drain(..head_end);
    let mut got = Got { head, body: Vec::new() };
    if let Some(length) = got.header("content-length").and_then(|length| length.parse::<usize>().ok()) {
        while buffer.len() < length {
            fill(stream, buffer).await?;
        }
        got.body = buffer.drain(..length).collect();
    } else if got.header("transfer-encoding").is_some() {
        loop {
            let line = loop {
                if let Some(at) = find(buffer, b"\r\n") {
                    break at;
                }
                fill(stream, buffer).await?;
            };
            let size = usize::from_str_radix(std::str::from_utf8(&buffer[..line]).ok()?.trim(), 16).ok()?;
            while buffer.len() < line + 2 + size + 2 {
                fill(stream, buffer).await?;
            }
            got.body.extend_from_slice(&buffer[line + 2..line + 2 + size]);
            buffer.drain(..line + 2 + size + 2);
            if size == 0 {
                break;
            }
        }
    }
    Some(got)
}

async fn fill(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<()> {
    let mut part = [0; 16 << 10];
    match stream.read(&mut part).await {
        Ok(0) | Err(_) => None,
        Ok(count) => {
            buffer.extend_from_slice(&part[..count]);
            Some(())
        }
    }
}

pub fn find(within: &[u8], what: &[u8]) -> Option<usize> {
    within.windows(what.len()).position(|window| window == what)
}
