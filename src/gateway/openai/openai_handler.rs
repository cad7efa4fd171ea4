//! A request of OpenAI's API: a list of models, or a call of the agent that `model` names.

use super::{
    chat_completion::AnswerIdentity,
    completion_call::{check_call, check_caller, read_request, set_agent_headers},
    completion_request::{CompletionEndpoint, CompletionRequest},
    completion_responder::CompletionResponder,
    model_list::{find_model, list_models},
};
use crate::{
    auth::Caller,
    directory::DirectoryResponse,
    fault::{Fault, Result},
    gateway::{
        admission::{AdmissionRecorder as _, BodyAccount, IncomingBody, LocalAccess, LocalCaller, rate_limit_account},
        call::CallResult,
        exchange::Exchange,
        path_router::OpenAiRequest,
    },
    http_server::ServeOutcome,
};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The timeout of the request body.
const BODY_TIMEOUT: Duration = Duration::from_secs(60);

/// Handles a request (steps 5 to 12).
pub(in crate::gateway) async fn handle_openai_request(
    exchange: &mut Exchange<'_>,
    request: OpenAiRequest,
) -> CallResult<ServeOutcome> {
    let endpoint = match request {
        OpenAiRequest::Models => return respond_with_models(exchange, None).await,
        OpenAiRequest::Model(id) => return respond_with_models(exchange, Some(&id)).await,
        OpenAiRequest::ChatCompletions => CompletionEndpoint::ChatCompletions,
        OpenAiRequest::Responses => CompletionEndpoint::Responses,
    };
    let context = exchange.connection.caller_context(&exchange.session.head().headers);
    let caller = check_caller(exchange.admission(), exchange.call, &context).await?;
    exchange.call.exempt_from_shedding = true;
    let request = match read_body(exchange, endpoint).await {
        Ok(request) => request,
        Err(fault) => return Err(charge_refusal(exchange, &caller, fault).await.into()),
    };
    let context = exchange.connection.caller_context(&exchange.session.head().headers);
    let checked = match check_call(exchange.admission(), exchange.call, context, &request).await {
        Err(fault) if exchange.call.is_access_refused() => {
            return Err(charge_refusal(exchange, &caller, fault).await.into());
        }
        checked => checked?,
    };
    let rule = checked.route().openai.clone();
    let mut headers = exchange.session.head().headers.clone();
    set_agent_headers(&mut headers, &request);
    let created = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let CompletionRequest { model, stream, includes_usage, .. } = request;
    let identity = AnswerIdentity { id: exchange.call.id().to_owned(), model, created };
    CompletionResponder { identity, endpoint, stream, includes_usage, rule }.run(exchange, checked, headers).await
}

/// Reads the request of a caller that may call.
async fn read_body(exchange: &mut Exchange<'_>, endpoint: CompletionEndpoint) -> Result<CompletionRequest> {
    let account = BodyAccount { limits: &exchange.gateway.limits, client: exchange.client() };
    let incoming = IncomingBody::new(&mut *exchange.session, exchange.call.arrived_at() + BODY_TIMEOUT);
    read_request(exchange.gateway, &exchange.config.contract, endpoint, incoming, account).await
}

/// Charges a refused request that names no agent which could charge it as a request of the directory. Returns the fault
/// with which it is refused.
async fn charge_refusal(exchange: &Exchange<'_>, caller: &Caller, fault: Fault) -> Fault {
    let account = rate_limit_account(caller, exchange.connection.client_address());
    exchange.gateway.limits.acquire_for_directory(&account, false).await.err().unwrap_or(fault)
}

async fn respond_with_models(exchange: &mut Exchange<'_>, name: Option<&str>) -> CallResult<ServeOutcome> {
    exchange.call.mark_directory_request();
    let allow_anonymous = exchange.config.auth.anonymous_caller().grants.has_grant();
    let access = LocalAccess { allow_anonymous, is_search: false, changes_state: false };
    let LocalCaller { caller, rate_limit_status } = exchange.authenticate_and_limit(access).await?;
    let body = match name {
        None => list_models(exchange, &caller).await?,
        Some(name) => find_model(exchange, &caller, name).await?,
    };
    let headers = HeaderMap::from_iter([
        (header::CONTENT_TYPE, HeaderValue::from_static("application/json")),
        (header::CACHE_CONTROL, HeaderValue::from_static("private")),
    ]);
    let response = DirectoryResponse { status: StatusCode::OK, headers, body };
    exchange.respond_locally(response, rate_limit_status.as_ref()).await
}
