//! An agent that counts how often it executes a call with a key, and that can be killed and restarted on its port.

use crate::support::ports::ReservedPort;
use serde_json::{Value, json};
use std::{
    collections::HashMap,
    io::ErrorKind,
    net::Ipv4Addr,
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    runtime::Runtime,
};

/// What outlives the agent's process: how often each key was executed.
type Executions = Arc<Mutex<HashMap<String, u32>>>;

pub struct CountingAgent {
    port: ReservedPort,
    executions: Executions,
    max_duration: Duration,
    process: Option<Runtime>,
}

impl CountingAgent {
    /// Starts an agent that takes up to `max_duration` for a call.
    pub async fn start(max_duration: Duration) -> Self {
        let mut agent = Self { port: ReservedPort::new(), executions: Arc::default(), max_duration, process: None };
        agent.restart().await;
        agent
    }

    /// Ends the agent at once: its listener and its connections.
    pub fn kill(&mut self) {
        if let Some(process) = self.process.take() {
            process.shutdown_background();
        }
    }

    pub async fn restart(&mut self) {
        self.kill();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let (port, executions, max_duration) = (self.port.number(), Arc::clone(&self.executions), self.max_duration);
        let (sender, is_listening) = tokio::sync::oneshot::channel();
        runtime.spawn(async move {
            let listener = bind_when_free(port).await;
            sender.send(()).unwrap();
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, Arc::clone(&executions), max_duration));
            }
        });
        is_listening.await.unwrap();
        self.process = Some(runtime);
    }

    pub fn document(&self, id: &str) -> Value {
        let endpoint = format!("http://127.0.0.1:{}/invoke", self.port.number());
        json!({"id": id, "name": id, "endpoint": endpoint, "authentication": {"type": "api_key"}})
    }

    /// How often each key was executed.
    pub fn executions(&self) -> HashMap<String, u32> {
        self.executions.lock().unwrap().clone()
    }

    pub fn executions_of(&self, key: &str) -> u32 {
        self.executions.lock().unwrap().get(key).copied().unwrap_or_default()
    }
}

/// Listens on the port as soon as the runtime that was ended has closed its listener.
async fn bind_when_free(port: u16) -> TcpListener {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(10);
    loop {
        match TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await {
            Ok(listener) => return listener,
            Err(why) if why.kind() == ErrorKind::AddrInUse && tokio::time::Instant::now() < deadline => {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            Err(why) => panic!("port {port}: {why}"),
        }
    }
}

impl Drop for CountingAgent {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Answers one request. Its connection is not used again, because the gateway repeats a request with a key that was lost
/// with a reused connection.
async fn serve(mut stream: TcpStream, executions: Executions, max_duration: Duration) {
    let mut request = Vec::new();
    let is_complete = |request: &[u8]| {
        let text = String::from_utf8_lossy(request);
        let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
        header(head, "content-length").is_none_or(|length| body.len() >= length.parse().unwrap())
    };
    while !is_complete(&request) {
        match stream.read_buf(&mut request).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
    }
    let text = String::from_utf8(request).unwrap();
    let key = header(&text, "idempotency-key").unwrap_or_default().to_owned();
    let count = {
        let mut executions = executions.lock().unwrap();
        let count = executions.entry(key.clone()).or_default();
        *count += 1;
        *count
    };
    tokio::time::sleep(max_duration.mul_f64(fastrand::f64())).await;
    let body = json!({"key": key, "execution": count}).to_string();
    let length = body.len();
    let response = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
    );
    let _ = stream.write_all(response.as_bytes()).await;
}

fn header<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().skip(1).take_while(|line| !line.is_empty()).find_map(|line| {
        let (field, value) = line.split_once(':')?;
        field.eq_ignore_ascii_case(name).then_some(value.trim())
    })
}
