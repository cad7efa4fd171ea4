//! The trace of one call: its own span, the steps below it, and the decision whether it is recorded, which waits for the
//! caller's authentication where the sampled flags of callers count.

use super::{
    semantic_conventions as names,
    span::{Span, SpanKind, SpanLink, SpanStatus},
    span_scope::{Epoch, SpanScope},
    trace_context::{RemoteContext, SpanId},
    tracer::Tracer,
};
use crate::{
    fault::Fault,
    telemetry::{AccessLogEntry, redact},
};
use http::HeaderMap;
use std::{
    borrow::Cow,
    sync::Arc,
    time::{Instant, SystemTime},
};

/// Where the trace of a call comes from.
#[derive(Clone, Copy, Debug)]
pub enum TraceOrigin<'a> {
    /// The context in the fields of a request, or a new trace.
    Request {
        /// The fields.
        headers: &'a HeaderMap,
        /// Whether a trusted proxy forwards the request.
        from_proxy: bool,
    },
    /// The call is a part of another one.
    Part(&'a SpanScope),
    /// The call goes on in the trace of another one, which it may outlive.
    Background(&'a SpanScope),
    /// The call has a trace of its own, with a link to another one.
    Linked(&'a SpanScope),
}

/// A step of a call that has a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallPhase {
    /// Finding the agent; authentication, authorisation and limits.
    Admission,
    /// Reading and checking the input.
    Contract,
    /// Waiting for a concurrency permit.
    Concurrency,
    /// Writing the response.
    Response,
}

impl CallPhase {
    /// Returns the name of the step's span.
    const fn name(self) -> &'static str {
        match self {
            Self::Admission => "admission",
            Self::Contract => "contract",
            Self::Concurrency => "concurrency",
            Self::Response => "response",
        }
    }
}

/// The host and the scheme that a caller requested.
#[derive(Clone, Debug)]
pub struct RequestedServer {
    /// The value of `Host`.
    pub host: Box<str>,
    /// Whether the caller used TLS.
    pub is_secure: bool,
}

/// What a call's span says beside the access-log entry.
#[derive(Debug)]
pub struct CallRecord<'a> {
    /// The access-log entry.
    pub entry: &'a AccessLogEntry<'a>,
    /// The template of the path.
    pub route: Option<&'static str>,
    /// The caller, as the access log names it.
    pub caller: Cow<'a, str>,
    /// The address of the client, as the access log gives it.
    pub client_address: Option<String>,
}

/// The trace of one call.
#[derive(Debug)]
pub struct CallTrace {
    tracer: Arc<Tracer>,
    scope: SpanScope,
    name: &'static str,
    kind: SpanKind,
    started: Instant,
    parent: Option<SpanId>,
    has_remote_parent: bool,
    link: Option<SpanLink>,
    /// Whether the trace is recorded if the caller turns out to be trusted.
    awaits_caller: bool,
    unix_seconds: u64,
    phase: Option<(CallPhase, Instant)>,
    server: Option<RequestedServer>,
}

impl CallTrace {
    /// Begins the trace of a call. `name` is the name of its span; of a request it is empty, and the span is named after
    /// method and route.
    pub fn begin(tracer: &Arc<Tracer>, origin: TraceOrigin<'_>, span: CallSpan) -> Box<Self> {
        let CallSpan { name, kind, started: (started, time) } = span;
        let epoch = Epoch::new(started, time);
        let (scope, parent, remote) = match origin {
            TraceOrigin::Request { headers, .. } => {
                let context = RemoteContext::from_headers(headers);
                let remote = context.parent;
                (SpanScope::root(&tracer.queue, context, epoch), remote.map(|remote| remote.span_id), remote)
            }
            TraceOrigin::Part(other) | TraceOrigin::Background(other) => (other.child(), Some(other.span_id), None),
            TraceOrigin::Linked(other) => (SpanScope::root(&tracer.queue, other.baggage_only(), epoch), None, None),
        };
        let link = match origin {
            TraceOrigin::Background(other) | TraceOrigin::Linked(other) => Some(other.link()),
            TraceOrigin::Request { .. } | TraceOrigin::Part(_) => None,
        };
        let mut trace = Self {
            tracer: Arc::clone(tracer),
            scope,
            name,
            kind,
            started,
            parent,
            has_remote_parent: remote.is_some(),
            link,
            awaits_caller: false,
            unix_seconds: epoch.unix_seconds(),
            phase: None,
            server: None,
        };
        match origin {
            TraceOrigin::Request { from_proxy, .. } => {
                trace.decide(remote.is_some_and(|remote| remote.is_sampled), from_proxy);
            }
            TraceOrigin::Linked(_) => trace.decide(false, false),
            TraceOrigin::Part(_) | TraceOrigin::Background(_) => {}
        }
        Box::new(trace)
    }

    /// Decides whether a new trace is recorded; `is_flagged` says whether its caller records it.
    fn decide(&mut self, is_flagged: bool, from_proxy: bool) {
        let sampler = &self.tracer.sampler;
        self.scope.is_sampled = sampler.is_in_ratio(self.scope.shared.trace_id);
        if is_flagged && !self.scope.is_sampled {
            if from_proxy && sampler.trusts_proxies() {
                self.scope.is_sampled = sampler.acquire_trusted(self.unix_seconds);
            } else {
                self.awaits_caller = sampler.trusts_some_callers();
            }
        }
    }

    /// Completes the decision, now that the caller is authenticated.
    pub fn record_caller(&mut self, caller: &str) {
        if std::mem::take(&mut self.awaits_caller) && self.tracer.sampler.trusts_caller(caller) {
            self.scope.is_sampled = self.tracer.sampler.acquire_trusted(self.unix_seconds);
        }
    }

    /// Whether the trace is recorded, or may still be.
    pub fn may_be_recorded(&self) -> bool {
        self.scope.is_sampled || self.awaits_caller
    }

    /// Sets the host and the scheme that the caller requested.
    pub fn set_server(&mut self, server: RequestedServer) {
        self.server = Some(server);
    }

    /// Returns the call's span as the parent of others.
    pub fn scope(&self) -> &SpanScope {
        &self.scope
    }

    /// Returns the tracer of the call.
    pub fn tracer(&self) -> &Arc<Tracer> {
        &self.tracer
    }

    /// Ends the current step, and begins another one if there is one.
    pub fn enter_phase(&mut self, phase: Option<CallPhase>) {
        if self.may_be_recorded() {
            self.end_phase(None);
            // The first step begins with the call.
            let started = if phase == Some(CallPhase::Admission) { self.started } else { Instant::now() };
            self.phase = phase.map(|phase| (phase, started));
        }
    }

    /// Ends the current step, in which the call failed.
    pub fn fail_phase(&mut self, fault: &Fault) {
        self.end_phase(Some(fault.code().row().name));
    }

    /// Ends the current step, with an error if the call failed in it.
    fn end_phase(&mut self, error_type: Option<&'static str>) {
        let Some((phase, started)) = self.phase.take() else { return };
        if !self.scope.is_sampled {
            return;
        }
        let scope = self.scope.child();
        let mut span = scope.span(SpanKind::Internal, phase.name().into(), Some(self.scope.span_id), started);
        set_error(&mut span, error_type);
        scope.end(span);
    }

    /// Ends the call, and queues its span.
    pub fn finish(mut self, record: &CallRecord<'_>) {
        if !self.scope.is_sampled {
            return;
        }
        let entry = record.entry;
        let is_aborted = !entry.abort_reason.is_empty();
        let error_type = entry.fault.map(|fault| fault.code().row().name).or(is_aborted.then_some(entry.abort_reason));
        // A fault is a response like any other; a step before it that runs while the call ends has failed with the call.
        let is_responding = self.phase.is_some_and(|(phase, _)| phase == CallPhase::Response);
        self.end_phase(if is_responding { is_aborted.then_some(entry.abort_reason) } else { error_type });
        let name = match (self.name, record.route) {
            ("", Some(route)) => format!("{} {route}", known_method(entry.method)).into(),
            ("", None) => Cow::Borrowed(known_method(entry.method)),
            (name, _) => Cow::Borrowed(name),
        };
        let mut span = self.scope.span(self.kind, name, self.parent, self.started);
        (span.has_remote_parent, span.link) = (self.has_remote_parent, self.link);
        if self.kind == SpanKind::Server {
            self.set_http_attributes(&mut span, record);
        }
        span.set(names::CALLER, record.caller.clone());
        span.set(names::GEN_AI_AGENT_ID, Cow::Borrowed(entry.agent));
        span.set(names::OPERATION, Cow::Borrowed(entry.operation));
        span.set(names::REQUEST_ID, redact(entry.request_id));
        if is_aborted {
            span.set(names::ABORTED, entry.abort_reason);
        }
        // HTTP's conventions: a status below 500 is no error of the server.
        let is_caller_fault = |fault: &Fault| (400..500).contains(&fault.http_status());
        match (error_type, entry.fault) {
            (Some(code), Some(fault)) if is_caller_fault(fault) => span.set(names::ERROR_TYPE, code),
            (error_type, _) => set_error(&mut span, error_type),
        }
        self.scope.end(span);
    }

    fn set_http_attributes(&self, span: &mut Span, record: &CallRecord<'_>) {
        let entry = record.entry;
        span.set(names::HTTP_REQUEST_METHOD, known_method(entry.method));
        span.set(names::URL_PATH, redact(entry.path));
        if let Some(route) = record.route {
            span.set(names::HTTP_ROUTE, route);
        }
        if entry.status > 0 {
            span.set(names::HTTP_RESPONSE_STATUS_CODE, entry.status);
        }
        span.set(names::NETWORK_PROTOCOL_VERSION, entry.protocol.strip_prefix("HTTP/").unwrap_or_default());
        span.set(names::USER_AGENT_ORIGINAL, redact(entry.user_agent));
        if let Some(address) = &record.client_address {
            span.set(names::CLIENT_ADDRESS, address.clone());
        }
        if let Some(RequestedServer { host, is_secure }) = &self.server {
            span.set(names::URL_SCHEME, if *is_secure { "https" } else { "http" });
            let authority = host.parse::<http::uri::Authority>().ok();
            if let Some(authority) = &authority {
                span.set(names::SERVER_ADDRESS, redact(authority.host()));
            }
            let default_port = if *is_secure { 443 } else { 80 };
            span.set(names::SERVER_PORT, authority.and_then(|host| host.port_u16()).unwrap_or(default_port));
        }
    }
}

/// The span of a call.
#[derive(Clone, Copy, Debug)]
pub struct CallSpan {
    /// The name; empty for a request, whose span is named after method and route.
    pub name: &'static str,
    /// What the span describes.
    pub kind: SpanKind,
    /// When the call began, on both clocks.
    pub started: (Instant, SystemTime),
}

fn set_error(span: &mut Span, error_type: Option<&'static str>) {
    if let Some(error_type) = error_type {
        span.set(names::ERROR_TYPE, error_type);
        span.status = SpanStatus::Error;
    }
}

/// Returns a method of the HTTP registry, or `_OTHER`: callers must not create names of spans.
fn known_method(method: &str) -> &'static str {
    match method {
        "GET" => "GET",
        "HEAD" => "HEAD",
        "POST" => "POST",
        "PUT" => "PUT",
        "DELETE" => "DELETE",
        "OPTIONS" => "OPTIONS",
        "PATCH" => "PATCH",
        _ => "_OTHER",
    }
}
