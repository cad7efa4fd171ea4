//! An HTTPS site that serves the pages of a test: documents, redirects, and responses of a hostile site. Paths that
//! start with `/agent` and have no page belong to an agent that answers with a description of the request.

use super::{
    certs::CertificateAuthority,
    servers::{RawAgent, server_tls_config},
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

/// The response of a path.
#[derive(Clone, Debug, Default)]
pub struct Page {
    pub status: u16,
    pub headers: Vec<(&'static str, String)>,
    pub body: Bytes,
    pub delay: Duration,
}

impl Page {
    pub fn json(value: &Value) -> Self {
        Self::new(200, value.to_string()).header("content-type", "application/json")
    }

    pub fn new(status: u16, body: impl Into<Bytes>) -> Self {
        Self { status, body: body.into(), ..Self::default() }
    }

    pub fn header(mut self, name: &'static str, value: &str) -> Self {
        self.headers.push((name, value.to_owned()));
        self
    }

    pub fn delayed_by(mut self, wait: Duration) -> Self {
        self.delay = wait;
        self
    }
}

#[derive(Default)]
struct SiteState {
    pages: HashMap<String, Page>,
    requested_targets: Vec<String>,
}

/// The site. It ends when it is dropped.
pub struct Site {
    pub address: SocketAddr,
    state: Arc<Mutex<SiteState>>,
    task: JoinHandle<()>,
}

impl Site {
    /// Starts the site with a certificate of `authority` for localhost.
    pub async fn start(authority: &CertificateAuthority) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let acceptor = TlsAcceptor::from(server_tls_config(&authority.server(&["localhost", "127.0.0.1"]), None, &[]));
        let state = Arc::new(Mutex::new(SiteState::default()));
        let shared = Arc::clone(&state);
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, state) = (acceptor.clone(), Arc::clone(&shared));
                tokio::spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    let service = service_fn(move |request| {
                        let state = Arc::clone(&state);
                        async move { Ok::<_, std::convert::Infallible>(respond(request, &state).await) }
                    });
                    let _ =
                        auto::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        Self { address, state, task }
    }

    /// `localhost` and the port.
    pub fn host(&self) -> String {
        format!("localhost:{}", self.address.port())
    }

    pub fn url(&self, path: &str) -> String {
        format!("https://{}{path}", self.host())
    }

    pub fn agent_uri(&self, path: &str) -> String {
        format!("agent://{}{path}", self.host())
    }

    pub fn put(&self, path: &str, page: Page) {
        self.state.lock().unwrap().pages.insert(path.to_owned(), page);
    }

    pub fn json(&self, path: &str, value: Value) {
        self.put(path, Page::json(&value));
    }

    /// Number of requests for `path`, which includes the query.
    pub fn request_count(&self, path: &str) -> usize {
        self.state.lock().unwrap().requested_targets.iter().filter(|target| target.as_str() == path).count()
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn respond(request: Request<Incoming>, state: &Mutex<SiteState>) -> Response<Full<Bytes>> {
    let (parts, body) = request.into_parts();
    let target = parts.uri.path_and_query().unwrap().to_string();
    let page = {
        let mut state = state.lock().unwrap();
        state.requested_targets.push(target.clone());
        state.pages.get(&target).or_else(|| state.pages.get(parts.uri.path())).cloned()
    };
    let header = |name: &str| parts.headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let page = match page {
        Some(page) => page,
        None if target.starts_with("/agent") && !parts.uri.path().ends_with(".json") => {
            let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
            let body: Value = serde_json::from_slice(&body).unwrap_or_default();
            let version = header("x-agent-version");
            let key = header("x-api-key");
            Page::json(
                &json!({"method": parts.method.as_str(), "target": target, "body": body, "version": version, "key": key}),
            )
        }
        None => Page::new(404, ""),
    };
    tokio::time::sleep(page.delay).await;
    let etag = page.headers.iter().find(|(name, _)| *name == "etag").map(|(_, etag)| etag.clone());
    let not_modified = etag.is_some() && header("if-none-match") == etag;
    let mut response = Response::builder().status(if not_modified { 304 } else { page.status });
    for (name, value) in page.headers {
        response = response.header(name, value);
    }
    response.body(Full::new(if not_modified { Bytes::new() } else { page.body })).unwrap()
}

/// A listener that counts its connections and closes each without a response.
pub async fn connection_counter() -> (RawAgent, Arc<std::sync::atomic::AtomicUsize>) {
    let connections = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let count = Arc::clone(&connections);
    let raw = RawAgent::start(move |stream, _| {
        count.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        async move { drop(stream) }
    })
    .await;
    (raw, connections)
}
