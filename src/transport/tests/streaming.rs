//! Streamed bodies, in both directions.

use super::*;
use crate::fault::FaultCode;

#[tokio::test]
async fn r43_chunks_of_a_reply_arrive_as_they_are_sent() {
    let (go, gate) = tokio::sync::mpsc::channel::<()>(1);
    let gate = Arc::new(tokio::sync::Mutex::new(gate));
    let (address, _) = start_agent(move |mut stream, _| {
        let gate = Arc::clone(&gate);
        async move {
            read_request(&mut stream).await?;
            stream
                .write_all(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
                .await?;
            while gate.lock().await.recv().await.is_some() {
                stream.write_all(b"9\r\ndata: 1\n\n\r\n").await?;
            }
            stream.write_all(b"0\r\n\r\n").await
        }
    })
    .await;
    let upstream = TestUpstream::at(address);
    let mut reply = upstream.post().await.unwrap();
    for _ in 0..5 {
        go.send(()).await.unwrap();
        assert_eq!(reply.body.next_chunk().await.unwrap().unwrap(), "data: 1\n\n");
    }
    drop(go);
    assert!(reply.body.next_chunk().await.is_none());
}

#[tokio::test]
async fn r43_a_slow_reader_applies_back_pressure_to_the_agent() {
    let (sent, seen) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let counter = Arc::clone(&sent);
    let (address, _) = start_agent(move |mut stream, _| {
        let counter = Arc::clone(&counter);
        async move {
            read_request(&mut stream).await?;
            stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await?;
            for _ in 0..1024 {
                stream.write_all(&[b'a'; 64 << 10]).await?;
                counter.fetch_add(64 << 10, Ordering::SeqCst);
            }
            Ok(())
        }
    })
    .await;
    let mut reply = TestUpstream::at(address).post().await.unwrap();
    seen.fetch_add(reply.body.next_chunk().await.unwrap().unwrap().len(), Ordering::SeqCst);
    let mut before = usize::MAX;
    while before != sent.load(Ordering::SeqCst) {
        before = sent.load(Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(before < 32 << 20, "{before} bytes were read from the agent although the caller reads nothing");
    while let Some(chunk) = reply.body.next_chunk().await {
        seen.fetch_add(chunk.unwrap().len(), Ordering::SeqCst);
    }
    assert_eq!(seen.load(Ordering::SeqCst), 64 << 20);
}

async fn start_echo_agent() -> SocketAddr {
    start_agent(|mut stream, _| async move {
        let text = read_request(&mut stream).await?;
        let body = text.split_once("\r\n\r\n").unwrap().1;
        stream.write_all(format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len()).as_bytes()).await
    })
    .await
    .0
}

#[tokio::test]
async fn r31_a_streamed_request_arrives_unchanged() {
    let upstream = TestUpstream::at(start_echo_agent().await);
    let (sender, body) = RequestBody::channel(Some(300_000));
    let sending = async move {
        for _ in 0..3 {
            sender.send(Bytes::from(vec![b'x'; 100_000])).await.unwrap();
        }
        sender.finish().await;
    };
    let headers = HeaderMap::new();
    let (reply, ()) = tokio::join!(upstream.send(Method::POST, &headers, body), sending);
    assert_eq!(read_body(reply).await.unwrap(), vec![b'x'; 300_000]);
    let (sender, body) = RequestBody::channel(None);
    let sending = async move {
        sender.send(Bytes::from_static(b"ab")).await.unwrap();
        sender.send(Bytes::from_static(b"cde")).await.unwrap();
        sender.finish().await;
    };
    let (reply, ()) = tokio::join!(upstream.send(Method::POST, &headers, body), sending);
    assert_eq!(read_body(reply).await.unwrap(), "2\r\nab\r\n3\r\ncde\r\n0\r\n\r\n");
}

#[tokio::test]
async fn a_truncated_request_body_is_never_completed() {
    let complete = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&complete);
    let (address, _) = start_agent(move |mut stream, _| {
        let seen = Arc::clone(&seen);
        async move {
            read_request(&mut stream).await?;
            seen.fetch_add(1, Ordering::SeqCst);
            stream.write_all(OK.as_bytes()).await
        }
    })
    .await;
    let upstream = TestUpstream::at(address);
    let headers = HeaderMap::new();
    let (sender, body) = RequestBody::channel(None);
    sender.send(Bytes::from_static(b"ab")).await.unwrap();
    drop(sender);
    let fault = upstream.send(Method::POST, &headers, body).await.unwrap_err();
    assert_eq!((fault.http_status(), fault.code()), (400, FaultCode::InvalidInput));
    let (sender, body) = RequestBody::channel(Some(1_000));
    sender.send(Bytes::from_static(b"ab")).await.unwrap();
    sender.fail(Fault::new(FaultCode::PayloadTooLarge, "The body is too large"));
    let fault = upstream.send(Method::POST, &headers, body).await.unwrap_err();
    assert_eq!(fault.http_status(), 413);
    assert_eq!(complete.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_reply_sent_before_the_whole_request_is_received() {
    let (address, _) = start_agent(|mut stream, _| async move {
        stream.read_exact(&mut [0; 64]).await?;
        stream.write_all(b"HTTP/1.1 413 Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").await?;
        std::future::pending().await
    })
    .await;
    let upstream = TestUpstream::at(address);
    let (sender, body) = RequestBody::channel(None);
    let sending = async move { while sender.send(Bytes::from(vec![b'x'; 64 << 10])).await.is_ok() {} };
    let headers = HeaderMap::new();
    let call = async {
        let mut reply = upstream.send(Method::POST, &headers, body).await.unwrap();
        assert!(reply.body.next_chunk().await.is_none());
        reply.status
    };
    let (status, ()) = tokio::join!(call, sending);
    assert_eq!(status, 413);
    assert_eq!(upstream.client.idle_connections(), 0);
}

#[tokio::test]
async fn r96_a_slow_sender_is_not_mistaken_for_a_slow_agent() {
    let (received, mut receipts) = tokio::sync::mpsc::unbounded_channel();
    let (address, _) = start_agent(move |mut stream, _| {
        let received = received.clone();
        async move {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(stream.read_u8().await?);
            }
            for _ in 0..6 {
                received.send(stream.read_u8().await?).unwrap();
            }
            stream.write_all(OK.as_bytes()).await
        }
    })
    .await;
    let endpoint = format!("http://{address}/run");
    let timeouts = TimeoutConfig { first_byte: Some(ConfigDuration::from_secs(2)), ..long_timeouts().timeouts };
    let timeouts = TimeoutConfig { total: Some(ConfigDuration::from_secs(60)), ..timeouts };
    let upstream = TestUpstream::new(&endpoint, &TransportConfig { timeouts, ..TransportConfig::default() });
    let (sender, body) = RequestBody::channel(Some(6));
    // In total longer than the agent's timeout, while each pause is much shorter.
    let sending = async move {
        for _ in 0..6 {
            pass_time(Duration::from_millis(400)).await;
            sender.send(Bytes::from_static(b"x")).await.unwrap();
            assert_eq!(receipts.recv().await, Some(b'x'));
        }
        sender.finish().await;
    };
    let headers = HeaderMap::new();
    let (reply, ()) = tokio::join!(upstream.send(Method::POST, &headers, body), sending);
    assert_eq!(read_body(reply).await.unwrap(), "{}");
}

#[tokio::test]
async fn peeking_at_a_body_loses_no_bytes() {
    let response = format!("HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n{}", "y".repeat(100_000));
    let upstream = TestUpstream::at(start_answering_agent(response, false).await);
    let mut reply = upstream.post().await.unwrap();
    assert_eq!(reply.body.length(), Some(100_000));
    let prefix = reply.body.peek(1000).await.unwrap();
    assert!(!prefix.complete && prefix.bytes.len() > 1000);
    assert_eq!(reply.body.length(), Some(100_000));
    let mut length = 0;
    while let Some(chunk) = reply.body.next_chunk().await {
        length += chunk.unwrap().len();
    }
    assert_eq!(length, 100_000);
}
