//! The health listener of a running gateway, and `gatepost health`.

use crate::support::{
    agent::{Agent, Step, json_response, latch},
    closed_port::ClosedPort,
    eventually,
    gateway::{Gateway, GatewayBuilder, gatepost_command, gateway, send},
    ports::ReservedPort,
};
use rustix::process::Signal;
use serde_json::json;
use std::process::Output;

fn with_health(build: GatewayBuilder, port: &ReservedPort, settings: &str) -> GatewayBuilder {
    build.section(&format!("health: {{address: 127.0.0.1:{}{settings}}}\n", port.number()))
}

async fn read(port: &ReservedPort, path: &str) -> (u16, String) {
    let url = format!("http://127.0.0.1:{}{path}", port.number());
    let response = reqwest::Client::builder().no_proxy().build().unwrap().get(url).send().await.unwrap();
    (response.status().as_u16(), response.text().await.unwrap())
}

/// Runs `gatepost health` with these arguments, in the folder of the gateway.
async fn run_health(gate: &Gateway, args: &'static [&'static str]) -> Output {
    let folder = gate.folder();
    let run = move || gatepost_command().arg("health").args(args).current_dir(folder).output().unwrap();
    tokio::task::spawn_blocking(run).await.unwrap()
}

#[tokio::test]
async fn the_health_listener_serves_probes_and_metrics_beside_the_admin_listener() {
    let echo = Agent::echo().await;
    let port = ReservedPort::new();
    let gate = with_health(gateway().agent("echo", &echo), &port, ", metrics: true").start().await;
    for path in ["/livez", "/healthz", "/readyz", "/startupz"] {
        assert_eq!(read(&port, path).await.0, 200, "{path}");
    }
    assert_eq!(read(&port, "/readyz").await.1, json!({"ready": true, "reasons": []}).to_string());
    assert!(read(&port, "/metrics").await.1.contains("gatepost_ready 1"));
    assert_eq!(read(&port, "/agents").await.0, 404);
    let query_of = |length: usize| format!("/livez?{}", "a".repeat(length));
    assert_eq!(read(&port, &query_of(8 << 10)).await.0, 200);
    assert_eq!(read(&port, &query_of(16 << 10)).await.0, 431, "the head is too large");
    assert_eq!(gate.admin_page("/agents").await.status, 200);
    let output = run_health(&gate, &[]).await;
    assert!(output.status.success() && output.stdout == b"ready\n", "{output:?}");
    let output = run_health(&gate, &["--live"]).await;
    assert!(output.status.success() && output.stdout == b"alive\n", "{output:?}");
}

#[tokio::test]
async fn no_agent_is_at_the_health_listener() {
    let port = ReservedPort::new();
    let document = |id: &str, host: &str| {
        json!({"id": id, "name": id, "endpoint": format!("http://{host}:{}/readyz", port.number()),
            "authentication": {"type": "api_key"}})
    };
    let gate = with_health(gateway(), &port, "")
        .document(document("by-address", "127.0.0.1"))
        .document(document("by-name", "localhost"))
        .start()
        .await;
    for id in ["by-address", "by-name"] {
        let answer = gate.invoke(id, &json!({})).await;
        assert!(answer.status >= 500, "{id}: {} {}", answer.status, answer.text());
    }
}

#[tokio::test]
async fn a_gateway_that_is_not_ready_is_alive_and_the_command_says_why() {
    let source = ClosedPort::new();
    let port = ReservedPort::new();
    let agents =
        format!("agents:\n  sources: [{{kind: aidip, url: 'http://{}/agents', name: team-a}}]\n", source.address);
    let gate = with_health(gateway().section(&agents), &port, "").start().await;
    for path in ["/readyz", "/startupz"] {
        let (status, body) = read(&port, path).await;
        // Whoever reaches the listener learns no name of a source.
        assert_eq!(
            (status, body),
            (503, json!({"ready": false, "reasons": ["sources_not_read"]}).to_string()),
            "{path}"
        );
    }
    assert_eq!(read(&port, "/metrics").await.0, 404);
    let output = run_health(&gate, &[]).await;
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("not ready: sources_not_read"), "{stderr}");
    assert!(run_health(&gate, &["--live"]).await.status.success());
}

#[tokio::test]
async fn the_command_distinguishes_a_wrong_command_line_from_a_gateway_that_does_not_answer() {
    let gate = gateway().start().await;
    let admin = format!("http://{}/", gate.admin_address);
    let of_admin = |args: &[&str]| gatepost_command().arg("health").args(args).output().unwrap();
    assert!(of_admin(&["--url", &admin]).status.success(), "the admin listener answers too");
    let closed = format!("http://{}", ClosedPort::new().address);
    let output = of_admin(&["--url", &closed, "--timeout", "2s"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    // A listener of callers is no listener of probes.
    let callers = format!("http://{}", gate.address());
    let output = of_admin(&["--url", &callers]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("not that of a probe"), "{output:?}");
    for args in [&["--config", "missing.yaml"][..], &["--url", "http://127.0.0.1:1", "--config", "a.yaml"]] {
        assert_eq!(of_admin(args).status.code(), Some(2), "{args:?}");
    }
    let output = run_health(&gate, &[]).await;
    assert_eq!(output.status.code(), Some(2), "the configuration has port 0: {output:?}");
}

#[tokio::test]
async fn the_health_listener_is_handed_over_and_answers_while_calls_drain() {
    let held = latch();
    let steps = [vec![Step::WaitForLatch(held.clone())], json_response(&json!({}))].concat();
    let slow = Agent::with_steps(steps).await;
    let port = ReservedPort::new();
    let build = gateway().agent("slow", &slow).section("shutdown: {handover_socket: handover.sock}\n");
    let gate = with_health(build, &port, "").start().await;
    let successor = gate.start_successor().await;
    assert_eq!(read(&port, "/readyz").await.0, 200);
    let request = successor.post("/agents/slow/invoke");
    let call = tokio::spawn(send(request.json(&json!({}))));
    eventually("the call is in flight", async || slow.call_count() == 1).await;
    successor.send_signal(Signal::TERM);
    eventually("the gateway drains", async || read(&port, "/readyz").await.0 == 503).await;
    assert_eq!(read(&port, "/startupz").await.0, 200);
    assert_eq!(read(&port, "/livez").await.0, 200);
    held.close();
    assert_eq!(call.await.unwrap().status, 200);
}
