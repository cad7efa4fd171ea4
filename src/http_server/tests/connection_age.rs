//! The maximum age of connections: an older connection gets no further requests, and loses none.

use super::*;
use crate::http_server::connection_stream::ConnectionStream;

fn limits_with_age(age: u64) -> ConnectionLimits {
    ConnectionLimits { max_connection_age: Some(ConfigDuration::from_millis(age)), ..ConnectionLimits::default() }
}

/// Longer than the age of the tests with its jitter.
async fn wait_for_age() {
    tokio::time::sleep(Duration::from_millis(600)).await;
}

#[tokio::test]
async fn the_response_after_the_maximum_age_closes_an_http1_connection() {
    let server = start_server(&plain_listener(), limits_with_age(400));
    let mut client = server.connect().await;
    client.send(GET).await;
    assert!(!client.read_response().await.unwrap().head.contains("connection: close"));
    client.send("GET /wait HTTP/1.1\r\nHost: a\r\n\r\n").await;
    until("the call waits", || server.echo.waiting.load(Ordering::SeqCst) == 1).await;
    wait_for_age().await;
    server.echo.release.notify_waiters();
    assert_eq!(client.read_response().await.unwrap().status, 200, "a request in progress finishes");
    client.send(GET).await;
    if let Some(response) = client.read_response().await {
        assert!(response.status == 200 && response.head.contains("connection: close"), "{response:?}");
        assert_eq!(client.read_to_end().await, "");
    }
    assert!(server.echo.served.load(Ordering::SeqCst) <= 3);
}

#[tokio::test]
async fn idle_http1_connections_close_at_the_maximum_age() {
    let server = start_server(&plain_listener(), limits_with_age(400));
    let started_at = Instant::now();
    let (mut used, mut fresh) = (server.connect().await, server.connect().await);
    used.send(GET).await;
    assert_eq!(used.read_response().await.unwrap().status, 200);
    assert_eq!((used.read_to_end().await, fresh.read_to_end().await), (String::new(), String::new()));
    assert!(started_at.elapsed() < TEST_TIMEOUT, "long before the idle timeout");
}

#[tokio::test]
async fn http2_connections_receive_goaway_at_the_maximum_age_and_finish_their_streams() {
    let server = start_server(&plain_listener(), limits_with_age(400));
    let mut stream = ConnectionStream::from_tcp(server.connect().await.0);
    stream.set_http2();
    let connection = http2::http2_handshake(stream).await;
    let mut stream = http2::send_request(&connection, "/wait", &[], None).await;
    until("the call waits", || server.echo.waiting.load(Ordering::SeqCst) == 1).await;
    wait_for_age().await;
    server.echo.release.notify_waiters();
    assert_eq!(http2::read_response(&mut stream).await.unwrap().0, 200);
    until("the connection closes", || server.http_server.open_connections() == 0).await;
    assert!(!matches!(connection.spawn_stream().await, Ok(Some(_))), "GOAWAY");
}

#[tokio::test]
async fn without_a_maximum_age_connections_stay() {
    let server =
        start_server(&plain_listener(), ConnectionLimits { max_connection_age: None, ..ConnectionLimits::default() });
    let mut client = server.connect().await;
    for _ in 0..2 {
        client.send(GET).await;
        assert!(!client.read_response().await.unwrap().head.contains("connection: close"));
        wait_for_age().await;
    }
}

#[test]
fn a_maximum_age_of_zero_is_a_problem() {
    let problems = limits_with_age(0).problems();
    assert!(problems[0].starts_with("max_connection_age: "), "{problems:?}");
}
