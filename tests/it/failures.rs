//! Every way in which an agent fails, as the caller and the log see it (issue: contract, failures).

use crate::support::{
    agent::{Agent, Do, answer, json_answer, write},
    eventually,
    gateway::{Gate, gateway, send},
    reply::{Answer, raw},
};
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use tokio::net::TcpSocket;

/// A word of the agent's inside, which must reach the log and nobody else.
const INSIDE: &str = "kaboomed";

/// What an agent does, and what its caller gets.
struct Case {
    id: &'static str,
    steps: Vec<Do>,
    status: u16,
    code: &'static str,
    /// What the log must keep of it.
    logged: &'static str,
}

fn case(id: &'static str, steps: Vec<Do>, status: u16, code: &'static str, logged: &'static str) -> Case {
    Case { id, steps, status, code, logged }
}

fn raw_answer(text: &str) -> Vec<Do> {
    vec![write(text), Do::Close]
}

fn json_with(status: &str, body: Value) -> Vec<Do> {
    answer(status, "application/json", &body.to_string())
}

/// An agent that answers each path by the case of that name, and a gateway that knows every case as an agent.
async fn stage(cases: &[Case], sections: &[&str]) -> (Gate, Agent) {
    let steps: Vec<(String, Vec<Do>)> =
        cases.iter().map(|case| (format!("/{} ", case.id), case.steps.clone())).collect();
    let agent = Agent::scripted(move |got| {
        steps.iter().find(|(path, _)| got.head.contains(path)).map(|(_, steps)| steps.clone()).unwrap_or_default()
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
    (build.start().await, agent)
}

/// Calls every case and looks at the answer and at the line of the log with the id that the caller was told.
async fn all_hold(gate: &Gate, cases: &[Case]) {
    for case in cases {
        let answer = gate.invoke(case.id, &json!({})).await;
        assert_eq!(answer.status, case.status, "{}: {}", case.id, answer.text());
        let error = answer.is_fault(case.status, case.code);
        answer.hides(&[INSIDE, "/srv/app", "127.0.0.1", "hyper", "Traceback", "<html"]);
        let line = line_of(gate, error["request_id"].as_str().unwrap()).await;
        assert_eq!(line["code"], case.code, "{}: {line}", case.id);
        assert_eq!(line["status"], case.status, "{}: {line}", case.id);
        assert_eq!(line["agent"], case.id, "{line}");
        let detail = line["detail"].as_str().unwrap_or_default();
        assert!(detail.contains(case.logged), "{}: the log lacks '{}': {line}", case.id, case.logged);
    }
}

/// The line of the log of the call with this id.
async fn line_of(gate: &Gate, id: &str) -> Value {
    let mut found = None;
    eventually("the call is in the log", async || {
        found = gate.log(0).await.into_iter().find(|line| line["request_id"] == id);
        found.is_some()
    })
    .await;
    found.unwrap()
}

#[tokio::test]
async fn r38_r41_an_agent_that_breaks_http_is_one_shape_for_the_caller_and_a_story_for_the_log() {
    let head = |fields: &str| format!("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n{fields}\r\n");
    let large = format!("X-Large: {}\r\nContent-Length: 2\r\n", "x".repeat(100 << 10));
    let cases = [
        case("closes", vec![Do::Close], 502, "AgentError", "connection"),
        case("resets", vec![Do::Reset], 502, "AgentError", "connection"),
        case("garbage", raw_answer("SSH-2.0-OpenSSH_9.2p1 kaboomed\r\n\r\n"), 502, "AgentError", "invalid HTTP"),
        case("binary", vec![write(vec![0, 255, 1, 13, 10, 13, 10]), Do::Close], 502, "AgentError", "HTTP"),
        case("no-head-end", raw_answer("HTTP/1.1 200 OK\r\nContent-Le"), 502, "AgentError", "connection"),
        case(
            "two-lengths",
            raw_answer(&(head("Content-Length: 2\r\nContent-Length: 3\r\n") + "{}x")),
            502,
            "AgentError",
            "",
        ),
        case(
            "length-and-chunked",
            raw_answer(&(head("Content-Length: 2\r\nTransfer-Encoding: chunked\r\n") + "2\r\n{}\r\n0\r\n\r\n")),
            502,
            "AgentError",
            "Transfer-Encoding",
        ),
        case(
            "gzip-coding",
            raw_answer(&(head("Transfer-Encoding: gzip, chunked\r\n") + "2\r\n{}\r\n0\r\n\r\n")),
            502,
            "AgentError",
            "transfer coding",
        ),
        case("bad-length", raw_answer(&(head("Content-Length: two\r\n") + "{}")), 502, "AgentError", ""),
        case(
            "truncated-length",
            raw_answer(&(head("Content-Length: 100\r\n") + "{\"a\":")),
            502,
            "AgentError",
            "message",
        ),
        case("truncated-json", json_body("{\"translated\": \"kaboomed"), 502, "AgentError", INSIDE),
        case("large-head", raw_answer(&(head(&large) + "{}")), 502, "AgentError", ""),
        case("status-99", raw_answer("HTTP/1.1 99 Odd\r\nContent-Length: 0\r\n\r\n"), 502, "AgentError", ""),
        case("status-799", raw_answer("HTTP/1.1 799 Odd\r\nContent-Length: 0\r\n\r\n"), 502, "AgentError", "799"),
        case(
            "switches",
            raw_answer("HTTP/1.1 101 Switching Protocols\r\nUpgrade: kaboomed\r\nConnection: upgrade\r\n\r\n"),
            502,
            "AgentError",
            "101",
        ),
        case("http-2", raw_answer("HTTP/2 200 OK\r\nContent-Length: 2\r\n\r\n{}"), 502, "AgentError", ""),
    ];
    let (gate, _agent) = stage(&cases, &[]).await;
    all_hold(&gate, &cases).await;
}

fn json_body(body: &str) -> Vec<Do> {
    answer("200 OK", "application/json", body)
}

#[tokio::test]
#[allow(clippy::too_many_lines, reason = "a table of cases is long without being hard to read")]
async fn r36_r40_every_shape_of_error_becomes_the_one_shape() {
    let html = "<html><body>502 Bad Gateway at kaboomed</body></html>";
    let gzip = {
        let mut bytes = b"HTTP/1.1 500 Oops\r\nContent-Type: application/json\r\nContent-Encoding: gzip\r\nContent-Length: 8\r\nX-Powered-By: kaboomed\r\n\r\n".to_vec();
        bytes.extend_from_slice(&[0x1f, 0x8b, 8, 0, 0, 0, 0, 0]);
        vec![write(bytes)]
    };
    let cases = [
        case("html", answer("502 Bad Gateway", "text/html", html), 502, "AgentError", INSIDE),
        case(
            "plain",
            answer("500 Internal Server Error", "text/plain", "Internal Server Error kaboomed"),
            500,
            "AgentError",
            INSIDE,
        ),
        case(
            "detail",
            json_with("500 Oops", json!({"detail": "kaboomed in /srv/app/main.py"})),
            500,
            "AgentError",
            INSIDE,
        ),
        case(
            "detail-404",
            json_with("404 Not Found", json!({"detail": "kaboomed: [4041] in /srv/app/x.py"})),
            404,
            "CapabilityNotFound",
            INSIDE,
        ),
        case("bare-404", answer("404 Not Found", "text/html", html), 502, "AgentError", INSIDE),
        case("bare-405", answer("405 Method Not Allowed", "text/html", html), 502, "AgentError", INSIDE),
        case(
            "graphql",
            json_body(r#"{"errors":[{"message":"kaboomed","path":["a"]}],"data":null}"#),
            502,
            "AgentError",
            INSIDE,
        ),
        case("raw-200", json_body(r#"{"error":"kaboomed at /srv/app/x.py line 3"}"#), 502, "AgentError", INSIDE),
        case(
            "raw-500",
            json_with("500 Oops", json!({"error": "kaboomed at /srv/app/x.py"})),
            500,
            "AgentError",
            INSIDE,
        ),
        case(
            "langgraph",
            json_body(r#"{"__error__":{"error":"ValueError","message":"kaboomed"}}"#),
            502,
            "AgentError",
            INSIDE,
        ),
        case(
            "framework",
            json_with("500 Oops", json!({"error": {"code": "internal_error", "message": "kaboomed"}})),
            500,
            "AgentError",
            INSIDE,
        ),
        case(
            "told-200",
            json_body(r#"{"error":{"code":"InvalidInput","message":"kaboomed at /srv/app/x.py"}}"#),
            400,
            "InvalidInput",
            INSIDE,
        ),
        case("agent-401", answer("401 Unauthorized", "text/plain", "kaboomed"), 502, "AgentError", INSIDE),
        case(
            "agent-403",
            json_with("403 Forbidden", json!({"error": {"code": "PermissionDenied", "message": "kaboomed"}})),
            502,
            "AgentError",
            INSIDE,
        ),
        case("agent-407", answer("407 Proxy", "text/plain", "kaboomed"), 502, "AgentError", INSIDE),
        case(
            "moved",
            raw_answer("HTTP/1.1 302 Found\r\nLocation: http://kaboomed/\r\nContent-Length: 0\r\n\r\n"),
            502,
            "AgentError",
            INSIDE,
        ),
        case(
            "kept",
            raw_answer("HTTP/1.1 307 T\r\nLocation: http://kaboomed/\r\nContent-Length: 0\r\n\r\n"),
            502,
            "AgentError",
            INSIDE,
        ),
        case("unmodified", raw_answer("HTTP/1.1 304 Not Modified\r\nETag: kaboomed\r\n\r\n"), 502, "AgentError", "304"),
        case(
            "empty-500",
            raw_answer("HTTP/1.1 500 \r\nContent-Length: 0\r\nServer: kaboomed\r\n\r\n"),
            500,
            "AgentError",
            "500",
        ),
        case("empty-502", raw_answer("HTTP/1.1 502\r\nContent-Length: 0\r\n\r\n"), 502, "AgentError", "502"),
        case("empty-504", raw_answer("HTTP/1.1 504 T\r\nContent-Length: 0\r\n\r\n"), 504, "Timeout", "504"),
        case("empty-close", raw_answer("HTTP/1.1 500 T\r\n\r\n"), 500, "AgentError", "500"),
        case("gzip-500", gzip, 500, "AgentError", "500"),
        case(
            "dying-500",
            raw_answer(
                "HTTP/1.1 500 T\r\nContent-Type: application/json\r\nContent-Length: 900\r\n\r\n{\"error\":\"kaboomed",
            ),
            500,
            "AgentError",
            "500",
        ),
        case(
            "dying-chunked",
            raw_answer("HTTP/1.1 500 T\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nkabo"),
            500,
            "AgentError",
            "500",
        ),
        case(
            "deep-500",
            json_with("500 T", serde_json::from_str(&format!("{}{}", "[".repeat(100), "]".repeat(100))).unwrap()),
            500,
            "AgentError",
            "500",
        ),
        case("large-500", answer("500 T", "text/plain", &"kaboomed ".repeat(100_000)), 500, "AgentError", INSIDE),
        case(
            "busy",
            json_with("409 Conflict", json!({"error": {"message": "kaboomed, see /srv/app/x.py"}})),
            409,
            "Conflict",
            INSIDE,
        ),
        case("teapot", answer("418 T", "text/plain", "kaboomed"), 502, "AgentError", INSIDE),
        case("limited", answer("429 T", "text/plain", "kaboomed"), 429, "RateLimited", INSIDE),
        case("away", answer("503 T", "text/plain", "kaboomed"), 503, "AgentUnavailable", INSIDE),
    ];
    let (gate, _agent) = stage(&cases, &[]).await;
    all_hold(&gate, &cases).await;
}

#[tokio::test]
async fn r36_what_an_agent_says_to_its_caller_in_aidips_shape_is_passed_on() {
    let told = json!({"error": {"code": "InvalidInput", "message": "Required field 'target_language' is missing."}});
    let list = json!({"detail": [{"loc": ["body", "items", 0], "msg": "field required", "type": "missing"}]});
    let cases = [
        case("told", json_with("400 Bad Request", told), 400, "InvalidInput", "target_language"),
        case("fastapi", json_with("422 Unprocessable", list), 400, "InvalidInput", "field required"),
    ];
    let (gate, _agent) = stage(&cases, &[]).await;
    all_hold(&gate, &cases).await;
    let error = gate.invoke("told", &json!({})).await.is_fault(400, "InvalidInput");
    assert_eq!(error["message"], "Required field 'target_language' is missing.");
    let error = gate.invoke("fastapi", &json!({})).await.is_fault(400, "InvalidInput");
    assert_eq!(error["details"], json!([{"pointer": "/items/0", "message": "field required"}]));
}

#[tokio::test]
async fn r35_r39_when_to_try_again_is_passed_on() {
    let wait = |status: &str| raw_answer(&format!("HTTP/1.1 {status}\r\nRetry-After: 7\r\nContent-Length: 0\r\n\r\n"));
    let cases = [
        case("limited", wait("429 Too Many"), 429, "RateLimited", "retry-after: 7"),
        case("away", wait("503 Away"), 503, "AgentUnavailable", "retry-after: 7"),
        case(
            "hostile",
            raw_answer("HTTP/1.1 503 A\r\nRetry-After: 99999999999999999999\r\nContent-Length: 0\r\n\r\n"),
            503,
            "AgentUnavailable",
            "",
        ),
        case(
            "nonsense",
            raw_answer("HTTP/1.1 503 A\r\nRetry-After: soon\r\nContent-Length: 0\r\n\r\n"),
            503,
            "AgentUnavailable",
            "",
        ),
    ];
    let (gate, _agent) = stage(&cases, &[]).await;
    all_hold(&gate, &cases).await;
    for id in ["limited", "away"] {
        let answer = gate.invoke(id, &json!({})).await;
        assert_eq!(answer.header("retry-after"), Some("7"));
        assert_eq!(answer.json()["error"]["retry_after"], 7);
    }
    assert_eq!(gate.invoke("hostile", &json!({})).await.header("retry-after"), Some("86400"));
}

#[tokio::test]
async fn r92_r94_errors_of_other_protocols_pass_byte_for_byte() {
    let rpc = r#"{"jsonrpc":"2.0", "id":1,"error":{"code":-32600,"message":"kaboomed"}}"#;
    let a2a = r#"{"error":{"code":404, "status":"NOT_FOUND","message":"no such task"}}"#;
    let result = r#"{"error": 0.25, "mean": 3}"#;
    let cases = [
        case("rpc", json_body(rpc), 200, "", ""),
        case("rpc-400", answer("400 Bad", "application/json", rpc), 400, "", ""),
        case("a2a", answer("404 Not Found", "application/json", a2a), 404, "", ""),
        case("result", json_body(result), 200, "", ""),
    ];
    let (gate, _agent) = stage(&cases, &[]).await;
    for (case, body) in cases.iter().zip([rpc, rpc, a2a, result]) {
        let answer = gate.invoke(case.id, &json!({})).await;
        assert_eq!((answer.status, answer.text().as_str()), (case.status, body), "{}", case.id);
    }
    for line in gate.log(4).await {
        assert_eq!(line["code"], "ok", "{line}");
    }
}

/// An address where connections wait for ever: the queue of the listener is full.
async fn full_listener() -> (tokio::net::TcpListener, Vec<tokio::net::TcpStream>) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(1).unwrap();
    let mut held = Vec::new();
    for _ in 0..16 {
        let connect = tokio::net::TcpStream::connect(listener.local_addr().unwrap());
        match tokio::time::timeout(Duration::from_millis(100), connect).await {
            Ok(Ok(stream)) => held.push(stream),
            _ => return (listener, held),
        }
    }
    panic!("the queue of the listener never fills");
}

#[tokio::test]
async fn r35_r96_an_agent_that_cannot_be_reached_is_told_from_one_that_is_too_slow() {
    let gone = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap()
    };
    let (full, _held) = full_listener().await;
    let hangs = Agent::doing(vec![Do::Hang]).await;
    let trickles = Agent::doing(
        std::iter::once(write("HTTP/1.1 200 OK\r\nX-A: "))
            .chain((0..100).flat_map(|_| [write("a"), Do::Wait(Duration::from_millis(50))]))
            .collect(),
    )
    .await;
    let stalls = Agent::doing(vec![
        write("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{"),
        Do::Hang,
    ])
    .await;
    let agents = [
        ("refuses", format!("http://{gone}/"), 503, "AgentUnavailable", "connecting to"),
        ("full", format!("http://{}/", full.local_addr().unwrap()), 504, "Timeout", "connecting to"),
        ("hangs", hangs.url(), 504, "Timeout", "no complete response head"),
        ("trickles", trickles.url(), 504, "Timeout", "no complete response head"),
        ("stalls", stalls.url(), 504, "Timeout", "no further chunk of the reply"),
        ("no-tls", format!("https://{}/", hangs.address), 504, "Timeout", "took too long"),
        ("plain-for-tls", format!("https://{gone}/"), 503, "AgentUnavailable", "connecting to"),
        ("no-name", "https://agent.invalid/".to_owned(), 503, "AgentUnavailable", "agent.invalid"),
        ("metadata", "https://169.254.169.254/latest/meta-data".to_owned(), 503, "AgentUnavailable", "policy"),
        ("metadata-6", "https://[fd00:ec2::254]/".to_owned(), 503, "AgentUnavailable", "policy"),
        ("mapped", "https://[::ffff:169.254.169.254]/".to_owned(), 503, "AgentUnavailable", "policy"),
        ("nowhere", "https://0.0.0.0/".to_owned(), 503, "AgentUnavailable", "policy"),
        ("no-socket", "agent+unix:///nowhere/kaboomed.sock".to_owned(), 503, "AgentUnavailable", "kaboomed"),
    ];
    let mut build = gateway().section(
        "agents:\n  from: [agents.json]\n  defaults:\n    timeouts: {connect: 300ms, first_byte: 400ms, idle: 300ms}\n",
    );
    for (id, endpoint, ..) in &agents {
        let mut document = hangs.document(id);
        document["endpoint"] = json!(endpoint);
        build = build.document(document);
    }
    let gate = build.start().await;
    for (id, endpoint, status, code, logged) in &agents {
        let began = Instant::now();
        let answer = gate.invoke(id, &json!({})).await;
        assert_eq!(answer.status, *status, "{id} {endpoint}: {}", answer.text());
        let error = answer.is_fault(*status, code);
        answer.hides(&["127.0.0.1", "169.254", "kaboomed", ".invalid", "ec2::"]);
        assert!(began.elapsed() < Duration::from_secs(3), "{id} took {:?}", began.elapsed());
        let line = line_of(&gate, error["request_id"].as_str().unwrap()).await;
        assert!(line["detail"].as_str().unwrap_or_default().contains(logged), "{id}: {line}");
    }
}

#[tokio::test]
async fn r117_a_document_cannot_make_the_gateway_call_itself() {
    let echo = Agent::echo().await;
    let gate = gateway().agent("echo", &echo).section("agents:\n  from: [agents.json]\n  poll: 50ms\n").start().await;
    let mut looping = echo.document("loop");
    looping["endpoint"] = json!(format!("http://{}/agents/echo/invoke", gate.address()));
    let mut admin = echo.document("admin");
    admin["endpoint"] = json!(format!("http://{}/metrics", gate.admin));
    let documents = json!([echo.document("echo"), looping, admin]);
    std::fs::write(gate.folder().join("agents.json"), documents.to_string()).unwrap();
    eventually("the new documents are served", async || gate.invoke("admin", &json!({})).await.status != 404).await;
    for id in ["loop", "admin"] {
        gate.invoke(id, &json!({})).await.is_fault(503, "AgentUnavailable");
    }
    assert_eq!(echo.calls(), 0);
}

#[tokio::test]
async fn r96_a_caller_may_shorten_the_time_and_never_lengthen_it() {
    let hangs = Agent::doing(vec![Do::Hang]).await;
    let gate = gateway()
        .agent("hangs", &hangs)
        .section("agents:\n  from: [agents.json]\n  defaults:\n    timeouts: {total: 700ms}\n")
        .start()
        .await;
    for (asked, least, most) in [("0.1", 100, 600), ("150ms", 150, 600), ("0.2s", 200, 600), ("3600", 700, 2500)] {
        let began = Instant::now();
        let call = gate.post("/agents/hangs/invoke").header("x-request-timeout", asked).json(&json!({}));
        send(call).await.is_fault(504, "Timeout");
        let took = began.elapsed().as_millis();
        assert!((least - 20..most).contains(&took), "{asked} took {took} ms");
    }
    let calls = hangs.calls();
    for wrong in ["", "soon", "-1", "0", "0ms", "1e3", "1,5", "NaN", "inf", "99999999999999999999", "1m", "1 s"] {
        let call = gate.post("/agents/hangs/invoke").header("x-request-timeout", wrong).json(&json!({}));
        send(call).await.is_fault(400, "InvalidInput");
    }
    assert_eq!(hangs.calls(), calls, "a call with a wrong timeout reached the agent");
}

#[tokio::test]
async fn r89_r90_errors_are_written_in_the_format_that_the_caller_reads() {
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
    for (accept, media) in cases {
        let mut call = gate.post("/agents/none/invoke");
        if let Some(accept) = accept {
            call = call.header("accept", accept);
        }
        has_format(&send(call.json(&json!({}))).await, media);
    }
    let gate = gateway().section("errors:\n  format: problem\n").start().await;
    for (accept, media) in [("*/*", problem), ("application/json", error), ("application/problem+json", problem)] {
        let call = gate.post("/agents/none/invoke").header("accept", accept).json(&json!({}));
        has_format(&send(call).await, media);
    }
}

fn has_format(answer: &Answer, media: &str) {
    assert_eq!(answer.status, 404);
    assert_eq!(answer.header("content-type"), Some(media), "{}", answer.text());
    assert_eq!(answer.header("vary"), Some("Accept"));
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    if media == "application/problem+json" {
        let problem = answer.json();
        for member in ["type", "title", "detail", "instance"] {
            assert!(problem[member].is_string(), "{member}: {problem}");
        }
        assert_eq!((&problem["status"], &problem["code"]), (&json!(404), &json!("NotFound")));
        assert_eq!(problem["request_id"].as_str(), answer.header("x-request-id"));
    } else {
        answer.is_fault(404, "NotFound");
    }
}

#[tokio::test]
async fn r33_an_answer_that_breaks_the_agents_own_contract_is_a_502_where_that_is_enforced() {
    let agent = Agent::scripted(|got| match got.json()["want"].as_str() {
        Some("good") => json_answer(&json!({"text": "x"})),
        Some("bad") => json_answer(&json!({"text": 1})),
        Some("not-json") => answer("200 OK", "application/json", "kaboomed"),
        Some("html") => answer("200 OK", "text/html", "<html>kaboomed</html>"),
        Some("chunked") => vec![write(
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\na\r\n{\"text\":1}\r\n0\r\n\r\n",
        )],
        Some("large") => json_answer(&json!({"text": "x".repeat(2 << 20)})),
        _ => vec![Do::Close],
    })
    .await;
    let mut document = agent.document("promises");
    document["operations"] = json!([{"name": "say", "outputs": {
        "type": "object", "required": ["text"], "properties": {"text": {"type": "string"}}}}]);
    let want = |want: &str| json!({ "want": want });
    for (mode, bad) in [("enforce", 502), ("report", 200), ("off", 200)] {
        let gate =
            gateway().document(document.clone()).section(&format!("contract:\n  output: {mode}\n")).start().await;
        assert_eq!(gate.invoke("promises", &want("good")).await.is_ok(), json!({"text": "x"}));
        for wrong in ["bad", "chunked", "not-json"] {
            let answer = gate.invoke("promises", &want(wrong)).await;
            assert_eq!(answer.status, bad, "{mode} {wrong}: {}", answer.text());
            if bad == 502 {
                answer.is_fault(502, "AgentError");
                answer.hides(&[INSIDE]);
            }
        }
        let large = gate.invoke("promises", &want("large")).await;
        assert_eq!(large.status, bad, "{mode}: beyond what can be checked");
        let html = gate.invoke("promises", &want("html")).await;
        assert_eq!(html.status, bad, "{mode}: what declares JSON and answers HTML breaks its contract");
    }
}

#[tokio::test]
async fn a_caller_that_leaves_is_still_counted_and_logged_and_its_agent_is_let_go() {
    let agent = Agent::doing(vec![Do::Hang]).await;
    let gate = gateway().agent("hangs", &agent).start().await;
    for (calls, how) in [(1, "closes"), (2, "resets")] {
        let stream = open_call(&gate, "hangs", "{}").await;
        eventually("the agent has the call", async || agent.calls() == calls).await;
        if how == "resets" {
            stream.set_zero_linger().unwrap();
        }
        drop(stream);
        let began = Instant::now();
        eventually("the agent's connection is ended", async || agent.left() == calls).await;
        assert!(began.elapsed() < Duration::from_secs(3), "{how}: {:?}", began.elapsed());
    }
    for line in gate.log(2).await {
        assert_eq!((line["aborted"].as_str(), line["code"].as_str()), (Some("caller gone"), Some("aborted")), "{line}");
        assert_eq!(line["agent"], "hangs");
        assert!(line["status"].is_u64());
    }
    let metrics = gate.admin("/metrics").await.text();
    assert!(
        metrics
            .lines()
            .any(|line| line.starts_with("gatepost_calls_total{agent=\"hangs\",code=\"aborted\"")
                && line.ends_with(" 2")),
        "{metrics}"
    );
}

/// A call that was sent and not answered yet.
async fn open_call(gate: &Gate, id: &str, body: &str) -> tokio::net::TcpStream {
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
async fn r36_a_refusal_of_a_head_request_has_no_body_and_keeps_the_connection() {
    let echo = Agent::echo().await;
    let gate = gateway().agent("echo", &echo).start().await;
    let both = "HEAD /agents/echo/invoke HTTP/1.1\r\nHost: gate\r\n\r\nGET /nothing HTTP/1.1\r\nHost: gate\r\nConnection: close\r\n\r\n";
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut stream = tokio::net::TcpStream::connect(gate.address()).await.unwrap();
    stream.write_all(both.as_bytes()).await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    let (first, rest) = text.split_once("\r\n\r\n").unwrap();
    assert!(first.starts_with("HTTP/1.1 405 "), "{text}");
    assert!(rest.starts_with("HTTP/1.1 404 "), "{text}");
}

#[tokio::test]
async fn r36_what_is_not_there_is_refused_in_the_same_shape() {
    let gate = gateway().start().await;
    for (request, status, code) in [
        ("GET / HTTP/1.1\r\nHost: gate\r\n\r\n", 404, "NotFound"),
        ("PUT /agents/a/invoke HTTP/1.1\r\nHost: gate\r\nContent-Length: 0\r\n\r\n", 405, "MethodNotAllowed"),
        ("POST /agents/a/invoke HTTP/1.1\r\nHost: gate\r\nContent-Length: 0\r\n\r\n", 401, "Unauthorized"),
    ] {
        raw(gate.address(), request.as_bytes()).await.unwrap().is_fault(status, code);
    }
    assert_eq!(gate.log(3).await.len(), 3);
}

#[tokio::test]
async fn r92_r94_a_json_rpc_caller_reads_json_rpc_errors_and_everybody_else_the_usual_ones() {
    let gate = gateway().document(json!({"id": "rpc", "name": "rpc", "endpoint": "http://127.0.0.1:1/"})).start().await;
    let body = json!({"jsonrpc": "2.0", "id": "call-1", "method": "message/send", "params": {}});
    let answer = gate.invoke("rpc", &body).await;
    let error = answer.json();
    assert_eq!((answer.status, &error["id"], &error["jsonrpc"]), (503, &json!("call-1"), &json!("2.0")), "{error}");
    assert_eq!(error["error"]["data"]["code"], "AgentUnavailable", "{error}");
    assert!(error["error"]["code"].is_number() && error["error"]["data"]["request_id"].is_string(), "{error}");
    gate.invoke("rpc", &json!({"id": "call-1"})).await.is_fault(503, "AgentUnavailable");
    // Nothing is read before it is known who calls.
    let stranger = gate.request("POST", "/agents/rpc/invoke").header("x-api-key", "nobody").json(&body);
    send(stranger).await.is_fault(401, "Unauthorized");
}
