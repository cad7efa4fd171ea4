//! Subrequests: calls that the gateway makes for a pipeline step, a WebSocket message or an MQTT task. A subrequest
//! takes every step of a call and has its own access-log entry; the code that sends it turns the reply into a response.

use super::{
    admission::{
        AdmissionPipeline, AdmissionRecorder as _, AdmissionRequest, Admitted, AdmittedCall, CallInput, CallSource,
        CallerContext, InputSource,
    },
    call::{Call, CallState},
    call_parameters::CallDeadline,
    gateway_state::{ConfigSnapshot, Gateway},
    path_router::CallTarget,
    response::{CompleteReply, ReplyValidator, redact_reported_card},
    upstream::{UpstreamHead, UpstreamTarget, gateway_headers, send_upstream, set_json_headers},
};
use crate::{
    fault::{Fault, FaultCode, Result},
    trace::{SpanKind, TraceOrigin},
    transport::{HeaderMutations, RequestBody, UpstreamReply},
};
use bytes::Bytes;
use http::{HeaderValue, header};
use std::{num::NonZeroU32, sync::Arc, time::Instant};

/// A call that the gateway makes on behalf of a caller.
pub(super) struct Subrequest<'a> {
    /// The credentials and the other header fields of the caller.
    pub(super) context: CallerContext<'a>,
    /// What the agent receives about the caller; its `set` is replaced.
    pub(super) forwarding: HeaderMutations<'a>,
    /// The id of the call that this is a part of; `None` creates a new id.
    pub(super) call_id: Option<&'a str>,
    /// Whether this is a part of an admitted call, and so exempt from load shedding.
    pub(super) exempt_from_shedding: bool,
    /// The agent id, with an optional `@version`; not validated yet.
    pub(super) agent: &'a str,
    /// The operation; `None` leaves the choice to the input.
    pub(super) operation: Option<&'a str>,
    /// The input: one JSON value, not a batch. A fault refuses the subrequest once its caller is authorised and within its
    /// rate limits.
    pub(super) input: Result<Bytes>,
    /// The instruction to the agent in words; a member of the input if the agent's transport has no field for it and its
    /// schema accepts one.
    pub(super) instruction: Option<&'a str>,
    /// The deadline, if it is earlier than the agent's own.
    pub(super) deadline: Option<CallDeadline>,
    /// The span of the subrequest, where its call is traced.
    pub(super) trace: Option<SubrequestTrace<'a>>,
}

/// The span of a subrequest.
#[derive(Clone, Copy)]
pub(super) struct SubrequestTrace<'a> {
    pub(super) origin: TraceOrigin<'a>,
    pub(super) name: &'static str,
    pub(super) kind: SpanKind,
}

/// The reply to a subrequest, whose body is still unread. It holds the agent's concurrency permit until it is dropped.
pub(super) struct SubrequestReply {
    /// Before the call, whose span ends after those of the reply.
    pub(super) reply: UpstreamReply,
    call: Call,
    pub(super) admitted: Admitted,
    sent_at: Instant,
}

/// Who makes a subrequest: the gateway, with this configuration.
#[derive(Clone, Copy)]
pub(super) struct SubrequestSender<'a> {
    pub(super) gateway: &'a Arc<Gateway>,
    pub(super) config: &'a ConfigSnapshot,
}

/// The reply to a subrequest that was sent.
struct SentSubrequest {
    admitted: Admitted,
    reply: UpstreamReply,
    sent_at: Instant,
}

impl SubrequestSender<'_> {
    /// Sends a subrequest (steps 5 to 11) that accepts JSON.
    ///
    /// # Errors
    /// The faults that a request is refused with.
    pub(super) async fn send(&self, subrequest: Subrequest<'_>) -> Result<SubrequestReply> {
        self.send_accepting(subrequest, HeaderValue::from_static("application/json")).await
    }

    /// Sends a subrequest with this `Accept`.
    ///
    /// # Errors
    /// As [`SubrequestSender::send`].
    pub(super) async fn send_accepting(
        &self,
        subrequest: Subrequest<'_>,
        accept: HeaderValue,
    ) -> Result<SubrequestReply> {
        let mut call = Call::start(self.gateway, Some(subrequest.context.address));
        call.set_subrequest(subrequest.call_id, subrequest.agent);
        call.exempt_from_shedding = subrequest.exempt_from_shedding;
        if let (Some(tracer), Some(trace)) = (&self.config.tracer, subrequest.trace) {
            call.start_trace(tracer, trace.origin, trace.name, trace.kind);
        }
        match self.admit_and_send(&mut call, subrequest, accept).await {
            Ok(SentSubrequest { admitted, reply, sent_at }) => Ok(SubrequestReply { call, admitted, reply, sent_at }),
            Err(fault) => {
                call.state = CallState::Refused(fault.clone());
                Err(fault)
            }
        }
    }

    /// Sends a subrequest, reads its reply completely and requires a success (R40): the next agent of a pipeline and a
    /// client of a broker do not read failures from bodies, not even errors of JSON-RPC.
    ///
    /// # Errors
    /// As [`SubrequestSender::send`], the faults of the reply, and `AgentError` for a status that is not a success or a
    /// body that reports a failure in its protocol's own form.
    pub(super) async fn fetch(&self, subrequest: Subrequest<'_>) -> Result<CompleteReply> {
        let (reply, reported) = self.send(subrequest).await?.read_and_judge(self.gateway, self.config).await?;
        match reported {
            Some(fault) => Err(fault),
            None if reply.status.is_success() => Ok(reply),
            None => Err(Fault::from(FaultCode::AgentError).with_detail(reply.status)),
        }
    }

    async fn admit_and_send(
        &self,
        call: &mut Call,
        subrequest: Subrequest<'_>,
        accept: HeaderValue,
    ) -> Result<SentSubrequest> {
        let Subrequest { context, forwarding, agent, operation, input, instruction, deadline, .. } = subrequest;
        call.stats.bytes_in = input.as_ref().map_or(0, |input| input.len() as u64);
        let admission = AdmissionPipeline { gateway: self.gateway, config: self.config };
        let (agent, version) = agent.split_once('@').map_or((agent, None), |(agent, version)| (agent, Some(version)));
        let request = AdmissionRequest {
            source: CallSource::Subrequest,
            caller: context,
            target: CallTarget { agent, version, operation, may_be_agent: false },
            query: None,
            calls: NonZeroU32::MIN,
        };
        let mut authorized = admission.authorize(call, &request).await?;
        let input = input?;
        deadline.into_iter().for_each(|deadline| authorized.shorten_deadline(deadline));
        // R111: a transport with a field for the instruction takes objects and strings unchanged; to any other value,
        // the instruction is added in an object around it.
        let is_object_or_string = matches!(input.trim_ascii_start().first(), Some(b'{' | b'"'));
        let is_separate = is_object_or_string && authorized.route().upstream.accepts_instructions();
        let (merged_instruction, instruction) = if is_separate { (None, instruction) } else { (instruction, None) };
        let source = match merged_instruction {
            Some(instruction) => InputSource::Instructed { input, instruction },
            None => InputSource::Complete(input),
        };
        let checked = admission.check_input(call, authorized, source).await?;
        if matches!(checked.input, CallInput::Batch(_)) {
            return Err(Fault::new(FaultCode::InvalidInput, "A batch is not accepted here (send one input)"));
        }
        let AdmittedCall { admitted, input } = admission.admit(call, checked).await?;
        let CallInput::Complete(input) = input else {
            return Err(Fault::from(FaultCode::Internal).with_detail("a subrequest whose input is not complete"));
        };
        let mut headers = context.headers.clone();
        set_json_headers(&mut headers);
        headers.insert(header::ACCEPT, accept);
        let gateway_headers: Vec<_> = gateway_headers(call, &admitted).collect();
        let sent_at = call.record_sent();
        let head = UpstreamHead {
            call_id: call.id(),
            target: UpstreamTarget::Operation,
            headers: &headers,
            query: None,
            forwarding: HeaderMutations { set: &gateway_headers, ..forwarding },
            instruction,
            attempts: call.stats.attempts(),
            trace: call.trace_scope(),
        };
        let reply = send_upstream(self.gateway, &admitted, head, RequestBody::from(input)).await;
        call.stats.upstream_duration = Some(sent_at.elapsed());
        Ok(SentSubrequest { admitted, reply: reply?, sent_at })
    }
}

impl SubrequestReply {
    /// Reads and validates the complete reply, and ends the subrequest. A failure that the body reports in its protocol's
    /// own form, such as an error of JSON-RPC, passes.
    ///
    /// # Errors
    /// The reply is a failure, violates an enforced contract, or is too large.
    pub(super) async fn read_complete(self, gateway: &Gateway, config: &ConfigSnapshot) -> Result<CompleteReply> {
        self.read_and_judge(gateway, config).await.map(|(reply, _)| reply)
    }

    /// Reads the reply as [`SubrequestReply::read_complete`] does. Also returns the failure that passes.
    async fn read_and_judge(
        mut self,
        gateway: &Gateway,
        config: &ConfigSnapshot,
    ) -> Result<(CompleteReply, Option<Fault>)> {
        let validator = ReplyValidator { gateway, contract_config: &config.contract, admitted: &self.admitted };
        let body = validator.read(&mut self.reply).await;
        self.call.record_reply();
        self.call.stats.upstream_duration = Some(self.sent_at.elapsed());
        let judged = match body {
            Ok(body) => validator.judge_body(&self.reply, body).await,
            Err(fault) => Err(fault),
        };
        self.call.record_response_head();
        match judged {
            Ok((body, reported)) => {
                self.call.record_agent_error(reported.clone());
                self.record_completed(body.len() as u64);
                let mut complete = CompleteReply { status: self.reply.status, headers: self.reply.headers, body };
                // Not every front end has a URL of the gateway: without a configured one, the card has paths.
                let base_url = config.directory.base_url().unwrap_or_default();
                redact_reported_card(&config.directory, self.admitted.agent_route(), base_url, &mut complete);
                Ok((complete, reported))
            }
            Err(fault) => {
                self.call.state = CallState::Refused(fault.clone());
                Err(fault)
            }
        }
    }

    /// Records that the complete reply, `bytes` long, was forwarded.
    pub(super) fn record_completed(&mut self, bytes: u64) {
        self.call.stats.bytes_out = bytes;
        self.call.state = CallState::Answered(self.reply.status.as_u16());
    }

    /// Records that the reply failed after its first part was forwarded.
    pub(super) fn record_failed(&mut self, fault: Fault) {
        self.call.state = CallState::FailedMidResponse(self.reply.status.as_u16(), fault);
    }
}
