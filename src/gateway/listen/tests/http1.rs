//! HTTP/1 limits: slow heads, slow bodies, idle connections, unread bodies, callers that disconnect.

use super::*;

#[tokio::test]
async fn r27_a_connection_serves_several_requests() {
    let running = start(&plain(), Limits::default());
    let mut raw = running.connect().await;
    for _ in 0..3 {
        raw.send(post("/a", 5) + "hello").await;
        let answer = raw.answer().await.unwrap();
        assert_eq!((answer.status, answer.body.as_str()), (200, "{\"length\":5,\"path\":\"/a\"}"));
        assert!(answer.head.contains("connection: keep-alive"));
    }
    assert_eq!(running.counted("accepted"), 1);
}

#[tokio::test]
async fn a_slow_head_gets_408_even_while_bytes_arrive() {
    let running = start(&plain(), hurried());
    let mut raw = running.connect().await;
    raw.send("GET / HTTP/1.1\r\nHost: a\r\n").await;
    let began = Instant::now();
    let dribble = async {
        loop {
            tokio::time::sleep(Duration::from_millis(20)).await;
            raw.send("X: y\r\n").await;
            if began.elapsed() > Duration::from_millis(450) {
                break;
            }
        }
    };
    dribble.await;
    let answer = raw.answer().await.unwrap();
    assert_eq!(answer.status, 408);
    assert!(answer.body.contains("Timeout"));
    assert_eq!(running.echo.served.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn an_idle_connection_is_closed_without_a_response() {
    let running = start(&plain(), hurried());
    let mut fresh = running.connect().await;
    let mut used = running.connect().await;
    used.send(GET).await;
    assert_eq!(used.answer().await.unwrap().status, 200);
    assert_eq!(fresh.rest().await, "");
    assert_eq!(used.rest().await, "");
    until("every connection is closed", || running.server.connections() == 0).await;
}

#[tokio::test]
async fn a_connection_that_is_idle_longer_than_the_head_timeout_is_still_served() {
    let running = start(&plain(), Limits { header_timeout: Span::millis(50), ..Limits::default() });
    let mut raw = running.connect().await;
    tokio::time::sleep(Duration::from_millis(120)).await;
    raw.send(GET).await;
    assert_eq!(raw.answer().await.unwrap().status, 200);
}

#[tokio::test]
async fn a_stalled_body_gets_408_and_the_connection_closes() {
    let running = start(&plain(), hurried());
    let mut raw = running.connect().await;
    raw.send(post("/a", 10) + "he").await;
    let answer = raw.answer().await.unwrap();
    assert_eq!(answer.status, 408);
    assert!(answer.head.contains("connection: close"));
    assert_eq!(raw.rest().await, "");
}

#[tokio::test]
async fn a_body_that_ends_early_is_never_accepted_as_complete() {
    let running = start(&plain(), Limits::default());
    let mut raw = running.connect().await;
    raw.send(post("/a", 10) + "he").await;
    raw.0.shutdown().await.unwrap();
    assert_eq!(raw.answer().await.unwrap().status, 400);
}

#[tokio::test]
async fn an_expected_100_continue_is_sent_once_and_the_connection_is_kept() {
    let running = start(&plain(), Limits::default());
    let mut raw = running.connect().await;
    let head = "POST /a HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n";
    raw.send(head).await;
    assert_eq!(raw.answer().await.unwrap().status, 100);
    raw.send("hello").await;
    let answer = raw.answer().await.unwrap();
    assert_eq!(answer.status, 200);
    assert!(answer.head.contains("connection: keep-alive"));
    raw.send(head.replace("/a", "/refuse")).await;
    let refused = raw.answer().await.unwrap();
    assert_eq!(refused.status, 401, "a refusal before the body is uploaded");
    assert!(refused.head.contains("connection: close"), "the caller may or may not send the body");
}

#[tokio::test]
async fn a_refusal_with_a_small_unread_body_keeps_the_connection() {
    let running = start(&plain(), Limits::default());
    let mut raw = running.connect().await;
    raw.send(post("/refuse", 1000) + &"x".repeat(1000) + GET).await;
    let refused = raw.answer().await.unwrap();
    assert_eq!(refused.status, 401);
    assert!(refused.head.contains("connection: keep-alive"));
    assert!(raw.answer().await.unwrap().body.contains("/after"));
}

#[tokio::test]
async fn a_refusal_with_a_large_unread_body_is_received_before_the_connection_closes() {
    let running = start(&plain(), Limits::default());
    let mut raw = running.connect().await;
    raw.send(post("/refuse", 3 << 20) + &"x".repeat(3 << 20) + GET).await;
    let refused = raw.answer().await.expect("the response is not lost to a reset");
    assert_eq!(refused.status, 401);
    assert!(refused.head.contains("connection: close"));
    assert_eq!(raw.rest().await, "");
    assert_eq!(running.echo.served.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_caller_that_only_stops_sending_gets_its_response() {
    let running = start(&plain(), Limits::default());
    let mut raw = running.connect().await;
    raw.send("GET /wait HTTP/1.1\r\nHost: a\r\n\r\n").await;
    raw.0.shutdown().await.unwrap();
    until("the call waits", || running.echo.waiting.load(Ordering::SeqCst) == 1).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    running.echo.release.notify_waiters();
    assert_eq!(raw.answer().await.unwrap().status, 200);
    assert_eq!(running.echo.gone.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_reset_by_the_caller_is_detected_while_the_agent_works() {
    let running = start(&plain(), Limits::default());
    let mut raw = running.connect().await;
    raw.send("GET /wait HTTP/1.1\r\nHost: a\r\n\r\n").await;
    until("the call waits", || running.echo.waiting.load(Ordering::SeqCst) == 1).await;
    rustix::net::sockopt::set_socket_linger(&raw.0, Some(Duration::ZERO)).unwrap();
    drop(raw);
    until("the disconnect is detected", || running.echo.gone.load(Ordering::SeqCst) == 1).await;
    until("the connection is closed", || running.server.connections() == 0).await;
}

#[tokio::test]
async fn detecting_a_disconnect_consumes_no_byte_of_the_next_request() {
    let running = start(&plain(), Limits::default());
    let mut raw = running.connect().await;
    raw.send(format!("GET /wait HTTP/1.1\r\nHost: a\r\n\r\n{GET}")).await;
    until("the call waits", || running.echo.waiting.load(Ordering::SeqCst) == 1).await;
    raw.send(GET).await;
    running.echo.release.notify_waiters();
    for path in ["{}", "/after", "/after"] {
        assert!(raw.answer().await.unwrap().body.contains(path));
    }
}

#[tokio::test]
async fn an_aborted_response_never_gets_its_last_chunk() {
    let running = start(&plain(), Limits::default());
    let mut raw = running.connect().await;
    raw.send("GET /abort HTTP/1.1\r\nHost: a\r\n\r\n").await;
    let text = raw.rest().await;
    assert!(text.contains("5\r\nfirst\r\n") && !text.ends_with("0\r\n\r\n"), "{text}");
}

#[tokio::test]
async fn events_are_sent_before_the_response_ends() {
    let running = start(&plain(), Limits::default());
    let mut raw = running.connect().await;
    raw.send("GET /stream HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert!(raw.until("first\r\n").await.is_some());
    until("the call waits", || running.echo.waiting.load(Ordering::SeqCst) == 1).await;
    running.echo.release.notify_waiters();
    assert!(raw.until("6\r\nsecond\r\n0\r\n\r\n").await.is_some());
}

#[tokio::test]
async fn connections_beyond_the_limit_are_closed_and_counted() {
    let running = start(&plain(), Limits { max_connections: 2, ..Limits::default() });
    let mut first = running.connect().await;
    let _second = running.connect().await;
    until("two are open", || running.server.connections() == 2).await;
    assert_eq!(running.connect().await.rest().await, "");
    assert_eq!(running.counted("refused"), 1);
    first.send(GET).await;
    assert_eq!(first.answer().await.unwrap().status, 200);
    drop(first);
    until("one is closed", || running.server.connections() == 1).await;
    let mut third = running.connect().await;
    third.send(GET).await;
    assert_eq!(third.answer().await.unwrap().status, 200);
}

#[tokio::test]
async fn a_connection_closes_after_its_maximum_number_of_requests() {
    let running = start(&plain(), Limits { max_requests_per_connection: Some(2), ..Limits::default() });
    let mut raw = running.connect().await;
    raw.send(format!("{GET}{GET}{GET}")).await;
    assert!(raw.answer().await.unwrap().head.contains("keep-alive"));
    assert!(raw.answer().await.unwrap().head.contains("connection: close"));
    assert_eq!(raw.rest().await, "");
}

#[tokio::test]
async fn a_panic_ends_only_its_own_connection() {
    let running = start(&plain(), Limits::default());
    let mut raw = running.connect().await;
    let mut other = running.connect().await;
    raw.send("GET /panic HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert_eq!(raw.rest().await, "");
    other.send(GET).await;
    assert_eq!(other.answer().await.unwrap().status, 200);
    until("it is no longer counted", || running.server.connections() == 1 && running.server.calls() == 0).await;
}

#[test]
fn plain_http_beyond_loopback_must_be_enabled_explicitly() {
    let open = Config { address: "0.0.0.0:0".parse().unwrap(), ..plain() };
    assert!(bind_all(std::slice::from_ref(&open), None).unwrap_err()[0].starts_with("listen[0].address: "));
    assert!(bind_all(&[Config { allow_plaintext: true, ..open }], None).is_ok());
    assert!(Config { address: "[::1]:0".parse().unwrap(), ..plain() }.problems().is_empty());
}

#[test]
fn all_invalid_limits_are_reported() {
    assert!(Limits::default().problems().is_empty());
    let odd = Limits {
        max_connections: 0,
        max_headers: 1000,
        idle_timeout: Span::secs(0),
        max_requests_per_connection: Some(0),
        ..Limits::default()
    };
    assert_eq!(odd.problems().len(), 4);
}
