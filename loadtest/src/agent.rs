//! The agent: 300 bytes of JSON for whatever is posted, streams of events, bodies of any length,
//! and the keys that sign the run's tokens. One thread; what a call costs beyond it is the
//! proxy's. Calls to `/invoke` are answered by hand, everything else by hyper.

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

/// How many bytes the agent answers.
pub(crate) const ANSWER: usize = 300;

/// Events of one stream, and the pause between two.
pub(crate) const EVENTS: usize = 200;
const PAUSE: Duration = Duration::from_millis(10);

/// The pause of a stream that ends when its reader leaves.
pub(crate) const TICK: Duration = Duration::from_secs(1);

/// Where events are, those that do not end, and as many bytes as the number behind it says.
pub(crate) const SSE: &str = "/sse";
pub(crate) const TICKER: &str = "/sse/ticker";
pub(crate) const BULK: &str = "/bulk/";

/// Serves until killed; the first line on stdout says where.
pub(crate) fn serve(jwks: Option<PathBuf>) -> anyhow::Result<()> {
    let jwks = match jwks {
        Some(path) => Bytes::from(std::fs::read(&path).context("the JWKS cannot be read")?),
        None => Bytes::new(),
    };
    let answers = Answers { json: answer(), jwks };
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(accept(answers))
}

#[derive(Clone)]
struct Answers {
    json: Bytes,
    jwks: Bytes,
}

fn answer() -> Bytes {
    let (head, tail) = ("{\"text\":\"", "\"}");
    let filling = "x".repeat(ANSWER - head.len() - tail.len());
    Bytes::from(format!("{head}{filling}{tail}"))
}

async fn accept(answers: Answers) -> anyhow::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("listening on http://{}", listener.local_addr()?);
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        tokio::spawn(connection(stream, answers.clone()));
    }
}

async fn connection(stream: TcpStream, answers: Answers) {
    let mut first = [0; INVOKE.len()];
    // Connections that begin with such a call have no others on them.
    if stream.peek(&mut first).await.is_ok_and(|count| count == first.len()) && first == *INVOKE {
        // A caller that leaves ends its connection; anything else on it fails the call, which the run tells.
        let _ = invocations(stream, &answers.json).await;
        return;
    }
    let service = service_fn(move |request| reply(request, answers.clone()));
    let connection =
        hyper::server::conn::http1::Builder::new().pipeline_flush(true).serve_connection(TokioIo::new(stream), service);
    // A caller that leaves ends its connection; there is nobody to tell.
    let _ = connection.await;
}

/// How a call of most rows begins.
const INVOKE: &[u8; 23] = b"POST /invoke HTTP/1.1\r\n";

/// Such calls, one after the other: one read and one write for each.
async fn invocations(mut stream: TcpStream, json: &[u8]) -> anyhow::Result<()> {
    let head = format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n", json.len());
    let answer = [head.as_bytes(), json].concat();
    let mut room = vec![0; 8 * 1024];
    let mut filled = 0;
    loop {
        let count = stream.read(room.get_mut(filled..).context("a larger call than expected")?).await?;
        ensure!(count > 0, "the caller left");
        filled += count;
        let got = room.get(..filled).unwrap_or_default();
        if Head::read(got)?.is_some_and(|head| head.ends(got)) {
            ensure!(got.starts_with(INVOKE), "another path");
            stream.write_all(&answer).await?;
            filled = 0;
        }
    }
}

async fn reply(request: Request<Incoming>, answers: Answers) -> hyper::Result<Response<Body>> {
    let path = request.uri().path().to_owned();
    let mut body = request.into_body();
    // A body of any length passes through little memory.
    while let Some(part) = body.frame().await {
        drop(part?);
    }
    let bulk = path.strip_prefix(BULK).and_then(|length| length.parse().ok());
    Ok(match (path.as_str(), bulk) {
        ("/jwks", _) => document(answers.jwks),
        (SSE, _) => events(EVENTS, PAUSE),
        (TICKER, _) => events(usize::MAX, TICK),
        (_, Some(length)) => bytes(length),
        _ => document(answers.json),
    })
}

/// So many bytes, of which only a part is ever in memory.
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

/// A stream whose events carry the moment at which they were sent.
fn events(count: usize, pause: Duration) -> Response<Body> {
    let (mut sender, body) = Channel::<Bytes, Infallible>::new(1);
    tokio::spawn(async move {
        for _ in 0..count {
            tokio::time::sleep(pause).await;
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

/// Nanoseconds on the machine's monotonic clock, which agent and load share.
pub(crate) fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    let nanoseconds = time.tv_sec * 1_000_000_000 + time.tv_nsec;
    u64::try_from(nanoseconds).expect("the monotonic clock counts from zero upwards")
}
