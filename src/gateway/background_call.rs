//! Background calls: calls to an agent that own all their state and go on after their caller has left. A call becomes
//! one if it has an idempotency key or becomes a task.

use super::{
    CallError, ConfigSnapshot, Gateway,
    admission::{Admitted, AuthorizedCall},
    batch::BatchCall,
    call::Call,
    http_server::ServeOutcome,
    idempotent_call::{KeyOutcome, run_first_call},
    input_validation::CallInput,
    reply_validation::ReplyValidator,
    request_handler::{CheckedInput, RequestContext, catch_panic},
    respond_async::{TaskCall, TaskOptions},
    responder::Responder,
    streamed_response::{is_event_stream, is_message_sequence},
    subrequest::CompleteReply,
    upstream_request::UpstreamHead,
};
use crate::{
    auth::Caller,
    fault::{Fault, FaultCode, Result},
    limit::Permit,
    task::{AgentReply, RunningTask, TaskOutcome},
    transport::{Admission as _, BodyPrefix, HeaderMutations, RequestBody, UpstreamReply},
};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use pingora_core::protocols::http::ServerSession;
use std::{net::IpAddr, sync::Arc, time::Duration};
use tokio::time::Instant;

/// How long after its deadline a call may hold its concurrency permit.
const DEADLINE_GRACE: Duration = Duration::from_secs(5);

/// A request whose call runs in the background.
pub(super) struct BackgroundRequest<'a> {
    pub(super) authorized: AuthorizedCall,
    /// The concurrency permit; `None` if it is acquired only when this is the first call with its key.
    pub(super) permit: Option<Permit>,
    pub(super) idempotency_key: Option<String>,
    pub(super) input: CheckedInput<'a>,
    pub(super) task_options: Option<TaskOptions>,
}

impl RequestContext<'_> {
    /// Handles steps 9 to 12 of a request whose call runs in the background.
    pub(super) async fn respond_in_background(
        &self,
        session: &mut ServerSession,
        call: &mut Call,
        mut request: BackgroundRequest<'_>,
    ) -> std::result::Result<ServeOutcome, CallError> {
        let claim = match request.idempotency_key.take() {
            None => None,
            Some(key) => match self.claim_or_replay(session, call, &key, &mut request).await? {
                KeyOutcome::First(claim) => Some(claim),
                KeyOutcome::Replayed(outcome) => return Ok(outcome),
            },
        };
        let BackgroundRequest { authorized, permit, input, task_options, .. } = request;
        let permit = match permit {
            Some(permit) => permit,
            None => self.gateway.limits.acquire_permit(&authorized.route.limits).await?,
        };
        let permitted = authorized.with_permit(permit);
        let (caller, rate_limit_status) =
            (Arc::clone(&permitted.authorized.caller), permitted.authorized.rate_limit_status);
        let admitted = Arc::new(permitted.admit(input.operation, input.body_timeout.deadline));
        let background =
            self.build_background_call(session, call, (Arc::clone(&admitted), Arc::clone(&caller)), input).await?;
        if let Some(options) = task_options {
            let task_call = TaskCall { background, options, claim, rate_limit_status };
            return self.respond_with_task(session, call, task_call).await;
        }
        let Some(claim) = claim else {
            return Err(Fault::from(FaultCode::Internal).with_detail("neither a task nor a key").into());
        };
        let responder = Responder {
            gateway: self.gateway,
            config: self.config,
            connection: self.connection,
            admitted: &admitted,
            caller: &caller,
            rate_limit_status: rate_limit_status.as_ref(),
        };
        let sent_at = std::time::Instant::now();
        let response = run_first_call(session, call, responder, background, claim).await;
        call.stats.upstream_duration = Some(sent_at.elapsed());
        response
    }
}

/// A call to an agent that owns everything it needs.
pub(super) struct BackgroundCall {
    pub(super) gateway: Arc<Gateway>,
    pub(super) config: Arc<ConfigSnapshot>,
    pub(super) admitted: Arc<Admitted>,
    pub(super) caller: Arc<Caller>,
    pub(super) peer: IpAddr,
    pub(super) forwarded: HeaderValue,
    pub(super) headers: HeaderMap,
    pub(super) gateway_headers: Vec<(HeaderName, HeaderValue)>,
    pub(super) call_id: String,
    /// The input; whole, or a batch.
    pub(super) input: CallInput,
}

/// The reply to a background call.
pub(super) enum BackgroundReply {
    /// A reply that was read completely and validated.
    Complete(CompleteReply),
    /// A reply that is forwarded as it arrives, without validation.
    Streamed(UpstreamReply),
}

impl BackgroundCall {
    /// Makes the call. Reads and validates a reply of at most `max_bytes` that is not a stream.
    ///
    /// # Errors
    /// The faults that the caller receives.
    pub(super) async fn run(mut self, max_bytes: usize) -> Result<BackgroundReply> {
        run_isolated(self.admitted.deadline(), self.read_reply(max_bytes)).await
    }

    /// Makes the call for a task. The events of a stream go to the task's followers as they arrive.
    pub(super) async fn run_as_task(mut self, task: &RunningTask, max_bytes: usize) -> TaskOutcome {
        match run_isolated(self.admitted.deadline(), self.read_task_reply(task, max_bytes)).await {
            Ok(reply) => TaskOutcome::Completed(reply),
            Err(fault) => TaskOutcome::Failed(fault),
        }
    }

    async fn read_reply(&mut self, max_bytes: usize) -> Result<BackgroundReply> {
        let mut reply = match self.send().await? {
            BackgroundReply::Streamed(reply) if !is_message_sequence(&reply.headers) => reply,
            reply => return Ok(reply),
        };
        let BodyPrefix { bytes, complete } = reply.body.peek(max_bytes).await?;
        if !complete {
            return Ok(BackgroundReply::Streamed(reply));
        }
        let validator = self.validator();
        validator.reject_failure(&reply, &bytes, true)?;
        validator.check_output_of_success(&reply, &bytes)?;
        Ok(BackgroundReply::Complete(CompleteReply { status: reply.status, headers: reply.headers, body: bytes }))
    }

    /// Sends the input; a batch returns a complete reply.
    async fn send(&mut self) -> Result<BackgroundReply> {
        let input = std::mem::replace(&mut self.input, CallInput::Streamed(Bytes::new()));
        let forwarding = HeaderMutations {
            forwarded: Some(&self.forwarded),
            credential_headers: self.config.auth.credential_headers(),
            set: &self.gateway_headers,
        };
        let head = UpstreamHead { call_id: &self.call_id, headers: &self.headers, forwarding, instruction: None };
        let (gateway, admitted) = (&self.gateway, &*self.admitted);
        match input {
            CallInput::Batch(items) => {
                let account = gateway.rate_limit_account(&self.caller, self.peer);
                let (contract_config, own_slot) = (&self.config.contract, tokio::sync::Mutex::default());
                let body = BatchCall { gateway, admitted, account, head, contract_config, own_slot }
                    .run(items, &self.call_id)
                    .await;
                let mut headers = HeaderMap::new();
                headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
                Ok(BackgroundReply::Complete(CompleteReply { status: StatusCode::OK, headers, body }))
            }
            CallInput::Complete(bytes) | CallInput::Streamed(bytes) => {
                gateway.send_upstream(admitted, head, RequestBody::from(bytes)).await.map(BackgroundReply::Streamed)
            }
        }
    }

    async fn read_task_reply(&mut self, task: &RunningTask, max_bytes: usize) -> Result<AgentReply> {
        let mut reply = match self.read_reply(max_bytes).await? {
            BackgroundReply::Complete(complete) => {
                return Ok(task_reply(&complete.headers, complete.status, complete.body, false));
            }
            BackgroundReply::Streamed(reply) => reply,
        };
        if !reply.status.is_success() {
            self.validator().read_complete(&mut reply).await?;
        }
        if is_event_stream(&reply.headers) {
            let (body, truncated) = publish_events(&mut reply, task, max_bytes).await?;
            return Ok(task_reply(&reply.headers, reply.status, body, truncated));
        }
        let BodyPrefix { bytes, complete } = reply.body.peek(max_bytes).await?;
        if !complete {
            return Err(Fault::new(FaultCode::AgentError, "The agent's answer is too large to be stored"));
        }
        Ok(task_reply(&reply.headers, reply.status, bytes, false))
    }

    fn validator(&self) -> ReplyValidator<'_> {
        ReplyValidator { gateway: &self.gateway, contract_config: &self.config.contract, admitted: &self.admitted }
    }
}

/// Runs a call without a waiting caller: bounds its time, and turns a panic into a fault.
async fn run_isolated<T>(deadline: Instant, call: impl Future<Output = Result<T>>) -> Result<T> {
    let timed_out = |_| Err(Fault::new(FaultCode::Timeout, "The agent did not finish in time"));
    let bounded = async {
        let result = tokio::time::timeout_at(deadline + DEADLINE_GRACE, call).await;
        result.unwrap_or_else(timed_out).map_err(CallError::Fault)
    };
    catch_panic(bounded).await.map_err(into_fault)
}

fn task_reply(headers: &HeaderMap, status: StatusCode, body: Bytes, truncated: bool) -> AgentReply {
    let media_type = headers.get(header::CONTENT_TYPE).and_then(|media| media.to_str().ok()).unwrap_or_default();
    AgentReply { status: status.as_u16(), media_type: media_type.into(), body, truncated }
}

/// Converts an error into a fault; a background call has no caller that could leave.
fn into_fault(error: CallError) -> Fault {
    match error {
        CallError::Fault(fault) => fault,
        CallError::CallerGone => Fault::from(FaultCode::Internal).with_detail("a background call lost its caller"),
    }
}

/// Publishes a stream of events to the task's followers. Returns the first `max_bytes` of its text, and whether the
/// stream was longer.
pub(super) async fn publish_events(
    reply: &mut UpstreamReply,
    task: &RunningTask,
    max_bytes: usize,
) -> Result<(Bytes, bool)> {
    let (mut text, mut truncated) = (Vec::new(), false);
    while let Some(bytes) = reply.body.next_chunk().await.transpose()? {
        truncated |= text.len() + bytes.len() > max_bytes;
        if !truncated {
            text.extend_from_slice(&bytes);
        }
        task.push_agent_bytes(&bytes).await;
    }
    task.finish_agent_stream().await;
    Ok((text.into(), truncated))
}
