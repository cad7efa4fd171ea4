//! A call from its first byte to its access-log entry. Dropping a `Call` writes the entry, so every call is counted and
//! logged exactly once however it ends: answered, refused, panicked, cancelled, or abandoned by its caller.

use super::{
    admission::{AdmissionRecorder, rate_limit_account},
    call_id::{is_safe_request_id, new_call_id, request_id_from},
    gateway_state::Gateway,
    path_router,
    request_summary::RequestSummary,
    route::Route,
    route_summary::RouteSummary,
};
pub(super) use super::{
    call_error::{CallError, CallResult, catch_panic},
    call_stats::CallStats,
};
use crate::{
    agent::AgentId,
    auth::{AccessRule, Caller},
    explain::{DeadlineSource, DecidingRule, Decision, DecisionStep, DecisionTarget, RefusedCall},
    fault::{self, Fault},
    http_server::{HttpConnection, RefusedHead},
    limit::RateLimitKey,
    telemetry::{
        AccessLogEntry, AgentMetrics, CallOutcome, CallerClass, GaugeGuard, ListenerMetrics, ResponseProtocol,
        ShadowDenials,
    },
    trace::{CallPhase, CallRecord, CallSpan, CallTrace, RequestedServer, SpanKind, SpanScope, TraceOrigin, Tracer},
    values::ClientKey,
};
use bytes::Bytes;
use http::{HeaderValue, Version, request};
use serde_json::Value;
use std::{
    net::IpAddr,
    sync::{Arc, OnceLock},
    time::{Duration, Instant, SystemTime},
};

/// The state of a call, and how it ended.
#[derive(Debug)]
pub(super) enum CallState {
    /// No response has been written yet. A call that is dropped in this state was cancelled or panicked.
    Pending,
    /// Answered with this status.
    Answered(u16),
    /// Refused or failed before a response was written.
    Refused(Fault),
    /// Failed after the head with this status was written.
    FailedMidResponse(u16, Fault),
    /// The caller left; the status is 0 if no head was written.
    CallerGone(u16),
}

/// A call, and its access-log entry.
pub(super) struct Call {
    gateway: Arc<Gateway>,
    started_at: (Instant, SystemTime),
    id: String,
    /// The call id as a header value, for the agent and for the caller.
    id_header: Option<HeaderValue>,
    peer: Option<IpAddr>,
    /// The listener of a request; `None` for calls of the gateway.
    listener: Option<Arc<ListenerMetrics>>,
    protocol: ResponseProtocol,
    request: Option<RequestSummary>,
    route: Option<RouteSummary>,
    caller: Option<Arc<Caller>>,
    is_directory_request: bool,
    /// The input, where it was buffered.
    pub(super) buffered_input: OnceLock<Bytes>,
    /// The call, or the call that it is a subrequest of, passed load shedding and is not checked again.
    pub(super) exempt_from_shedding: bool,
    /// Another `Call` continues this one and writes its access-log entry.
    handed_over: bool,
    /// The origin that may read the response, inner `None` for no origin. Outer `None`: CORS is not configured.
    pub(super) cors_origin: Option<Option<HeaderValue>>,
    pub(super) state: CallState,
    pub(super) stats: CallStats,
    /// The failure that the agent reports in a response that passes as it is.
    agent_error: Option<Fault>,
    /// Whether the head of a refused request is one of JSON-RPC.
    pub(super) expects_json_rpc: bool,
    /// The trace of the call, if there is a section `tracing`.
    trace: Option<Box<CallTrace>>,
    /// The step that decides now, and what refused the caller at the agent.
    step: DecisionStep,
    access_refusal: Option<AccessRule>,
    /// The agent at which the caller was refused.
    refusing_agent: Option<AgentId>,
    deadline_source: DeadlineSource,
    /// Whether the response is an event stream to which an event may be appended at this moment.
    pub(super) can_append_event: bool,
    _in_flight: GaugeGuard,
}

impl Call {
    /// Starts the record of a call (step 1) and counts the call as in flight.
    pub(super) fn start(gateway: &Arc<Gateway>, peer: Option<IpAddr>) -> Self {
        Self {
            _in_flight: gateway.metrics.track_call(),
            gateway: Arc::clone(gateway),
            started_at: (Instant::now(), SystemTime::now()),
            id: String::new(),
            id_header: None,
            peer,
            listener: None,
            protocol: ResponseProtocol::Http11,
            request: None,
            route: None,
            caller: None,
            is_directory_request: false,
            buffered_input: OnceLock::new(),
            exempt_from_shedding: false,
            handed_over: false,
            cors_origin: None,
            state: CallState::Pending,
            stats: CallStats::default(),
            agent_error: None,
            expects_json_rpc: false,
            trace: None,
            step: DecisionStep::RequestHead,
            access_refusal: None,
            refusing_agent: None,
            deadline_source: DeadlineSource::Agent,
            can_append_event: false,
        }
    }

    /// Records over which connection the request came.
    pub(super) fn record_connection(&mut self, connection: &HttpConnection, is_http2: bool) {
        self.listener = Some(Arc::clone(&connection.metrics));
        if is_http2 {
            self.protocol = ResponseProtocol::Http2;
        }
    }

    /// Records that the call is sent to the agent now, and returns the time.
    pub(super) fn record_sent(&mut self) -> Instant {
        let now = Instant::now();
        self.stats.gateway_duration = Some(now - self.started_at.0);
        now
    }

    /// Returns whether the caller was refused at the agent that it named, or the agent does not exist.
    pub(super) fn is_access_refused(&self) -> bool {
        self.access_refusal.is_some()
    }

    /// Records that the agent has sent what the gateway waited for, or has failed.
    pub(super) fn record_reply(&mut self) {
        self.stats.replied_at = Some(Instant::now());
    }

    /// Records that the head of the response is written now.
    pub(super) fn record_response_head(&mut self) {
        if let (Some(replied_at), Some(duration)) = (self.stats.replied_at.take(), &mut self.stats.gateway_duration) {
            *duration += replied_at.elapsed();
        }
    }

    /// Returns the metrics of the agent, or those of requests without one.
    pub(super) fn agent_metrics(&self) -> &Arc<AgentMetrics> {
        self.route.as_ref().map_or_else(|| self.gateway.metrics.for_unknown_agent(), |summary| &summary.route.metrics)
    }

    /// Records what the access log needs of the request head, and sets the call id.
    pub(super) fn record_request_head(&mut self, head: &request::Parts) {
        if head.version == Version::HTTP_10 {
            self.protocol = ResponseProtocol::Http10;
        }
        self.set_id(request_id_from(&head.headers));
        // The access log names the gateway's own trace, if there is one.
        self.request = Some(RequestSummary::of_head(head, self.trace.is_none()));
    }

    /// Records what could be read of a head that was refused, and sets the call id: the caller's, where it is safe.
    pub(super) fn record_refused_head(&mut self, head: RefusedHead) {
        let RefusedHead { target, request_id } = head;
        self.set_id(request_id.filter(|id| is_safe_request_id(id)).map_or_else(new_call_id, String::from));
        self.request = target.map(|target| RequestSummary::of_refused(target, self.protocol));
    }

    /// Marks the call as a subrequest of the call `id`; without an `id` it gets a new one.
    pub(super) fn set_subrequest(&mut self, id: Option<&str>, agent: &str) {
        self.set_id(id.map_or_else(new_call_id, str::to_owned));
        self.request = Some(RequestSummary::of_subrequest(agent));
    }

    /// Returns a record for the background work of this call, which outlives its response.
    pub(super) fn background_record(&self) -> Self {
        let mut record = Self::start(&self.gateway, self.peer);
        let agent = self.route.as_ref().map_or("", |summary| summary.route.agent.id.as_str());
        record.set_subrequest(Some(&self.id), agent);
        record.step = DecisionStep::Agent;
        record.deadline_source = self.deadline_source;
        record.caller.clone_from(&self.caller);
        record.route.clone_from(&self.route);
        if let Some(trace) = &self.trace {
            record.start_trace(trace.tracer(), TraceOrigin::Background(trace.scope()), "task", SpanKind::Internal);
            record.enter_phase(None);
        }
        record
    }

    /// Begins the trace of the call, and its first step. A request's span has no name of its own.
    pub(super) fn start_trace(
        &mut self,
        tracer: &Arc<Tracer>,
        origin: TraceOrigin<'_>,
        name: &'static str,
        kind: SpanKind,
    ) {
        let mut trace = CallTrace::begin(tracer, origin, CallSpan { name, kind, started: self.started_at });
        trace.enter_phase(Some(CallPhase::Admission));
        self.trace = Some(trace);
    }

    /// Ends the current step of the trace, in which the call failed.
    pub(super) fn fail_phase(&mut self, fault: &Fault) {
        if let Some(trace) = &mut self.trace {
            trace.fail_phase(fault);
        }
    }

    /// Adds the id of the trace to the fault, if the trace is recorded.
    pub(super) fn with_trace_id(&self, fault: Fault) -> Fault {
        let Some(trace) = self.trace.as_ref().filter(|trace| trace.scope().is_sampled()) else { return fault };
        let id = trace.scope().trace_id_hex();
        fault.with_member("trace_id", String::from_utf8_lossy(&id).into())
    }

    /// Sets the host that the caller requested, if the trace may be recorded.
    pub(super) fn set_traced_server(&mut self, server: impl FnOnce() -> RequestedServer) {
        if let Some(trace) = self.trace.as_mut().filter(|trace| trace.may_be_recorded()) {
            trace.set_server(server());
        }
    }

    /// Returns the call id, which the access log and the caller receive.
    pub(super) fn id(&self) -> &str {
        &self.id
    }

    /// Returns the call id as a header value.
    pub(super) fn id_header(&self) -> Option<HeaderValue> {
        self.id_header.clone()
    }

    fn set_id(&mut self, id: String) {
        self.id_header = HeaderValue::from_str(&id).ok();
        self.id = id;
    }

    /// Returns the id of the JSON-RPC request in the input, if the input was buffered and is one. The id is null if only
    /// the head says that the request is one of JSON-RPC.
    pub(super) fn json_rpc_id(&self) -> Option<Value> {
        let id = self.buffered_input.get().and_then(|body| fault::json_rpc_request_id(body));
        id.or_else(|| self.expects_json_rpc.then_some(Value::Null))
    }

    /// Records the failure that the agent reports in a response that passes as it is. The first one counts.
    pub(super) fn record_agent_error(&mut self, fault: Option<Fault>) {
        if self.agent_error.is_none() {
            self.agent_error = fault;
        }
    }

    /// Returns whether a failure that the agent reports has been recorded.
    pub(super) fn has_agent_error(&self) -> bool {
        self.agent_error.is_some()
    }

    /// Returns the caller, once authenticated.
    pub(super) fn caller(&self) -> Option<&Caller> {
        self.caller.as_deref()
    }

    /// Marks the call as a request that the gateway answers itself, logged as `directory`.
    pub(super) fn mark_directory_request(&mut self) {
        self.is_directory_request = true;
    }

    /// Moves the call out of its request, to continue after the 101 response; the call left behind writes no entry.
    pub(super) fn hand_over(&mut self) -> Self {
        let mut remainder = Self::start(&self.gateway, self.peer);
        remainder.handed_over = true;
        remainder.state = CallState::Answered(101);
        self.enter_phase(None);
        std::mem::replace(self, remainder)
    }

    /// Records the route of the agent's API, by its pattern.
    pub(super) fn record_api_route(&mut self, pattern: &Arc<str>) {
        if let Some(summary) = &mut self.route {
            summary.api_route = Some(Arc::clone(pattern));
        }
    }

    /// Keeps what refused the call, for `gatepost explain --request`.
    #[cold]
    fn remember_refusal(&mut self, fault: Fault, duration: Duration) {
        let target = self.request.take().map(|head| DecisionTarget { method: head.method, path: head.path });
        let (route, operation) = match self.route.take() {
            Some(RouteSummary { route, operation, .. }) => (Some(route), operation),
            None => (None, None),
        };
        let account = self.caller.as_deref().zip(self.peer).map(|(caller, peer)| rate_limit_account(caller, peer));
        let account = account.or_else(|| self.peer.map(RateLimitKey::for_address));
        let (code, status) = (fault.code(), fault.http_status());
        let named = route.as_ref().and_then(|route| route.refusing_operation(operation));
        let refused = RefusedCall {
            step: self.step,
            fault: &fault,
            access: self.access_refusal,
            operation: named,
            deadline: self.deadline_source,
        };
        let rule = DecidingRule::of_refusal(&refused);
        let (message, detail) = fault.into_log_texts();
        let decision = Decision {
            id: std::mem::take(&mut self.id),
            at: self.started_at.1,
            duration,
            target,
            agent: route.as_ref().map(|route| route.agent.id.clone()),
            operation: route.and_then(|route| Some(Arc::clone(&route.operations.get(operation?)?.name))),
            caller: self.caller.as_ref().map(|caller| Arc::clone(&caller.id)),
            tier: self.caller.as_ref().and_then(|caller| caller.tier.clone()),
            code,
            status,
            step: self.access_refusal.map_or(self.step, DecisionStep::of_access),
            rule,
            refusing_agent: self.refusing_agent.take(),
            rules: None,
            message,
            detail,
        };
        let client = account.map_or(ClientKey::new(0), |account| account.client());
        self.gateway.recent_decisions.record(client, decision);
    }

    fn caller_class(&self) -> CallerClass {
        match &self.caller {
            Some(caller) => self.gateway.metrics.caller_class(caller.method, caller.tier.as_deref()),
            None => CallerClass::NONE,
        }
    }
}

impl AdmissionRecorder for Call {
    fn call_id(&self) -> &str {
        &self.id
    }

    fn arrived_at(&self) -> Instant {
        self.started_at.0
    }

    fn is_exempt_from_shedding(&self) -> bool {
        self.exempt_from_shedding
    }

    fn buffered_input(&self) -> &OnceLock<Bytes> {
        &self.buffered_input
    }

    fn record_caller(&mut self, caller: &Arc<Caller>) {
        if let Some(trace) = self.trace.as_mut().filter(|_| !caller.is_anonymous()) {
            trace.record_caller(&caller.id);
        }
        self.caller = Some(Arc::clone(caller));
    }

    fn record_route(&mut self, route: &Arc<Route>) {
        self.route = Some(RouteSummary { route: Arc::clone(route), operation: None, api_route: None });
    }

    fn record_operation(&mut self, operation: usize) {
        if let Some(summary) = &mut self.route {
            summary.operation = Some(operation);
        }
    }

    fn begin_step(&mut self, step: DecisionStep) {
        self.step = step;
    }

    fn record_access_refusal(&mut self, rule: AccessRule, agent: &str) {
        self.access_refusal = Some(rule);
        self.refusing_agent = agent.parse().ok();
    }

    fn record_deadline(&mut self, source: DeadlineSource) {
        self.deadline_source = source;
    }

    fn record_shadow_denials(&mut self, denials: ShadowDenials) {
        self.stats.shadow_denials = self.stats.shadow_denials.union(denials);
    }

    fn trace_scope(&self) -> Option<&SpanScope> {
        self.trace.as_ref().map(|trace| trace.scope())
    }

    fn enter_phase(&mut self, phase: Option<CallPhase>) {
        if let Some(trace) = &mut self.trace {
            trace.enter_phase(phase);
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if self.handed_over {
            return;
        }
        if matches!(self.state, CallState::Pending) && !std::thread::panicking() && self.gateway.is_drain_over() {
            self.state = CallState::Refused(self.gateway.cut_off_call());
        }
        let trace = self.trace.take();
        let trace_id = trace.as_ref().map(|trace| trace.scope().trace_id_hex());
        let (status, fault, abort_reason) = match &self.state {
            CallState::Pending if std::thread::panicking() => (0, None, "panicked"),
            CallState::Pending => (0, None, "cancelled"),
            CallState::Answered(status) => (*status, self.agent_error.as_ref(), ""),
            CallState::Refused(fault) => (fault.http_status(), Some(fault), ""),
            CallState::FailedMidResponse(status, fault) => (*status, Some(fault), "broken off"),
            CallState::CallerGone(status) => (*status, None, "caller gone"),
        };
        let total = self.started_at.0.elapsed();
        let operation = self.route.as_ref().map_or(self.is_directory_request.then_some(0), |summary| summary.operation);
        let metrics = self.agent_metrics();
        let outcome = CallOutcome {
            operation,
            caller_class: self.caller_class(),
            code: fault.map(Fault::code),
            blame: fault.map(Fault::blame),
            status,
            duration: total,
            upstream_duration: self.stats.upstream_duration,
            gateway_duration: self.stats.gateway_duration,
            bytes_in: self.stats.bytes_in,
            bytes_out: self.stats.bytes_out,
            trace_id: trace_id.filter(|_| trace.as_ref().is_some_and(|trace| trace.scope().is_sampled())),
        };
        if let Some(listener) = &self.listener {
            listener.record_response(if status == 101 { ResponseProtocol::WebSocket } else { self.protocol }, status);
        }
        match self.state {
            CallState::Pending | CallState::CallerGone(_) => metrics.record_aborted(&outcome),
            _ => metrics.record(&outcome),
        }
        let mut entry = AccessLogEntry::new(self.started_at.1, &self.id);
        if let Some(request) = &self.request {
            entry.method = request.method.as_str();
            entry.path = &request.path;
            entry.query_bytes = request.query_bytes;
            entry.protocol = request.protocol_name();
            entry.user_agent = &request.user_agent;
            entry.trace_id = &request.trace_id;
        }
        if self.is_directory_request {
            entry.operation = "directory";
        }
        if let Some(summary) = &self.route {
            (entry.agent, entry.operation) = (summary.route.agent.id.as_str(), summary.operation_name());
        }
        if let Some(caller) = &self.caller {
            entry.caller = &caller.id;
            entry.credential = caller.method.label();
        }
        (entry.peer, entry.status, entry.fault, entry.abort_reason) = (self.peer, status, fault, abort_reason);
        (entry.bytes_in, entry.bytes_out) = (self.stats.bytes_in, self.stats.bytes_out);
        (entry.duration, entry.upstream_duration, entry.attempts) =
            (total, self.stats.upstream_duration, self.stats.attempted());
        if let Some(trace_id) = &trace_id {
            entry.trace_id = std::str::from_utf8(trace_id).unwrap_or_default();
        }
        entry.shadow_denials = self.stats.shadow_denials;
        self.gateway.access_log.write(&entry);
        if let Some(trace) = trace.filter(|trace| trace.scope().is_sampled()) {
            let access_log = &self.gateway.access_log;
            let record = CallRecord {
                entry: &entry,
                route: path_router::route_template(entry.path),
                caller: access_log.logged_caller(entry.caller),
                client_address: entry.peer.and_then(|peer| access_log.logged_address(peer)),
            };
            trace.finish(&record);
        }
        if let CallState::Refused(_) | CallState::FailedMidResponse(..) = &self.state
            && self.gateway.recent_decisions.is_enabled()
            && let CallState::Refused(fault) | CallState::FailedMidResponse(_, fault) =
                std::mem::replace(&mut self.state, CallState::Pending)
        {
            self.remember_refusal(fault, total);
        }
    }
}
