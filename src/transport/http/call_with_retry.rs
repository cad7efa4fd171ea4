//! One call over HTTP: a connection, the request, the head of the reply. The request is retried once, and only where
//! the agent cannot execute it twice (R45).

use super::{
    HttpTarget,
    connection_pool::{Http1Connection, Http2Stream, MAX_RESPONSE_HEAD},
    connector::{HttpConnection, connect},
    error_mapping,
    http_target::{AttemptStart, HttpExchange, HyperRequest, validate_response_head},
    reply_body::{HttpReplyBody, PooledConnection, ReplyConnection},
};
use crate::{
    fault::{CallProgress, Fault},
    telemetry::{AgentMetrics, AttemptResult, UpstreamConnection},
    trace::{SpanScope, semantic_conventions as names},
    transport::{
        UpstreamCall, UpstreamReply,
        attempt_span::AttemptSpan,
        headers,
        timeouts::{self, TimeoutKind},
        upstream_body::{BodyProgress, HyperBody, RequestBody},
        upstream_reply::ReplyBody,
    },
};
use http::{Method, Response, Version};
use hyper::{body::Incoming, client::conn::TrySendError};
use std::{
    future::poll_fn,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context as TaskContext, Poll, Waker},
};
use tokio::{
    task::coop::unconstrained,
    time::{Instant, timeout_at},
};

/// The most bytes that an agent may send before its final response head is complete: interim responses (RFC 9110 §15.2)
/// have no number of their own.
const MAX_BYTES_BEFORE_HEAD: u64 = 4 * MAX_RESPONSE_HEAD as u64;

/// A failed attempt.
struct FailedAttempt {
    fault: Fault,
    /// The request, if no byte of it was sent.
    unsent: Option<HyperRequest>,
    delivery: Delivery,
}

/// How far the request of a failed attempt got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Delivery {
    /// No byte was sent, or the agent says that it has not processed the request.
    NotDelivered,
    /// The agent may have read the request, and sent no reply.
    Unknown,
    /// The agent has read the request.
    Delivered,
}

impl From<Fault> for FailedAttempt {
    fn from(fault: Fault) -> Self {
        Self { fault, unsent: None, delivery: Delivery::Delivered }
    }
}

/// Makes one call.
pub(in crate::transport) async fn call_with_retry(
    target: &Arc<HttpTarget>,
    request: UpstreamCall<'_>,
    deadline: Instant,
) -> Result<UpstreamReply, Fault> {
    let UpstreamCall { method, path, query, headers, body, header_mutations, metrics, attempts, trace, .. } = request;
    let mut span = start_span(trace, target, &method);
    let exchange = HttpExchange { target, method, path, query, headers, header_mutations, deadline };
    let (copy, progress) = match &body {
        RequestBody::Empty => (Some(None), None),
        RequestBody::Whole(bytes) => (Some(Some(bytes.clone())), None),
        RequestBody::Stream(receiver) => (None, Some(receiver.progress())),
    };
    let connection = match acquire_connection(target, deadline, metrics).await {
        Ok(connection) => connection,
        Err(fault) => {
            span.fail(&fault);
            return Err(fault);
        }
    };
    let reused = connection.is_reused();
    let attempt = HttpAttempt { exchange: &exchange, progress: progress.as_deref(), trace: span.scope() };
    let FailedAttempt { fault, unsent, delivery } = match attempt.send(connection, body.into()).await {
        Ok(reply) => {
            span.finish_with_status(reply.status);
            return Ok(reply);
        }
        Err(failed) => failed,
    };
    span.fail(&fault);
    let may_retry = delivery == Delivery::NotDelivered || (delivery == Delivery::Unknown && exchange.is_repeatable());
    let retry_body = unsent.map(HyperRequest::into_body).or_else(|| copy.filter(|_| may_retry).map(HyperBody::Whole));
    // On a new connection the cause is not a closed idle connection, so a retry would fail in the same way.
    let Some(retry_body) = retry_body.filter(|_| reused) else {
        return Err(fault);
    };
    // The other idle connections are probably dead as well.
    if let Some(metrics) = metrics {
        metrics.record_attempt(AttemptResult::Reset);
        metrics.record_retry();
    }
    if let Some(attempts) = attempts {
        attempts.increment();
    }
    span = start_span(trace, target, &exchange.method);
    span.set_number(names::HTTP_REQUEST_RESEND_COUNT, 1);
    let outcome = match connect_boxed(target, deadline, metrics).await {
        Ok(connection) => {
            let attempt = HttpAttempt { exchange: &exchange, progress: progress.as_deref(), trace: span.scope() };
            attempt.send(connection, retry_body).await.map_err(|failed| failed.fault)
        }
        Err(fault) => Err(fault),
    };
    match &outcome {
        Ok(reply) => span.finish_with_status(reply.status),
        Err(fault) => span.fail(fault),
    }
    outcome
}

/// Begins the span of an attempt.
fn start_span<'a>(trace: Option<&'a SpanScope>, target: &HttpTarget, method: &Method) -> AttemptSpan<'a> {
    let mut span = AttemptSpan::start(trace, span_name(method), || target.traced_endpoint());
    span.set_text(names::HTTP_REQUEST_METHOD, || method.as_str().to_owned());
    span
}

/// The name of the span of a request.
fn span_name(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::POST => "POST",
        _ => "HTTP",
    }
}

async fn acquire_connection(
    target: &Arc<HttpTarget>,
    deadline: Instant,
    metrics: Option<&AgentMetrics>,
) -> Result<HttpConnection, Fault> {
    let now = Instant::now();
    if deadline <= now {
        return Err(timeouts::deadline_fault("the call's deadline passed before the agent was called"));
    }
    if let Some(stream) = target.pool.open_http2_stream() {
        record_connection(metrics, UpstreamConnection::Reused);
        return Ok(HttpConnection::Http2(stream, true));
    }
    // If the agent has closed the connection, no byte is sent on it, and the call is retried on a new one.
    if let Some(mut connection) = target.pool.take_http1(now) {
        connection.reused = true;
        record_connection(metrics, UpstreamConnection::Reused);
        return Ok(HttpConnection::Http1(connection));
    }
    connect_boxed(target, deadline, metrics).await
}

/// Opens a connection. Boxed, so that the futures of calls over an existing connection stay small.
async fn connect_boxed(
    target: &HttpTarget,
    deadline: Instant,
    metrics: Option<&AgentMetrics>,
) -> Result<HttpConnection, Fault> {
    let started = Instant::now();
    let result = Box::pin(connect(target, deadline)).await;
    match &result {
        // The connection of another call, to an agent that speaks HTTP/2.
        Ok(connection) if connection.is_reused() => record_connection(metrics, UpstreamConnection::Reused),
        Ok(_) => {
            if let Some(metrics) = metrics {
                metrics.record_opened_connection(started.elapsed());
            }
        }
        Err(_) => record_connection(metrics, UpstreamConnection::Failed),
    }
    result
}

fn record_connection(metrics: Option<&AgentMetrics>, connection: UpstreamConnection) {
    if let Some(metrics) = metrics {
        metrics.record_connection(connection);
    }
}

/// One attempt to send the request.
struct HttpAttempt<'a> {
    exchange: &'a HttpExchange<'a>,
    /// The progress of a streamed body.
    progress: Option<&'a BodyProgress>,
    /// The span of the attempt, whose context the agent receives.
    trace: Option<&'a SpanScope>,
}

impl HttpAttempt<'_> {
    async fn send(&self, connection: HttpConnection, body: HyperBody) -> Result<UpstreamReply, FailedAttempt> {
        let result = match connection {
            HttpConnection::Http1(connection) => self.send_http1(connection, body).await,
            HttpConnection::Http2(stream, _) => self.send_http2(stream, body).await,
        };
        // A truncated request body explains every other failure.
        result.map_err(|failed| match self.progress.and_then(BodyProgress::take_fault) {
            Some(fault) => fault.into(),
            None => failed,
        })
    }

    async fn send_http1(
        &self,
        mut connection: Http1Connection,
        body: HyperBody,
    ) -> Result<UpstreamReply, FailedAttempt> {
        let sent_at = Instant::now();
        let request = self.build_request(body, Version::HTTP_11, sent_at)?;
        let before = connection.counters.snapshot();
        // Only driving the connection can bring the reply, so nothing else needs to wake this call. The reply is polled
        // outside tokio's budget: a poll deferred for lack of budget would not be woken.
        let mut response = pin!(unconstrained(connection.sender.try_send_request(request)));
        let head = poll_fn(|cx| {
            // If the connection has ended, the reply's future knows why.
            let _ = connection.drive(cx);
            let head = response.as_mut().poll(&mut TaskContext::from_waker(Waker::noop()));
            let is_too_long = head.is_pending() && connection.counters.snapshot().1 - before.1 > MAX_BYTES_BEFORE_HEAD;
            if is_too_long { Poll::Ready(None) } else { head.map(Some) }
        });
        let head = self.await_head(pin!(head), sent_at).await?;
        let response = match head {
            None => return Err(error_mapping::invalid_response_fault("interim responses without end").into()),
            Some(Ok(response)) => response,
            Some(Err(failed)) => {
                let now = connection.counters.snapshot();
                let delivery = match now {
                    _ if now == before => Delivery::NotDelivered,
                    (_, received) if received == before.1 => Delivery::Unknown,
                    _ => Delivery::Delivered,
                };
                return Err(failed_attempt(failed, delivery));
            }
        };
        validate_response_head(&response)?;
        let keep_alive = headers::parse_keep_alive(response.headers());
        let pool = Arc::clone(&self.exchange.target.pool);
        Ok(self
            .build_reply(response, ReplyConnection::Http1(Box::new(PooledConnection { connection, pool, keep_alive }))))
    }

    async fn send_http2(&self, stream: Http2Stream, body: HyperBody) -> Result<UpstreamReply, FailedAttempt> {
        let sent_at = Instant::now();
        let request = self.build_request(body, Version::HTTP_2, sent_at)?;
        let response = stream.sender().try_send_request(request);
        match self.await_head(pin!(response), sent_at).await? {
            Ok(response) => {
                validate_response_head(&response)?;
                Ok(self.build_reply(response, ReplyConnection::Http2(stream)))
            }
            Err(failed) => {
                let is_unprocessed = error_mapping::is_unprocessed(failed.error());
                Err(failed_attempt(failed, if is_unprocessed { Delivery::NotDelivered } else { Delivery::Unknown }))
            }
        }
    }

    fn build_request(&self, body: HyperBody, version: Version, now: Instant) -> Result<HyperRequest, Fault> {
        self.exchange.build_request(body, version, AttemptStart { now, trace: self.trace })
    }

    /// Waits for the response head: within the call's deadline, and within the first-byte timeout, which restarts while
    /// the caller is still sending.
    async fn await_head<T>(&self, mut head: Pin<&mut impl Future<Output = T>>, sent_at: Instant) -> Result<T, Fault> {
        let mut waits_since = sent_at;
        loop {
            let until = waits_since + self.exchange.target.timeouts.first_byte;
            match timeout_at(until.min(self.exchange.deadline), head.as_mut()).await {
                Ok(head) => return Ok(head),
                Err(_) if until >= self.exchange.deadline => {
                    return Err(timeouts::deadline_fault("the call's deadline passed before the response head"));
                }
                Err(_) if self.progress.is_some_and(BodyProgress::take_sent_chunk) => waits_since = Instant::now(),
                Err(_) => {
                    let timeout = self.exchange.target.timeouts.first_byte;
                    let detail = format_args!("no complete response head within {timeout:?}");
                    return Err(self.exchange.target.timeouts.fault(TimeoutKind::FirstByte, detail));
                }
            }
        }
    }

    fn build_reply(&self, response: Response<Incoming>, source: ReplyConnection) -> UpstreamReply {
        let (head, body) = response.into_parts();
        let body = HttpReplyBody::new(body, source, self.exchange.target.timeouts, self.exchange.deadline);
        UpstreamReply {
            status: head.status,
            headers: head.headers,
            body: ReplyBody::from(body),
            credential_sent: self.exchange.target.has_credential(),
        }
    }
}

fn failed_attempt(mut failed: TrySendError<HyperRequest>, delivery: Delivery) -> FailedAttempt {
    let fault = error_mapping::no_response_fault(failed.error());
    let fault = if delivery == Delivery::NotDelivered { fault.with_progress(CallProgress::NotSent) } else { fault };
    FailedAttempt { fault, unsent: failed.take_message(), delivery }
}
