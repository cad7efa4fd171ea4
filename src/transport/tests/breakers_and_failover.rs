//! Circuit breakers, failover, and session affinity.

use super::*;
use crate::{
    fault::{self, FaultCode},
    transport::{circuit_breaker::CallAttempt, config::CircuitBreakerConfig, failover::FailoverCall},
};
use std::collections::BTreeSet;

/// How long a sensitive breaker stays open: long enough for a slow machine to observe it.
const OPEN_DURATION: Duration = Duration::from_millis(600);

/// Settings whose breaker opens after two failures.
fn sensitive_breaker() -> TransportConfig {
    let breaker =
        CircuitBreakerConfig { consecutive_failures: Some(2), open_duration: Some(ConfigDuration::from_millis(600)) };
    TransportConfig { circuit_breaker: breaker, ..long_timeouts() }
}

/// The same settings, for calls that time out.
fn sensitive_breaker_with_short_timeouts() -> TransportConfig {
    TransportConfig { timeouts: short_timeouts().timeouts, ..sensitive_breaker() }
}

/// Reads nothing, sends nothing, and keeps the connection open.
async fn silent(stream: TcpStream, _: usize) -> std::io::Result<()> {
    std::future::pending::<()>().await;
    drop(stream);
    Ok(())
}

fn url_of(port: &ClosedPort) -> String {
    format!("http://{}/run", port.address)
}

/// Lets the open duration of a breaker pass without waiting.
async fn pass_open_duration() {
    pass_time(OPEN_DURATION + Duration::from_millis(20)).await;
}

/// Starts an agent that answers with its name; returns its URL and the number of its requests.
async fn start_named_agent(name: &'static str) -> (String, Arc<AtomicUsize>) {
    let calls = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&calls);
    let (address, _) = start_agent(move |mut stream, _| {
        let seen = Arc::clone(&seen);
        async move {
            loop {
                let request = read_request(&mut stream).await?;
                seen.fetch_add(1, Ordering::SeqCst);
                let session = request.lines().find_map(|line| line.strip_prefix("mcp-session-id: "));
                let session = session.unwrap_or("fresh");
                let head = format!("HTTP/1.1 200 OK\r\nmcp-session-id: {session}\r\nx-from: {name}\r\n");
                stream.write_all(format!("{head}content-length: 2\r\n\r\n{{}}").as_bytes()).await?;
            }
        }
    })
    .await;
    (format!("http://{address}/run"), calls)
}

fn with_endpoints(primary: &str, additional: &[&str], settings: TransportConfig) -> TestUpstream {
    let endpoints = Some(additional.iter().map(ToString::to_string).collect());
    TestUpstream::new(primary, &TransportConfig { additional_endpoints: endpoints, ..settings })
}

fn answering_agent(reply: Result<UpstreamReply, Fault>) -> String {
    reply.unwrap().headers["x-from"].to_str().unwrap().to_owned()
}

fn breaker_state(upstream: &TestUpstream) -> BreakerState {
    upstream.upstream_set.breaker_states().next().unwrap().1
}

#[tokio::test]
async fn r35_consecutive_failures_open_the_breaker_until_a_probe_succeeds() {
    let port = ClosedPort::new();
    let upstream = TestUpstream::new(&url_of(&port), &sensitive_breaker());
    for _ in 0..2 {
        let detail = assert_fault(upstream.get().await, 503, "AgentUnavailable");
        assert!(detail.contains("connecting"), "{detail}");
    }
    let fault = upstream.get().await.unwrap_err();
    assert_eq!(fault.retry_after_secs(), Some(1));
    assert!(assert_fault(Err::<(), _>(fault), 503, "AgentUnavailable").contains("breaker"));
    assert_eq!(breaker_state(&upstream), BreakerState::Open);
    // The agent is back; the first call after the open duration is the probe that reaches it.
    let listener = port.open();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                read_request(&mut stream).await?;
                stream.write_all(OK.as_bytes()).await
            });
        }
    });
    pass_open_duration().await;
    assert_eq!(breaker_state(&upstream), BreakerState::HalfOpen);
    read_body(upstream.get().await).await.unwrap();
    assert_eq!(breaker_state(&upstream), BreakerState::Closed);
}

#[tokio::test]
async fn a_probe_that_never_ends_blocks_no_further_probe_and_probes_never_run_concurrently() {
    let (address, count) = start_agent(silent).await;
    let settings = sensitive_breaker_with_short_timeouts();
    let upstream = Arc::new(TestUpstream::new(&format!("http://{address}/run"), &settings));
    for _ in 0..2 {
        assert_fault(upstream.get().await, 504, "Timeout");
    }
    let before = count.load(Ordering::SeqCst);
    pass_open_duration().await;
    let probes = (0..20).map(|_| {
        let upstream = Arc::clone(&upstream);
        tokio::spawn(async move { upstream.get().await.unwrap_err().code().row().name })
    });
    let probes: Vec<_> = probes.collect();
    let mut codes = Vec::new();
    for probe in probes {
        codes.push(probe.await.unwrap());
    }
    assert_eq!(codes.iter().filter(|code| **code == "Timeout").count(), 1, "{codes:?}");
    assert_eq!(count.load(Ordering::SeqCst), before + 1);
    // The caller of the probe leaves; the next probe is still made.
    pass_open_duration().await;
    assert!(tokio::time::timeout(Duration::from_millis(20), upstream.get()).await.is_err());
    pass_open_duration().await;
    assert_fault(upstream.get().await, 504, "Timeout");
}

#[tokio::test]
async fn opening_a_websocket_does_not_use_up_the_probe_of_an_agent_without_one() {
    let upstream = TestUpstream::new("agent://a.example/x", &sensitive_breaker());
    for _ in 0..2 {
        assert_fault(upstream.get().await, 503, "AgentUnavailable");
    }
    assert_ne!(
        breaker_state(&upstream),
        BreakerState::Closed,
        "a name that does not resolve counts as an endpoint that is down"
    );
    pass_open_duration().await;
    let admitted =
        TestAdmission { upstream_set: upstream.upstream_set.clone(), deadline: Instant::now() + TEST_TIMEOUT };
    let header_mutations = HeaderMutations::default();
    let headers = HeaderMap::new();
    let request = UpstreamCall {
        id: "c",
        operation: "",
        method: Method::GET,
        path: None,
        query: None,
        headers: &headers,
        body: RequestBody::Empty,
        header_mutations,
        instruction: None,
        metrics: None,
        attempts: None,
        trace: None,
    };
    assert!(upstream.client.open_websocket(&admitted, request).await.unwrap().is_none());
    assert_eq!(breaker_state(&upstream), BreakerState::HalfOpen);
    let detail = assert_fault(upstream.get().await, 503, "AgentUnavailable");
    assert!(!detail.contains("breaker"), "{detail}");
}

#[tokio::test]
async fn an_agent_that_replies_never_opens_its_breaker() {
    let error_response = "HTTP/1.1 500 Internal Server Error\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
    for response in
        [error_response, "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n", "garbage\r\n\r\n"]
    {
        let (address, count) = start_agent(move |mut stream, _| async move {
            read_request(&mut stream).await?;
            stream.write_all(response.as_bytes()).await
        })
        .await;
        let upstream = TestUpstream::new(&format!("http://{address}/run"), &sensitive_breaker());
        for _ in 0..6 {
            drop(upstream.get().await);
        }
        assert_eq!((count.load(Ordering::SeqCst), breaker_state(&upstream)), (6, BreakerState::Closed), "{response:?}");
    }
}

#[tokio::test]
async fn a_caller_with_a_short_deadline_or_that_leaves_or_sends_slowly_never_opens_a_breaker() {
    let (address, _) = start_agent(silent).await;
    let settings = sensitive_breaker_with_short_timeouts();
    let upstream = TestUpstream::new(&format!("http://{address}/run"), &settings);
    for _ in 0..6 {
        let deadline = Instant::now() + Duration::from_millis(10);
        let admitted = TestAdmission { upstream_set: upstream.upstream_set.clone(), deadline };
        let header_mutations = HeaderMutations::default();
        let headers = HeaderMap::new();
        let (id, body, method) = ("c", RequestBody::Empty, Method::GET);
        let request = UpstreamCall {
            id,
            operation: "",
            method,
            path: None,
            query: None,
            headers: &headers,
            body,
            header_mutations,
            instruction: None,
            metrics: None,
            attempts: None,
            trace: None,
        };
        assert_fault(upstream.client.call(&admitted, request).await, 504, "Timeout");
        assert!(tokio::time::timeout(Duration::from_millis(10), upstream.get()).await.is_err());
    }
    for _ in 0..3 {
        let (_sender, body) = RequestBody::channel(Some(10));
        assert_fault(upstream.send(Method::POST, &HeaderMap::new(), body).await, 504, "Timeout");
    }
    assert_eq!(breaker_state(&upstream), BreakerState::Closed);
}

#[test]
fn r35_a_connect_timeout_shortened_by_the_caller_does_not_count_as_a_failure() {
    let timeouts = UpstreamTimeouts::from(&short_timeouts().timeouts);
    let late: Result<(), Fault> =
        Err(Fault::new(FaultCode::Timeout, "late").with_progress(fault::CallProgress::NotSent));
    let unreachable: Result<(), Fault> =
        Err(Fault::new(FaultCode::AgentUnavailable, "gone").with_progress(fault::CallProgress::NotSent));
    let millis = Duration::from_millis;
    for (elapsed, budget, expected) in
        [(0, 10, None), (500, 600, None), (1_000, 1_500, Some(false)), (10, 3_000, Some(false))]
    {
        let started = Instant::now() - millis(elapsed);
        let attempt = CallAttempt { started, deadline: started + millis(budget), streamed: false, timeouts };
        assert_eq!(attempt.classify_outcome(&late), expected, "{elapsed} of {attempt:?}");
        let outcome = attempt.classify_outcome(&unreachable);
        assert_eq!(outcome, Some(false), "a refused connection means that the endpoint is down");
    }
}

#[tokio::test]
async fn a_breaker_outlives_its_upstream_set_and_can_be_disabled() {
    let (transport, closed) = (transport(), ClosedPort::new());
    let endpoint = url_of(&closed);
    let upstream = TestUpstream::with_client(transport.clone(), &endpoint, &sensitive_breaker());
    for _ in 0..2 {
        drop(upstream.get().await);
    }
    let recompiled = TestUpstream::with_client(transport.clone(), &endpoint, &sensitive_breaker());
    assert_eq!(breaker_state(&recompiled), BreakerState::Open);
    let disabled = CircuitBreakerConfig { consecutive_failures: Some(0), open_duration: None };
    let disabled_upstream = TestUpstream::with_client(
        transport.clone(),
        &endpoint,
        &TransportConfig { circuit_breaker: disabled, ..long_timeouts() },
    );
    assert!(assert_fault(disabled_upstream.get().await, 503, "AgentUnavailable").contains("connecting"));
    // Breakers that no upstream set uses are removed.
    for at in 0..1_000 {
        drop(transport.compile_upstream_set(&agent(&format!("http://127.0.0.1:9/{at}")), &long_timeouts()).unwrap());
    }
    assert!(transport.breakers.len() < 200);
}

#[test]
fn unusable_settings_are_problems_that_name_their_field() {
    let endpoints = |texts: &[&str]| TransportConfig {
        additional_endpoints: Some(texts.iter().map(ToString::to_string).collect()),
        ..TransportConfig::default()
    };
    let breaker = CircuitBreakerConfig {
        consecutive_failures: Some(1_001),
        open_duration: Some(ConfigDuration::from_secs(7_200)),
    };
    let many = vec!["http://a.example/"; 16];
    for (settings, text) in [
        (endpoints(&["ftp://x/"]), "additional_endpoints[0]: the endpoint scheme 'ftp'"),
        (endpoints(&["http://127.0.0.1/", "http://127.0.0.1/"]), "additional_endpoints[1]: is a duplicate"),
        (endpoints(&many), "at most 15"),
        (
            TransportConfig { circuit_breaker: breaker, ..TransportConfig::default() },
            "circuit_breaker.open_duration: is 7200s (must be 100ms to 1h)",
        ),
    ] {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let problems = runtime.block_on(async {
            let transport = transport();
            let errors = transport.compile_upstream_set(&agent("http://127.0.0.1:9/"), &settings).unwrap_err();
            assert!(errors.iter().any(|problem| problem.contains(text)), "{errors:?}");
            transport.config_problems(&settings)
        });
        assert!(problems.iter().any(|problem| problem.contains(text)), "{problems:?}");
    }
}

#[tokio::test]
async fn calls_are_spread_over_the_endpoints_by_calls_in_flight() {
    let ((a, at_a), (b, at_b)) = (start_named_agent("a").await, start_named_agent("b").await);
    let upstream = with_endpoints(&a, &[&b], long_timeouts());
    for _ in 0..10 {
        read_body(upstream.post().await).await.unwrap();
    }
    assert_eq!((at_a.load(Ordering::SeqCst), at_b.load(Ordering::SeqCst)), (5, 5));
    let held = upstream.post().await.unwrap();
    let busy = held.headers["x-from"].clone();
    for _ in 0..4 {
        assert_ne!(answering_agent(upstream.post().await), busy.to_str().unwrap());
    }
}

#[tokio::test]
async fn r45_failover_happens_only_where_no_agent_can_execute_a_call_twice() {
    let (alive, calls) = start_named_agent("alive").await;
    // Nothing was delivered: any call fails over.
    let closed = ClosedPort::new();
    let upstream = with_endpoints(&url_of(&closed), &[&alive], long_timeouts());
    for _ in 0..4 {
        assert_eq!(answering_agent(upstream.post().await), "alive");
    }
    // An agent read the request and died: only idempotent calls fail over.
    let (dying, _) = start_agent(|mut stream, _| async move { read_request(&mut stream).await.map(drop) }).await;
    let dying = format!("http://{dying}/run");
    let disabled = CircuitBreakerConfig { consecutive_failures: Some(0), open_duration: None };
    let upstream = with_endpoints(&dying, &[&alive], TransportConfig { circuit_breaker: disabled, ..long_timeouts() });
    let before = calls.load(Ordering::SeqCst);
    let mut lost = 0;
    for _ in 0..4 {
        lost += usize::from(upstream.post().await.is_err_and(|fault| fault.http_status() == 502));
    }
    assert_eq!((lost, calls.load(Ordering::SeqCst) - before), (2, 2));
    let key = HeaderMap::from_iter([(HeaderName::from_static("idempotency-key"), HeaderValue::from_static("k"))]);
    for _ in 0..4 {
        assert_eq!(answering_agent(upstream.get().await), "alive");
        assert_eq!(answering_agent(upstream.send(Method::POST, &key, Bytes::from_static(b"{}").into()).await), "alive");
    }
    // A later endpoint that is unreachable does not undo what an earlier one may have executed.
    let disabled = CircuitBreakerConfig { consecutive_failures: Some(0), open_duration: None };
    let (closed, second_closed) = (ClosedPort::new(), ClosedPort::new());
    let upstream =
        with_endpoints(&dying, &[&url_of(&closed)], TransportConfig { circuit_breaker: disabled, ..long_timeouts() });
    for _ in 0..2 {
        assert_fault(upstream.send(Method::POST, &key, Bytes::from_static(b"{}").into()).await, 502, "AgentError");
    }
    // If every breaker is open, the fault says so.
    let upstream = with_endpoints(&url_of(&closed), &[&url_of(&second_closed)], sensitive_breaker());
    for _ in 0..2 {
        assert_fault(upstream.post().await, 503, "AgentUnavailable");
    }
    assert!(assert_fault(upstream.post().await, 503, "AgentUnavailable").contains("breaker"));
}

#[tokio::test]
async fn r76_a_session_stays_at_one_endpoint_and_moves_only_when_the_endpoint_is_down() {
    let endpoints = [start_named_agent("a").await.0, start_named_agent("b").await.0, start_named_agent("c").await.0];
    let upstream = with_endpoints(&endpoints[0], &[&endpoints[1], &endpoints[2]], sensitive_breaker());
    let other = with_endpoints(&endpoints[2], &[&endpoints[0], &endpoints[1]], sensitive_breaker());
    let agent_for = async |upstream: &TestUpstream, session: u64| {
        let header_mutations = HeaderMutations::default();
        let (headers, body) = (HeaderMap::new(), Bytes::from_static(b"{}").into());
        let deadline = Instant::now() + TEST_TIMEOUT;
        let request = UpstreamCall {
            id: "c",
            operation: "",
            method: Method::POST,
            path: None,
            query: None,
            headers: &headers,
            body,
            header_mutations,
            instruction: None,
            metrics: None,
            attempts: None,
            trace: None,
        };
        answering_agent(
            FailoverCall { upstream: &upstream.upstream_set, session: Some(session), deadline }.send(request).await,
        )
    };
    let mut used = BTreeSet::new();
    for name in 0..40_u32 {
        let session = stable_hash(&[b"key:a", &name.to_le_bytes()]);
        let endpoint = agent_for(&upstream, session).await;
        // Another gateway, with the endpoints in another order, chooses the same endpoint.
        assert_eq!(agent_for(&upstream, session).await, endpoint);
        assert_eq!(agent_for(&other, session).await, endpoint);
        used.insert(endpoint);
    }
    assert_eq!(used.len(), 3);
    let closed = ClosedPort::new();
    let partial = with_endpoints(&url_of(&closed), &[&endpoints[1], &endpoints[2]], sensitive_breaker());
    for name in 0..20_u32 {
        let session = stable_hash(&[b"key:a", &name.to_le_bytes()]);
        let (before, after) = (agent_for(&upstream, session).await, agent_for(&partial, session).await);
        assert!(before == "a" || before == after, "{before} {after}");
    }
    assert_ne!(stable_hash(&[b"key:a", b"b"]), stable_hash(&[b"key:", b"ab"]));
}

#[tokio::test]
async fn a_session_named_by_the_agent_returns_to_the_endpoint_that_named_it() {
    let ((a, _), (b, _)) = (start_named_agent("a").await, start_named_agent("b").await);
    let upstream = with_endpoints(&a, &[&b], long_timeouts());
    for _ in 0..4 {
        let reply = upstream.post().await.unwrap();
        let (agent, session) = (reply.headers["x-from"].clone(), reply.headers["mcp-session-id"].clone());
        drop(reply);
        assert!(session.to_str().unwrap().starts_with("fresh~"), "{session:?}");
        let headers = HeaderMap::from_iter([(HeaderName::from_static("mcp-session-id"), session.clone())]);
        for _ in 0..3 {
            let reply = upstream.send(Method::POST, &headers, Bytes::from_static(b"{}").into()).await.unwrap();
            // The agent received the session id without the tag.
            assert_eq!((&reply.headers["x-from"], &reply.headers["mcp-session-id"]), (&agent, &session));
        }
    }
    for id in ["~", "~00000000", "x~0000000g", "x~+0000000", "plain", "x~000000000"] {
        let headers = HeaderMap::from_iter([(HeaderName::from_static("mcp-session-id"), id.parse().unwrap())]);
        let reply = upstream.send(Method::POST, &headers, Bytes::from_static(b"{}").into()).await.unwrap();
        let session = reply.headers["mcp-session-id"].to_str().unwrap();
        assert_eq!(session.rsplit_once('~').unwrap().0, id, "{session}");
    }
}
