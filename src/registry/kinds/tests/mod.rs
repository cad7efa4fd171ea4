//! Each kind of registry against a test server, well-behaved or not.

mod aidip;
mod broken;
mod cards;
mod descriptors;
mod domains;
mod names;
mod security;
mod signed;

use super::*;
use crate::{
    agent::Agent,
    registry::{Body, Change, News, read},
};
use serde_json::{Value, json};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

/// Response of the server at one path.
#[derive(Clone)]
enum Answer {
    Json(Value),
    Text(String),
    Status(u16),
    /// Half of the declared content length.
    Half(String),
    /// This many bytes.
    Huge(usize),
    Moved(String),
    Cached(&'static str, Value),
}

use Answer::{Cached, Half, Huge, Json, Moved, Status, Text};

/// A server with a table of responses, which records the requests.
struct Server {
    url: String,
    answers: Arc<Mutex<HashMap<String, Answer>>>,
    asked: Arc<Mutex<Vec<String>>>,
    _task: tokio::task::JoinSet<()>,
}

impl Server {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (answers, asked) = (Arc::<Mutex<HashMap<String, Answer>>>::default(), Arc::<Mutex<Vec<String>>>::default());
        let (at, log) = (Arc::clone(&answers), Arc::clone(&asked));
        let mut task = tokio::task::JoinSet::new();
        task.spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(serve(stream, Arc::clone(&at), Arc::clone(&log)));
            }
        });
        Self { url, answers, asked, _task: task }
    }

    fn put(&self, path: &str, answer: Answer) -> &Self {
        self.answers.lock().unwrap().insert(path.to_owned(), answer);
        self
    }

    fn json(&self, path: &str, value: Value) -> &Self {
        self.put(path, Json(value))
    }

    fn feed(&self, kind: Kind, path: &str) -> Box<dyn Feed> {
        open(kind, Web::local(&format!("{}{path}", self.url)), Proof::default())
    }

    /// Returns the requests since the last call.
    fn asked(&self) -> Vec<String> {
        let mut asked = std::mem::take(&mut *self.asked.lock().unwrap());
        asked.sort();
        asked
    }
}

async fn serve(mut stream: TcpStream, answers: Arc<Mutex<HashMap<String, Answer>>>, asked: Arc<Mutex<Vec<String>>>) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        if stream.read_buf(&mut head).await.unwrap_or(0) == 0 {
            return;
        }
    }
    let head = String::from_utf8(head).unwrap();
    let path = head.split(' ').nth(1).unwrap().to_owned();
    let answer = answers.lock().unwrap().get(&path).cloned();
    let same = |tag: &str| head.to_ascii_lowercase().contains(&format!("if-none-match: {tag}"));
    let plain = |status: &str, extra: &str, body: &str| {
        let length = body.len();
        format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n{extra}\r\n{body}")
    };
    let mut note = path;
    let bytes = match answer {
        None => plain("404 Not Found", "", ""),
        Some(Status(status)) => plain(&format!("{status} Odd"), "", "odd"),
        Some(Json(value)) => plain("200 OK", "", &value.to_string()),
        Some(Text(text)) => plain("200 OK", "", &text),
        Some(Cached(tag, _)) if same(tag) => {
            note.push_str(" (same)");
            plain("304 Not Modified", "", "")
        }
        Some(Cached(tag, value)) => plain("200 OK", &format!("etag: {tag}\r\n"), &value.to_string()),
        Some(Moved(to)) => plain("302 Found", &format!("location: {to}\r\n"), ""),
        Some(Huge(bytes)) => plain("200 OK", "", &" ".repeat(bytes)),
        Some(Half(text)) => {
            let half = &text[..text.len() / 2];
            format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{half}", text.len())
        }
    };
    asked.lock().unwrap().push(note);
    // The client may hang up early.
    let _ = stream.write_all(bytes.as_bytes()).await;
}

/// Returns the documents of a poll: each the value that the catalogue would parse, or the reason of its rejection.
fn found(change: &Change) -> Vec<Result<Value, String>> {
    assert_eq!(change.trouble, None);
    let whole = change.parts.iter().find_map(|part| match &part.news {
        News::Whole(documents) => Some(documents),
        _ => None,
    });
    let body = |body: &Body| match body {
        Body::Text(text) => read::value(Body::Text(text.clone())),
        Body::Value(value) => Ok(value.clone()),
        Body::Broken(why) => Err(why.clone()),
    };
    whole.expect("documents").iter().map(|document| body(&document.body)).collect()
}

/// Returns the ids of the agents of a poll, each of which the catalogue accepts.
fn ids(change: &Change) -> Vec<String> {
    let agents = found(change).into_iter().filter_map(Result::ok);
    agents.map(|document| Agent::from_document(&document, [0; 32]).unwrap().id.to_string()).collect()
}

/// Returns the reasons of the rejected entries of a poll.
fn refused(change: &Change) -> Vec<String> {
    found(change).into_iter().filter_map(Result::err).collect()
}

async fn look(feed: &mut Box<dyn Feed>) -> Change {
    let change = feed.next().await;
    feed.taken();
    change
}

/// Returns an AIDIP document.
fn agent(id: &str) -> Value {
    json!({"id": id, "name": id, "endpoint": format!("https://{id}.example/invoke"), "operations": [{"name": "run"}]})
}

/// Returns its summary.
fn summary(id: &str) -> Value {
    json!({
        "id": id, "name": id, "description": "", "endpoint": format!("https://{id}.example/invoke"), "capabilities": []
    })
}

/// Returns an A2A 0.3 card.
fn card(name: &str) -> Value {
    json!({
        "name": name,
        "description": "A card",
        "version": "1.0.0",
        "protocolVersion": "0.3.0",
        "url": "https://card.example/a2a",
        "preferredTransport": "JSONRPC",
        "capabilities": {"streaming": true},
        "defaultInputModes": ["text/plain"],
        "defaultOutputModes": ["text/plain"],
        "skills": [{"id": "translate", "name": "Translate", "description": "Translates", "tags": ["text", "language"]}]
    })
}

fn base() -> Url {
    "https://registry.example/agents".parse().unwrap()
}
