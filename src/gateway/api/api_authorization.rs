//! The head of a request to an agent's API: it is authorised as a call is, and its route must let it pass.

use super::{api_target::AgentApi, matched_route::MatchedOperation, openapi::ContractCheck};
use crate::{
    contract::{CheckOwner, ContractConfig},
    explain::DecisionStep,
    fault::{Fault, FaultCode, Result},
    gateway::{
        admission::{AdmissionRecorder as _, AdmissionRequest, AuthorizedCall, BodyAccount, CallSource, CallerContext},
        call_parameters::call_deadline,
        exchange::Exchange,
        gateway_state::Gateway,
        path_router::{ApiRequest, CallTarget},
        route::Route,
    },
    telemetry::ShadowRule,
};
use http::{HeaderMap, uri::PathAndQuery};
use std::{num::NonZeroU32, sync::Arc};

/// A request whose head is authorised.
pub(super) struct AuthorizedApiRequest<'r> {
    pub(super) authorized: AuthorizedCall,
    pub(super) api: Arc<AgentApi>,
    /// Path and query of the request to the agent.
    pub(super) path: PathAndQuery,
    /// The operation whose body is checked.
    pub(super) operation: Option<MatchedOperation<'r>>,
}

/// Authorises a request (steps 5 to 7), and finds the route that lets it pass. `headers` are those of the request, with the
/// caller's credential where authentication looks for it.
///
/// # Errors
/// The fault with which the request is refused.
pub(super) async fn authorize_api_request<'r>(
    exchange: &mut Exchange<'_>,
    request: &'r ApiRequest,
    source: CallSource,
    headers: Option<&HeaderMap>,
) -> Result<AuthorizedApiRequest<'r>> {
    let admission = exchange.admission();
    let head = exchange.session.head();
    let caller = exchange.connection.caller_context(headers.unwrap_or(&head.headers));
    let admission_request = AdmissionRequest { source, ..admission_request(request, caller, head.uri.query()) };
    let mut authorized = admission.authorize(exchange.call, &admission_request).await?;
    exchange.call.begin_step(DecisionStep::Operation);
    let api = find_api(authorized.route())?;
    let head = exchange.session.head();
    let route = api.find_route(&head.method, request)?;
    exchange.call.record_api_route(route.label());
    route.check_caller(authorized.caller())?;
    let session = api.session.as_ref().and_then(|key| key.hash(head, &route, &request.path, authorized.caller()));
    authorized.set_upstream(api.upstream.clone(), session);
    let deadline = call_deadline(exchange.call.arrived_at(), api.upstream.timeouts(), &head.headers)?;
    exchange.call.record_deadline(deadline.source);
    authorized.set_deadline(deadline);
    let head = exchange.session.head();
    let path = api.upstream_path(&request.path, head.uri.query());
    let path =
        path.ok_or_else(|| Fault::new(FaultCode::InvalidInput, "The path or the query is not valid in a URL"))?;
    let operation = route.into_operation();
    if let Some(operation) = &operation {
        exchange.call.begin_step(DecisionStep::Input);
        let check = contract_check(exchange.gateway, &exchange.config.contract, &authorized);
        let head = exchange.session.head();
        let violations = operation.check_parameters(check, head).await?;
        exchange.gateway.report_contract_violations(authorized.route(), ShadowRule::Input, &violations);
    }
    Ok(AuthorizedApiRequest { authorized, api, path, operation })
}

/// Returns the check of a request by the schemas of its operation.
pub(in crate::gateway) fn contract_check<'c>(
    gateway: &'c Gateway,
    config: &'c ContractConfig,
    authorized: &'c AuthorizedCall,
) -> ContractCheck<'c> {
    let route = authorized.route();
    let owner = CheckOwner {
        agent: &route.suspended_checks,
        client: authorized.client(),
        config: &config.suspended_checks,
        deadline: authorized.deadline(),
    };
    ContractCheck {
        scheduler: &gateway.check_scheduler,
        owner,
        account: BodyAccount { limits: &gateway.limits, client: authorized.client() },
        max_depth: config.max_depth,
        metrics: route.metrics(),
    }
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
