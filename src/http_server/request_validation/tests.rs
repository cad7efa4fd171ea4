//! Tables of request heads and the status of each; the result never depends on how the bytes are split.

use super::*;
use proptest::prelude::*;

const LIMITS: HeadLimits = HeadLimits { max_bytes: 64 << 10, max_fields: 100 };

fn status(head: &[u8]) -> u16 {
    match validate_http1_head(head, LIMITS) {
        Ok(()) => 200,
        Err(fault) => fault.http_status(),
    }
}

fn post(lines: &str) -> u16 {
    status(format!("POST /agents/a/invoke HTTP/1.1\r\n{lines}\r\n").as_bytes())
}

fn path(target: &str) -> u16 {
    status(format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes())
}

#[test]
fn r27_ordinary_heads_pass() {
    for lines in [
        "Host: a\r\n",
        "Host: gateway.example:8443\r\nContent-Length: 0\r\n",
        "host: 127.0.0.1:80\r\nTransfer-Encoding: Chunked\r\n",
        "HOST: [::1]:80\r\nAuthorization: Bearer x\r\nX-API-Key: k\r\n",
        "Host:a\r\nAccept:\r\nX-Empty: \r\n",
        "Host: a\r\nX-Latin: caf\u{e9}\r\nX-Tab: a\tb\r\n",
        "Host: a\r\nExpect: 100-continue\r\nContent-Length: 3\r\n",
        "Host: a\r\nConnection: keep-alive, x-hop\r\nX_Custom: 1\r\n",
        "Date: today\r\nHost: a\r\nDate: today\r\n",
        "Host: a\r\nX_Custom_Header_Of_A_Framework: 1\r\n",
    ] {
        assert_eq!(post(lines), 200, "{lines}");
    }
    assert_eq!(status(b"GET / HTTP/1.0\r\n\r\n"), 200);
    assert_eq!(status(b"\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n"), 200);
    assert_eq!(status(b"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n"), 200);
    assert_eq!(status(b"GET http://A.example:80/x?y HTTP/1.1\r\nHost: a.example:80\r\n\r\n"), 200);
    assert_eq!(status(b"BREW /pot HTTP/1.1\r\nHost: a\r\n\r\n"), 200, "the router decides on unknown methods");
}

#[test]
fn r27_ordinary_targets_pass() {
    let long = format!("/agents/planner/invoke?message={}", "x".repeat(30 << 10));
    for target in [
        "/",
        "/a/",
        "/.well-known/x",
        "/a%20b",
        "/a:b@c;d=e",
        "/a?b=c%2Fd%2e%2e",
        "/a?{\"b\":[1|2]}",
        "/a/..b/.c/d..",
        long.as_str(),
    ] {
        assert_eq!(path(target), 200, "{target}");
    }
}

#[test]
fn ambiguous_targets_are_refused() {
    for target in [
        "/a/../b",
        "/..",
        "/a/.",
        "/./a",
        "/a/..;x/b",
        "/%2e%2e/a",
        "/a%2Eb",
        "/a%2fb",
        "/a%5cb",
        "/a\\b",
        "//a",
        "/a//b",
        "/a%00",
        "/a?b=%00",
        "/a%zz",
        "/a%",
        "/a%2",
        "/a?b=%g1",
        "/a#b",
        "/a?b#c",
        "/a%0d%0aX:y",
        "/a%7f",
        "/a<b>",
        "/a\"b",
        "/a{b}",
        "a",
        "*",
        "a:80",
        "ftp://a/",
        "http://",
        "http://b/",
        "http://u@a/",
        "http:///x",
        "/\u{e9}",
        "/a\u{7f}",
        "/a\tb",
    ] {
        assert_eq!(path(target), 400, "{target}");
    }
    assert_eq!(path(&format!("/{}", "x".repeat(32 << 10))), 414);
}

#[test]
fn ambiguous_framing_is_refused() {
    for lines in [
        "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n",
        "Transfer-Encoding: gzip, chunked\r\n",
        "Transfer-Encoding: chunked, chunked\r\n",
        "Transfer-Encoding: identity\r\n",
        "Transfer-Encoding: xchunked\r\n",
        "Transfer-Encoding: chunked;a=b\r\n",
        "Transfer-Encoding:\r\n",
        "Transfer-Encoding: \x0bchunked\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: \"chunked\"\r\n",
        "Content-Length: 3\r\nContent-Length: 3\r\n",
        "Content-Length: 3\r\ncontent-length: 4\r\n",
        "Content-Length: 3, 3\r\n",
        "Content-Length: 3,4\r\n",
        "Content-Length: +3\r\n",
        "Content-Length: -1\r\n",
        "Content-Length: 0x3\r\n",
        "Content-Length: 3 3\r\n",
        "Content-Length:\r\n",
        "Content-Length: 1e3\r\n",
        "Content-Length: 18446744073709551616\r\n",
        "Content-Length: 9223372036854775808\r\n",
        "Content_Length: 3\r\n",
        "Transfer_Encoding: chunked\r\n",
        "TRANSFER_ENCODING: x\r\n",
        "Content-Length : 3\r\n",
        "Transfer-Encoding : chunked\r\n",
    ] {
        assert_eq!(post(&format!("Host: a\r\n{lines}")), 400, "{lines:?}");
    }
    assert_eq!(status(b"POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"), 400);
}

#[test]
fn missing_repeated_or_invalid_hosts_are_refused() {
    for lines in [
        "",
        "Accept: a\r\n",
        "Host: a\r\nHost: a\r\n",
        "Host: a\r\nhost: b\r\n",
        "Host:\r\n",
        "Host: \r\n",
        "Host: a b\r\n",
        "Host: a,b\r\n",
        "Host: u@a\r\n",
        "Host: a:b\r\n",
        "Host: a:70000\r\n",
        "Host: localhost:80@evil\r\n",
        "Host: ::1\r\n",
        "Host: a:1:2\r\n",
        "Host: a/b\r\n",
        "Host: [::1\r\n",
        "Host: [x]\r\n",
        "Host: [::1]x\r\n",
        "Host: a\\b\r\n",
        "Host: a%00\r\n",
    ] {
        assert_eq!(post(lines), 400, "{lines:?}");
    }
    assert_eq!(status(b"GET http://b/ HTTP/1.1\r\nHost: a\r\n\r\n"), 400);
    assert_eq!(status(b"GET http://a:81/ HTTP/1.1\r\nHost: a\r\n\r\n"), 400);
    assert_eq!(status(b"GET http://b/ HTTP/1.0\r\nHost: a\r\n\r\n"), 400);
}

#[test]
fn r28_malformed_or_lookalike_header_lines_are_refused() {
    for lines in [
        " folded\r\n",
        "X: a\r\n b\r\n",
        "X: a\r\n\tb\r\n",
        "X : a\r\n",
        "X\t: a\r\n",
        ": a\r\n",
        "noname\r\n",
        "X\u{e9}: a\r\n",
        "X(: a\r\n",
        "X\0: a\r\n",
        "X: a\0b\r\n",
        "X: a\rb\r\n",
        "X: a\x0bb\r\n",
        "X: \x1b[31m\r\n",
        "X: a\x7f\r\n",
        "X: a\n",
        "X: a\n\r\n",
        "X_API_Key: k\r\n",
        "x_api_key: k\r\n",
        "X-API_Key: k\r\n",
        "X_Forwarded_For: 1.2.3.4\r\n",
        "Idempotency_Key: 1\r\n",
        "Authorization: a\r\nAuthorization: b\r\n",
        "Content-Type: a\r\nContent-Type: a\r\n",
        "Expect: 200-ok\r\n",
        "Connection: host\r\n",
        "Connection: close, Content-Length\r\n",
        "Connection: authorization\r\n",
    ] {
        assert_eq!(post(&format!("Host: a\r\n{lines}")), 400, "{lines:?}");
    }
}

#[test]
fn malformed_request_lines_are_refused() {
    for line in [
        "GET /",
        "GET",
        "GET  / HTTP/1.1",
        "GET /  HTTP/1.1",
        " GET / HTTP/1.1",
        "GET / HTTP/1.1 ",
        "GET / a HTTP/1.1",
        "GET\t/ HTTP/1.1",
        "G(T / HTTP/1.1",
        "/ HTTP/1.1",
        "GET / http/1.1",
        "GET / HTTP/",
        "GET / HTTP/x.y",
        "GET / HTTPS/1.1",
        "GET / HTTP/1.1\r",
        "G\u{e9}T / HTTP/1.1",
    ] {
        assert_eq!(status(format!("{line}\r\nHost: a\r\n\r\n").as_bytes()), 400, "{line:?}");
    }
    for line in ["GET / HTTP/0.9", "GET / HTTP/1.2", "GET / HTTP/2.0", "GET / HTTP/3", "GET / HTTP/11.1"] {
        assert_eq!(status(format!("{line}\r\nHost: a\r\n\r\n").as_bytes()), 505, "{line}");
    }
    for method in ["CONNECT a:80", "TRACE /", "trace /"] {
        assert_eq!(status(format!("{method} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes()), 405, "{method}");
    }
    assert_eq!(status(b"\r\n\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n"), 400);
    assert_eq!(status(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03"), 400, "a ClientHello is refused without a line end");
}

#[test]
fn heads_beyond_the_limits_are_refused() {
    assert_eq!(post(&format!("Host: a\r\n{}", "X: y\r\n".repeat(100))), 431);
    assert_eq!(post(&format!("Host: a\r\n{}", "X: y\r\n".repeat(99))), 200);
    assert_eq!(post(&format!("Host: a\r\nX: {}\r\n", "y".repeat(64 << 10))), 431);
    assert_eq!(status(format!("GET /{} ", "x".repeat(40 << 10)).as_bytes()), 414, "before the line ends");
    assert_eq!(
        status(format!("GET / HTTP/1.1\r\nX: {}", "x".repeat(64 << 10)).as_bytes()),
        431,
        "before the line ends"
    );
}

#[test]
fn the_length_of_the_head_excludes_the_bytes_after_it() {
    let bytes = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\n\r\n\r\nGET";
    assert_eq!(Http1HeadValidator::new(LIMITS).feed(bytes).unwrap(), Some(47));
}

fn h2(build: impl FnOnce(&mut pingora_http::RequestHeader)) -> u16 {
    let mut head = pingora_http::RequestHeader::build("POST", b"/agents/a/invoke", None).unwrap();
    head.set_uri("https://a.example/agents/a/invoke".parse().unwrap());
    build(&mut head);
    validate_http2_head(&head, LIMITS).map_or_else(|fault| fault.http_status(), |_| 200)
}

#[test]
fn http2_heads_follow_the_same_rules() {
    assert_eq!(h2(|_| {}), 200);
    assert_eq!(h2(|head| head.append_header("host", "a.example").map(drop).unwrap()), 200);
    assert_eq!(h2(|head| head.append_header("te", "trailers").map(drop).unwrap()), 200);
    for (name, value) in [
        ("host", "b.example"),
        ("te", "gzip"),
        ("connection", "close"),
        ("transfer-encoding", "chunked"),
        ("keep-alive", "1"),
        ("proxy-connection", "x"),
        ("upgrade", "h2c"),
        ("content-length", "x"),
        ("content-length", "3, 3"),
        ("content_length", "3"),
        ("x_api_key", "k"),
        ("expect", "x"),
    ] {
        assert_eq!(h2(|head| head.append_header(name, value).map(drop).unwrap()), 400, "{name}: {value}");
    }
    assert_eq!(h2(|head| (0..2).for_each(|_| head.append_header("content-length", "3").map(drop).unwrap())), 400);
    assert_eq!(h2(|head| (0..2).for_each(|_| head.append_header("host", "a.example").map(drop).unwrap())), 400);
    assert_eq!(h2(|head| (0..101).for_each(|_| head.append_header("x", "y").map(drop).unwrap())), 431);
    assert_eq!(h2(|head| head.set_method(http::Method::TRACE)), 405);
    let target_of = |length: usize| format!("https://a.example/{}", "a".repeat(length - 1)).parse().unwrap();
    assert_eq!(h2(|head| head.set_uri(target_of(super::header_field::MAX_TARGET_BYTES))), 200);
    assert_eq!(h2(|head| head.set_uri(target_of(super::header_field::MAX_TARGET_BYTES + 1))), 414);
    assert_eq!(h2(|head| head.set_uri("https://a.example/a%2fb".parse().unwrap())), 400);
    assert_eq!(h2(|head| head.set_uri("/a".parse().unwrap())), 400, "no authority");
    for authority in ["localhost:80@evil", &"a".repeat(256)] {
        assert_eq!(h2(|head| head.set_uri(format!("https://{authority}/a").parse().unwrap())), 400, "{authority}");
    }
}

fn parse_chunked(body: &str) -> Option<bool> {
    let mut chunks = ChunkedFramingValidator::default();
    chunks.feed(body.as_bytes()).ok().map(|()| chunks.is_done())
}

#[test]
fn chunked_framing_is_validated_strictly() {
    for body in [
        "0\r\n\r\n",
        "3\r\nabc\r\n0\r\n\r\nGET",
        "A;x=\"y\"\r\n0123456789\r\n00\r\n\r\n",
        "3;a\r\nabc\r\n0\r\nX: y\r\nZ:\r\n\r\n",
    ] {
        assert_eq!(parse_chunked(body), Some(true), "{body:?}");
    }
    for body in ["", "3", "3\r", "3\r\nab", "3\r\nabc\r\n", "0\r\n", "0\r\nX: y\r\n", "0\r\n\r"] {
        assert_eq!(parse_chunked(body), Some(false), "{body:?}");
    }
    let long = format!("3;{}", "x".repeat(9 << 10));
    for body in [
        "\r\n",
        ";a\r\n",
        " 3\r\n",
        "g\r\n",
        "-3",
        "+3",
        "0x3",
        "3\n",
        "3\r\r\n",
        "3;a\nb\r\n",
        "3\r\nabcd",
        "3\r\nabc\n",
        "0\r\n\n",
        "0\r\n X: y\r\n",
        "0\r\nGET / HTTP/1.1\r\n",
        "0\r\nX: y\n",
        "0\r\n: y",
        "fffffffffffffffff\r\n",
        "0\r\nX: \0",
        long.as_str(),
    ] {
        assert_eq!(parse_chunked(body), None, "{body:?}");
    }
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic_and_splitting_them_never_changes_the_verdict(bytes in proptest::collection::vec(any::<u8>(), 0..400), split in 0_usize..400) {
        let complete = validate_http1_head(&bytes, LIMITS).map_err(|fault| fault.http_status());
        let mut validator = Http1HeadValidator::new(LIMITS);
        let first = validator.feed(bytes.get(..split).unwrap_or(&bytes));
        let piecewise = match first {
            Ok(None) => validator.feed(&bytes),
            other => other,
        };
        prop_assert_eq!(complete.is_ok(), matches!(piecewise, Ok(Some(_))));
    }

    #[test]
    fn accepted_heads_are_unambiguous(lines in proptest::collection::vec("(Host|Content-Length|Transfer-Encoding|X)( |\t)?:( )?(a|3|chunked|3, 3)", 0..5)) {
        let head = format!("POST / HTTP/1.1\r\n{}\r\n", lines.iter().map(|line| format!("{line}\r\n")).collect::<String>());
        if validate_http1_head(head.as_bytes(), LIMITS).is_ok() {
            let count = |name: &str| lines.iter().filter(|line| line.starts_with(name)).count();
            prop_assert_eq!(count("Host"), 1);
            prop_assert!(count("Content-Length") + count("Transfer-Encoding") <= 1);
        }
    }

    #[test]
    fn reading_byte_by_byte_finds_the_same_end(split in 1_usize..64) {
        let head = b"POST /agents/a/invoke?x=%20 HTTP/1.1\r\nHost: a.example\r\nContent-Length: 12\r\n\r\nbody";
        let mut validator = Http1HeadValidator::new(LIMITS);
        let mut end = None;
        for received in (0..=head.len()).step_by(split) {
            if let Some(found) = validator.feed(&head[..received]).unwrap() {
                end = Some(found);
                break;
            }
        }
        prop_assert!(end.is_none_or(|end| end == head.len() - 4));
    }
}
