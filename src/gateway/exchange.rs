//! A request and its response. Every complete response is written here: those of agents, those of the gateway itself,
//! and faults, which all go through one function and one table; with the header fields that the gateway adds.

use super::{
    admission::{
        AdmissionPipeline, AdmissionRecorder as _, Admitted, AgentAuthorization, BodyAccount, BodyBound, IncomingBody,
        LocalAccess, LocalCaller, rate_limit_account,
    },
    call::{Call, CallError, CallResult, CallState},
    caller_connection::CallerConnection,
    content_negotiation, cors,
    fault_page::{self, FaultFormat},
    gateway_state::{ConfigSnapshot, Gateway},
    header_names::REQUEST_ID,
    openai::{SHOULD_RETRY, should_retry, to_openai_error},
    path_router,
    refused_json_rpc::record_refused_json_rpc,
    response::{CompleteReply, forbid_shared_caching, restrict_documents},
    route::Route,
    upstream::BodyPump,
};
use crate::{
    directory::DirectoryResponse,
    fault::{CallProgress, Fault},
    http_server::{BodyState, HttpSession, ResponseHead, ServeOutcome, WriteFailed},
    limit::{MemoryReservation, RateLimitKey, RateLimitStatus},
    trace::CallPhase,
    values::ClientKey,
};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

/// A request that is being answered: its session, its record, and what is in force for it.
pub(super) struct Exchange<'a> {
    pub(super) gateway: &'a Arc<Gateway>,
    pub(super) config: &'a Arc<ConfigSnapshot>,
    pub(super) connection: &'a Arc<CallerConnection>,
    pub(super) session: &'a mut HttpSession,
    pub(super) call: &'a mut Call,
}

impl<'a> Exchange<'a> {
    /// Returns the admission of calls in this configuration.
    pub(super) fn admission(&self) -> AdmissionPipeline<'a> {
        AdmissionPipeline { gateway: self.gateway, config: self.config }
    }

    /// Returns the authorisation of callers in this configuration.
    pub(super) fn authorization(&self) -> AgentAuthorization<'a> {
        AgentAuthorization { gateway: self.gateway, config: self.config }
    }

    /// Returns the base URL: the configured one, else the one under which this caller reached the gateway.
    pub(super) fn base_url(&self) -> String {
        match self.config.directory.base_url() {
            Some(configured) => configured.to_owned(),
            None => self.requested_url(),
        }
    }

    /// Returns the URL of the host that this caller requested.
    pub(super) fn requested_url(&self) -> String {
        let scheme = if self.connection.is_secure() { "https" } else { "http" };
        let host = self.connection.requested_host(self.session.head()).unwrap_or("localhost");
        format!("{scheme}://{host}")
    }

    /// Returns the `Forwarded` header of the request.
    pub(super) fn forwarded_header(&self) -> HeaderValue {
        self.connection.forwarded_header(self.connection.requested_host(self.session.head()))
    }

    /// Authenticates and limits the caller of a request that the gateway answers itself.
    ///
    /// # Errors
    /// The fault with which the request is refused.
    pub(super) async fn authenticate_and_limit(&mut self, access: LocalAccess) -> Result<LocalCaller, Fault> {
        let context = self.connection.caller_context(&self.session.head().headers);
        self.admission().authenticate_and_limit(self.call, context, access).await
    }

    /// Returns the client whose shares the request counts against: the caller, or the address of a request whose caller
    /// is not authenticated.
    pub(super) fn client(&self) -> ClientKey {
        client_of(self.call, self.connection)
    }

    /// Reads a JSON body that is meant for the gateway itself.
    ///
    /// # Errors
    /// 400, 408, 413 or 415.
    pub(super) async fn read_own_body(&mut self, bound: BodyBound, max_duration: Duration) -> Result<Bytes, Fault> {
        let account = BodyAccount { limits: &self.gateway.limits, client: self.client() };
        let mut incoming = IncomingBody::new(&mut *self.session, self.call.arrived_at() + max_duration);
        content_negotiation::check_json_body(incoming.headers())?;
        incoming.read_complete(bound, account).await
    }

    /// Reads the rest of a body of which `first` has been read, within `bound` and before `deadline`.
    ///
    /// # Errors
    /// 400, 408 or 413.
    pub(super) async fn read_rest(
        &mut self,
        first: Bytes,
        bound: BodyBound,
        deadline: Instant,
    ) -> Result<Bytes, Fault> {
        if first.is_empty() && self.session.body_state() == BodyState::Empty {
            return Ok(first);
        }
        let account = BodyAccount { limits: &self.gateway.limits, client: self.client() };
        let mut incoming = IncomingBody::new(&mut *self.session, deadline);
        if !first.is_empty() {
            incoming.unread(first);
        }
        incoming.read_complete(bound, account).await
    }

    /// Waits for `work` while watching the caller; ends early if the caller leaves.
    pub(super) async fn wait_unless_caller_leaves<T>(&mut self, work: impl Future<Output = T>) -> CallResult<T> {
        tokio::pin!(work);
        let mut pump = BodyPump::without_body();
        loop {
            tokio::select! {
                biased;
                output = &mut work => return Ok(output),
                result = pump.advance(self.session) => result?,
            }
        }
    }

    /// Writes an agent's complete reply; its headers are those that callers may receive.
    pub(super) async fn respond_with_reply(
        &mut self,
        reply: CompleteReply,
        agent: AgentHeaders<'_>,
    ) -> CallResult<ServeOutcome> {
        let CompleteReply { status, mut headers, body } = reply;
        let length = (status != StatusCode::NO_CONTENT).then_some(body.len());
        agent.add_to(&mut headers, self.call, length);
        self.respond(ResponseHead { status, headers }, body).await
    }

    /// Writes a response that the gateway produced itself.
    pub(super) async fn respond_locally(
        &mut self,
        response: DirectoryResponse,
        rate_limit_status: Option<&RateLimitStatus>,
    ) -> CallResult<ServeOutcome> {
        let DirectoryResponse { status, mut headers, body } = response;
        // RFC 9110 §8.6, §15.4.5: 204 and 304 have no content, and Content-Length would describe another response.
        if !matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED) {
            headers.insert(header::CONTENT_LENGTH, HeaderValue::from(body.len()));
        }
        add_call_headers(&mut headers, self.call, rate_limit_status);
        self.respond(ResponseHead { status, headers }, body).await
    }

    /// Writes a page of the gateway. Its policy stands in its header; the sandbox for documents of agents would keep its
    /// forms from being sent.
    pub(super) async fn respond_with_page(
        &mut self,
        response: DirectoryResponse,
        rate_limit_status: Option<&RateLimitStatus>,
    ) -> CallResult<ServeOutcome> {
        let DirectoryResponse { status, mut headers, body } = response;
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from(body.len()));
        add_own_headers(&mut headers, self.call, rate_limit_status);
        self.respond(ResponseHead { status, headers }, body).await
    }

    /// Writes a complete response, and records how the call ended. A long body counts against the client's share of
    /// the memory for answers until it is written.
    pub(super) async fn respond(&mut self, head: ResponseHead, body: Bytes) -> CallResult<ServeOutcome> {
        let status = head.status.as_u16();
        let reservation = self.gateway.limits.reserve_answer(|| self.client(), body.len(), self.session.size());
        let reservation = reservation.map_err(|fault| {
            if self.call.stats.is_sent() { fault.with_progress(CallProgress::PossiblySent) } else { fault }
        })?;
        Ok(match self.write_all(head, body, reservation).await {
            Some(length) => {
                self.call.stats.bytes_out += length;
                self.call.state = CallState::Answered(status);
                ServeOutcome::Complete
            }
            None => {
                self.call.state = CallState::CallerGone(status);
                ServeOutcome::Aborted
            }
        })
    }

    /// Writes a fault: the only place where a fault becomes a response.
    pub(super) async fn respond_with_fault(&mut self, fault: Fault, format: impl Into<FaultFormat>) -> ServeOutcome {
        let format = format.into();
        self.call.fail_phase(&fault);
        let fault = self.call.with_trace_id(fault);
        let (mut head, mut body) = fault_response(self.call, &fault, format);
        if format.is_page && self.call.json_rpc_id().is_none() {
            body = fault_page::replace_by_page(&mut head, &fault, self.call.id());
        }
        let written = self.write_all(head, body, None).await;
        self.call.stats.bytes_out += written.unwrap_or_default();
        self.call.state = CallState::Refused(fault);
        if written.is_some() { ServeOutcome::Complete } else { ServeOutcome::Aborted }
    }

    /// Writes the head of a streamed response, whose parts are sent at once.
    ///
    /// # Errors
    /// The caller is gone, which is recorded.
    pub(super) async fn start_stream(&mut self, head: ResponseHead) -> Result<(), WriteFailed> {
        let status = head.status.as_u16();
        self.call.record_response_head();
        self.call.enter_phase(Some(CallPhase::Response));
        self.session.disable_write_buffering();
        let written = self.session.write_head(head).await;
        if written.is_err() {
            self.call.state = CallState::CallerGone(status);
        }
        written
    }

    /// Ends the exchange of a request whose handling ended early.
    pub(super) async fn end_early(&mut self, error: CallError) -> ServeOutcome {
        match (error, self.session.written_status()) {
            (CallError::CallerGone, _) => {
                self.call.state = CallState::CallerGone(0);
                ServeOutcome::Aborted
            }
            (CallError::Fault(fault), Some(status)) => self.end_response(status, fault).await,
            (CallError::Fault(fault), None) => {
                record_refused_json_rpc(self.session, self.call).await;
                let headers = &self.session.head().headers;
                let object = content_negotiation::negotiate_error_format(headers, self.config.error_format);
                let is_page = fault_page::is_requested(self.config, self.session.head());
                let head = self.session.head();
                // At the host of an agent's own API there is nothing else.
                let is_openai = path_router::is_openai_path(head.uri.path())
                    && self.config.api_hosts.agent_at(|| self.connection.requested_host(head)).is_none();
                let format = FaultFormat { object, is_page, is_openai };
                self.respond_with_fault(fault, format).await
            }
        }
    }

    /// Ends a response that has begun: an event stream with an error event, any other by aborting the connection, so that
    /// the client does not take a truncated body for a complete one.
    pub(super) async fn end_response(&mut self, status: u16, fault: Fault) -> ServeOutcome {
        let mut outcome = ServeOutcome::Aborted;
        // Taken, because a cut-off during this write must not append a second event.
        if std::mem::take(&mut self.call.can_append_event) {
            let event = Bytes::from(fault.to_event(self.call.id(), self.call.json_rpc_id().as_ref()));
            self.call.stats.bytes_out += event.len() as u64;
            if self.session.write_body(event, true).await.is_ok() {
                outcome = ServeOutcome::Complete;
            }
        }
        self.call.state = CallState::FailedMidResponse(status, fault);
        outcome
    }

    /// Writes head and body; what is not counted yet is counted if the caller does not read it at once. Returns the bytes of
    /// the body, or `None` if the caller is gone.
    async fn write_all(
        &mut self,
        head: ResponseHead,
        body: Bytes,
        reservation: Option<MemoryReservation>,
    ) -> Option<u64> {
        self.call.record_response_head();
        self.call.enter_phase(Some(CallPhase::Response));
        let Self { gateway, session, connection, call, .. } = self;
        session.prepare_keep_alive(connection).await;
        // Pingora's HTTP/1 writer omits the body of a HEAD response; its HTTP/2 writer does not.
        let is_head = session.is_http2() && session.head().method == Method::HEAD;
        let body = if is_head { Bytes::new() } else { body };
        let length = body.len() as u64;
        session.write_head(head).await.ok()?;
        let size = session.size() + body.len();
        let count = || gateway.limits.answers().hold_unread(client_of(call, connection), size);
        let hold = || reservation.map_or_else(count, Ok);
        session.write_whole_body(body, hold).await.ok()?;
        Some(length)
    }
}

fn client_of(call: &Call, connection: &CallerConnection) -> ClientKey {
    let address = connection.client_address();
    let caller = call.caller();
    caller.map_or_else(|| RateLimitKey::for_address(address), |caller| rate_limit_account(caller, address)).client()
}

fn fault_response(call: &Call, fault: &Fault, format: FaultFormat) -> (ResponseHead, Bytes) {
    let (media, body) = match call.json_rpc_id() {
        _ if format.is_openai => ("application/json", to_openai_error(fault, call.id()).to_string().into_bytes()),
        Some(id) => ("application/json", fault.to_json_rpc_response(&id, call.id()).to_string().into_bytes()),
        None => (format.object.media_type(), fault.to_body(format.object, call.id())),
    };
    let body = Bytes::from(body);
    let mut headers = HeaderMap::with_capacity(8);
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media));
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(body.len()));
    headers.insert(header::VARY, HeaderValue::from_static("Accept"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if let Ok(id) = HeaderValue::from_str(call.id()) {
        headers.insert(REQUEST_ID, id);
    }
    if let Some(secs) = fault.retry_after_secs() {
        headers.insert(header::RETRY_AFTER, HeaderValue::from(secs));
    }
    if format.is_openai {
        let value = if should_retry(fault, call.stats.is_sent()) { "true" } else { "false" };
        headers.insert(SHOULD_RETRY, HeaderValue::from_static(value));
    }
    for (name, value) in fault.headers() {
        append_if_valid(&mut headers, name, value);
    }
    if let Some(origin) = &call.cors_origin {
        cors::set_cors_headers(&mut headers, origin.as_ref());
    }
    let status = StatusCode::from_u16(fault.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    (ResponseHead { status, headers }, body)
}

const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");

/// The headers that depend on the agent that was called.
#[derive(Clone, Copy)]
pub(in crate::gateway) struct AgentHeaders<'a> {
    pub(in crate::gateway) route: &'a Route,
    pub(in crate::gateway) rate_limit_status: Option<&'a RateLimitStatus>,
}

impl<'a> AgentHeaders<'a> {
    /// Returns those of an admitted call.
    pub(in crate::gateway) fn of(admitted: &'a Admitted) -> Self {
        Self { route: admitted.agent_route(), rate_limit_status: admitted.rate_limit_status() }
    }
    /// Adds the headers of the call, the length, and the headers of the agent to an agent's response.
    pub(in crate::gateway) fn add_to(&self, headers: &mut HeaderMap, call: &Call, length: Option<usize>) {
        add_call_headers(headers, call, self.rate_limit_status);
        if call.caller().is_some_and(|caller| !caller.is_anonymous()) {
            forbid_shared_caching(headers);
        }
        if let Some(length) = length {
            headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
        }
        for (name, value) in &self.route.response_headers {
            headers.append(name, value.clone());
        }
    }
}

/// Sets the call id, the rate limit headers, the CORS headers, and what restricts browsers.
pub(in crate::gateway) fn add_call_headers(
    headers: &mut HeaderMap,
    call: &Call,
    rate_limit_status: Option<&RateLimitStatus>,
) {
    restrict_documents(headers);
    add_own_headers(headers, call, rate_limit_status);
}

/// Sets the call id, the rate limit headers and the CORS headers.
fn add_own_headers(headers: &mut HeaderMap, call: &Call, rate_limit_status: Option<&RateLimitStatus>) {
    if let Some(id) = call.id_header() {
        headers.insert(REQUEST_ID, id);
    }
    if let Some(rate_limit_status) = rate_limit_status {
        let (status, policy) = rate_limit_status.header_values();
        insert_if_valid(headers, RATELIMIT, status);
        insert_if_valid(headers, RATELIMIT_POLICY, policy);
    }
    if let Some(origin) = &call.cors_origin {
        cors::set_cors_headers(headers, origin.as_ref());
    }
}

fn insert_if_valid(headers: &mut HeaderMap, name: HeaderName, value: String) {
    if let Ok(value) = HeaderValue::try_from(value) {
        headers.insert(name, value);
    }
}

/// Appends a header; an invalid one is left out.
pub(in crate::gateway) fn append_if_valid(headers: &mut HeaderMap, name: impl TryInto<HeaderName>, value: &str) {
    if let (Ok(name), Ok(value)) = (name.try_into(), HeaderValue::from_str(value)) {
        headers.append(name, value);
    }
}
