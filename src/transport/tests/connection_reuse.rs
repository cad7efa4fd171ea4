//! Connection reuse, dead connections, and retries.

use super::*;

/// Starts an agent that closes each connection after `requests_per_connection` requests.
async fn start_closing_agent(requests_per_connection: usize) -> (SocketAddr, Arc<AtomicUsize>) {
    start_agent(move |mut stream, _| async move {
        for _ in 0..requests_per_connection {
            read_request(&mut stream).await?;
            stream.write_all(OK.as_bytes()).await?;
        }
        Ok(())
    })
    .await
}

/// Starts an agent that answers one request, then reads the next and closes: the race of an agent with an idle timeout.
async fn start_agent_dying_at_second_request() -> (SocketAddr, Arc<AtomicUsize>) {
    start_agent(|mut stream, count| async move {
        read_request(&mut stream).await?;
        stream.write_all(OK.as_bytes()).await?;
        read_request(&mut stream).await?;
        match count {
            0 => stream.set_zero_linger(),
            _ => stream.write_all(OK.as_bytes()).await,
        }
    })
    .await
}

#[tokio::test]
async fn a_connection_is_reused() {
    let (address, count) = start_closing_agent(usize::MAX).await;
    let upstream = TestUpstream::at(address);
    for _ in 0..20 {
        assert_eq!(read_body(upstream.post().await).await.unwrap(), "{}");
    }
    assert_eq!((count.load(Ordering::SeqCst), upstream.client.idle_connections()), (1, 1));
}

#[tokio::test]
async fn r45_a_post_on_a_closed_idle_connection_succeeds_on_another() {
    let (address, count) = start_closing_agent(1).await;
    let upstream = TestUpstream::at(address);
    for _ in 0..20 {
        assert_eq!(read_body(upstream.post().await).await.unwrap(), "{}");
    }
    assert_eq!(count.load(Ordering::SeqCst), 20);
}

#[tokio::test]
async fn r45_a_post_that_the_agent_may_have_read_is_not_retried() {
    let (address, count) = start_agent_dying_at_second_request().await;
    let upstream = TestUpstream::at(address);
    assert_eq!(read_body(upstream.post().await).await.unwrap(), "{}");
    assert_fault(upstream.post().await, 502, "AgentError");
    assert_eq!(count.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn r45_a_get_and_a_post_with_an_idempotency_key_are_retried() {
    let mut keyed = HeaderMap::new();
    keyed.insert("idempotency-key", HeaderValue::from_static("k1"));
    for (method, headers) in [(Method::GET, HeaderMap::new()), (Method::POST, keyed)] {
        let (address, count) = start_agent_dying_at_second_request().await;
        let upstream = TestUpstream::at(address);
        for _ in 0..2 {
            let body = if method == Method::GET { RequestBody::Empty } else { Bytes::from_static(b"{}").into() };
            assert_eq!(read_body(upstream.send(method.clone(), &headers, body).await).await.unwrap(), "{}");
        }
        assert_eq!(count.load(Ordering::SeqCst), 2, "{method}");
    }
}

#[tokio::test]
async fn r45_nothing_is_retried_after_a_part_of_the_reply() {
    let (address, count) = start_agent(|mut stream, _| async move {
        read_request(&mut stream).await?;
        stream.write_all(OK.as_bytes()).await?;
        read_request(&mut stream).await?;
        stream.write_all(b"HTTP/1.1 200").await
    })
    .await;
    let upstream = TestUpstream::at(address);
    assert_eq!(read_body(upstream.get().await).await.unwrap(), "{}");
    assert_fault(upstream.get().await, 502, "AgentError");
    assert_eq!(count.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_connection_that_the_agent_closes_or_that_sends_extra_bytes_is_not_reused() {
    let close = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{}";
    let extra_bytes = format!("{OK}HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\npoison");
    let expired = "HTTP/1.1 200 OK\r\nkeep-alive: timeout=1\r\ncontent-length: 2\r\n\r\n{}";
    for response in [close, &extra_bytes, expired] {
        let upstream = TestUpstream::at(start_answering_agent(response, false).await);
        for _ in 0..3 {
            assert_eq!(read_body(upstream.post().await).await.unwrap(), "{}", "{response}");
        }
    }
}

#[tokio::test]
async fn a_body_that_is_not_read_to_its_end_closes_its_connection() {
    let (address, count) = start_agent(|mut stream, _| async move {
        read_request(&mut stream).await?;
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\nabc").await?;
        std::future::pending().await
    })
    .await;
    let upstream = TestUpstream::at(address);
    for _ in 0..2 {
        let mut reply = upstream.post().await.unwrap();
        assert_eq!(reply.body.next_chunk().await.unwrap().unwrap(), "abc");
    }
    assert_eq!((count.load(Ordering::SeqCst), upstream.client.idle_connections()), (2, 0));
}

#[tokio::test]
async fn idle_connections_are_bounded_and_closed() {
    let (address, _) = start_closing_agent(usize::MAX).await;
    let settings = TransportConfig {
        max_idle_connections: Some(3),
        idle_connection_timeout: Some(ConfigDuration::from_millis(50)),
        ..long_timeouts()
    };
    let upstream = TestUpstream::new(&format!("http://{address}/"), &settings);
    let replies: Vec<_> = futures_util::future::join_all((0..8).map(|_| upstream.post())).await;
    for reply in replies {
        read_body(reply).await.unwrap();
    }
    assert_eq!(upstream.client.idle_connections(), 3);
    sweep_until_idle(&upstream.client).await;
}

#[tokio::test]
async fn a_changed_policy_applies_to_open_connections() {
    let (address, count) = start_closing_agent(usize::MAX).await;
    let upstream = TestUpstream::at(address);
    let mut busy = upstream.post().await.unwrap();
    read_body(upstream.post().await).await.unwrap();
    upstream.client.set_address_policy(Arc::new(AddressPolicy::default()));
    while let Some(chunk) = busy.body.next_chunk().await {
        chunk.unwrap();
    }
    assert_fault(upstream.post().await, 503, "AgentUnavailable");
    assert_eq!((count.load(Ordering::SeqCst), upstream.client.idle_connections()), (2, 0));
}

#[tokio::test]
async fn upstreams_of_another_configuration_share_the_connections() {
    let (address, count) = start_closing_agent(usize::MAX).await;
    let upstream = TestUpstream::at(address);
    read_body(upstream.post().await).await.unwrap();
    let again =
        TestUpstream::with_client(upstream.client.clone(), &format!("http://{address}/other"), &long_timeouts());
    read_body(again.post().await).await.unwrap();
    assert_eq!(count.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn many_concurrent_calls_all_return() {
    let (address, _) = start_closing_agent(7).await;
    let upstream = Arc::new(TestUpstream::at(address));
    let calls = (0..100).map(|_| {
        let upstream = Arc::clone(&upstream);
        tokio::spawn(async move { read_body(upstream.post().await).await })
    });
    for call in futures_util::future::join_all(calls).await {
        assert_eq!(call.unwrap().unwrap(), "{}");
    }
}
