//! Background calls: calls to an agent that own all their state and go on after their caller has left. A call becomes
//! one if it has an idempotency key or becomes a task.

use crate::{
    fault::{CallProgress, Fault, FaultCode, Result},
    gateway::{
        admission::{AdmissionPipeline, AdmissionRecorder as _, Admitted, AdmittedCall, CallInput},
        batch_call::BatchCall,
        call::{CallError, catch_panic},
        call_parameters::headers_from_query,
        exchange::Exchange,
        forwarded_query::AgentQuery,
        gateway_state::{ConfigSnapshot, Gateway},
        header_names::CALLBACK_URL,
        response::{
            CompleteReply, ReplyValidator, is_media_type_requested, is_message_sequence, redact_reported_card,
            unrequested_stream,
        },
        upstream::{UpstreamHead, UpstreamTarget, gateway_headers, send_upstream, set_json_headers},
    },
    trace::SpanScope,
    transport::{Admission as _, AttemptCount, BodyPrefix, RequestBody, UpstreamReply},
};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use std::{sync::Arc, time::Duration};
use tokio::time::Instant;

/// How long after its deadline a call may hold its concurrency permit.
const DEADLINE_GRACE: Duration = Duration::from_secs(5);

/// A call to an agent that owns everything it needs.
pub(in crate::gateway) struct BackgroundCall {
    pub(in crate::gateway) gateway: Arc<Gateway>,
    pub(in crate::gateway) config: Arc<ConfigSnapshot>,
    pub(in crate::gateway) admitted: Arc<Admitted>,
    forwarded: HeaderValue,
    pub(in crate::gateway) headers: HeaderMap,
    gateway_headers: Vec<(HeaderName, HeaderValue)>,
    call_id: String,
    query: Option<String>,
    /// The gateway's URL, as the caller knows it.
    base_url: String,
    /// The number of tries that the access-log entry of the call has.
    pub(in crate::gateway) attempts: Arc<AttemptCount>,
    /// The span below which the call to the agent is recorded.
    pub(in crate::gateway) trace: Option<SpanScope>,
    /// The input; whole, or a batch.
    input: CallInput,
}

/// The reply to a background call.
pub(in crate::gateway) enum BackgroundReply {
    /// A reply that was read completely and validated.
    Complete {
        reply: CompleteReply,
        /// The failure that the body reports in its protocol's own form.
        reported: Option<Fault>,
    },
    /// A reply that is forwarded as it arrives, without validation.
    Streamed(UpstreamReply),
}

impl BackgroundCall {
    /// Builds the call; its input is complete.
    pub(in crate::gateway) fn new(exchange: &Exchange<'_>, admitted_call: AdmittedCall, query: AgentQuery) -> Self {
        let AdmittedCall { admitted, input } = admitted_call;
        let head = exchange.session.head();
        let mut headers = head.headers.clone();
        if query.is_input || matches!(input, CallInput::Batch(_)) {
            set_json_headers(&mut headers);
        }
        headers.remove(CALLBACK_URL);
        let named_in_query = headers_from_query(head.uri.query(), &head.headers);
        let gateway_headers = gateway_headers(exchange.call, &admitted).chain(named_in_query).collect();
        Self {
            gateway: Arc::clone(exchange.gateway),
            config: Arc::clone(exchange.config),
            admitted: Arc::new(admitted),
            forwarded: exchange.forwarded_header(),
            headers,
            gateway_headers,
            call_id: exchange.call.id().to_owned(),
            query: query.forwarded,
            base_url: exchange.base_url(),
            attempts: exchange.call.stats.background_attempts(),
            trace: exchange.call.trace_scope().cloned(),
            input,
        }
    }

    /// Makes the call. Reads and validates a reply of at most `max_bytes` that is not a stream.
    ///
    /// # Errors
    /// The faults that the caller receives.
    pub(in crate::gateway) async fn run(mut self, max_bytes: usize) -> Result<BackgroundReply> {
        let (deadline, timeout) = (self.admitted.deadline(), self.admitted.deadline_timeout());
        run_isolated(deadline, self.read_reply(max_bytes)).await.map_err(|fault| timeout.name_in(fault))
    }

    /// Makes the call as [`BackgroundCall::run`] does, without the bound on its time.
    pub(in crate::gateway) async fn read_reply(&mut self, max_bytes: usize) -> Result<BackgroundReply> {
        let mut reply = match self.send().await? {
            BackgroundReply::Streamed(reply) if is_message_sequence(&reply.headers) => {
                self.check_is_requested(&reply)?;
                return Ok(BackgroundReply::Streamed(reply));
            }
            BackgroundReply::Streamed(reply) => reply,
            reply => return Ok(reply),
        };
        let BodyPrefix { bytes, complete } = reply.body.peek(max_bytes).await?;
        if !complete {
            return Ok(BackgroundReply::Streamed(reply));
        }
        let validator = self.validator();
        let reported = validator.judge(&reply, &bytes, true)?;
        validator.check_output_of_success(&reply, &bytes).await?;
        let mut complete = CompleteReply { status: reply.status, headers: reply.headers, body: bytes };
        redact_reported_card(&self.config.directory, self.admitted.agent_route(), &self.base_url, &mut complete);
        Ok(BackgroundReply::Complete { reply: complete, reported })
    }

    /// Refuses a stream that the caller did not ask for, where the output is validated.
    fn check_is_requested(&self, reply: &UpstreamReply) -> Result<()> {
        let operation = self.admitted.operation();
        let is_enforced = operation.contract.enforces_output()
            && reply.status.is_success()
            && !operation.is_other_output(reply.headers.get(header::CONTENT_TYPE));
        if is_enforced && !is_media_type_requested(&self.headers, &reply.headers) {
            return Err(unrequested_stream().with_progress(CallProgress::PossiblySent));
        }
        Ok(())
    }

    /// Sends the input; a batch returns a complete reply.
    async fn send(&mut self) -> Result<BackgroundReply> {
        let input = std::mem::replace(&mut self.input, CallInput::Streamed(Bytes::new()));
        let forwarding = self.config.header_mutations(&self.forwarded, &self.gateway_headers);
        let head = UpstreamHead {
            call_id: &self.call_id,
            target: UpstreamTarget::Operation,
            headers: &self.headers,
            query: self.query.as_deref(),
            forwarding,
            instruction: None,
            attempts: &self.attempts,
            trace: self.trace.as_ref(),
        };
        match input {
            CallInput::Batch(items) => {
                let admission = AdmissionPipeline { gateway: &self.gateway, config: &self.config };
                let body = BatchCall::new(admission, &self.admitted, head, &self.base_url).run(items).await;
                let mut headers = HeaderMap::new();
                headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
                let reply = CompleteReply { status: StatusCode::OK, headers, body };
                Ok(BackgroundReply::Complete { reply, reported: None })
            }
            CallInput::Complete(bytes) | CallInput::Streamed(bytes) => {
                let reply = send_upstream(&self.gateway, &self.admitted, head, RequestBody::from(bytes));
                reply.await.map(BackgroundReply::Streamed)
            }
        }
    }

    /// Returns the validator of the reply.
    pub(in crate::gateway) fn validator(&self) -> ReplyValidator<'_> {
        ReplyValidator { gateway: &self.gateway, contract_config: &self.config.contract, admitted: &self.admitted }
    }
}

/// Runs a call without a waiting caller: bounds its time, and turns a panic into a fault.
///
/// # Errors
/// The fault of the call; `Timeout` a few seconds after `deadline`.
pub(in crate::gateway) async fn run_isolated<T>(deadline: Instant, call: impl Future<Output = Result<T>>) -> Result<T> {
    let timed_out = |_| Err(Fault::new(FaultCode::Timeout, "The agent did not finish in time").with_deadline());
    let bounded = async {
        let result = tokio::time::timeout_at(deadline + DEADLINE_GRACE, call).await;
        result.unwrap_or_else(timed_out).map_err(CallError::Fault)
    };
    catch_panic(bounded).await.map_err(into_fault)
}

/// Converts an error into a fault; a background call has no caller that could leave.
fn into_fault(error: CallError) -> Fault {
    match error {
        CallError::Fault(fault) => fault,
        CallError::CallerGone => Fault::from(FaultCode::Internal).with_detail("a background call lost its caller"),
    }
}
