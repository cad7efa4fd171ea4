//! Agents with several endpoints: load balancing, session affinity, failover, and the circuit breaker of each endpoint.

use crate::support::{
    agent::{Agent, Step, http_response, json_response},
    closed_port::ClosedPort,
    eventually,
    gateway::{Gateway, gateway, send},
    gateway_response::send_raw,
};
use serde_json::{Value, json};
use std::{
    collections::{BTreeSet, HashMap},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

/// An agent that answers with its name.
async fn named_agent(name: &'static str) -> Agent {
    Agent::scripted(move |_| json_response(&json!({ "from": name }))).await
}

/// The section `agents` with additional endpoints for every agent, and more settings.
fn twin_rule(endpoints: &[String], more_settings: &str) -> String {
    let endpoints = json!(endpoints).to_string();
    let settings = format!("        additional_endpoints: {endpoints}\n{more_settings}");
    format!("agents:\n  sources: [agents.json]\n  rules:\n    - agents: ['*']\n      settings:\n{settings}")
}

/// Calls the agent `twin`, and returns the name of the agent that answered.
async fn answering_agent(gate: &Gateway, session: Option<&str>) -> String {
    let mut call = gate.post("/agents/twin/invoke").json(&json!({}));
    if let Some(session) = session {
        call = call.header("x-session-id", session);
    }
    send(call).await.expect_ok()["from"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn r76_calls_are_balanced_and_a_session_stays_at_its_endpoint() {
    let (a, b, c) = (named_agent("a").await, named_agent("b").await, named_agent("c").await);
    let gate = gateway().agent("twin", &a).section(&twin_rule(&[b.url(), c.url()], "")).start().await;
    let mut names = BTreeSet::new();
    for _ in 0..9 {
        names.insert(answering_agent(&gate, None).await);
    }
    assert_eq!(names.len(), 3);
    let mut endpoints = HashMap::new();
    for round in 0..3 {
        for session in 0..12 {
            let name = answering_agent(&gate, Some(&format!("s-{session}"))).await;
            let first_name = endpoints.entry(session).or_insert_with(|| name.clone());
            assert_eq!(*first_name, name, "round {round}");
        }
    }
    assert!(endpoints.values().collect::<BTreeSet<_>>().len() > 1, "{endpoints:?}");
    // The query may name the session instead of the header.
    let call = gate.post("/agents/twin/invoke?sessionId=s-1").json(&json!({}));
    assert_eq!(send(call).await.expect_ok()["from"], endpoints[&1].as_str());
    let row = gate.admin_page("/agents").await.json()["agents"][0].clone();
    assert_eq!((row["endpoints"].as_array().unwrap().len(), &row["circuit_breaker"]), (3, &json!("closed")));
}

#[tokio::test]
async fn r76_an_invalid_session_id_is_refused_and_does_not_reach_an_agent() {
    let a = named_agent("a").await;
    let gate = gateway().agent("twin", &a).start().await;
    for (name, value) in
        [("x-session-id", "x".repeat(257)), ("x-session-id", "a b".to_owned()), ("x-session-id", String::new())]
    {
        let call = gate.post("/agents/twin/invoke").header(name, value).json(&json!({}));
        send(call).await.expect_fault(400, "InvalidInput");
    }
    // Clients of MCP read errors of JSON-RPC.
    let call = gate.post("/agents/twin/invoke").header("mcp-session-id", "a\tb").json(&json!({}));
    let response = send(call).await;
    assert_eq!((response.status, response.json()["error"]["code"].as_i64()), (400, Some(-32602)));
    assert_eq!(a.call_count(), 0);
    assert_eq!(answering_agent(&gate, Some("!~fine")).await, "a");
}

#[tokio::test]
async fn r45_with_one_endpoint_unreachable_every_call_is_answered_once_by_another() {
    let alive = named_agent("alive").await;
    let closed = ClosedPort::new();
    let unreachable_url = format!("http://{}/invoke", closed.address);
    let gate = gateway().document(json!({"id": "twin", "name": "twin", "endpoint": unreachable_url}));
    let gate = gate.section(&twin_rule(&[alive.url()], "")).start().await;
    for session in 0..12 {
        assert_eq!(answering_agent(&gate, Some(&format!("s-{session}"))).await, "alive");
        assert_eq!(answering_agent(&gate, None).await, "alive");
    }
    assert_eq!(alive.call_count(), 24);
    let row = gate.admin_page("/agents").await.json()["agents"][0].clone();
    assert_ne!(row["circuit_breaker"], "closed", "{row}");
    assert_eq!(gate.metric("gatepost_circuit_breakers_open{agent=\"twin\"}").await, Some(1.0));
}

/// The access-log entries of calls of the agent that have this number of tries.
fn entries_with_attempts(lines: &[Value], attempts: u64) -> Vec<&Value> {
    lines.iter().filter(|line| line["agent"] == "twin" && line["attempts"] == attempts).collect()
}

#[tokio::test]
async fn r45_the_access_log_has_the_tries_of_each_call() {
    let (alive, closed) = (named_agent("alive").await, ClosedPort::new());
    let document = json!({"id": "twin", "name": "twin", "endpoint": format!("http://{}/invoke", closed.address)});
    let settings = "        circuit_breaker: {consecutive_failures: 0}\n";
    let build = gateway().document(document).section(&twin_rule(&[alive.url()], settings));
    let gate = build.section("tasks: {}\nidempotency: {}\n").start().await;
    // The endpoint that is called first alternates: of two calls of a kind, one meets the closed port first.
    let kinds: [(&str, &[(&str, &str)]); 3] =
        [("plain", &[]), ("keyed", &[("idempotency-key", "k")]), ("task", &[("prefer", "respond-async, wait=10")])];
    for (kind, headers) in kinds {
        for number in 0..6 {
            let call = gate.post("/agents/twin/invoke").header("x-request-id", format!("{kind}-{number}"));
            let call = headers.iter().fold(call, |call, (name, value)| match *name {
                "idempotency-key" => call.header(*name, format!("{value}-{number}")),
                name => call.header(name, *value),
            });
            assert_eq!(send(call.json(&json!({}))).await.expect_ok()["from"], "alive", "{kind}");
        }
    }
    // A task has an entry of its own beside that of its request.
    let lines = gate.access_log(24).await;
    for kind in ["plain", "keyed", "task"] {
        let of_kind = |attempts| {
            let is_of_kind = |line: &&&Value| line.to_string().contains(&format!("\"{kind}-"));
            entries_with_attempts(&lines, attempts).iter().filter(is_of_kind).count()
        };
        let (once, twice) = (of_kind(1), of_kind(2));
        assert!(twice > 0 && once + twice == 6, "{kind}: {once} with one try, {twice} with two: {lines:#?}");
    }
    // A call that no endpoint gets has no tries; a refused one neither.
    send(gate.request("POST", "/agents/twin/invoke").json(&json!({}))).await.expect_fault(401, "Unauthorized");
    let lines = gate.access_log(25).await;
    assert!(lines.iter().any(|line| line["status"] == 401 && line.get("attempts").is_none()), "{lines:#?}");
}

#[tokio::test]
async fn r45_a_call_that_may_have_reached_the_agent_is_not_retried_without_a_key() {
    let dying = Agent::with_steps(vec![Step::Close]).await;
    let alive = named_agent("alive").await;
    let settings = "        circuit_breaker: {consecutive_failures: 0}\n";
    let gate = gateway().agent("twin", &dying).section(&twin_rule(&[alive.url()], settings)).start().await;
    let mut failed = 0;
    for _ in 0..6 {
        let response = gate.invoke("twin", &json!({})).await;
        if response.status == 502 {
            response.expect_fault(502, "AgentError");
            failed += 1;
        }
    }
    assert_eq!((failed, dying.call_count(), alive.call_count()), (3, 3, 3));
    for number in 0..6 {
        let call = gate.post("/agents/twin/invoke").header("idempotency-key", format!("k-{number}")).json(&json!({}));
        assert_eq!(send(call).await.expect_ok()["from"], "alive");
    }
}

#[tokio::test]
async fn r35_the_breaker_opens_after_repeated_failures_and_closes_after_the_recovery() {
    let recovered = Arc::new(AtomicBool::new(false));
    let has_recovered = Arc::clone(&recovered);
    let agent = Agent::scripted(move |_| {
        if has_recovered.load(Ordering::SeqCst) { json_response(&Value::Null) } else { vec![Step::Close] }
    })
    .await;
    let agents = "agents:\n  sources: [agents.json]\n  defaults:\n    circuit_breaker: {open_duration: 3s}\n";
    let gate = gateway().agent("a", &agent).section(agents).start().await;
    for _ in 0..5 {
        gate.invoke("a", &json!({})).await.expect_fault(502, "AgentError");
    }
    let refused = gate.invoke("a", &json!({})).await;
    let error = refused.expect_fault(503, "AgentUnavailable");
    let wait = error["retry_after"].as_u64().unwrap();
    assert!((1..=3).contains(&wait) && refused.header("retry-after") == Some(&wait.to_string()), "{error}");
    assert_eq!(agent.call_count(), 5);
    assert_eq!(gate.metric("gatepost_circuit_breaker_opens_total{agent=\"a\"}").await, Some(1.0));
    recovered.store(true, Ordering::SeqCst);
    eventually("the agent answers again", async || gate.invoke("a", &json!({})).await.status == 200).await;
    assert_eq!(gate.metric("gatepost_circuit_breakers_open{agent=\"a\"}").await, Some(0.0));
    assert_eq!(gate.admin_page("/agents").await.json()["agents"][0]["circuit_breaker"], "closed");
    assert!(gate.stderr().contains("endpoint recovered: circuit breaker closed"));
}

#[tokio::test]
async fn error_responses_and_short_caller_timeouts_do_not_open_the_breaker() {
    let failing = Agent::with_steps(http_response("500 Internal Server Error", "text/plain", "no")).await;
    let slow = Agent::with_steps(vec![Step::Hang]).await;
    let gate = gateway().agent("failing", &failing).agent("slow", &slow).start().await;
    for _ in 0..8 {
        gate.invoke("failing", &json!({})).await.expect_fault(500, "AgentError");
        let call = gate.post("/agents/slow/invoke").header("x-request-timeout", "20ms").json(&json!({}));
        send(call).await.expect_fault(504, "Timeout");
    }
    for row in gate.admin_page("/agents").await.json()["agents"].as_array().unwrap() {
        assert_eq!(row["circuit_breaker"], "closed", "{row}");
    }
}

#[tokio::test]
async fn r65_an_operation_with_an_address_of_its_own_is_called_there() {
    let agent = Agent::scripted(|request| {
        let target = request.head.split(' ').nth(1).unwrap_or_default().to_owned();
        json_response(&json!({ "target": target }))
    })
    .await;
    let mut document = agent.document("a");
    document["endpoint"] = json!(format!("http://{}/base", agent.address));
    document["version"] = json!("2.0.0");
    document["supportedVersions"] = json!({"1.0.0": "/v1", "1.1.0": "/v1?api=old"});
    document["operations"] = json!([
        {"name": "below", "endpoint": format!("http://{}/base/below", agent.address)},
        {"name": "beside", "endpoint": "/beside?fixed=1"}, {"name": "plain"}
    ]);
    let gate = gateway().document(document).start().await;
    for (path, target) in [
        ("/agents/a/below", "/base/below"),
        ("/agents/a/invoke/beside", "/beside?fixed=1"),
        ("/agents/a/below?more=2", "/base/below?more=2"),
        ("/agents/a/beside?more=2", "/beside?fixed=1&more=2"),
        ("/agents/a/plain", "/base"),
        ("/agents/a@1.0.0/below", "/v1/below"),
        ("/agents/a@1.0.0/plain", "/v1"),
        ("/agents/a@1.1.0/below", "/v1/below?api=old"),
        ("/agents/a@1.1.0/below?more=2", "/v1/below?api=old&more=2"),
        ("/agents/a@1.1.0/plain", "/v1?api=old"),
        ("/agents/a@2.0.0/below", "/base/below"),
    ] {
        assert_eq!(send(gate.post(path).json(&json!({}))).await.expect_ok()["target"], target, "{path}");
    }
    // The body, the header and the pipeline name operations too.
    let by_body = send(gate.post("/agents/a/invoke").json(&json!({"operation": "below"}))).await.expect_ok();
    assert_eq!(by_body["target"], "/base/below");
    let steps = json!({"steps": [{"agent": "a", "operation": "beside"}], "input": {}});
    assert_eq!(send(gate.post("/pipelines/invoke").json(&steps)).await.expect_ok()["target"], "/beside?fixed=1");
}

#[tokio::test]
async fn r65_an_operation_at_another_server_is_reported_and_not_called_and_its_agent_stays() {
    let agent = Agent::echo().await;
    let with_endpoints = |id: &str, endpoints: &[(&str, Value)]| {
        let mut document = agent.document(id);
        let operation = |(name, endpoint): &(&str, Value)| json!({"name": name, "endpoint": endpoint});
        document["operations"] = endpoints.iter().map(operation).collect();
        document
    };
    let elsewhere = json!("https://elsewhere.example/x");
    let gate = gateway()
        .document(with_endpoints("two", &[("there", elsewhere.clone()), ("here", json!(7))]))
        .document(with_endpoints("one", &[("there", elsewhere)]))
        .document(with_endpoints("script", &[("there", json!("javascript:alert(1)")), ("here", json!({"a": 1}))]))
        .start()
        .await;
    for id in ["two", "script"] {
        assert_eq!(send(gate.post(&format!("/agents/{id}/here")).json(&json!({}))).await.status, 200, "{id}");
    }
    let calls = agent.call_count();
    for (path, body) in [
        ("/agents/two/there", json!({})),
        ("/agents/two/invoke", json!({"operation": "there"})),
        ("/agents/one/invoke", json!({})),
        ("/agents/one/there", json!({})),
        ("/agents/script/there", json!({})),
    ] {
        let error = send(gate.post(path).json(&body)).await.expect_fault(404, "CapabilityNotFound");
        assert!(error["message"].as_str().unwrap().contains("is at another server than the agent"), "{path}: {error}");
    }
    assert_eq!(agent.call_count(), calls);
    let findings = gate.admin_page("/sources").await.json()["sources"][0]["document_findings"].to_string();
    for finding in [
        "two: operations[1].endpoint: must be a string, not a number, and is ignored",
        "operations[0].endpoint: must be a path, or a URL at the server of the agent's endpoint; the operation cannot",
    ] {
        assert!(findings.contains(finding), "{finding}: {findings}");
    }
}

#[tokio::test]
async fn r65_a_call_of_an_operation_at_another_server_is_refused_before_its_body() {
    let agent = Agent::echo().await;
    let operation = json!({"name": "there", "endpoint": "https://elsewhere.example/x", "inputs": {"type": "object"}});
    let mut document = agent.document("one");
    document["operations"] = json!([operation]);
    let gate = gateway().document(document).start().await;
    for path in ["/agents/one/invoke", "/agents/one/there"] {
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: gw\r\nX-API-Key: {}\r\nContent-Type: application/json\r\nContent-Length: 900000\r\n\r\n",
            gate.key("team-a")
        );
        let answer = tokio::time::timeout(Duration::from_secs(5), send_raw(gate.address(), head.as_bytes())).await;
        answer.expect("an answer before the body").unwrap().expect_fault(404, "CapabilityNotFound");
    }
    let steps = json!({"steps": [{"agent": "one"}], "input": {}});
    send(gate.post("/pipelines/invoke").json(&steps)).await.expect_fault(404, "CapabilityNotFound");
}

#[tokio::test]
async fn r76_operations_and_versions_are_below_the_path_of_each_endpoint_and_go_to_no_other_path() {
    let answering = |name: &'static str| {
        Agent::scripted(move |request| {
            let target = request.head.split(' ').nth(1).unwrap_or_default().to_owned();
            json_response(&json!({ "target": format!("{name} {target}") }))
        })
    };
    let (first, second, copy) = (answering("first").await, answering("second").await, answering("copy").await);
    let mut document = first.document("twin");
    document["endpoint"] = json!(format!("http://{}/primary/base", first.address));
    document["version"] = json!("2.0.0");
    document["supportedVersions"] = json!({"1.0.0": "/old", "1.1.0": "/primary/base/v1?api=old"});
    document["operations"] =
        json!([{"name": "go", "endpoint": "/primary/base/go"}, {"name": "beside", "endpoint": "/beside"}]);
    let endpoints =
        [format!("http://{}/second/{{id}}/invoke", second.address), format!("http://{}/primary/base", copy.address)];
    let gate = gateway().document(document).section(&twin_rule(&endpoints, "")).start().await;
    for (path, expected) in [
        ("/agents/twin/go", &["copy /primary/base/go", "first /primary/base/go", "second /second/twin/invoke/go"][..]),
        ("/agents/twin/beside", &["copy /beside", "first /beside"]),
        (
            "/agents/twin@1.1.0/go",
            &[
                "copy /primary/base/v1/go?api=old",
                "first /primary/base/v1/go?api=old",
                "second /second/twin/invoke/v1/go?api=old",
            ],
        ),
        ("/agents/twin@1.0.0/go", &["copy /old/go", "first /old/go"]),
    ] {
        let mut targets = BTreeSet::new();
        for _ in 0..9 {
            let answer = send(gate.post(path).json(&json!({}))).await.expect_ok();
            targets.insert(answer["target"].as_str().unwrap().to_owned());
        }
        assert_eq!(targets.into_iter().collect::<Vec<_>>(), expected, "{path}");
    }
}

#[tokio::test]
async fn r47_an_operation_with_the_name_of_its_agent_is_called_by_the_paths_of_its_name() {
    let agent = Agent::scripted(|request| {
        json_response(&json!({ "operation": request.header("x-operation").unwrap_or_default() }))
    })
    .await;
    let mut document = agent.document("echo");
    document["operations"] = json!([{"name": "delete-all"}, {"name": "echo"}]);
    let gate = gateway().document(document).agent("plain", &agent).start().await;
    for (path, operation) in [
        ("/agents/echo/agent.json/echo/echo", "echo"),
        ("/agents/echo/agent.json/echo", "echo"),
        ("/agents/echo/agent.json/echo/delete-all", "delete-all"),
        ("/agents/plain/agent.json/plain", ""),
        ("/agents/plain/agent.json/plain/invoke", ""),
    ] {
        assert_eq!(send(gate.post(path).json(&json!({}))).await.expect_ok()["operation"], operation, "{path}");
    }
    for path in ["/agents/plain/agent.json/plain/plain", "/agents/plain/plain"] {
        send(gate.post(path).json(&json!({}))).await.expect_fault(404, "CapabilityNotFound");
    }
    send(gate.post("/agents/echo/agent.json/echo/invoke").json(&json!({}))).await.expect_fault(400, "InvalidInput");
}
