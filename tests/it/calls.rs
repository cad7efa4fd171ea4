//! Calls end to end: choice of the operation, validation, batches, forwarding.

use crate::support::{
    agent::{self, Agent, http_response, json_response, write},
    gateway::{gateway, send, translator_document},
    gateway_response::read_response,
};
use serde_json::{Value, json};
use tokio::{io::AsyncWriteExt, net::TcpStream};

#[tokio::test]
async fn r27_r33_an_invocation_is_forwarded_byte_for_byte_and_the_response_is_returned() {
    let echo = Agent::echo().await;
    let gate = gateway().document(translator_document(&echo)).start().await;
    let body = "{ \"text\":\"你好世界\", \"source_language\" : \"zh\",\n\"target_language\":\"en\"}";
    let call = gate.post("/agents/agent-12345/invoke").header("content-type", "application/json").body(body);
    let response = send(call).await;
    response.expect_ok();
    assert_eq!(echo.requests()[0].body, body.as_bytes());
    assert!(response.header("x-request-id").is_some());
}

#[tokio::test]
async fn r32_the_example_of_the_draft_violates_its_schema_and_does_not_reach_the_agent() {
    let echo = Agent::echo().await;
    let gate = gateway().document(translator_document(&echo)).start().await;
    let input = json!({"text": "Hello, how are you?", "source_language": "en", "target_language": "fr"});
    let error = gate.invoke("agent-12345", &input).await.expect_fault(400, "InvalidInput");
    assert_eq!(error["details"][0]["pointer"], "/target_language");
    assert_eq!(echo.call_count(), 0);
}

#[tokio::test]
async fn r36_all_violations_are_reported_at_once() {
    let echo = Agent::echo().await;
    let gate = gateway().document(translator_document(&echo)).start().await;
    let error = gate.invoke("agent-12345", &json!({"text": 1})).await.expect_fault(400, "InvalidInput");
    assert_eq!(error["details"].as_array().unwrap().len(), 3, "{error}");
}

#[tokio::test]
async fn malformed_bodies_are_refused() {
    let echo = Agent::echo().await;
    let gate = gateway().document(translator_document(&echo)).start().await;
    let deep = format!("{}1{}", "[".repeat(100), "]".repeat(100));
    let bodies: &[(&[u8], u16)] = &[
        (b"", 400),
        (b"{", 400),
        (b"{\"a\":1,\"a\":2}", 400),
        (b"{\"a\":\"\xff\"}", 400),
        (b"{} {}", 400),
        (b"\xef\xbb\xbf{}", 400),
        (b"NaN", 400),
        (deep.as_bytes(), 400),
    ];
    for (body, status) in bodies {
        let call =
            gate.post("/agents/agent-12345/invoke").header("content-type", "application/json").body(body.to_vec());
        send(call).await.expect_fault(*status, "InvalidInput");
    }
    let large = vec![b' '; (1 << 20) + 1];
    let call = gate.post("/agents/agent-12345/invoke").header("content-type", "application/json").body(large);
    send(call).await.expect_fault(413, "PayloadTooLarge");
    let call = gate.post("/agents/agent-12345/invoke").header("content-type", "text/plain").body("{}");
    send(call).await.expect_fault(415, "UnsupportedMediaType");
    assert_eq!(echo.call_count(), 0);
}

fn two_operations(agent: &Agent) -> Value {
    let mut document = agent.document("two");
    document["operations"] = json!([
        {"name": "translate", "inputs": {"type": "object", "required": ["text"], "additionalProperties": false, "properties": {"text": {"type": "string"}}}},
        {"name": "detect", "inputs": {"type": "object", "required": ["sample"], "properties": {"sample": {"type": "string"}}}},
    ]);
    document
}

#[tokio::test]
async fn r30_an_operation_is_named_by_path_header_or_body_in_that_order() {
    let echo = Agent::echo().await;
    let gate = gateway().document(two_operations(&echo)).start().await;
    let text = json!({"text": "x"});
    for path in ["/agents/two/translate", "/agents/two/invoke/translate", "/agents/two/translate/"] {
        send(gate.post(path).json(&text)).await.expect_ok();
    }
    send(gate.post("/agents/two/invoke").header("x-operation", "translate").json(&text)).await.expect_ok();
    send(gate.post("/agents/two/translate").header("x-operation", "detect").json(&text)).await.expect_ok();
    gate.invoke("two", &json!({"operation": "translate", "text": "x"})).await.expect_ok();
    assert_eq!(echo.requests().last().unwrap().json()["operation"], "translate", "the body is forwarded unchanged");
    assert_eq!(echo.requests().last().unwrap().header("x-operation"), Some("translate"));
}

#[tokio::test]
async fn r30_r95_an_unknown_or_missing_operation_is_refused() {
    let echo = Agent::echo().await;
    let gate = gateway().document(two_operations(&echo)).document(translator_document(&echo)).start().await;
    gate.invoke("two", &json!({"text": "x"})).await.expect_fault(400, "InvalidInput");
    gate.invoke("two", &json!({"operation": "fly"})).await.expect_fault(404, "CapabilityNotFound");
    send(gate.post("/agents/two/fly").json(&json!({}))).await.expect_fault(404, "CapabilityNotFound");
    gate.invoke("agent-12345", &json!({"operation": "fly"})).await.expect_fault(404, "CapabilityNotFound");
    assert_eq!(echo.call_count(), 0);
}

#[tokio::test]
async fn r49_the_query_of_a_get_is_converted_to_the_types_of_the_schema() {
    let echo = Agent::echo().await;
    let mut document = echo.document("calc");
    document["inputs"] = json!({"type": "object", "properties": {"n": {"type": "integer"}, "exact": {"type": "boolean"}}, "required": ["n"]});
    let gate = gateway().document(document).start().await;
    let get = |path: &str| gate.request("GET", path).header("x-api-key", gate.key("team-a"));
    send(get("/agents/calc/invoke?n=3&exact=true&name=a%20b")).await.expect_ok();
    assert_eq!(echo.requests()[0].json(), json!({"n": 3, "exact": true, "name": "a b"}));
    assert!(echo.requests()[0].head.starts_with("POST /invoke "));
    send(get("/agents/calc/invoke?n=three")).await.expect_fault(400, "InvalidInput");
    send(get("/agents/calc/invoke")).await.expect_fault(400, "InvalidInput");
}

#[tokio::test]
async fn r75_a_call_whose_accept_excludes_every_format_is_406_and_does_not_reach_the_agent() {
    let echo = Agent::echo().await;
    let gate = gateway().document(translator_document(&echo)).agent("untyped", &echo).start().await;
    let input = json!({"text": "hi", "source_language": "en", "target_language": "zh"});
    let invoke_accepting = async |id: &str, accept: &str| {
        send(gate.post(&format!("/agents/{id}/invoke")).header("accept", accept).json(&input)).await
    };
    for refused in ["image/png", "text/html, image/*", "application/json;q=0", "*/*;q=0"] {
        let error = invoke_accepting("agent-12345", refused).await.expect_fault(406, "NotAcceptable");
        assert!(error["message"].as_str().unwrap().contains("application/json"), "{refused}: {error}");
    }
    assert_eq!(echo.call_count(), 0);
    for accepted in ["application/json", "text/html, */*;q=0.1", "application/*", "text/event-stream"] {
        assert_eq!(invoke_accepting("agent-12345", accepted).await.status, 200, "{accepted}");
    }
    // Without an output schema, the format is the agent's decision.
    assert_eq!(invoke_accepting("untyped", "image/png").await.status, 200);
}

#[tokio::test]
async fn r83_r86_status_confidence_and_trace_of_an_answer_reach_the_caller_unchanged() {
    let answer = r#"{"status":"completed","confidence":0.830,"sourceAgent":"x","taskTrace":["a","b"],"timeTaken":"1.2s","result":{"n":1.10}}"#;
    let agent = Agent::with_steps(http_response("200 OK", "application/json", answer)).await;
    let gate = gateway().agent("planner", &agent).start().await;
    let response = gate.invoke("planner", &json!({})).await;
    response.expect_ok();
    assert_eq!(response.text(), answer);
}

#[tokio::test]
async fn r44_the_items_of_a_batch_are_called_separately_and_answered_in_order() {
    let agent = Agent::scripted(|request| match request.json()["text"].as_str() {
        Some("fail") => http_response("500 Internal Server Error", "text/plain", "boom at /srv/app.py"),
        text => json_response(&json!({"translated_text": text})),
    })
    .await;
    let gate = gateway().document(translator_document(&agent)).start().await;
    let item = |text: &str| json!({"text": text, "source_language": "en", "target_language": "zh"});
    let batch = json!([item("a"), {"text": 1}, item("fail"), item("b")]);
    let response = gate.invoke("agent-12345", &batch).await;
    let results = response.expect_ok();
    assert_eq!(results[0]["translated_text"], "a");
    assert_eq!(results[1]["error"]["code"], "InvalidInput");
    assert_eq!(results[2]["error"]["code"], "AgentError");
    assert_eq!(results[3]["translated_text"], "b");
    response.assert_hides(&["boom", "app.py"]);
    assert_eq!(agent.call_count(), 3);
    assert_eq!(gate.invoke("agent-12345", &json!([])).await.expect_ok(), json!([]));
    gate.invoke("agent-12345", &Value::Array(vec![item("a"); 101])).await.expect_fault(400, "InvalidInput");
}

#[tokio::test]
async fn r40_r44_an_item_of_a_batch_whose_reply_states_a_failure_is_an_error() {
    let agent = Agent::scripted(|request| match request.json()["text"].as_str() {
        Some("stated") => json_response(&json!({"success": false, "message": "boom at /srv/app.py"})),
        Some("beside data") => json_response(&json!({"error": "boom at /srv/app.py", "data": {"n": 1}})),
        _ => json_response(&json!({"success": false, "translated_text": "kept"})),
    })
    .await;
    let gate = gateway().document(translator_document(&agent)).start().await;
    let item = |text: &str| json!({"text": text, "source_language": "en", "target_language": "zh"});
    let response = gate.invoke("agent-12345", &json!([item("stated"), item("beside data"), item("a result")])).await;
    let results = response.expect_ok();
    assert_eq!(results[0]["error"]["code"], "AgentError");
    assert_eq!(results[1]["error"]["code"], "AgentError");
    assert_eq!(results[2]["translated_text"], "kept");
    response.assert_hides(&["boom", "app.py"]);
}

#[tokio::test]
async fn r44_an_agent_that_accepts_batches_gets_the_array_unchanged() {
    let echo = Agent::echo().await;
    let mut document = translator_document(&echo);
    document["batch"] = json!(true);
    let gate = gateway().document(document).start().await;
    let item = json!({"text": "a", "source_language": "en", "target_language": "zh"});
    gate.invoke("agent-12345", &json!([item, item])).await.expect_ok();
    assert_eq!(echo.call_count(), 1);
    let error = gate.invoke("agent-12345", &json!([item, {}])).await.expect_fault(400, "InvalidInput");
    assert_eq!(error["details"][0]["pointer"], "/1");
}

#[tokio::test]
async fn bodies_beyond_64_kib_are_forwarded_with_and_without_validation() {
    let agent = Agent::scripted(|request| json_response(&json!({"bytes": request.body.len()}))).await;
    let mut open = agent.document("open");
    open["batch"] = json!(true);
    let gate = gateway().document(translator_document(&agent)).document(open).start().await;
    for size in [65_535, 65_536, 65_537, 900_000] {
        let body = json!({"text": "x".repeat(size), "source_language": "en", "target_language": "zh"}).to_string();
        let call =
            gate.post("/agents/agent-12345/invoke").header("content-type", "application/json").body(body.clone());
        assert_eq!(send(call).await.expect_ok()["bytes"], body.len());
        let call =
            gate.post("/agents/open/invoke").header("content-type", "application/octet-stream").body(vec![7; size]);
        assert_eq!(send(call).await.expect_ok()["bytes"], size);
    }
}

#[tokio::test]
async fn r4_r34_callers_credentials_are_removed_and_the_gateways_credential_is_added() {
    let echo = Agent::echo().await;
    let gate = gateway()
        .agent("echo", &echo)
        .env("AGENT_TOKEN", "gateway-secret")
        .section("agents:\n  sources: [agents.json]\n  defaults:\n    credential: {value: env:AGENT_TOKEN, destinations: {sources: [files]}}\n")
        .start()
        .await;
    let call = gate
        .post("/agents/echo/invoke?lang=en")
        .header("cookie", "a=b")
        .header("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
    let call = call
        .header("x-request-id", "mine-1")
        .header("x-session-id", "s1")
        .header("connection", "x-hop")
        .header("x-hop", "1");
    let response = send(call.json(&json!({}))).await;
    response.expect_ok();
    assert_eq!(response.header("x-request-id"), Some("mine-1"));
    let request = &echo.requests()[0];
    assert_eq!(request.header("authorization"), Some("Bearer gateway-secret"));
    assert!(request.head.starts_with("POST /invoke?lang=en HTTP/1.1\r\n"), "{}", request.head);
    for removed in ["x-api-key", "cookie", "x-hop"] {
        assert_eq!(request.header(removed), None, "{removed}");
    }
    assert!(!request.head.contains("gp_"));
    assert_eq!(request.header("x-session-id"), Some("s1"));
    assert_eq!(request.header("x-request-id"), Some("mine-1"));
    assert!(request.header("traceparent").is_some());
    assert!(request.header("forwarded").unwrap().contains("for=127.0.0.1"));
    assert!(request.header("x-request-timeout").is_some());
}

#[tokio::test]
async fn forwarded_names_the_host_of_each_request_of_a_connection() {
    let echo = Agent::echo().await;
    let gate = gateway().agent("echo", &echo).start().await;
    let mut caller = TcpStream::connect(gate.address()).await.unwrap();
    for host in ["one.example", "one.example", "two.example:8443", "one.example"] {
        let head = format!(
            "POST /agents/echo/invoke HTTP/1.1\r\nHost: {host}\r\nX-API-Key: {}\r\nContent-Length: 2\r\n\r\n{{}}",
            gate.key("team-a")
        );
        caller.write_all(head.as_bytes()).await.unwrap();
        assert_eq!(read_response(&mut caller).await.unwrap().status, 200);
        let forwarded = echo.requests().last().unwrap().header("forwarded").unwrap().replace('"', "");
        assert_eq!(forwarded, format!("for=127.0.0.1;proto=http;host={host}"));
    }
}

#[tokio::test]
async fn r43_a_stream_is_forwarded_event_by_event() {
    let steps = vec![
        write("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"),
        write("9\r\ndata: 1\n\n\r\n"),
        agent::Step::Sleep(std::time::Duration::from_millis(200)),
        write("9\r\ndata: 2\n\n\r\n0\r\n\r\n"),
    ];
    let agent = Agent::with_steps(steps).await;
    let gate = gateway().agent("stream", &agent).start().await;
    let mut response = gate.post("/agents/stream/invoke").json(&json!({})).send().await.unwrap();
    let first = response.chunk().await.unwrap().unwrap();
    let start = std::time::Instant::now();
    assert_eq!(first, "data: 1\n\n");
    let second = response.chunk().await.unwrap().unwrap();
    assert!(start.elapsed().as_millis() > 100, "the first event was delayed");
    assert_eq!(second, "data: 2\n\n");
    assert!(response.chunk().await.unwrap().is_none());
}

#[tokio::test]
async fn r43_a_stream_whose_agent_dies_ends_with_an_error_event() {
    let steps = vec![
        write("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"),
        write("11\r\ndata: 1\n\ndata: ha\r\n"),
        agent::Step::Close,
    ];
    let agent = Agent::with_steps(steps).await;
    let gate = gateway().agent("stream", &agent).start().await;
    let text = send(gate.post("/agents/stream/invoke").json(&json!({}))).await.text();
    let (events, error) = text.split_once("event: error\ndata: ").unwrap();
    assert_eq!(events, "data: 1\n\n");
    let error: Value = serde_json::from_str(error.trim_end()).unwrap();
    assert_eq!(error["error"]["code"], "AgentError");
    assert!(text.ends_with("\n\n"));
}
