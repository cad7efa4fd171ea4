//! HTTP/2 to agents: shared connections, streams that are reset, GOAWAY.

use super::*;
use h2::server::SendResponse;

type H2Response = SendResponse<Bytes>;

fn settings() -> TransportConfig {
    TransportConfig { h2c: Some(true), ..long_timeouts() }
}

/// Starts an agent that runs `serve` for every request; it receives the numbers of earlier connections and requests.
async fn h2_agent<F, W>(serve: F) -> (SocketAddr, Arc<AtomicUsize>)
where
    F: Fn(::http::Request<h2::RecvStream>, H2Response, (usize, usize)) -> W + Clone + Send + Sync + 'static,
    W: Future<Output = ()> + Send + 'static,
{
    start_agent(move |stream, connections| {
        let serve = serve.clone();
        async move {
            let mut connection = h2::server::handshake(stream).await.map_err(std::io::Error::other)?;
            let mut requests = 0;
            while let Some(Ok((request, response))) = connection.accept().await {
                tokio::spawn(serve(request, response, (connections, requests)));
                requests += 1;
            }
            Ok(())
        }
    })
    .await
}

fn respond(mut response: H2Response, body: &'static [u8]) {
    if let Ok(mut stream) = response.send_response(::http::Response::new(()), false) {
        let _ = stream.send_data(Bytes::from_static(body), true);
    }
}

async fn read_request_body(request: &mut ::http::Request<h2::RecvStream>) -> Vec<u8> {
    let mut all = Vec::new();
    while let Some(Ok(chunk)) = request.body_mut().data().await {
        let _ = request.body_mut().flow_control().release_capacity(chunk.len());
        all.extend_from_slice(&chunk);
    }
    all
}

#[tokio::test]
async fn concurrent_calls_share_one_connection() {
    let (address, count) = h2_agent(|mut request, response, _| async move {
        assert_eq!(request.uri().path(), "/run");
        assert!(request.uri().authority().is_some() && !request.headers().contains_key("host"));
        assert_eq!(read_request_body(&mut request).await, b"{\"a\":1}");
        respond(response, b"{}");
    })
    .await;
    let upstream = TestUpstream::new(&format!("http://{address}/run"), &settings());
    for reply in futures_util::future::join_all((0..50).map(|_| upstream.post())).await {
        assert_eq!(read_body(reply).await.unwrap(), "{}");
    }
    assert_eq!(count.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn slow_readers_do_not_block_other_calls() {
    const BIG: &[u8] = &[b'x'; 4 << 20];
    let (address, _) = h2_agent(|request, mut response, _| async move {
        let big = request.headers().contains_key("priority");
        let Ok(mut stream) = response.send_response(::http::Response::new(()), false) else {
            return;
        };
        let _ = stream.send_data(Bytes::from_static(if big { BIG } else { b"{}" }), true);
    })
    .await;
    let upstream = TestUpstream::new(&format!("http://{address}/run"), &settings());
    let mut big = HeaderMap::new();
    big.insert("priority", HeaderValue::from_static("u=1"));
    let mut held = Vec::new();
    for _ in 0..80 {
        held.push(upstream.send(Method::GET, &big, RequestBody::Empty).await.unwrap());
    }
    assert_eq!(read_body(upstream.post().await).await.unwrap(), "{}");
    assert_eq!(read_body(Ok(held.remove(0))).await.unwrap().len(), BIG.len());
}

#[tokio::test]
async fn r38_a_reset_stream_is_502_before_the_head_and_a_fault_within_the_body() {
    for reason in [h2::Reason::INTERNAL_ERROR, h2::Reason::CANCEL, h2::Reason::NO_ERROR] {
        let (address, _) = h2_agent(move |_, mut response, _| async move { response.send_reset(reason) }).await;
        let upstream = TestUpstream::new(&format!("http://{address}/"), &settings());
        assert_fault(upstream.post().await, 502, "AgentError");
        let (address, _) = h2_agent(move |_, mut response, _| async move {
            let mut stream = response.send_response(::http::Response::new(()), false).unwrap();
            stream.send_data(Bytes::from_static(b"{\"a\":"), false).unwrap();
            tokio::time::sleep(Duration::from_millis(20)).await;
            stream.send_reset(reason);
        })
        .await;
        let upstream = TestUpstream::new(&format!("http://{address}/"), &settings());
        assert_fault(read_body(upstream.post().await).await, 502, "AgentError");
    }
}

#[tokio::test]
async fn r45_a_refused_stream_is_retried_even_for_a_post() {
    let (address, count) = h2_agent(|_, mut response, (connections, requests)| async move {
        match (connections, requests) {
            (0, 1) => response.send_reset(h2::Reason::REFUSED_STREAM),
            _ => respond(response, b"{}"),
        }
    })
    .await;
    let upstream = TestUpstream::new(&format!("http://{address}/"), &settings());
    for _ in 0..3 {
        assert_eq!(read_body(upstream.post().await).await.unwrap(), "{}");
    }
    assert!(count.load(Ordering::SeqCst) <= 2);
}

#[tokio::test]
async fn r45_a_connection_that_sends_goaway_is_replaced() {
    let (address, count) = start_agent(|stream, _| async move {
        let mut connection = h2::server::handshake(stream).await.map_err(std::io::Error::other)?;
        if let Some(Ok((_, response))) = connection.accept().await {
            respond(response, b"{}");
        }
        connection.graceful_shutdown();
        while connection.accept().await.is_some() {}
        Ok(())
    })
    .await;
    let upstream = TestUpstream::new(&format!("http://{address}/"), &settings());
    for _ in 0..5 {
        assert_eq!(read_body(upstream.post().await).await.unwrap(), "{}");
    }
    assert_eq!(count.load(Ordering::SeqCst), 5);
}

#[tokio::test]
async fn r38_an_agent_without_http2_is_502_and_a_silent_agent_is_504() {
    let (address, _) = start_agent(|mut stream, _| async move { stream.write_all(OK.as_bytes()).await }).await;
    assert_fault(TestUpstream::new(&format!("http://{address}/"), &settings()).post().await, 502, "AgentError");
    let (silent, _) = h2_agent(|_, response, _| async move {
        std::future::pending::<()>().await;
        drop(response)
    })
    .await;
    let settings = TransportConfig { h2c: Some(true), ..short_timeouts() };
    assert_fault(TestUpstream::new(&format!("http://{silent}/"), &settings).post().await, 504, "Timeout");
}

#[tokio::test]
async fn streamed_bodies_work_over_http2_and_a_truncated_one_resets_the_stream() {
    let (address, _) = h2_agent(|mut request, response, _| async move {
        let body = read_request_body(&mut request).await;
        respond(response, Box::leak(body.into_boxed_slice()));
    })
    .await;
    let upstream = TestUpstream::new(&format!("http://{address}/"), &settings());
    let headers = HeaderMap::new();
    let (sender, body) = RequestBody::channel(None);
    let sending = async move {
        for _ in 0..20 {
            sender.send(Bytes::from(vec![b'x'; 50_000])).await.unwrap();
        }
        sender.finish().await;
    };
    let (reply, ()) = tokio::join!(upstream.send(Method::POST, &headers, body), sending);
    assert_eq!(read_body(reply).await.unwrap().len(), 1_000_000);
    let (sender, body) = RequestBody::channel(None);
    sender.send(Bytes::from_static(b"ab")).await.unwrap();
    drop(sender);
    let fault = upstream.send(Method::POST, &headers, body).await.unwrap_err();
    assert_eq!(fault.http_status(), 400);
}

#[tokio::test]
async fn idle_shared_connections_are_closed() {
    let (address, _) = h2_agent(|_, response, _| async move { respond(response, b"{}") }).await;
    let settings = TransportConfig { idle_connection_timeout: Some(ConfigDuration::from_millis(20)), ..settings() };
    let upstream = TestUpstream::new(&format!("http://{address}/"), &settings);
    read_body(upstream.post().await).await.unwrap();
    assert_eq!(upstream.client.idle_connections(), 1);
    sweep_until_idle(&upstream.client).await;
}

#[tokio::test]
async fn an_agents_flood_of_frames_without_effect_ends_its_connection() {
    for (name, frame) in [
        ("WINDOW_UPDATE", &b"\0\0\x04\x08\0\0\0\0\0\0\0\0\x01"[..]),
        ("PING", b"\0\0\x08\x06\0\0\0\0\x0012345678"),
        ("PING with ACK", b"\0\0\x08\x06\x01\0\0\0\x0012345678"),
        ("an unknown frame", b"\0\0\x01\xc8\0\0\0\0\0x"),
        ("SETTINGS", b"\0\0\0\x04\0\0\0\0\0"),
    ] {
        let refused = Arc::new(tokio::sync::Notify::new());
        let seen = Arc::clone(&refused);
        let (address, _) = start_agent(move |stream, _| {
            let (frames, seen) = (frame.repeat(1_000), Arc::clone(&seen));
            async move {
                let (mut reader, mut writer) = tokio::io::split(stream);
                tokio::spawn(async move { while matches!(reader.read(&mut [0; 4_096]).await, Ok(1..)) {} });
                writer.write_all(b"\0\0\0\x04\0\0\0\0\0").await?;
                while writer.write_all(&frames).await.is_ok() {}
                seen.notify_one();
                Ok(())
            }
        })
        .await;
        let upstream = TestUpstream::new(&format!("http://{address}/"), &settings());
        assert_fault(upstream.post().await, 502, "AgentError");
        assert!(tokio::time::timeout(Duration::from_secs(20), refused.notified()).await.is_ok(), "{name} for ever");
    }
}
