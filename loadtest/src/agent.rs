//! The agent: answers every POST with 300 bytes of JSON, streams events, serves bodies of any length, and serves the
//! keys that sign the run's tokens. It runs on one thread, so that the cost of a call beyond the agent is the proxy's.
//! Calls to `/invoke` are handled without an HTTP library, all others with hyper.

use crate::message_head::MessageHead;
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

type ResponseBody = BoxBody<Bytes, Infallible>;

/// Bytes of the agent's response body.
pub(crate) const RESPONSE_BODY_SIZE: usize = 300;

/// Events of one finite stream, and the interval between two.
pub(crate) const EVENTS_PER_STREAM: usize = 200;
const EVENT_INTERVAL: Duration = Duration::from_millis(10);

/// The interval between the events of an endless stream.
pub(crate) const ENDLESS_EVENT_INTERVAL: Duration = Duration::from_secs(1);

/// Paths: a finite event stream, an endless one, and a body of as many bytes as the number behind the path says.
pub(crate) const EVENTS_PATH: &str = "/sse";
pub(crate) const ENDLESS_EVENTS_PATH: &str = "/sse/ticker";
pub(crate) const BYTES_PATH: &str = "/bulk/";

/// Serves until killed. The first line on stdout names the address.
pub(crate) fn serve(jwks: Option<PathBuf>) -> anyhow::Result<()> {
    let jwks = match jwks {
        Some(path) => Bytes::from(std::fs::read(&path).context("cannot read the JWKS")?),
        None => Bytes::new(),
    };
    let responses = AgentResponses { json: json_body(), jwks };
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(accept_connections(responses))
}

#[derive(Clone)]
struct AgentResponses {
    json: Bytes,
    jwks: Bytes,
}

fn json_body() -> Bytes {
    let (start, end) = ("{\"text\":\"", "\"}");
    let text = "x".repeat(RESPONSE_BODY_SIZE - start.len() - end.len());
    Bytes::from(format!("{start}{text}{end}"))
}

async fn accept_connections(responses: AgentResponses) -> anyhow::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("listening on http://{}", listener.local_addr()?);
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        tokio::spawn(serve_connection(stream, responses.clone()));
    }
}

async fn serve_connection(stream: TcpStream, responses: AgentResponses) {
    let mut first = [0; INVOKE_REQUEST_LINE.len()];
    // A connection that begins with such a call carries no other requests.
    if stream.peek(&mut first).await.is_ok_and(|count| count == first.len()) && first == *INVOKE_REQUEST_LINE {
        // An error ends the connection: the client has left, or sent another request, which fails its call.
        let _ = serve_invocations(stream, &responses.json).await;
        return;
    }
    let service = service_fn(move |request| respond(request, responses.clone()));
    let connection =
        hyper::server::conn::http1::Builder::new().pipeline_flush(true).serve_connection(TokioIo::new(stream), service);
    // An error ends the connection and has no recipient: the client has left.
    let _ = connection.await;
}

/// The request line of a call in most rows.
const INVOKE_REQUEST_LINE: &[u8; 23] = b"POST /invoke HTTP/1.1\r\n";

/// Serves such calls one after the other, with one read and one write for each.
async fn serve_invocations(mut stream: TcpStream, json: &[u8]) -> anyhow::Result<()> {
    let head = format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n", json.len());
    let response = [head.as_bytes(), json].concat();
    let mut buffer = vec![0; 8 * 1024];
    let mut filled = 0;
    loop {
        let count = stream.read(buffer.get_mut(filled..).context("the request is larger than expected")?).await?;
        ensure!(count > 0, "the client closed the connection");
        filled += count;
        let received = buffer.get(..filled).unwrap_or_default();
        if MessageHead::parse(received)?.is_some_and(|head| head.is_message_complete(received)) {
            ensure!(received.starts_with(INVOKE_REQUEST_LINE), "a request for another path");
            stream.write_all(&response).await?;
            filled = 0;
        }
    }
}

async fn respond(request: Request<Incoming>, responses: AgentResponses) -> hyper::Result<Response<ResponseBody>> {
    let path = request.uri().path().to_owned();
    let mut body = request.into_body();
    // The body is discarded piece by piece, so that its length does not matter.
    while let Some(part) = body.frame().await {
        drop(part?);
    }
    let bulk = path.strip_prefix(BYTES_PATH).and_then(|length| length.parse().ok());
    Ok(match (path.as_str(), bulk) {
        ("/jwks", _) => json_response(responses.jwks),
        (EVENTS_PATH, _) => event_stream_response(EVENTS_PER_STREAM, EVENT_INTERVAL),
        (ENDLESS_EVENTS_PATH, _) => event_stream_response(usize::MAX, ENDLESS_EVENT_INTERVAL),
        (_, Some(length)) => bytes_response(length),
        _ => json_response(responses.json),
    })
}

/// A body of this many bytes, of which only one piece is in memory.
struct RepeatedBytes(u64);

impl hyper::body::Body for RepeatedBytes {
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

fn bytes_response(length: u64) -> Response<ResponseBody> {
    let mut response = Response::new(RepeatedBytes(length).boxed());
    response.headers_mut().insert(CONTENT_TYPE, header_value("application/octet-stream"));
    response
}

fn json_response(json: Bytes) -> Response<ResponseBody> {
    let mut response = Response::new(Full::new(json).boxed());
    response.headers_mut().insert(CONTENT_TYPE, header_value("application/json"));
    response
}

/// Builds an event stream whose events carry the moment at which the agent sent them.
fn event_stream_response(count: usize, interval: Duration) -> Response<ResponseBody> {
    let (mut sender, body) = Channel::<Bytes, Infallible>::new(1);
    tokio::spawn(async move {
        for _ in 0..count {
            tokio::time::sleep(interval).await;
            let event = format!("data: {{\"sent\":{}}}\n\n", monotonic_nanos());
            if sender.send_data(Bytes::from(event)).await.is_err() {
                return;
            }
        }
    });
    let mut response = Response::new(body.boxed());
    response.headers_mut().insert(CONTENT_TYPE, header_value("text/event-stream"));
    response
}

fn header_value(text: &'static str) -> hyper::header::HeaderValue {
    hyper::header::HeaderValue::from_static(text)
}

/// Returns the nanoseconds of the machine's monotonic clock, which agent and load share.
pub(crate) fn monotonic_nanos() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    let nanoseconds = time.tv_sec * 1_000_000_000 + time.tv_nsec;
    u64::try_from(nanoseconds).expect("the monotonic clock counts from zero upwards")
}
