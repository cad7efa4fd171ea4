//! Agents that refuse connections, hang, close early or do not speak HTTP.

use super::*;

async fn body_for_response(response: impl Into<Vec<u8>>, close: bool) -> Result<Bytes, Fault> {
    read_body(TestUpstream::at(start_answering_agent(response, close).await).post().await).await
}

#[tokio::test]
async fn r35_a_refused_connection_is_503_with_retry_after() {
    let port = ClosedPort::new();
    let fault = TestUpstream::at(port.address).post().await.unwrap_err();
    assert_eq!(fault.retry_after_secs(), Some(1));
    assert_fault(Err::<(), _>(fault), 503, "AgentUnavailable");
}

#[tokio::test]
async fn r35_a_missing_socket_and_an_unknown_host_are_503() {
    let missing = TestUpstream::new("agent+unix:///nowhere/agent.sock#/run", &long_timeouts());
    assert_fault(missing.post().await, 503, "AgentUnavailable");
    let settings = TransportConfig { allow_plaintext: Some(true), ..long_timeouts() };
    assert_fault(TestUpstream::new("http://nowhere.invalid/", &settings).post().await, 503, "AgentUnavailable");
}

#[tokio::test]
async fn r41_a_socket_that_the_policy_does_not_permit_is_never_connected_to() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("agent.sock");
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    listener.set_nonblocking(true).unwrap();
    let listed = |pattern: String| AddressPolicy::default().with_unix_sockets(vec![pattern.parse().unwrap()]);
    for (policy, socket) in [
        (AddressPolicy::default(), &path),
        (listed("/run/agents/*".to_owned()), &path),
        (listed(format!("{}/agent.sock.*", folder.path().display())), &path),
    ] {
        let closed = UpstreamClient::new(Arc::new(policy));
        let upstream =
            TestUpstream::with_client(closed, &format!("agent+unix://{}#/run", socket.display()), &long_timeouts());
        let detail = assert_fault(upstream.post().await, 503, "AgentUnavailable");
        assert!(detail.contains("policy"), "{detail}");
    }
    // A connection would be in the listener's queue as soon as `connect` returned.
    let accepted = listener.accept().map(drop).map_err(|error| error.kind());
    assert_eq!(accepted, Err(std::io::ErrorKind::WouldBlock), "the gateway connected");
}

#[tokio::test]
async fn r41_an_address_that_the_policy_does_not_permit_is_never_connected_to() {
    let (address, count) = start_agent(|_, _| async { Ok(()) }).await;
    let closed = UpstreamClient::new(Arc::new(AddressPolicy::default()));
    for host in
        [address.to_string(), format!("localhost:{}", address.port()), format!("[::ffff:127.0.0.1]:{}", address.port())]
    {
        let upstream = TestUpstream::with_client(closed.clone(), &format!("http://{host}/"), &long_timeouts());
        let detail = assert_fault(upstream.post().await, 503, "AgentUnavailable");
        assert!(detail.contains("policy"), "{detail}");
    }
    assert_eq!(count.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn r41_an_endpoint_that_the_operator_did_not_list_is_reached_at_public_addresses_only() {
    let (address, count) = start_agent(|_, _| async { Ok(()) }).await;
    // The name of an endpoint may resolve to another address whenever a connection is opened.
    let settings = TransportConfig { public_addresses_only: true, allow_plaintext: Some(true), ..long_timeouts() };
    let open = UpstreamClient::new(Arc::new(AddressPolicy::default()));
    for host in ["10.0.0.1", "192.168.1.1", "[fd00::1]", "100.64.0.1", &format!("127.0.0.1:{}", address.port())] {
        let upstream = TestUpstream::with_client(open.clone(), &format!("http://{host}/"), &settings);
        let detail = assert_fault(upstream.post().await, 503, "AgentUnavailable");
        assert!(detail.contains("policy"), "{host}: {detail}");
    }
    assert_eq!(count.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn r38_an_agent_that_closes_or_resets_without_a_reply_is_502() {
    assert_fault(body_for_response("", true).await, 502, "AgentError");
    let (at_once, _) = start_agent(|stream, _| async move { stream.set_zero_linger() }).await;
    assert_fault(TestUpstream::at(at_once).post().await, 502, "AgentError");
    let (after_reading, count) = start_agent(|mut stream, _| async move {
        read_request(&mut stream).await?;
        stream.set_zero_linger()
    })
    .await;
    assert_fault(TestUpstream::at(after_reading).get().await, 502, "AgentError");
    assert_eq!(count.load(Ordering::SeqCst), 1, "a failure on a fresh connection is not retried");
}

#[tokio::test]
async fn r96_an_agent_that_never_replies_is_504_within_the_first_byte_timeout() {
    let silent = TestUpstream::with_short_timeouts(start_answering_agent("", false).await);
    let start = Instant::now();
    assert_fault(silent.post().await, 504, "Timeout");
    assert!(start.elapsed() < Duration::from_secs(2));
}

#[tokio::test]
async fn r96_a_head_that_trickles_in_is_504() {
    let (address, _) = start_agent(|mut stream, _| async move {
        stream.write_all(b"HTTP/1.1 200 OK\r\nx: ").await?;
        loop {
            stream.write_all(b"a").await?;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    assert_fault(TestUpstream::with_short_timeouts(address).post().await, 504, "Timeout");
}

#[tokio::test]
async fn r96_informational_responses_are_skipped_and_extend_no_timeout() {
    assert_eq!(
        body_for_response(
            format!("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: a\r\n\r\n{OK}"),
            false
        )
        .await
        .unwrap(),
        "{}"
    );
    let (address, _) = start_agent(|mut stream, _| async move {
        read_request(&mut stream).await?;
        loop {
            stream.write_all(b"HTTP/1.1 102 Processing\r\n\r\n").await?;
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    assert_fault(TestUpstream::with_short_timeouts(address).post().await, 504, "Timeout");
    let (flood, _) = start_agent(|mut stream, _| async move {
        loop {
            stream.write_all(&b"HTTP/1.1 102 Processing\r\n\r\n".repeat(1_000)).await?;
        }
    })
    .await;
    let fault = assert_fault(TestUpstream::with_short_timeouts(flood).post().await, 502, "AgentError");
    assert!(fault.contains("interim responses without end"), "{fault}");
}

#[tokio::test]
async fn r96_the_total_timeout_bounds_head_and_body() {
    let mut settings = short_timeouts();
    settings.timeouts = TimeoutConfig { total: Some(ConfigDuration::from_millis(200)), ..TimeoutConfig::default() };
    let silent = TestUpstream::new(&format!("http://{}/", start_answering_agent("", false).await), &settings);
    assert!(assert_fault(silent.post().await, 504, "Timeout").contains("deadline"));
    let (dribble, _) = start_agent(|mut stream, _| async move {
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n").await?;
        loop {
            stream.write_all(b"a").await?;
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    let upstream = TestUpstream::new(&format!("http://{dribble}/"), &settings);
    assert!(assert_fault(read_body(upstream.post().await).await, 504, "Timeout").contains("deadline"));
}

#[tokio::test]
async fn a_call_whose_deadline_has_passed_does_not_reach_the_agent() {
    let (address, count) = start_agent(|_, _| async { Ok(()) }).await;
    let mut settings = short_timeouts();
    settings.timeouts.total = Some(ConfigDuration::from_millis(0));
    assert_fault(TestUpstream::new(&format!("http://{address}/"), &settings).post().await, 504, "Timeout");
    assert_eq!(count.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn r38_a_reply_that_is_not_http_is_502() {
    let garbage: &[&[u8]] = &[
        b"hello\r\n\r\n",
        b"<html>it works</html>",
        b"HTTP/2.0 200 OK\r\n\r\n",
        b"HTTP/1.1 2000 OK\r\n\r\n",
        b"HTTP/1.1 abc OK\r\n\r\n",
        b"\x16\x03\x01\x00\x05hello\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nbad header: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nx : y\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nx: a\x00b\r\n\r\n",
        b"SSH-2.0-OpenSSH\r\n",
        b"\0\0\0\0\0\0\0\0",
    ];
    for response in garbage {
        assert_fault(body_for_response(*response, true).await, 502, "AgentError");
    }
}

#[tokio::test]
async fn r38_ambiguous_framing_is_502() {
    let heads = [
        "content-length: 2\r\ncontent-length: 3",
        "content-length: 2, 3",
        "content-length: -1",
        "content-length: +2",
        "content-length: 0x2",
        "content-length: 99999999999999999999999",
        "content-length: 2\r\ntransfer-encoding: chunked",
        "transfer-encoding: gzip, chunked",
        "transfer-encoding: chunked\r\ntransfer-encoding: chunked",
        "transfer-encoding: identity",
        "transfer-encoding: xchunked",
        "content-length: 2\r\n folded: y",
    ];
    for head in heads {
        let response = format!("HTTP/1.1 200 OK\r\n{head}\r\n\r\n{{}}");
        let fault = body_for_response(response, true).await.expect_err(head);
        assert_eq!(fault.http_status(), 502, "{head}: {fault}");
    }
    let http10 =
        body_for_response("HTTP/1.0 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", true).await;
    assert_fault(http10, 502, "AgentError");
}

#[tokio::test]
async fn r38_an_unrequested_protocol_switch_or_an_invalid_status_is_502() {
    for status in [
        "101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket",
        "600 Odd\r\ncontent-length: 0",
        "999 Odd\r\ncontent-length: 0",
    ] {
        assert_fault(body_for_response(format!("HTTP/1.1 {status}\r\n\r\n"), false).await, 502, "AgentError");
    }
}

#[tokio::test]
async fn r38_a_head_that_is_too_large_is_502() {
    let many = (0..200).map(|at| format!("x-{at}: 1\r\n")).collect::<String>();
    assert_fault(body_for_response(format!("HTTP/1.1 200 OK\r\n{many}\r\n"), false).await, 502, "AgentError");
    let long = "a".repeat(100 << 10);
    assert_fault(
        body_for_response(format!("HTTP/1.1 200 OK\r\nx: {long}\r\ncontent-length: 0\r\n\r\n"), false).await,
        502,
        "AgentError",
    );
    let (endless, _) = start_agent(|mut stream, _| async move {
        stream.write_all(b"HTTP/1.1 200 OK\r\nx: ").await?;
        loop {
            stream.write_all(&[b'a'; 4096]).await?;
        }
    })
    .await;
    assert_fault(TestUpstream::at(endless).post().await, 502, "AgentError");
}

#[tokio::test]
async fn r40_a_truncated_body_is_a_fault_and_never_a_shorter_body() {
    let cut = [
        "content-length: 10\r\n\r\n{\"a\"",
        "transfer-encoding: chunked\r\n\r\n5\r\n{\"a\":",
        "transfer-encoding: chunked\r\n\r\n4\r\n{\"a\"\r\n",
        "transfer-encoding: chunked\r\n\r\n4\r\n{\"a\"\r\n0\r\n",
        "transfer-encoding: chunked\r\n\r\nzz\r\n{}",
        "content-length: 10\r\n\r\n",
        "transfer-encoding: chunked\r\n\r\nffffffffffffffffff\r\n{}",
    ];
    for rest in cut {
        let reply = TestUpstream::at(start_answering_agent(format!("HTTP/1.1 200 OK\r\n{rest}"), true).await)
            .post()
            .await
            .expect(rest);
        assert_fault(read_body(Ok(reply)).await, 502, "AgentError");
    }
}

#[tokio::test]
async fn r96_a_body_that_stalls_is_504() {
    let agent = start_answering_agent("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n{\"a\"", false).await;
    let timeouts = TimeoutConfig { idle: Some(ConfigDuration::from_millis(250)), ..long_timeouts().timeouts };
    let settings = TransportConfig { timeouts, ..TransportConfig::default() };
    let mut body = TestUpstream::new(&format!("http://{agent}/run"), &settings).post().await.unwrap().body;
    assert_eq!(body.next_chunk().await.unwrap().unwrap(), "{\"a\"");
    assert_fault(body.next_chunk().await.unwrap(), 504, "Timeout");
    assert!(body.next_chunk().await.is_none(), "nothing follows a fault");
}

#[tokio::test]
async fn empty_chunked_and_connection_delimited_bodies_are_complete() {
    assert_eq!(body_for_response("HTTP/1.1 204 No Content\r\n\r\n", false).await.unwrap(), "");
    assert_eq!(body_for_response("HTTP/1.1 200 \r\ncontent-length: 0\r\n\r\n", false).await.unwrap(), "");
    assert_eq!(body_for_response("HTTP/1.0 200 OK\r\n\r\nhello", true).await.unwrap(), "hello");
    assert_eq!(
        body_for_response("HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 2\r\n\r\n{}", true).await.unwrap(),
        "{}"
    );
    let chunked =
        "HTTP/1.1 200 OK\r\ntransfer-encoding: Chunked\r\n\r\n1;ext=1\r\n{\r\n1\r\n}\r\n0\r\ntrailer: x\r\n\r\n";
    assert_eq!(body_for_response(chunked, false).await.unwrap(), "{}");
}
