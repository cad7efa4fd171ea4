//! Scripted HTTP server: responds byte for byte as scripted, and records the requests.

use parking_lot::Mutex;
use std::{net::SocketAddr, sync::Arc, time::Duration};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};

/// Response to a request.
#[derive(Clone)]
pub(super) enum ScriptedResponse {
    /// Sends these bytes, and closes.
    Send(Vec<u8>),
    /// Sends these bytes one at a time, more slowly than any client waits.
    SendSlowly(Vec<u8>),
    /// Sends nothing and keeps the connection open.
    Hang,
    /// Closes at once.
    Close,
}

type ResponseScript = Arc<Mutex<Box<dyn FnMut(&str) -> ScriptedResponse + Send>>>;

pub(super) struct ScriptedServer {
    pub(super) address: SocketAddr,
    script: ResponseScript,
    requests: Arc<Mutex<Vec<String>>>,
    task: JoinHandle<()>,
}

/// Returns a complete response.
pub(super) fn response(status: &str, headers: &str, body: &str) -> ScriptedResponse {
    let length = body.len();
    ScriptedResponse::Send(
        format!("HTTP/1.1 {status}\r\n{headers}content-length: {length}\r\nconnection: close\r\n\r\n{body}").into(),
    )
}

pub(super) fn ok(body: &str) -> ScriptedResponse {
    response("200 OK", "content-type: application/json\r\n", body)
}

impl ScriptedServer {
    pub(super) async fn new(script: impl FnMut(&str) -> ScriptedResponse + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let script: ResponseScript = Arc::new(Mutex::new(Box::new(script)));
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (shared_script, shared_requests) = (Arc::clone(&script), Arc::clone(&requests));
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, Arc::clone(&shared_script), Arc::clone(&shared_requests)));
            }
        });
        Self { address, script, requests, task }
    }

    pub(super) async fn with_body(body: &str) -> Self {
        let body = body.to_owned();
        Self::new(move |_| ok(&body)).await
    }

    /// Replaces the script.
    pub(super) fn set_script(&self, script: impl FnMut(&str) -> ScriptedResponse + Send + 'static) {
        *self.script.lock() = Box::new(script);
    }

    pub(super) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Returns the heads of all requests so far.
    pub(super) fn requests(&self) -> Vec<String> {
        self.requests.lock().clone()
    }
}

impl Drop for ScriptedServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(mut stream: TcpStream, script: ResponseScript, requests: Arc<Mutex<Vec<String>>>) {
    let mut head = Vec::new();
    let mut buffer = [0; 4096];
    while !head.windows(4).any(|four| four == b"\r\n\r\n") {
        match stream.read(&mut buffer).await {
            Ok(count) if count > 0 => head.extend_from_slice(&buffer[..count]),
            _ => return,
        }
    }
    let head = String::from_utf8_lossy(&head).to_ascii_lowercase();
    let scripted = (script.lock())(&head);
    requests.lock().push(head);
    match scripted {
        ScriptedResponse::Send(bytes) => {
            let _ = stream.write_all(&bytes).await;
            let _ = stream.shutdown().await;
        }
        ScriptedResponse::SendSlowly(bytes) => {
            for byte in bytes {
                if stream.write_all(&[byte]).await.is_err() {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
        ScriptedResponse::Hang => std::future::pending().await,
        ScriptedResponse::Close => {}
    }
}
