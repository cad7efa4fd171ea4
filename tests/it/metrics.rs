//! The metrics of a running gateway: each is moved by what it is about, failures included, and the documentation has the
//! metrics that the gateway has.

use crate::{
    support::{
        agent::{Agent, Step, http_response, json_response, latch},
        certs::CertificateAuthority,
        closed_port::ClosedPort,
        eventually,
        gateway::{Gateway, gateway, send, sum_of_series},
        gateway_response::send_raw,
        issuer::TokenIssuer,
    },
    tasks::{CALLBACK_SETTINGS, WEBHOOK_SECRET, call_with_prefer, gateway_with_tasks, task_path, wait_for_status},
};
use rustix::process::Signal;
use serde_json::json;
use std::{
    collections::BTreeSet,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

fn unix_now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64()
}

/// Waits until a metric has a value.
async fn expect_metric(gate: &Gateway, name: &str, value: f64) {
    let mut last = None;
    let description = format!("{name} is {value}");
    eventually(&description, async || {
        last = gate.metric(name).await;
        last == Some(value)
    })
    .await;
}

#[tokio::test]
async fn calls_are_measured_by_blame_and_status_class_and_responses_by_protocol() {
    let echo = Agent::echo().await;
    let broken = Agent::scripted(|_| http_response("500 Internal Server Error", "text/plain", "boom")).await;
    let slow = Agent::scripted(|_| [vec![Step::Sleep(Duration::from_millis(300))], json_response(&json!({}))].concat());
    let slow = slow.await;
    let silent = Agent::with_steps(vec![Step::Hang]).await;
    let build = gateway().agent("echo", &echo).agent("broken", &broken).agent("slow", &slow);
    let gate = build.agent("silent", &silent).start().await;
    let response = gate.invoke("echo", &json!({"a": 1})).await;
    response.expect_ok();
    gate.invoke("slow", &json!({})).await.expect_ok();
    assert_eq!(gate.invoke("broken", &json!({})).await.status, 500);
    send(gate.request("POST", "/agents/echo/invoke").json(&json!({}))).await.expect_fault(401, "Unauthorized");
    send_raw(gate.address(), b"GET / HTTP/1.1\r\n\r\n").await;
    let left = gate.post("/agents/silent/invoke").json(&json!({})).timeout(Duration::from_secs(1)).send().await;
    assert!(left.unwrap_err().is_timeout());
    let durations = |agent: &str, blame: &str, class: &str| {
        let labels = format!("{{agent=\"{agent}\",blame=\"{blame}\",status_class=\"{class}\"}}");
        format!("gatepost_call_duration_seconds_count{labels}")
    };
    expect_metric(&gate, &durations("echo", "none", "2xx"), 1.0).await;
    expect_metric(&gate, &durations("broken", "agent", "5xx"), 1.0).await;
    expect_metric(&gate, &durations("-", "caller", "4xx"), 2.0).await;
    expect_metric(&gate, &durations("silent", "aborted", "other"), 1.0).await;
    expect_metric(&gate, "gatepost_calls_total{agent=\"broken\",blame=\"agent\"}", 1.0).await;
    let page = gate.admin_page("/metrics").await.text();
    let value = |name: &str| sum_of_series(&page, name).unwrap_or_default();
    assert_eq!(value("gatepost_request_body_bytes_total{agent=\"echo\"}"), 7.0);
    assert_eq!(value("gatepost_response_body_bytes_total{agent=\"echo\"}"), response.body.len() as f64);
    let responses = |status: &str| {
        let labels = format!("{{listener=\"127.0.0.1:0\",protocol=\"HTTP/1.1\",status=\"{status}\"}}");
        value(&format!("gatepost_responses_total{labels}"))
    };
    let statuses = ["200", "500", "401", "400", "0"].map(responses);
    assert_eq!(statuses, [2.0, 1.0, 1.0, 1.0, 1.0], "{page}");
    // The agent's pause is the agent's part, and not the gateway's.
    let upstream = value("gatepost_upstream_duration_seconds_sum{agent=\"slow\"}");
    assert!(upstream >= 0.3, "{upstream}");
    assert!(value("gatepost_upstream_duration_seconds_count{agent=\"slow\"}") >= 1.0);
    assert_eq!(value("gatepost_gateway_duration_seconds_count{agent=\"echo\"}"), 1.0);
    let of_gateway = value("gatepost_gateway_duration_seconds_sum{agent=\"echo\"}");
    let of_call = value("gatepost_call_duration_seconds_sum{agent=\"echo\"}");
    assert!(of_gateway > 0.0 && of_gateway < of_call, "{of_gateway} of {of_call}");
    assert_eq!(value("gatepost_gateway_duration_seconds_count{agent=\"-\"}"), 0.0);
}

#[tokio::test]
async fn the_gateways_own_time_of_a_pipelines_step_has_the_check_of_its_reply() {
    let numbers: Vec<usize> = (0..120_000).collect();
    let agent = Agent::scripted(move |_| json_response(&json!({"numbers": numbers}))).await;
    let mut document = agent.document("large");
    let numbers = json!({"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 120_000}});
    let outputs = json!({"type": "object", "properties": {"numbers": numbers}});
    document["operations"] = json!([{"name": "work", "inputs": {}, "outputs": outputs}]);
    let gate = gateway().document(document).start().await;
    let steps = json!({"steps": [{"agent": "large"}], "input": {}});
    send(gate.post("/pipelines/invoke").json(&steps)).await.expect_ok();
    let of_gateway = "gatepost_gateway_duration_seconds_sum{agent=\"large\"}";
    eventually("the step is counted", async || gate.metric(of_gateway).await.is_some_and(|sum| sum > 0.0)).await;
    // Without the check of 700 KB it is a few milliseconds.
    let of_gateway = gate.metric(of_gateway).await.unwrap();
    assert!(of_gateway > 0.015, "{of_gateway} s");
}

#[tokio::test]
async fn tries_connections_and_endpoints_are_counted_for_dead_and_failing_agents() {
    let echo = Agent::echo().await;
    let broken = Agent::scripted(|_| http_response("500 Internal Server Error", "text/plain", "boom")).await;
    let resets = Agent::with_steps(vec![Step::Reset]).await;
    let invalid = Agent::with_steps(vec![crate::support::agent::write("nonsense\r\n\r\n"), Step::Close]).await;
    let silent = Agent::with_steps(vec![Step::Hang]).await;
    let closed = ClosedPort::new();
    let document = |id: &str, endpoint: String| json!({"id": id, "name": id, "endpoint": endpoint});
    let gate = gateway()
        .agent("echo", &echo)
        .agent("broken", &broken)
        .agent("resets", &resets)
        .agent("invalid", &invalid)
        .agent("silent", &silent)
        .agent("unused", &echo)
        .document(document("dead", format!("http://{}/", closed.address)))
        // A server that does not speak TLS.
        .document(document("plain", format!("https://{}/", echo.address)))
        .start()
        .await;
    for id in ["echo", "echo", "broken", "resets", "invalid", "plain"] {
        gate.invoke(id, &json!({})).await;
    }
    for _ in 0..6 {
        assert_eq!(gate.invoke("dead", &json!({})).await.status, 503);
    }
    let short = gate.post("/agents/silent/invoke").header("x-request-timeout", "150ms").json(&json!({}));
    send(short).await.expect_fault(504, "Timeout");
    let page = gate.admin_page("/metrics").await.text();
    let value = |name: &str, labels: &str| sum_of_series(&page, &format!("{name}{{{labels}}}")).unwrap_or_default();
    for (agent, result, count) in [
        ("echo", "success", 2.0),
        ("broken", "error_response", 1.0),
        ("resets", "reset", 1.0),
        ("invalid", "invalid_response", 1.0),
        ("silent", "timeout", 1.0),
        ("plain", "connect_failed", 1.0),
        ("dead", "connect_failed", 5.0),
        ("dead", "rejected", 1.0),
    ] {
        let labels = format!("agent=\"{agent}\",result=\"{result}\"");
        assert_eq!(value("gatepost_upstream_attempts_total", &labels), count, "{labels}: {page}");
    }
    for (agent, result, count) in [("dead", "failed", 5.0), ("plain", "failed", 1.0), ("silent", "opened", 1.0)] {
        let labels = format!("agent=\"{agent}\",result=\"{result}\"");
        assert_eq!(value("gatepost_upstream_connections_total", &labels), count, "{labels}: {page}");
    }
    assert_eq!(value("gatepost_upstream_connections_total", "agent=\"echo\""), 2.0);
    assert_eq!(value("gatepost_upstream_connect_duration_seconds_count", "agent=\"silent\""), 1.0);
    for (agent, state, count) in
        [("echo", "up", 1.0), ("echo", "down", 0.0), ("dead", "up", 0.0), ("dead", "down", 1.0), ("unused", "up", 0.0)]
    {
        assert_eq!(value("gatepost_endpoints", &format!("agent=\"{agent}\",state=\"{state}\"")), count, "{agent}");
    }
    assert!(!page.contains("gatepost_endpoints{agent=\"unused\""), "{page}");
}

#[tokio::test]
async fn a_call_that_moves_to_another_endpoint_counts_a_retry() {
    let (echo, closed) = (Agent::echo().await, ClosedPort::new());
    let rule = format!("    - {{agents: [pair], settings: {{additional_endpoints: ['http://{}/']}}}}\n", echo.address);
    let document = json!({"id": "pair", "name": "Pair", "endpoint": format!("http://{}/", closed.address)});
    let section = format!("agents:\n  sources: [agents.json]\n  rules:\n{rule}");
    let gate = gateway().document(document).section(&section).start().await;
    for _ in 0..2 {
        gate.invoke("pair", &json!({})).await.expect_ok();
    }
    // One of two calls begins at the endpoint that is closed.
    assert_eq!(gate.metric("gatepost_upstream_retries_total{agent=\"pair\"}").await, Some(1.0));
    assert_eq!(gate.metric("gatepost_upstream_attempts_total{agent=\"pair\"}").await, Some(3.0));
}

#[tokio::test]
async fn refusals_name_their_agent_and_waiting_calls_are_measured() {
    let gate_latch = latch();
    let wait = gate_latch.clone();
    let slow = Agent::scripted(move |_| [vec![Step::WaitForLatch(wait.clone())], json_response(&json!({}))].concat());
    let (slow, echo) = (slow.await, Agent::echo().await);
    let gate = gateway()
        .agent("slow", &slow)
        .agent("scarce", &echo)
        .section("agents:\n  sources: [agents.json]\n  rules:\n    - {agents: [scarce], rate_limit: 1/h}\n")
        .section("limits:\n  concurrency: {max_per_agent: 1, queue_timeout: 10s}\n")
        .start()
        .await;
    let call = || send(gate.post("/agents/slow/invoke").json(&json!({})));
    let release = async {
        expect_metric(&gate, "gatepost_calls_queued{agent=\"slow\"}", 1.0).await;
        gate_latch.add_permits(2);
    };
    let (first, second, ()) = tokio::join!(call(), call(), release);
    first.expect_ok();
    second.expect_ok();
    expect_metric(&gate, "gatepost_queue_wait_seconds_count{agent=\"slow\"}", 1.0).await;
    expect_metric(&gate, "gatepost_calls_queued{agent=\"slow\"}", 0.0).await;
    gate.invoke("scarce", &json!({})).await.expect_ok();
    assert_eq!(gate.invoke("scarce", &json!({})).await.status, 429);
    expect_metric(&gate, "gatepost_limited_requests_total{limit=\"agent\",agent=\"scarce\"}", 1.0).await;
    expect_metric(&gate, "gatepost_limited_requests_total{limit=\"agent\",agent=\"-\"}", 0.0).await;
    assert_eq!(gate.metric("gatepost_queue_wait_seconds_count{agent=\"scarce\"}").await, None);
}

#[tokio::test]
async fn certificates_of_all_kinds_and_handshakes_are_reported() {
    let authority = CertificateAuthority::new("tests");
    let listeners =
        "listeners:\n  - address: 127.0.0.1:0\n    tls: {certificate: s.pem, key: s.key, client_ca: clients.pem}\n";
    let build = gateway()
        .listeners(listeners)
        .section("agents:\n  sources: [agents.json]\n  defaults:\n    tls: {ca: agents.pem}\n")
        .section("tracing: {endpoint: 'http://127.0.0.1:9', ca_file: traces.pem}\n");
    authority.server(&["localhost"]).write(build.folder(), "s");
    for name in ["clients.pem", "agents.pem", "traces.pem"] {
        std::fs::write(build.folder().join(name), authority.pem()).unwrap();
    }
    let gate = build.start().await;
    let expected = [
        ("listener", "127.0.0.1:0"),
        ("upstream", "agents.pem"),
        ("upstream", "traces.pem"),
        ("issuer", "clients.pem"),
    ];
    for (kind, name) in expected {
        let metric = format!("gatepost_certificate_expiration_timestamp_seconds{{kind=\"{kind}\",name=\"{name}\"}}");
        eventually(&metric, async || gate.metric(&metric).await.is_some_and(|end| end > unix_now())).await;
    }
    gate.write_file("agents.pem", "no certificate");
    let upstream = "gatepost_certificate_expiration_timestamp_seconds{kind=\"upstream\",name=\"agents.pem\"}";
    eventually("an unreadable file has no series", async || gate.metric(upstream).await.is_none()).await;
    send_raw(gate.address(), b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await;
    expect_metric(&gate, "gatepost_tls_handshakes_total{listener=\"127.0.0.1:0\",version=\"failed\"}", 1.0).await;
    let root = reqwest::Certificate::from_pem(authority.pem().as_bytes()).unwrap();
    let client = reqwest::Client::builder().no_proxy().tls_certs_only([root]).build().unwrap();
    client.get(format!("https://localhost:{}/agents", gate.address().port())).send().await.unwrap();
    expect_metric(&gate, "gatepost_tls_handshakes_total{version=\"1.3\"}", 1.0).await;
    expect_metric(&gate, "gatepost_responses_total{protocol=\"HTTP/2\"}", 1.0).await;
}

#[tokio::test]
async fn api_keys_are_counted_by_state_and_their_next_expiration_is_known() {
    let gate = gateway()
        .caller("old", &["--expires", "2020-01-01T00:00:00Z"])
        .caller("soon", &["--expires-in", "1h"])
        .caller("later", &["--expires-in", "2d"])
        .start()
        .await;
    expect_metric(&gate, "gatepost_api_keys{state=\"valid\"}", 3.0).await;
    expect_metric(&gate, "gatepost_api_keys{state=\"expired\"}", 1.0).await;
    expect_metric(&gate, "gatepost_api_keys{state=\"disabled\"}", 0.0).await;
    let next = gate.metric("gatepost_api_key_next_expiration_timestamp_seconds").await.unwrap() - unix_now();
    assert!((3_000.0..=3_600.0).contains(&next), "{next}");
    let keys = gate.read_file("keys.jsonl");
    let lines: Vec<&str> = keys.lines().collect();
    let disabled = lines[0].trim_end_matches('}').to_owned() + ",\"disabled\":true}";
    gate.write_file("keys.jsonl", &[&[disabled.as_str()], &lines[1..2]].concat().join("\n"));
    expect_metric(&gate, "gatepost_api_keys{state=\"disabled\"}", 1.0).await;
    expect_metric(&gate, "gatepost_api_keys{state=\"valid\"}", 0.0).await;
    assert_eq!(gate.metric("gatepost_api_key_next_expiration_timestamp_seconds").await, None);
}

#[tokio::test]
async fn fetches_of_the_keys_of_issuers_are_counted_by_issuer() {
    let (issuer, unreachable) = (TokenIssuer::start().await, TokenIssuer::unreachable());
    let page = Agent::with_steps(http_response("200 OK", "text/html", "<html>Sign in</html>")).await;
    let entry = |url: &str, label: &str| {
        format!(
            "      - {{issuer: '{url}', label: {label}, jwks_url: '{url}/jwks', audience: [gatepost], algorithms: [ES256]}}\n"
        )
    };
    let entries = [(issuer.url(), "good"), (unreachable.url(), "dead"), (format!("http://{}", page.address), "page")];
    let entries: String = entries.iter().map(|(url, label)| entry(url, label)).collect();
    let section = format!("  bearer:\n    issuers:\n{entries}");
    let gate = gateway().section(&section).start().await;
    let fetched = "gatepost_jwks_last_fetch_success_timestamp_seconds";
    expect_metric(&gate, "gatepost_jwks_fetches_total{issuer=\"good\",result=\"success\"}", 1.0).await;
    let age = unix_now() - gate.metric(&format!("{fetched}{{issuer=\"good\"}}")).await.unwrap();
    assert!((-1.0..30.0).contains(&age), "{age}");
    for issuer in ["dead", "page"] {
        let failures = format!("gatepost_jwks_fetches_total{{issuer=\"{issuer}\",result=\"failure\"}}");
        eventually("the issuer fails", async || gate.metric(&failures).await >= Some(1.0)).await;
        assert_eq!(gate.metric(&format!("{fetched}{{issuer=\"{issuer}\"}}")).await, None);
    }
}

#[tokio::test]
async fn tasks_callbacks_and_their_store_are_reported_also_when_the_store_fails() {
    let echo = Agent::echo().await;
    let silent = Agent::with_steps(vec![Step::Hang]).await;
    let attempts = std::sync::atomic::AtomicUsize::new(0);
    let webhook = Agent::scripted(move |_| match attempts.fetch_add(1, std::sync::atomic::Ordering::SeqCst) {
        0 => http_response("500 No", "text/plain", "no"),
        _ => http_response("204 No Content", "text/plain", ""),
    })
    .await;
    let gate = gateway_with_tasks(CALLBACK_SETTINGS)
        .env("HOOK_SECRET", WEBHOOK_SECRET)
        .agent("echo", &echo)
        .agent("silent", &silent)
        .start()
        .await;
    let url = format!("http://{}/hook", webhook.address);
    let path = task_path(&send(gate.post("/agents/echo/invoke").header("x-callback-url", &url).json(&json!({}))).await);
    wait_for_status(&gate, &path, "completed").await;
    let canceled = task_path(&call_with_prefer(&gate, "silent", "respond-async").await);
    expect_metric(&gate, "gatepost_tasks_running", 1.0).await;
    expect_metric(&gate, "gatepost_tasks_stored{state=\"running\"}", 1.0).await;
    expect_metric(&gate, "gatepost_tasks_stored{state=\"ended\"}", 1.0).await;
    expect_metric(&gate, "gatepost_callbacks_total{result=\"retried\"}", 1.0).await;
    expect_metric(&gate, "gatepost_callbacks_total{result=\"delivered\"}", 1.0).await;
    expect_metric(&gate, "gatepost_callback_delivery_duration_seconds_count", 2.0).await;
    expect_metric(&gate, "gatepost_callbacks_pending", 0.0).await;
    crate::tasks::request_as(&gate, "team-a", "DELETE", &canceled).await;
    for (outcome, count) in [("completed", 1.0), ("canceled", 1.0), ("failed", 0.0), ("lost", 0.0)] {
        expect_metric(&gate, &format!("gatepost_tasks_total{{outcome=\"{outcome}\"}}"), count).await;
        expect_metric(&gate, &format!("gatepost_task_duration_seconds_count{{outcome=\"{outcome}\"}}"), count).await;
    }
    expect_metric(&gate, "gatepost_store_up{store=\"tasks\"}", 1.0).await;
    assert_eq!(gate.metric("gatepost_store_operation_failures_total{store=\"tasks\"}").await, Some(0.0));
    assert_eq!(gate.metric("gatepost_store_up{store=\"registry\"}").await, None);
    let file = rusqlite::Connection::open(gate.folder().join("tasks.db")).unwrap();
    file.execute_batch("alter table gatepost_tasks rename to hidden").unwrap();
    expect_metric(&gate, "gatepost_store_up{store=\"tasks\"}", 0.0).await;
    assert!(gate.metric("gatepost_store_operation_failures_total{store=\"tasks\"}").await > Some(0.0));
    file.execute_batch("alter table hidden rename to gatepost_tasks").unwrap();
    expect_metric(&gate, "gatepost_store_up{store=\"tasks\"}", 1.0).await;
}

#[tokio::test]
async fn a_broker_that_refuses_connections_is_reported_once_it_is_needed() {
    let closed = ClosedPort::new();
    let endpoint = format!("mqtt://{}/control/agents/meter/input", closed.address);
    let gate = gateway().document(json!({"id": "meter", "name": "Meter", "endpoint": endpoint})).start().await;
    let metric = format!("gatepost_broker_connected{{broker=\"{}\"}}", closed.address);
    assert_eq!(gate.metric(&metric).await, None);
    assert_eq!(gate.invoke("meter", &json!({})).await.status, 503);
    assert_eq!(gate.metric(&metric).await, Some(0.0));
}

#[tokio::test]
async fn a_gateway_that_drains_says_so_and_one_that_serves_reports_its_runtime() {
    let silent = Agent::with_steps(vec![Step::Hang]).await;
    let gate = gateway().agent("silent", &silent).start().await;
    expect_metric(&gate, "gatepost_draining", 0.0).await;
    assert!(gate.metric("gatepost_runtime_threads").await >= Some(1.0));
    assert!(gate.metric("gatepost_memory_limit_bytes").await > gate.metric("process_resident_memory_bytes").await);
    let busy = gate.metric("gatepost_runtime_busy_seconds_total").await;
    assert!(busy > Some(0.0), "{busy:?}");
    assert_eq!(
        gate.metric(&format!("gatepost_build_info{{version=\"{}\"}}", env!("CARGO_PKG_VERSION"))).await,
        Some(1.0)
    );
    let call = tokio::spawn(gate.post("/agents/silent/invoke").json(&json!({})).send());
    expect_metric(&gate, "gatepost_calls_in_flight", 1.0).await;
    gate.send_signal(Signal::TERM);
    expect_metric(&gate, "gatepost_draining", 1.0).await;
    expect_metric(&gate, "gatepost_ready", 0.0).await;
    call.abort();
}

#[tokio::test]
async fn the_page_is_openmetrics_for_clients_that_prefer_it() {
    let gate = gateway().start().await;
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let get = |accept: &'static str| {
        send(client.get(format!("http://{}/metrics", gate.admin_address)).header("accept", accept))
    };
    let page = get("application/openmetrics-text; version=1.0.0, text/plain;q=0.5").await;
    let media_type = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    assert_eq!(page.header("content-type"), Some(media_type));
    assert!(page.text().ends_with("# EOF\n"), "{}", page.text());
    let page = get("text/plain").await;
    assert_eq!(page.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    assert!(!page.text().contains("# EOF"), "{}", page.text());
}

#[tokio::test]
async fn the_documentation_has_the_metrics_of_a_running_gateway_and_no_others() {
    let gate = gateway().start().await;
    let page = gate.admin_page("/metrics").await.text();
    let served: BTreeSet<(String, String)> = page
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '))
        .map(|(name, kind)| (name.to_owned(), kind.to_owned()))
        .collect();
    let documentation = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/metrics.md")).unwrap();
    let documented: BTreeSet<(String, String)> = documentation
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once("` | "))
        .filter_map(|(name, rest)| Some((name.to_owned(), rest.split_once(" | ")?.0.to_owned())))
        .filter(|(_, kind)| ["counter", "gauge", "histogram"].contains(&kind.as_str()))
        .collect();
    assert!(documented.len() > 60, "{documented:?}");
    assert_eq!(served, documented);
}
