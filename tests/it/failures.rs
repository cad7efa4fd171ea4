//! Failures of agents, as the caller and the access log see them.

use crate::support::{
    agent::{Agent, ReceivedRequest, Step, http_response, json_response, write},
    closed_port::ClosedPort,
    eventually,
    gateway::{Gateway, gateway, send},
    gateway_response::{GatewayResponse, send_raw},
};
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use tokio::net::TcpSocket;

/// A word in agents' responses that must be in the access log but not reach the caller.
const INTERNAL_WORD: &str = "kaboomed";

/// A failure of an agent, and the expected response.
struct Case {
    id: &'static str,
    steps: Vec<Step>,
    status: u16,
    code: &'static str,
    /// A text that the access log entry must contain.
    logged: &'static str,
}

fn case(id: &'static str, steps: Vec<Step>, status: u16, code: &'static str, logged: &'static str) -> Case {
    Case { id, steps, status, code, logged }
}

/// Writes the text and closes the connection.
fn raw_response(text: &str) -> Vec<Step> {
    vec![write(text), Step::Close]
}

fn json_with_status(status: &str, body: Value) -> Vec<Step> {
    http_response(status, "application/json", &body.to_string())
}

/// Starts an agent that answers each path with the steps of the case of that name, and a gateway with an agent for each
/// case. The log has the bodies of errors, so that each case is known by what its agent sent.
async fn start_cases(cases: &[Case], sections: &[&str]) -> (Gateway, Agent) {
    let steps: Vec<(String, Vec<Step>)> =
        cases.iter().map(|case| (format!("/{} ", case.id), case.steps.clone())).collect();
    let agent = Agent::scripted(move |request| {
        steps.iter().find(|(path, _)| request.head.contains(path)).map(|(_, steps)| steps.clone()).unwrap_or_default()
    })
    .await;
    let mut build = gateway();
    for case in cases {
        let mut document = agent.document(case.id);
        document["endpoint"] = json!(format!("http://{}/{}", agent.address, case.id));
        build = build.document(document);
    }
    for section in sections {
        build = build.section(section);
    }
    (build.section("errors: {log_agent_bodies: true}\n").start().await, agent)
}

/// Calls the agent of each case, and checks the response and its access log entry.
async fn check_cases(gate: &Gateway, cases: &[Case]) {
    for case in cases {
        let response = gate.invoke(case.id, &json!({})).await;
        assert_eq!(response.status, case.status, "{}: {}", case.id, response.text());
        let error = response.expect_fault(case.status, case.code);
        response.assert_hides(&[INTERNAL_WORD, "/srv/app", "127.0.0.1", "hyper", "Traceback", "<html"]);
        let entry = entry_of(gate, error["request_id"].as_str().unwrap()).await;
        assert_eq!(entry["code"], case.code, "{}: {entry}", case.id);
        assert_eq!(entry["status"], case.status, "{}: {entry}", case.id);
        assert_eq!(entry["agent"], case.id, "{entry}");
        let detail = entry["detail"].as_str().unwrap_or_default();
        assert!(detail.contains(case.logged), "{}: '{}' is not in the log: {entry}", case.id, case.logged);
    }
}

/// Waits for the access log entry with this request id.
async fn entry_of(gate: &Gateway, id: &str) -> Value {
    let mut found = None;
    eventually("the call is in the access log", async || {
        found = gate.access_log(0).await.into_iter().find(|entry| entry["request_id"] == id);
        found.is_some()
    })
    .await;
    found.unwrap()
}

#[tokio::test]
async fn r38_r41_invalid_http_of_an_agent_is_one_error_for_the_caller_and_detailed_in_the_log() {
    let json_head = |fields: &str| format!("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n{fields}\r\n");
    let large_header = format!("X-Large: {}\r\nContent-Length: 2\r\n", "x".repeat(100 << 10));
    let cases = [
        case("closes", vec![Step::Close], 502, "AgentError", "connection"),
        case("resets", vec![Step::Reset], 502, "AgentError", "connection"),
        case("garbage", raw_response("SSH-2.0-OpenSSH_9.2p1 kaboomed\r\n\r\n"), 502, "AgentError", "invalid HTTP"),
        case("binary", vec![write(vec![0, 255, 1, 13, 10, 13, 10]), Step::Close], 502, "AgentError", "HTTP"),
        case("no-head-end", raw_response("HTTP/1.1 200 OK\r\nContent-Le"), 502, "AgentError", "connection"),
        case(
            "two-lengths",
            raw_response(&(json_head("Content-Length: 2\r\nContent-Length: 3\r\n") + "{}x")),
            502,
            "AgentError",
            "",
        ),
        case(
            "length-and-chunked",
            raw_response(&(json_head("Content-Length: 2\r\nTransfer-Encoding: chunked\r\n") + "2\r\n{}\r\n0\r\n\r\n")),
            502,
            "AgentError",
            "Transfer-Encoding",
        ),
        case(
            "gzip-coding",
            raw_response(&(json_head("Transfer-Encoding: gzip, chunked\r\n") + "2\r\n{}\r\n0\r\n\r\n")),
            502,
            "AgentError",
            "transfer coding",
        ),
        case("bad-length", raw_response(&(json_head("Content-Length: two\r\n") + "{}")), 502, "AgentError", ""),
        case(
            "truncated-length",
            raw_response(&(json_head("Content-Length: 100\r\n") + "{\"a\":")),
            502,
            "AgentError",
            "message",
        ),
        case("truncated-json", json_body("{\"translated\": \"kaboomed"), 502, "AgentError", INTERNAL_WORD),
        case("large-head", raw_response(&(json_head(&large_header) + "{}")), 502, "AgentError", ""),
        case("status-99", raw_response("HTTP/1.1 99 Odd\r\nContent-Length: 0\r\n\r\n"), 502, "AgentError", ""),
        case("status-799", raw_response("HTTP/1.1 799 Odd\r\nContent-Length: 0\r\n\r\n"), 502, "AgentError", "799"),
        case(
            "switches",
            raw_response("HTTP/1.1 101 Switching Protocols\r\nUpgrade: kaboomed\r\nConnection: upgrade\r\n\r\n"),
            502,
            "AgentError",
            "101",
        ),
        case("http-2", raw_response("HTTP/2 200 OK\r\nContent-Length: 2\r\n\r\n{}"), 502, "AgentError", ""),
    ];
    let (gate, _agent) = start_cases(&cases, &[]).await;
    check_cases(&gate, &cases).await;
}

fn json_body(body: &str) -> Vec<Step> {
    http_response("200 OK", "application/json", body)
}

#[tokio::test]
#[allow(clippy::too_many_lines, reason = "a table of cases is long without being hard to read")]
async fn r36_r40_every_error_format_of_agents_becomes_the_error_object() {
    let html = "<html><body>502 Bad Gateway at kaboomed</body></html>";
    let gzip = {
        let mut bytes = b"HTTP/1.1 500 Oops\r\nContent-Type: application/json\r\nContent-Encoding: gzip\r\nContent-Length: 8\r\nX-Powered-By: kaboomed\r\n\r\n".to_vec();
        bytes.extend_from_slice(&[0x1f, 0x8b, 8, 0, 0, 0, 0, 0]);
        vec![write(bytes)]
    };
    let deep = format!("{}{}", "[".repeat(100), "]".repeat(100));
    let large = "kaboomed ".repeat(100_000);
    let cases = [
        case("html", http_response("502 Bad Gateway", "text/html", html), 502, "AgentError", INTERNAL_WORD),
        case(
            "plain",
            http_response("500 Internal Server Error", "text/plain", "Internal Server Error kaboomed"),
            500,
            "AgentError",
            INTERNAL_WORD,
        ),
        case(
            "detail",
            json_with_status("500 Oops", json!({"detail": "kaboomed in /srv/app/main.py"})),
            500,
            "AgentError",
            INTERNAL_WORD,
        ),
        case(
            "detail-404",
            json_with_status("404 Not Found", json!({"detail": "kaboomed: [4041] in /srv/app/x.py"})),
            404,
            "CapabilityNotFound",
            INTERNAL_WORD,
        ),
        case("bare-404", http_response("404 Not Found", "text/html", html), 502, "AgentError", INTERNAL_WORD),
        case("bare-405", http_response("405 Method Not Allowed", "text/html", html), 502, "AgentError", INTERNAL_WORD),
        case(
            "graphql",
            json_body(r#"{"errors":[{"message":"kaboomed","path":["a"]}],"data":null}"#),
            502,
            "AgentError",
            INTERNAL_WORD,
        ),
        case("raw-200", json_body(r#"{"error":"kaboomed at /srv/app/x.py line 3"}"#), 502, "AgentError", INTERNAL_WORD),
        case(
            "raw-500",
            json_with_status("500 Oops", json!({"error": "kaboomed at /srv/app/x.py"})),
            500,
            "AgentError",
            INTERNAL_WORD,
        ),
        case(
            "langgraph",
            json_body(r#"{"__error__":{"error":"ValueError","message":"kaboomed"}}"#),
            502,
            "AgentError",
            INTERNAL_WORD,
        ),
        case(
            "framework",
            json_with_status("500 Oops", json!({"error": {"code": "internal_error", "message": "kaboomed"}})),
            500,
            "AgentError",
            INTERNAL_WORD,
        ),
        case(
            "embedded-200",
            json_body(r#"{"error":{"code":"InvalidInput","message":"kaboomed at /srv/app/x.py"}}"#),
            400,
            "InvalidInput",
            INTERNAL_WORD,
        ),
        case(
            "agent-401",
            http_response("401 Unauthorized", "text/plain", "kaboomed"),
            502,
            "AgentError",
            INTERNAL_WORD,
        ),
        case(
            "agent-403",
            json_with_status("403 Forbidden", json!({"error": {"code": "Denied", "message": "kaboomed at /srv/app"}})),
            403,
            "PermissionDenied",
            INTERNAL_WORD,
        ),
        case("agent-407", http_response("407 Proxy", "text/plain", "kaboomed"), 502, "AgentError", INTERNAL_WORD),
        case(
            "moved",
            raw_response("HTTP/1.1 302 Found\r\nLocation: http://kaboomed/\r\nContent-Length: 0\r\n\r\n"),
            502,
            "AgentError",
            INTERNAL_WORD,
        ),
        case(
            "temporary-redirect",
            raw_response("HTTP/1.1 307 T\r\nLocation: http://kaboomed/\r\nContent-Length: 0\r\n\r\n"),
            502,
            "AgentError",
            INTERNAL_WORD,
        ),
        case(
            "unmodified",
            raw_response("HTTP/1.1 304 Not Modified\r\nETag: kaboomed\r\n\r\n"),
            502,
            "AgentError",
            "304",
        ),
        case(
            "empty-500",
            raw_response("HTTP/1.1 500 \r\nContent-Length: 0\r\nServer: kaboomed\r\n\r\n"),
            500,
            "AgentError",
            "500",
        ),
        case("empty-502", raw_response("HTTP/1.1 502\r\nContent-Length: 0\r\n\r\n"), 502, "AgentError", "502"),
        case("empty-504", raw_response("HTTP/1.1 504 T\r\nContent-Length: 0\r\n\r\n"), 504, "Timeout", "504"),
        case("empty-close", raw_response("HTTP/1.1 500 T\r\n\r\n"), 500, "AgentError", "500"),
        case("gzip-500", gzip, 500, "AgentError", "500"),
        case(
            "dying-500",
            raw_response(
                "HTTP/1.1 500 T\r\nContent-Type: application/json\r\nContent-Length: 900\r\n\r\n{\"error\":\"kaboomed",
            ),
            500,
            "AgentError",
            "500",
        ),
        case(
            "dying-chunked",
            raw_response("HTTP/1.1 500 T\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nkabo"),
            500,
            "AgentError",
            "500",
        ),
        case("deep-500", json_with_status("500 T", serde_json::from_str(&deep).unwrap()), 500, "AgentError", "500"),
        case("large-500", http_response("500 T", "text/plain", &large), 500, "AgentError", INTERNAL_WORD),
        case(
            "busy",
            json_with_status("409 Conflict", json!({"error": {"message": "kaboomed, see /srv/app/x.py"}})),
            409,
            "Conflict",
            INTERNAL_WORD,
        ),
        case("teapot", http_response("418 T", "text/plain", "kaboomed"), 502, "AgentError", INTERNAL_WORD),
        case(
            "limited",
            http_response("429 T", "text/plain", "kaboomed at /srv/app"),
            429,
            "RateLimited",
            INTERNAL_WORD,
        ),
        case("away", http_response("503 T", "text/plain", "kaboomed"), 503, "AgentUnavailable", INTERNAL_WORD),
    ];
    let (gate, _agent) = start_cases(&cases, &[]).await;
    check_cases(&gate, &cases).await;
}

#[tokio::test]
async fn r36_error_messages_in_aidips_format_reach_the_caller() {
    let message = "Required field 'target_language' is missing.";
    let aidip_error = json!({"error": {"code": "InvalidInput", "message": message}});
    let fastapi_error = json!({"detail": [{"loc": ["body", "items", 0], "msg": "field required", "type": "missing"}]});
    let cases = [
        case("aidip", json_with_status("400 Bad Request", aidip_error), 400, "InvalidInput", "target_language"),
        case("fastapi", json_with_status("422 Unprocessable", fastapi_error), 422, "InvalidInput", "field required"),
    ];
    let (gate, _agent) = start_cases(&cases, &[]).await;
    check_cases(&gate, &cases).await;
    let error = gate.invoke("aidip", &json!({})).await.expect_fault(400, "InvalidInput");
    assert_eq!(error["message"], message);
    let error = gate.invoke("fastapi", &json!({})).await.expect_fault(422, "InvalidInput");
    assert_eq!(error["details"], json!([{"pointer": "/items/0", "message": "field required"}]));
}

#[tokio::test]
async fn r35_r39_retry_after_of_an_agent_reaches_the_caller() {
    let retry_after =
        |status: &str| raw_response(&format!("HTTP/1.1 {status}\r\nRetry-After: 7\r\nContent-Length: 0\r\n\r\n"));
    let cases = [
        case("limited", retry_after("429 Too Many"), 429, "RateLimited", "retry-after: 7"),
        case("away", retry_after("503 Away"), 503, "AgentUnavailable", "retry-after: 7"),
        case(
            "hostile",
            raw_response("HTTP/1.1 503 A\r\nRetry-After: 99999999999999999999\r\nContent-Length: 0\r\n\r\n"),
            503,
            "AgentUnavailable",
            "",
        ),
        case(
            "nonsense",
            raw_response("HTTP/1.1 503 A\r\nRetry-After: soon\r\nContent-Length: 0\r\n\r\n"),
            503,
            "AgentUnavailable",
            "",
        ),
    ];
    let (gate, _agent) = start_cases(&cases, &[]).await;
    check_cases(&gate, &cases).await;
    for id in ["limited", "away"] {
        let response = gate.invoke(id, &json!({})).await;
        assert_eq!(response.header("retry-after"), Some("7"));
        assert_eq!(response.json()["error"]["retry_after"], 7);
    }
    assert_eq!(gate.invoke("hostile", &json!({})).await.header("retry-after"), Some("86400"));
}

#[tokio::test]
async fn r92_r94_errors_of_other_protocols_are_forwarded_byte_for_byte_and_recorded_as_failures() {
    let rpc = r#"{"jsonrpc":"2.0", "id":1,"error":{"code":-32600,"message":"kaboomed"}}"#;
    let a2a = r#"{"error":{"code":404, "status":"NOT_FOUND","message":"no such task"}}"#;
    let result = r#"{"error": 0.25, "mean": 3}"#;
    let cases = [
        case("rpc", json_body(rpc), 200, "", ""),
        case("rpc-400", http_response("400 Bad", "application/json", rpc), 400, "", ""),
        case("a2a", http_response("404 Not Found", "application/json", a2a), 404, "", ""),
        case("result", json_body(result), 200, "", ""),
    ];
    let (gate, _agent) = start_cases(&cases, &[]).await;
    let request = json!({"jsonrpc": "2.0", "id": 1, "method": "x"});
    for (case, body) in cases.iter().zip([Some(rpc), Some(rpc), None, Some(result)]) {
        let response = gate.invoke(case.id, &request).await;
        assert_eq!(response.status, case.status, "{}", case.id);
        match body {
            Some(body) => assert_eq!(response.text(), body, "{}", case.id),
            // An agent without a card of A2A has no clients that read this error.
            None => assert_eq!(response.json()["error"]["data"]["code"], "CapabilityNotFound", "{}", response.text()),
        }
    }
    for entry in gate.access_log(4).await {
        let code = match entry["agent"].as_str() {
            Some("result") => "ok",
            Some("a2a") => "CapabilityNotFound",
            _ => "AgentError",
        };
        assert_eq!(entry["code"], code, "{entry}");
    }
}

/// A listener whose accept queue is full, so that further connections never complete; and the connections in its queue.
async fn full_listener() -> (tokio::net::TcpListener, Vec<tokio::net::TcpStream>) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(1).unwrap();
    let mut queued = Vec::new();
    for _ in 0..16 {
        let connect = tokio::net::TcpStream::connect(listener.local_addr().unwrap());
        match tokio::time::timeout(Duration::from_millis(100), connect).await {
            Ok(Ok(stream)) => queued.push(stream),
            _ => return (listener, queued),
        }
    }
    panic!("the accept queue never fills");
}

#[tokio::test]
async fn r35_r96_unreachable_agents_are_503_and_slow_agents_are_504() {
    let closed_port = ClosedPort::new();
    let closed_address = closed_port.address;
    let (full, _queued) = full_listener().await;
    let hangs = Agent::with_steps(vec![Step::Hang]).await;
    let trickles = Agent::with_steps(
        std::iter::once(write("HTTP/1.1 200 OK\r\nX-A: "))
            .chain((0..100).flat_map(|_| [write("a"), Step::Sleep(Duration::from_millis(50))]))
            .collect(),
    )
    .await;
    let stalls = Agent::with_steps(vec![
        write("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{"),
        Step::Hang,
    ])
    .await;
    let agents = [
        ("refuses", format!("http://{closed_address}/"), 503, "AgentUnavailable", "connecting to"),
        ("full", format!("http://{}/", full.local_addr().unwrap()), 504, "Timeout", "connecting to"),
        ("hangs", hangs.url(), 504, "Timeout", "no complete response head"),
        ("trickles", trickles.url(), 504, "Timeout", "no complete response head"),
        ("stalls", stalls.url(), 504, "Timeout", "no further chunk of the reply"),
        ("no-tls", format!("https://{}/", hangs.address), 504, "Timeout", "took too long"),
        ("plain-for-tls", format!("https://{closed_address}/"), 503, "AgentUnavailable", "connecting to"),
        ("no-name", "https://agent.invalid/".to_owned(), 503, "AgentUnavailable", "agent.invalid"),
        ("metadata", "https://169.254.169.254/latest/meta-data".to_owned(), 503, "AgentUnavailable", "policy"),
        ("metadata-6", "https://[fd00:ec2::254]/".to_owned(), 503, "AgentUnavailable", "policy"),
        ("mapped", "https://[::ffff:169.254.169.254]/".to_owned(), 503, "AgentUnavailable", "policy"),
        ("nowhere", "https://0.0.0.0/".to_owned(), 503, "AgentUnavailable", "policy"),
        ("no-socket", "agent+unix:///nowhere/kaboomed.sock".to_owned(), 503, "AgentUnavailable", "kaboomed"),
    ];
    let mut build = gateway().section(
        "agents:\n  sources: [agents.json]\n  defaults:\n    timeouts: {connect: 300ms, first_byte: 400ms, idle: 300ms}\n",
    );
    for (id, endpoint, ..) in &agents {
        let mut document = hangs.document(id);
        document["endpoint"] = json!(endpoint);
        build = build.document(document);
    }
    let gate = build.start().await;
    for (id, endpoint, status, code, logged) in &agents {
        let start = Instant::now();
        let response = gate.invoke(id, &json!({})).await;
        assert_eq!(response.status, *status, "{id} {endpoint}: {}", response.text());
        let error = response.expect_fault(*status, code);
        response.assert_hides(&["127.0.0.1", "169.254", "kaboomed", ".invalid", "ec2::"]);
        assert!(start.elapsed() < Duration::from_secs(3), "{id} took {:?}", start.elapsed());
        let entry = entry_of(&gate, error["request_id"].as_str().unwrap()).await;
        assert!(entry["detail"].as_str().unwrap_or_default().contains(logged), "{id}: {entry}");
    }
}

#[tokio::test]
async fn r117_a_document_cannot_make_the_gateway_call_itself() {
    let echo = Agent::echo().await;
    let agents = "agents:\n  sources: [agents.json]\n  poll_interval: 50ms\n";
    let gate = gateway().agent("echo", &echo).section(agents).start().await;
    let mut looping = echo.document("loop");
    looping["endpoint"] = json!(format!("http://{}/agents/echo/invoke", gate.address()));
    let mut admin = echo.document("admin");
    admin["endpoint"] = json!(format!("http://{}/metrics", gate.admin_address));
    let documents = json!([echo.document("echo"), looping, admin]);
    std::fs::write(gate.folder().join("agents.json"), documents.to_string()).unwrap();
    eventually("the new documents are served", async || gate.invoke("admin", &json!({})).await.status != 404).await;
    for id in ["loop", "admin"] {
        gate.invoke(id, &json!({})).await.expect_fault(503, "AgentUnavailable");
    }
    assert_eq!(echo.call_count(), 0);
}

#[tokio::test]
async fn r96_a_caller_may_shorten_the_timeout_but_not_extend_it() {
    let hangs = Agent::with_steps(vec![Step::Hang]).await;
    let gate = gateway()
        .agent("hangs", &hangs)
        .section("agents:\n  sources: [agents.json]\n  defaults:\n    timeouts: {total: 700ms}\n")
        .start()
        .await;
    for (timeout, min, max) in [("0.1", 100, 600), ("150ms", 150, 600), ("0.2s", 200, 600), ("3600", 700, 2500)] {
        let start = Instant::now();
        let call = gate.post("/agents/hangs/invoke").header("x-request-timeout", timeout).json(&json!({}));
        send(call).await.expect_fault(504, "Timeout");
        let elapsed = start.elapsed().as_millis();
        assert!((min - 20..max).contains(&elapsed), "{timeout} took {elapsed} ms");
    }
    let calls = hangs.call_count();
    for invalid in ["", "soon", "-1", "0", "0ms", "1e3", "1,5", "NaN", "inf", "99999999999999999999", "1m", "1 s"] {
        let call = gate.post("/agents/hangs/invoke").header("x-request-timeout", invalid).json(&json!({}));
        send(call).await.expect_fault(400, "InvalidInput");
    }
    assert_eq!(hangs.call_count(), calls, "a call with an invalid timeout reached the agent");
}

#[tokio::test]
async fn r89_r90_errors_are_written_in_the_format_that_the_caller_accepts() {
    let gate = gateway().start().await;
    let problem = "application/problem+json";
    let error = "application/json";
    let cases = [
        (None, error),
        (Some("*/*"), error),
        (Some("application/json"), error),
        (Some("application/problem+json"), problem),
        (Some("application/problem+json, application/json;q=0.5"), problem),
        (Some("application/problem+json;q=0.2, application/json"), error),
        (Some("text/html"), error),
        (Some("application/problem+json;q=0"), error),
        (Some(";;;,,q=="), error),
    ];
    for (accept, media_type) in cases {
        let mut call = gate.post("/agents/none/invoke");
        if let Some(accept) = accept {
            call = call.header("accept", accept);
        }
        assert_error_format(&send(call.json(&json!({}))).await, media_type);
    }
    let gate = gateway().section("errors:\n  format: problem\n").start().await;
    for (accept, media_type) in [("*/*", problem), ("application/json", error), ("application/problem+json", problem)] {
        let call = gate.post("/agents/none/invoke").header("accept", accept).json(&json!({}));
        assert_error_format(&send(call).await, media_type);
    }
}

fn assert_error_format(response: &GatewayResponse, media_type: &str) {
    assert_eq!(response.status, 404);
    assert_eq!(response.header("content-type"), Some(media_type), "{}", response.text());
    assert_eq!(response.header("vary"), Some("Accept"));
    assert_eq!(response.header("cache-control"), Some("no-store"));
    if media_type == "application/problem+json" {
        let problem = response.json();
        for member in ["type", "title", "detail", "instance"] {
            assert!(problem[member].is_string(), "{member}: {problem}");
        }
        assert_eq!((&problem["status"], &problem["code"]), (&json!(404), &json!("NotFound")));
        assert_eq!(problem["request_id"].as_str(), response.header("x-request-id"));
    } else {
        response.expect_fault(404, "NotFound");
    }
}

#[tokio::test]
async fn r33_a_response_that_violates_the_output_schema_is_502_if_enforced() {
    let agent = Agent::scripted(|request| match request.json()["want"].as_str() {
        Some("good") => json_response(&json!({"text": "x"})),
        Some("bad") => json_response(&json!({"text": 1})),
        Some("not-json") => http_response("200 OK", "application/json", "kaboomed"),
        Some("html") => http_response("200 OK", "text/html", "<html>kaboomed</html>"),
        Some("chunked") => vec![write(
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\na\r\n{\"text\":1}\r\n0\r\n\r\n",
        )],
        Some("large") => json_response(&json!({"text": "x".repeat(2 << 20)})),
        _ => vec![Step::Close],
    })
    .await;
    let mut document = agent.document("promises");
    document["operations"] = json!([{"name": "say", "outputs": {
        "type": "object", "required": ["text"], "properties": {"text": {"type": "string"}}}}]);
    let want = |want: &str| json!({ "want": want });
    for (mode, expected) in [("enforce", 502), ("report", 200), ("off", 200)] {
        let gate =
            gateway().document(document.clone()).section(&format!("contract:\n  output: {mode}\n")).start().await;
        assert_eq!(gate.invoke("promises", &want("good")).await.expect_ok(), json!({"text": "x"}));
        for invalid in ["bad", "chunked", "not-json"] {
            let response = gate.invoke("promises", &want(invalid)).await;
            assert_eq!(response.status, expected, "{mode} {invalid}: {}", response.text());
            if expected == 502 {
                response.expect_fault(502, "AgentError");
                response.assert_hides(&[INTERNAL_WORD]);
            }
        }
        let large = gate.invoke("promises", &want("large")).await;
        assert_eq!(large.status, expected, "{mode}: too large to be validated");
        let html = gate.invoke("promises", &want("html")).await;
        assert_eq!(html.status, expected, "{mode}: HTML violates a schema for JSON");
    }
}

#[tokio::test]
async fn r33_a_stream_that_was_not_asked_for_is_refused_where_the_output_is_enforced() {
    let agent = Agent::scripted(|request: &ReceivedRequest| match request.json()["want"].as_str() {
        Some("lines") => http_response("200 OK", "application/x-ndjson", "{\"text\": 1}\n"),
        Some("seq") => http_response("200 OK", "application/json-seq", "\u{1e}{\"text\": 1}\n"),
        _ => http_response("200 OK", "text/event-stream; charset=utf-8", "data: {\"text\": 1}\n\n"),
    })
    .await;
    let mut document = agent.document("promises");
    document["operations"] = json!([{"name": "say", "outputs": {
        "type": "object", "required": ["text"], "properties": {"text": {"type": "string"}}}}]);
    let sections = "contract: {output: enforce}\ntasks: {}\n";
    let gate = gateway().document(document).section(sections).start().await;
    let cases = [
        ("events", "text/event-stream", "application/x-ndjson"),
        ("lines", "application/x-ndjson", "text/event-stream"),
        ("seq", "application/json-seq", "application/x-ndjson"),
    ];
    for (want, own, other) in cases {
        let accepted = [None, Some("*/*"), Some("application/json"), Some(other), Some("text/*;q=0, */*")];
        let asked = [own.to_owned(), format!("application/json, {own};q=0.5")];
        for key in [None, Some(want)] {
            let call = |accept: Option<&str>| {
                let call = gate.post("/agents/promises/invoke").json(&json!({ "want": want }));
                let key = key.map(|key| format!("{key}{accept:?}").replace(' ', ""));
                let call = key.iter().fold(call, |call, key| call.header("idempotency-key", key));
                accept.iter().fold(call, |call, accept| call.header("accept", *accept))
            };
            for accept in accepted {
                send(call(accept)).await.expect_fault(502, "AgentError");
            }
            // A text sequence alone is no format that agents are asked for.
            for accept in asked.iter().skip(usize::from(want == "seq")) {
                let answer = send(call(Some(accept))).await;
                assert!(answer.status == 200 && answer.text().contains("text"), "{want} {accept}: {}", answer.text());
            }
        }
        let task = gate.post("/agents/promises/invoke").header("prefer", "respond-async, wait=5");
        let task = send(task.json(&json!({ "want": want }))).await;
        assert_eq!(task.status, 502, "{want}: {}", task.text());
    }
}

#[tokio::test]
async fn a_call_whose_caller_disconnects_is_counted_and_logged_and_its_upstream_connection_is_closed() {
    let agent = Agent::with_steps(vec![Step::Hang]).await;
    let gate = gateway().agent("hangs", &agent).start().await;
    for (calls, end) in [(1, "closes"), (2, "resets")] {
        let stream = open_call(&gate, "hangs", "{}").await;
        eventually("the agent has the call", async || agent.call_count() == calls).await;
        if end == "resets" {
            stream.set_zero_linger().unwrap();
        }
        drop(stream);
        let start = Instant::now();
        eventually("the agent's connection is ended", async || agent.aborted_responses() == calls).await;
        assert!(start.elapsed() < Duration::from_secs(3), "{end}: {:?}", start.elapsed());
    }
    for entry in gate.access_log(2).await {
        assert_eq!(entry["aborted"], "caller gone", "{entry}");
        assert_eq!(entry["code"], "aborted", "{entry}");
        assert_eq!(entry["agent"], "hangs");
        assert!(entry["status"].is_u64());
    }
    let metrics = gate.admin_page("/metrics").await.text();
    assert!(
        metrics
            .lines()
            .any(|line| line.starts_with("gatepost_calls_total{agent=\"hangs\",code=\"aborted\"")
                && line.ends_with(" 2")),
        "{metrics}"
    );
}

/// Sends a call on a new connection, without waiting for the response.
async fn open_call(gate: &Gateway, id: &str, body: &str) -> tokio::net::TcpStream {
    use tokio::io::AsyncWriteExt;
    let mut stream = tokio::net::TcpStream::connect(gate.address()).await.unwrap();
    let head = format!(
        "POST /agents/{id}/invoke HTTP/1.1\r\nHost: gate\r\nX-API-Key: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        gate.key("team-a"),
        body.len()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream
}

#[tokio::test]
async fn r36_the_error_response_to_a_head_request_has_no_body_and_keeps_the_connection() {
    let echo = Agent::echo().await;
    let gate = gateway().agent("echo", &echo).start().await;
    let requests = "HEAD /agents/echo/invoke HTTP/1.1\r\nHost: gate\r\n\r\n\
                    GET /nothing HTTP/1.1\r\nHost: gate\r\nConnection: close\r\n\r\n";
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut stream = tokio::net::TcpStream::connect(gate.address()).await.unwrap();
    stream.write_all(requests.as_bytes()).await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    let (first, rest) = text.split_once("\r\n\r\n").unwrap();
    assert!(first.starts_with("HTTP/1.1 405 "), "{text}");
    assert!(rest.starts_with("HTTP/1.1 404 "), "{text}");
}

#[tokio::test]
async fn r36_unknown_paths_and_methods_get_the_error_object() {
    let gate = gateway().start().await;
    for (request, status, code) in [
        ("GET / HTTP/1.1\r\nHost: gate\r\n\r\n", 404, "NotFound"),
        ("PUT /agents/a/invoke HTTP/1.1\r\nHost: gate\r\nContent-Length: 0\r\n\r\n", 405, "MethodNotAllowed"),
        ("POST /agents/a/invoke HTTP/1.1\r\nHost: gate\r\nContent-Length: 0\r\n\r\n", 401, "Unauthorized"),
    ] {
        send_raw(gate.address(), request.as_bytes()).await.unwrap().expect_fault(status, code);
    }
    assert_eq!(gate.access_log(3).await.len(), 3);
}

#[tokio::test]
async fn r92_r94_json_rpc_calls_get_json_rpc_errors_and_other_calls_get_the_error_object() {
    let gate = gateway().document(json!({"id": "rpc", "name": "rpc", "endpoint": "http://127.0.0.1:1/"})).start().await;
    let body = json!({"jsonrpc": "2.0", "id": "call-1", "method": "message/send", "params": {}});
    let response = gate.invoke("rpc", &body).await;
    let error = response.json();
    assert_eq!((response.status, &error["id"], &error["jsonrpc"]), (503, &json!("call-1"), &json!("2.0")), "{error}");
    assert_eq!(error["error"]["data"]["code"], "AgentUnavailable", "{error}");
    assert!(error["error"]["code"].is_number() && error["error"]["data"]["request_id"].is_string(), "{error}");
    gate.invoke("rpc", &json!({"id": "call-1"})).await.expect_fault(503, "AgentUnavailable");
    let unauthenticated = gate.request("POST", "/agents/rpc/invoke").header("x-api-key", "invalid").json(&body);
    let refused = send(unauthenticated).await;
    assert_eq!((refused.status, &refused.json()["id"]), (401, &json!("call-1")), "{}", refused.text());
}

#[tokio::test]
async fn r131_an_error_that_is_too_long_or_compressed_to_be_read_does_not_pass_where_errors_are_withheld() {
    let internal = "Traceback: postgres://svc@10.1.2.3/db";
    let error = move |request: &ReceivedRequest| {
        let input: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        let form = input["params"]["form"].as_str().or_else(|| input["form"].as_str()).unwrap_or_default().to_owned();
        let padding = "x".repeat(2 << 20);
        let rpc = |rest: &str| format!(r#"{{"jsonrpc":"2.0","id":1,{rest}}}"#);
        let body = match form.as_str() {
            "rpc" => rpc(&format!(r#""error":{{"code":-32000,"message":"{internal}","data":"{padding}"}}"#)),
            "padded" => rpc(&format!(r#""pad":"{padding}","error":{{"code":-32000,"message":"{internal}"}}"#)),
            "google" => {
                format!(
                    r#"{{"error":{{"code":500,"message":"{internal}","status":"INTERNAL","details":["{padding}"]}}}}"#
                )
            }
            "broken" => format!(r#"{{"error":{{"message":"{internal}"}},}}"#),
            "array" => format!(r#"["{padding}"]"#),
            _ => r#"{"ok":true}"#.to_owned(),
        };
        let coding = if form == "compressed" { "Content-Encoding: gzip\r\n" } else { "" };
        let length = body.len();
        vec![write(format!(
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n{coding}Content-Length: {length}\r\n\r\n{body}"
        ))]
    };
    let agent = Agent::scripted(error).await;
    let rules = "agents:\n  sources: [agents.json]\n  rules:\n    - {agents: [a], error_details: none}\n";
    let gate = gateway().agent("a", &agent).agent("open", &agent).section(rules).start().await;
    for form in ["rpc", "padded", "google", "broken", "compressed"] {
        for key in [None, Some(form)] {
            for input in
                [json!({"form": form}), json!({"jsonrpc": "2.0", "id": 1, "method": "m", "params": {"form": form}})]
            {
                let call = gate.post("/agents/a/invoke").json(&input);
                let call = key.iter().fold(call, |call, key| {
                    call.header("idempotency-key", format!("{key}-{}", input.get("id").is_some()))
                });
                let answer = send(call).await;
                assert_eq!(answer.status, 502, "{form}: {} bytes", answer.text().len());
                assert!(
                    !answer.text().contains("Traceback") && answer.text().len() < 2_000,
                    "{form}: {}",
                    answer.text()
                );
            }
        }
    }
    // Results pass, also long ones that are no objects, and everything where errors are not withheld.
    gate.invoke("a", &json!({"form": "result"})).await.expect_ok();
    assert!(gate.invoke("a", &json!({"form": "array"})).await.text().len() > 2 << 20);
    assert_eq!(gate.invoke("open", &json!({"form": "padded"})).await.status, 200);
}
