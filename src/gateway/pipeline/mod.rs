//! Pipelines: several agents, each called with the answer of the previous one. Every step is a subrequest with its own
//! authentication, limits, contract and access-log entry. All steps share one deadline, and no step starts before every
//! step is authorised. With an idempotency key the whole pipeline runs once.

mod idempotent_pipeline;
mod pipeline_definition;

use super::{
    CallError,
    admission::CallerContext,
    call::Call,
    content_negotiation,
    http_server::ServeOutcome,
    idempotent_call::wait_unless_caller_leaves,
    incoming_body::{BodyTimeout, IncomingBody},
    input_validation,
    request_handler::{RequestContext, requested_host},
    request_head::deadline_within,
    response_headers::number_idempotency_key,
    response_writer,
    route::is_json_content,
    subrequest::{CompleteReply, Subrequest},
};
use crate::{
    auth::{Caller, PresentedCredentials},
    contract,
    directory::DirectoryResponse,
    fault::{Fault, FaultCode, Result},
    idempotency,
    limit::RateLimitStatus,
    transport::HeaderMutations,
    values::json,
};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use idempotent_pipeline::PipelineKey;
use pingora_core::protocols::http::ServerSession;
use pipeline_definition::{PipelineDefinition, PipelineStep};
use serde_json::json;
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

/// The timeout of the request body, which describes the pipeline.
const BODY_TIMEOUT: Duration = Duration::from_secs(60);

impl RequestContext<'_> {
    /// Handles a pipeline (steps 6 to 12).
    pub(super) async fn handle_pipeline(
        &self,
        session: &mut ServerSession,
        call: &mut Call,
    ) -> std::result::Result<ServeOutcome, CallError> {
        let head = session.req_header().clone();
        let (caller, rate_limit_status) = self.authenticate_and_limit(call, &head.headers).await?;
        let body_timeout = BodyTimeout { connection: self.connection, deadline: call.arrived_at() + BODY_TIMEOUT };
        let mut incoming = IncomingBody::new(session, body_timeout);
        content_negotiation::check_json_body(incoming.headers())?;
        let body = incoming.read_complete(self.config.contract.max_body_size.get()).await?;
        let bounds = contract::JsonBounds { max_depth: self.config.contract.max_depth };
        let pipeline = PipelineDefinition::parse(&body, &contract::parse_json(&body, &bounds)?)?;
        let max_duration = self.authorize_steps(call, &pipeline, &step_headers(&head.headers, 0)).await?;
        let deadline = deadline_within(call, max_duration, &head.headers)?;
        call.set_caller(&caller);
        let forwarded = self.connection.forwarded_header(requested_host(&head));
        let run = PipelineRun { call_id: call.id().to_owned(), headers: head.headers.clone(), forwarded, deadline };
        let key = if self.config.idempotency.is_enabled() {
            idempotency::parse_key(&run.headers)?.map(str::to_owned)
        } else {
            None
        };
        let response = match key {
            None => pipeline_response(wait_unless_caller_leaves(session, self.run_steps(pipeline, run)).await??),
            Some(key) => {
                let pipeline_key =
                    PipelineKey::new(&caller, self.connection.peer_address.ip(), key, &body, &run.headers);
                self.run_once(session, pipeline, run, pipeline_key).await?
            }
        };
        response_writer::write_local_response(session, self.connection, call, response, rate_limit_status).await
    }

    /// Authenticates the caller and charges the pipeline as one request; each step is charged as another.
    async fn authenticate_and_limit(
        &self,
        call: &mut Call,
        headers: &HeaderMap,
    ) -> Result<(Arc<Caller>, Option<RateLimitStatus>)> {
        let presented = PresentedCredentials { headers, client_certificate: self.connection.client_identity() };
        let allow_anonymous = !self.config.auth.anonymous_caller().grants.is_empty();
        let caller = self.config.auth.authenticate_or_anonymous(&presented, allow_anonymous).await?;
        self.gateway.check_load(call, &caller)?;
        call.set_caller(&caller);
        let account = self.gateway.rate_limit_account(&caller, self.connection.peer_address.ip());
        let rate_limit_status = self.gateway.limits.acquire_for_directory(&account, false)?;
        Ok((caller, rate_limit_status))
    }

    /// Authorises every step before the first one runs; returns the longest total timeout of the agents.
    async fn authorize_steps(
        &self,
        call: &mut Call,
        pipeline: &PipelineDefinition,
        headers: &HeaderMap,
    ) -> Result<Duration> {
        let mut max_timeout = Duration::ZERO;
        for (index, step) in pipeline.steps.iter().enumerate() {
            let in_step = |fault| with_step(fault, index, step, 0);
            let result =
                self.gateway.find_and_authorize(self.config, call, &step.agent, self.caller_context(headers)).await;
            let (route, _) = result.map_err(in_step)?;
            route.ensure_active().map_err(in_step)?;
            input_validation::named_operation(&route, step.operation.as_deref(), headers).map_err(in_step)?;
            max_timeout = max_timeout.max(route.upstream.timeouts().total);
        }
        Ok(max_timeout)
    }

    /// Runs the steps in order. A step that fails ends the pipeline; nothing is retried.
    async fn run_steps(&self, pipeline: PipelineDefinition, run: PipelineRun) -> Result<CompleteReply> {
        let PipelineDefinition { steps, mut input } = pipeline;
        let (last, mut final_reply) = (steps.len() - 1, None);
        for (index, step) in steps.iter().enumerate() {
            let in_step = |fault| with_step(fault, index, step, index);
            let step_input = std::mem::take(&mut input);
            let reply = self.run_step(step, index, step_input, &run).await.map_err(in_step)?;
            match index == last {
                true => final_reply = Some(reply),
                false => input = next_input(reply).map_err(in_step)?,
            }
        }
        final_reply.ok_or_else(|| Fault::from(FaultCode::Internal).with_detail("a pipeline without steps"))
    }

    async fn run_step(
        &self,
        step: &PipelineStep,
        index: usize,
        input: Bytes,
        run: &PipelineRun,
    ) -> Result<CompleteReply> {
        if Instant::now() >= run.deadline {
            return Err(Fault::new(FaultCode::Timeout, "The time of the pipeline ended before this step"));
        }
        let headers = step_headers(&run.headers, index);
        let forwarding = HeaderMutations {
            forwarded: Some(&run.forwarded),
            credential_headers: self.config.auth.credential_headers(),
            set: &[],
        };
        let subrequest = Subrequest {
            context: self.caller_context(&headers),
            forwarding,
            call_id: Some(&run.call_id),
            exempt_from_shedding: true,
            agent: &step.agent,
            operation: step.operation.as_deref(),
            input,
            instruction: step.instruction.as_deref(),
            deadline: Some(run.deadline),
        };
        self.gateway.fetch_subrequest(self.config, subrequest).await
    }

    fn caller_context<'a>(&'a self, headers: &'a HeaderMap) -> CallerContext<'a> {
        CallerContext {
            headers,
            client_certificate: self.connection.client_identity(),
            address: self.connection.peer_address.ip(),
        }
    }
}

/// What all steps of a run share.
struct PipelineRun {
    call_id: String,
    headers: HeaderMap,
    forwarded: HeaderValue,
    deadline: Instant,
}

/// Returns the caller's headers for one step: without those that apply to the whole pipeline, and with an idempotency
/// key of the step, because no two steps are the same call.
fn step_headers(caller_headers: &HeaderMap, index: usize) -> HeaderMap {
    let mut headers = caller_headers.clone();
    for name in ["x-operation", "prefer", "content-encoding", "if-match", "if-none-match", "range"] {
        headers.remove(name);
    }
    number_idempotency_key(&mut headers, index);
    headers
}

/// Adds the step's index and agent, and the number of steps that ran before it, to a fault.
fn with_step(fault: Fault, index: usize, step: &PipelineStep, steps_run: usize) -> Fault {
    let agent = json::truncate(&step.agent, 128);
    let prefix = match steps_run {
        0 => format!("Step {index}: "),
        1 => format!("Step {index}, after 1 step has run: "),
        _ => format!("Step {index}, after {steps_run} steps have run: "),
    };
    fault
        .with_message_prefix(&prefix)
        .with_member("step", json!({"index": index, "agent": agent, "steps_run": steps_run}))
}

/// Returns an agent's answer as the input of the next step: JSON unchanged, text as a string, an empty answer as null.
fn next_input(reply: CompleteReply) -> Result<Bytes> {
    let unusable = |why: &str| {
        Fault::new(FaultCode::AgentError, format!("The answer cannot be the input of the next step: {why}"))
    };
    let text = std::str::from_utf8(&reply.body).map_err(|_| unusable("it is not text"))?;
    if text.trim().is_empty() {
        return Ok(Bytes::from_static(b"null"));
    }
    if is_json_content(reply.headers.get(header::CONTENT_TYPE)) {
        json::parse(&reply.body, json::MAX_DEPTH).map_err(|why| unusable("it is not JSON").with_detail(why))?;
        return Ok(reply.body);
    }
    Ok(Bytes::from(json!(text).to_string()))
}

/// Returns the answer of the last step as the pipeline's response.
fn pipeline_response(reply: CompleteReply) -> DirectoryResponse {
    let mut headers = HeaderMap::new();
    let json = HeaderValue::from_static("application/json");
    headers.insert(header::CONTENT_TYPE, reply.headers.get(header::CONTENT_TYPE).cloned().unwrap_or(json));
    let status = if reply.status == StatusCode::NO_CONTENT { reply.status } else { StatusCode::OK };
    DirectoryResponse { status, headers, body: reply.body }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_step_gets_its_own_idempotency_key() {
        let mut headers = HeaderMap::new();
        headers.insert("idempotency-key", HeaderValue::from_static("k"));
        headers.insert("x-operation", HeaderValue::from_static("all"));
        let step = step_headers(&headers, 3);
        assert_eq!(step.get("idempotency-key").unwrap(), "k.3");
        assert!(!step.contains_key("x-operation"));
    }
}
