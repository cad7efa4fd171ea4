//! The request for a pipeline. With an idempotency key, a repeated key gets the stored response of the first run, or
//! waits for it; like any call with a key, the run goes on when its caller leaves.

use super::{
    pipeline_definition::PipelineDefinition,
    pipeline_run::{PipelineRun, step_headers, with_step},
};
use crate::{
    auth::Caller,
    directory::DirectoryResponse,
    fault::{Fault, FaultCode, Result},
    gateway::{
        admission::{
            AdmissionRecorder as _, BodyAccount, BodyBound, LocalAccess, LocalCaller, OwnBodyParser, named_operation,
            owner_key,
        },
        background::{ClaimOutcome, ScopedKey, claim_key, replayed_reply},
        call::CallResult,
        call_parameters::call_deadline,
        exchange::Exchange,
        header_names::{AGENT_VERSION, IDEMPOTENT_REPLAYED},
        response::CompleteReply,
    },
    http_server::ServeOutcome,
    idempotency::{self, FirstCallClaim, FirstOutcome},
    trace::CallPhase,
    transport::{TimeoutConfig, UpstreamTimeouts},
    values::StoreAnswer,
};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use std::{net::IpAddr, sync::Arc, time::Duration};
use tokio::sync::oneshot;

/// The timeout of the request body, which describes the pipeline.
const BODY_TIMEOUT: Duration = Duration::from_secs(60);

/// The target of pipeline keys, in place of an agent id; no agent has such an id.
const PIPELINE_SCOPE: &str = "/pipelines";

/// An idempotency key with its owner and the request digest.
struct PipelineKey {
    owner: Arc<str>,
    key: String,
    digest: [u8; 32],
}

impl PipelineKey {
    fn new(caller: &Caller, address: IpAddr, key: &str, body: &[u8], headers: &HeaderMap) -> Self {
        let version = headers.get(AGENT_VERSION).map(|version| version.as_bytes()).unwrap_or_default();
        let digest = idempotency::request_digest(&[body, version]);
        Self { owner: owner_key(caller, address), key: key.to_owned(), digest }
    }
}

/// Handles a pipeline (steps 6 to 12).
pub(in crate::gateway) async fn handle_pipeline(exchange: &mut Exchange<'_>) -> CallResult<ServeOutcome> {
    let config = exchange.config;
    let headers = exchange.session.head().headers.clone();
    let access = LocalAccess {
        allow_anonymous: config.auth.anonymous_caller().grants.has_grant(),
        is_search: false,
        changes_state: true,
    };
    let LocalCaller { caller, rate_limit_status } = exchange.authenticate_and_limit(access).await?;
    exchange.call.enter_phase(Some(CallPhase::Contract));
    let body = exchange.read_own_body(BodyBound::of_contract(&config.contract), BODY_TIMEOUT).await?;
    let parser = OwnBodyParser {
        gateway: exchange.gateway,
        config: &config.contract,
        account: BodyAccount { limits: &exchange.gateway.limits, client: exchange.client() },
        deadline: exchange.call.arrived_at() + BODY_TIMEOUT,
    };
    let parsed = Box::pin(parser.parse(body.clone())).await?;
    let definition = PipelineDefinition::parse(&body, &parsed.value)?;
    drop(parsed);
    let timeouts = authorize_steps(exchange, &definition, &step_headers(&headers, 0)).await?;
    let deadline = call_deadline(exchange.call.arrived_at(), &timeouts, &headers)?;
    exchange.call.record_deadline(deadline.source);
    let address = exchange.connection.client_address();
    let key = if config.idempotency.is_enabled() { idempotency::parse_key(&headers)? } else { None };
    let key = key.map(|key| PipelineKey::new(&caller, address, key, &body, &headers));
    let run = PipelineRun {
        gateway: Arc::clone(exchange.gateway),
        config: Arc::clone(config),
        connection: Arc::clone(exchange.connection),
        definition,
        call_id: exchange.call.id().to_owned(),
        forwarded: exchange.forwarded_header(),
        headers,
        deadline,
        trace: exchange.call.trace_scope().cloned(),
    };
    exchange.call.enter_phase(None);
    let response = match key {
        None => pipeline_response(exchange.wait_unless_caller_leaves(run.run()).await??),
        Some(key) => run_once(exchange, run, key).await?,
    };
    exchange.respond_locally(response, rate_limit_status.as_ref()).await
}

/// Authorises every step before the first one runs; returns the timeouts of the agent with the longest total.
async fn authorize_steps(
    exchange: &mut Exchange<'_>,
    pipeline: &PipelineDefinition,
    headers: &HeaderMap,
) -> Result<UpstreamTimeouts> {
    let context = exchange.connection.caller_context(headers);
    let mut longest: Option<UpstreamTimeouts> = None;
    for (index, step) in pipeline.steps.iter().enumerate() {
        let in_step = |fault| with_step(fault, index, step, 0);
        let found = exchange.authorization().find_and_authorize(&step.agent, &context).await;
        let route = match found {
            Ok(found) => found.route,
            Err(refusal) => {
                exchange.call.record_access_refusal(refusal.rule, &step.agent);
                return Err(in_step(refusal.fault));
            }
        };
        route.ensure_active().map_err(in_step)?;
        named_operation(&route, step.operation.as_deref(), headers).map_err(in_step)?;
        let timeouts = *route.upstream.timeouts();
        longest = Some(longest.filter(|longest| longest.total >= timeouts.total).unwrap_or(timeouts));
    }
    Ok(longest.unwrap_or_else(|| UpstreamTimeouts::from(&TimeoutConfig::default())))
}

/// Runs the pipeline, or returns the stored response of the first run.
async fn run_once(exchange: &mut Exchange<'_>, run: PipelineRun, key: PipelineKey) -> CallResult<DirectoryResponse> {
    let PipelineKey { owner, key, digest } = key;
    let scoped_key =
        ScopedKey { owner: &owner, client: exchange.client(), target: &PIPELINE_SCOPE.into(), key: &key, digest };
    match claim_key(exchange, scoped_key, run.deadline.at).await? {
        ClaimOutcome::First(mut claim) => {
            claim.begin()?;
            let result = exchange.wait_unless_caller_leaves(spawn_run(run, claim)).await?;
            let result = result.unwrap_or_else(|_| Err(Fault::from(FaultCode::Internal)));
            Ok(pipeline_response(result?))
        }
        ClaimOutcome::Completed(outcome) => {
            let mut response = pipeline_response(replayed_reply(outcome)?);
            response.headers.insert(IDEMPOTENT_REPLAYED, HeaderValue::from_static("true"));
            Ok(response)
        }
    }
}

/// Runs the pipeline in a background task, which continues when the caller leaves.
fn spawn_run(run: PipelineRun, claim: FirstCallClaim) -> oneshot::Receiver<Result<CompleteReply>> {
    let (sender, receiver) = oneshot::channel();
    tokio::spawn(async move {
        let result = run.run().await;
        store_outcome(claim, &result).await;
        // The caller may be gone.
        drop(sender.send(result));
    });
    receiver
}

/// Returns the answer of the last step as the pipeline's response.
fn pipeline_response(reply: CompleteReply) -> DirectoryResponse {
    let mut headers = HeaderMap::new();
    let json = HeaderValue::from_static("application/json");
    headers.insert(header::CONTENT_TYPE, reply.headers.get(header::CONTENT_TYPE).cloned().unwrap_or(json));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("private"));
    let status = if reply.status == StatusCode::NO_CONTENT { reply.status } else { StatusCode::OK };
    DirectoryResponse { status, headers, body: reply.body }
}

/// Stores the outcome. If the first agent certainly executed nothing, the key is released and a retry runs the
/// pipeline; in every other case an agent may have executed a step.
fn store_outcome(claim: FirstCallClaim, result: &Result<CompleteReply>) -> StoreAnswer<'static, ()> {
    match result {
        Ok(CompleteReply { status, headers, body }) => {
            let content_type =
                headers.get(header::CONTENT_TYPE).map(|content_type| (header::CONTENT_TYPE, content_type.clone()));
            let headers = HeaderMap::from_iter(content_type);
            claim.complete(FirstOutcome::Response { status: *status, headers, body: body.clone() })
        }
        Err(fault) if fault.is_never_executed() && has_run_no_step(fault) => claim.release(),
        Err(fault) => claim.complete(FirstOutcome::Failed(fault.clone())),
    }
}

fn has_run_no_step(fault: &Fault) -> bool {
    fault
        .extra_members()
        .any(|(name, step)| name == "step" && step.get("steps_run").is_some_and(|steps_run| steps_run == 0))
}
