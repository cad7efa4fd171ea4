//! Draining and listener handover: no call is lost, a drain ends at its deadline, a successor takes the sockets.

use super::*;
use std::os::unix::fs::PermissionsExt;

#[tokio::test]
async fn a_drain_lets_calls_finish_and_closes_idle_connections_at_once() {
    let server = start_server(&plain_listener(), ConnectionLimits::default());
    let (mut busy, mut idle, mut fresh) = (server.connect().await, server.connect().await, server.connect().await);
    idle.send(GET).await;
    assert_eq!(idle.read_response().await.unwrap().status, 200);
    busy.send("GET /wait HTTP/1.1\r\nHost: a\r\n\r\n").await;
    until("the call waits", || server.echo.waiting.load(Ordering::SeqCst) == 1).await;
    let (echo, address) = (Arc::clone(&server.echo), server.address);
    let drain = tokio::spawn(server.http_server.drain(TEST_TIMEOUT));
    assert_eq!((idle.read_to_end().await, fresh.read_to_end().await), (String::new(), String::new()));
    assert!(TcpStream::connect(address).await.is_err(), "new connections are refused");
    assert!(!drain.is_finished());
    echo.release.notify_waiters();
    let response = busy.read_response().await.unwrap();
    assert_eq!(response.status, 200);
    assert!(response.head.contains("connection: close"), "the response announces the close");
    assert_eq!(busy.read_to_end().await, "");
    assert_eq!(drain.await.unwrap(), DrainReport { aborted_connections: 0, aborted_calls: 0 });
}

#[tokio::test]
async fn a_connection_opened_just_before_a_drain_is_served_once() {
    let server = start_server(&plain_listener(), ConnectionLimits::default());
    let mut client = server.connect().await;
    until("it is accepted", || server.http_server.open_connections() == 1).await;
    let drain = tokio::spawn(server.http_server.drain(TEST_TIMEOUT));
    until("it stops accepting", || std::net::TcpStream::connect(server.address).is_err()).await;
    client.send(format!("{GET}{GET}")).await;
    assert!(client.read_response().await.unwrap().head.contains("connection: close"));
    assert_eq!(client.read_to_end().await, "");
    assert_eq!(drain.await.unwrap(), DrainReport { aborted_connections: 0, aborted_calls: 0 });
}

#[tokio::test]
async fn a_drain_aborts_what_is_left_at_its_deadline_and_reports_it() {
    let server = start_server(&plain_listener(), ConnectionLimits::default());
    let mut busy = server.connect().await;
    busy.send("GET /wait HTTP/1.1\r\nHost: a\r\n\r\n").await;
    until("the call waits", || server.echo.waiting.load(Ordering::SeqCst) == 1).await;
    assert_eq!(
        server.http_server.drain(Duration::from_millis(50)).await,
        DrainReport { aborted_connections: 1, aborted_calls: 1 }
    );
    assert_eq!(busy.read_to_end().await, "");
}

#[tokio::test]
async fn a_drain_lets_http2_streams_finish() {
    let server = start_server(&plain_listener(), ConnectionLimits::default());
    let mut stream = connection_stream::ConnectionStream::from_tcp(server.connect().await.0);
    stream.set_http2();
    let connection = http2::http2_handshake(stream).await;
    let mut stream = http2::send_request(&connection, "/wait", &[], None).await;
    until("the call waits", || server.echo.waiting.load(Ordering::SeqCst) == 1).await;
    let (echo, address) = (Arc::clone(&server.echo), server.address);
    let drain = tokio::spawn(server.http_server.drain(TEST_TIMEOUT));
    until("the drain closes the listener", || std::net::TcpStream::connect(address).is_err()).await;
    echo.release.notify_waiters();
    assert_eq!(http2::read_response(&mut stream).await.unwrap().0, 200);
    assert_eq!(drain.await.unwrap(), DrainReport { aborted_connections: 0, aborted_calls: 0 });
}

async fn take_over(path: &std::path::Path) -> std::io::Result<listener_handover::InheritedListeners> {
    let path = path.to_owned();
    tokio::task::spawn_blocking(move || listener_handover::take_over_listeners(&path)).await.unwrap()
}

fn offer_sockets(path: &std::path::Path, first: &TestServer) -> tokio::task::JoinHandle<std::io::Result<i32>> {
    let (path, sockets) = (path.to_owned(), first.http_server.clone_listening_sockets().unwrap());
    tokio::spawn(async move { listener_handover::offer_listeners(&path, sockets, async || {}).await })
}

#[tokio::test]
async fn sockets_are_offered_to_the_same_user_until_a_successor_is_ready() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("handover.sock");
    let first = start_server(&plain_listener(), ConnectionLimits::default());
    let offer = offer_sockets(&path, &first);
    until("it is offered", || path.exists()).await;
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    drop(take_over(&path).await.unwrap());
    let mut inherited = take_over(&path).await.unwrap();
    assert!(!offer.is_finished(), "a successor that ended before it was ready changes nothing");
    assert!(inherited.take_listener("127.0.0.1:1").is_none(), "no such listener was offered");
    assert!(inherited.take_listener("127.0.0.1:0").is_some());
    assert!(inherited.take_listener("127.0.0.1:0").is_none(), "each can be taken once");
    inherited.signal_ready().unwrap();
    timeout(TEST_TIMEOUT, offer).await.unwrap().unwrap().unwrap();
}

#[tokio::test]
async fn a_successor_takes_over_without_refusing_a_connection() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("handover.sock");
    let first = start_server(&plain_listener(), ConnectionLimits::default());
    let offer = offer_sockets(&path, &first);
    until("it is offered", || path.exists()).await;
    let mut inherited = take_over(&path).await.unwrap();
    let listeners = bind_listeners(&[plain_listener()], Some(&mut inherited)).unwrap();
    assert_eq!(listeners[0].address().unwrap(), first.address, "the same socket, not another port");
    let echo = Arc::new(EchoHandler::default());
    let _second = HttpServer::start(listeners, ConnectionLimits::default(), &echo, &first.metrics).unwrap();
    inherited.signal_ready().unwrap();
    timeout(TEST_TIMEOUT, offer).await.unwrap().unwrap().unwrap();
    let address = first.address;
    let callers = tokio::spawn(async move {
        let mut responses = 0;
        for _ in 0..200 {
            let mut client = RawClient(TcpStream::connect(address).await.expect("never refused"));
            client.send(GET).await;
            responses += usize::from(client.read_response().await.is_some());
        }
        responses
    });
    assert_eq!(first.http_server.drain(TEST_TIMEOUT).await, DrainReport { aborted_connections: 0, aborted_calls: 0 });
    assert_eq!(callers.await.unwrap(), 200, "no connection is closed without a response");
    assert!(echo.served.load(Ordering::SeqCst) > 0);
}

#[tokio::test]
async fn a_successor_may_later_offer_its_sockets_at_the_same_path() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("handover.sock");
    std::fs::write(&path, "left by a crash").unwrap();
    let first = tokio::spawn({
        let path = path.clone();
        async move { listener_handover::offer_listeners(&path, Vec::new(), async || {}).await }
    });
    for _ in 0..2 {
        let mut inherited = Err(std::io::Error::other("not yet"));
        let deadline = Instant::now() + TEST_TIMEOUT;
        while inherited.is_err() && Instant::now() < deadline {
            inherited = tokio::task::spawn_blocking({
                let path = path.clone();
                move || listener_handover::take_over_listeners(&path)
            })
            .await
            .unwrap();
        }
        drop(inherited.unwrap());
    }
    let second = tokio::spawn({
        let path = path.clone();
        async move { listener_handover::offer_listeners(&path, Vec::new(), async || {}).await }
    });
    let mut signalled = false;
    let deadline = Instant::now() + TEST_TIMEOUT;
    while !second.is_finished() && Instant::now() < deadline {
        let inherited = tokio::task::spawn_blocking({
            let path = path.clone();
            move || listener_handover::take_over_listeners(&path)
        })
        .await
        .unwrap()
        .unwrap();
        signalled = inherited.signal_ready().is_ok() || signalled;
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(signalled && second.is_finished(), "successors take the newest offer at the path");
    first.abort();
}

#[test]
fn taking_over_where_no_process_offers_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    assert!(listener_handover::take_over_listeners(&folder.path().join("none")).is_err());
}
