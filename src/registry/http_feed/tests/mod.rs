//! Each kind of registry against a test server, well-behaved or not.

mod a2a_cards;
mod aidip;
mod descriptors;
mod mcp_servers;
mod misbehaving_servers;
mod nested_catalogs;
mod openapi_documents;
mod other_registries;
mod security_schemes;
mod signed_cards;
mod slugs;

use super::*;
use crate::{
    agent::Agent,
    registry::{DocumentBody, FeedPart, PartUpdate, PollResult, document_parser},
};
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::{collections::HashMap, sync::Arc};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

/// Response of the server at one path.
#[derive(Clone)]
enum CannedResponse {
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

use CannedResponse::{Cached, Half, Huge, Json, Moved, Status, Text};

/// A server with a table of responses, which records the requests.
struct FakeRegistryServer {
    url: String,
    responses: Arc<Mutex<HashMap<String, CannedResponse>>>,
    requests: Arc<Mutex<Vec<String>>>,
    _task: tokio::task::JoinSet<()>,
}

impl FakeRegistryServer {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (responses, requests) =
            (Arc::<Mutex<HashMap<String, CannedResponse>>>::default(), Arc::<Mutex<Vec<String>>>::default());
        let shared = (Arc::clone(&responses), Arc::clone(&requests));
        let mut task = tokio::task::JoinSet::new();
        task.spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(serve(stream, Arc::clone(&shared.0), Arc::clone(&shared.1)));
            }
        });
        Self { url, responses, requests, _task: task }
    }

    fn put(&self, path: &str, response: CannedResponse) -> &Self {
        self.responses.lock().insert(path.to_owned(), response);
        self
    }

    fn json(&self, path: &str, value: Value) -> &Self {
        self.put(path, Json(value))
    }

    fn feed(&self, kind: SourceKind, path: &str) -> Box<dyn Feed> {
        let client = ConditionalClient::for_test(&format!("{}{path}", self.url));
        open_feed(client, feed_settings(kind, SignaturePolicy::default()))
    }

    /// Returns the requests since the last call.
    fn take_requests(&self) -> Vec<String> {
        let mut requests = std::mem::take(&mut *self.requests.lock());
        requests.sort();
        requests
    }
}

fn feed_settings(kind: SourceKind, signature_policy: SignaturePolicy) -> RegistryFeedSettings {
    RegistryFeedSettings { kind, signature_policy, operation_paths: true, max_agents: 1_000 }
}

async fn serve(
    mut stream: TcpStream,
    responses: Arc<Mutex<HashMap<String, CannedResponse>>>,
    requests: Arc<Mutex<Vec<String>>>,
) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        if stream.read_buf(&mut head).await.unwrap_or(0) == 0 {
            return;
        }
    }
    let head = String::from_utf8(head).unwrap();
    let path = head.split(' ').nth(1).unwrap().to_owned();
    let response = responses.lock().get(&path).cloned();
    let is_conditional = |tag: &str| head.to_ascii_lowercase().contains(&format!("if-none-match: {tag}"));
    let http_response = |status: &str, extra: &str, body: &str| {
        let length = body.len();
        format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n{extra}\r\n{body}")
    };
    let mut request = path;
    let bytes = match response {
        None => http_response("404 Not Found", "", ""),
        Some(Status(status)) => http_response(&format!("{status} Odd"), "", "odd"),
        Some(Json(value)) => http_response("200 OK", "", &value.to_string()),
        Some(Text(text)) => http_response("200 OK", "", &text),
        Some(Cached(tag, _)) if is_conditional(tag) => {
            request.push_str(" (conditional)");
            http_response("304 Not Modified", "", "")
        }
        Some(Cached(tag, value)) => http_response("200 OK", &format!("etag: {tag}\r\n"), &value.to_string()),
        Some(Moved(to)) => http_response("302 Found", &format!("location: {to}\r\n"), ""),
        Some(Huge(bytes)) => http_response("200 OK", "", &" ".repeat(bytes)),
        Some(Half(text)) => {
            let half = &text[..text.len() / 2];
            format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{half}", text.len())
        }
    };
    requests.lock().push(request);
    // The client may hang up early.
    let _ = stream.write_all(bytes.as_bytes()).await;
}

/// Returns the documents of a poll: each the value that the catalogue would parse, or the reason of its rejection.
fn poll_documents(result: &PollResult) -> Vec<Result<Value, String>> {
    assert_eq!(result.error, None);
    let mut replaced = result.parts.iter().filter_map(|part| match &part.update {
        PartUpdate::Replaced(documents) => Some(documents),
        _ => None,
    });
    let first = replaced.next().expect("documents");
    let parse = |body: &DocumentBody| match body {
        DocumentBody::Text(text) => document_parser::parse_value(DocumentBody::Text(text.clone())),
        DocumentBody::Value(value) => Ok(value.clone()),
        DocumentBody::Invalid(why) | DocumentBody::Unsupported(why) => Err(why.clone()),
    };
    first.iter().chain(replaced.flatten()).map(|document| parse(&document.body)).collect()
}

/// Returns the ids of the agents of a poll, each of which the catalogue accepts.
fn ids(result: &PollResult) -> Vec<String> {
    let agents = poll_documents(result).into_iter().filter_map(Result::ok);
    agents.map(|document| Agent::from_document(&document, [0; 32]).unwrap().id.to_string()).collect()
}

/// Returns the reasons of the rejected entries of a poll.
fn rejection_reasons(result: &PollResult) -> Vec<String> {
    poll_documents(result).into_iter().filter_map(Result::err).collect()
}

/// Returns the reasons of the entries of a poll that are no mistakes, and that the gateway does not call.
fn unsupported_reasons(result: &PollResult) -> Vec<String> {
    let documents = result.parts.iter().filter_map(|part| match &part.update {
        PartUpdate::Replaced(documents) => Some(documents),
        _ => None,
    });
    let reason = |document: &crate::registry::RawDocument| match &document.body {
        DocumentBody::Unsupported(why) => Some(why.clone()),
        _ => None,
    };
    documents.flatten().filter_map(reason).collect()
}

async fn poll_and_acknowledge(feed: &mut Box<dyn Feed>) -> PollResult {
    let result = feed.poll().await;
    feed.acknowledge();
    result
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
