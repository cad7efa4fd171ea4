//! The admin pages over a real socket: content, status, and which requests are refused.

mod health;
mod operators;

use super::{
    AdminAccessConfig, AdminService, AdminState, AgentRow, GatewayHealth, OperatorAccess, OperatorAccessSettings,
    OperatorRole, RejectedDocument, SourceRow, select_page, serve,
};
use crate::{
    agent::{Agent, AgentId},
    audit::{AuditConfig, AuditLog},
    net::{FetchClient, NetworkConfig},
    registry::SourceHealth,
    telemetry::{AccessLogConfig, Metrics, Outage, StoreKind, UnavailableService},
};
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::{
    net::SocketAddr,
    sync::{Arc, mpsc},
    time::{Duration, SystemTime},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    runtime::Handle,
    sync::watch,
};

#[derive(Default)]
struct FakeState {
    health: Mutex<GatewayHealth>,
    agents: Vec<Agent>,
    rejected: Vec<RejectedDocument>,
    sources: Mutex<Vec<SourceHealth>>,
    confirmed: Mutex<Vec<String>>,
    refreshed: Mutex<Vec<String>>,
    audit_log: Option<Arc<AuditLog>>,
    /// Where a confirmation waits for its end, if it does.
    confirmation_end: Mutex<Option<mpsc::Receiver<()>>>,
}

impl AdminState for FakeState {
    fn audit_log(&self) -> Option<Arc<AuditLog>> {
        self.audit_log.clone()
    }

    fn health(&self) -> GatewayHealth {
        self.health.lock().clone()
    }

    fn list_agents(&self, after: Option<&str>, limit: usize) -> Vec<AgentRow> {
        select_page(self.agents.iter().map(|agent| (&agent.id, agent)), after, limit)
            .into_iter()
            .map(|agent| AgentRow::new(agent, 1))
            .collect()
    }

    fn list_rejected_documents(&self, limit: usize) -> Vec<RejectedDocument> {
        self.rejected.iter().take(limit).cloned().collect()
    }

    fn list_sources(&self) -> Vec<SourceRow> {
        self.sources.lock().iter().map(SourceRow::new).collect()
    }

    fn refresh_source(&self, name: &str) -> bool {
        let is_known = self.sources.lock().iter().any(|source| &*source.name == name);
        if is_known {
            self.refreshed.lock().push(name.to_owned());
        }
        is_known
    }

    fn confirm_agent_loss(&self, name: &str) -> Option<bool> {
        let sources = self.sources.lock();
        let source = sources.iter().find(|source| &*source.name == name)?;
        self.confirmed.lock().push(name.to_owned());
        if let Some(end) = self.confirmation_end.lock().take() {
            end.recv().unwrap();
        }
        Some(source.withheld_loss.is_some())
    }
}

struct TestAdmin {
    address: SocketAddr,
    state: Arc<FakeState>,
    stop: watch::Sender<bool>,
    server: tokio::task::JoinHandle<()>,
}

fn agent(id: &str) -> Agent {
    let document = json!({"id": id, "name": id, "endpoint": "https://agent.example/invoke?key=hunter2", "operations": [{"name": "say"}]});
    Agent::from_document(&document, [0; 32]).unwrap()
}

async fn start_admin(bind: &str, fake: FakeState) -> TestAdmin {
    let listener = TcpListener::bind(bind).await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, shutdown) = watch::channel(false);
    let state = Arc::new(fake);
    let allowed_hosts = vec!["metrics.example".to_owned()];
    let service = AdminService {
        state: Arc::clone(&state) as _,
        metrics: Metrics::new().unwrap(),
        allowed_hosts,
        calls: Handle::current(),
        access: Arc::new(build_access(&state, None, address)),
        console: None,
    };
    let server = tokio::spawn(serve(listener, service, shutdown));
    TestAdmin { address, state, stop, server }
}

fn build_access(state: &Arc<FakeState>, config: Option<AdminAccessConfig>, address: SocketAddr) -> OperatorAccess {
    let client = FetchClient::build(&NetworkConfig::default(), Arc::default()).unwrap();
    let settings = OperatorAccessSettings { config, role_on_loopback: OperatorRole::Viewer, client };
    OperatorAccess::build(settings, Arc::clone(state) as _, Handle::current(), address.ip().is_loopback()).unwrap()
}

async fn start_on_loopback(agents: &[&str]) -> TestAdmin {
    let health = GatewayHealth { agents: Some(agents.len()), ..GatewayHealth::default() };
    start_admin(
        "127.0.0.1:0",
        FakeState {
            health: Mutex::new(health),
            agents: agents.iter().map(|id| agent(id)).collect(),
            ..FakeState::default()
        },
    )
    .await
}

impl TestAdmin {
    /// Sends these bytes; returns status, head and body of the response.
    async fn send(&self, request: &str) -> (u16, String, String) {
        let mut stream = TcpStream::connect(("127.0.0.1", self.address.port())).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut response = String::new();
        tokio::time::timeout(Duration::from_secs(20), stream.read_to_string(&mut response)).await.unwrap().unwrap();
        let (head, body) = response.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, head.to_ascii_lowercase(), body.to_owned())
    }

    async fn request(&self, method: &str, path: &str, host: &str) -> (u16, String, String) {
        self.send(&format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n")).await
    }

    async fn get(&self, path: &str) -> (u16, Value) {
        let (status, _, body) = self.request("GET", path, "localhost").await;
        (status, serde_json::from_str(&body).unwrap_or(Value::String(body)))
    }
}

#[tokio::test]
async fn every_page_responds() {
    let admin = start_on_loopback(&["a"]).await;
    let (status, head, body) = admin.request("GET", "/metrics", "127.0.0.1:9").await;
    assert_eq!(status, 200);
    assert!(head.contains("text/plain; version=0.0.4") && head.contains("no-store"), "{head}");
    assert!(body.contains("# TYPE gatepost_config_last_reload_successful gauge"));
    assert_eq!(admin.get("/healthz").await, (200, json!("ok\n")));
    assert_eq!(
        admin.get("/readyz").await,
        (200, json!({"ready": true, "reasons": [], "config": "ok", "agents": 1, "rejected": 0}))
    );
}

#[tokio::test]
async fn readiness_fails_while_draining_and_before_the_first_snapshot_but_not_for_a_rejected_configuration() {
    let admin = start_on_loopback(&["a"]).await;
    admin.state.health.lock().config_error = Some("limits: 'x' is not a rate".to_owned());
    admin.state.health.lock().problems = vec!["agents.json cannot be read".to_owned()];
    let (status, body) = admin.get("/readyz").await;
    assert_eq!((status, &body["config"]), (200, &json!("rejected: limits: 'x' is not a rate")));
    assert_eq!(body["problems"][0], "agents.json cannot be read");

    admin.state.health.lock().draining = true;
    let (status, body) = admin.get("/readyz").await;
    assert_eq!((status, &body["ready"], &body["reasons"]), (503, &json!(false), &json!(["draining"])));
    assert_eq!(admin.get("/healthz").await.0, 200, "the gateway is alive");

    *admin.state.health.lock() = GatewayHealth::default();
    assert_eq!(admin.get("/readyz").await.0, 503);
}

#[tokio::test]
async fn readiness_of_a_listener_that_is_not_on_loopback_and_has_no_operators_is_codes_only() {
    let admin = start_admin("0.0.0.0:0", FakeState::default()).await;
    admin.state.health.lock().config_error = Some("limits: 'hunter2' is not a rate".to_owned());
    let codes = json!({"ready": false, "reasons": ["agents_not_loaded"], "warnings": ["config_rejected"]});
    assert_eq!(admin.get("/readyz").await, (503, codes));
}

#[tokio::test]
async fn a_ready_gateway_warns_of_services_that_it_cannot_use_and_names_none() {
    let admin = start_on_loopback(&["a"]).await;
    let outage = |service| Outage { service, since: 1 };
    admin.state.health.lock().outages = vec![
        outage(UnavailableService::Store(StoreKind::Limits)),
        outage(UnavailableService::Store(StoreKind::SharedState)),
        outage(UnavailableService::Issuer("https://secret.example".into())),
    ];
    let (status, body) = admin.get("/readyz").await;
    assert_eq!((status, &body["ready"]), (200, &json!(true)));
    assert_eq!(body["warnings"], json!(["issuer_unavailable", "shared_state_unavailable"]));
    assert!(!body.to_string().contains("secret.example"), "{body}");
}

#[tokio::test]
async fn agents_are_listed_in_pages_without_secrets() {
    let ids: Vec<String> = (0..250).map(|n| format!("agent-{n:03}")).collect();
    let ids: Vec<&str> = ids.iter().rev().map(String::as_str).collect();
    let mut state = FakeState { agents: ids.iter().map(|id| agent(id)).collect(), ..FakeState::default() };
    state.rejected = vec![RejectedDocument {
        source: "agents.json".into(),
        index: 3,
        id: None,
        reasons: vec!["id: must be".into()],
    }];
    state.health = Mutex::new(GatewayHealth { agents: Some(250), rejected_documents: 1, ..GatewayHealth::default() });
    let admin = start_admin("127.0.0.1:0", state).await;
    let (mut seen, mut after) = (Vec::new(), String::new());
    loop {
        let (status, body) = admin.get(&format!("/agents?limit=100{after}")).await;
        assert_eq!((status, &body["total"], &body["rejected_total"]), (200, &json!(250), &json!(1)));
        assert_eq!(body["rejected"].is_array(), after.is_empty());
        assert!(!body.to_string().contains("hunter2"), "{body}");
        seen.extend(body["agents"].as_array().unwrap().iter().map(|agent| agent["id"].as_str().unwrap().to_owned()));
        match body["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => break,
        }
    }
    assert_eq!(seen.len(), 250);
    assert!(seen.is_sorted());
    let first = admin.get("/agents?limit=1").await.1;
    assert_eq!(
        first["agents"][0],
        json!({"id": "agent-000", "name": "agent-000", "status": "active", "authentication": "none",
        "endpoint": "https://agent.example/invoke?[redacted]", "operations": ["say"], "in_flight": 1,
        "circuit_breaker": "closed"})
    );
}

#[tokio::test]
async fn invalid_requests_get_json_errors() {
    let admin = start_on_loopback(&["a"]).await;
    for (path, expected) in [
        ("/agents?limit=0", 400),
        ("/agents?limit=1001", 400),
        ("/agents?limit=-1", 400),
        ("/agents?limit=x", 400),
        ("/agents?page=1", 400),
        ("/", 404),
        ("/metrics/", 404),
        ("/agents/a", 404),
    ] {
        let (status, body) = admin.get(path).await;
        assert_eq!(status, expected, "{path} {body}");
        assert!(body["error"]["code"].is_string(), "{path} {body}");
    }
    let (status, head, _) = admin.request("POST", "/metrics", "localhost").await;
    assert!(status == 405 && head.contains("allow: get"), "{head}");
    assert_eq!(admin.request("DELETE", "/agents", "localhost").await.0, 405);
    for (path, allow) in [("/pairing", "allow: post"), ("/local/runtime", "allow: put, delete")] {
        let (status, head, _) = admin.request("GET", path, "localhost").await;
        assert!(status == 405 && head.contains(allow), "{path}: {head}");
    }
}

#[tokio::test]
async fn dns_rebinding_is_refused_on_loopback() {
    let admin = start_on_loopback(&["a"]).await;
    for host in [
        "evil.example",
        "evil.example:9090",
        "127.0.0.1.evil.example",
        "localhost.evil.example:1",
        "10.0.0.1",
        "[::2]:1",
        "",
        "[::1",
    ] {
        let (status, _, body) = admin.request("GET", "/agents", host).await;
        assert_eq!(status, 403, "{host:?} {body}");
    }
    assert_eq!(
        admin.send("GET http://evil.example/agents HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await.0,
        403
    );
    assert_eq!(
        admin
            .send("GET /agents HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\nConnection: close\r\n\r\n")
            .await
            .0,
        403
    );
    for host in ["localhost", "LOCALHOST:1", "127.0.0.1:9090", "127.8.8.8", "[::1]:80", "[::1]", "Metrics.example:9901"]
    {
        assert_eq!(admin.request("GET", "/agents", host).await.0, 200, "{host}");
    }
    assert_eq!(admin.send("GET /healthz HTTP/1.0\r\n\r\n").await.0, 200);
}

#[tokio::test]
async fn dns_rebinding_is_refused_on_other_addresses_too() {
    let admin = start_admin("0.0.0.0:0", FakeState::default()).await;
    for host in ["metrics.example", "metrics.example:9901", "10.0.0.1:9901", "[2001:db8::7]:9901", "localhost"] {
        assert_eq!(admin.request("GET", "/healthz", host).await.0, 200, "{host}");
    }
    for host in ["evil.example", "metrics.example.evil.example", "10.0.0.1.evil.example:9901", ""] {
        assert_eq!(admin.request("GET", "/healthz", host).await.0, 403, "{host}");
    }
}

#[tokio::test]
async fn at_the_limit_a_new_connection_ends_the_oldest_one() {
    let admin = start_on_loopback(&["a"]).await;
    let request = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let mut connections = Vec::new();
    for _ in 0..65 {
        let mut stream = TcpStream::connect(admin.address).await.unwrap();
        stream.write_all(request).await.unwrap();
        assert!(stream.read(&mut [0; 512]).await.unwrap() > 0);
        connections.push(stream);
    }
    let end = tokio::time::timeout(Duration::from_secs(20), connections[0].read(&mut [0; 1])).await.unwrap();
    assert!(matches!(end, Ok(0) | Err(_)), "{end:?}");
    connections[1].write_all(request).await.unwrap();
    assert!(connections[1].read(&mut [0; 512]).await.unwrap() > 0, "the others stay");
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_is_closed() {
    let admin = start_on_loopback(&["a"]).await;
    let mut silent = TcpStream::connect(admin.address).await.unwrap();
    silent.write_all(b"GET /healthz HT").await.unwrap();
    let read = tokio::time::timeout(Duration::from_secs(3_600), silent.read(&mut [0; 512])).await;
    assert!(read.is_ok(), "the connection is still open after an hour");
}

#[tokio::test]
async fn shutdown_ends_the_listener_even_with_an_idle_connection() {
    let admin = start_on_loopback(&["a"]).await;
    let mut idle = TcpStream::connect(admin.address).await.unwrap();
    idle.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    assert!(idle.read(&mut [0; 512]).await.unwrap() > 0);
    admin.stop.send_replace(true);
    tokio::time::timeout(Duration::from_secs(20), admin.server).await.unwrap().unwrap();
}

#[tokio::test]
async fn r8_a_change_whose_client_leaves_before_its_end_is_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("audit.log");
    let config: AuditConfig = serde_json::from_value(json!({"file": &file})).unwrap();
    let audit_log = AuditLog::open(&config, &AccessLogConfig::default(), None).unwrap();
    let (end, confirmation_end) = mpsc::channel();
    let state = FakeState {
        sources: Mutex::new(vec![source_health("files", None)]),
        audit_log: Some(Arc::new(audit_log)),
        confirmation_end: Mutex::new(Some(confirmation_end)),
        ..FakeState::default()
    };
    let admin = start_admin("127.0.0.1:0", state).await;
    let mut stream = TcpStream::connect(admin.address).await.unwrap();
    stream.write_all(b"POST /sources/files/confirm HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    let until = async |what: &str, is_so: &dyn Fn() -> bool| {
        for _ in 0..2_000 {
            if is_so() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("{what}");
    };
    until("the change does not begin", &|| !admin.state.confirmed.lock().is_empty()).await;
    stream.shutdown().await.unwrap();
    assert_eq!(stream.read(&mut [0; 512]).await.unwrap(), 0, "the gateway closes the connection without a response");
    end.send(()).unwrap();
    until("the change is not recorded", &|| std::fs::read_to_string(&file).unwrap().contains("source_loss_confirmed"))
        .await;
}

#[test]
fn a_page_contains_the_lowest_ids_in_order() {
    let ids: Vec<AgentId> = ["m", "c", "x", "a", "b", "z"].iter().map(|id| id.parse().unwrap()).collect();
    let page = |after, limit| select_page(ids.iter().map(|id| (id, id.as_str())), after, limit);
    assert_eq!(page(None, 3), ["a", "b", "c"]);
    assert_eq!(page(Some("c"), 2), ["m", "x"]);
    assert_eq!(page(Some("c"), 10), ["m", "x", "z"]);
    assert!(page(Some("z"), 10).is_empty());
    assert!(page(None, 0).is_empty());
}

fn source_health(name: &str, success_age: Option<u64>) -> SourceHealth {
    SourceHealth {
        name: name.into(),
        kind: "aidip",
        is_required: true,
        is_read: success_age.is_some(),
        agents: 12,
        revision: 1,
        last_success: success_age.map(|ago| SystemTime::now() - Duration::from_secs(ago)),
        stale: false,
        from_disk: false,
        unreadable_parts: Vec::new(),
        warnings: Vec::new(),
        error: None,
        withheld_loss: None,
        document_warnings: Arc::default(),
        unsupported_documents: Arc::default(),
    }
}

#[tokio::test]
async fn sources_are_listed_with_their_age_and_warnings() {
    let admin = start_on_loopback(&["a"]).await;
    let failing =
        SourceHealth { error: Some("https://r.example: answers 500".to_owned()), ..source_health("failing", Some(90)) };
    *admin.state.sources.lock() = vec![
        source_health("well", Some(3)),
        SourceHealth { from_disk: true, ..failing.clone() },
        SourceHealth { stale: true, ..failing.clone() },
        SourceHealth { withheld_loss: Some(10), ..source_health("shrinking", Some(1)) },
        source_health("silent", None),
        failing,
    ];
    let (status, body) = admin.get("/sources").await;
    assert_eq!(status, 200);
    assert_eq!(
        body["sources"][0],
        json!({
            "name": "well", "kind": "aidip", "agents": 12, "required": true, "read": true, "age_seconds": 3,
        })
    );
    for (at, expected) in [(1, "from disk"), (2, "not served"), (3, "10 of 12"), (4, "no agents known"), (5, "500")] {
        let warning = body["sources"][at]["warning"].as_str().unwrap();
        assert!(warning.contains(expected), "{at}: {warning}");
    }
    let (status, body) = admin.get("/readyz").await;
    assert_eq!((status, body["sources"].as_array().unwrap().len()), (200, 5), "only sources with a warning: {body}");
    admin.state.health.lock().awaited_sources = vec!["silent".to_owned()];
    let (status, body) = admin.get("/readyz").await;
    assert_eq!((status, &body["reasons"]), (503, &json!(["source silent was not read yet"])));
}

#[tokio::test]
async fn an_operator_confirms_a_loss_and_web_pages_are_refused() {
    let admin = start_on_loopback(&["a"]).await;
    *admin.state.sources.lock() = vec![
        SourceHealth { withheld_loss: Some(10), ..source_health("aidip:r.example", Some(1)) },
        source_health("well", Some(1)),
    ];
    let post = async |name: &str, headers: &str| {
        let head =
            format!("POST /sources/{name}/confirm HTTP/1.1\r\nHost: localhost\r\n{headers}Connection: close\r\n\r\n");
        admin.send(&head).await.0
    };
    for headers in ["Origin: http://evil.example\r\n", "Origin: null\r\n", "Sec-Fetch-Site: cross-site\r\n"] {
        assert_eq!(post("well", headers).await, 403, "{headers}");
    }
    assert_eq!(post("unknown", "").await, 404);
    let (status, head, _) = admin.request("GET", "/sources/well/confirm", "localhost").await;
    assert!(status == 405 && head.contains("allow: post"), "{head}");
    assert!(admin.state.confirmed.lock().is_empty());
    assert_eq!(post("aidip:r.example", "").await, 200);
    assert_eq!(*admin.state.confirmed.lock(), ["aidip:r.example"]);
}

#[tokio::test]
async fn an_operator_refreshes_a_source_and_web_pages_are_refused() {
    let admin = start_on_loopback(&["a"]).await;
    *admin.state.sources.lock() = vec![source_health("aidip:r.example", Some(1)), source_health("well", Some(1))];
    let post = async |name: &str, host: &str, headers: &str| {
        let head =
            format!("POST /sources/{name}/refresh HTTP/1.1\r\nHost: {host}\r\n{headers}Connection: close\r\n\r\n");
        admin.send(&head).await
    };
    for headers in ["Origin: http://evil.example\r\n", "Origin: null\r\n", "Sec-Fetch-Site: cross-site\r\n"] {
        assert_eq!(post("well", "localhost", headers).await.0, 403, "{headers}");
    }
    assert_eq!(post("well", "evil.example", "").await.0, 403);
    let (status, _, body) = post("unknown", "localhost", "").await;
    assert!(status == 404 && body.contains("GET /sources lists them"), "{status}: {body}");
    let (status, head, _) = admin.request("GET", "/sources/well/refresh", "localhost").await;
    assert!(status == 405 && head.contains("allow: post"), "{head}");
    assert!(admin.state.refreshed.lock().is_empty());
    let (status, _, body) = post("aidip:r.example", "localhost", "").await;
    assert_eq!((status, body.as_str()), (202, "{\"polling\":true}"));
    assert_eq!(*admin.state.refreshed.lock(), ["aidip:r.example"]);
}
