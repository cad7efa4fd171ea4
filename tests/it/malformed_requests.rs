//! Malformed HTTP requests: each is refused with the standard error, none reaches an agent, none harms the gateway.

use crate::support::{
    agent::Agent,
    gateway::{Gateway, gateway},
    gateway_response::{GatewayResponse, read_response, send_raw},
};
use serde_json::json;
use std::time::Duration;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

const REQUEST_LINE: &str = "POST /agents/echo/invoke HTTP/1.1\r\n";

/// A request with these header lines after the request line, and a valid key.
fn request_with_headers(gate: &Gateway, fields: &str, body: &str) -> Vec<u8> {
    format!("{REQUEST_LINE}X-API-Key: {}\r\n{fields}\r\n{body}", gate.key("team-a")).into_bytes()
}

/// A request with this request line, a valid key and an empty object as its body.
fn request_with_line(gate: &Gateway, line: &str) -> Vec<u8> {
    let key = gate.key("team-a");
    format!(
        "{line}\r\nHost: gate\r\nX-API-Key: {key}\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{{}}"
    )
    .into_bytes()
}

/// Header lines that must be refused, each with `Host` and a body of two bytes unless the case is about these.
const BAD_HEADERS: &[(&str, &str)] = &[
    ("no host", "Content-Length: 2\r\n"),
    ("two hosts", "Host: gate\r\nHost: gate\r\nContent-Length: 2\r\n"),
    ("two different hosts", "Host: gate\r\nHost: other\r\nContent-Length: 2\r\n"),
    ("empty host", "Host:\r\nContent-Length: 2\r\n"),
    ("host with a user", "Host: admin@gate\r\nContent-Length: 2\r\n"),
    ("host with a path", "Host: gate/agents\r\nContent-Length: 2\r\n"),
    ("host with a space", "Host: gate other\r\nContent-Length: 2\r\n"),
    ("host with a bad port", "Host: gate:99999\r\nContent-Length: 2\r\n"),
    ("host with letters for a port", "Host: gate:http\r\nContent-Length: 2\r\n"),
    ("host with half an address", "Host: [::1\r\nContent-Length: 2\r\n"),
    ("two lengths", "Host: gate\r\nContent-Length: 2\r\nContent-Length: 2\r\n"),
    ("two different lengths", "Host: gate\r\nContent-Length: 2\r\nContent-Length: 3\r\n"),
    ("a list of lengths", "Host: gate\r\nContent-Length: 2, 2\r\n"),
    ("a length with a sign", "Host: gate\r\nContent-Length: +2\r\n"),
    ("a negative length", "Host: gate\r\nContent-Length: -2\r\n"),
    ("a hexadecimal length", "Host: gate\r\nContent-Length: 0x2\r\n"),
    ("a fractional length", "Host: gate\r\nContent-Length: 2.0\r\n"),
    ("an empty length", "Host: gate\r\nContent-Length:\r\n"),
    ("an overlong length", "Host: gate\r\nContent-Length: 99999999999999999999\r\n"),
    ("length and chunks", "Host: gate\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n"),
    ("chunks and length", "Host: gate\r\nTransfer-Encoding: chunked\r\nContent-Length: 2\r\n"),
    ("an unknown coding", "Host: gate\r\nTransfer-Encoding: xchunked\r\n"),
    ("gzip and chunks", "Host: gate\r\nTransfer-Encoding: gzip, chunked\r\n"),
    ("chunks and identity", "Host: gate\r\nTransfer-Encoding: chunked, identity\r\n"),
    ("chunks twice", "Host: gate\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"),
    ("chunks with a tab inside", "Host: gate\r\nTransfer-Encoding: chun\tked\r\n"),
    ("chunks after a vertical tab", "Host: gate\r\nTransfer-Encoding: \x0bchunked\r\n"),
    ("chunks in quotes", "Host: gate\r\nTransfer-Encoding: \"chunked\"\r\n"),
    ("an empty coding", "Host: gate\r\nTransfer-Encoding:\r\n"),
    ("a coding with an underscore", "Host: gate\r\nTransfer_Encoding: chunked\r\nContent-Length: 2\r\n"),
    ("a length with an underscore", "Host: gate\r\nContent_Length: 9\r\nContent-Length: 2\r\n"),
    ("a credential with an underscore", "Host: gate\r\nX_API_Key: 1\r\nContent-Length: 2\r\n"),
    ("a folded line", "Host: gate\r\nX-A: 1\r\n 2\r\nContent-Length: 2\r\n"),
    ("a line folded by a tab", "Host: gate\r\nX-A: 1\r\n\t2\r\nContent-Length: 2\r\n"),
    ("a space before the colon", "Host: gate\r\nContent-Length : 2\r\n"),
    ("a tab before the colon", "Host: gate\r\nContent-Length\t: 2\r\n"),
    ("a line without a colon", "Host: gate\r\nContent-Length\r\n"),
    ("a line without a name", "Host: gate\r\n: 2\r\nContent-Length: 2\r\n"),
    ("a name with a space", "Host: gate\r\nX A: 2\r\nContent-Length: 2\r\n"),
    ("a name with a NUL", "Host: gate\r\nX\0A: 2\r\nContent-Length: 2\r\n"),
    ("a name with a parenthesis", "Host: gate\r\nX(A): 2\r\nContent-Length: 2\r\n"),
    ("a value with a NUL", "Host: gate\r\nX-A: 1\x002\r\nContent-Length: 2\r\n"),
    ("a value with a bare CR", "Host: gate\r\nX-A: 1\rX-B: 2\r\nContent-Length: 2\r\n"),
    ("a bare LF", "Host: gate\nContent-Length: 2\r\n"),
    ("a bare LF at the end", "Host: gate\r\nContent-Length: 2\n"),
    ("a value with a bell", "Host: gate\r\nX-A: \x07\r\nContent-Length: 2\r\n"),
    ("a host named in Connection", "Host: gate\r\nConnection: close, host\r\nContent-Length: 2\r\n"),
    ("a length named in Connection", "Host: gate\r\nConnection: content-length\r\nContent-Length: 2\r\n"),
    ("a key named in Connection", "Host: gate\r\nConnection: X-API-Key\r\nContent-Length: 2\r\n"),
    ("an unknown expectation", "Host: gate\r\nExpect: 200-ok\r\nContent-Length: 2\r\n"),
    (
        "two media types",
        "Host: gate\r\nContent-Type: application/json\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n",
    ),
    ("two credentials", "Host: gate\r\nAuthorization: Bearer a\r\nAuthorization: Bearer b\r\nContent-Length: 2\r\n"),
];

/// Request lines that must be refused, each with the status.
const BAD_REQUEST_LINES: &[(&str, u16)] = &[
    ("POST /agents/echo/invoke HTTP/2.0", 505),
    ("POST /agents/echo/invoke HTTP/1.2", 505),
    ("POST /agents/echo/invoke HTTP/0.9", 505),
    ("POST /agents/echo/invoke HTTP/1.1x", 400),
    ("POST /agents/echo/invoke http/1.1", 400),
    ("POST /agents/echo/invoke", 400),
    ("POST  /agents/echo/invoke HTTP/1.1", 400),
    ("POST /agents/echo/invoke  HTTP/1.1", 400),
    ("POST\t/agents/echo/invoke HTTP/1.1", 400),
    ("POST /agents/echo/invoke HTTP/1.1 ", 400),
    ("POST /agents/echo /invoke HTTP/1.1", 400),
    ("P(ST /agents/echo/invoke HTTP/1.1", 400),
    ("POST agents/echo/invoke HTTP/1.1", 400),
    ("POST http://other/agents/echo/invoke HTTP/1.1", 400),
    ("POST http://gate@other/agents/echo/invoke HTTP/1.1", 400),
    ("POST ftp://gate/agents/echo/invoke HTTP/1.1", 400),
    ("POST //agents/echo/invoke HTTP/1.1", 400),
    ("POST /agents//echo/invoke HTTP/1.1", 400),
    ("POST /agents/./echo/invoke HTTP/1.1", 400),
    ("POST /agents/x/../echo/invoke HTTP/1.1", 400),
    ("POST /agents/x/%2e%2e/echo/invoke HTTP/1.1", 400),
    ("POST /agents/x/..;/echo/invoke HTTP/1.1", 400),
    ("POST /agents/echo%2Finvoke HTTP/1.1", 400),
    ("POST /agents/echo%5cinvoke HTTP/1.1", 400),
    ("POST /agents/echo%00/invoke HTTP/1.1", 400),
    ("POST /agents/echo%0d%0a/invoke HTTP/1.1", 400),
    ("POST /agents/ech%6/invoke HTTP/1.1", 400),
    ("POST /agents/ech%zz/invoke HTTP/1.1", 400),
    ("POST /agents/echo/invoke#x HTTP/1.1", 400),
    ("POST /agents/ech\u{f6}/invoke HTTP/1.1", 400),
    ("POST /agents\\echo\\invoke HTTP/1.1", 400),
    ("POST * HTTP/1.1", 400),
    ("CONNECT gate:443 HTTP/1.1", 405),
    ("TRACE /agents/echo/invoke HTTP/1.1", 405),
    ("\0POST /agents/echo/invoke HTTP/1.1", 400),
];

/// Chunked bodies with invalid framing.
const BAD_CHUNKED_BODIES: &[&str] = &[
    "x\r\n{}\r\n0\r\n\r\n",
    "0x2\r\n{}\r\n0\r\n\r\n",
    "-2\r\n{}\r\n0\r\n\r\n",
    "2\n{}\n0\n\n",
    "2\r\n{}0\r\n\r\n",
    "2\r\n{}xx0\r\n\r\n",
    "FFFFFFFFFFFFFFFFF\r\n{}\r\n0\r\n\r\n",
    "\r\n{}\r\n0\r\n\r\n",
    " 2\r\n{}\r\n0\r\n\r\n",
    "2 \r\n{}\r\n0\r\n\r\n",
    ";a=b\r\n\r\n",
    "2;a\nb\r\n{}\r\n0\r\n\r\n",
    "2;a\rb\r\n{}\r\n0\r\n\r\n",
    "2\r\n{}\r\n\r\n",
    "2\r\n{}\r\n0\r\nX Y: 1\r\n\r\n",
    "2\r\n{}\r\n0\r\nX: 1\n\r\n",
    "2\r\n{}\r\n0\r\nGET / HTTP/1.1\r\n\r\n",
];

#[track_caller]
fn assert_refused(answer: Option<GatewayResponse>, case: &str, status: u16) {
    let answer = answer.unwrap_or_else(|| panic!("{case}: no answer"));
    assert_eq!(answer.status, status, "{case}: {}", answer.text());
    let error = &answer.json()["error"];
    assert!(error["code"].is_string() && error["message"].is_string(), "{case}: {}", answer.text());
    assert_eq!(error["request_id"].as_str(), answer.header("x-request-id"), "{case}");
}

#[tokio::test]
async fn malformed_heads_are_refused_logged_and_counted_but_never_forwarded() {
    let echo = Agent::echo().await;
    let gate = gateway().agent("echo", &echo).start().await;
    let mut sent = 0;
    for (case, fields) in BAD_HEADERS {
        assert_refused(send_raw(gate.address(), &request_with_headers(&gate, fields, "{}")).await, case, 400);
        sent += 1;
    }
    for (text, status) in BAD_REQUEST_LINES {
        assert_refused(send_raw(gate.address(), &request_with_line(&gate, text)).await, text, *status);
        sent += 1;
    }
    let many: String = (0..101).map(|at| format!("X-{at}: 1\r\n")).collect();
    let large = format!("Host: gate\r\nX-A: {}\r\n", "x".repeat(70 << 10));
    let long = format!("POST /{} HTTP/1.1", "x".repeat(40 << 10));
    assert_refused(
        send_raw(gate.address(), &request_with_headers(&gate, &format!("Host: gate\r\n{many}"), "")).await,
        "many",
        431,
    );
    assert_refused(send_raw(gate.address(), &request_with_headers(&gate, &large, "")).await, "large", 431);
    assert_refused(send_raw(gate.address(), &request_with_line(&gate, &long)).await, "long", 414);
    assert_refused(send_raw(gate.address(), b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03").await, "TLS", 400);
    assert_refused(send_raw(gate.address(), b"SSH-2.0-x\r\n").await, "SSH", 400);
    sent += 5;
    let log = gate.access_log(sent).await;
    assert_eq!(log.len(), sent, "every refusal has one log entry");
    assert!(log.iter().all(|line| line["status"].as_u64().is_some_and(|status| (400..600).contains(&status))));
    assert!(log.iter().all(|line| line["request_id"].as_str().is_some_and(|id| !id.is_empty())));
    assert_eq!(echo.call_count(), 0, "a malformed request reached the agent");
    assert_eq!(count_calls(&gate).await, sent, "every refusal is counted");
    gate.invoke("echo", &json!({})).await.expect_ok();
}

/// Number of calls in the metrics.
async fn count_calls(gate: &Gateway) -> usize {
    let metrics = gate.admin_page("/metrics").await.text();
    let counts = metrics.lines().filter(|line| line.starts_with("gatepost_calls_total{"));
    counts.filter_map(|line| line.rsplit(' ').next()?.parse::<usize>().ok()).sum()
}

#[tokio::test]
async fn malformed_chunks_are_refused_and_never_forwarded_as_a_complete_request() {
    // With a schema the gateway reads the body itself; without one it forwards the body while it arrives.
    let echo = Agent::echo().await;
    let mut checked = echo.document("echo");
    checked["inputs"] = json!({"type": "object"});
    let gate = gateway().document(checked).agent("open", &echo).start().await;
    for body in BAD_CHUNKED_BODIES {
        let fields = "Host: gate\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n";
        let request = request_with_headers(&gate, fields, body);
        assert_refused(send_raw(gate.address(), &request).await, &format!("{body:?}"), 400);
        let request =
            String::from_utf8(request).unwrap().replacen("/echo/", "/open/", 1).replacen("/json", "/binary", 1);
        let answer = send_raw(gate.address(), request.as_bytes()).await;
        let answer = answer.unwrap_or_else(|| panic!("{body:?}: no answer"));
        assert_eq!(answer.status, 400, "{body:?}: {}", answer.text());
        // The body arrives after the head.
        let mut stream = TcpStream::connect(gate.address()).await.unwrap();
        let (head, body) = request.split_once("\r\n\r\n").unwrap();
        stream.write_all(format!("{head}\r\n\r\n").as_bytes()).await.unwrap();
        tokio::time::sleep(Duration::from_millis(20)).await;
        stream.write_all(body.as_bytes()).await.unwrap();
        let answer = read_response(&mut stream).await.unwrap_or_else(|| panic!("{body:?}: no answer"));
        assert_eq!(answer.status, 400, "{body:?} later: {}", answer.text());
    }
    assert_eq!(echo.call_count(), 0, "an unfinished body reached the agent as a complete request");
    gate.invoke("echo", &json!({})).await.expect_ok();
}

#[tokio::test]
async fn valid_chunks_pass_however_they_are_split_and_the_connection_stays_open() {
    let echo = Agent::echo().await;
    let gate = gateway().agent("echo", &echo).start().await;
    let fields = "Host: gate\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n";
    let body = "1;a=\"b\"\r\n{\r\n00A\r\n\"text\": \"x\r\n2\r\n\"}\r\n0\r\nX-Sum: 1\r\n\r\n";
    let request = request_with_headers(&gate, fields, body);
    let head = request.len() - body.len();
    let mut stream = TcpStream::connect(gate.address()).await.unwrap();
    stream.set_nodelay(true).unwrap();
    for cut in head..request.len() {
        stream.write_all(&request[..cut]).await.unwrap();
        tokio::time::sleep(Duration::from_millis(1)).await;
        stream.write_all(&request[cut..]).await.unwrap();
        let answer = read_response(&mut stream).await.unwrap_or_else(|| panic!("no answer, cut at {cut}"));
        assert_eq!(answer.expect_ok()["echo"], json!({"text": "x"}), "cut at {cut}");
    }
}

#[tokio::test]
async fn a_truncated_body_is_never_forwarded_as_a_complete_one() {
    let echo = Agent::echo().await;
    let mut checked = echo.document("echo");
    checked["inputs"] = json!({"type": "object"});
    let gate = gateway().document(checked).agent("open", &echo).start().await;
    for path in ["echo", "open"] {
        for fields in ["Content-Length: 100\r\n", "Transfer-Encoding: chunked\r\n"] {
            let request = request_with_headers(
                &gate,
                &format!("Host: gate\r\nContent-Type: application/octet\r\n{fields}"),
                "2\r\n{}\r\n",
            );
            let request = String::from_utf8(request).unwrap().replacen("/echo/", &format!("/{path}/"), 1);
            let request = if path == "echo" { request.replacen("octet", "json", 1) } else { request };
            let mut stream = TcpStream::connect(gate.address()).await.unwrap();
            stream.write_all(request.as_bytes()).await.unwrap();
            stream.shutdown().await.unwrap();
            let answer = read_response(&mut stream).await;
            assert!(answer.is_none_or(|answer| answer.status == 400), "{path} {fields}");
        }
    }
    assert_eq!(gate.access_log(4).await.len(), 4);
    assert_eq!(echo.call_count(), 0);
}

#[tokio::test]
async fn a_smuggled_second_request_is_not_served() {
    let echo = Agent::echo().await;
    let gate = gateway().agent("echo", &echo).start().await;
    let key = gate.key("team-a");
    let smuggled =
        format!("POST /agents/echo/invoke HTTP/1.1\r\nHost: gate\r\nX-API-Key: {key}\r\nContent-Length: 2\r\n\r\n{{}}");
    let attempts = [
        format!("Host: gate\r\nContent-Length: {}\r\nTransfer-Encoding: chunked\r\n", smuggled.len() + 5),
        "Host: gate\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n".to_owned(),
        "Host: gate\r\nTransfer-Encoding : chunked\r\nContent-Length: 0\r\n".to_owned(),
        "Host: gate\r\nContent-Length: 0\r\nContent-Length: 5\r\n".to_owned(),
    ];
    for fields in attempts {
        let mut stream = TcpStream::connect(gate.address()).await.unwrap();
        let request = request_with_headers(&gate, &fields, &format!("0\r\n\r\n{smuggled}"));
        stream.write_all(&request).await.unwrap();
        let mut text = Vec::new();
        let _ = tokio::time::timeout(Duration::from_secs(5), stream.read_to_end(&mut text))
            .await
            .expect("the connection stays open");
        let text = String::from_utf8_lossy(&text).into_owned();
        assert_eq!(text.matches("HTTP/1.1 ").count(), 1, "{fields}: {text}");
        assert!(text.starts_with("HTTP/1.1 400 "), "{fields}: {text}");
    }
    assert_eq!(echo.call_count(), 0);
}

/// Pseudorandom numbers, the same in every run.
struct SeededRandom(u64);

impl SeededRandom {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }
}

/// Returns a valid request with a few bytes changed, removed, inserted or cut off, or random bytes.
fn mutate(request: &[u8], random: &mut SeededRandom) -> Vec<u8> {
    if random.below(8) == 0 {
        return (0..random.below(200)).map(|_| random.next() as u8).collect();
    }
    let mut bytes = request.to_vec();
    for _ in 0..=random.below(4) {
        let at = random.below(bytes.len());
        match random.below(5) {
            0 => bytes[at] = random.next() as u8,
            1 => bytes[at] = *b"\r\n \t:/%\0".get(random.below(8)).unwrap(),
            2 => drop(bytes.remove(at)),
            3 => bytes.insert(at, random.next() as u8),
            _ => bytes.truncate(at.max(1)),
        }
        if bytes.is_empty() {
            break;
        }
    }
    bytes
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_gateway_survives_two_thousand_mutated_requests() {
    let echo = Agent::echo().await;
    let mut checked = echo.document("checked");
    checked["inputs"] = json!({"type": "object", "properties": {"text": {"type": "string"}}});
    let mut gate = gateway().agent("echo", &echo).document(checked).start().await;
    let (address, key) = (gate.address(), gate.key("team-a").to_owned());
    let workers = (0..8_u64).map(|worker| {
        let key = key.clone();
        tokio::spawn(async move {
            let mut random = SeededRandom(0x9e37_79b9_7f4a_7c15 ^ (worker + 1));
            let path = if worker % 2 == 0 { "echo" } else { "checked" };
            let body = r#"{"text": "hello", "list": [1, 2, {"a": null}]}"#;
            let framing = match worker % 4 {
                0 | 1 => format!("Content-Length: {}\r\n\r\n{body}", body.len()),
                _ => format!("Transfer-Encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n", body.len()),
            };
            let valid = format!("POST /agents/{path}/invoke?x=1 HTTP/1.1\r\nHost: gate\r\nX-API-Key: {key}\r\nContent-Type: application/json\r\n{framing}");
            for _ in 0..250 {
                let Ok(mut stream) = TcpStream::connect(address).await else { continue };
                let _ = stream.write_all(&mutate(valid.as_bytes(), &mut random)).await;
                let _ = stream.shutdown().await;
                let mut rest = Vec::new();
                let read = tokio::time::timeout(Duration::from_secs(10), stream.read_to_end(&mut rest)).await;
                assert!(read.is_ok(), "the connection stays open after its caller has finished");
                let text = String::from_utf8_lossy(&rest);
                assert!(rest.is_empty() || text.starts_with("HTTP/1."), "{text}");
                assert!(!text.starts_with("HTTP/1.1 500"), "{text}");
            }
        })
    });
    for worker in workers.collect::<Vec<_>>() {
        worker.await.unwrap();
    }
    assert!(gate.child.try_wait().unwrap().is_none(), "the gateway has exited");
    for id in ["echo", "checked"] {
        gate.invoke(id, &json!({"text": "hello"})).await.expect_ok();
    }
    assert!(gate.access_log(0).await.iter().all(|line| line["aborted"] != "panicked" && line["code"] != "Internal"));
}
