//! The call to the agent, with the header fields that the gateway sets on it. Every function that sends takes an
//! [`Admitted`].

use super::body_pump::BodyPump;
use crate::{
    fault::{CallProgress, Fault, FaultCode, Result},
    gateway::{
        admission::{Admitted, BodyBound, CallInput, IncomingBody},
        call::{Call, CallResult},
        delegation::DELEGATION_CHAIN,
        gateway_state::Gateway,
        header_names::{AGENT_VERSION, MCP_SESSION_ID, OPERATION, REQUEST_ID, SESSION_ID},
        operation_path::upstream_path,
        requested_version::CompiledVersion,
        response::{failure_unit, has_content_coding},
        route::CompiledOperation,
    },
    http_server::{BodyState, HttpSession},
    idempotency,
    limit::{LatencySample, SampleOutcome},
    telemetry::redact,
    trace::{ActiveSpan, SpanKind, SpanScope, semantic_conventions as names},
    transport::{
        Admission as _, AttemptCount, CallTimeout, HeaderMutations, ReplyBody, RequestBody, UpstreamCall, UpstreamReply,
    },
    values::{FailureUnit, contains_known_secret},
};
use bytes::Bytes;
use futures_util::{FutureExt, future::Either};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header, uri::PathAndQuery};
use std::time::{Duration, Instant};

/// Returns the gateway's headers for the agent: call id, operation name, version (each if it exists), and delegation
/// chain.
pub(in crate::gateway) fn gateway_headers(
    call: &Call,
    admitted: &Admitted,
) -> impl Iterator<Item = (HeaderName, HeaderValue)> {
    build_gateway_headers(call.id_header(), admitted.operation(), admitted.version(), admitted.delegation_chain())
}

/// Returns the gateway's headers of a request for the agent's own API, which has no operation: call id and delegation
/// chain.
pub(in crate::gateway) fn api_gateway_headers(call: &Call, admitted: &Admitted) -> Vec<(HeaderName, HeaderValue)> {
    let id = call.id_header().map(|id| (REQUEST_ID, id));
    let chain = admitted.delegation_chain().map(|chain| (DELEGATION_CHAIN, chain.clone()));
    id.into_iter().chain(chain).collect()
}

/// Returns the same headers of a call that may not be admitted.
pub(in crate::gateway) fn build_gateway_headers(
    call_id: Option<HeaderValue>,
    operation: &CompiledOperation,
    version: Option<&CompiledVersion>,
    delegation_chain: Option<&HeaderValue>,
) -> impl Iterator<Item = (HeaderName, HeaderValue)> + use<> {
    let id = call_id.map(|id| (REQUEST_ID, id));
    let operation = operation.name_header.clone().map(|name| (OPERATION, name));
    let chain = delegation_chain.map(|chain| (DELEGATION_CHAIN, chain.clone()));
    let version = version.and_then(|version| version.label.clone());
    id.into_iter().chain(operation).chain(version.map(|version| (AGENT_VERSION, version))).chain(chain)
}

/// Sets the headers of a JSON body, for inputs that are not the caller's own body.
pub(in crate::gateway) fn set_json_headers(headers: &mut HeaderMap) {
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
}

/// Derives the idempotency key of a part from the key of the call, so that no two parts share a key.
pub(in crate::gateway) fn number_idempotency_key(headers: &mut HeaderMap, part: usize) {
    let Some(key) = headers.remove(idempotency::IDEMPOTENCY_KEY) else { return };
    if let Ok(key) = HeaderValue::from_bytes(&[key.as_bytes(), format!(".{part}").as_bytes()].concat()) {
        headers.insert(idempotency::IDEMPOTENCY_KEY, key);
    }
}

/// What is requested of the agent.
#[derive(Clone, Copy)]
pub(in crate::gateway) enum UpstreamTarget<'a> {
    /// The operation of the call, with `POST`.
    Operation,
    /// A resource of the agent's own API.
    Api { method: &'a Method, path: &'a PathAndQuery },
}

/// What the agent receives besides the body.
#[derive(Clone, Copy)]
pub(in crate::gateway) struct UpstreamHead<'a> {
    /// The call id.
    pub(in crate::gateway) call_id: &'a str,
    pub(in crate::gateway) target: UpstreamTarget<'a>,
    /// The caller's headers; the transport removes those that must not pass.
    pub(in crate::gateway) headers: &'a HeaderMap,
    /// The query for the agent.
    pub(in crate::gateway) query: Option<&'a str>,
    pub(in crate::gateway) forwarding: HeaderMutations<'a>,
    /// The instruction, if it is not a part of the input.
    pub(in crate::gateway) instruction: Option<&'a str>,
    /// The number of tries that the access log has.
    pub(in crate::gateway) attempts: &'a AttemptCount,
    /// The span below which the call to the agent is recorded.
    pub(in crate::gateway) trace: Option<&'a SpanScope>,
}

/// A request to the agent, without the admission.
pub(in crate::gateway) struct OutgoingRequest<'a> {
    pub(in crate::gateway) head: UpstreamHead<'a>,
    pub(in crate::gateway) input: CallInput,
    /// When the body must have arrived.
    pub(in crate::gateway) deadline: Instant,
    /// The bound of a body that is not validated.
    pub(in crate::gateway) max_body: BodyBound,
}

/// Sends one input and waits for the head of the reply.
pub(in crate::gateway) fn send_upstream<'a>(
    gateway: &'a Gateway,
    admitted: &'a Admitted,
    upstream_head: UpstreamHead<'a>,
    body: RequestBody,
) -> impl Future<Output = Result<UpstreamReply>> + Send + 'a {
    let UpstreamHead { call_id: id, target, headers, query, forwarding, instruction, attempts, trace } = upstream_head;
    let header_mutations = HeaderMutations { caller_headers: admitted.caller_headers(), ..forwarding };
    let (operation, method, path) = match target {
        UpstreamTarget::Operation => {
            let operation = admitted.operation();
            (&*operation.name, Method::POST, upstream_path(admitted.version(), operation.path.as_ref()))
        }
        UpstreamTarget::Api { method, path } => ("", method.clone(), Some(path.clone())),
    };
    let mut request = UpstreamCall {
        id,
        operation,
        method,
        path,
        query,
        headers,
        body,
        header_mutations,
        instruction,
        metrics: Some(&admitted.agent_route().metrics),
        attempts: Some(attempts),
        trace: None,
    };
    // Requests of an API have no common latency.
    let is_streamed = matches!(request.body, RequestBody::Stream(_)) || matches!(target, UpstreamTarget::Api { .. });
    let measurement = LatencyMeasurement { gateway, admitted, sample: admitted.start_latency_sample(), is_streamed };
    let is_api = operation.is_empty() && matches!(target, UpstreamTarget::Api { .. });
    let reply = match trace {
        Some(trace) if trace.is_sampled() => Either::Right(invoke_traced(gateway, admitted, request, trace).boxed()),
        trace => {
            request.trace = trace;
            Either::Left(gateway.transport.call(admitted, request))
        }
    };
    async move {
        let mut result = reply.await;
        measurement.record(&result);
        let timeout = admitted.deadline_timeout();
        // The reply is changed where it is, because it is large.
        match &mut result {
            Ok(reply) => prepare_reply(reply, timeout, is_api),
            Err(_) => result = result.map_err(|fault| timeout.name_in(fault)),
        }
        result
    }
}

/// Prepares a reply for every front end: a fault that ends its body says what bounded the time of the call, and failures
/// in a body that is forwarded as it arrives lose the gateway's secrets.
fn prepare_reply(reply: &mut UpstreamReply, timeout: CallTimeout, is_api: bool) {
    reply.body.set_deadline_timeout(timeout);
    let is_error = reply.status.is_client_error() || reply.status.is_server_error();
    if is_error {
        remove_secret_fields(&mut reply.headers);
    }
    // Other bodies of errors are judged whole before they pass.
    match failure_unit(&reply.headers) {
        Some(unit) => reply.body.redact_failures(unit),
        None if is_error && is_api && has_content_coding(&reply.headers) => remove_body(reply),
        None if is_error && is_api => reply.body.redact_failures(FailureUnit::Body),
        None => {}
    }
}

/// Removes the body of an error that cannot be searched for secrets: the gateway asked for no coding (RFC 9110 §12.5.3).
fn remove_body(reply: &mut UpstreamReply) {
    reply.body = ReplyBody::from(Bytes::new());
    for name in [header::CONTENT_ENCODING, header::CONTENT_LENGTH, header::CONTENT_TYPE] {
        reply.headers.remove(name);
    }
}

fn remove_secret_fields(headers: &mut HeaderMap) {
    let has_secret = |value: &HeaderValue| contains_known_secret(value.as_bytes());
    let names: Vec<HeaderName> =
        headers.iter().filter(|(_, value)| has_secret(value)).map(|(name, _)| name.clone()).collect();
    for name in names {
        headers.remove(name);
    }
}

/// Calls the agent in a span of its own, which ends with the reply's body.
async fn invoke_traced(
    gateway: &Gateway,
    admitted: &Admitted,
    mut request: UpstreamCall<'_>,
    trace: &SpanScope,
) -> Result<UpstreamReply> {
    let mut span = start_agent_span(admitted, trace);
    if let Some(session) = request.headers.get(SESSION_ID).or_else(|| request.headers.get(MCP_SESSION_ID)) {
        span.set(names::GEN_AI_CONVERSATION_ID, || redact(session.to_str().unwrap_or_default()).into_owned());
    }
    let scope = span.scope().clone();
    request.trace = Some(&scope);
    match gateway.transport.call(admitted, request).await {
        Ok(mut reply) => {
            if reply.status.is_client_error() || reply.status.is_server_error() {
                span.set_error(reply.status.as_u16().to_string());
            }
            reply.body.hold_span(span);
            Ok(reply)
        }
        Err(fault) => {
            span.fail(fault.code().row().name);
            Err(fault)
        }
    }
}

/// Begins the span of a call to an agent (OpenTelemetry's conventions of GenAI agents).
fn start_agent_span(admitted: &Admitted, trace: &SpanScope) -> ActiveSpan {
    let agent = &admitted.agent_route().agent;
    let mut span =
        ActiveSpan::start(trace, SpanKind::Internal, || format!("invoke_agent {}", agent.id.as_str()).into());
    span.set(names::GEN_AI_OPERATION_NAME, || "invoke_agent");
    span.set(names::GEN_AI_PROVIDER_NAME, || agent.publisher.as_deref().unwrap_or("_OTHER").to_owned());
    span.set(names::GEN_AI_AGENT_ID, || agent.id.as_str().to_owned());
    span.set(names::GEN_AI_AGENT_NAME, || agent.name.to_string());
    let label = admitted.version().and_then(|version| version.label.as_ref()?.to_str().ok());
    if let Some(version) = label.or(agent.version.as_deref()) {
        span.set(names::GEN_AI_AGENT_VERSION, || version.to_owned());
    }
    span.set(names::OPERATION, || admitted.operation().name.to_string());
    span
}

/// Sends the call's input until the agent starts to reply or the caller leaves; an input that was not buffered is
/// streamed. The agent may reply before the body is complete: the returned pump sends the rest.
pub(in crate::gateway) async fn send_with_body(
    gateway: &Gateway,
    session: &mut HttpSession,
    admitted: &Admitted,
    request: OutgoingRequest<'_>,
) -> CallResult<(UpstreamReply, BodyPump)> {
    let OutgoingRequest { head: upstream_head, input, deadline, max_body } = request;
    let (body, mut pump) = match input {
        CallInput::Complete(bytes) => (RequestBody::from(bytes), BodyPump::without_body()),
        CallInput::Streamed(first) if first.is_empty() && session.body_state() == BodyState::Empty => {
            (RequestBody::Empty, BodyPump::without_body())
        }
        CallInput::Streamed(first) => {
            let length = IncomingBody::new(&mut *session, deadline).content_length();
            let (sender, body) = RequestBody::channel(length);
            (body, BodyPump::streaming(sender, first, max_body, deadline)?)
        }
        CallInput::Batch(_) => return Err(Fault::new(FaultCode::Internal, "A batch has no single body").into()),
    };
    tokio::pin! {
        let call = send_upstream(gateway, admitted, upstream_head, body);
    }
    loop {
        tokio::select! {
            biased;
            reply = &mut call => return Ok((reply?, pump)),
            result = pump.advance(session) => result?,
        }
    }
}

/// The latency sample of a call to an agent, for adaptive concurrency.
struct LatencyMeasurement<'a> {
    gateway: &'a Gateway,
    admitted: &'a Admitted,
    sample: LatencySample<'a>,
    is_streamed: bool,
}

impl LatencyMeasurement<'_> {
    /// Records the sample. A call with a streamed request body gives no sample, because its latency may be the
    /// caller's; nor does a call that ends while the gateway's own runtime is delayed.
    fn record(self, result: &Result<UpstreamReply>) {
        let outcome = match result {
            Ok(_) if self.is_streamed || self.gateway.limits.is_runtime_delayed() => SampleOutcome::Ignored,
            Ok(reply) => match reply.status {
                StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS => SampleOutcome::Overloaded,
                // An error response may be fast.
                status if status.is_server_error() => SampleOutcome::Ignored,
                _ => SampleOutcome::Responded,
            },
            Err(fault) if !self.is_streamed && is_upstream_timeout(fault) => {
                let timeouts = self.admitted.upstream_set().timeouts();
                let threshold = timeouts.first_byte.min(timeouts.total).mul_f32(0.9);
                // A timeout that the caller shortened (`X-Request-Timeout`) says nothing about the agent.
                if self.sample.elapsed().unwrap_or(Duration::ZERO) >= threshold {
                    SampleOutcome::Overloaded
                } else {
                    SampleOutcome::Ignored
                }
            }
            Err(_) => SampleOutcome::Ignored,
        };
        self.sample.finish(outcome);
    }
}

fn is_upstream_timeout(fault: &Fault) -> bool {
    fault.code() == FaultCode::Timeout && fault.progress() != Some(CallProgress::NotSent)
}
