//! HTTP/2, with ALPN and with prior knowledge.

use super::*;
use crate::http_server::connection_stream::ConnectionStream;
use pingora_core::{
    connectors::http::v2::{ConnectionRef, H2HandshakeSettings, handshake},
    protocols::http::v2::client::Http2Session,
};
use pingora_http::RequestHeader;

pub(super) async fn http2_handshake(stream: ConnectionStream) -> ConnectionRef {
    let mut settings = H2HandshakeSettings::new();
    settings.max_streams = 100;
    handshake(Box::new(stream), settings).await.unwrap()
}

async fn connect_http2(server: &TestServer) -> ConnectionRef {
    let mut stream = ConnectionStream::from_tcp(server.connect().await.0);
    stream.set_http2();
    http2_handshake(stream).await
}

pub(super) async fn send_request(
    connection: &ConnectionRef,
    path: &str,
    headers: &[(&'static str, &str)],
    body: Option<usize>,
) -> Http2Session {
    let mut stream = connection.spawn_stream().await.unwrap().unwrap();
    let mut head = RequestHeader::build("POST", path.as_bytes(), None).unwrap();
    head.append_header("host", "a").unwrap();
    for (name, value) in headers {
        head.append_header(*name, *value).unwrap();
    }
    stream.write_request_header(Box::new(head), body.is_none()).unwrap();
    if let Some(length) = body {
        // A refusal may arrive before the body is read.
        let _ = stream.write_request_body(Bytes::from(vec![b'x'; length]), true).await;
    }
    stream
}

pub(super) async fn read_response(stream: &mut Http2Session) -> Option<(u16, String)> {
    timeout(TEST_TIMEOUT, stream.read_response_header()).await.unwrap().ok()?;
    let mut body = Vec::new();
    while let Some(chunk) = timeout(TEST_TIMEOUT, stream.read_response_body()).await.unwrap().ok()? {
        body.extend_from_slice(&chunk);
    }
    Some((stream.response_header()?.status.as_u16(), String::from_utf8(body).unwrap()))
}

#[tokio::test]
async fn r27_http2_with_prior_knowledge_is_served() {
    let server = start_server(&plain_listener(), ConnectionLimits::default());
    let connection = connect_http2(&server).await;
    for length in [0, 5, 1 << 20] {
        let mut stream = send_request(&connection, "/a", &[], Some(length)).await;
        assert_eq!(
            read_response(&mut stream).await.unwrap(),
            (200, format!("{{\"length\":{length},\"path\":\"/a\"}}"))
        );
    }
    assert_eq!(server.metric_sum("accepted"), 1);
}

#[tokio::test]
async fn ambiguous_http2_heads_are_refused_on_their_stream_only() {
    let server = start_server(&plain_listener(), ConnectionLimits::default());
    let connection = connect_http2(&server).await;
    for (path, headers, status) in [
        ("/a", &[("x_api_key", "k")][..], 400),
        ("/a", &[("expect", "x")][..], 400),
        ("/a", &[("content-type", "a"), ("content-type", "b")][..], 400),
        ("/a%2fb", &[][..], 400),
        ("/a/../b", &[][..], 400),
        ("//a", &[][..], 400),
    ] {
        let mut stream = send_request(&connection, path, headers, None).await;
        let (found, body) = read_response(&mut stream).await.unwrap();
        assert_eq!(found, status, "{path} {headers:?}");
        assert!(body.contains("InvalidInput"));
    }
    let many: Vec<_> = (0..120).map(|_| ("x-many", "y")).collect();
    assert_eq!(read_response(&mut send_request(&connection, "/a", &many, None).await).await.unwrap().0, 431);
    assert_eq!(server.echo.served.load(Ordering::SeqCst), 0);
    assert_eq!(read_response(&mut send_request(&connection, "/a", &[], None).await).await.unwrap().0, 200);
}

#[tokio::test]
async fn an_early_refusal_on_http2_is_received_and_the_connection_stays_open() {
    let server = start_server(&plain_listener(), ConnectionLimits::default());
    let connection = connect_http2(&server).await;
    let mut stream = send_request(&connection, "/refuse", &[], Some(1 << 20)).await;
    assert_eq!(read_response(&mut stream).await.unwrap().0, 401);
    assert_eq!(read_response(&mut send_request(&connection, "/a", &[], None).await).await.unwrap().0, 200);
}

#[tokio::test]
async fn a_stalled_body_on_http2_gets_408() {
    let server = start_server(&plain_listener(), short_timeouts());
    let connection = connect_http2(&server).await;
    let mut stream = connection.spawn_stream().await.unwrap().unwrap();
    let mut head = RequestHeader::build("POST", b"/a", None).unwrap();
    head.append_header("host", "a").unwrap();
    stream.write_request_header(Box::new(head), false).unwrap();
    stream.write_request_body(Bytes::from_static(b"he"), false).await.unwrap();
    assert_eq!(read_response(&mut stream).await.unwrap().0, 408);
}

#[tokio::test]
async fn a_stream_reset_is_detected_while_the_agent_works() {
    let server = start_server(&plain_listener(), ConnectionLimits::default());
    let connection = connect_http2(&server).await;
    let mut stream = send_request(&connection, "/wait", &[], None).await;
    until("the call waits", || server.echo.waiting.load(Ordering::SeqCst) == 1).await;
    // The server has read the end of the first request once it has answered this one.
    assert_eq!(read_response(&mut send_request(&connection, "/a", &[], None).await).await.unwrap().0, 200);
    assert_eq!(server.echo.gone.load(Ordering::SeqCst), 0, "the end of the request is not a disconnect");
    stream.shutdown();
    until("the disconnect is detected", || server.echo.gone.load(Ordering::SeqCst) == 1).await;
}

#[tokio::test]
async fn an_aborted_response_resets_its_stream() {
    let server = start_server(&plain_listener(), ConnectionLimits::default());
    let connection = connect_http2(&server).await;
    assert_eq!(read_response(&mut send_request(&connection, "/abort", &[], None).await).await, None);
    assert_eq!(read_response(&mut send_request(&connection, "/a", &[], None).await).await.unwrap().0, 200);
}

#[tokio::test]
async fn an_incomplete_preface_and_a_connection_without_streams_are_closed() {
    let server = start_server(&plain_listener(), short_timeouts());
    let mut client = server.connect().await;
    client.send("PRI * HTTP/2.0\r\n").await;
    assert_eq!(client.read_to_end().await, "");
    let mut client = server.connect().await;
    client.send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await;
    client.read_to_end().await;
    let connection = connect_http2(&server).await;
    assert_eq!(read_response(&mut send_request(&connection, "/a", &[], None).await).await.unwrap().0, 200);
    until("every connection is closed", || server.http_server.open_connections() == 0).await;
}

#[tokio::test]
async fn a_flood_of_resets_ends_the_connection() {
    let server = start_server(&plain_listener(), ConnectionLimits::default());
    let connection = connect_http2(&server).await;
    for _ in 0..2000 {
        let Ok(Some(mut stream)) = connection.spawn_stream().await else {
            break;
        };
        let mut head = RequestHeader::build("GET", b"/wait", None).unwrap();
        head.append_header("host", "a").unwrap();
        if stream.write_request_header(Box::new(head), true).is_err() {
            break;
        }
        stream.shutdown();
    }
    until("no call is active", || server.http_server.active_calls() == 0).await;
    let mut client = server.connect().await;
    client.send(GET).await;
    assert_eq!(client.read_response().await.unwrap().status, 200);
}

/// Sends `frame` 100,000 times after the preface and an empty SETTINGS; returns whether the server ended the connection.
async fn flood_ends_connection(server: &TestServer, frame: &[u8]) -> bool {
    let (mut reader, mut writer) = server.connect().await.0.into_split();
    let drained = tokio::spawn(async move { while matches!(reader.read(&mut [0; 4096]).await, Ok(1..)) {} });
    writer.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.unwrap();
    let frames = frame.repeat(1_000);
    let mut is_refused = false;
    for _ in 0..100 {
        is_refused |= writer.write_all(&frames).await.is_err();
    }
    is_refused || timeout(Duration::from_secs(2), drained).await.is_ok()
}

#[tokio::test]
async fn floods_of_frames_without_effect_end_the_connection_and_no_other() {
    let server = start_server(&plain_listener(), ConnectionLimits::default());
    let other = connect_http2(&server).await;
    for (name, frame) in [
        ("WINDOW_UPDATE of no effect to speak of", &b"\0\0\x04\x08\0\0\0\0\0\0\0\0\x01"[..]),
        ("PRIORITY", b"\0\0\x05\x02\0\0\0\0\x01\0\0\0\0\x10"),
        ("PING with ACK", b"\0\0\x08\x06\x01\0\0\0\x0012345678"),
        ("PING", b"\0\0\x08\x06\0\0\0\0\x0012345678"),
        ("an unknown frame", b"\0\0\x01\xc8\0\0\0\0\0x"),
        ("SETTINGS", b"\0\0\0\x04\0\0\0\0\0"),
    ] {
        assert!(flood_ends_connection(&server, frame).await, "{name}");
    }
    let mut stream = send_request(&other, "/a", &[], Some(1 << 20)).await;
    assert_eq!(read_response(&mut stream).await.unwrap().0, 200);
}
