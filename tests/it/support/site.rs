//! A site over TLS that publishes what a test puts there: documents, redirects, and whatever a hostile one would. What
//! lies under `/agent` is an agent that says what it was asked.

use super::{
    certs::Authority,
    served::{Raw, tls},
};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{Request, Response, body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
};
use serde_json::{Value, json};
use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::{net::TcpListener, task::JoinHandle};
use tokio_rustls::TlsAcceptor;

/// What is at a path.
#[derive(Clone, Debug, Default)]
pub struct Page {
    pub status: u16,
    pub fields: Vec<(&'static str, String)>,
    pub body: Bytes,
    pub wait: Duration,
}

impl Page {
    pub fn json(value: &Value) -> Self {
        Self::new(200, value.to_string()).field("content-type", "application/json")
    }

    pub fn new(status: u16, body: impl Into<Bytes>) -> Self {
        Self { status, body: body.into(), ..Self::default() }
    }

    pub fn field(mut self, name: &'static str, value: &str) -> Self {
        self.fields.push((name, value.to_owned()));
        self
    }

    pub fn after(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }
}

#[derive(Default)]
struct Held {
    pages: HashMap<String, Page>,
    asked: Vec<String>,
}

/// The site; gone when dropped.
pub struct Site {
    pub address: SocketAddr,
    held: Arc<Mutex<Held>>,
    task: JoinHandle<()>,
}

impl Site {
    /// With a certificate of `authority` for localhost.
    pub async fn start(authority: &Authority) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let acceptor = TlsAcceptor::from(tls(&authority.server(&["localhost", "127.0.0.1"]), None, &[]));
        let held = Arc::new(Mutex::new(Held::default()));
        let shared = Arc::clone(&held);
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, held) = (acceptor.clone(), Arc::clone(&shared));
                tokio::spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    let service = service_fn(move |request| {
                        let held = Arc::clone(&held);
                        async move { Ok::<_, std::convert::Infallible>(answer(request, &held).await) }
                    });
                    let _ =
                        auto::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        Self { address, held, task }
    }

    /// `localhost` with the port.
    pub fn host(&self) -> String {
        format!("localhost:{}", self.address.port())
    }

    pub fn url(&self, path: &str) -> String {
        format!("https://{}{path}", self.host())
    }

    pub fn name(&self, path: &str) -> String {
        format!("agent://{}{path}", self.host())
    }

    pub fn put(&self, path: &str, page: Page) {
        self.held.lock().unwrap().pages.insert(path.to_owned(), page);
    }

    pub fn json(&self, path: &str, value: Value) {
        self.put(path, Page::json(&value));
    }

    /// How often `path` was asked for.
    pub fn asked(&self, path: &str) -> usize {
        self.held.lock().unwrap().asked.iter().filter(|asked| asked.as_str() == path).count()
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn answer(request: Request<Incoming>, held: &Mutex<Held>) -> Response<Full<Bytes>> {
    let (parts, body) = request.into_parts();
    let target = parts.uri.path_and_query().unwrap().to_string();
    let page = {
        let mut held = held.lock().unwrap();
        held.asked.push(target.clone());
        held.pages.get(&target).or_else(|| held.pages.get(parts.uri.path())).cloned()
    };
    let field = |name: &str| parts.headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let page = match page {
        Some(page) => page,
        None if target.starts_with("/agent") && !parts.uri.path().ends_with(".json") => {
            let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
            let body: Value = serde_json::from_slice(&body).unwrap_or_default();
            let version = field("x-agent-version");
            let key = field("x-api-key");
            Page::json(
                &json!({"method": parts.method.as_str(), "target": target, "body": body, "version": version, "key": key}),
            )
        }
        None => Page::new(404, ""),
    };
    tokio::time::sleep(page.wait).await;
    let tag = page.fields.iter().find(|(name, _)| *name == "etag").map(|(_, tag)| tag.clone());
    let fresh = tag.is_some() && field("if-none-match") == tag;
    let mut response = Response::builder().status(if fresh { 304 } else { page.status });
    for (name, value) in page.fields {
        response = response.header(name, value);
    }
    response.body(Full::new(if fresh { Bytes::new() } else { page.body })).unwrap()
}

/// A listener that counts who comes, and says nothing.
pub async fn trap() -> (Raw, Arc<std::sync::atomic::AtomicUsize>) {
    let came = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let count = Arc::clone(&came);
    let raw = Raw::new(move |stream, _| {
        count.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        async move { drop(stream) }
    })
    .await;
    (raw, came)
}
