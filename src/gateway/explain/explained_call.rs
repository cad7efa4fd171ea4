//! Runs a dry run: the steps of a call in the order of the request handler, up to the request that would be sent.

use super::{
    dry_run::DryRun,
    explain_request::{ExplainRequest, PreparedRequest},
    outgoing_preview::{OutgoingCall, preview_outgoing_call},
};
use crate::{
    explain::{DecidingRule, DecisionStep, Explanation},
    fault::{Fault, FaultCode, Result},
    gateway::{
        admission::{
            AdmissionPipeline, AdmissionRecorder as _, AdmissionRequest, BodyAccount, CallInput, CallSource,
            CallerContext, CheckedCall, IncomingBody, IncomingRequest, InputSource, rate_limit_account,
        },
        api::{admission_request, contract_check, find_api},
        call_handler::{InputLocation, agent_query, check_method},
        content_negotiation,
        gateway_state::{ConfigSnapshot, Gateway},
        openai::{self, CompletionEndpoint},
        path_router::{self, ApiRequest, InvokeTarget, OpenAiRequest, RequestKind},
        tasks::TaskOptions,
        websocket::{self, WebSocketHandshake},
    },
    http_server::request_validation::HeadLimits,
};
use http::{HeaderMap, HeaderValue, header, request};
use std::{num::NonZeroU32, sync::Arc, time::Duration};

/// The body of an explained request is there already.
const EXPLAINED_BODY_TIMEOUT: Duration = Duration::from_secs(1);

/// Explains a request: passes it through every step of a call except the call itself. Nothing is charged, and nothing
/// reaches the agent. Credentials are verified as those of a call, which may ask an issuer.
///
/// # Errors
/// `InvalidInput` for a request that cannot be explained.
pub async fn explain_call(
    gateway: &Arc<Gateway>,
    request: ExplainRequest,
    head_limits: HeadLimits,
) -> Result<Explanation> {
    let config = gateway.config.load_full();
    let mut prepared = request.prepare(&config.auth)?;
    let mut dry_run = DryRun::new(&config, &prepared.head().headers);
    let explained = ExplainedCall { gateway, config: &config };
    match explained.decide(&mut dry_run, &mut prepared, head_limits).await {
        Ok(()) => Ok(dry_run.finish(Ok(()))),
        Err(Undecided::Refused(fault)) => Ok(dry_run.finish(Err(fault))),
        Err(Undecided::NotExplained(fault)) => Err(fault),
    }
}

/// Why a dry run ends before the agent.
enum Undecided {
    /// The call is refused.
    Refused(Fault),
    /// The request is none that a dry run explains.
    NotExplained(Fault),
}

impl From<Fault> for Undecided {
    fn from(fault: Fault) -> Self {
        Self::Refused(fault)
    }
}

/// The gateway and the configuration for which a call is explained.
struct ExplainedCall<'a> {
    gateway: &'a Arc<Gateway>,
    config: &'a Arc<ConfigSnapshot>,
}

impl ExplainedCall<'_> {
    async fn decide(
        &self,
        dry_run: &mut DryRun<'_>,
        prepared: &mut PreparedRequest,
        head_limits: HeadLimits,
    ) -> std::result::Result<(), Undecided> {
        let Self { gateway, config } = *self;
        let admission = AdmissionPipeline { gateway, config };
        prepared.validate_head(head_limits)?;
        dry_run.begin_step(DecisionStep::AddressLimit);
        let inspection = gateway.limits.inspect_for_address(prepared.address).await;
        dry_run.record_limits(inspection)?;
        if path_router::requests_event_stream(prepared.head().uri.path()) {
            let events = HeaderValue::from_static("text/event-stream");
            prepared.request.head.headers.insert(header::ACCEPT, events);
        }
        dry_run.begin_step(DecisionStep::Path);
        let head = prepared.request.head.clone();
        let invoke = match call_target(&head)? {
            ExplainedTarget::Invoke(invoke) => invoke,
            ExplainedTarget::Api(request) => return self.decide_api_request(dry_run, prepared, &request).await,
            ExplainedTarget::Completion(endpoint) => return self.decide_completion(dry_run, prepared, endpoint).await,
        };
        let location = if invoke.from_query { InputLocation::Query } else { InputLocation::Body };
        let request = AdmissionRequest {
            source: CallSource::HttpRequest,
            caller: caller_context(prepared, &head.headers),
            target: invoke.call,
            query: head.uri.query(),
            calls: NonZeroU32::MIN,
        };
        let authorized = admission.authorize(dry_run, &request).await?;
        if let Some(tier) = dry_run.explanation.tier.clone().filter(|tier| !gateway.limits.has_tier(tier)) {
            let detail = format!("limits.tiers has no tier '{tier}': the general limits apply");
            dry_run.add_detail(DecisionStep::RateLimits, detail);
        }
        dry_run.begin_step(DecisionStep::Method);
        check_method(&authorized, location)?;
        let body_length = prepared.request.body.as_ref().map_or(0, bytes::Bytes::len);
        let source = match location {
            InputLocation::Body => InputSource::Body(IncomingRequest::Complete(&mut prepared.request)),
            InputLocation::Query => InputSource::Query(head.uri.query().unwrap_or_default()),
        };
        let checked = admission.check_input(dry_run, authorized, source).await?;
        describe_input(dry_run, &checked.input);
        dry_run.begin_step(DecisionStep::Task);
        let task = TaskOptions::requested(config.tasks.as_ref(), &head, checked.route().runs_as_task)?;
        match task {
            Some(_) => dry_run.add_detail(DecisionStep::Task, "the call would become a task (none is started)"),
            None => dry_run.skip(DecisionStep::Task, "the call becomes no task"),
        }
        dry_run.begin_step(DecisionStep::Query);
        let query = agent_query(&head, &checked, location)?;
        dry_run.begin_step(DecisionStep::IdempotencyKey);
        skip_key(dry_run, &checked);
        let is_json = query.is_input || matches!(checked.input, CallInput::Batch(_));
        let sent = SentRequest { head: &head, is_json, query: query.forwarded.as_deref(), body_length };
        self.decide_agent(dry_run, prepared, &checked, sent)
    }

    /// Decides a request for a completion.
    async fn decide_completion(
        &self,
        dry_run: &mut DryRun<'_>,
        prepared: &mut PreparedRequest,
        endpoint: CompletionEndpoint,
    ) -> std::result::Result<(), Undecided> {
        let Self { gateway, config } = *self;
        let admission = AdmissionPipeline { gateway, config };
        let mut head = prepared.request.head.clone();
        let context = caller_context(prepared, &head.headers);
        let caller = openai::check_caller(admission, dry_run, &context).await?;
        let account = rate_limit_account(&caller, prepared.address);
        let account = BodyAccount { limits: &gateway.limits, client: account.client() };
        let incoming = IncomingBody::new(&mut prepared.request, dry_run.arrived_at() + EXPLAINED_BODY_TIMEOUT);
        let request = openai::read_request(gateway, &config.contract, endpoint, incoming, account).await?;
        let context = caller_context(prepared, &head.headers);
        let checked = openai::check_call(admission, dry_run, context, &request).await?;
        dry_run.skip(DecisionStep::Task, "a completion becomes no task");
        skip_key(dry_run, &checked);
        openai::set_agent_headers(&mut head.headers, &request);
        let body_length = checked.input.complete_bytes().map_or(0, <[u8]>::len);
        let sent = SentRequest { head: &head, is_json: false, query: None, body_length };
        self.decide_agent(dry_run, prepared, &checked, sent)
    }

    /// Decides whether the call would get a slot of its agent, and says what would be sent.
    fn decide_agent(
        &self,
        dry_run: &mut DryRun<'_>,
        prepared: &PreparedRequest,
        checked: &CheckedCall,
        sent: SentRequest<'_>,
    ) -> std::result::Result<(), Undecided> {
        let Self { gateway, config } = *self;
        inspect_concurrency(&AdmissionPipeline { gateway, config }, dry_run, checked)?;
        dry_run.begin_step(DecisionStep::Agent);
        dry_run.add_detail(DecisionStep::Agent, "not called: this is a dry run");
        let input = checked.input.complete_bytes();
        let outgoing = OutgoingCall {
            call_id: dry_run.call_id(),
            head: sent.head,
            address: prepared.address,
            is_secure: prepared.is_secure,
            call: checked.preview(),
            deadline: checked.deadline(),
            is_json: sent.is_json,
            query: sent.query,
            input,
            body_length: input.map_or(sent.body_length, <[u8]>::len),
        };
        let preview = preview_outgoing_call(&outgoing, config)?;
        dry_run.explanation.endpoint = Some(preview.endpoint);
        dry_run.explanation.request = preview.request;
        preview.refusal.map_or(Ok(()), |fault| Err(fault.into()))
    }
}

/// The caller's request, as far as the agent receives it.
struct SentRequest<'a> {
    head: &'a request::Parts,
    /// Whether the gateway writes the input as JSON.
    is_json: bool,
    query: Option<&'a str>,
    /// Of an input that is not read.
    body_length: usize,
}

impl ExplainedCall<'_> {
    /// Decides a request to an agent's own API.
    async fn decide_api_request(
        &self,
        dry_run: &mut DryRun<'_>,
        prepared: &PreparedRequest,
        request: &ApiRequest,
    ) -> std::result::Result<(), Undecided> {
        let Self { gateway, config } = *self;
        let admission = AdmissionPipeline { gateway, config };
        let head = &prepared.request.head;
        let handshake = websocket::is_websocket_request(head)
            .then(|| WebSocketHandshake::parse(head, &config.websockets, config.api_key_header.as_ref()))
            .transpose()?;
        let headers = handshake.as_ref().map_or(&head.headers, |handshake| &handshake.headers);
        let caller = caller_context(prepared, headers);
        let source = if handshake.is_some() { CallSource::ApiHandshake } else { CallSource::ApiRequest };
        let admission_request = AdmissionRequest { source, ..admission_request(request, caller, head.uri.query()) };
        let authorized = admission.authorize(dry_run, &admission_request).await?;
        dry_run.begin_step(DecisionStep::Operation);
        let api = find_api(authorized.route())?;
        let route = api.find_route(&head.method, request)?;
        dry_run.add_detail(DecisionStep::Operation, format!("the route {} of the agent's API", route.label()));
        route.check_caller(authorized.caller())?;
        dry_run.begin_step(DecisionStep::Input);
        let label = handshake.is_some().then_some("the frames of the WebSocket pass without validation");
        if let Some(operation) = route.into_operation() {
            let check = contract_check(gateway, &config.contract, &authorized);
            let mut violations = operation.check_parameters(check, head).await?;
            let body = prepared.request.body.clone().unwrap_or_default();
            if handshake.is_none() {
                violations.extend(operation.check_body(check, &head.headers, &body).await?);
            }
            let detail = match (label, violations.first()) {
                (Some(label), _) => label.to_owned(),
                (None, None) => "as the agent's OpenAPI document has it".to_owned(),
                (None, Some(first)) => {
                    format!("violates the agent's OpenAPI document, which is not enforced: {}", first.message)
                }
            };
            dry_run.add_detail(DecisionStep::Input, detail);
        } else {
            dry_run.add_detail(DecisionStep::Input, label.unwrap_or("the body passes without validation"));
        }
        let input = CallInput::Complete(prepared.request.body.clone().unwrap_or_default());
        inspect_concurrency(&admission, dry_run, &admission.pass_input(authorized, input))?;
        dry_run.begin_step(DecisionStep::Agent);
        dry_run.add_detail(DecisionStep::Agent, "not called: this is a dry run");
        Ok(())
    }
}

fn caller_context<'p>(prepared: &'p PreparedRequest, headers: &'p HeaderMap) -> CallerContext<'p> {
    CallerContext {
        headers,
        client_certificate: None,
        address: prepared.address,
        is_secure: prepared.is_secure,
        forwarded_host: None,
        assumed_key: prepared.assumed_key.as_deref(),
    }
}

/// Notes whether the call would get a slot of its agent.
fn inspect_concurrency(
    admission: &AdmissionPipeline<'_>,
    dry_run: &mut DryRun<'_>,
    checked: &CheckedCall,
) -> std::result::Result<(), Undecided> {
    let awaited = admission.inspect_admission(dry_run, checked)?;
    let mut detail = format!("{} calls to the agent are in progress", checked.route().in_flight());
    if let Some(setting) = awaited {
        detail.push_str("; the call would wait for a slot, for at most limits.concurrency.queue_timeout");
        dry_run.set_rule(DecisionStep::Concurrency, DecidingRule::of_concurrency(setting));
    }
    dry_run.add_detail(DecisionStep::Concurrency, detail);
    Ok(())
}

/// Notes that a dry run does not look up the idempotency key.
fn skip_key(dry_run: &mut DryRun<'_>, checked: &CheckedCall) {
    let detail = match checked.idempotency_key() {
        Some(_) => "not looked up: a stored answer, or a call in progress with this key, would decide",
        None => "the call has no key",
    };
    dry_run.skip(DecisionStep::IdempotencyKey, detail);
}

/// Notes what the input is.
fn describe_input(dry_run: &mut DryRun<'_>, input: &CallInput) {
    match input {
        CallInput::Streamed(_) => dry_run.add_detail(DecisionStep::Input, "the body passes without validation"),
        CallInput::Batch(items) => {
            let invalid = items.iter().filter(|(_, result)| result.is_err()).count();
            let detail = format!("a batch of {} inputs, of which {invalid} would be refused", items.len());
            dry_run.add_detail(DecisionStep::Input, detail);
        }
        CallInput::Complete(_) => {}
    }
}

/// A request that can be explained.
enum ExplainedTarget<'a> {
    Invoke(InvokeTarget<'a>),
    Api(ApiRequest),
    Completion(CompletionEndpoint),
}

/// Returns the call that a request asks for.
fn call_target(head: &request::Parts) -> std::result::Result<ExplainedTarget<'_>, Undecided> {
    let not_explained = |what: &str| {
        let message = format!("Only calls to agents are explained (this is {what})");
        Err(Undecided::NotExplained(Fault::new(FaultCode::InvalidInput, message)))
    };
    match path_router::match_request(&head.method, head.uri.path())? {
        RequestKind::Invoke(_) if websocket::is_websocket_request(head) => not_explained("a WebSocket handshake"),
        RequestKind::Invoke(invoke) => {
            if invoke.from_query {
                content_negotiation::refuse_event_stream_request(&head.headers)?;
            }
            Ok(ExplainedTarget::Invoke(invoke))
        }
        RequestKind::Api(request) => Ok(ExplainedTarget::Api(request)),
        RequestKind::Directory(..) => not_explained("a request of the directory"),
        RequestKind::Pipeline => not_explained("a pipeline"),
        RequestKind::Task(..) => not_explained("a request about a task"),
        RequestKind::Pair => not_explained("the pairing of a page"),
        RequestKind::OpenAi(OpenAiRequest::ChatCompletions) => {
            Ok(ExplainedTarget::Completion(CompletionEndpoint::ChatCompletions))
        }
        RequestKind::OpenAi(OpenAiRequest::Responses) => Ok(ExplainedTarget::Completion(CompletionEndpoint::Responses)),
        RequestKind::OpenAi(OpenAiRequest::Models | OpenAiRequest::Model(_)) => not_explained("a list of models"),
    }
}
