//! Scripted HTTP server: responds byte for byte as told, and records the requests.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};

/// Response to a request.
#[derive(Clone)]
pub(super) enum Act {
    /// Sends these bytes, and closes.
    Say(Vec<u8>),
    /// Sends these bytes one at a time, more slowly than any client waits.
    Drip(Vec<u8>),
    /// Sends nothing and keeps the connection open.
    Hang,
    /// Closes at once.
    Close,
}

type Script = Arc<Mutex<Box<dyn FnMut(&str) -> Act + Send>>>;

pub(super) struct Served {
    pub(super) at: SocketAddr,
    script: Script,
    asked: Arc<Mutex<Vec<String>>>,
    task: JoinHandle<()>,
}

/// Returns a complete response.
pub(super) fn answer(status: &str, fields: &str, body: &str) -> Act {
    let length = body.len();
    Act::Say(format!("HTTP/1.1 {status}\r\n{fields}content-length: {length}\r\nconnection: close\r\n\r\n{body}").into())
}

pub(super) fn ok(body: &str) -> Act {
    answer("200 OK", "content-type: application/json\r\n", body)
}

impl Served {
    pub(super) async fn new(script: impl FnMut(&str) -> Act + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let script: Script = Arc::new(Mutex::new(Box::new(script)));
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (acts, heads) = (Arc::clone(&script), Arc::clone(&asked));
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, Arc::clone(&acts), Arc::clone(&heads)));
            }
        });
        Self { at, script, asked, task }
    }

    pub(super) async fn saying(body: &str) -> Self {
        let body = body.to_owned();
        Self::new(move |_| ok(&body)).await
    }

    /// Replaces the script.
    pub(super) fn now(&self, script: impl FnMut(&str) -> Act + Send + 'static) {
        *self.script.lock().unwrap() = Box::new(script);
    }

    pub(super) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.at)
    }

    /// Returns the heads of all requests so far.
    pub(super) fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(mut stream: TcpStream, script: Script, asked: Arc<Mutex<Vec<String>>>) {
    let mut head = Vec::new();
    let mut buffer = [0; 4096];
    while !head.windows(4).any(|four| four == b"\r\n\r\n") {
        match stream.read(&mut buffer).await {
            Ok(count) if count > 0 => head.extend_from_slice(&buffer[..count]),
            _ => return,
        }
    }
    let head = String::from_utf8_lossy(&head).to_ascii_lowercase();
    let act = (script.lock().unwrap())(&head);
    asked.lock().unwrap().push(head);
    match act {
        Act::Say(bytes) => {
            let _ = stream.write_all(&bytes).await;
            let _ = stream.shutdown().await;
        }
        Act::Drip(bytes) => {
            for byte in bytes {
                if stream.write_all(&[byte]).await.is_err() {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
        Act::Hang => std::future::pending().await,
        Act::Close => {}
    }
}
