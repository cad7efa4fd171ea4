//! The agent: answers every POST with 300 bytes of JSON, streams events, serves bodies of any length, and serves the
//! keys that sign the run's tokens. It runs on one thread, so that the cost of a call beyond the agent is the proxy's.
//! Calls to `/invoke` are handled without an HTTP library, all others with hyper.

use crate::head::Head;
use anyhow::{Context as _, ensure};
use bytes::Bytes;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Channel, Full};
use hyper::body::{Frame, Incoming, SizeHint};
use hyper::header::CONTENT_TYPE;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use rustix::time::{ClockId, clock_gettime};
use std::convert::Infallible;
use std::path::PathBuf;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

type Body = BoxBody<Bytes, Infallible>;

/// Bytes of the agent's response body.
pub(crate) const ANSWER: usize = 300;

/// Events of one finite stream, and the interval between two.
pub(crate) const EVENTS_PER_STREAM: usize = 200;
const EVENT_INTERVAL: Duration = Duration::from_millis(10);

/// The interval between the events of an endless stream.
pub(crate) const TICK: Duration = Duration::from_secs(1);

/// Paths: a finite event stream, an endless one, and a body of as many bytes as the number behind the path says.
pub(crate) const SSE: &str = "/sse";
pub(crate) const TICKER: &str = "/sse/ticker";
pub(crate) const BYTES_PATH: &str = "/bulk/";

/// Serves until killed. The first line on stdout names the address.
pub(crate) fn serve(jwks: Option<PathBuf>) -> anyhow::Result<()> {
    let jwks = match jwks {
        Some(path) => Bytes::from(std::fs::read(&path).context("cannot read the JWKS")?),
        None => Bytes::new(),
    };
    let responses = Answers { json: answer(), jwks };
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(accept(responses))
}

#[derive(Clone)]
struct Answers {
    json: Bytes,
    jwks: Bytes,
}

fn answer() -> Bytes {
    let (start, end) = ("{\"text\":\"", "\"}");
    let text = "x".repeat(ANSWER - start.len() - end.len());
    Bytes::from(format!("{start}{text}{end}"))
}

async fn accept(responses: Answers) -> anyhow::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("listening on http://{}", listener.local_addr()?);
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        tokio::spawn(connection(stream, responses.clone()));
    }
}

async fn connection(stream: TcpStream, responses: Answers) {
    let mut first = [0; INVOKE.len()];
    // A connection that begins with such a call carries no other requests.
    if stream.peek(&mut first).await.is_ok_and(|count| count == first.len()) && first == *INVOKE {
        // An error ends the connection: the client has left, or sent another request, which fails its call.
        let _ = invocations(stream, &responses.json).await;
        return;
    }
    let service = service_fn(move |request| reply(request, responses.clone()));
    let connection =
        hyper::server::conn::http1::Builder::new().pipeline_flush(true).serve_connection(TokioIo::new(stream), service);
    // An error ends the connection and has no recipient: the client has left.
    let _ = connection.await;
}

/// The request line of a call in most rows.
const INVOKE: &[u8; 23] = b"POST /invoke HTTP/1.1\r\n";

/// Serves such calls one after the other, with one read and one write for each.
async fn invocations(mut stream: TcpStream, json: &[u8]) -> anyhow::Result<()> {
    let head = format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n", json.len());
    let response = [head.as_bytes(), json].concat();
    let mut buffer = vec![0; 8 * 1024];
    let mut filled = 0;
    loop {
        let count = stream.read(buffer.get_mut(filled..).context("the request is larger than expected")?).await?;
        ensure!(count > 0, "the client closed the connection");
        filled += count;
        let received = buffer.get(..filled).unwrap_or_default();
        if Head::read(received)?.is_some_and(|head| head.ends(received)) {
            ensure!(received.starts_with(INVOKE), "a request for another path");
            stream.write_all(&response).await?;
            filled = 0;
        }
    }
}

async fn reply(request: Request<Incoming>, responses: Answers) -> hyper::Result<Response<Body>> {
    let path = request.uri().path().to_owned();
    let mut body = request.into_body();
    // The body is discarded piece by piece, so that its length does not matter.
    while let Some(part) = body.frame().await {
        drop(part?);
    }
    let bulk = path.strip_prefix(BYTES_PATH).and_then(|length| length.parse().ok());
    Ok(match (path.as_str(), bulk) {
        ("/jwks", _) => document(responses.jwks),
        (SSE, _) => events(EVENTS_PER_STREAM, EVENT_INTERVAL),
        (TICKER, _) => events(usize::MAX, TICK),
        (_, Some(length)) => bytes(length),
        _ => document(responses.json),
    })
}

/// A body of this many bytes, of which only one piece is in memory.
struct Parts(u64);

impl hyper::body::Body for Parts {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        static PART: [u8; 64 * 1024] = [b'x'; 64 * 1024];
        let part = usize::try_from(self.0).ok().and_then(|left| PART.get(..left)).unwrap_or(&PART);
        self.0 -= part.len() as u64;
        Poll::Ready((!part.is_empty()).then(|| Ok(Frame::data(Bytes::from_static(part)))))
    }

    fn is_end_stream(&self) -> bool {
        self.0 == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0)
    }
}

fn bytes(length: u64) -> Response<Body> {
    let mut response = Response::new(Parts(length).boxed());
    response.headers_mut().insert(CONTENT_TYPE, http_value("application/octet-stream"));
    response
}

fn document(json: Bytes) -> Response<Body> {
    let mut response = Response::new(Full::new(json).boxed());
    response.headers_mut().insert(CONTENT_TYPE, http_value("application/json"));
    response
}

/// Builds an event stream whose events carry the moment at which the agent sent them.
fn events(count: usize, interval: Duration) -> Response<Body> {
    let (mut sender, body) = Channel::<Bytes, Infallible>::new(1);
    tokio::spawn(async move {
        for _ in 0..count {
            tokio::time::sleep(interval).await;
            let event = format!("data: {{\"sent\":{}}}\n\n", now());
            if sender.send_data(Bytes::from(event)).await.is_err() {
                return;
            }
        }
    });
    let mut response = Response::new(body.boxed());
    response.headers_mut().insert(CONTENT_TYPE, http_value("text/event-stream"));
    response
}

fn http_value(text: &'static str) -> hyper::header::HeaderValue {
    hyper::header::HeaderValue::from_static(text)
}

/// Returns the nanoseconds of the machine's monotonic clock, which agent and load share.
pub(crate) fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    let nanoseconds = time.tv_sec * 1_000_000_000 + time.tv_nsec;
    u64::try_from(nanoseconds).expect("the monotonic clock counts from zero upwards")
}
