//! Observability: health, the admin page of agents, and one access-log entry for each call.

use crate::{
    directory::{PUBLISHERS, publish},
    support::{
        agent::{Agent, Step, http_response},
        certs::CertificateAuthority,
        eventually,
        gateway::{gateway, send, translator_document},
        gateway_response::send_raw,
    },
};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::time::Duration;

#[tokio::test]
async fn connections_are_counted_by_outcome() {
    let authority = CertificateAuthority::new("tests");
    let build =
        gateway().listeners("listeners:\n  - address: 127.0.0.1:0\n    tls: {certificate: s.pem, key: s.key}\n");
    authority.server(&["localhost"]).write(build.folder(), "s");
    let gate = build.start().await;
    let open = tokio::net::TcpStream::connect(gate.address()).await.unwrap();
    eventually("the connection is counted", async || gate.metric("gatepost_connections_open").await == Some(1.0)).await;
    drop(open);
    send_raw(gate.address(), b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await;
    eventually("both handshakes failed", async || {
        gate.metric("gatepost_connections_total{result=\"handshake_failed\"}").await == Some(2.0)
    })
    .await;
    assert_eq!(gate.metric("gatepost_connections_total{result=\"accepted\"}").await, Some(2.0));
    eventually("none is open", async || gate.metric("gatepost_connections_open").await == Some(0.0)).await;
    assert!(
        !gate.admin_page("/metrics").await.text().contains("connection_accepted"),
        "accepted connections are counted as events too"
    );
}

#[tokio::test]
async fn health_and_readiness_report_the_reason() {
    let echo = Agent::echo().await;
    let mut gate = gateway().agent("echo", &echo).section("shutdown:\n  listener_close_delay: 500ms\n").start().await;
    assert_eq!(gate.admin_page("/healthz").await.text(), "ok\n");
    let ready = gate.admin_page("/readyz").await;
    assert_eq!((ready.status, &ready.json()["config"]), (200, &json!("ok")));
    let config = gate.read_file("gatepost.yaml");
    gate.write_file("gatepost.yaml", &format!("{config}surprise: 1\n"));
    gate.send_signal(Signal::HUP);
    eventually("the rejection is reported", async || gate.admin_page("/readyz").await.text().contains("surprise"))
        .await;
    let ready = gate.admin_page("/readyz").await;
    assert_eq!(ready.status, 200, "the previous configuration is not in effect");
    assert!(ready.json()["config"].as_str().unwrap().starts_with("rejected: "), "{}", ready.text());
    assert_eq!(gate.metric("gatepost_config_last_reload_successful").await, Some(0.0));
    gate.write_file("gatepost.yaml", &config);
    eventually("the valid configuration is in effect", async || {
        gate.admin_page("/readyz").await.json()["config"] == "ok"
    })
    .await;
    assert_eq!(gate.metric("gatepost_config_last_reload_successful").await, Some(1.0));
    gate.send_signal(Signal::TERM);
    eventually("readiness drops before the listeners close", async || gate.admin_page("/readyz").await.status == 503)
        .await;
    assert_eq!(gate.admin_page("/readyz").await.json()["reasons"], json!(["draining"]));
    gate.invoke("echo", &json!({})).await.expect_ok();
    assert_eq!(gate.admin_page("/healthz").await.status, 200);
    assert!(gate.wait_for_exit().await.success());
}

#[tokio::test]
async fn agents_are_listed_in_pages() {
    let echo = Agent::echo().await;
    let build = (0..25).fold(gateway(), |build, at| build.agent(&format!("a{at:02}"), &echo));
    let mut secret = echo.document("zz");
    secret["endpoint"] = json!(format!("http://{}/x?token=s3cret-token-value", echo.address));
    let gate = build.document(secret).start().await;
    let (mut seen, mut path) = (Vec::new(), "/agents?limit=10".to_owned());
    loop {
        let page = gate.admin_page(&path).await.json();
        assert_eq!(page["total"], 26);
        seen.extend(page["agents"].as_array().unwrap().iter().map(|agent| agent["id"].as_str().unwrap().to_owned()));
        match page["next"].as_str() {
            Some(next) => path = format!("/agents?limit=10&after={next}"),
            None => break,
        }
    }
    assert_eq!(seen.len(), 26);
    assert!(seen.is_sorted());
    assert!(!gate.admin_page("/agents").await.text().contains("s3cret-token-value"));
    for wrong in ["/agents?limit=0", "/agents?limit=1001", "/agents?limit=x", "/agents?surprise=1"] {
        assert_eq!(gate.admin_page(wrong).await.status, 400, "{wrong}");
    }
    assert_eq!(gate.admin_page("/surprise").await.status, 404);
}

#[tokio::test]
async fn r131_a_call_has_one_access_log_entry_without_secrets() {
    let echo = Agent::echo().await;
    let gate = gateway().document(translator_document(&echo)).agent("echo", &echo).start().await;
    let key = gate.key("team-a").to_owned();
    let input = json!({"text": "x", "source_language": "en", "target_language": "zh"});
    let call = gate.post("/agents/agent-12345/invoke?api_key=in-the-query&text=hi").header("x-request-id", "mine-1");
    send(call.json(&input)).await.expect_ok();
    let token = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJ4In0.c2lnbmF0dXJl";
    let call = gate.request("POST", "/agents/echo/invoke").header("authorization", format!("Bearer {token}"));
    send(call.header("x-request-id", "mine-2").json(&json!({}))).await.expect_fault(401, "Unauthorized");
    send(gate.post(&format!("/agents/{key}/invoke")).json(&json!({}))).await.expect_fault(404, "NotFound");
    send(gate.post("/agents/echo/invoke").header("user-agent", format!("x {key}")).body("{")).await;
    let lines = gate.access_log(4).await;
    assert_eq!(lines.len(), 4);
    let first = &lines[0];
    let expected = [
        ("request_id", json!("mine-1")),
        ("method", json!("POST")),
        ("path", json!("/agents/agent-12345/invoke")),
        ("agent", json!("agent-12345")),
        ("operation", json!("translateText")),
        ("caller", json!("key:team-a")),
        ("credential", json!("key")),
        ("status", json!(200)),
        ("code", json!("ok")),
        ("query_bytes", json!(28)),
    ];
    for (field, value) in expected {
        assert_eq!(first[field], value, "{field}: {first}");
    }
    assert!(first["duration_ms"].as_f64().unwrap() >= first["upstream_duration_ms"].as_f64().unwrap(), "{first}");
    assert!(first["time"].as_str().unwrap().ends_with('Z'));
    assert_eq!((&lines[1]["status"], &lines[1]["code"]), (&json!(401), &json!("Unauthorized")));
    assert!(lines[1].get("caller").is_none() && lines[1].get("agent").is_none(), "{}", lines[1]);
    let text = gate.read_file("access.log") + &gate.stderr() + &gate.admin_page("/metrics").await.text();
    let secret = key.rsplit('_').next().unwrap();
    for secret_text in [key.as_str(), secret, token, "c2lnbmF0dXJl", "in-the-query", "text=hi"] {
        assert!(!text.contains(secret_text), "'{secret_text}' is logged: {text}");
    }
}

/// Calls of a person that succeed, fail, are refused and are limited, and what the gateway then logged and counted.
async fn records_of_a_person(settings: &str) -> (Vec<Value>, String) {
    let echo = Agent::echo().await;
    let failing = Agent::with_steps(http_response("500 Internal Server Error", "application/json", "{}")).await;
    let build = gateway()
        .agent("echo", &echo)
        .agent("failing", &failing)
        .document(translator_document(&echo))
        .caller("alice-person", &[])
        .section(&format!("access_log:\n  output: access.log\n{settings}"))
        .section("limits:\n  quota: {per_day: 5}\n")
        .section("tasks: {}\n");
    std::fs::write(build.folder().join("log-key"), "0123456789abcdef\n").unwrap();
    let gate = build.start().await;
    let call = async |id: &str, prefer: &str| {
        let request =
            gate.request("POST", &format!("/agents/{id}/invoke")).header("x-api-key", gate.key("alice-person"));
        send(request.header("prefer", prefer).json(&json!({"n": 1}))).await.status
    };
    let statuses = [
        call("echo", "x=1").await,
        call("failing", "x=1").await,
        call("agent-12345", "x=1").await,
        call("unknown", "x=1").await,
        call("echo", "respond-async").await,
        call("echo", "x=1").await,
        call("echo", "x=1").await,
        call("echo", "x=1").await,
    ];
    assert_eq!(statuses[..5], [200, 500, 400, 404, 202]);
    assert_eq!(statuses[7], 429);
    let list = send(gate.request("GET", "/agents").header("x-api-key", gate.key("alice-person"))).await;
    assert_eq!(list.status, 200);
    let lines = gate.access_log(9).await;
    let records = gate.read_file("access.log") + &gate.stderr() + &gate.admin_page("/metrics").await.text();
    (lines, records)
}

#[tokio::test]
async fn r8_r101_with_pseudonyms_the_logs_and_metrics_of_a_gateway_name_no_caller() {
    let (lines, records) = records_of_a_person("").await;
    assert!(records.contains("alice-person"), "the test finds names");
    assert!(lines.iter().all(|line| line["peer"] == "127.0.0.1"), "{lines:?}");

    let settings = "  callers: pseudonym\n  addresses: pseudonym\n  pseudonym_key: file:log-key\n";
    let (lines, records) = records_of_a_person(settings).await;
    assert!(!records.contains("alice-person"), "{records}");
    // printf key:alice-person | openssl dgst -sha256 -hmac 0123456789abcdef, and so for 127.0.0.1
    for line in &lines {
        assert_eq!(line["caller"], "pseudonym:87d7bfbd785bb5c9", "{line}");
        assert_eq!(line["peer"], "pseudonym:74f62cbb4502f682", "{line}");
    }
    let (lines, records) = records_of_a_person("  callers: pseudonym\n  addresses: omitted\n").await;
    assert!(!records.contains("alice-person"), "{records}");
    assert!(lines.iter().all(|line| line.get("peer").is_none()), "{lines:?}");
    assert_ne!(
        lines[0]["caller"], "pseudonym:87d7bfbd785bb5c9",
        "without a key in the configuration the process has its own"
    );
    let (lines, _) = records_of_a_person("  addresses: truncated\n").await;
    assert!(lines.iter().all(|line| line["peer"] == "127.0.0.0"), "{lines:?}");
}

#[tokio::test]
async fn r101_the_log_names_publishers_and_no_other_caller() {
    let echo = Agent::echo().await;
    let gate = gateway().section(PUBLISHERS).caller("reader", &[]).start().await;
    assert_eq!(publish(&gate, "team-a", &echo.document("echo")).await.status, 201);
    let call = gate.request("POST", "/agents/echo/invoke").header("x-api-key", gate.key("reader"));
    send(call.json(&json!({}))).await.expect_ok();
    assert_eq!(gate.access_log(2).await[1]["caller"], "key:reader");
    let log = gate.stderr();
    assert!(log.contains("key:team-a") && !log.contains("reader"), "{log}");
}

#[tokio::test]
async fn a_call_is_logged_however_it_ends() {
    let silent = Agent::with_steps(vec![Step::Hang]).await;
    let gate = gateway().agent("silent", &silent).start().await;
    let disconnected =
        gate.post("/agents/silent/invoke").json(&json!({})).timeout(Duration::from_millis(200)).send().await;
    assert!(disconnected.is_err());
    let line = gate.access_log(1).await.remove(0);
    assert_eq!(
        (&line["status"], &line["code"], &line["aborted"]),
        (&json!(0), &json!("aborted"), &json!("caller gone"))
    );
    assert_eq!((&line["agent"], &line["caller"]), (&json!("silent"), &json!("key:team-a")));
    send_raw(gate.address(), b"nonsense\r\n\r\n").await.unwrap();
    send_raw(gate.address(), b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    let lines: Vec<Value> = gate.access_log(3).await;
    for line in &lines[1..] {
        assert_eq!((&line["status"], &line["code"]), (&json!(400), &json!("InvalidInput")), "{line}");
        assert!(line["request_id"].as_str().is_some_and(|id| !id.is_empty()), "{line}");
    }
}

#[tokio::test]
async fn sighup_reopens_the_access_log() {
    let echo = Agent::echo().await;
    let gate = gateway().agent("echo", &echo).start().await;
    gate.invoke("echo", &json!({})).await.expect_ok();
    gate.access_log(1).await;
    std::fs::rename(gate.folder().join("access.log"), gate.folder().join("access.log.1")).unwrap();
    gate.send_signal(Signal::HUP);
    eventually("the new file is there", async || gate.folder().join("access.log").exists()).await;
    gate.invoke("echo", &json!({})).await.expect_ok();
    gate.access_log(1).await;
    assert_eq!(gate.read_file("access.log.1").lines().count(), 1);
    assert_eq!(gate.read_file("access.log").lines().count(), 1);
}
