//! OpenTelemetry traces: the spans of calls and what they say, and the context that callers send and agents receive.

use crate::{
    support::{
        agent::{Agent, http_response, json_response},
        closed_port::ClosedPort,
        eventually,
        gateway::{GatewayBuilder, gateway, send, translator_document},
        otlp_receiver::{OtlpReceiver, ReceivedSpan, assert_one_trace, named, only},
        websocket::{connect, connect_with_headers, echo_agent, receive_text, send_text, websocket_document},
    },
    tasks::{CALLBACK_SETTINGS, WEBHOOK_SECRET, gateway_with_tasks, task_path, wait_for_status},
};
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use serde_json::json;

const TRACE_ID: &str = "0af7651916cd43dd8448eb211c80319c";
const SAMPLED: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

/// A gateway that records every trace and exports to the receiver.
fn traced(receiver: &OtlpReceiver) -> GatewayBuilder {
    gateway().section(&receiver.section(""))
}

/// A gateway that records no trace on its own.
fn untraced(receiver: &OtlpReceiver, settings: &str) -> GatewayBuilder {
    gateway().section(&receiver.section(settings).replace("sample_ratio: 1", "sample_ratio: 0"))
}

/// The trace id, the parent and the flags of a `traceparent`.
#[track_caller]
fn context_parts(traceparent: Option<&str>) -> (String, String, String) {
    let parts: Vec<String> = traceparent.unwrap().split('-').map(str::to_owned).collect();
    assert_eq!(parts[0], "00");
    (parts[1].clone(), parts[2].clone(), parts[3].clone())
}

/// The only request span.
#[track_caller]
fn server_span(spans: &[ReceivedSpan]) -> &ReceivedSpan {
    let found: Vec<&ReceivedSpan> = spans.iter().filter(|span| span.kind == SpanKind::Server).collect();
    assert_eq!(found.len(), 1, "{spans:#?}");
    found[0]
}

#[tokio::test]
async fn a_call_is_recorded_with_all_its_steps_over_http_and_grpc() {
    for protocol in ["http", "grpc"] {
        let (receiver, agent) = (OtlpReceiver::start().await, Agent::echo().await);
        let section = receiver.section(&format!("  protocol: {protocol}\n  resource: {{region: eu}}\n"));
        let gate = gateway().document(translator_document(&agent)).section(&section).start().await;
        let input = json!({"text": "hi", "source_language": "en", "target_language": "zh"});
        let call = gate.post("/agents/agent-12345/invoke?password=hunter2").header("user-agent", "robot/1");
        let response = send(call.header("x-session-id", "s-1").json(&input)).await;
        response.expect_ok();
        let spans = receiver.wait_for("the call's spans arrive", |spans| spans.len() >= 7).await;
        let root = "POST /agents/{id}/invoke";
        assert_one_trace(&spans, root);
        let server = server_span(&spans);
        for (name, value) in [
            ("http.request.method", "POST"),
            ("http.route", "/agents/{id}/invoke"),
            ("http.response.status_code", "200"),
            ("url.path", "/agents/agent-12345/invoke"),
            ("url.scheme", "http"),
            ("server.address", "127.0.0.1"),
            ("server.port", &gate.address().port().to_string()),
            ("client.address", "127.0.0.1"),
            ("network.protocol.version", "1.1"),
            ("user_agent.original", "robot/1"),
            ("gatepost.caller", "key:team-a"),
            ("gatepost.operation", "translateText"),
            ("gatepost.request_id", response.header("x-request-id").unwrap()),
        ] {
            assert_eq!(server.get(name), value, "{name}: {server:?}");
        }
        for step in ["admission", "contract", "concurrency", "response", "invoke_agent agent-12345"] {
            let span = only(&spans, step);
            assert_eq!((&span.parent, span.kind), (&server.span_id, SpanKind::Internal), "{step}");
        }
        assert!(spans.iter().all(|span| !span.is_error && span.get("error.type").is_empty()), "{spans:#?}");
        let (invoke, attempt) = (only(&spans, "invoke_agent agent-12345"), only(&spans, "POST"));
        assert_eq!((&attempt.parent, attempt.kind), (&invoke.span_id, SpanKind::Client));
        for (name, value) in [
            ("gen_ai.operation.name", "invoke_agent"),
            ("gen_ai.agent.id", "agent-12345"),
            ("gen_ai.agent.name", "agent-12345"),
            ("gen_ai.conversation.id", "s-1"),
        ] {
            assert_eq!(invoke.get(name), value, "{name}");
        }
        assert_eq!(attempt.get("server.port"), agent.address.port().to_string());
        assert_eq!(attempt.get("http.response.status_code"), "200");
        let order = |name| only(&spans, name).start;
        assert!(order("admission") <= order("contract") && order("contract") <= order("concurrency"));
        assert!(order("concurrency") <= invoke.start && invoke.start <= order("response"));
        // The agent's parent is the attempt, and the log names the trace.
        let received = agent.requests()[0].clone();
        let expected = (server.trace_id.clone(), attempt.span_id.clone(), "01".to_owned());
        assert_eq!(context_parts(received.header("traceparent")), expected);
        assert_eq!(gate.access_log(1).await[0]["trace_id"], server.trace_id.as_str());
        let resource = receiver.resource();
        assert_eq!((resource["service.name"].as_str(), resource["region"].as_str()), ("gatepost", "eu"));
        // No secret, no query and no body.
        let everything = format!("{spans:?}{resource:?}");
        for absent in ["hunter2", "password", gate.key("team-a"), "\"hi\"", "target_language"] {
            assert!(!everything.contains(absent), "{absent}: {everything}");
        }
        eventually("the spans are counted", async || {
            gate.metric("gatepost_spans_total{result=\"exported\"}").await == Some(spans.len() as f64)
        })
        .await;
    }
}

#[tokio::test]
async fn each_refusal_is_recorded_with_its_code_and_the_step_that_refused() {
    let (receiver, agent) = (OtlpReceiver::start().await, Agent::echo().await);
    let failing = Agent::with_steps(http_response("500 No", "text/plain", "no")).await;
    let closed = ClosedPort::new();
    let mut absent = agent.document("absent");
    absent["endpoint"] = json!(format!("http://{}/", closed.address));
    let gate = traced(&receiver)
        .document(translator_document(&agent))
        .document(absent)
        .agent("failing", &failing)
        .section("limits: {per_caller: 1000/min, per_caller_agent: 2/min}\n")
        .start()
        .await;
    let mut expected = Vec::new();
    let mut seen = 0;
    for (path, key, body, code, step, is_error) in [
        ("/agents/agent-12345/invoke", "gp_wrong", "{}", "Unauthorized", "admission", false),
        ("/agents/none/invoke", gate.key("team-a"), "{}", "NotFound", "admission", false),
        ("/nowhere/token=abcdefghijkl", gate.key("team-a"), "{}", "NotFound", "admission", false),
        ("/agents/agent-12345/invoke", gate.key("team-a"), "{", "InvalidInput", "contract", false),
        ("/agents/agent-12345/invoke", gate.key("team-a"), "{}", "InvalidInput", "contract", false),
        ("/agents/agent-12345/invoke", gate.key("team-a"), "{}", "RateLimited", "admission", false),
        ("/agents/absent/invoke", gate.key("team-a"), "{}", "AgentUnavailable", "invoke_agent absent", true),
        ("/agents/failing/invoke", gate.key("team-a"), "{}", "AgentError", "POST", true),
    ] {
        let call = gate.request("POST", path).header("x-api-key", key).header("content-type", "application/json");
        let response = send(call.body(body.to_owned())).await;
        assert!(response.status >= 400, "{path}: {}", response.text());
        let id = response.header("x-request-id").unwrap().to_owned();
        let is_of_call = |span: &ReceivedSpan| span.get("gatepost.request_id") == id;
        let spans = receiver.wait_for("the refusal arrives", |spans| spans.iter().any(is_of_call)).await;
        let spans = &spans[seen..];
        seen += spans.len();
        assert_one_trace(spans, server_span(spans).name.as_str());
        let server = server_span(spans);
        assert_eq!((server.get("error.type"), server.is_error), (code, is_error), "{path}: {server:?}");
        assert_eq!(server.get("http.response.status_code"), response.status.to_string());
        assert_eq!(response.json()["error"]["trace_id"], server.trace_id.as_str(), "{path}");
        let failed = only(spans, step);
        assert!(failed.is_error, "{path}: {spans:#?}");
        expected.push(code);
    }
    let everything = format!("{:?}", receiver.spans());
    assert!(!everything.contains("abcdefghijkl") && !everything.contains("gp_wrong"), "{everything}");
}

#[tokio::test]
async fn a_malformed_request_is_recorded_and_has_no_context() {
    let receiver = OtlpReceiver::start().await;
    let agent = Agent::echo().await;
    let gate = traced(&receiver).agent("echo", &agent).start().await;
    let request = format!("POST /agents/echo/invoke HTTP/1.1\r\nHost: a\r\nHost: b\r\ntraceparent: {SAMPLED}\r\n\r\n");
    let response = crate::support::gateway_response::send_raw(gate.address(), request.as_bytes()).await.unwrap();
    assert_eq!(response.status, 400);
    let spans = receiver.wait_for("the refusal arrives", |spans| !spans.is_empty()).await;
    assert_ne!(server_span(&spans).trace_id, TRACE_ID);
}

#[tokio::test]
async fn r45_a_failover_shows_each_attempt() {
    let (receiver, agent, closed) = (OtlpReceiver::start().await, Agent::echo().await, ClosedPort::new());
    let mut document = agent.document("twin");
    document["endpoint"] = json!(format!("http://{}/invoke", closed.address));
    let rule = format!(
        "agents:\n  sources: [agents.json]\n  rules:\n    - agents: ['*']\n      settings:\n        additional_endpoints: ['{}']\n",
        agent.url()
    );
    let gate = traced(&receiver).document(document).section(&rule).start().await;
    // The endpoint that is called first varies.
    for _ in 0..2 {
        gate.invoke("twin", &json!({})).await.expect_ok();
    }
    let spans = receiver.wait_for("both calls arrive", |spans| named(spans, "POST").len() >= 3).await;
    let attempts = named(&spans, "POST");
    let failed: Vec<_> = attempts.iter().filter(|span| span.is_error).collect();
    assert_eq!(failed.len(), 1, "{attempts:#?}");
    assert_eq!(failed[0].get("error.type"), "AgentUnavailable");
    assert_eq!(failed[0].get("server.port"), closed.address.port().to_string());
    let siblings: Vec<_> = attempts.iter().filter(|span| span.parent == failed[0].parent).collect();
    assert_eq!(siblings.len(), 2, "the attempts of one call have one parent: {attempts:#?}");
    assert!(siblings.iter().any(|span| span.get("server.port") == agent.address.port().to_string()));
    let mut contexts: Vec<String> =
        agent.requests().iter().map(|request| context_parts(request.header("traceparent")).1).collect();
    contexts.dedup();
    assert_eq!(contexts.len(), 2, "each attempt is a parent of its own");
}

#[tokio::test]
async fn r45_a_retry_on_a_closed_connection_shows_both_attempts() {
    let receiver = OtlpReceiver::start().await;
    // The agent closes each connection after one response without saying so.
    let agent = Agent::scripted(|_| {
        let mut steps = json_response(&json!({"ok": true}));
        steps.push(crate::support::agent::Step::Close);
        steps
    })
    .await;
    let gate = traced(&receiver).agent("closing", &agent).start().await;
    let mut retried = false;
    for _ in 0..20 {
        gate.invoke("closing", &json!({})).await.expect_ok();
        let count = agent.call_count();
        let spans = receiver.wait_for_named("invoke_agent closing", count).await;
        retried = spans.iter().any(|span| span.get("http.request.resend_count") == "1");
        if retried {
            assert!(named(&spans, "POST").iter().any(|span| span.is_error), "{spans:#?}");
            break;
        }
    }
    // The gateway may notice each closed connection before it uses it; then there is nothing to retry.
    if !retried {
        eprintln!("no call met a connection that was closing");
    }
}

#[tokio::test]
async fn the_callers_context_continues_and_what_is_invalid_does_not() {
    let (receiver, agent) = (OtlpReceiver::start().await, Agent::echo().await);
    let gate = traced(&receiver).agent("echo", &agent).start().await;
    let invoke = async |fields: &[(&str, &str)]| {
        let call =
            fields.iter().fold(gate.post("/agents/echo/invoke"), |call, (name, value)| call.header(*name, *value));
        send(call.json(&json!({}))).await.expect_ok();
        agent.requests().last().unwrap().clone()
    };
    let fields = [("traceparent", SAMPLED), ("tracestate", "vendor=1"), ("baggage", "tenant=7")];
    let request = invoke(&fields).await;
    let (trace, parent, flags) = context_parts(request.header("traceparent"));
    assert_eq!((trace.as_str(), flags.as_str()), (TRACE_ID, "01"));
    assert_ne!(parent, "b7ad6b7169203331", "the agent's parent is the gateway's span");
    assert_eq!((request.header("tracestate"), request.header("baggage")), (Some("vendor=1"), Some("tenant=7")));
    let spans = receiver.wait_for("the call arrives", |spans| spans.len() >= 7).await;
    let server = server_span(&spans);
    assert_eq!((server.parent.as_str(), server.trace_state.as_str()), ("b7ad6b7169203331", "vendor=1"));
    for invalid in [
        "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
        "00-00000000000000000000000000000000-b7ad6b7169203331-01",
        "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "garbage",
    ] {
        let request = invoke(&[("traceparent", invalid), ("tracestate", "vendor=1")]).await;
        let (trace, ..) = context_parts(request.header("traceparent"));
        assert_ne!(trace, TRACE_ID, "{invalid}");
        assert_eq!(request.header("tracestate"), None, "{invalid}");
    }
    let long = format!("a={}", "x".repeat(8_192));
    let state = format!("a={0},b={0},c={0}", "x".repeat(200));
    let request = invoke(&[("traceparent", SAMPLED), ("tracestate", &state), ("baggage", &long)]).await;
    assert_eq!(request.header("tracestate"), Some(&state[..405]));
    assert_eq!(request.header("baggage"), None);
}

#[tokio::test]
async fn a_sampled_flag_from_outside_counts_for_nobody_by_default() {
    let (receiver, agent) = (OtlpReceiver::start().await, Agent::echo().await);
    let gate = untraced(&receiver, "").agent("echo", &agent).start().await;
    for _ in 0..20 {
        let call = gate.post("/agents/echo/invoke").header("traceparent", SAMPLED).header("tracestate", "vendor=1");
        send(call.json(&json!({}))).await.expect_ok();
    }
    for request in agent.requests() {
        let (trace, parent, flags) = context_parts(request.header("traceparent"));
        assert_eq!((trace.as_str(), flags.as_str()), (TRACE_ID, "00"), "the trace goes on, not recorded");
        assert_ne!(parent, "b7ad6b7169203331");
        assert_eq!(request.header("tracestate"), Some("vendor=1"));
    }
    assert_eq!(gate.access_log(20).await[0]["trace_id"], TRACE_ID);
    let refused = send(gate.post("/agents/unknown/invoke").header("traceparent", SAMPLED).json(&json!({}))).await;
    assert_eq!(refused.json()["error"]["trace_id"], serde_json::Value::Null, "nobody could look it up");
    tokio::time::sleep(std::time::Duration::from_millis(1_500)).await;
    assert!(receiver.spans().is_empty(), "{:?}", receiver.spans());
}

#[tokio::test]
async fn a_sampled_flag_of_a_trusted_caller_counts_up_to_the_bound() {
    let (receiver, agent) = (OtlpReceiver::start().await, Agent::echo().await);
    let trust = "  trust: {callers: ['key:ci-*']}\n  max_trusted_per_second: 2\n";
    let gate = untraced(&receiver, trust).agent("echo", &agent).caller("ci-1", &[]).caller("other", &[]).start().await;
    let call = async |key: &str, traceparent: &str| {
        let call = gate.request("POST", "/agents/echo/invoke").header("traceparent", traceparent);
        send(call.header("x-api-key", key).json(&json!({}))).await
    };
    let unsampled = "00-1af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";
    call(gate.key("other"), SAMPLED).await.expect_ok();
    call("gp_wrong", SAMPLED).await.expect_fault(401, "Unauthorized");
    call(gate.key("ci-1"), unsampled).await.expect_ok();
    for _ in 0..12 {
        call(gate.key("ci-1"), SAMPLED).await.expect_ok();
    }
    let servers = |spans: &[ReceivedSpan]| spans.iter().filter(|span| span.kind == SpanKind::Server).count();
    let spans = receiver.wait_for("a trusted call arrives", |spans| servers(spans) >= 2).await;
    assert!(spans.iter().all(|span| span.trace_id == TRACE_ID), "{spans:#?}");
    let recorded = spans.iter().filter(|span| span.kind == SpanKind::Server);
    assert!(recorded.clone().all(|span| span.get("gatepost.caller") == "key:ci-1"), "{spans:#?}");
    // Two in each second in which the calls fell.
    assert!((2..=6).contains(&recorded.count()), "{spans:#?}");
    // The steps before the decision are recorded too.
    assert_eq!(named(&spans, "admission").len(), servers(&spans));
}

#[tokio::test]
async fn without_the_section_the_callers_context_passes_as_it_is() {
    let agent = Agent::echo().await;
    let gate = gateway().agent("echo", &agent).start().await;
    let call = gate.post("/agents/echo/invoke").header("traceparent", "not even valid").header("tracestate", "=");
    send(call.header("baggage", "a=1").json(&json!({}))).await.expect_ok();
    gate.invoke("echo", &json!({})).await.expect_ok();
    let requests = agent.requests();
    assert_eq!(requests[0].header("traceparent"), Some("not even valid"));
    assert_eq!((requests[0].header("tracestate"), requests[0].header("baggage")), (Some("="), Some("a=1")));
    assert_eq!(requests[1].header("traceparent"), None);
}

#[tokio::test]
async fn a_pipeline_is_one_trace() {
    let (receiver, first, second) = (OtlpReceiver::start().await, Agent::echo().await, Agent::echo().await);
    let gate = traced(&receiver).agent("a", &first).agent("b", &second).start().await;
    let definition = json!({"steps": [{"agent": "a"}, {"agent": "b"}], "input": {"text": "hi"}});
    let call = gate.post("/pipelines/invoke").header("traceparent", SAMPLED).json(&definition);
    send(call).await.expect_ok();
    let spans = receiver.wait_for_named("POST /pipelines/invoke", 1).await;
    assert_one_trace(&spans, "POST /pipelines/invoke");
    let pipeline = server_span(&spans);
    assert_eq!((pipeline.trace_id.as_str(), pipeline.parent.as_str()), (TRACE_ID, "b7ad6b7169203331"));
    let steps = named(&spans, "pipeline step");
    assert_eq!(steps.len(), 2);
    for (step, (agent, name)) in steps.iter().zip([(&first, "a"), (&second, "b")]) {
        assert_eq!((&step.parent, step.get("gen_ai.agent.id")), (&pipeline.span_id, name));
        let invoke = only(&spans, &format!("invoke_agent {name}"));
        assert_eq!(invoke.parent, step.span_id);
        let (trace, parent, _) = context_parts(agent.requests()[0].header("traceparent"));
        let attempt = spans.iter().find(|span| span.span_id == parent).unwrap();
        assert_eq!((trace.as_str(), &attempt.parent), (TRACE_ID, &invoke.span_id));
    }
}

#[tokio::test]
async fn each_item_of_a_batch_has_a_call_of_its_own() {
    let (receiver, agent) = (OtlpReceiver::start().await, Agent::echo().await);
    let gate = traced(&receiver).document(translator_document(&agent)).start().await;
    let input = json!({"text": "hi", "source_language": "en", "target_language": "zh"});
    gate.invoke("agent-12345", &json!([input, input, input])).await.expect_ok();
    let spans = receiver.wait_for_named("POST /agents/{id}/invoke", 1).await;
    assert_one_trace(&spans, "POST /agents/{id}/invoke");
    assert_eq!(named(&spans, "invoke_agent agent-12345").len(), 3);
    assert_eq!(named(&spans, "POST").len(), 3);
}

#[tokio::test]
async fn r79_a_task_and_its_webhook_are_in_the_trace_of_the_call() {
    let (receiver, agent) = (OtlpReceiver::start().await, Agent::echo().await);
    let webhook = Agent::with_steps(http_response("204 No Content", "text/plain", "")).await;
    let gate = gateway_with_tasks(CALLBACK_SETTINGS)
        .env("HOOK_SECRET", WEBHOOK_SECRET)
        .agent("echo", &agent)
        .section(&receiver.section(""))
        .start()
        .await;
    let url = format!("http://{}/hook", webhook.address);
    let call = gate.post("/agents/echo/invoke").header("x-callback-url", &url).header("traceparent", SAMPLED);
    let path = task_path(&send(call.json(&json!({"a": 1}))).await);
    let spans = receiver.wait_for_named("webhook", 1).await;
    // The requests for the task's state are traces of their own.
    let spans: Vec<ReceivedSpan> = spans.into_iter().filter(|span| span.trace_id == TRACE_ID).collect();
    assert_one_trace(&spans, "POST /agents/{id}/invoke");
    let (call, task) = (server_span(&spans), only(&spans, "task"));
    assert_eq!(task.parent, call.span_id);
    assert_eq!(task.links, [(TRACE_ID.to_owned(), call.span_id.clone())]);
    assert_eq!(only(&spans, "invoke_agent echo").parent, task.span_id);
    let hook = only(&spans, "webhook");
    assert_eq!((&hook.parent, hook.kind), (&call.span_id, SpanKind::Client));
    let (trace, parent, flags) = context_parts(webhook.requests()[0].header("traceparent"));
    assert_eq!((trace.as_str(), &parent, flags.as_str()), (TRACE_ID, &hook.span_id, "01"));
    let task = wait_for_status(&gate, &path, "completed").await;
    assert!(!task.to_string().contains(TRACE_ID), "the context is no part of the task: {task}");
}

#[tokio::test]
async fn each_message_of_a_websocket_is_a_trace_that_links_to_the_handshake() {
    let (receiver, agent) = (OtlpReceiver::start().await, Agent::echo().await);
    let gate = traced(&receiver).agent("echo", &agent).start().await;
    let mut socket = connect(&gate, "/agents/echo/invoke").await;
    for _ in 0..2 {
        send_text(&mut socket, "{}").await;
        receive_text(&mut socket).await;
    }
    drop(socket);
    let spans = receiver.wait_for_named("GET /agents/{id}/invoke", 1).await;
    let handshake = only(&spans, "GET /agents/{id}/invoke");
    let messages = named(&spans, "websocket message");
    assert_eq!(messages.len(), 2);
    for message in &messages {
        assert_ne!(message.trace_id, handshake.trace_id);
        assert_eq!(message.links, [(handshake.trace_id.clone(), handshake.span_id.clone())]);
    }
    assert_ne!(messages[0].trace_id, messages[1].trace_id);
}

#[tokio::test]
async fn the_handshake_with_an_agents_websocket_carries_the_context() {
    let receiver = OtlpReceiver::start().await;
    let (agent, record) = echo_agent().await;
    let gate = traced(&receiver).document(websocket_document(&agent, "talk")).start().await;
    let call = gate.post("/agents/talk/invoke").header("traceparent", SAMPLED);
    send(call.json(&json!({"a": 1}))).await.expect_ok();
    let spans = receiver.wait_for_named("websocket call", 1).await;
    let attempt = only(&spans, "websocket call");
    let (trace, parent, _) = context_parts(record.handshake_header("traceparent").as_deref());
    assert_eq!((trace.as_str(), &parent), (TRACE_ID, &attempt.span_id));
    let headers = [("x-api-key", gate.key("team-a")), ("traceparent", SAMPLED)];
    drop(connect_with_headers(&gate, "/agents/talk/invoke", &headers).await);
    let spans = receiver.wait_for_named("GET /agents/{id}/invoke", 1).await;
    assert!(spans.iter().all(|span| span.trace_id == TRACE_ID), "{spans:#?}");
}

#[tokio::test]
async fn r8_spans_name_callers_and_addresses_as_the_access_log_does() {
    let (receiver, agent) = (OtlpReceiver::start().await, Agent::echo().await);
    let log = "access_log: {output: access.log, callers: pseudonym, addresses: omitted}\n";
    let gate = traced(&receiver).agent("echo", &agent).section(log).start().await;
    gate.invoke("echo", &json!({})).await.expect_ok();
    let spans = receiver.wait_for_named("POST /agents/{id}/invoke", 1).await;
    let server = server_span(&spans);
    let logged = gate.access_log(1).await[0]["caller"].as_str().unwrap().to_owned();
    assert!(logged.starts_with("pseudonym:"), "{logged}");
    assert_eq!((server.get("gatepost.caller"), server.get("client.address")), (logged.as_str(), ""));
    assert!(!format!("{spans:?}").contains("team-a"), "{spans:#?}");
}
