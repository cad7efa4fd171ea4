//! The upstream client against well-behaved and misbehaving agents, all on loopback, most of them written byte by byte.

mod broken;
mod ends;
mod fields;
mod reuse;
mod secure;
mod streams;
mod targets;
mod trunks;

use super::*;
use crate::agent::Agent;
use crate::unit::Span;
use ::http::{HeaderName, HeaderValue};
use bytes::Bytes;
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
};

struct Admitted {
    route: Route,
    deadline: Instant,
}

impl Admission for Admitted {
    fn route(&self) -> &Route {
        &self.route
    }

    fn deadline(&self) -> Instant {
        self.deadline
    }
}

/// Timeouts short enough for tests.
fn quick() -> Settings {
    let span = |millis| Some(Span::millis(millis));
    let timeouts = Timeouts { connect: span(1_000), first_byte: span(250), idle: span(250), total: span(3_000) };
    Settings { timeouts, ..Settings::default() }
}

fn transport() -> Transport {
    let policy = AddressPolicy::new(vec!["127.0.0.0/8".parse().unwrap()]);
    Transport::new(Arc::new(policy.with_sockets(vec!["*".parse().unwrap()])))
}

fn agent(endpoint: &str) -> Agent {
    Agent::from_document(&json!({"id": "a", "name": "a", "endpoint": endpoint}), [0; 32]).unwrap()
}

/// An upstream client, and the upstream of one agent.
struct Reach {
    transport: Transport,
    route: Route,
}

impl Reach {
    fn new(endpoint: &str, settings: &Settings) -> Self {
        Self::through(transport(), endpoint, settings)
    }

    fn through(transport: Transport, endpoint: &str, settings: &Settings) -> Self {
        let route = transport.route(&agent(endpoint), settings).unwrap();
        Self { transport, route }
    }

    fn at(address: SocketAddr) -> Self {
        Self::new(&format!("http://{address}/run"), &quick())
    }

    async fn send(&self, method: Method, headers: &HeaderMap, body: Body) -> Result<Reply, Fault> {
        let deadline = Instant::now() + self.route.bounds().total;
        let admitted = Admitted { route: self.route.clone(), deadline };
        let passage = Passage::default();
        let (id, operation, instruction) = ("c", "", None);
        let request = Request { id, operation, method, path: None, headers, body, passage, instruction };
        self.transport.call(&admitted, request).await
    }

    async fn post(&self) -> Result<Reply, Fault> {
        self.send(Method::POST, &HeaderMap::new(), Bytes::from_static(b"{\"a\":1}").into()).await
    }

    async fn get(&self) -> Result<Reply, Fault> {
        self.send(Method::GET, &HeaderMap::new(), Body::Empty).await
    }
}

async fn whole(reply: Result<Reply, Fault>) -> Result<Bytes, Fault> {
    let beginning = reply?.body.beginning(16 << 20).await?;
    assert!(beginning.complete);
    Ok(beginning.bytes)
}

/// Starts an agent that runs `serve` for every connection; `serve` receives the number of connections before it.
async fn raw<F, W>(serve: F) -> (SocketAddr, Arc<AtomicUsize>)
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

/// Starts an agent that reads a request, sends `answer`, and then closes or waits.
async fn says(answer: impl Into<Vec<u8>>, close: bool) -> SocketAddr {
    let answer: Arc<[u8]> = answer.into().into();
    let serve = move |mut stream: TcpStream, _| {
        let answer = Arc::clone(&answer);
        async move {
            request(&mut stream).await?;
            stream.write_all(&answer).await?;
            if !close {
                std::future::pending::<()>().await;
            }
            Ok(())
        }
    };
    raw(serve).await.0
}

/// Reads one request with its body, as text.
async fn request(stream: &mut (impl AsyncRead + Unpin)) -> std::io::Result<String> {
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
fn is_fault(result: Result<impl std::fmt::Debug, Fault>, status: u16, code: &str) -> String {
    let fault = result.expect_err("a fault");
    assert_eq!((fault.http_status(), fault.code().row().name), (status, code), "{fault}");
    assert!(!fault.message().contains("127.0.0.1"), "{fault}");
    fault.internal().expect("a detail for the log").to_owned()
}

/// Runs the pool's sweep until no connection is kept.
async fn swept(transport: &Transport) {
    let deadline = Instant::now() + Duration::from_secs(5);
    while transport.idle() > 0 {
        assert!(Instant::now() < deadline, "idle connections are never closed");
        transport.http.sweep().await;
    }
}
