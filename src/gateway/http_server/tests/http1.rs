//! HTTP/1 limits: slow heads, slow bodies, idle connections, unread bodies, callers that disconnect.

use super::*;

#[tokio::test]
async fn r27_a_connection_serves_several_requests() {
    let running = start_server(&plain_listener(), ConnectionLimits::default());
    let mut raw = running.connect().await;
    for _ in 0..3 {
        raw.send(post_head("/a", 5) + "hello").await;
        let answer = raw.read_response().await.unwrap();
        assert_eq!((answer.status, answer.body.as_str()), (200, "{\"length\":5,\"path\":\"/a\"}"));
        assert!(answer.head.contains("connection: keep-alive"));
    }
    assert_eq!(running.metric_sum("accepted"), 1);
}

#[tokio::test]
async fn a_slow_head_gets_408_even_while_bytes_arrive() {
    let running = start_server(&plain_listener(), short_timeouts());
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
    let answer = raw.read_response().await.unwrap();
    assert_eq!(answer.status, 408);
    assert!(answer.body.contains("Timeout"));
    assert_eq!(running.echo.served.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn an_idle_connection_is_closed_without_a_response() {
    let running = start_server(&plain_listener(), short_timeouts());
    let mut fresh = running.connect().await;
    let mut used = running.connect().await;
    used.send(GET).await;
    assert_eq!(used.read_response().await.unwrap().status, 200);
    assert_eq!(fresh.read_to_end().await, "");
    assert_eq!(used.read_to_end().await, "");
    until("every connection is closed", || running.server.open_connections() == 0).await;
}

#[tokio::test]
async fn a_connection_that_is_idle_longer_than_the_head_timeout_is_still_served() {
    let running = start_server(
        &plain_listener(),
        ConnectionLimits { header_timeout: ConfigDuration::from_millis(50), ..ConnectionLimits::default() },
    );
    let mut raw = running.connect().await;
    tokio::time::sleep(Duration::from_millis(120)).await;
    raw.send(GET).await;
    assert_eq!(raw.read_response().await.unwrap().status, 200);
}

#[tokio::test]
async fn a_stalled_body_gets_408_and_the_connection_closes() {
    let running = start_server(&plain_listener(), short_timeouts());
    let mut raw = running.connect().await;
    raw.send(post_head("/a", 10) + "he").await;
    let answer = raw.read_response().await.unwrap();
    assert_eq!(answer.status, 408);
    assert!(answer.head.contains("connection: close"));
    assert_eq!(raw.read_to_end().await, "");
}

#[tokio::test]
async fn a_body_that_ends_early_is_never_accepted_as_complete() {
    let running = start_server(&plain_listener(), ConnectionLimits::default());
    let mut raw = running.connect().await;
    raw.send(post_head("/a", 10) + "he").await;
    raw.0.shutdown().await.unwrap();
    assert_eq!(raw.read_response().await.unwrap().status, 400);
}

#[tokio::test]
async fn an_expected_100_continue_is_sent_once_and_the_connection_is_kept() {
    let running = start_server(&plain_listener(), ConnectionLimits::default());
    let mut raw = running.connect().await;
    let head = "POST /a HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n";
    raw.send(head).await;
    assert_eq!(raw.read_response().await.unwrap().status, 100);
    raw.send("hello").await;
    let answer = raw.read_response().await.unwrap();
    assert_eq!(answer.status, 200);
    assert!(answer.head.contains("connection: keep-alive"));
    raw.send(head.replace("/a", "/refuse")).await;
    let refused = raw.read_response().await.unwrap();
    assert_eq!(refused.status, 401, "a refusal before the body is uploaded");
    assert!(refused.head.contains("connection: close"), "the caller may or may not send the body");
}

#[tokio::test]
async fn a_refusal_with_a_small_unread_body_keeps_the_connection() {
    let running = start_server(&plain_listener(), ConnectionLimits::default());
    let mut raw = running.connect().await;
    raw.send(post_head("/refuse", 1000) + &"x".repeat(1000) + GET).await;
    let refused = raw.read_response().await.unwrap();
    assert_eq!(refused.status, 401);
    assert!(refused.head.contains("connection: keep-alive"));
    assert!(raw.read_response().await.unwrap().body.contains("/after"));
}

#[tokio::test]
async fn a_refusal_with_a_large_unread_body_is_received_before_the_connection_closes() {
    let running = start_server(&plain_listener(), ConnectionLimits::default());
    let mut raw = running.connect().await;
    raw.send(post_head("/refuse", 3 << 20) + &"x".repeat(3 << 20) + GET).await;
    let refused = raw.read_response().await.expect("the response is not lost to a reset");
    assert_eq!(refused.status, 401);
    assert!(refused.head.contains("connection: close"));
    assert_eq!(raw.read_to_end().await, "");
    assert_eq!(running.echo.served.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_caller_that_only_stops_sending_gets_its_response() {
    let running = start_server(&plain_listener(), ConnectionLimits::default());
    let mut raw = running.connect().await;
    raw.send("GET /wait HTTP/1.1\r\nHost: a\r\n\r\n").await;
    raw.0.shutdown().await.unwrap();
    until("the call waits", || running.echo.waiting.load(Ordering::SeqCst) == 1).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    running.echo.release.notify_waiters();
    assert_eq!(raw.read_response().await.unwrap().status, 200);
    assert_eq!(running.echo.gone.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_reset_by_the_caller_is_detected_while_the_agent_works() {
    let running = start_server(&plain_listener(), ConnectionLimits::default());
    let mut raw = running.connect().await;
    raw.send("GET /wait HTTP/1.1\r\nHost: a\r\n\r\n").await;
    until("the call waits", || running.echo.waiting.load(Ordering::SeqCst) == 1).await;
    rustix::net::sockopt::set_socket_linger(&raw.0, Some(Duration::ZERO)).unwrap();
    drop(raw);
    until("the disconnect is detected", || running.echo.gone.load(Ordering::SeqCst) == 1).await;
    until("the connection is closed", || running.server.open_connections() == 0).await;
}

#[tokio::test]
async fn detecting_a_disconnect_consumes_no_byte_of_the_next_request() {
    let running = start_server(&plain_listener(), ConnectionLimits::default());
    let mut raw = running.connect().await;
    raw.send(format!("GET /wait HTTP/1.1\r\nHost: a\r\n\r\n{GET}")).await;
    until("the call waits", || running.echo.waiting.load(Ordering::SeqCst) == 1).await;
    raw.send(GET).await;
    running.echo.release.notify_waiters();
    for path in ["{}", "/after", "/after"] {
        assert!(raw.read_response().await.unwrap().body.contains(path));
    }
}

#[tokio::test]
async fn an_aborted_response_never_gets_its_last_chunk() {
    let running = start_server(&plain_listener(), ConnectionLimits::default());
    let mut raw = running.connect().await;
    raw.send("GET /abort HTTP/1.1\r\nHost: a\r\n\r\n").await;
    let text = raw.read_to_end().await;
    assert!(text.contains("5\r\nfirst\r\n") && !text.ends_with("0\r\n\r\n"), "{text}");
}

#[tokio::test]
async fn events_are_sent_before_the_response_ends() {
    let running = start_server(&plain_listener(), ConnectionLimits::default());
    let mut raw = running.connect().await;
    raw.send("GET /stream HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert!(raw.read_until("first\r\n").await.is_some());
    until("the call waits", || running.echo.waiting.load(Ordering::SeqCst) == 1).await;
    running.echo.release.notify_waiters();
    assert!(raw.read_until("6\r\nsecond\r\n0\r\n\r\n").await.is_some());
}

#[tokio::test]
async fn connections_beyond_the_limit_are_closed_and_counted() {
    let running =
        start_server(&plain_listener(), ConnectionLimits { max_connections: 2, ..ConnectionLimits::default() });
    let mut first = running.connect().await;
    let _second = running.connect().await;
    until("two are open", || running.server.open_connections() == 2).await;
    assert_eq!(running.connect().await.read_to_end().await, "");
    assert_eq!(running.metric_sum("refused"), 1);
    first.send(GET).await;
    assert_eq!(first.read_response().await.unwrap().status, 200);
    drop(first);
    until("one is closed", || running.server.open_connections() == 1).await;
    let mut third = running.connect().await;
    third.send(GET).await;
    assert_eq!(third.read_response().await.unwrap().status, 200);
}

#[tokio::test]
async fn a_connection_closes_after_its_maximum_number_of_requests() {
    let running = start_server(
        &plain_listener(),
        ConnectionLimits { max_requests_per_connection: Some(2), ..ConnectionLimits::default() },
    );
    let mut raw = running.connect().await;
    raw.send(format!("{GET}{GET}{GET}")).await;
    assert!(raw.read_response().await.unwrap().head.contains("keep-alive"));
    assert!(raw.read_response().await.unwrap().head.contains("connection: close"));
    assert_eq!(raw.read_to_end().await, "");
}

#[tokio::test]
async fn a_panic_ends_only_its_own_connection() {
    let running = start_server(&plain_listener(), ConnectionLimits::default());
    let mut raw = running.connect().await;
    let mut other = running.connect().await;
    raw.send("GET /panic HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert_eq!(raw.read_to_end().await, "");
    other.send(GET).await;
    assert_eq!(other.read_response().await.unwrap().status, 200);
    until("it is no longer counted", || running.server.open_connections() == 1 && running.server.active_calls() == 0)
        .await;
}

#[test]
fn plain_http_beyond_loopback_must_be_enabled_explicitly() {
    let open = ListenerConfig { address: "0.0.0.0:0".parse().unwrap(), ..plain_listener() };
    assert!(bind_listeners(std::slice::from_ref(&open), None).unwrap_err()[0].starts_with("listen[0].address: "));
    assert!(bind_listeners(&[ListenerConfig { allow_plaintext: true, ..open }], None).is_ok());
    assert!(ListenerConfig { address: "[::1]:0".parse().unwrap(), ..plain_listener() }.problems().is_empty());
}

#[test]
fn all_invalid_limits_are_reported() {
    assert!(ConnectionLimits::default().problems().is_empty());
    let odd = ConnectionLimits {
        max_connections: 0,
        max_headers: 1000,
        idle_timeout: ConfigDuration::from_secs(0),
        max_requests_per_connection: Some(0),
        ..ConnectionLimits::default()
    };
    assert_eq!(odd.problems().len(), 4);
}
