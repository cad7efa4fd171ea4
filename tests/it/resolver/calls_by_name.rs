//! Agents whose endpoint is an `agent://` name: it is resolved when they are called, and a failed resolution is not the
//! caller's error.

use super::*;
use crate::support::{agent::Agent, closed_port::ClosedPort};
use std::sync::{Arc, atomic::AtomicUsize};

fn document(id: &str, endpoint: &str) -> Value {
    json!({"id": id, "name": id, "endpoint": endpoint})
}

/// A site, and a gateway in front of the agent with the name of `path` there.
async fn start_in_front_of(path: &str, section: &str) -> (Site, Gateway) {
    let authority = CertificateAuthority::new("Sites");
    let site = Site::start(&authority).await;
    let build = gateway_trusting(&authority).section(section).document(document("planner", &site.agent_uri(path)));
    (site, build.start().await)
}

#[tokio::test]
async fn r52_an_agent_with_a_name_is_called_at_the_resolved_endpoint() {
    let (site, gate) = start_in_front_of("/planner/plan", "").await;
    site.json("/.well-known/agents.json", json!({"agents": {"planner": "/p.json"}}));
    site.json("/p.json", json!({"name": "p", "endpoint": "/agent/one"}));
    for n in 0..3 {
        let answer = gate.invoke("planner", &json!({"n": n})).await.expect_ok();
        assert_eq!((&answer["method"], &answer["body"]), (&json!("POST"), &json!({"n": n})));
        assert_eq!(answer["target"], "/agent/one/plan");
        assert_eq!(answer["key"], Value::Null, "the caller's key reached the agent");
    }
    assert_eq!(site.request_count("/p.json"), 1);
    let document = send(gate.request("GET", "/agents/planner").header("x-api-key", gate.key("team-a"))).await;
    document.expect_ok();
    document.assert_hides(&["localhost:", "/planner/plan"]);
}

#[tokio::test]
async fn r62_a_changed_document_moves_calls_to_the_new_endpoint() {
    let (site, gate) = start_in_front_of("/p", "").await;
    let page =
        |endpoint: &str| Page::json(&json!({"name": "p", "endpoint": endpoint})).header("cache-control", "max-age=1");
    site.put("/p/agent.json", page("/agent/one"));
    assert_eq!(gate.invoke("planner", &json!({})).await.expect_ok()["target"], "/agent/one");
    site.put("/p/agent.json", page("/agent/two"));
    eventually("calls go to the new endpoint", async || {
        gate.invoke("planner", &json!({})).await.expect_ok()["target"] == "/agent/two"
    })
    .await;
    // A failing domain does not make its agent unavailable.
    site.put("/p/agent.json", Page::new(503, ""));
    let before = site.request_count("/p/agent.json");
    eventually("the domain fails a request", async || {
        assert_eq!(gate.invoke("planner", &json!({})).await.expect_ok()["target"], "/agent/two");
        site.request_count("/p/agent.json") > before
    })
    .await;
    assert_eq!(gate.invoke("planner", &json!({})).await.expect_ok()["target"], "/agent/two");
}

#[tokio::test]
async fn a_failed_resolution_is_not_the_callers_error() {
    let authority = CertificateAuthority::new("Sites");
    let site = Site::start(&authority).await;
    let closed_port = ClosedPort::new();
    let closed = closed_port.address.port();
    site.json("/a/agent.json", json!({"name": "a", "endpoint": site.agent_uri("/b")}));
    site.json("/b/agent.json", json!({"name": "b", "endpoint": site.agent_uri("/a")}));
    site.json("/dead/agent.json", json!({"name": "d", "endpoint": format!("https://localhost:{closed}/")}));
    site.json("/meta/agent.json", json!({"name": "m", "endpoint": "https://169.254.169.254/latest"}));
    let gate = gateway_trusting(&authority)
        .section("resolver: {allowed_addresses: [127.0.0.0/8], https_fallback: false}\n")
        .document(document("circle", &site.agent_uri("/a")))
        .document(document("nothing", &site.agent_uri("/nothing")))
        .document(document("closed", &format!("agent://localhost:{closed}/x")))
        .document(document("dead", &site.agent_uri("/dead")))
        .document(document("meta", &site.agent_uri("/meta")))
        .document(document("method", "agent://did:key:z6Mk/x"))
        .start()
        .await;
    for (id, status, code) in [
        ("circle", 502, "AgentError"),
        ("nothing", 503, "AgentUnavailable"),
        ("closed", 503, "AgentUnavailable"),
        ("dead", 503, "AgentUnavailable"),
        ("meta", 503, "AgentUnavailable"),
        ("method", 503, "AgentUnavailable"),
    ] {
        let answer = gate.invoke(id, &json!({})).await;
        answer.expect_fault(status, code);
        answer.assert_hides(&["localhost", "169.254", "agent.json", "did:"]);
    }
}

#[tokio::test]
async fn r64_calls_that_wait_for_a_silent_domain_share_one_resolution() {
    let authority = CertificateAuthority::new("Sites");
    let site = Site::start(&authority).await;
    site.json("/p/agent.json", json!({"name": "p", "endpoint": "/agent/p"}));
    let connections = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&connections);
    let silent = crate::support::servers::RawAgent::start(move |stream, _| {
        count.fetch_add(1, Ordering::SeqCst);
        async move {
            std::future::pending::<()>().await;
            drop(stream);
        }
    })
    .await;
    let gate = gateway_trusting(&authority)
        .section("resolver: {allowed_addresses: [127.0.0.0/8], max_concurrency: 2, resolution_timeout: 4s}\n")
        .document(document("silent", &format!("agent://localhost:{}/x", silent.address.port())))
        .document(document("well", &site.agent_uri("/p")))
        .start()
        .await;
    let send = || gate.post("/agents/silent/invoke").json(&json!({})).send();
    let waiting: Vec<_> = (0..8).map(|_| tokio::spawn(send())).collect();
    eventually("the silent domain receives a request", async || connections.load(Ordering::SeqCst) > 0).await;
    eventually("all calls wait", async || gate.metric("gatepost_calls_in_flight").await == Some(8.0)).await;
    assert_eq!(gate.invoke("well", &json!({})).await.expect_ok()["target"], "/agent/p");
    for call in waiting {
        let error: Value = call.await.unwrap().unwrap().json().await.unwrap();
        // The error of the resolution, not one of a full resolver.
        assert!(matches!(error["error"]["code"].as_str(), Some("Timeout" | "AgentUnavailable")), "{error}");
    }
}

#[tokio::test]
async fn r45_an_agent_whose_name_cannot_be_resolved_is_called_at_its_next_endpoint() {
    let (echo, closed) = (Agent::echo().await, ClosedPort::new());
    let nowhere = format!("agent://localhost:{}/x", closed.address.port());
    let additional = json!([echo.url()]).to_string();
    let rule = format!(
        "agents:\n  sources: [agents.json]\n  rules:\n    - agents: ['*']\n      settings:\n        additional_endpoints: {additional}\n"
    );
    let gate = gateway().section(&rule).document(document("a", &nowhere)).start().await;
    for count in 1..=4 {
        gate.invoke("a", &json!({})).await.expect_ok();
        assert_eq!(echo.call_count(), count);
    }
}

#[tokio::test]
async fn r98_a_remote_document_cannot_make_the_gateway_use_its_broker_or_matrix_account() {
    let authority = CertificateAuthority::new("Sites");
    let site = Site::start(&authority).await;
    let (trap, connections) = connection_counter().await;
    let broker = format!("mqtts://localhost:{}/control/agents/x/input", trap.address.port());
    let matrix = "agent+matrix://@someone:example.org/!room:example.org";
    site.json("/broker/agent.json", json!({"name": "b", "endpoint": broker}));
    site.json("/matrix/agent.json", json!({"name": "m", "endpoint": matrix}));
    let gate = gateway_trusting(&authority)
        .document(document("broker", &site.agent_uri("/broker")))
        .document(document("matrix", &site.agent_uri("/matrix")))
        .start()
        .await;
    for id in ["broker", "matrix"] {
        gate.invoke(id, &json!({})).await.expect_fault(502, "AgentError");
    }
    assert_eq!(connections.load(Ordering::SeqCst), 0);
    // A caller that only resolves the name gets the endpoint.
    assert_eq!(resolve_uri(&gate, &site.agent_uri("/broker")).await.expect_ok()["endpoint"], broker);
}

#[tokio::test]
async fn an_invalid_name_as_an_endpoint_is_refused_with_the_reason() {
    let gate = gateway()
        .document(document("good", "agent://a.example/x"))
        .document(document("user", "agent://me@a.example/x"))
        .document(document("fragment", "agent://a.example/x#y"))
        .start()
        .await;
    let reports = gate.admin_page("/agents").await.text() + &gate.stderr();
    for reason in ["userinfo is not allowed", "no fragment"] {
        assert!(reports.contains(reason), "{reason}: {reports}");
    }
    assert_ne!(gate.invoke("good", &json!({})).await.status, 404);
    gate.invoke("user", &json!({})).await.expect_fault(404, "NotFound");
}
