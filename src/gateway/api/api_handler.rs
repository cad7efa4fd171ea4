//! A request to an agent's API: the admission of a call, the route that allows it, and the agent.

use super::{
    api_authorization::{AuthorizedApiRequest, authorize_api_request, contract_check},
    api_reply::ApiResponder,
    api_target::AgentApi,
    matched_route::MatchedOperation,
    openapi::{ApiOperation, BodyCheck},
    websocket::upgrade_api_request,
};
use crate::{
    contract::OperationContract,
    explain::DecisionStep,
    fault::Result,
    gateway::{
        admission::{
            AdmissionRecorder as _, Admitted, AdmittedCall, AuthorizedCall, BodyAccount, BodyBound, CallInput,
            CallSource, IncomingBody,
        },
        call::CallResult,
        exchange::Exchange,
        path_router::ApiRequest,
        upstream::{OutgoingRequest, UpstreamHead, UpstreamTarget, api_gateway_headers, send_with_body},
        websocket::is_websocket_request,
    },
    http_server::ServeOutcome,
    telemetry::ShadowRule,
    transport::{Admission as _, HeaderMutations},
};
use bytes::Bytes;
use http::{header, uri::PathAndQuery};
use std::{sync::Arc, time::Instant};

/// Handles a request to an agent's API (steps 5 to 12).
pub(in crate::gateway) async fn handle_api_request(
    exchange: &mut Exchange<'_>,
    request: ApiRequest,
) -> CallResult<ServeOutcome> {
    if is_websocket_request(exchange.session.head()) {
        return Box::pin(upgrade_api_request(exchange, request)).await;
    }
    let AuthorizedApiRequest { authorized, api, path, operation } =
        authorize_api_request(exchange, &request, CallSource::ApiRequest, None).await?;
    let admission = exchange.admission();
    let checked_operation = operation.as_ref().map(|matched| Arc::clone(&matched.operation));
    let max_body = BodyBound::of_api(api.max_body_size, exchange.config.max_streamed_body_size);
    let input = match operation {
        None => read_beginning(exchange, authorized.deadline(), max_body).await?,
        Some(operation) => match checked_contract(exchange, authorized.deadline(), &operation)? {
            None => read_beginning(exchange, authorized.deadline(), max_body).await?,
            Some(contract) => {
                let bound = max_body.of_checked_api(api.max_checked_body);
                Box::pin(read_checked(exchange, &authorized, contract, bound)).await?
            }
        },
    };
    let checked = admission.pass_input(authorized, input);
    let AdmittedCall { admitted, input } = admission.admit(exchange.call, checked).await?;
    let call = ApiCall { api, operation: checked_operation, admitted, path, max_body };
    call.run(exchange, &request, input).await
}

/// Returns the contract that the body of a request must keep, if it has one.
///
/// # Errors
/// 400 for a body that is missing, 415 for one that the operation does not take.
fn checked_contract<'o>(
    exchange: &mut Exchange<'_>,
    deadline: Instant,
    operation: &'o MatchedOperation<'_>,
) -> Result<Option<&'o OperationContract>> {
    let mut incoming = IncomingBody::new(&mut *exchange.session, deadline);
    if incoming.detect_empty() {
        return operation.check_empty_body().map(|()| None);
    }
    Ok(match operation.body_check(incoming.headers())? {
        BodyCheck::Unread => None,
        BodyCheck::Json(contract) => Some(contract),
    })
}

/// Reads a whole body and checks it.
///
/// # Errors
/// 400 with the violations, 408, 413.
async fn read_checked(
    exchange: &mut Exchange<'_>,
    authorized: &AuthorizedCall,
    contract: &OperationContract,
    bound: BodyBound,
) -> Result<CallInput> {
    exchange.call.begin_step(DecisionStep::Input);
    let account = BodyAccount { limits: &exchange.gateway.limits, client: authorized.client() };
    let mut incoming = IncomingBody::new(&mut *exchange.session, authorized.deadline());
    let body = incoming.read_complete(bound, account).await?;
    let violations = contract_check(exchange.gateway, &exchange.config.contract, authorized)
        .check_json(contract, body.clone())
        .await?;
    exchange.gateway.report_contract_violations(authorized.route(), ShadowRule::Input, &violations);
    Ok(CallInput::Complete(body))
}

/// Reads the beginning of the body before the call takes its slot, which a caller that sends nothing would hold.
///
/// # Errors
/// 413 for a body that says that it is too large, 408 for one that does not begin.
async fn read_beginning(exchange: &mut Exchange<'_>, deadline: Instant, max_body: BodyBound) -> Result<CallInput> {
    exchange.call.begin_step(DecisionStep::Input);
    let mut incoming = IncomingBody::new(&mut *exchange.session, deadline);
    if incoming.detect_empty() {
        return Ok(CallInput::Streamed(Bytes::new()));
    }
    let length = incoming.content_length();
    if length.is_some_and(|length| length > max_body.max_bytes() as u64) {
        return Err(max_body.exceeded());
    }
    let first = incoming.first_chunk().await?;
    let is_complete = length == Some(first.len() as u64) && !first.is_empty();
    Ok(if is_complete { CallInput::Complete(first) } else { CallInput::Streamed(first) })
}

/// An admitted request.
struct ApiCall {
    api: Arc<AgentApi>,
    operation: Option<Arc<ApiOperation>>,
    admitted: Admitted,
    path: PathAndQuery,
    max_body: BodyBound,
}

impl ApiCall {
    async fn run(
        self,
        exchange: &mut Exchange<'_>,
        request: &ApiRequest,
        input: CallInput,
    ) -> CallResult<ServeOutcome> {
        let Self { api, operation, admitted, path, max_body } = self;
        let set = api_gateway_headers(exchange.call, &admitted);
        let forwarded = exchange.forwarded_header();
        // Cloned, because the session is still read from and watched while the agent is called.
        let mut headers = exchange.session.head().headers.clone();
        if !api.url_pointers.is_empty() {
            // A part of a document has URLs that cannot be rewritten.
            for name in [header::RANGE, header::IF_RANGE] {
                headers.remove(name);
            }
        }
        let method = exchange.session.head().method.clone();
        let sent_at = exchange.call.record_sent();
        let head = UpstreamHead {
            call_id: exchange.call.id(),
            target: UpstreamTarget::Api { method: &method, path: &path },
            headers: &headers,
            query: None,
            forwarding: HeaderMutations {
                passes_conditions: true,
                parameters: operation.as_ref().map_or(&[], |operation| operation.forwarded_headers()),
                ..exchange.config.header_mutations(&forwarded, &set)
            },
            instruction: None,
            attempts: exchange.call.stats.attempts(),
            trace: exchange.call.trace_scope(),
        };
        let outgoing = OutgoingRequest { head, input, deadline: admitted.deadline().into_std(), max_body };
        let sent = send_with_body(exchange.gateway, exchange.session, &admitted, outgoing).await;
        exchange.call.record_reply();
        let response = match sent {
            Ok((reply, pump)) => {
                let responder = ApiResponder { exchange: &mut *exchange, admitted: &admitted, api: &api, request };
                responder.respond(reply, pump).await
            }
            Err(error) => Err(error),
        };
        exchange.call.stats.upstream_duration = Some(sent_at.elapsed());
        response
    }
}
