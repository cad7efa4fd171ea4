//! Agents whose endpoint is a name: where it leads is asked when they are called, and what cannot be asked is not the
//! caller's fault.

use super::*;
use crate::support::agent::Agent;
use std::sync::{Arc, atomic::AtomicUsize};

fn document(id: &str, endpoint: &str) -> Value {
    json!({"id": id, "name": id, "endpoint": endpoint})
}

/// A site, and a gateway in front of the agent called `path` there.
async fn in_front_of(path: &str, names: &str) -> (Site, Gate) {
    let authority = Authority::new("Sites");
    let site = Site::start(&authority).await;
    let build = build(&authority).section(names).document(document("planner", &site.name(path)));
    (site, build.start().await)
}

#[tokio::test]
async fn r52_an_agent_with_a_name_is_called_where_its_name_leads() {
    let (site, gate) = in_front_of("/planner/plan", "").await;
    site.json("/.well-known/agents.json", json!({"agents": {"planner": "/p.json"}}));
    site.json("/p.json", json!({"name": "p", "endpoint": "/agent/one"}));
    for at in 0..3 {
        let answer = gate.invoke("planner", &json!({"at": at})).await.is_ok();
        assert_eq!((&answer["method"], &answer["body"]), (&json!("POST"), &json!({"at": at})));
        assert_eq!(answer["target"], "/agent/one/plan");
        assert_eq!(answer["key"], Value::Null, "the caller's key stays here");
    }
    assert_eq!(site.asked("/p.json"), 1);
    let shown = send(gate.request("GET", "/agents/planner").header("x-api-key", gate.key("team-a"))).await;
    shown.is_ok();
    shown.hides(&["localhost:", "/planner/plan"]);
}

#[tokio::test]
async fn r62_a_name_that_leads_elsewhere_is_followed_there() {
    let (site, gate) = in_front_of("/p", "").await;
    let page =
        |endpoint: &str| Page::json(&json!({"name": "p", "endpoint": endpoint})).field("cache-control", "max-age=1");
    site.put("/p/agent.json", page("/agent/one"));
    assert_eq!(gate.invoke("planner", &json!({})).await.is_ok()["target"], "/agent/one");
    site.put("/p/agent.json", page("/agent/two"));
    eventually("calls go where the name leads now", async || {
        gate.invoke("planner", &json!({})).await.is_ok()["target"] == "/agent/two"
    })
    .await;
    // A domain that is in trouble does not take its agent with it.
    site.put("/p/agent.json", Page::new(503, ""));
    eventually("the domain was asked again", async || {
        let asked = site.asked("/p/agent.json");
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert_eq!(gate.invoke("planner", &json!({})).await.is_ok()["target"], "/agent/two");
        asked >= 3 || site.asked("/p/agent.json") > asked
    })
    .await;
}

#[tokio::test]
async fn what_cannot_be_resolved_is_not_the_callers_fault() {
    let authority = Authority::new("Sites");
    let site = Site::start(&authority).await;
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    site.json("/a/agent.json", json!({"name": "a", "endpoint": site.name("/b")}));
    site.json("/b/agent.json", json!({"name": "b", "endpoint": site.name("/a")}));
    site.json("/dead/agent.json", json!({"name": "d", "endpoint": format!("https://localhost:{closed}/")}));
    site.json("/meta/agent.json", json!({"name": "m", "endpoint": "https://169.254.169.254/latest"}));
    let gate = build(&authority)
        .section("names: {fallback: false}\n")
        .document(document("circle", &site.name("/a")))
        .document(document("nothing", &site.name("/nothing")))
        .document(document("nobody", &format!("agent://localhost:{closed}/x")))
        .document(document("dead", &site.name("/dead")))
        .document(document("meta", &site.name("/meta")))
        .document(document("method", "agent://did:key:z6Mk/x"))
        .start()
        .await;
    for (id, status, code) in [
        ("circle", 502, "AgentError"),
        ("nothing", 503, "AgentUnavailable"),
        ("nobody", 503, "AgentUnavailable"),
        ("dead", 503, "AgentUnavailable"),
        ("meta", 503, "AgentUnavailable"),
        ("method", 503, "AgentUnavailable"),
    ] {
        let answer = gate.invoke(id, &json!({})).await;
        answer.is_fault(status, code);
        answer.hides(&["localhost", "169.254", "agent.json", "did:"]);
    }
}

#[tokio::test]
async fn r64_calls_that_wait_for_a_silent_domain_take_one_place_among_all_names() {
    let authority = Authority::new("Sites");
    let site = Site::start(&authority).await;
    site.json("/p/agent.json", json!({"name": "p", "endpoint": "/agent/p"}));
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let silent = crate::support::served::Raw::new(move |stream, _| {
        count.fetch_add(1, Ordering::SeqCst);
        async move {
            tokio::time::sleep(PATIENCE * 3).await;
            drop(stream);
        }
    })
    .await;
    let gate = build(&authority)
        .section("names: {most_at_once: 2, timeout: 4s}\n")
        .document(document("silent", &format!("agent://localhost:{}/x", silent.address.port())))
        .document(document("well", &site.name("/p")))
        .start()
        .await;
    let call = || gate.post("/agents/silent/invoke").json(&json!({})).send();
    let waiting: Vec<_> = (0..8).map(|_| tokio::spawn(call())).collect();
    eventually("the silent domain is asked", async || asked.load(Ordering::SeqCst) > 0).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(gate.invoke("well", &json!({})).await.is_ok()["target"], "/agent/p");
    for each in waiting {
        let told: Value = each.await.unwrap().unwrap().json().await.unwrap();
        // What whoever asked was told, and not that there was no place for the question.
        assert!(matches!(told["error"]["code"].as_str(), Some("Timeout" | "AgentUnavailable")), "{told}");
    }
}

#[tokio::test]
async fn r45_an_agent_whose_name_leads_nowhere_is_called_at_its_next_endpoint() {
    let (site, closed) = (Agent::echo().await, std::net::TcpListener::bind("127.0.0.1:0").unwrap());
    let nowhere = format!("agent://localhost:{}/x", closed.local_addr().unwrap().port());
    drop(closed);
    let further = json!([site.url()]).to_string();
    let rule = format!(
        "agents:\n  from: [agents.json]\n  rules:\n    - agents: ['*']\n      settings:\n        endpoints: {further}\n"
    );
    let gate = gateway().section(&rule).document(document("a", &nowhere)).start().await;
    for at in 1..=4 {
        gate.invoke("a", &json!({})).await.is_ok();
        assert_eq!(site.calls(), at);
    }
}

#[tokio::test]
async fn r98_no_document_elsewhere_makes_the_gateways_accounts_speak() {
    let authority = Authority::new("Sites");
    let site = Site::start(&authority).await;
    let (trap, came) = trap().await;
    let broker = format!("mqtts://localhost:{}/control/agents/x/input", trap.address.port());
    let matrix = "agent+matrix://@someone:example.org/!room:example.org";
    site.json("/broker/agent.json", json!({"name": "b", "endpoint": broker}));
    site.json("/matrix/agent.json", json!({"name": "m", "endpoint": matrix}));
    let gate = build(&authority)
        .document(document("broker", &site.name("/broker")))
        .document(document("matrix", &site.name("/matrix")))
        .start()
        .await;
    for id in ["broker", "matrix"] {
        gate.invoke(id, &json!({})).await.is_fault(502, "AgentError");
    }
    assert_eq!(came.load(Ordering::SeqCst), 0);
    // Whoever asks is told all the same.
    assert_eq!(uri(&gate, &site.name("/broker")).await.is_ok()["endpoint"], broker);
}

#[tokio::test]
async fn an_endpoint_that_is_no_name_is_refused_with_its_reason() {
    let gate = gateway()
        .document(document("good", "agent://a.example/x"))
        .document(document("user", "agent://me@a.example/x"))
        .document(document("fragment", "agent://a.example/x#y"))
        .start()
        .await;
    let state = gate.admin("/agents").await.text() + &gate.stderr();
    for why in ["userinfo is not allowed", "no fragment"] {
        assert!(state.contains(why), "{why}: {state}");
    }
    assert_ne!(gate.invoke("good", &json!({})).await.status, 404);
    gate.invoke("user", &json!({})).await.is_fault(404, "NotFound");
}
