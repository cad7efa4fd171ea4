//! Local web server with configurable responses; counts requests, and can delay or drop them.

use parking_lot::Mutex;
use serde_json::Value;
use std::{collections::HashMap, net::SocketAddr, sync::Arc};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

#[derive(Default)]
struct TestWebServerState {
    responses: HashMap<String, (u16, String)>,
    requests: Vec<(String, String)>,
    down: bool,
    delayed: bool,
}

#[derive(Clone)]
pub(super) struct TestWebServer {
    address: SocketAddr,
    state: Arc<Mutex<TestWebServerState>>,
}

impl TestWebServer {
    pub(super) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let web = Self { address: listener.local_addr().unwrap(), state: Arc::default() };
        let server = web.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let web = server.clone();
                tokio::spawn(async move { web.respond(stream).await });
            }
        });
        web
    }

    pub(super) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(super) fn serve(&self, path: &str, status: u16, body: &Value) {
        self.serve_text(path, status, &body.to_string());
    }

    pub(super) fn serve_text(&self, path: &str, status: u16, body: &str) {
        self.state.lock().responses.insert(path.to_owned(), (status, body.to_owned()));
    }

    /// Closes connections without a response while set.
    pub(super) fn set_down(&self, down: bool) {
        self.state.lock().down = down;
    }

    /// Delays responses while set.
    pub(super) fn set_delayed(&self, delayed: bool) {
        self.state.lock().delayed = delayed;
    }

    pub(super) fn request_count(&self, path: &str) -> usize {
        self.state.lock().requests.iter().filter(|(requested, _)| requested == path).count()
    }

    /// Returns the last request as text.
    pub(super) fn last_request(&self) -> String {
        self.state.lock().requests.last().unwrap().1.clone()
    }

    async fn respond(&self, mut stream: TcpStream) {
        let mut text = String::new();
        let mut bytes = [0; 4096];
        while !is_complete(&text) {
            match stream.read(&mut bytes).await {
                Ok(0) | Err(_) => return,
                Ok(count) => text.push_str(std::str::from_utf8(&bytes[..count]).unwrap()),
            }
        }
        let path = text.split(' ').nth(1).unwrap().to_owned();
        let (down, response) = {
            let mut state = self.state.lock();
            state.requests.push((path.clone(), text));
            (state.down, state.responses.get(&path).cloned())
        };
        if down {
            return;
        }
        while self.state.lock().delayed {
            tokio::task::yield_now().await;
        }
        let (status, body) = response.unwrap_or((404, String::new()));
        let head = format!("HTTP/1.1 {status} x\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
        let _ = stream.write_all((head + &body).as_bytes()).await;
    }
}

fn is_complete(text: &str) -> bool {
    let Some((head, body)) = text.split_once("\r\n\r\n") else {
        return false;
    };
    let length = head.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
    body.len() >= length.unwrap_or(0)
}
