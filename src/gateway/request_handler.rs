//! Handles one HTTP request: the steps of the crate's documentation, in order.

use super::{
    CallError, ConfigSnapshot, Gateway,
    admission::{CallerContext, PermittedCall},
    background_call::BackgroundRequest,
    batch::BatchCall,
    call::{Call, CallState},
    content_negotiation,
    http_server::{self, CallerConnection, HttpService, ServeOutcome},
    incoming_body::{BodyTimeout, IncomingBody},
    input_validation::{self, CallInput, InputReader},
    path_router::{self, InvokeTarget, RequestKind},
    request_head::{call_deadline, gateway_and_query_headers, input_from_query, session_hash_from_query},
    requested_version,
    responder::Responder,
    response_writer,
    route::Route,
    upstream_request::{OutgoingRequest, UpstreamHead, set_json_headers},
    websocket,
};
use crate::{
    fault::{Fault, FaultCode},
    idempotency,
    transport::HeaderMutations,
};
use futures_util::FutureExt;
use http::{header, uri::Authority};
use pingora_core::protocols::http::ServerSession;
use pingora_http::RequestHeader;
use std::{panic::AssertUnwindSafe, sync::Arc, time::Instant};

impl HttpService for Gateway {
    /// Records and logs the call, and writes faults; `handle` does the work.
    async fn serve_request(
        self: &Arc<Self>,
        session: &mut ServerSession,
        connection: &Arc<CallerConnection>,
    ) -> ServeOutcome {
        let config = self.config.load_full();
        let mut call = Call::start(self, Some(connection.peer_address.ip()));
        call.record_request_head(session.req_header());
        let context = RequestContext { gateway: self, config: &config, connection };
        let result = catch_panic(context.handle(session, &mut call)).await;
        self.remember_caller_tier(&call, session.req_header(), &connection.last_caller);
        call.stats.bytes_in = session.body_bytes_read() as u64;
        let error = match result {
            Ok(outcome) => return outcome,
            Err(error) => error,
        };
        let written_status =
            session.response_written().map(|head| head.status.as_u16()).filter(|status| *status >= 200);
        match (error, written_status) {
            (CallError::CallerGone, _) => {
                call.state = CallState::CallerGone(0);
                ServeOutcome::Aborted
            }
            (CallError::Fault(fault), Some(status)) => {
                call.state = CallState::FailedMidResponse(status, fault);
                ServeOutcome::Aborted
            }
            (CallError::Fault(fault), None) => {
                let format =
                    content_negotiation::negotiate_error_format(&session.req_header().headers, config.error_format);
                response_writer::write_fault(session, connection, &mut call, fault, format).await
            }
        }
    }

    async fn refuse_request(
        self: &Arc<Self>,
        session: &mut ServerSession,
        connection: &Arc<CallerConnection>,
        fault: Fault,
    ) {
        let mut call = Call::start(self, Some(connection.peer_address.ip()));
        call.ensure_id();
        let format = self.config.load().error_format;
        response_writer::write_fault(session, connection, &mut call, fault, format).await;
    }
}

/// Turns a panic into a fault, so that it ends only its own call.
///
/// Not an `async fn`: its future would hold `work` twice, as the argument and as the awaited value.
pub(super) fn catch_panic<T>(
    work: impl Future<Output = std::result::Result<T, CallError>>,
) -> impl Future<Output = std::result::Result<T, CallError>> {
    AssertUnwindSafe(work).catch_unwind().map(|done| {
        done.unwrap_or_else(|_| {
            let fault = Fault::from(FaultCode::Internal).with_detail("a panic; its message is on stderr");
            Err(CallError::Fault(fault))
        })
    })
}

/// What handling one request needs besides the session.
pub(super) struct RequestContext<'a> {
    pub(super) gateway: &'a Arc<Gateway>,
    pub(super) config: &'a Arc<ConfigSnapshot>,
    pub(super) connection: &'a Arc<CallerConnection>,
}

impl RequestContext<'_> {
    async fn handle(
        &self,
        session: &mut ServerSession,
        call: &mut Call,
    ) -> std::result::Result<ServeOutcome, CallError> {
        let Self { gateway, config, connection } = self;
        gateway.limits.acquire_for_address(connection.peer_address.ip())?;
        let head = session.req_header();
        gateway.shed_before_authentication(call, head, &connection.last_caller)?;
        if let Some(cors) = &config.cors {
            call.cors_origin = Some(cors.allowed_origin(&head.headers).cloned());
            if let Some(method) = cors.preflight_method(&head.method, &head.headers) {
                path_router::match_request(&method, head.uri.path())?;
                return Box::pin(self.respond_to_preflight(session, call, cors)).await;
            }
        }
        let InvokeTarget { agent, version, operation, from_query } =
            match path_router::match_request(&head.method, head.uri.path())? {
                RequestKind::Invoke(invoke) if websocket::is_websocket_request(head) => {
                    let target = websocket::WebSocketTarget::from(&invoke);
                    return Box::pin(self.upgrade_websocket(session, call, target)).await;
                }
                RequestKind::Invoke(invoke) => invoke,
                RequestKind::Pair => return Box::pin(self.redeem_pairing_code(session, call)).await,
                // Boxed, so that the future of a call stays small.
                RequestKind::Directory(request, id) => {
                    let id = id.to_owned();
                    return Box::pin(self.handle_directory_request(session, call, request, &id)).await;
                }
                RequestKind::Pipeline => return Box::pin(self.handle_pipeline(session, call)).await,
                RequestKind::Task(request, id) => {
                    let id = id.to_owned();
                    return Box::pin(self.handle_task_request(session, call, request, &id)).await;
                }
            };
        let context = CallerContext {
            headers: &head.headers,
            client_certificate: connection.client_identity(),
            address: connection.peer_address.ip(),
        };
        let mut authorized = gateway.authorize_and_limit(config, call, agent, context).await?;
        authorized.session_hash = authorized.session_hash.or_else(|| session_hash_from_query(head, &authorized.caller));
        let key = if config.idempotency.is_enabled() {
            idempotency::parse_key(&head.headers)?.map(str::to_owned)
        } else {
            None
        };
        // A caller that waits for the answer of another call with its key needs no concurrency permit.
        let permit =
            if key.is_none() { Some(gateway.limits.acquire_permit(&authorized.route.limits).await?) } else { None };
        let named_operation = input_validation::named_operation(&authorized.route, operation, &head.headers)?;
        // Schemas are only read if there is a query.
        let declares_version =
            head.uri.query().is_some() && requested_version::declares_version_input(&authorized.route, named_operation);
        let requested = requested_version::RequestedVersion::from_request(
            version,
            head.uri.query(),
            &head.headers,
            declares_version,
        )?;
        authorized.version = authorized.route.versions.select(&requested)?;
        if declares_output(&authorized.route, named_operation) {
            content_negotiation::check_accept(&head.headers)?;
        }
        let deadline = call_deadline(call, &authorized.route, &head.headers)?;
        let body_timeout = BodyTimeout { connection, deadline };
        let reader = InputReader {
            gateway,
            route: &authorized.route,
            contract_config: &config.contract,
            named_operation,
            buffered_input: &call.buffered_input,
        };
        let (operation, input) = match from_query {
            true => reader.check_complete(input_from_query(head, &authorized.route, named_operation)?)?,
            false => {
                let mut incoming = IncomingBody::new(session, body_timeout);
                reader.read_body(&mut incoming).await?
            }
        };
        call.set_operation(operation);
        let checked_input = CheckedInput { operation, input, body_timeout, from_query };
        let task_options = self.requested_task(session, authorized.route.runs_as_task)?;
        match (permit, key, task_options) {
            (Some(permit), None, None) => {
                self.forward_to_agent(session, call, authorized.with_permit(permit), checked_input).await
            }
            (permit, idempotency_key, task_options) => {
                let request =
                    BackgroundRequest { authorized, permit, idempotency_key, input: checked_input, task_options };
                Box::pin(self.respond_in_background(session, call, request)).await
            }
        }
    }

    /// Forwards a call with valid input to its agent and writes the response (steps 9 to 12).
    async fn forward_to_agent(
        &self,
        session: &mut ServerSession,
        call: &mut Call,
        permitted: PermittedCall,
        checked_input: CheckedInput<'_>,
    ) -> std::result::Result<ServeOutcome, CallError> {
        let Self { gateway, config, connection } = self;
        let CheckedInput { operation, input, body_timeout, from_query } = checked_input;
        let caller = Arc::clone(&permitted.authorized.caller);
        let rate_limit_status = permitted.authorized.rate_limit_status;
        let admitted = Arc::new(permitted.admit(operation, body_timeout.deadline));
        let gateway_headers = gateway_and_query_headers(call, &admitted, session.req_header());
        let forwarded = connection.forwarded_header(requested_host(session.req_header()));
        // Cloned, because the session is still read from and watched while the agent is called.
        let mut headers = session.req_header().headers.clone();
        if from_query || matches!(input, CallInput::Batch(_)) {
            set_json_headers(&mut headers);
        }
        let forwarding = HeaderMutations {
            forwarded: Some(&forwarded),
            credential_headers: config.auth.credential_headers(),
            set: &gateway_headers,
        };
        let head = UpstreamHead { call_id: call.id(), headers: &headers, forwarding, instruction: None };
        let rate_limit_status = rate_limit_status.as_ref();
        let responder =
            Responder { gateway, config, connection, admitted: &admitted, caller: &caller, rate_limit_status };
        let sent_at = Instant::now();
        if let CallInput::Batch(items) = input {
            let account = gateway.rate_limit_account(&caller, connection.peer_address.ip());
            let (contract_config, own_slot) = (&config.contract, tokio::sync::Mutex::default());
            let batch = BatchCall { gateway, admitted: &admitted, account, head, contract_config, own_slot };
            let response = tokio::select! {
                biased;
                response = batch.run(items, call.id()) => response,
                () = http_server::wait_for_disconnect(session) => return Err(CallError::CallerGone),
            };
            call.stats.upstream_duration = Some(sent_at.elapsed());
            return responder.respond_json(session, call, response).await;
        }
        let request = OutgoingRequest { head, input, body_timeout, max_body: config.max_streamed_body_size.get() };
        let response = match gateway.send_with_body(session, &admitted, request).await {
            Ok((reply, pump)) => responder.respond(session, call, reply, pump).await,
            Err(error) => Err(error),
        };
        call.stats.upstream_duration = Some(sent_at.elapsed());
        response
    }
}

/// A validated input, and the operation that it is for.
pub(super) struct CheckedInput<'a> {
    pub(super) operation: usize,
    pub(super) input: CallInput,
    pub(super) body_timeout: BodyTimeout<'a>,
    pub(super) from_query: bool,
}

/// Returns the host that the caller requested.
pub(super) fn requested_host(head: &RequestHeader) -> Option<&str> {
    let authority = head.uri.authority().map(Authority::as_str);
    authority.or_else(|| head.headers.get(header::HOST)?.to_str().ok())
}

fn declares_output(route: &Route, operation: Option<usize>) -> bool {
    operation.and_then(|at| route.operations.get(at)).is_some_and(|operation| operation.contract.output.is_some())
}
