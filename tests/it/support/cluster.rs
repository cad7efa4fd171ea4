//! A fake API server of Kubernetes: lists in pages and watches of Services, EndpointSlices and ConfigMaps, as the
//! published API describes them: label selectors, versions, bookmarks, chunked events, 401, 403 and 410 with a Status.

use super::{
    agent::Agent,
    gateway::{Gateway, GatewayBuilder, gateway},
};
use bytes::Bytes;
use futures_util::stream;
use http_body_util::{BodyExt, Full, StreamBody, combinators::BoxBody};
use hyper::{
    Request, Response,
    body::{Frame, Incoming},
    service::service_fn,
};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
};
use rustls::ServerConfig;
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, HashMap, HashSet},
    io,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard},
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpListener,
    sync::{mpsc, watch},
    task::JoinHandle,
};
use tokio_rustls::TlsAcceptor;

type Body = BoxBody<Bytes, io::Error>;

/// How the server misbehaves, and what it observed.
#[derive(Default)]
pub struct ClusterBehavior {
    /// The token that requests must have; `None` for any.
    pub token: Option<String>,
    /// Resources that the caller may not read.
    pub forbidden: HashSet<&'static str>,
    /// Namespaces that the caller may not read.
    pub forbidden_namespaces: HashSet<&'static str>,
    /// The status of every response.
    pub status: Option<u16>,
    /// Whether no response arrives.
    pub is_silent: bool,
    /// The requests so far, as paths with queries.
    pub requests: Vec<String>,
}

#[derive(Default)]
struct ClusterState {
    version: u64,
    /// Changes before this version are forgotten.
    oldest_version: u64,
    objects: BTreeMap<(String, String, String), Value>,
    changes: Vec<Change>,
    behavior: ClusterBehavior,
    /// Incremented to break all watches in the middle of an event.
    breaks: u64,
    /// Incremented to send an event that is not JSON to all watches.
    garbled: u64,
}

#[derive(Clone)]
struct Change {
    version: u64,
    resource: String,
    namespace: String,
    before: Option<Value>,
    after: Option<Value>,
}

/// A fake API server. It ends when it is dropped.
pub struct FakeCluster {
    pub address: SocketAddr,
    state: Arc<Mutex<ClusterState>>,
    changed: watch::Sender<()>,
    task: JoinHandle<()>,
}

impl FakeCluster {
    pub async fn start() -> Self {
        Self::start_with_tls(None).await
    }

    pub async fn start_with_tls(tls: Option<Arc<ServerConfig>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(Mutex::new(ClusterState { version: 100, ..ClusterState::default() }));
        let changed = watch::Sender::new(());
        let server = ClusterServer { state: Arc::clone(&state), changed: changed.clone() };
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (server, tls) = (server.clone(), tls.clone());
                tokio::spawn(async move {
                    match tls {
                        None => server.serve(stream).await,
                        Some(tls) => {
                            if let Ok(stream) = TlsAcceptor::from(tls).accept(stream).await {
                                server.serve(stream).await;
                            }
                        }
                    }
                });
            }
        });
        Self { address, state, changed, task }
    }

    /// The source of this cluster in a configuration, with these further settings in the section `kubernetes`.
    pub fn section(&self, settings: &str) -> String {
        let url = format!("http://{}", self.address);
        format!(
            "agents:\n  defaults: {{allow_plaintext: true}}\n  sources:\n    - kind: kubernetes\n      name: cluster\n      \
             url: {url}\n      poll_interval: 1s\n      fetch_timeout: 2s\n      kubernetes: {{namespaces: [agents]{settings}}}\n"
        )
    }

    /// Starts a gateway with this cluster as its source.
    pub async fn gateway(&self) -> Gateway {
        self.gateway_with("").start().await
    }

    pub fn gateway_with(&self, settings: &str) -> GatewayBuilder {
        gateway().section(&self.section(settings))
    }

    /// Changes how the server behaves.
    pub fn behave(&self, change: impl FnOnce(&mut ClusterBehavior)) {
        change(&mut self.lock().behavior);
        self.changed.send_replace(());
    }

    /// Creates or replaces an object of the namespace `agents`.
    pub fn put(&self, resource: &str, object: Value) {
        self.put_in("agents", resource, object);
    }

    pub fn put_in(&self, namespace: &str, resource: &str, mut object: Value) {
        let mut state = self.lock();
        state.version += 1;
        let version = state.version;
        object["metadata"]["namespace"] = namespace.into();
        object["metadata"]["resourceVersion"] = version.to_string().into();
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        let before = state.objects.insert((resource.into(), namespace.into(), name), object.clone());
        let (resource, namespace) = (resource.into(), namespace.into());
        state.changes.push(Change { version, resource, namespace, before, after: Some(object) });
        drop(state);
        self.changed.send_replace(());
    }

    /// Deletes an object of the namespace `agents`.
    pub fn delete(&self, resource: &str, name: &str) {
        self.delete_in("agents", resource, name);
    }

    pub fn delete_in(&self, namespace: &str, resource: &str, name: &str) {
        let mut state = self.lock();
        state.version += 1;
        let version = state.version;
        let mut before = state.objects.remove(&(resource.into(), namespace.into(), name.into())).unwrap();
        before["metadata"]["resourceVersion"] = version.to_string().into();
        let (resource, namespace) = (resource.into(), namespace.into());
        state.changes.push(Change { version, resource, namespace, before: Some(before), after: None });
        drop(state);
        self.changed.send_replace(());
    }

    /// Forgets all changes, so that watches from earlier versions get 410.
    pub fn forget_changes(&self) {
        let mut state = self.lock();
        // Also the version that the last list or event had.
        state.version += 1;
        state.oldest_version = state.version;
        state.changes.clear();
    }

    /// Breaks all watches in the middle of an event.
    pub fn break_watches(&self) {
        self.lock().breaks += 1;
        self.changed.send_replace(());
    }

    /// Sends an event to all watches that is not JSON.
    pub fn garble_watches(&self) {
        self.lock().garbled += 1;
        self.changed.send_replace(());
    }

    /// The requests so far, as paths with queries.
    pub fn requests(&self) -> Vec<String> {
        self.lock().behavior.requests.clone()
    }

    /// Puts a Service with one port and these annotations, and one slice with an endpoint for each pod.
    pub fn put_agent(&self, name: &str, annotations: Value, pods: &[Pod<'_>]) {
        self.put("services", service(name, annotations));
        self.put_pods(name, pods);
    }

    /// Replaces the endpoints of a Service. Each pod has a port, and so a slice, of its own.
    pub fn put_pods(&self, name: &str, pods: &[Pod<'_>]) {
        for (at, pod) in pods.iter().enumerate() {
            self.put("endpointslices", pod.slice(name, &format!("{name}-{at}")));
        }
    }

    fn lock(&self) -> MutexGuard<'_, ClusterState> {
        self.state.lock().unwrap()
    }
}

impl Drop for FakeCluster {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A Service that is an agent.
pub fn service(name: &str, annotations: Value) -> Value {
    json!({
        "metadata": {"name": name, "labels": {"gatepost.dev/agent": "true"}, "annotations": annotations},
        "spec": {"type": "ClusterIP", "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}]},
    })
}

/// An endpoint of a Service.
#[derive(Clone, Copy)]
pub struct Pod<'a> {
    pub address: SocketAddr,
    pub is_ready: bool,
    pub zone: Option<&'a str>,
}

impl<'a> Pod<'a> {
    pub fn ready(agent: &Agent) -> Self {
        Self { address: agent.address, is_ready: true, zone: None }
    }

    pub fn not_ready(self) -> Self {
        Self { is_ready: false, ..self }
    }

    pub fn in_zone(self, zone: &'a str) -> Self {
        Self { zone: Some(zone), ..self }
    }

    pub fn slice(&self, service: &str, name: &str) -> Value {
        json!({
            "metadata": {"name": name, "labels": {"kubernetes.io/service-name": service}},
            "addressType": "IPv4",
            "endpoints": [{
                "addresses": [self.address.ip()],
                "conditions": {"ready": self.is_ready, "serving": self.is_ready, "terminating": false},
                "zone": self.zone,
            }],
            "ports": [{"name": "http", "port": self.address.port(), "protocol": "TCP"}],
        })
    }
}

#[derive(Clone)]
struct ClusterServer {
    state: Arc<Mutex<ClusterState>>,
    changed: watch::Sender<()>,
}

/// What a request asks for.
struct ObjectRequest {
    resource: String,
    namespace: Option<String>,
    query: HashMap<String, String>,
}

impl ClusterServer {
    async fn serve(&self, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) {
        let service = service_fn(|request| {
            let server = self.clone();
            async move { Ok::<_, std::convert::Infallible>(server.respond(&request).await) }
        });
        let mut server = auto::Builder::new(TokioExecutor::new());
        // The least that API servers permit.
        server.http2().max_concurrent_streams(100);
        let _ = server.serve_connection(TokioIo::new(stream), service).await;
    }

    async fn respond(&self, request: &Request<Incoming>) -> Response<Body> {
        let uri = request.uri();
        let token = request.headers().get("authorization").and_then(|value| value.to_str().ok()).unwrap_or_default();
        let (refusal, is_silent) = {
            let mut state = self.state.lock().unwrap();
            state.behavior.requests.push(uri.to_string());
            let behavior = &state.behavior;
            let expected = behavior.token.as_ref().map(|token| format!("Bearer {token}"));
            let is_unauthorized = expected.is_some_and(|expected| expected != token);
            (behavior.status.or(is_unauthorized.then_some(401)), behavior.is_silent)
        };
        if is_silent {
            std::future::pending::<()>().await;
        }
        if let Some(code) = refusal {
            return status_response(code, "Refused");
        }
        let Some(request) = ObjectRequest::parse(uri.path(), uri.query().unwrap_or_default()) else {
            return status_response(404, "the server could not find the requested resource");
        };
        let is_forbidden = {
            let behavior = &self.state.lock().unwrap().behavior;
            let namespace = request.namespace.as_deref().unwrap_or_default();
            behavior.forbidden.contains(&*request.resource) || behavior.forbidden_namespaces.contains(namespace)
        };
        if is_forbidden {
            return status_response(403, &format!("{} is forbidden: User cannot list", request.resource));
        }
        match request.query.get("watch").map(String::as_str) {
            Some("1" | "true") => self.watch(request),
            _ => self.list(&request),
        }
    }

    fn list(&self, request: &ObjectRequest) -> Response<Body> {
        let state = self.state.lock().unwrap();
        let objects = state.objects.iter().filter(|((resource, namespace, _), object)| {
            *resource == request.resource && request.covers(namespace) && request.selects(object)
        });
        let limit = request.query.get("limit").map_or(usize::MAX, |limit| limit.parse().unwrap());
        let skip: usize = request.query.get("continue").map_or(0, |token| token.parse().unwrap());
        let mut items: Vec<&Value> = objects.map(|(_, object)| object).skip(skip).collect();
        let more = items.len() > limit;
        items.truncate(limit);
        let mut metadata = json!({"resourceVersion": state.version.to_string()});
        if more {
            metadata["continue"] = (skip + limit).to_string().into();
        }
        let body = json!({"kind": "List", "apiVersion": "v1", "metadata": metadata, "items": items});
        json_body(200, &body)
    }

    fn watch(&self, request: ObjectRequest) -> Response<Body> {
        let mut version: u64 = request.query["resourceVersion"].parse().unwrap();
        let (sender, receiver) = mpsc::channel::<io::Result<Frame<Bytes>>>(16);
        let (state, mut changed) = (Arc::clone(&self.state), self.changed.subscribe());
        let marks = |state: &ClusterState| (state.breaks, state.garbled);
        let begun = marks(&state.lock().unwrap());
        tokio::spawn(async move {
            let line = |value: Value| Ok(Frame::data(Bytes::from(format!("{value}\n"))));
            loop {
                let (mut lines, is_expired, now) = {
                    let state = state.lock().unwrap();
                    let later = state.changes.iter().filter(|change| change.version > version);
                    let events: Vec<Value> = later.filter_map(|change| request.event(change)).collect();
                    let is_expired = version < state.oldest_version;
                    if !is_expired {
                        version = state.version;
                    }
                    (events, is_expired, marks(&state))
                };
                if is_expired {
                    let status = json!({"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"});
                    let _ = sender.send(line(json!({"type": "ERROR", "object": status}))).await;
                    return;
                }
                if lines.is_empty() {
                    let metadata = json!({"resourceVersion": version.to_string()});
                    lines.push(json!({"type": "BOOKMARK", "object": {"kind": "Service", "metadata": metadata}}));
                }
                if now.1 != begun.1 {
                    let _ = sender.send(Ok(Frame::data(Bytes::from_static(b"{\"type\": oops\n")))).await;
                    return;
                }
                for event in lines {
                    if sender.send(line(event)).await.is_err() {
                        return;
                    }
                }
                if now.0 != begun.0 {
                    let half = Frame::data(Bytes::from_static(b"{\"type\": \"ADDED\", \"object\": {\"meta"));
                    let _ = sender.send(Ok(half)).await;
                    let _ = sender.send(Err(io::ErrorKind::ConnectionReset.into())).await;
                    return;
                }
                tokio::select! {
                    waited = changed.changed() => if waited.is_err() { return },
                    () = sender.closed() => return,
                }
            }
        });
        let frames = stream::unfold(receiver, |mut receiver| async { Some((receiver.recv().await?, receiver)) });
        Response::new(BodyExt::boxed(StreamBody::new(frames)))
    }
}

impl ObjectRequest {
    fn parse(path: &str, query: &str) -> Option<Self> {
        let rest = path.strip_prefix("/api/v1/").or_else(|| path.strip_prefix("/apis/discovery.k8s.io/v1/"))?;
        let is_discovery = path.starts_with("/apis/");
        let (namespace, resource) = match rest.strip_prefix("namespaces/") {
            Some(rest) => rest.split_once('/').map(|(namespace, resource)| (Some(namespace.to_owned()), resource))?,
            None => (None, rest),
        };
        if is_discovery != (resource == "endpointslices")
            || !["services", "endpointslices", "configmaps"].contains(&resource)
        {
            return None;
        }
        let url = reqwest::Url::parse(&format!("http://cluster/?{query}")).unwrap();
        Some(Self { resource: resource.to_owned(), namespace, query: url.query_pairs().into_owned().collect() })
    }

    fn covers(&self, namespace: &str) -> bool {
        self.namespace.as_ref().is_none_or(|own| own == namespace)
    }

    /// Whether the label selector, `label` or `label=value`, selects the object.
    fn selects(&self, object: &Value) -> bool {
        let selector = self.query.get("labelSelector").map(String::as_str).unwrap_or_default();
        let labels = &object["metadata"]["labels"];
        match selector.split_once('=') {
            Some((label, value)) => labels[label] == value,
            None => selector.is_empty() || labels.get(selector).is_some(),
        }
    }

    /// The event of a change: an object that matches no longer is deleted for this watch.
    fn event(&self, change: &Change) -> Option<Value> {
        if change.resource != self.resource || !self.covers(&change.namespace) {
            return None;
        }
        let matching = |object: &Option<Value>| object.clone().filter(|object| self.selects(object));
        match (matching(&change.before), matching(&change.after)) {
            (None, None) => None,
            (None, Some(object)) => Some(json!({"type": "ADDED", "object": object})),
            (Some(_), Some(object)) => Some(json!({"type": "MODIFIED", "object": object})),
            (Some(object), None) => Some(json!({"type": "DELETED", "object": object})),
        }
    }
}

/// A refusal in the form of the API.
fn status_response(code: u16, message: &str) -> Response<Body> {
    json_body(
        code,
        &json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "code": code}),
    )
}

fn json_body(code: u16, body: &Value) -> Response<Body> {
    let body = Full::new(Bytes::from(body.to_string())).map_err(|never| match never {}).boxed();
    Response::builder().status(code).header("content-type", "application/json").body(body).unwrap()
}
