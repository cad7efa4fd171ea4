//! The health listener over a real socket: probes, metrics, and the limits on its connections.

use super::*;
use crate::admin::{HealthService, serve_health};

async fn start_health(metrics: Option<Arc<Metrics>>, calls: Handle) -> TestAdmin {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, shutdown) = watch::channel(false);
    let state = Arc::new(FakeState::default());
    let allowed_hosts = vec!["gate.example".to_owned()];
    let service = HealthService { state: Arc::clone(&state) as _, metrics, allowed_hosts, calls };
    let server = tokio::spawn(serve_health(listener, service, shutdown));
    TestAdmin { address, state, stop, server }
}

async fn get(health: &TestAdmin, path: &str) -> (u16, Value) {
    let (status, _, body) = health.request("GET", path, "localhost:9902").await;
    (status, serde_json::from_str(&body).unwrap_or(Value::String(body)))
}

#[tokio::test]
async fn the_probes_tell_start_readiness_and_drain_apart() {
    let health = start_health(None, Handle::current()).await;
    let (status, report) = get(&health, "/startupz").await;
    assert_eq!((status, &report["ready"]), (503, &json!(false)), "no agents were published yet");
    assert_eq!(get(&health, "/readyz").await, (status, report));
    *health.state.health.lock() =
        GatewayHealth { agents: Some(0), awaited_sources: vec!["team-a".to_owned()], ..GatewayHealth::default() };
    for path in ["/readyz", "/startupz"] {
        let (status, report) = get(&health, path).await;
        assert_eq!((status, &report["reasons"]), (503, &json!(["sources_not_read"])), "{path}");
    }
    *health.state.health.lock() = GatewayHealth { agents: Some(0), ..GatewayHealth::default() };
    assert_eq!(get(&health, "/readyz").await, (200, json!({"ready": true, "reasons": []})));
    let secrets = GatewayHealth {
        agents: Some(0),
        rejected_documents: 2,
        config_error: Some("limits: 'hunter2' is not a rate".to_owned()),
        problems: vec!["https://r.internal/agents cannot be read".to_owned()],
        ..GatewayHealth::default()
    };
    *health.state.health.lock() = secrets;
    let codes = json!(["config_rejected", "documents_rejected", "sources_unreadable"]);
    assert_eq!(get(&health, "/readyz").await, (200, json!({"ready": true, "reasons": [], "warnings": codes})));
    *health.state.health.lock() = GatewayHealth { agents: Some(0), draining: true, ..GatewayHealth::default() };
    assert_eq!(get(&health, "/readyz").await.0, 503);
    assert_eq!(get(&health, "/startupz").await.0, 200, "it has started");
    for path in ["/livez", "/healthz"] {
        assert_eq!(get(&health, path).await, (200, json!("ok\n")));
    }
}

#[tokio::test]
async fn the_listener_has_nothing_of_the_admin_listener() {
    let health = start_health(None, Handle::current()).await;
    for path in ["/agents", "/sources", "/metrics", "/pairing", "/local/a", "/"] {
        assert_eq!(get(&health, path).await.0, 404, "{path}");
    }
    let (status, head, _) = health.request("POST", "/readyz", "localhost").await;
    assert!(status == 405 && head.contains("allow: get"), "{head}");
}

#[tokio::test]
async fn metrics_are_served_if_configured_and_rendered_once_a_second() {
    let metrics = Metrics::new().unwrap();
    let health = start_health(Some(Arc::clone(&metrics)), Handle::current()).await;
    let loaded = |body: &Value| {
        let line = "gatepost_config_last_reload_success_timestamp_seconds ";
        body.as_str().unwrap().lines().find_map(|text| text.strip_prefix(line)).unwrap().parse::<f64>().unwrap()
    };
    let (status, first) = get(&health, "/metrics").await;
    assert_eq!((status, loaded(&first)), (200, 0.0));
    metrics.record_config_loaded(7);
    assert_eq!(loaded(&get(&health, "/metrics").await.1), 0.0, "the same page");
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    assert_eq!(loaded(&get(&health, "/metrics").await.1), 7.0);
}

#[tokio::test]
async fn a_runtime_of_calls_that_runs_no_task_is_not_alive() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    // Nothing drives this runtime.
    let health = start_health(None, runtime.handle().clone()).await;
    let (status, why) = get(&health, "/livez").await;
    assert!(status == 503 && why.as_str().unwrap().contains("no task ran within 10s"), "{why}");
    runtime.shutdown_background();
}

#[tokio::test]
async fn no_number_of_connections_keeps_a_probe_out() {
    let health = start_health(None, Handle::current()).await;
    let mut held = Vec::new();
    for _ in 0..300 {
        let mut stream = TcpStream::connect(health.address).await.unwrap();
        stream.write_all(b"GET /livez HTTP/1.1\r\n").await.unwrap();
        held.push(stream);
    }
    assert_eq!(get(&health, "/livez").await.0, 200, "the oldest connection ends");
    let end = tokio::time::timeout(Duration::from_secs(1), held[0].read(&mut [0; 1])).await.unwrap();
    assert!(matches!(end, Ok(0) | Err(_)), "{end:?}");
}

#[tokio::test]
async fn a_connection_that_sends_no_request_is_closed_after_two_seconds() {
    let health = start_health(None, Handle::current()).await;
    for start in ["", "GET /livez HTTP/1.1\r\n"] {
        let mut silent = TcpStream::connect(health.address).await.unwrap();
        silent.write_all(start.as_bytes()).await.unwrap();
        let started = std::time::Instant::now();
        tokio::time::timeout(Duration::from_secs(8), silent.read_to_end(&mut Vec::new())).await.unwrap().ok();
        assert!(started.elapsed() > Duration::from_millis(1_500), "{start:?}: {:?}", started.elapsed());
    }
    // Requests keep a connection open, and none beyond its life.
    let (started, mut busy) = (std::time::Instant::now(), TcpStream::connect(health.address).await.unwrap());
    let mut answers = 0;
    while busy.write_all(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n").await.is_ok()
        && matches!(busy.read(&mut [0; 512]).await, Ok(1..))
        && started.elapsed() < Duration::from_secs(25)
    {
        answers += 1;
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let lived = started.elapsed();
    assert!(answers > 20 && lived > Duration::from_secs(10) && lived < Duration::from_secs(25), "{answers} {lived:?}");
}

#[tokio::test]
async fn the_listener_speaks_http_1_only() {
    let health = start_health(Some(Metrics::new().unwrap()), Handle::current()).await;
    let mut stream = TcpStream::connect(health.address).await.unwrap();
    // The preface of HTTP/2 with an empty frame of settings.
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.unwrap();
    let mut answer = Vec::new();
    let _ = tokio::time::timeout(Duration::from_secs(8), stream.read_to_end(&mut answer)).await.unwrap();
    assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 4"), "{answer:?}");
}

#[tokio::test]
async fn a_page_whose_name_leads_to_loopback_reads_nothing() {
    let health = start_health(Some(Metrics::new().unwrap()), Handle::current()).await;
    for path in ["/metrics", "/readyz"] {
        assert_eq!(health.request("GET", path, "evil.example:9902").await.0, 403, "{path}");
        assert_eq!(
            health.request("GET", path, "gate.example:9902").await.0,
            health.request("GET", path, "[::1]").await.0
        );
    }
}
