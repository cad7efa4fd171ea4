//! The metrics page, which promtool checks and Prometheus reads: calls by outcome, and labels that callers cannot create.

use crate::support::{
    agent::{Agent, Step, http_response},
    eventually,
    gateway::{Gateway, gateway, send, translator_document},
    ports::ReservedPort,
};
use serde_json::{Value, json};
use std::{
    io::Write,
    process::{Child, Command, Stdio},
    time::Duration,
};

/// A Prometheus that reads the metrics of one gateway every second.
struct Prometheus {
    child: Child,
    port: ReservedPort,
    client: reqwest::Client,
    _folder: tempfile::TempDir,
}

impl Prometheus {
    fn start(gate: &Gateway) -> Self {
        let (folder, port) = (tempfile::tempdir().unwrap(), ReservedPort::new());
        let config = format!(
            "global: {{scrape_interval: 1s, scrape_timeout: 1s}}\nscrape_configs:\n  - job_name: gatepost\n    static_configs: [{{targets: ['{}']}}]\n",
            gate.admin_address
        );
        std::fs::write(folder.path().join("prometheus.yaml"), config).unwrap();
        let child = Command::new("prometheus")
            .arg(format!("--config.file={}", folder.path().join("prometheus.yaml").display()))
            .arg(format!("--storage.tsdb.path={}", folder.path().join("data").display()))
            .arg(format!("--web.listen-address=127.0.0.1:{}", port.number()))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("prometheus is missing (apt-get install prometheus)");
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        Self { child, port, client, _folder: folder }
    }

    async fn get(&self, path: &str) -> Option<Value> {
        let url = format!("http://127.0.0.1:{}/api/v1/{path}", self.port.number());
        let response = self.client.get(url).send().await.ok()?;
        serde_json::from_slice(&response.bytes().await.ok()?).ok()
    }

    /// The value of a query that has one series.
    async fn query(&self, query: &str) -> Option<f64> {
        let answer = self.get(&format!("query?query={query}")).await?;
        answer["data"]["result"][0]["value"][1].as_str()?.parse().ok()
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test]
async fn prometheus_reads_the_page_as_openmetrics() {
    let echo = Agent::echo().await;
    let gate = gateway().agent("echo", &echo).start().await;
    gate.invoke("echo", &json!({})).await.expect_ok();
    let prometheus = Prometheus::start(&gate);
    eventually("Prometheus has the call", async || {
        prometheus.query("gatepost_calls_total%7Bagent%3D%22echo%22%2Cblame%3D%22none%22%7D").await == Some(1.0)
    })
    .await;
    let targets = prometheus.get("targets").await.unwrap();
    let target = &targets["data"]["activeTargets"][0];
    assert_eq!((&target["health"], &target["lastError"]), (&json!("up"), &json!("")), "{target}");
    let quantile = "histogram_quantile(0.5%2C%20gatepost_call_duration_seconds_bucket%7Bagent%3D%22echo%22%7D)";
    assert!(prometheus.query(quantile).await > Some(0.0));
    assert!(prometheus.query("gatepost_build_info").await == Some(1.0));
    // A unit and a type are known of OpenMetrics alone.
    let metadata = prometheus.get("metadata?metric=gatepost_call_duration_seconds").await.unwrap();
    let metadata = &metadata["data"]["gatepost_call_duration_seconds"][0];
    assert_eq!((&metadata["type"], &metadata["unit"]), (&json!("histogram"), &json!("seconds")), "{metadata}");
}

fn check_with_promtool(page: &str) {
    let promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut promtool = promtool.expect("promtool is missing (apt-get install prometheus)");
    promtool.stdin.take().unwrap().write_all(page.as_bytes()).unwrap();
    let output = promtool.wait_with_output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    assert!(output.status.success() && text.is_empty(), "{}\n{page}", String::from_utf8_lossy(&text));
}

async fn call_count(gate: &Gateway, agent: &str, code: &str, caller_class: &str, operation: &str) -> f64 {
    let labels = format!("agent=\"{agent}\",code=\"{code}\",caller_class=\"{caller_class}\",operation=\"{operation}\"");
    gate.metric(&format!("gatepost_calls_total{{{labels}}}")).await.unwrap_or_default()
}

#[tokio::test]
async fn calls_are_counted_by_outcome_and_the_metrics_page_passes_promtool() {
    let echo = Agent::echo().await;
    let broken = Agent::scripted(|_| http_response("500 Internal Server Error", "text/plain", "boom")).await;
    let silent = Agent::with_steps(vec![Step::Hang]).await;
    let dead = Agent::with_steps(vec![Step::Reset]).await;
    let gate = gateway()
        .document(translator_document(&echo))
        .agent("dead", &dead)
        .agent("echo", &echo)
        .agent("broken", &broken)
        .agent("silent", &silent)
        .agent("scarce", &echo)
        .section("agents:\n  sources: [agents.json]\n  rules:\n    - {agents: [scarce], rate_limit: 1/h}\n")
        .start()
        .await;
    check_with_promtool(&gate.admin_page("/metrics").await.text());
    let input = json!({"text": "x", "source_language": "en", "target_language": "zh"});
    gate.invoke("agent-12345", &input).await.expect_ok();
    gate.invoke("agent-12345", &json!({})).await.expect_fault(400, "InvalidInput");
    gate.invoke("echo", &json!({})).await.expect_ok();
    send(gate.request("POST", "/agents/echo/invoke").json(&json!({}))).await.expect_fault(401, "Unauthorized");
    gate.invoke("unknown", &json!({})).await.expect_fault(404, "NotFound");
    gate.invoke("scarce", &json!({})).await.expect_ok();
    assert_eq!(gate.invoke("scarce", &json!({})).await.status, 429);
    assert_eq!(gate.invoke("dead", &json!({})).await.status, 502);
    let failed = gate.invoke("broken", &json!({})).await;
    let failed = failed.json()["error"]["code"].as_str().unwrap().to_owned();
    let short_timeout = gate.post("/agents/silent/invoke").header("x-request-timeout", "150ms").json(&json!({}));
    send(short_timeout).await.expect_fault(504, "Timeout");
    let disconnected =
        gate.post("/agents/silent/invoke").json(&json!({})).timeout(Duration::from_millis(300)).send().await;
    assert!(disconnected.unwrap_err().is_timeout());
    eventually("the aborted call is counted", async || {
        call_count(&gate, "silent", "aborted", "key", "invoke").await == 1.0
    })
    .await;
    let codes = [
        ("agent-12345", "ok", "key", "translateText", 1.0),
        ("agent-12345", "InvalidInput", "key", "-", 1.0),
        ("echo", "ok", "key", "invoke", 1.0),
        ("scarce", "ok", "key", "invoke", 1.0),
        ("silent", "Timeout", "key", "invoke", 1.0),
        ("broken", &failed, "key", "invoke", 1.0),
        ("-", "Unauthorized", "none", "-", 1.0),
        ("-", "NotFound", "key", "-", 1.0),
    ];
    let page = gate.admin_page("/metrics").await.text();
    for (agent, code, caller_class, operation, count) in codes {
        assert_eq!(call_count(&gate, agent, code, caller_class, operation).await, count, "{agent} {code}: {page}");
    }
    assert_eq!(gate.metric("gatepost_limited_requests_total{limit=\"agent\"}").await, Some(1.0));
    assert_eq!(gate.metric("gatepost_calls_in_flight").await, Some(0.0));
    assert_eq!(gate.metric("gatepost_call_duration_seconds_count{agent=\"scarce\"}").await, Some(2.0));
    check_with_promtool(&page);
}

#[tokio::test]
async fn callers_cannot_create_metric_labels() {
    let echo = Agent::echo().await;
    let gate = gateway().agent("echo", &echo).start().await;
    for n in 0..20 {
        gate.invoke(&format!("made-up-{n}"), &json!({})).await.expect_fault(404, "NotFound");
        send(gate.post(&format!("/made-up/{n}")).json(&json!({}))).await;
        send(gate.post(&format!("/agents/echo/made-up-{n}")).json(&json!({}))).await;
        send(gate.request(&format!("MADEUP{n}"), "/agents/echo/invoke").header("x-api-key", gate.key("team-a"))).await;
        let call = gate.request("POST", "/agents/echo/invoke").header("x-api-key", format!("made-up-{n}"));
        send(call.json(&json!({}))).await.expect_fault(401, "Unauthorized");
    }
    let page = gate.admin_page("/metrics").await.text();
    assert!(!page.to_ascii_lowercase().contains("made-up") && !page.contains("MADEUP"), "{page}");
    let series = page.lines().filter(|line| line.starts_with("gatepost_calls_total{")).count();
    assert!(series <= 8, "{page}");
    check_with_promtool(&page);
}
