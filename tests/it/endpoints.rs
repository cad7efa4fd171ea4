//! Agents with several endpoints, the sessions that stay at one of them, and the breaker before each.

use crate::support::{
    agent::{Agent, Do, answer, json_answer},
    eventually,
    gateway::{Gate, gateway, send},
};
use serde_json::{Value, json};
use std::{
    collections::{BTreeSet, HashMap},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

/// Says who it is.
async fn named(name: &'static str) -> Agent {
    Agent::scripted(move |_| json_answer(&json!({ "from": name }))).await
}

/// Agents `twin` with further endpoints, and what else their settings are.
fn twins(further: &[String], more: &str) -> String {
    let endpoints = json!(further).to_string();
    let rule = format!("    - agents: ['*']\n      settings:\n        endpoints: {endpoints}\n{more}");
    format!("agents:\n  from: [agents.json]\n  rules:\n{rule}")
}

async fn asked(gate: &Gate, session: Option<&str>) -> String {
    let mut call = gate.post("/agents/twin/invoke").json(&json!({}));
    if let Some(session) = session {
        call = call.header("x-session-id", session);
    }
    send(call).await.is_ok()["from"].as_str().unwrap().to_owned()
}

fn nowhere() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    format!("http://{}/invoke", listener.local_addr().unwrap())
}

#[tokio::test]
async fn r76_calls_are_spread_and_a_session_stays_where_it_is() {
    let (a, b, c) = (named("a").await, named("b").await, named("c").await);
    let gate = gateway().agent("twin", &a).section(&twins(&[b.url(), c.url()], "")).start().await;
    let mut used = BTreeSet::new();
    for _ in 0..9 {
        used.insert(asked(&gate, None).await);
    }
    assert_eq!(used.len(), 3);
    let mut places = HashMap::new();
    for round in 0..3 {
        for session in 0..12 {
            let place = asked(&gate, Some(&format!("s-{session}"))).await;
            let known = places.entry(session).or_insert_with(|| place.clone());
            assert_eq!(*known, place, "round {round}");
        }
    }
    assert!(places.values().collect::<BTreeSet<_>>().len() > 1, "{places:?}");
    // The query names a session as well as the field.
    let call = gate.post("/agents/twin/invoke?sessionId=s-1").json(&json!({}));
    assert_eq!(send(call).await.is_ok()["from"], places[&1].as_str());
    let row = gate.admin("/agents").await.json()["agents"][0].clone();
    assert_eq!((row["endpoints"].as_array().unwrap().len(), &row["circuit_breaker"]), (3, &json!("closed")));
}

#[tokio::test]
async fn r76_a_session_that_is_no_name_is_refused_and_reaches_nobody() {
    let a = named("a").await;
    let gate = gateway().agent("twin", &a).start().await;
    for (name, value) in [
        ("x-session-id", "x".repeat(257)),
        ("x-session-id", "a b".to_owned()),
        ("x-session-id", String::new()),
        ("mcp-session-id", "a\tb".to_owned()),
    ] {
        let call = gate.post("/agents/twin/invoke").header(name, value).json(&json!({}));
        send(call).await.is_fault(400, "InvalidInput");
    }
    assert_eq!(a.calls(), 0);
    assert_eq!(asked(&gate, Some("!~fine")).await, "a");
}

#[tokio::test]
async fn r45_where_one_endpoint_is_gone_every_call_is_answered_by_another_once() {
    let alive = named("alive").await;
    let gate = gateway().document(json!({"id": "twin", "name": "twin", "endpoint": nowhere()}));
    let gate = gate.section(&twins(&[alive.url()], "")).start().await;
    for session in 0..12 {
        assert_eq!(asked(&gate, Some(&format!("s-{session}"))).await, "alive");
        assert_eq!(asked(&gate, None).await, "alive");
    }
    assert_eq!(alive.calls(), 24);
    let row = gate.admin("/agents").await.json()["agents"][0].clone();
    assert_ne!(row["circuit_breaker"], "closed", "{row}");
    assert_eq!(gate.metric("gatepost_circuit_breakers_open{agent=\"twin\"}").await, Some(1.0));
}

#[tokio::test]
async fn r45_a_call_that_an_agent_may_have_read_is_not_made_again() {
    let dying = Agent::doing(vec![Do::Close]).await;
    let alive = named("alive").await;
    let rule = "        breaker: {failures: 0}\n";
    let gate = gateway().agent("twin", &dying).section(&twins(&[alive.url()], rule)).start().await;
    let mut lost = 0;
    for _ in 0..6 {
        let answer = gate.invoke("twin", &json!({})).await;
        if answer.status == 502 {
            answer.is_fault(502, "AgentError");
            lost += 1;
        }
    }
    assert_eq!((lost, dying.calls(), alive.calls()), (3, 3, 3));
    for at in 0..6 {
        let call = gate.post("/agents/twin/invoke").header("idempotency-key", format!("k-{at}")).json(&json!({}));
        assert_eq!(send(call).await.is_ok()["from"], "alive");
    }
}

#[tokio::test]
async fn r35_an_agent_that_dies_again_and_again_is_left_alone_and_found_when_it_is_back() {
    let well = Arc::new(AtomicBool::new(false));
    let is_well = Arc::clone(&well);
    let agent = Agent::scripted(move |_| match is_well.load(Ordering::SeqCst) {
        true => json_answer(&Value::Null),
        false => vec![Do::Close],
    })
    .await;
    let rule = "agents:\n  from: [agents.json]\n  defaults:\n    breaker: {open_for: 3s}\n";
    let gate = gateway().agent("a", &agent).section(rule).start().await;
    for _ in 0..5 {
        gate.invoke("a", &json!({})).await.is_fault(502, "AgentError");
    }
    let refused = gate.invoke("a", &json!({})).await;
    let error = refused.is_fault(503, "AgentUnavailable");
    let wait = error["retry_after"].as_u64().unwrap();
    assert!((1..=3).contains(&wait) && refused.header("retry-after") == Some(&wait.to_string()), "{error}");
    assert_eq!(agent.calls(), 5);
    assert_eq!(gate.metric("gatepost_circuit_breaker_opens_total{agent=\"a\"}").await, Some(1.0));
    // A changed configuration is no reason to forget it.
    well.store(true, Ordering::SeqCst);
    eventually("the agent is found again", async || gate.invoke("a", &json!({})).await.status == 200).await;
    assert_eq!(gate.metric("gatepost_circuit_breakers_open{agent=\"a\"}").await, Some(0.0));
    assert_eq!(gate.admin("/agents").await.json()["agents"][0]["circuit_breaker"], "closed");
    assert!(gate.stderr().contains("endpoint recovered: circuit breaker closed"));
}

#[tokio::test]
async fn an_agent_that_answers_errors_or_is_asked_for_too_little_time_is_never_left_alone() {
    let failing = Agent::doing(answer("500 Internal Server Error", "text/plain", "no")).await;
    let slow = Agent::doing(vec![Do::Hang]).await;
    let gate = gateway().agent("failing", &failing).agent("slow", &slow).start().await;
    for _ in 0..8 {
        gate.invoke("failing", &json!({})).await.is_fault(500, "AgentError");
        let call = gate.post("/agents/slow/invoke").header("x-request-timeout", "20ms").json(&json!({}));
        send(call).await.is_fault(504, "Timeout");
    }
    for row in gate.admin("/agents").await.json()["agents"].as_array().unwrap() {
        assert_eq!(row["circuit_breaker"], "closed", "{row}");
    }
}
