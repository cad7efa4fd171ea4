//! Agents on raw sockets. A script decides each response byte by byte, so that an agent can break every rule of HTTP.

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

/// A request that an agent received.
#[derive(Clone, Debug, Default)]
pub struct ReceivedRequest {
    pub head: String,
    pub body: Vec<u8>,
}

impl ReceivedRequest {
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

/// Holds responses back until the test closes the latch.
pub type Latch = Arc<Semaphore>;

pub fn latch() -> Latch {
    Arc::new(Semaphore::new(0))
}

/// One step of a response.
#[derive(Clone, Debug)]
pub enum Step {
    Write(Vec<u8>),
    Sleep(Duration),
    /// Ends the connection with a reset instead of a FIN.
    Reset,
    /// Ends the connection with a FIN.
    Close,
    /// Sends nothing more, and keeps the connection open until the other side ends it; see [`Agent::left`].
    Hang,
    /// Continues once the latch is closed.
    WaitForLatch(Latch),
    /// Repeats the steps until the other side ends the connection.
    Repeat(Vec<Step>),
}

pub fn write(bytes: impl Into<Vec<u8>>) -> Step {
    Step::Write(bytes.into())
}

/// A complete response with a length.
pub fn http_response(status: &str, media_type: &str, body: &str) -> Vec<Step> {
    let length = body.len();
    vec![write(format!("HTTP/1.1 {status}\r\nContent-Type: {media_type}\r\nContent-Length: {length}\r\n\r\n{body}"))]
}

pub fn json_response(body: &Value) -> Vec<Step> {
    http_response("200 OK", "application/json", &body.to_string())
}

type Script = dyn Fn(&ReceivedRequest) -> Vec<Step> + Send + Sync;

/// An agent on loopback. Its listener closes when it is dropped.
pub struct Agent {
    pub address: SocketAddr,
    requests: Arc<Mutex<Vec<ReceivedRequest>>>,
    aborted_responses: Arc<AtomicUsize>,
    task: tokio::task::JoinHandle<()>,
}

impl Agent {
    /// Starts an agent that answers each request with the steps that `script` returns.
    pub async fn scripted(script: impl Fn(&ReceivedRequest) -> Vec<Step> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (script, received): (Arc<Script>, _) = (Arc::new(script), Arc::clone(&requests));
        let aborted_responses = Arc::new(AtomicUsize::new(0));
        let aborted = Arc::clone(&aborted_responses);
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                stream.set_nodelay(true).unwrap();
                let (script, received, aborted) = (Arc::clone(&script), Arc::clone(&received), Arc::clone(&aborted));
                tokio::spawn(async move {
                    if serve_connection(stream, script, received).await.is_err() {
                        aborted.fetch_add(1, Ordering::SeqCst);
                    }
                });
            }
        });
        Self { address, requests, aborted_responses, task }
    }

    /// Starts an agent that answers every request with these steps.
    pub async fn with_steps(steps: Vec<Step>) -> Self {
        Self::scripted(move |_| steps.clone()).await
    }

    /// Starts an agent that answers `{"echo": <the request's JSON>}`.
    pub async fn echo() -> Self {
        Self::scripted(|request| {
            let body = serde_json::from_slice(&request.body).unwrap_or(Value::Null);
            json_response(&json!({ "echo": body }))
        })
        .await
    }

    /// The requests received so far.
    pub fn requests(&self) -> Vec<ReceivedRequest> {
        self.requests.lock().unwrap().clone()
    }

    /// Number of connections that the other side ended during a response.
    pub fn aborted_responses(&self) -> usize {
        self.aborted_responses.load(Ordering::SeqCst)
    }

    /// Number of requests received so far.
    pub fn call_count(&self) -> usize {
        self.requests.lock().unwrap().len()
    }

    pub fn url(&self) -> String {
        format!("http://{}/invoke", self.address)
    }

    /// The agent's document with this id. It accepts callers with an API key.
    pub fn document(&self, id: &str) -> Value {
        json!({"id": id, "name": id, "endpoint": self.url(), "authentication": {"type": "api_key"}})
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Answers requests until the connection ends. Returns an error if the other side ended it during a response.
async fn serve_connection(
    mut stream: TcpStream,
    script: Arc<Script>,
    received: Arc<Mutex<Vec<ReceivedRequest>>>,
) -> std::io::Result<()> {
    let mut buffer = Vec::new();
    while let Some(request) = read_request(&mut stream, &mut buffer).await {
        let steps = script(&request);
        received.lock().unwrap().push(request);
        if !perform_steps(&mut stream, &steps).await? {
            return Ok(());
        }
    }
    Ok(())
}

/// Performs the steps. Returns whether the connection stays open.
async fn perform_steps(stream: &mut TcpStream, steps: &[Step]) -> std::io::Result<bool> {
    for step in steps {
        match step {
            Step::Write(bytes) => stream.write_all(bytes).await?,
            Step::WaitForLatch(latch) => drop(latch.acquire().await),
            Step::Sleep(time) => tokio::time::sleep(*time).await,
            Step::Close => return Ok(false),
            Step::Reset => {
                let _ = stream.set_zero_linger();
                return Ok(false);
            }
            Step::Hang => {
                let mut rest = [0; 1024];
                while stream.read(&mut rest).await? > 0 {}
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
            Step::Repeat(steps) => while Box::pin(perform_steps(stream, steps)).await? {},
        }
    }
    Ok(true)
}

/// Reads one HTTP/1.1 request with a length or a chunked body.
async fn read_request(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<ReceivedRequest> {
    let head_end = loop {
        if let Some(at) = find_bytes(buffer, b"\r\n\r\n") {
            break at + 4;
        }
        read_more(stream, buffer).await?;
    };
    let head = String::from_utf8_lossy(&buffer[..head_end]).into_owned();
    buffer.drain(..head_end);
    let mut request = ReceivedRequest { head, body: Vec::new() };
    if let Some(length) = request.header("content-length").and_then(|length| length.parse::<usize>().ok()) {
        while buffer.len() < length {
            read_more(stream, buffer).await?;
        }
        request.body = buffer.drain(..length).collect();
    } else if request.header("transfer-encoding").is_some() {
        loop {
            let line_end = loop {
                if let Some(at) = find_bytes(buffer, b"\r\n") {
                    break at;
                }
                read_more(stream, buffer).await?;
            };
            let size = usize::from_str_radix(std::str::from_utf8(&buffer[..line_end]).ok()?.trim(), 16).ok()?;
            while buffer.len() < line_end + 2 + size + 2 {
                read_more(stream, buffer).await?;
            }
            request.body.extend_from_slice(&buffer[line_end + 2..line_end + 2 + size]);
            buffer.drain(..line_end + 2 + size + 2);
            if size == 0 {
                break;
            }
        }
    }
    Some(request)
}

async fn read_more(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<()> {
    let mut chunk = [0; 16 << 10];
    match stream.read(&mut chunk).await {
        Ok(0) | Err(_) => None,
        Ok(count) => {
            buffer.extend_from_slice(&chunk[..count]);
            Some(())
        }
    }
}

pub fn find_bytes(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|window| window == needle)
}

/// Starts an agent whose response can be changed at any time.
pub async fn changeable_agent(response: Vec<Step>) -> (Agent, Arc<Mutex<Vec<Step>>>) {
    let response = Arc::new(Mutex::new(response));
    let current = Arc::clone(&response);
    (Agent::scripted(move |_| current.lock().unwrap().clone()).await, response)
}
