//! HTTP/1 limits: slow heads, slow bodies, idle connections, unread bodies, callers that disconnect.

use super::*;

#[tokio::test]
async fn r27_a_connection_serves_several_requests() {
    let server = start_server(&plain_listener(), ConnectionLimits::default());
    let mut client = server.connect().await;
    for _ in 0..3 {
        client.send(post_head("/a", 5) + "hello").await;
        let response = client.read_response().await.unwrap();
        assert_eq!((response.status, response.body.as_str()), (200, "{\"length\":5,\"path\":\"/a\"}"));
        assert!(response.head.contains("connection: keep-alive"));
    }
    assert_eq!(server.metric_sum("accepted"), 1);
}

#[tokio::test]
async fn a_slow_head_gets_408_even_while_bytes_arrive() {
    let server = start_server(&plain_listener(), short_timeouts());
    let mut client = server.connect().await;
    client.send("GET / HTTP/1.1\r\nHost: a\r\n").await;
    let started_at = Instant::now();
    let send_slowly = async {
        loop {
            tokio::time::sleep(Duration::from_millis(20)).await;
            client.send("X: y\r\n").await;
            if started_at.elapsed() > Duration::from_millis(450) {
                break;
            }
        }
    };
    send_slowly.await;
    let response = client.read_response().await.unwrap();
    assert_eq!(response.status, 408);
    assert!(response.body.contains("Timeout"));
    assert_eq!(server.echo.served.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn an_idle_connection_is_closed_without_a_response() {
    let server = start_server(&plain_listener(), short_timeouts());
    let mut fresh = server.connect().await;
    let mut used = server.connect().await;
    used.send(GET).await;
    assert_eq!(used.read_response().await.unwrap().status, 200);
    assert_eq!(fresh.read_to_end().await, "");
    assert_eq!(used.read_to_end().await, "");
    until("every connection is closed", || server.http_server.open_connections() == 0).await;
}

#[tokio::test]
async fn a_connection_that_is_idle_longer_than_the_head_timeout_is_still_served() {
    let server = start_server(
        &plain_listener(),
        ConnectionLimits { header_timeout: ConfigDuration::from_millis(50), ..ConnectionLimits::default() },
    );
    let mut client = server.connect().await;
    until("the connection is accepted", || server.metric_sum("accepted") == 1).await;
    tokio::time::pause();
    for _ in 0..20 {
        tokio::time::advance(Duration::from_millis(50)).await;
    }
    tokio::time::resume();
    client.send(GET).await;
    assert_eq!(client.read_response().await.unwrap().status, 200);
}

#[tokio::test]
async fn a_stalled_body_gets_408_and_the_connection_closes() {
    let server = start_server(&plain_listener(), short_timeouts());
    let mut client = server.connect().await;
    client.send(post_head("/a", 10) + "he").await;
    let response = client.read_response().await.unwrap();
    assert_eq!(response.status, 408);
    assert!(response.head.contains("connection: close"));
    assert_eq!(client.read_to_end().await, "");
}

#[tokio::test]
async fn a_body_that_ends_early_is_never_accepted_as_complete() {
    let server = start_server(&plain_listener(), ConnectionLimits::default());
    let mut client = server.connect().await;
    client.send(post_head("/a", 10) + "he").await;
    client.0.shutdown().await.unwrap();
    assert_eq!(client.read_response().await.unwrap().status, 400);
}

#[tokio::test]
async fn an_expected_100_continue_is_sent_once_and_the_connection_is_kept() {
    let server = start_server(&plain_listener(), ConnectionLimits::default());
    let mut client = server.connect().await;
    let head = "POST /a HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n";
    client.send(head).await;
    assert_eq!(client.read_response().await.unwrap().status, 100);
    client.send("hello").await;
    let response = client.read_response().await.unwrap();
    assert_eq!(response.status, 200);
    assert!(response.head.contains("connection: keep-alive"));
    client.send(head.replace("/a", "/refuse")).await;
    let refused = client.read_response().await.unwrap();
    assert_eq!(refused.status, 401, "a refusal before the body is uploaded");
    assert!(refused.head.contains("connection: close"), "the caller may or may not send the body");
}

#[tokio::test]
async fn a_refusal_with_a_small_unread_body_keeps_the_connection() {
    let server = start_server(&plain_listener(), ConnectionLimits::default());
    let mut client = server.connect().await;
    client.send(post_head("/refuse", 1000) + &"x".repeat(1000) + GET).await;
    let refused = client.read_response().await.unwrap();
    assert_eq!(refused.status, 401);
    assert!(refused.head.contains("connection: keep-alive"));
    assert!(client.read_response().await.unwrap().body.contains("/after"));
}

#[tokio::test]
async fn a_refusal_with_a_large_unread_body_is_received_before_the_connection_closes() {
    let server = start_server(&plain_listener(), ConnectionLimits::default());
    let mut client = server.connect().await;
    client.send(post_head("/refuse", 3 << 20) + &"x".repeat(3 << 20) + GET).await;
    let refused = client.read_response().await.expect("the response is not lost to a reset");
    assert_eq!(refused.status, 401);
    assert!(refused.head.contains("connection: close"));
    assert_eq!(client.read_to_end().await, "");
    assert_eq!(server.echo.served.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_caller_that_only_stops_sending_gets_its_response() {
    let server = start_server(&plain_listener(), ConnectionLimits::default());
    let mut client = server.connect().await;
    client.send("GET /wait HTTP/1.1\r\nHost: a\r\n\r\n").await;
    client.0.shutdown().await.unwrap();
    until("the call waits", || server.echo.waiting.load(Ordering::SeqCst) == 1).await;
    // Once the server has answered a later connection, it has also read the end of this one's requests.
    let mut later = server.connect().await;
    later.send(GET).await;
    assert_eq!(later.read_response().await.unwrap().status, 200);
    server.echo.release.notify_waiters();
    assert_eq!(client.read_response().await.unwrap().status, 200);
    assert_eq!(server.echo.gone.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_reset_by_the_caller_is_detected_while_the_agent_works() {
    let server = start_server(&plain_listener(), ConnectionLimits::default());
    let mut client = server.connect().await;
    client.send("GET /wait HTTP/1.1\r\nHost: a\r\n\r\n").await;
    until("the call waits", || server.echo.waiting.load(Ordering::SeqCst) == 1).await;
    rustix::net::sockopt::set_socket_linger(&client.0, Some(Duration::ZERO)).unwrap();
    drop(client);
    until("the disconnect is detected", || server.echo.gone.load(Ordering::SeqCst) == 1).await;
    until("the connection is closed", || server.http_server.open_connections() == 0).await;
}

#[tokio::test]
async fn detecting_a_disconnect_consumes_no_byte_of_the_next_request() {
    let server = start_server(&plain_listener(), ConnectionLimits::default());
    let mut client = server.connect().await;
    client.send(format!("GET /wait HTTP/1.1\r\nHost: a\r\n\r\n{GET}")).await;
    until("the call waits", || server.echo.waiting.load(Ordering::SeqCst) == 1).await;
    client.send(GET).await;
    server.echo.release.notify_waiters();
    for path in ["{}", "/after", "/after"] {
        assert!(client.read_response().await.unwrap().body.contains(path));
    }
}

#[tokio::test]
async fn an_aborted_response_never_gets_its_last_chunk() {
    let server = start_server(&plain_listener(), ConnectionLimits::default());
    let mut client = server.connect().await;
    client.send("GET /abort HTTP/1.1\r\nHost: a\r\n\r\n").await;
    let text = client.read_to_end().await;
    assert!(text.contains("5\r\nfirst\r\n") && !text.ends_with("0\r\n\r\n"), "{text}");
}

#[tokio::test]
async fn events_are_sent_before_the_response_ends() {
    let server = start_server(&plain_listener(), ConnectionLimits::default());
    let mut client = server.connect().await;
    client.send("GET /stream HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert!(client.read_until("first\r\n").await.is_some());
    until("the call waits", || server.echo.waiting.load(Ordering::SeqCst) == 1).await;
    server.echo.release.notify_waiters();
    assert!(client.read_until("6\r\nsecond\r\n0\r\n\r\n").await.is_some());
}

#[tokio::test]
async fn connections_beyond_the_limit_are_closed_and_counted() {
    let server =
        start_server(&plain_listener(), ConnectionLimits { max_connections: 2, ..ConnectionLimits::default() });
    let mut first = server.connect().await;
    let _second = server.connect().await;
    until("two are open", || server.http_server.open_connections() == 2).await;
    assert_eq!(server.connect().await.read_to_end().await, "");
    assert_eq!(server.metric_sum("refused"), 1);
    first.send(GET).await;
    assert_eq!(first.read_response().await.unwrap().status, 200);
    drop(first);
    until("one is closed", || server.http_server.open_connections() == 1).await;
    let mut third = server.connect().await;
    third.send(GET).await;
    assert_eq!(third.read_response().await.unwrap().status, 200);
}

#[tokio::test]
async fn a_connection_closes_after_its_maximum_number_of_requests() {
    let server = start_server(
        &plain_listener(),
        ConnectionLimits { max_requests_per_connection: Some(2), ..ConnectionLimits::default() },
    );
    let mut client = server.connect().await;
    client.send(format!("{GET}{GET}{GET}")).await;
    assert!(client.read_response().await.unwrap().head.contains("keep-alive"));
    assert!(client.read_response().await.unwrap().head.contains("connection: close"));
    assert_eq!(client.read_to_end().await, "");
}

#[tokio::test]
async fn a_panic_ends_only_its_own_connection() {
    let server = start_server(&plain_listener(), ConnectionLimits::default());
    let mut client = server.connect().await;
    let mut other = server.connect().await;
    client.send("GET /panic HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert_eq!(client.read_to_end().await, "");
    other.send(GET).await;
    assert_eq!(other.read_response().await.unwrap().status, 200);
    until("it is no longer counted", || {
        server.http_server.open_connections() == 1 && server.http_server.active_calls() == 0
    })
    .await;
}

#[test]
fn plain_http_beyond_loopback_must_be_enabled_explicitly() {
    let open = ListenerConfig { address: "0.0.0.0:0".parse().unwrap(), ..plain_listener() };
    assert!(bind_listeners(std::slice::from_ref(&open), None).unwrap_err()[0].starts_with("listeners[0].address: "));
    assert!(bind_listeners(&[ListenerConfig { allow_plaintext: true, ..open }], None).is_ok());
    assert!(ListenerConfig { address: "[::1]:0".parse().unwrap(), ..plain_listener() }.problems().is_empty());
}

#[test]
fn all_invalid_limits_are_reported() {
    assert!(ConnectionLimits::default().problems().is_empty());
    let invalid = ConnectionLimits {
        max_connections: 0,
        max_headers: 1000,
        idle_timeout: ConfigDuration::from_secs(0),
        max_requests_per_connection: Some(0),
        ..ConnectionLimits::default()
    };
    assert_eq!(invalid.problems().len(), 4);
}
