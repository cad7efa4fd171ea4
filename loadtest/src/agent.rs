//! The agent: 300 bytes of JSON for whatever is posted, a stream of events, and the keys that
//! sign the run's tokens. One thread, no parsing, no allocation worth naming: what a call
//! costs beyond this is the proxy's.

use anyhow::Context as _;
use bytes::Bytes;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Channel, Full};
use hyper::body::Incoming;
use hyper::header::CONTENT_TYPE;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use rustix::time::{ClockId, clock_gettime};
use std::convert::Infallible;
use std::path::PathBuf;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};

type Body = BoxBody<Bytes, Infallible>;

/// How many bytes the agent answers.
pub(crate) const ANSWER: usize = 300;

/// Events of one stream, and the pause between two.
pub(crate) const EVENTS: usize = 50;
const PAUSE: Duration = Duration::from_millis(10);

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
    let service = service_fn(move |request| reply(request, answers.clone()));
    let connection =
        hyper::server::conn::http1::Builder::new().pipeline_flush(true).serve_connection(TokioIo::new(stream), service);
    // A caller that leaves ends its connection; there is nobody to tell.
    let _ = connection.await;
}

async fn reply(request: Request<Incoming>, answers: Answers) -> hyper::Result<Response<Body>> {
    let path = request.uri().path();
    if path == "/jwks" {
        return Ok(document(answers.jwks));
    }
    let streams = path == "/sse";
    request.into_body().collect().await?;
    Ok(if streams { events() } else { document(answers.json) })
}

fn document(json: Bytes) -> Response<Body> {
    let mut response = Response::new(Full::new(json).boxed());
    response.headers_mut().insert(CONTENT_TYPE, http_value("application/json"));
    response
}

/// A stream whose events carry the moment at which they were sent.
fn events() -> Response<Body> {
    let (mut sender, body) = Channel::<Bytes, Infallible>::new(1);
    tokio::spawn(async move {
        for _ in 0..EVENTS {
            tokio::time::sleep(PAUSE).await;
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
