//! A request to an agent's API: the admission of a call, the route that allows it, and the agent.

use super::{api_reply::ApiResponder, api_target::AgentApi};
use crate::{
    explain::DecisionStep,
    fault::{Fault, FaultCode, Result},
    gateway::{
        admission::{
            AdmissionRecorder as _, AdmissionRequest, Admitted, AdmittedCall, BodyBound, CallInput, CallSource,
            CallerContext, IncomingBody,
        },
        call::CallResult,
        call_parameters::call_deadline,
        delegation::DELEGATION_CHAIN,
        exchange::Exchange,
        header_names::REQUEST_ID,
        path_router::{API_SEGMENT, ApiRequest, CallTarget},
        route::Route,
        upstream::{OutgoingRequest, UpstreamHead, UpstreamTarget, send_with_body},
    },
    http_server::ServeOutcome,
    transport::{Admission as _, HeaderMutations},
};
use bytes::Bytes;
use http::{HeaderName, HeaderValue, request, uri::PathAndQuery};
use std::{num::NonZeroU32, sync::Arc, time::Instant};

/// Handles a request to an agent's API (steps 5 to 12).
pub(in crate::gateway) async fn handle_api_request(
    exchange: &mut Exchange<'_>,
    request: ApiRequest,
) -> CallResult<ServeOutcome> {
    let admission = exchange.admission();
    let head = exchange.session.head();
    let caller = exchange.connection.caller_context(&head.headers);
    let admission_request = admission_request(&request, caller, head.uri.query());
    let mut authorized = admission.authorize(exchange.call, &admission_request).await?;
    exchange.call.begin_step(DecisionStep::Operation);
    let api = find_api(authorized.route())?;
    let head = exchange.session.head();
    let route = api.find_route(&head.method, &request)?;
    exchange.call.record_api_route(route.label());
    route.check_caller(authorized.caller())?;
    let session = api.session.as_ref().and_then(|key| key.hash(head, route, &request.path, authorized.caller()));
    authorized.set_upstream(api.upstream.clone(), session);
    let deadline = call_deadline(exchange.call.arrived_at(), api.upstream.timeouts(), &head.headers)?;
    exchange.call.record_deadline(deadline.source);
    authorized.set_deadline(deadline);
    let head = exchange.session.head();
    let path = upstream_path(&api, &request, head)?;
    let max_body = BodyBound::of_api(api.max_body_size, exchange.config.max_streamed_body_size);
    let input = read_beginning(exchange, authorized.deadline(), max_body).await?;
    let checked = admission.pass_input(authorized, input);
    let AdmittedCall { admitted, input } = admission.admit(exchange.call, checked).await?;
    let call = ApiCall { api, admitted, path, max_body };
    call.run(exchange, &request, input).await
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

/// Returns the API of an agent.
///
/// # Errors
/// 404 if no rule passes requests to it.
pub(in crate::gateway) fn find_api(route: &Route) -> Result<Arc<AgentApi>> {
    route.api.clone().ok_or_else(|| {
        let fault = Fault::new(FaultCode::CapabilityNotFound, "The API of this agent is not passed through");
        fault.with_setting("agents.rules[].api")
    })
}

/// Returns what asks for admission of a request to an agent's API.
pub(in crate::gateway) fn admission_request<'a>(
    request: &'a ApiRequest,
    caller: CallerContext<'a>,
    query: Option<&'a str>,
) -> AdmissionRequest<'a> {
    AdmissionRequest {
        source: CallSource::ApiRequest,
        caller,
        target: CallTarget { agent: &request.agent, version: None, operation: None, may_be_agent: false },
        query,
        calls: NonZeroU32::MIN,
    }
}

fn upstream_path(api: &AgentApi, request: &ApiRequest, head: &request::Parts) -> Result<PathAndQuery> {
    let path = api.upstream_path(&request.path, head.uri.query());
    path.ok_or_else(|| Fault::new(FaultCode::InvalidInput, "The path or the query is not valid in a URL"))
}

/// An admitted request.
struct ApiCall {
    api: Arc<AgentApi>,
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
        let Self { api, admitted, path, max_body } = self;
        let public = if request.is_at_own_host {
            exchange.requested_url()
        } else {
            format!("{}/agents/{}/{API_SEGMENT}", exchange.base_url(), request.agent)
        };
        let id = exchange.call.id_header().map(|id| (REQUEST_ID, id));
        let chain = admitted.delegation_chain().map(|chain| (DELEGATION_CHAIN, chain.clone()));
        let set: Vec<(HeaderName, HeaderValue)> = id.into_iter().chain(chain).collect();
        let forwarded = exchange.forwarded_header();
        // Cloned, because the session is still read from and watched while the agent is called.
        let headers = exchange.session.head().headers.clone();
        let method = exchange.session.head().method.clone();
        let sent_at = exchange.call.record_sent();
        let head = UpstreamHead {
            call_id: exchange.call.id(),
            target: UpstreamTarget::Api { method: &method, path: &path },
            headers: &headers,
            query: None,
            forwarding: HeaderMutations {
                passes_conditions: true,
                ..exchange.config.header_mutations(&forwarded, &set)
            },
            instruction: None,
            trace: exchange.call.trace_scope(),
        };
        let outgoing = OutgoingRequest { head, input, deadline: admitted.deadline().into_std(), max_body };
        let sent = send_with_body(exchange.gateway, exchange.session, &admitted, outgoing).await;
        exchange.call.record_reply();
        let response = match sent {
            Ok((reply, pump)) => {
                let responder = ApiResponder { exchange: &mut *exchange, admitted: &admitted, api: &api, public };
                responder.respond(reply, pump).await
            }
            Err(error) => Err(error),
        };
        exchange.call.stats.upstream_duration = Some(sent_at.elapsed());
        response
    }
}
