//! A call over HTTP: admission (steps 5 to 8 and 10), the idempotency key (step 9), the agent (step 11) and the response
//! (step 12).

use super::{
    admission::{
        AdmissionRecorder as _, AdmittedCall, AuthorizedCall, BodyBound, CallInput, CheckedCall, IncomingRequest,
        InputSource,
    },
    background::{BackgroundCall, KeyOutcome, claim_or_replay, run_first_call},
    batch_call::BatchCall,
    call::{CallError, CallResult},
    call_parameters::headers_from_query,
    exchange::Exchange,
    forwarded_query::AgentQuery,
    response::Responder,
    tasks::{TaskCall, TaskOptions, respond_with_task},
    upstream::{OutgoingRequest, UpstreamHead, UpstreamTarget, gateway_headers, send_with_body, set_json_headers},
};
use crate::{
    explain::DecisionStep,
    fault::{Fault, FaultCode, Result},
    http_server::ServeOutcome,
    transport::Admission as _,
};
use http::{HeaderName, HeaderValue, request};
use std::sync::Arc;

/// Where the input of a call is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InputLocation {
    Body,
    /// The query, of a `GET`.
    Query,
}

/// Handles a call whose head is admitted: reads its input, calls the agent and writes the response.
pub(super) async fn handle_call(
    exchange: &mut Exchange<'_>,
    authorized: AuthorizedCall,
    location: InputLocation,
) -> CallResult<ServeOutcome> {
    let admission = exchange.admission();
    exchange.call.begin_step(DecisionStep::Method);
    check_method(&authorized, location)?;
    let checked = match location {
        InputLocation::Body => {
            let source = InputSource::Body(IncomingRequest::Session(exchange.session));
            admission.check_input(exchange.call, authorized, source).await?
        }
        InputLocation::Query => {
            let source = InputSource::Query(exchange.session.head().uri.query().unwrap_or_default());
            admission.check_input(exchange.call, authorized, source).await?
        }
    };
    exchange.call.begin_step(DecisionStep::Task);
    let runs_as_task = checked.route().runs_as_task;
    let task_options = TaskOptions::requested(exchange.config.tasks.as_ref(), exchange.session.head(), runs_as_task)?;
    if checked.idempotency_key().is_none() && task_options.is_none() {
        exchange.call.begin_step(DecisionStep::Query);
        let query = agent_query(exchange.session.head(), &checked, location)?;
        let admitted_call = admission.admit(exchange.call, checked).await?;
        return forward_to_agent(exchange, admitted_call, query).await;
    }
    Box::pin(respond_in_background(exchange, checked, task_options, location)).await
}

/// Refuses a call whose input is in the query of an agent that takes bodies only.
///
/// # Errors
/// 405.
pub(super) fn check_method(authorized: &AuthorizedCall, location: InputLocation) -> Result<()> {
    if location == InputLocation::Query && !authorized.route().allows_get {
        let fault = Fault::new(FaultCode::MethodNotAllowed, "This agent is invoked with POST only");
        return Err(fault.with_header("Allow", "POST").with_setting("agents.rules[].get"));
    }
    Ok(())
}

/// Decides what becomes of the query.
///
/// # Errors
/// 400 if the agent takes no query.
pub(super) fn agent_query(head: &request::Parts, checked: &CheckedCall, location: InputLocation) -> Result<AgentQuery> {
    match location {
        InputLocation::Query => Ok(AgentQuery::as_input()),
        InputLocation::Body => AgentQuery::beside_body(head.uri.query(), checked),
    }
}

/// Sends an admitted call to its agent and writes the response.
async fn forward_to_agent(
    exchange: &mut Exchange<'_>,
    admitted_call: AdmittedCall,
    query: AgentQuery,
) -> CallResult<ServeOutcome> {
    let AdmittedCall { admitted, input } = admitted_call;
    let admitted = Arc::new(admitted);
    let request_head = exchange.session.head();
    let from_query = headers_from_query(request_head.uri.query(), &request_head.headers);
    let gateway_headers: Vec<(HeaderName, HeaderValue)> =
        gateway_headers(exchange.call, &admitted).chain(from_query).collect();
    let forwarded = exchange.forwarded_header();
    // Cloned, because the session is still read from and watched while the agent is called.
    let mut headers = request_head.headers.clone();
    if query.is_input || matches!(input, CallInput::Batch(_)) {
        set_json_headers(&mut headers);
    }
    let forwarding = exchange.config.header_mutations(&forwarded, &gateway_headers);
    let sent_at = exchange.call.record_sent();
    let head = UpstreamHead {
        call_id: exchange.call.id(),
        target: UpstreamTarget::Operation,
        headers: &headers,
        query: query.forwarded.as_deref(),
        forwarding,
        instruction: None,
        attempts: exchange.call.stats.attempts(),
        trace: exchange.call.trace_scope(),
    };
    if let CallInput::Batch(items) = input {
        let base_url = exchange.base_url();
        let batch = BatchCall::new(exchange.admission(), &admitted, head, &base_url);
        let body = tokio::select! {
            biased;
            body = batch.run(items) => body,
            () = exchange.session.wait_for_disconnect() => return Err(CallError::CallerGone),
        };
        exchange.call.record_reply();
        exchange.call.stats.upstream_duration = Some(sent_at.elapsed());
        return Responder { exchange, admitted: &admitted }.respond_json(body).await;
    }
    let max_body = BodyBound::of_streamed(admitted.agent_route(), exchange.config.max_streamed_body_size);
    let request = OutgoingRequest { head, input, deadline: admitted.deadline().into_std(), max_body };
    let sent = send_with_body(exchange.gateway, exchange.session, &admitted, request).await;
    exchange.call.record_reply();
    let response = match sent {
        Ok((reply, pump)) => Responder { exchange: &mut *exchange, admitted: &admitted }.respond(reply, pump).await,
        Err(error) => Err(error),
    };
    exchange.call.stats.upstream_duration = Some(sent_at.elapsed());
    response
}

/// Responds to a call that runs in the background: as a task, or with an idempotency key.
async fn respond_in_background(
    exchange: &mut Exchange<'_>,
    mut checked: CheckedCall,
    task_options: Option<TaskOptions>,
    location: InputLocation,
) -> CallResult<ServeOutcome> {
    // A call that outlives its caller cannot stream the input from it, and the key covers the input.
    if let CallInput::Streamed(first) = &checked.input {
        exchange.call.begin_step(DecisionStep::Input);
        let bound = BodyBound::of_checked(checked.route(), &exchange.config.contract);
        let body = exchange.read_rest(first.clone(), bound, checked.deadline()).await?;
        let _ = exchange.call.buffered_input.set(body.clone());
        checked.input = CallInput::Complete(body);
    }
    exchange.call.begin_step(DecisionStep::Query);
    let query = agent_query(exchange.session.head(), &checked, location)?;
    exchange.call.begin_step(DecisionStep::IdempotencyKey);
    let claim = match checked.idempotency_key().map(str::to_owned) {
        None => None,
        Some(key) => match claim_or_replay(exchange, &checked, &key).await? {
            KeyOutcome::First(claim) => Some(claim),
            KeyOutcome::Replayed(outcome) => return Ok(outcome),
        },
    };
    let admitted_call = exchange.admission().admit(exchange.call, checked).await?;
    let background = BackgroundCall::new(exchange, admitted_call, query);
    if let Some(options) = task_options {
        return respond_with_task(exchange, TaskCall { background, options, claim }).await;
    }
    let Some(claim) = claim else {
        return Err(Fault::from(FaultCode::Internal).with_detail("neither a task nor a key").into());
    };
    let sent_at = exchange.call.record_sent();
    let response = run_first_call(exchange, background, claim).await;
    exchange.call.stats.upstream_duration = Some(sent_at.elapsed());
    response
}
