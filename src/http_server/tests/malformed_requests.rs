//! Malformed requests on a real connection: each gets one JSON refusal, then the connection closes; no smuggled
//! request is served.

use super::*;
use proptest::prelude::*;

const HOST: &str = "POST /x HTTP/1.1\r\nHost: a\r\n";

/// Header lines after `HOST`, all refused with 400.
const INVALID_HEADER_LINES: &[&str] = &[
    "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n",
    "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n",
    "Transfer-Encoding: gzip, chunked\r\n",
    "Transfer-Encoding: chunked, identity\r\n",
    "Transfer-Encoding: xchunked\r\n",
    "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
    "Transfer-Encoding: \x0bchunked\r\n",
    "Transfer-Encoding:\r\n chunked\r\n",
    "Transfer-Encoding : chunked\r\n",
    "Transfer_Encoding: chunked\r\n",
    "Content-Length: 3\r\nContent-Length: 3\r\n",
    "Content-Length: 3\r\nContent-Length: 4\r\n",
    "Content-Length: 3, 3\r\n",
    "Content-Length: 3,4\r\n",
    "Content-Length: +3\r\n",
    "Content-Length: -1\r\n",
    "Content-Length: 0x3\r\n",
    "Content-Length: 99999999999999999999\r\n",
    "Content-Length:\r\n",
    "Content-Length: 3 \r\nContent-Length:3\r\n",
    "Content_Length: 3\r\n",
    "Content-Length : 3\r\n",
    "Content-Length\t: 3\r\n",
    " Content-Length: 3\r\n",
    "X: a\r\n b\r\n",
    "X: a\r\n\tb\r\n",
    "X: a\0\r\n",
    "X: a\rb\r\n",
    "X: a\nY: b\r\n",
    "X\r\n",
    ": x\r\n",
    "X Y: z\r\n",
    "X\x01: z\r\n",
    "X: \x1b\r\n",
    "X: \x7f\r\n",
    "X_API_Key: k\r\n",
    "x_api_key: k\r\n",
    "X_Forwarded_For: 1.1.1.1\r\n",
    "Host: a\r\n",
    "Host: b\r\n",
    "host: b\r\n",
    "Connection: host\r\n",
    "Connection: content-length\r\n",
    "Authorization: a\r\nAuthorization: b\r\n",
    "Content-Type: a\r\nContent-Type: b\r\n",
    "Expect: gold\r\n",
    "Expect: 100-continue\r\nExpect: 100-continue\r\n",
];

/// Whole heads with the status that each gets.
const INVALID_HEADS: &[(&str, u16)] = &[
    ("POST /x HTTP/1.1\r\n\r\n", 400),
    ("POST /x HTTP/1.1\r\nHost:\r\n\r\n", 400),
    ("POST /x HTTP/1.1\r\nHost: a b\r\n\r\n", 400),
    ("POST /x HTTP/1.1\r\nHost: u@a\r\n\r\n", 400),
    ("POST /x HTTP/1.1\r\nHost: a:x\r\n\r\n", 400),
    ("POST /x HTTP/1.1\r\nHost: a/\r\n\r\n", 400),
    ("POST http://b/x HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    ("POST http://u@a/x HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    ("POST gopher://a/x HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    ("POST a HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    ("POST * HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    ("POST  /x HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    ("POST /x  HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    ("POST /x y HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    ("POST\t/x HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    ("POST /x\tHTTP/1.1\r\nHost: a\r\n\r\n", 400),
    ("POST /x HTTP/1.1 \r\nHost: a\r\n\r\n", 400),
    ("POST /x\r\n", 400),
    ("P(ST /x HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    (" POST /x HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    ("POST /x HTTP/1.1\nHost: a\n\n", 400),
    ("POST /x HTTP/1.1\r\nHost: a\n\r\n", 400),
    ("\r\n\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    ("\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    ("\x16\x03\x01\x02", 400),
    ("{\"a\":1}", 400),
    ("POST /x HTTP\r\n", 400),
    ("POST /x HTTP/0.9\r\n", 505),
    ("POST /x HTTP/1.2\r\n", 505),
    ("POST /x HTTP/2.0\r\n", 505),
    ("PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n", 505),
    ("POST /x http/1.1\r\n", 400),
    ("CONNECT a:80 HTTP/1.1\r\nHost: a:80\r\n\r\n", 405),
    ("TRACE /x HTTP/1.1\r\nHost: a\r\n\r\n", 405),
    ("POST /x HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
    ("GET /a/../b HTTP/1.1\r\n", 400),
    ("GET /%2e%2e/b HTTP/1.1\r\n", 400),
    ("GET /a%2fb HTTP/1.1\r\n", 400),
    ("GET /a%5cb HTTP/1.1\r\n", 400),
    ("GET //a HTTP/1.1\r\n", 400),
    ("GET /a%00 HTTP/1.1\r\n", 400),
    ("GET /a\0 HTTP/1.1\r\n", 400),
    ("GET /%zz HTTP/1.1\r\n", 400),
    ("GET /a#b HTTP/1.1\r\n", 400),
    ("GET /a\\b HTTP/1.1\r\n", 400),
    ("GET /\u{e9} HTTP/1.1\r\n", 400),
];

async fn assert_refused(server: &TestServer, bytes: &[u8], status: u16) {
    let request_text = String::from_utf8_lossy(&bytes[..bytes.len().min(90)]).into_owned();
    let before = server.echo.served.load(Ordering::SeqCst);
    let mut client = server.connect().await;
    client.send([bytes, b"GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"].concat()).await;
    let response = client.read_response().await.unwrap_or_else(|| panic!("no response to {request_text:?}"));
    assert_eq!(response.status, status, "{request_text:?}: {response:?}");
    assert!(response.head.contains("connection: close"), "{request_text:?}: {response:?}");
    let body: serde_json::Value = serde_json::from_str(&response.body).expect("JSON");
    assert!(body["error"]["code"].is_string(), "{request_text:?}");
    assert_eq!(client.read_to_end().await, "", "{request_text:?}: bytes after the refusal");
    assert_eq!(server.echo.served.load(Ordering::SeqCst), before, "{request_text:?} reached the handler");
}

#[tokio::test]
async fn malformed_heads_get_one_json_refusal_and_the_connection_closes() {
    let server = start_server(&plain_listener(), ConnectionLimits::default());
    for lines in INVALID_HEADER_LINES {
        assert_refused(&server, format!("{HOST}{lines}\r\n").as_bytes(), 400).await;
    }
    for (head, status) in INVALID_HEADS {
        assert_refused(&server, head.as_bytes(), *status).await;
    }
    assert!(INVALID_HEADER_LINES.len() + INVALID_HEADS.len() >= 80);
    assert_eq!(server.echo.refused.load(Ordering::SeqCst), INVALID_HEADER_LINES.len() + INVALID_HEADS.len());
    let mut client = server.connect().await;
    client.send(GET).await;
    assert_eq!(client.read_response().await.unwrap().status, 200, "other connections are still served");
}

#[tokio::test]
async fn oversized_heads_are_refused_before_they_end() {
    let server = start_server(&plain_listener(), ConnectionLimits::default());
    assert_refused(&server, format!("{HOST}{}", "X: y\r\n".repeat(200)).as_bytes(), 431).await;
    assert_refused(&server, format!("{HOST}X: {}", "y".repeat(70 << 10)).as_bytes(), 431).await;
    assert_refused(&server, format!("GET /{}", "y".repeat(40 << 10)).as_bytes(), 414).await;
    assert_refused(&server, format!("{HOST}X: {}", "y".repeat(3 << 20)).as_bytes(), 431).await;
}

#[tokio::test]
async fn invalid_chunks_are_refused_and_no_bytes_after_them_become_a_request() {
    let server = start_server(&plain_listener(), ConnectionLimits::default());
    for body in [
        "x\r\nabc\r\n",
        "0x3\r\nabc\r\n0\r\n\r\n",
        "ffffffffffffffffff\r\n",
        "3\r\nabcd\r\n0\r\n\r\n",
        "-1\r\n",
        "3\nabc\n0\n\n",
        ";a\r\n",
        "\r\n\r\n",
        "3;\nxx\r\nabc\r\n0\r\n\r\n",
        "3\r\nabc\r\n0\r\nGET /smuggled HTTP/1.1\r\n",
        " 3\r\nabc\r\n0\r\n\r\n",
        "3\r\nabc\r\n0\r\nX: y\n\r\n",
        "3\r\nabc\n0\r\n\r\n",
        "3 a\x01\r\n",
    ] {
        let mut client = server.connect().await;
        client
            .send(format!("{HOST}Transfer-Encoding: chunked\r\n\r\n{body}GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"))
            .await;
        let response = client.read_response().await.unwrap_or_else(|| panic!("no response to {body:?}"));
        assert_eq!(response.status, 400, "{body:?}");
        assert!(!client.read_to_end().await.contains("smuggled"), "{body:?}");
    }
}

#[tokio::test]
async fn pipelined_requests_are_served_in_order_and_bodies_never_become_requests() {
    let server = start_server(&plain_listener(), ConnectionLimits::default());
    let mut client = server.connect().await;
    let inner = "GET /inner HTTP/1.1\r\nHost: a\r\n\r\n";
    client.send(format!("{}{inner}{GET}", post_head("/outer", inner.len()))).await;
    let outer = client.read_response().await.unwrap();
    assert_eq!(outer.body, format!("{{\"length\":{},\"path\":\"/outer\"}}", inner.len()));
    assert!(client.read_response().await.unwrap().body.contains("/after"), "pipelined requests are served in order");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
    #[test]
    fn arbitrary_bytes_never_hang_or_break_the_server(bytes in proptest::collection::vec(any::<u8>(), 0..600), prefix in 0_usize..3) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let server = start_server(&plain_listener(), short_timeouts());
            let mut client = server.connect().await;
            client.send(["", HOST, "GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"][prefix]).await;
            client.send(&bytes).await;
            let _ = client.0.shutdown().await;
            client.read_to_end().await;
            let mut client = server.connect().await;
            client.send(GET).await;
            assert_eq!(client.read_response().await.unwrap().status, 200);
        });
    }
}
