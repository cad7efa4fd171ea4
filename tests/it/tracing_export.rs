//! The export of spans: receivers that are down, slow or refusing; credentials; reload and shutdown.

use crate::support::{
    agent::Agent,
    certs::CertificateAuthority,
    closed_port::ClosedPort,
    eventually, eventually_within,
    gateway::{Gateway, gateway},
    otlp_receiver::{OtlpReceiver, ReceiverMode, named},
    servers::server_tls_config,
};
use rustix::process::Signal;
use serde_json::json;
use std::time::{Duration, Instant};

async fn span_count(gate: &Gateway, result: &str) -> f64 {
    gate.metric(&format!("gatepost_spans_total{{result=\"{result}\"}}")).await.unwrap()
}

async fn call(gate: &Gateway, count: usize) {
    for _ in 0..count {
        gate.invoke("echo", &json!({})).await.expect_ok();
    }
}

#[tokio::test]
async fn a_batch_that_a_receiver_refuses_for_now_is_sent_again() {
    for (protocol, mode) in [("http", ReceiverMode::Refuse(503, 2)), ("grpc", ReceiverMode::RefuseGrpc(14, 2))] {
        let (receiver, agent) = (OtlpReceiver::start().await, Agent::echo().await);
        receiver.set_mode(mode);
        let section = receiver.section(&format!("  protocol: {protocol}\n"));
        let gate = gateway().agent("echo", &agent).section(&section).start().await;
        call(&gate, 1).await;
        receiver.wait_for_named("POST /agents/{id}/invoke", 1).await;
        assert_eq!(receiver.heads().len(), 3, "{protocol}");
        assert_eq!(span_count(&gate, "dropped_export").await, 0.0);
        assert!(gate.stderr().contains("traces cannot be exported"), "{}", gate.stderr());
        eventually("the recovery is logged", async || gate.stderr().contains("traces are exported again")).await;
    }
}

#[tokio::test]
async fn a_batch_that_a_receiver_refuses_for_good_is_dropped_and_counted() {
    for (protocol, mode) in [("http", ReceiverMode::Refuse(400, 1)), ("grpc", ReceiverMode::RefuseGrpc(3, 1))] {
        let (receiver, agent) = (OtlpReceiver::start().await, Agent::echo().await);
        receiver.set_mode(mode);
        let section = receiver.section(&format!("  protocol: {protocol}\n"));
        let gate = gateway().agent("echo", &agent).section(&section).start().await;
        call(&gate, 1).await;
        eventually("the spans are dropped", async || span_count(&gate, "dropped_export").await > 0.0).await;
        assert!(receiver.spans().is_empty());
        // The next ones are not affected.
        call(&gate, 1).await;
        receiver.wait_for_named("POST /agents/{id}/invoke", 1).await;
    }
}

#[tokio::test]
async fn spans_that_a_receiver_rejects_are_counted() {
    let (receiver, agent) = (OtlpReceiver::start().await, Agent::echo().await);
    receiver.set_mode(ReceiverMode::Reject(2));
    let gate = gateway().agent("echo", &agent).section(&receiver.section("")).start().await;
    call(&gate, 1).await;
    eventually("the spans are counted", async || span_count(&gate, "dropped_export").await == 2.0).await;
    assert!(span_count(&gate, "exported").await > 0.0);
}

#[tokio::test]
async fn a_receiver_that_is_down_or_hangs_delays_no_call_and_the_queue_is_bounded() {
    let closed = ClosedPort::new();
    let hanging = OtlpReceiver::start().await;
    hanging.set_mode(ReceiverMode::Hang);
    for address in [closed.address, hanging.address] {
        let agent = Agent::echo().await;
        let section =
            format!("tracing:\n  endpoint: http://{address}\n  sample_ratio: 1\n  queue_size: 20\n  timeout: 30s\n");
        let gate = gateway().agent("echo", &agent).section(&section).start().await;
        call(&gate, 1).await;
        // The exporter takes the first spans, and then waits for the receiver.
        tokio::time::sleep(Duration::from_millis(1_500)).await;
        let started = Instant::now();
        call(&gate, 50).await;
        assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
        eventually("spans are dropped", async || span_count(&gate, "dropped_queue").await > 100.0).await;
        assert_eq!(span_count(&gate, "exported").await, 0.0);
    }
}

#[tokio::test]
async fn r130_the_credential_of_the_receiver_comes_from_a_secret_and_appears_nowhere() {
    let (receiver, agent) = (OtlpReceiver::start().await, Agent::echo().await);
    let section = receiver.section("  headers: {authorization: 'env:OTLP_TOKEN', x-team: 'file:team'}\n");
    let builder = gateway().agent("echo", &agent).section(&section).env("OTLP_TOKEN", "Bearer receiver-secret");
    std::fs::write(builder.folder().join("team"), "blue\n").unwrap();
    let gate = builder.start().await;
    call(&gate, 1).await;
    receiver.wait_for_named("POST /agents/{id}/invoke", 1).await;
    let head = receiver.heads()[0].clone();
    assert_eq!(
        (head["authorization"].as_bytes(), head["x-team"].as_bytes()),
        (&b"Bearer receiver-secret"[..], &b"blue"[..])
    );
    receiver.set_mode(ReceiverMode::Refuse(401, 1));
    call(&gate, 1).await;
    eventually("the refusal is logged", async || gate.stderr().contains("status 401")).await;
    let everything = format!("{}{}{:?}", gate.stderr(), gate.read_file("access.log"), receiver.spans());
    assert!(!everything.contains("receiver-secret"), "{everything}");
}

#[tokio::test]
async fn a_receiver_with_tls_needs_a_certificate_of_a_known_authority() {
    let authority = CertificateAuthority::new("the authority");
    let certificate = authority.server(&["localhost"]);
    for (protocol, alpn) in [("http", "http/1.1"), ("grpc", "h2")] {
        let tls = server_tls_config(&certificate, None, &[alpn.as_bytes()]);
        let (receiver, agent) = (OtlpReceiver::start_with_tls(tls).await, Agent::echo().await);
        let port = receiver.address.port();
        for is_trusted in [true, false] {
            let ca = if is_trusted { "  ca_file: ca.pem\n" } else { "" };
            let section = format!(
                "tracing:\n  endpoint: https://localhost:{port}\n  protocol: {protocol}\n  sample_ratio: 1\n{ca}"
            );
            let builder = gateway().agent("echo", &agent).section(&section);
            std::fs::write(builder.folder().join("ca.pem"), authority.pem()).unwrap();
            let gate = builder.start().await;
            let before = receiver.spans().len();
            call(&gate, 1).await;
            if is_trusted {
                receiver.wait_for("the spans arrive", |spans| spans.len() > before).await;
            } else {
                eventually("the failure is logged", async || gate.stderr().contains("traces cannot be exported")).await;
                assert_eq!(receiver.spans().len(), before);
            }
        }
    }
}

#[tokio::test]
async fn a_shutdown_sends_the_spans_that_are_queued() {
    for protocol in ["http", "grpc"] {
        let (receiver, agent) = (OtlpReceiver::start().await, Agent::echo().await);
        let section = receiver.section(&format!("  protocol: {protocol}\n"));
        let mut gate = gateway().agent("echo", &agent).section(&section).start().await;
        call(&gate, 30).await;
        gate.send_signal(Signal::TERM);
        assert!(gate.wait_for_exit().await.success());
        assert_eq!(named(&receiver.spans(), "POST /agents/{id}/invoke").len(), 30, "{protocol}");
    }
}

#[tokio::test]
async fn a_shutdown_does_not_wait_long_for_a_receiver_that_hangs() {
    let (receiver, agent) = (OtlpReceiver::start().await, Agent::echo().await);
    receiver.set_mode(ReceiverMode::Hang);
    let mut gate = gateway().agent("echo", &agent).section(&receiver.section("  timeout: 1s\n")).start().await;
    call(&gate, 1).await;
    let started = Instant::now();
    gate.send_signal(Signal::TERM);
    assert!(gate.wait_for_exit().await.success());
    assert!(started.elapsed() < Duration::from_secs(8), "{:?}", started.elapsed());
}

#[tokio::test]
async fn a_reload_changes_receiver_and_share_and_loses_no_span() {
    let (first, second, agent) = (OtlpReceiver::start().await, OtlpReceiver::start().await, Agent::echo().await);
    let gate = gateway().agent("echo", &agent).section(&first.section("")).start().await;
    call(&gate, 5).await;
    let config = gate.read_file("gatepost.yaml");
    gate.write_file("gatepost.yaml", &config.replace(&first.address.to_string(), &second.address.to_string()));
    eventually("the reload is in force", async || gate.stderr().contains("configuration reloaded")).await;
    call(&gate, 5).await;
    second.wait_for_named("POST /agents/{id}/invoke", 5).await;
    first.wait_for_named("POST /agents/{id}/invoke", 5).await;
    // A configuration that is refused changes nothing.
    gate.write_file("gatepost.yaml", &config.replace("sample_ratio: 1", "sample_ratio: 2"));
    eventually("the configuration is refused", async || gate.stderr().contains("sample_ratio")).await;
    call(&gate, 1).await;
    second.wait_for_named("POST /agents/{id}/invoke", 6).await;
    // Without the section, nothing is recorded, and the context passes.
    let without = config.replace(&first.section(""), "");
    assert!(!without.contains("tracing:"));
    gate.write_file("gatepost.yaml", &without);
    let reloads = |gate: &Gateway| gate.stderr().matches("configuration reloaded").count();
    eventually("the reload is in force", async || reloads(&gate) == 2).await;
    call(&gate, 1).await;
    assert_eq!(agent.requests().last().unwrap().header("traceparent"), None);
}

#[tokio::test]
async fn an_unusable_section_is_refused_by_name() {
    let agent = Agent::echo().await;
    for (settings, problem) in [
        ("endpoint: ftp://localhost", "tracing.endpoint: must be https"),
        ("endpoint: http://192.0.2.1:4318", "tracing.endpoint: must be https (http only to this machine"),
        ("endpoint: 'http://localhost/?a=1'", "tracing.endpoint: must not contain a query or fragment"),
        (
            "endpoint: http://localhost\n  headers: {authorization: 'env:NOT_SET'}",
            "tracing.headers.authorization: environment",
        ),
        ("endpoint: https://localhost\n  ca_file: none.pem", "tracing.ca_file: "),
        ("endpoint: http://localhost\n  sample_ratio: 7", "/sample_ratio: must be at most 1"),
    ] {
        let gate = gateway().agent("echo", &agent).start().await;
        let config = gate.read_file("gatepost.yaml");
        gate.write_file("gatepost.yaml", &format!("{config}tracing:\n  {settings}\n"));
        eventually_within(Duration::from_secs(15), problem, async || gate.stderr().contains(problem)).await;
    }
}
