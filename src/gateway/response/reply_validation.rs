//! Validation of an agent's reply before it is used: detection of errors embedded in successful replies, and the
//! operation's output contract.

use super::{
    error_events::ErrorEventDetector,
    media_types::is_event_stream,
    response_normalization::{AgentResponse, ResponseVerdict, classify_response, may_embed_error},
};
use crate::{
    contract::{self, CheckWork, HeavyCheckRequest},
    fault::{CallProgress, Fault, FaultCode, Result, Violation},
    gateway::{admission::Admitted, gateway_state::Gateway},
    telemetry::ShadowRule,
    transport::{Admission as _, BodyPrefix, ReplyBody, UpstreamReply},
};
use bytes::Bytes;
use http::{HeaderMap, StatusCode, header};
use serde_json::Value;
use std::time::Instant;

/// Validates the replies to one call.
pub(in crate::gateway) struct ReplyValidator<'a> {
    pub(in crate::gateway) gateway: &'a Gateway,
    pub(in crate::gateway) contract_config: &'a contract::ContractConfig,
    pub(in crate::gateway) admitted: &'a Admitted,
}

impl ReplyValidator<'_> {
    /// Returns the fault if the reply is a failure, judged by its head and the part of its body that was read.
    pub(in crate::gateway) fn reject_failure(&self, reply: &UpstreamReply, body: &[u8], complete: bool) -> Result<()> {
        self.judge(reply, body, complete).map(drop)
    }

    /// Returns the fault if a message of a stream is an embedded error (R41).
    pub(in crate::gateway) fn embedded_error(&self, message: &[u8]) -> Option<Fault> {
        if !may_embed_error(message) {
            return None;
        }
        let body = ReplyBody::from(Bytes::new());
        let reply = UpstreamReply { status: StatusCode::OK, headers: HeaderMap::new(), body, credential_sent: false };
        self.reject_failure(&reply, message, true).err()
    }

    /// Returns the failure that the events of a reply report (R40). `events` end early if they are not `complete`: their
    /// last one is not that of the stream.
    pub(in crate::gateway) fn find_error_event(&self, events: &Bytes, complete: bool) -> Option<Fault> {
        let mut detector = ErrorEventDetector::new(self.admitted.operation().declared_members);
        detector.push(events).or_else(|| detector.finish().filter(|_| complete))
    }

    /// Judges a reply as [`ReplyValidator::reject_failure`] does. Also returns the failure that a body reports which
    /// passes as it is, such as an error of JSON-RPC.
    pub(in crate::gateway) fn judge(
        &self,
        reply: &UpstreamReply,
        body: &[u8],
        complete: bool,
    ) -> Result<Option<Fault>> {
        match classify_response(&AgentResponse {
            status: reply.status,
            headers: &reply.headers,
            body,
            complete,
            declared_members: self.admitted.operation().declared_members,
            credential_sent: reply.credential_sent,
            has_session: self.admitted.session_hash().is_some(),
            read_errors: self.admitted.read_errors(),
            error_details: &self.admitted.agent_route().error_details,
            logs_body: self.admitted.agent_route().logs_error_bodies,
        }) {
            ResponseVerdict::Pass => Ok(None),
            ResponseVerdict::PassError(fault) => Ok(Some(fault)),
            ResponseVerdict::Fault(fault) => Err(fault),
        }
    }

    /// Validates a body against the agent's output contract (R33), before the call's deadline. A violation is logged or,
    /// if the contract is enforced, a fault of the agent.
    pub(in crate::gateway) async fn check_output(&self, body: &[u8]) -> Result<()> {
        self.check_output_until(body, self.admitted.deadline().into_std()).await
    }

    /// Validates a body as [`ReplyValidator::check_output`] does, before another deadline.
    pub(in crate::gateway) async fn check_output_until(&self, body: &[u8], deadline: Instant) -> Result<()> {
        let contract = &self.admitted.operation().contract;
        if contract.output.is_none() {
            return Ok(());
        }
        let bounds = contract::JsonBounds { max_depth: self.contract_config.max_depth };
        let violations = match contract::parse_json(body, &bounds) {
            Ok(value) => self.find_violations(value, body.len(), deadline).await?,
            Err(why) if contract.enforces_output() => {
                let fault = Fault::new(FaultCode::AgentError, "The agent's answer is not valid JSON");
                return Err(fault.with_detail(why).with_setting("contract.output"));
            }
            Err(why) => vec![Violation { pointer: String::new(), message: why.message().to_owned() }],
        };
        self.gateway.report_contract_violations(self.admitted.agent_route(), ShadowRule::Output, &violations);
        Ok(())
    }

    /// Validates an output, a body of this length, which is JSON.
    pub(in crate::gateway) async fn check_json_output(&self, output: Value, body_bytes: usize) -> Result<()> {
        let violations = self.find_violations(output, body_bytes, self.admitted.deadline().into_std()).await?;
        self.gateway.report_contract_violations(self.admitted.agent_route(), ShadowRule::Output, &violations);
        Ok(())
    }

    async fn find_violations(&self, output: Value, body_bytes: usize, deadline: Instant) -> Result<Vec<Violation>> {
        let contract = &self.admitted.operation().contract;
        let work = contract.output_work(&output, body_bytes);
        if !CheckWork::are_heavy(std::slice::from_ref(&work)) {
            return contract.check_output(&output, &work);
        }
        let compiled = contract.clone();
        let check = move || compiled.check_output(&output, &work);
        let request = HeavyCheckRequest {
            agent: &self.admitted.agent_route().heavy_checks,
            client: self.admitted.client(),
            config: &self.contract_config.heavy_checks,
            max_share: self.gateway.limits.max_share(),
            deadline,
        };
        let result = Box::pin(self.gateway.heavy_checks.run(request, check)).await;
        let result = result.inspect_err(|fault| self.admitted.agent_route().record_refused_check(fault));
        match result {
            Ok(result) => result,
            // The agent has executed the call.
            Err(fault) if contract.enforces_output() => Err(fault.with_progress(CallProgress::PossiblySent)),
            // The reply passes in any case.
            Err(fault) => {
                let agent = &self.admitted.agent_route().agent.id;
                tracing::info!(%agent, "output not checked: {}", fault.message());
                Ok(Vec::new())
            }
        }
    }

    /// Reads and validates a complete reply, at most as large as an input may be. A reply that is not a success but
    /// passes (JSON-RPC) is returned like any other.
    pub(in crate::gateway) async fn read_complete(&self, reply: &mut UpstreamReply) -> Result<Bytes> {
        self.read_and_judge(reply).await.map(|(bytes, _)| bytes)
    }

    /// Reads a reply as [`ReplyValidator::read_complete`] does, and judges it as [`ReplyValidator::judge`] does, or by its
    /// events.
    pub(in crate::gateway) async fn read_and_judge(&self, reply: &mut UpstreamReply) -> Result<(Bytes, Option<Fault>)> {
        let BodyPrefix { bytes, complete } = reply.body.peek(self.contract_config.max_body_size.get()).await?;
        let mut reported = self.judge(reply, &bytes, complete)?;
        if reported.is_none() && is_event_stream(&reply.headers) {
            reported = self.find_error_event(&bytes, complete);
        }
        if !complete {
            return Err(Fault::new(FaultCode::AgentError, "The agent's answer is too large"));
        }
        self.check_output_of_success(reply, &bytes).await?;
        Ok((bytes, reported))
    }

    /// Validates a complete reply against the output contract, if the reply is a success. An empty body violates an
    /// enforced contract unless the status is 204. The contract does not apply to a format other than JSON that the agent
    /// declares.
    pub(in crate::gateway) async fn check_output_of_success(&self, reply: &UpstreamReply, body: &[u8]) -> Result<()> {
        let enforces_output = self.admitted.operation().contract.enforces_output();
        if self.admitted.operation().is_other_output(reply.headers.get(header::CONTENT_TYPE)) {
            return Ok(());
        }
        let is_validated = !body.is_empty() || (enforces_output && reply.status != StatusCode::NO_CONTENT);
        if reply.status.is_success() && is_validated { self.check_output(body).await } else { Ok(()) }
    }
}
