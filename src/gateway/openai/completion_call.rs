//! The call that a request for a completion makes, up to its agent (steps 6 to 8): a dry run takes the same steps.

use super::{
    completion_request::{CompletionEndpoint, CompletionRequest},
    input_mapping::to_input,
    model_name::ModelName,
};
use crate::{
    auth::Caller,
    contract::ContractConfig,
    explain::DecisionStep,
    fault::Result,
    gateway::{
        admission::{
            AdmissionPipeline, AdmissionRecorder, AdmissionRequest, AuthorizedCall, BodyAccount, BodyBound, CallSource,
            CallerContext, CheckedCall, IncomingBody, InputSource, OwnBodyParser,
        },
        content_negotiation,
        gateway_state::Gateway,
        path_router::CallTarget,
        upstream::set_json_headers,
    },
};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, header};
use serde_json::Value;
use std::{num::NonZeroU32, sync::Arc};

/// Checks the caller before the body is read, as far as that is possible without the agent: callers without a credential,
/// whose calls are shed or whose rate is exhausted make the gateway hold no body. Nothing is charged.
///
/// # Errors
/// 401, 429, 503, or the failure of an issuer.
pub(in crate::gateway) async fn check_caller(
    admission: AdmissionPipeline<'_>,
    record: &mut impl AdmissionRecorder,
    context: &CallerContext<'_>,
) -> Result<Arc<Caller>> {
    record.begin_step(DecisionStep::Authentication);
    let auth = &admission.config.auth;
    let allow_anonymous = auth.anonymous_caller().grants.has_grant();
    let caller = auth.authenticate_or_anonymous(&context.presented_credentials(), allow_anonymous).await?;
    record.record_caller(&caller);
    record.begin_step(DecisionStep::LoadShedding);
    admission.check_load(record, &caller)?;
    record.begin_step(DecisionStep::RateLimits);
    admission.check_caller_limits(record, &caller, context.address).await?;
    record.begin_step(DecisionStep::Input);
    Ok(caller)
}

/// Reads the body of a request.
///
/// # Errors
/// 400, 408, 413 or 415.
pub(in crate::gateway) async fn read_request(
    gateway: &Gateway,
    config: &ContractConfig,
    endpoint: CompletionEndpoint,
    mut incoming: IncomingBody<'_>,
    account: BodyAccount<'_>,
) -> Result<CompletionRequest> {
    content_negotiation::check_json_body(incoming.headers())?;
    let body = incoming.read_complete(BodyBound::of_contract(config), account).await?;
    let parser = OwnBodyParser { gateway, config, account, deadline: incoming.deadline() };
    let body = Box::pin(parser.parse(body)).await?;
    endpoint.parse(&body.value)
}

/// Authorises the call, and makes and checks the input of the agent.
///
/// # Errors
/// The fault with which the call is refused.
pub(in crate::gateway) async fn check_call(
    admission: AdmissionPipeline<'_>,
    record: &mut impl AdmissionRecorder,
    caller: CallerContext<'_>,
    request: &CompletionRequest,
) -> Result<CheckedCall> {
    let authorized = authorize(admission, record, caller, request).await?;
    record.begin_step(DecisionStep::Input);
    let rule = authorized.route().openai.as_deref();
    let input = to_input(&request.conversation, called_schema(&authorized), rule)?;
    let source = InputSource::Complete(Bytes::from(input.to_string()));
    admission.check_input(record, authorized, source).await
}

async fn authorize(
    admission: AdmissionPipeline<'_>,
    record: &mut impl AdmissionRecorder,
    caller: CallerContext<'_>,
    request: &CompletionRequest,
) -> Result<AuthorizedCall> {
    let ModelName { agent, version } = ModelName::from(&*request.model);
    // Only the name of the operation is read before the caller is authorised.
    let route = admission.gateway.catalogue.load().get(agent).cloned();
    let operation = route.as_ref().and_then(|route| route.openai.as_ref()?.operation.as_deref());
    let admission_request = AdmissionRequest {
        source: CallSource::TranslatedRequest,
        caller,
        target: CallTarget { agent, version, operation, may_be_agent: false },
        query: None,
        calls: NonZeroU32::MIN,
    };
    admission.authorize(record, &admission_request).await
}

/// Returns the input schema of the operation that is called.
fn called_schema(authorized: &AuthorizedCall) -> Option<&Value> {
    let operations = &authorized.route().agent.operations;
    operations.get(authorized.named_operation().unwrap_or_default())?.inputs.as_deref()
}

/// Sets what the agent reads of its input and of the answer that the caller expects.
pub(in crate::gateway) fn set_agent_headers(headers: &mut HeaderMap, request: &CompletionRequest) {
    set_json_headers(headers);
    if request.stream {
        headers.insert(header::ACCEPT, HeaderValue::from_static("text/event-stream, application/json;q=0.9"));
    }
}
