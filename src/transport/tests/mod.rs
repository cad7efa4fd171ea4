//! The upstream client against well-behaved and misbehaving agents, all on loopback, most of them written byte by byte.

mod breakers_and_failover;
#[path = "../../../tests/it/support/closed_port.rs"]
mod closed_port;
mod connection_reuse;
mod header_filtering;
mod http2_upstream;
mod misbehaving_agents;
mod streaming;
mod upstream_config;
mod upstream_tls;

use super::*;
use crate::{agent::Agent, fault::Fault, net::AddressPolicy, values::ConfigDuration};
use ::http::{HeaderMap, HeaderName, HeaderValue, Method};
use bytes::Bytes;
use closed_port::ClosedPort;
use serde_json::json;
use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    time::Instant,
};

/// Lets time pass without waiting. Between two calls of this function, time passes as usual.
async fn pass_time(duration: Duration) {
    tokio::time::pause();
    tokio::time::advance(duration).await;
    tokio::time::resume();
}

struct TestAdmission {
    upstream_set: UpstreamSet,
    deadline: Instant,
}

impl Admission for TestAdmission {
    fn upstream_set(&self) -> &UpstreamSet {
        &self.upstream_set
    }

    fn deadline(&self) -> Instant {
        self.deadline
    }
}

/// How long a call that succeeds may take on a busy machine.
const TEST_TIMEOUT: Duration = Duration::from_secs(20);

/// Timeouts that end no call that makes progress, however busy the machine is.
fn long_timeouts() -> TransportConfig {
    let timeout = Some(ConfigDuration::from_secs(TEST_TIMEOUT.as_secs()));
    let timeouts = TimeoutConfig {
        connect: timeout,
        first_byte: timeout,
        idle: timeout,
        total: timeout,
        ..TimeoutConfig::default()
    };
    TransportConfig { timeouts, ..TransportConfig::default() }
}

/// Timeouts for calls that time out.
fn short_timeouts() -> TransportConfig {
    let millis = |millis| Some(ConfigDuration::from_millis(millis));
    let timeouts = TimeoutConfig {
        connect: millis(1_000),
        first_byte: millis(250),
        idle: millis(250),
        total: millis(3_000),
        ..TimeoutConfig::default()
    };
    TransportConfig { timeouts, ..TransportConfig::default() }
}

fn transport() -> UpstreamClient {
    let policy = AddressPolicy::new(vec!["127.0.0.0/8".parse().unwrap()]);
    UpstreamClient::new(Arc::new(policy.with_unix_sockets(vec!["*".parse().unwrap()])))
}

fn agent(endpoint: &str) -> Agent {
    Agent::from_document(&json!({"id": "a", "name": "a", "endpoint": endpoint}), [0; 32]).unwrap()
}

/// An upstream client, and the upstream of one agent.
struct TestUpstream {
    client: UpstreamClient,
    upstream_set: UpstreamSet,
}

impl TestUpstream {
    fn new(endpoint: &str, settings: &TransportConfig) -> Self {
        Self::with_client(transport(), endpoint, settings)
    }

    fn with_client(client: UpstreamClient, endpoint: &str, settings: &TransportConfig) -> Self {
        let upstream_set = client.compile_upstream_set(&agent(endpoint), settings).unwrap();
        Self { client, upstream_set }
    }

    fn for_agent(agent: &Agent, settings: &TransportConfig) -> Self {
        let client = transport();
        let upstream_set = client.compile_upstream_set(agent, settings).unwrap();
        Self { client, upstream_set }
    }

    fn at(address: SocketAddr) -> Self {
        Self::new(&format!("http://{address}/run"), &long_timeouts())
    }

    /// The upstream at an address whose calls time out.
    fn with_short_timeouts(address: SocketAddr) -> Self {
        Self::new(&format!("http://{address}/run"), &short_timeouts())
    }

    async fn send(&self, method: Method, headers: &HeaderMap, body: RequestBody) -> Result<UpstreamReply, Fault> {
        let deadline = Instant::now() + self.upstream_set.timeouts().total;
        let admitted = TestAdmission { upstream_set: self.upstream_set.clone(), deadline };
        let header_mutations = HeaderMutations::default();
        let (id, operation, instruction) = ("c", "", None);
        let request = UpstreamCall {
            id,
            operation,
            method,
            path: None,
            query: None,
            headers,
            body,
            header_mutations,
            instruction,
            metrics: None,
            attempts: None,
            trace: None,
        };
        self.client.call(&admitted, request).await
    }

    async fn post(&self) -> Result<UpstreamReply, Fault> {
        self.send(Method::POST, &HeaderMap::new(), Bytes::from_static(b"{\"a\":1}").into()).await
    }

    async fn get(&self) -> Result<UpstreamReply, Fault> {
        self.send(Method::GET, &HeaderMap::new(), RequestBody::Empty).await
    }
}

async fn read_body(reply: Result<UpstreamReply, Fault>) -> Result<Bytes, Fault> {
    let prefix = reply?.body.peek(16 << 20).await?;
    assert!(prefix.complete);
    Ok(prefix.bytes)
}

/// Starts an agent that runs `serve` for every connection; `serve` receives the number of connections before it.
async fn start_agent<F, W>(serve: F) -> (SocketAddr, Arc<AtomicUsize>)
where
    F: Fn(TcpStream, usize) -> W + Send + Sync + 'static,
    W: Future<Output = std::io::Result<()>> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let count = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&count);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream, seen.fetch_add(1, Ordering::SeqCst)));
        }
    });
    (address, count)
}

/// Starts an agent that reads a request, sends `response`, and then closes or waits.
async fn start_answering_agent(response: impl Into<Vec<u8>>, close: bool) -> SocketAddr {
    let response: Arc<[u8]> = response.into().into();
    let serve = move |mut stream: TcpStream, _| {
        let response = Arc::clone(&response);
        async move {
            read_request(&mut stream).await?;
            stream.write_all(&response).await?;
            if !close {
                std::future::pending::<()>().await;
            }
            Ok(())
        }
    };
    start_agent(serve).await.0
}

/// Reads one request with its body, as text.
async fn read_request(stream: &mut (impl AsyncRead + Unpin)) -> std::io::Result<String> {
    let mut text = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let head = text.windows(4).position(|part| part == b"\r\n\r\n");
        if let Some(head) = head.map(|at| at + 4) {
            let lower = String::from_utf8_lossy(&text[..head]).to_lowercase();
            let length = lower
                .split("content-length: ")
                .nth(1)
                .map_or(0, |rest| rest.split("\r\n").next().unwrap().parse().unwrap());
            let chunked = lower.contains("transfer-encoding: chunked");
            if if chunked { text.ends_with(b"0\r\n\r\n") } else { text.len() >= head + length } {
                return Ok(String::from_utf8_lossy(&text).into_owned());
            }
        }
        match stream.read(&mut buffer).await? {
            0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            count => text.extend_from_slice(&buffer[..count]),
        }
    }
}

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}";

#[track_caller]
fn assert_fault(result: Result<impl std::fmt::Debug, Fault>, status: u16, code: &str) -> String {
    let fault = result.expect_err("a fault");
    assert_eq!((fault.http_status(), fault.code().row().name), (status, code), "{fault}");
    assert!(!fault.message().contains("127.0.0.1"), "{fault}");
    fault.detail().expect("a detail for the log").to_owned()
}

/// Runs the pool's sweep until no connection is idle.
async fn sweep_until_idle(transport: &UpstreamClient) {
    let deadline = Instant::now() + Duration::from_secs(5);
    while transport.idle_connections() > 0 {
        assert!(Instant::now() < deadline, "idle connections are never closed");
        transport.kinds.http.sweep().await;
    }
}
