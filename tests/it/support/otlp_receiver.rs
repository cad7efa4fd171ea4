//! A receiver of OTLP over HTTP and gRPC that parses the published protobuf, and that can refuse, hang and be slow.

use super::eventually_within;
use bytes::{BufMut as _, Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, Request, Response, header};
use http_body_util::{BodyExt as _, Full, combinators::BoxBody};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
};
use opentelemetry_proto::tonic::{
    collector::trace::v1::{ExportTracePartialSuccess, ExportTraceServiceRequest, ExportTraceServiceResponse},
    common::v1::{KeyValue, any_value::Value},
    trace::v1::{Span, span::SpanKind},
};
use prost::Message as _;
use std::{
    collections::HashMap,
    convert::Infallible,
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::{net::TcpListener, task::JoinHandle};
use tokio_rustls::TlsAcceptor;

/// What the receiver does with the next requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ReceiverMode {
    Accept,
    /// Answers with this status of HTTP, so many times.
    Refuse(u16, usize),
    /// Answers with this status of gRPC, so many times.
    RefuseGrpc(u32, usize),
    /// Takes the request, and says that it has rejected so many spans.
    Reject(i64),
    /// Never answers.
    Hang,
}

/// A span as it arrived.
#[derive(Clone, Debug)]
pub struct ReceivedSpan {
    pub name: String,
    pub trace_id: String,
    pub span_id: String,
    pub parent: String,
    pub kind: SpanKind,
    pub start: u64,
    pub end: u64,
    pub attributes: HashMap<String, String>,
    /// The trace and the span of each link.
    pub links: Vec<(String, String)>,
    pub is_error: bool,
    pub trace_state: String,
}

impl ReceivedSpan {
    pub fn get(&self, name: &str) -> &str {
        self.attributes.get(name).map(String::as_str).unwrap_or_default()
    }
}

#[derive(Debug)]
struct State {
    mode: ReceiverMode,
    spans: Vec<ReceivedSpan>,
    heads: Vec<HeaderMap>,
    resource: HashMap<String, String>,
}

/// The receiver. It ends when it is dropped.
pub struct OtlpReceiver {
    pub address: SocketAddr,
    state: Arc<Mutex<State>>,
    task: JoinHandle<()>,
}

impl OtlpReceiver {
    pub async fn start() -> Self {
        Self::serve(TcpListener::bind("127.0.0.1:0").await.unwrap(), None)
    }

    pub async fn start_with_tls(tls: Arc<rustls::ServerConfig>) -> Self {
        Self::serve(TcpListener::bind("127.0.0.1:0").await.unwrap(), Some(tls.into()))
    }

    fn serve(listener: TcpListener, tls: Option<TlsAcceptor>) -> Self {
        let address = listener.local_addr().unwrap();
        let state =
            State { mode: ReceiverMode::Accept, spans: Vec::new(), heads: Vec::new(), resource: HashMap::new() };
        let state = Arc::new(Mutex::new(state));
        let shared = Arc::clone(&state);
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (state, tls) = (Arc::clone(&shared), tls.clone());
                tokio::spawn(async move {
                    let service = service_fn(move |request| respond(Arc::clone(&state), request));
                    let builder = auto::Builder::new(TokioExecutor::new());
                    // A client that leaves is no failure of the receiver.
                    match tls {
                        None => drop(builder.serve_connection(TokioIo::new(stream), service).await),
                        Some(tls) => {
                            if let Ok(stream) = tls.accept(stream).await {
                                drop(builder.serve_connection(TokioIo::new(stream), service).await);
                            }
                        }
                    }
                });
            }
        });
        Self { address, state, task }
    }

    /// The section `tracing` that exports here and records every trace; `settings` are further lines.
    pub fn section(&self, settings: &str) -> String {
        format!("tracing:\n  endpoint: http://{}\n  sample_ratio: 1\n{settings}", self.address)
    }

    pub fn set_mode(&self, mode: ReceiverMode) {
        self.state.lock().unwrap().mode = mode;
    }

    pub fn spans(&self) -> Vec<ReceivedSpan> {
        self.state.lock().unwrap().spans.clone()
    }

    /// The header fields of each request.
    pub fn heads(&self) -> Vec<HeaderMap> {
        self.state.lock().unwrap().heads.clone()
    }

    pub fn resource(&self) -> HashMap<String, String> {
        self.state.lock().unwrap().resource.clone()
    }

    /// Waits until the condition holds for the spans, and returns them.
    pub async fn wait_for(&self, what: &str, condition: impl Fn(&[ReceivedSpan]) -> bool) -> Vec<ReceivedSpan> {
        eventually_within(Duration::from_secs(20), what, async || condition(&self.spans())).await;
        self.spans()
    }

    /// Waits for `count` spans with the name.
    pub async fn wait_for_named(&self, name: &str, count: usize) -> Vec<ReceivedSpan> {
        self.wait_for(&format!("{count} spans {name} arrive"), |spans| named(spans, name).len() >= count).await
    }
}

impl Drop for OtlpReceiver {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The spans with a name.
pub fn named<'a>(spans: &'a [ReceivedSpan], name: &str) -> Vec<&'a ReceivedSpan> {
    spans.iter().filter(|span| span.name == name).collect()
}

/// The only span with a name.
#[track_caller]
pub fn only<'a>(spans: &'a [ReceivedSpan], name: &str) -> &'a ReceivedSpan {
    let found = named(spans, name);
    assert_eq!(found.len(), 1, "{name}: {spans:#?}");
    found[0]
}

/// Asserts that all spans are one tree of one trace, in which each span lies within its parent's time. `root` is the
/// name of the span that has no parent among them.
#[track_caller]
pub fn assert_one_trace(spans: &[ReceivedSpan], root: &str) {
    let by_id: HashMap<&str, &ReceivedSpan> = spans.iter().map(|span| (span.span_id.as_str(), span)).collect();
    for span in spans {
        assert_eq!(span.trace_id, spans[0].trace_id, "{} has another trace: {spans:#?}", span.name);
        assert!(span.start <= span.end, "{span:?}");
        match by_id.get(span.parent.as_str()) {
            Some(parent) => {
                let is_background = !span.links.is_empty() || span.name == "webhook";
                let is_within = parent.start <= span.start && (is_background || span.end <= parent.end);
                assert!(is_within, "{} is not within {}: {spans:#?}", span.name, parent.name);
            }
            None => assert_eq!(span.name, root, "{span:?} has no parent"),
        }
    }
}

async fn respond(
    state: Arc<Mutex<State>>,
    request: Request<Incoming>,
) -> Result<Response<BoxBody<Bytes, Infallible>>, Infallible> {
    let (head, body) = request.into_parts();
    let Ok(body) = body.collect().await.map(http_body_util::Collected::to_bytes) else {
        return Ok(response(400, Bytes::new()));
    };
    let is_grpc = head.uri.path() == "/opentelemetry.proto.collector.trace.v1.TraceService/Export";
    let media = head.headers.get(header::CONTENT_TYPE).cloned().unwrap_or(HeaderValue::from_static(""));
    let message = if is_grpc {
        assert_eq!((head.version, media.as_bytes()), (http::Version::HTTP_2, &b"application/grpc"[..]));
        assert_eq!(head.headers[header::TE], "trailers");
        let length = u32::from_be_bytes(body[1..5].try_into().unwrap());
        assert_eq!((body[0], length as usize), (0, body.len() - 5), "one message without compression");
        body.slice(5..)
    } else {
        assert_eq!((head.uri.path(), media.as_bytes()), ("/v1/traces", &b"application/x-protobuf"[..]));
        body
    };
    let parsed = ExportTraceServiceRequest::decode(message).unwrap();
    let mode = {
        let mut state = state.lock().unwrap();
        state.heads.push(head.headers);
        let mode = state.mode;
        state.mode = match mode {
            ReceiverMode::Refuse(_, 0 | 1) | ReceiverMode::RefuseGrpc(_, 0 | 1) => ReceiverMode::Accept,
            ReceiverMode::Refuse(status, times) => ReceiverMode::Refuse(status, times - 1),
            ReceiverMode::RefuseGrpc(status, times) => ReceiverMode::RefuseGrpc(status, times - 1),
            mode => mode,
        };
        if matches!(mode, ReceiverMode::Accept | ReceiverMode::Reject(_)) {
            for spans in parsed.resource_spans {
                state.resource = attributes(&spans.resource.unwrap_or_default().attributes);
                let spans = spans.scope_spans.into_iter().flat_map(|scope| scope.spans);
                state.spans.extend(spans.map(received_span));
            }
        }
        mode
    };
    let mut partial = None;
    match mode {
        ReceiverMode::Refuse(status, _) => return Ok(response(status, Bytes::new())),
        ReceiverMode::RefuseGrpc(status, _) => return Ok(grpc_response(Bytes::new(), status)),
        ReceiverMode::Hang => std::future::pending().await,
        ReceiverMode::Reject(rejected_spans) => {
            partial = Some(ExportTracePartialSuccess { rejected_spans, error_message: "no".to_owned() });
        }
        ReceiverMode::Accept => {}
    }
    let reply = Bytes::from(ExportTraceServiceResponse { partial_success: partial }.encode_to_vec());
    Ok(if is_grpc { grpc_response(reply, 0) } else { response(200, reply) })
}

fn response(status: u16, body: Bytes) -> Response<BoxBody<Bytes, Infallible>> {
    Response::builder().status(status).body(Full::new(body).boxed()).unwrap()
}

fn grpc_response(message: Bytes, status: u32) -> Response<BoxBody<Bytes, Infallible>> {
    let mut frame = BytesMut::new();
    if status == 0 {
        frame.put_u8(0);
        frame.put_u32(message.len() as u32);
        frame.extend_from_slice(&message);
    }
    let trailers = HeaderMap::from_iter([(http::HeaderName::from_static("grpc-status"), HeaderValue::from(status))]);
    let body = Full::new(frame.freeze()).with_trailers(async { Some(Ok(trailers)) }).boxed();
    Response::builder().header(header::CONTENT_TYPE, "application/grpc").body(body).unwrap()
}

fn attributes(pairs: &[KeyValue]) -> HashMap<String, String> {
    let text = |pair: &KeyValue| match pair.value.as_ref().and_then(|value| value.value.clone()) {
        Some(Value::StringValue(text)) => text,
        Some(Value::IntValue(number)) => number.to_string(),
        other => panic!("an attribute of another type: {other:?}"),
    };
    pairs.iter().map(|pair| (pair.key.clone(), text(pair))).collect()
}

fn received_span(span: Span) -> ReceivedSpan {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    assert_eq!((span.trace_id.len(), span.span_id.len()), (16, 8), "{span:?}");
    ReceivedSpan {
        trace_id: hex(&span.trace_id),
        span_id: hex(&span.span_id),
        parent: hex(&span.parent_span_id),
        kind: SpanKind::try_from(span.kind).unwrap(),
        start: span.start_time_unix_nano,
        end: span.end_time_unix_nano,
        attributes: attributes(&span.attributes),
        links: span.links.iter().map(|link| (hex(&link.trace_id), hex(&link.span_id))).collect(),
        is_error: span.status.is_some_and(|status| status.code == 2),
        trace_state: span.trace_state,
        name: span.name,
    }
}
