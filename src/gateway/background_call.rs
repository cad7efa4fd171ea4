//! Background calls: calls to an agent that own all their state and go on after their caller has left.

use super::{
    CallError, ConfigSnapshot, Gateway,
    admission::Admitted,
    batch::BatchCall,
    input_validation::CallInput,
    reply_validation::ReplyValidator,
    request_handler::catch_panic,
    streamed_response::{is_event_stream, is_message_sequence},
    subrequest::CompleteReply,
    upstream_request::UpstreamHead,
};
use crate::{
    auth::Caller,
    fault::{Fault, FaultCode, Result},
    task::{AgentReply, RunningTask, TaskOutcome},
    transport::{BodyPrefix, HeaderMutations, RequestBody, UpstreamReply},
};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use std::{net::IpAddr, sync::Arc, time::Duration};
use tokio::time::Instant;

/// How long after its deadline a call may hold its concurrency permit.
const DEADLINE_GRACE: Duration = Duration::from_secs(5);

/// A call to an agent, with everything that it needs.
pub(super) struct BackgroundCall {
    pub(super) gateway: Arc<Gateway>,
    pub(super) config: Arc<ConfigSnapshot>,
    pub(super) admitted: Arc<Admitted>,
    pub(super) caller: Arc<Caller>,
    pub(super) peer: IpAddr,
    pub(super) forwarded: HeaderValue,
    pub(super) headers: HeaderMap,
    pub(super) fields: Vec<(HeaderName, HeaderValue)>,
    pub(super) call_id: String,
    /// The input; whole, or a batch.
    pub(super) input: CallInput,
}

/// The reply to a background call.
pub(super) enum BackgroundReply {
    /// A reply that was read completely and validated.
    Complete(CompleteReply),
    /// A reply that is passed on as it arrives, without validation.
    Streamed(UpstreamReply),
}

impl BackgroundCall {
    /// Makes the call. Reads and validates a reply of at most `most` bytes that is not a stream.
    ///
    /// # Errors
    /// The faults that the caller receives.
    pub(super) async fn run(mut self, most: usize) -> Result<BackgroundReply> {
        run_isolated(self.admitted.expires_at(), self.read_reply(most)).await
    }

    /// Makes the call for a task. The events of a stream go to the task's followers as they arrive.
    pub(super) async fn run_as_task(mut self, task: &RunningTask, most: usize) -> TaskOutcome {
        match run_isolated(self.admitted.expires_at(), self.read_task_answer(task, most)).await {
            Ok(answer) => TaskOutcome::Completed(answer),
            Err(fault) => TaskOutcome::Failed(fault),
        }
    }

    async fn read_reply(&mut self, most: usize) -> Result<BackgroundReply> {
        let mut reply = match self.send().await? {
            BackgroundReply::Streamed(reply) if !is_message_sequence(&reply.headers) => reply,
            got => return Ok(got),
        };
        let BodyPrefix { bytes, complete } = reply.body.peek(most).await?;
        if !complete {
            return Ok(BackgroundReply::Streamed(reply));
        }
        let judge = self.validator();
        judge.reject_failure(&reply, &bytes, true)?;
        judge.check_output_of_success(&reply, &bytes)?;
        Ok(BackgroundReply::Complete(CompleteReply { status: reply.status, headers: reply.headers, body: bytes }))
    }

    /// Sends the input; a batch returns a complete reply.
    async fn send(&mut self) -> Result<BackgroundReply> {
        let input = std::mem::replace(&mut self.input, CallInput::Streamed(Bytes::new()));
        let forwarding = HeaderMutations {
            forwarded: Some(&self.forwarded),
            api_key_header: self.config.api_key_header.as_ref(),
            set: &self.fields,
        };
        let head = UpstreamHead { call_id: &self.call_id, headers: &self.headers, forwarding, instruction: None };
        let (gateway, admitted) = (&self.gateway, &*self.admitted);
        match input {
            CallInput::Batch(items) => {
                let account = gateway.rate_limit_account(&self.caller, self.peer);
                let (rules, own) = (&self.config.contract, tokio::sync::Mutex::default());
                let body = BatchCall { gateway, admitted, account, head, contract_config: rules, own_slot: own }
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

    async fn read_task_answer(&mut self, live: &RunningTask, most: usize) -> Result<AgentReply> {
        let mut reply = match self.read_reply(most).await? {
            BackgroundReply::Complete(whole) => {
                return Ok(task_answer(&whole.headers, (whole.status, whole.body), false));
            }
            BackgroundReply::Streamed(reply) => reply,
        };
        if !reply.status.is_success() {
            self.validator().read_complete(&mut reply).await?;
        }
        if is_event_stream(&reply.headers) {
            let (body, cut) = publish_events(&mut reply, live, most).await?;
            return Ok(task_answer(&reply.headers, (reply.status, body), cut));
        }
        let BodyPrefix { bytes, complete } = reply.body.peek(most).await?;
        if !complete {
            return Err(Fault::new(FaultCode::AgentError, "The agent's answer is too large to be stored"));
        }
        Ok(task_answer(&reply.headers, (reply.status, bytes), false))
    }

    fn validator(&self) -> ReplyValidator<'_> {
        ReplyValidator { gateway: &self.gateway, contract_config: &self.config.contract, admitted: &self.admitted }
    }
}

/// Runs a call without a waiting caller: bounds its time, and turns a panic into a fault.
async fn run_isolated<T>(deadline: Instant, call: impl Future<Output = Result<T>>) -> Result<T> {
    let late = |_| Err(Fault::new(FaultCode::Timeout, "The agent did not finish in time"));
    let timed = async {
        let called = tokio::time::timeout_at(deadline + DEADLINE_GRACE, call).await;
        called.unwrap_or_else(late).map_err(CallError::Fault)
    };
    catch_panic(timed).await.map_err(into_fault)
}

fn task_answer(headers: &HeaderMap, (status, body): (StatusCode, Bytes), truncated: bool) -> AgentReply {
    let media = headers.get(header::CONTENT_TYPE).and_then(|media| media.to_str().ok()).unwrap_or_default();
    AgentReply { status: status.as_u16(), media_type: media.into(), body, truncated }
}

/// Converts an early return into a fault; a background call has no caller that could leave.
fn into_fault(error: CallError) -> Fault {
    match error {
        CallError::Fault(fault) => fault,
        CallError::CallerGone => {
            Fault::new(FaultCode::Internal, "The gateway failed").with_detail("a background call lost its caller")
        }
    }
}

/// Publishes a stream of events to the task's followers. Returns the first `most` bytes of its text, and whether the
/// stream was longer.
pub(super) async fn publish_events(
    reply: &mut UpstreamReply,
    live: &RunningTask,
    most: usize,
) -> Result<(Bytes, bool)> {
    let (mut text, mut truncated) = (Vec::new(), false);
    while let Some(bytes) = reply.body.next_chunk().await.transpose()? {
        truncated |= text.len() + bytes.len() > most;
        if !truncated {
            text.extend_from_slice(&bytes);
        }
        live.push_agent_bytes(&bytes).await;
    }
    live.finish_agent_stream().await;
    Ok((text.into(), truncated))
}
