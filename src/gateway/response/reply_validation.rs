//! Validation of an agent's reply before it is used: detection of errors embedded in successful replies, and the
//! operation's output contract.

use super::{
    error_events::ErrorEventDetector,
    media_types::is_event_stream,
    response_normalization::{AgentResponse, ResponseVerdict, classify_response, may_embed_error},
};
use crate::{
    contract::{self, BodyTape, CallChecks, CheckOwner, JsonBounds, ParseFailure, Tape},
    fault::{CallProgress, Fault, FaultCode, Result, Violation},
    gateway::{
        admission::{Admitted, BodyAccount},
        gateway_state::Gateway,
    },
    telemetry::ShadowRule,
    transport::{Admission as _, BodyPrefix, ReplyBody, UpstreamReply},
};
use bytes::Bytes;
use http::{HeaderMap, StatusCode, header};
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
    pub(in crate::gateway) async fn check_output(&self, body: &Bytes) -> Result<()> {
        self.check_output_until(body, self.admitted.deadline().into_std()).await
    }

    /// Validates a body as [`ReplyValidator::check_output`] does, before another deadline.
    pub(in crate::gateway) async fn check_output_until(&self, body: &Bytes, deadline: Instant) -> Result<()> {
        let contract = &self.admitted.operation().contract;
        if contract.output.is_none() {
            return Ok(());
        }
        let account = self.account();
        let mut checks = self.checks(&account, deadline);
        let violations = match checks.parse(body.clone(), self.bounds()).await {
            Ok(body) => self.find_violations(&mut checks, body).await?,
            Err(ParseFailure::NotJson(why)) if contract.enforces_output() => {
                let fault = Fault::new(FaultCode::AgentError, "The agent's answer is not valid JSON");
                return Err(fault.with_detail(why).with_setting("contract.output"));
            }
            Err(ParseFailure::NotJson(why)) => vec![Violation::new("", why.message())],
            Err(ParseFailure::Refused(fault)) => self.pass_unchecked(fault)?,
        };
        self.gateway.report_contract_violations(self.admitted.agent_route(), ShadowRule::Output, &violations);
        Ok(())
    }

    /// Validates a reply that must be JSON.
    ///
    /// # Errors
    /// 502 for a reply that is no JSON, and as [`ReplyValidator::check_output`].
    pub(in crate::gateway) async fn check_json_output(&self, body: &Bytes) -> Result<()> {
        let account = self.account();
        let mut checks = self.checks(&account, self.admitted.deadline().into_std());
        let body = checks.parse(body.clone(), self.bounds()).await.map_err(|failure| match failure {
            ParseFailure::NotJson(why) => {
                Fault::new(FaultCode::AgentError, "The agent's answer is not JSON").with_detail(why)
            }
            ParseFailure::Refused(fault) => fault.with_progress(CallProgress::PossiblySent),
        })?;
        let violations = self.find_violations(&mut checks, body).await?;
        self.gateway.report_contract_violations(self.admitted.agent_route(), ShadowRule::Output, &violations);
        Ok(())
    }

    async fn find_violations(&self, checks: &mut CallChecks<'_>, body: BodyTape) -> Result<Vec<Violation>> {
        let contract = &self.admitted.operation().contract;
        match checks.check_output(contract, body, Tape::ROOT).await {
            Err(fault) if fault.code() != FaultCode::AgentError => self.pass_unchecked(fault),
            result => result,
        }
    }

    /// Lets a reply pass that could not be checked, unless the contract is enforced.
    #[cold]
    fn pass_unchecked(&self, fault: Fault) -> Result<Vec<Violation>> {
        self.admitted.agent_route().record_refused_check(&fault);
        if self.admitted.operation().contract.enforces_output() {
            // The agent has executed the call.
            return Err(fault.with_progress(CallProgress::PossiblySent));
        }
        let agent = &self.admitted.agent_route().agent.id;
        tracing::info!(%agent, "output not checked: {}", fault.message());
        Ok(Vec::new())
    }

    fn account(&self) -> BodyAccount<'_> {
        BodyAccount { limits: &self.gateway.limits, client: self.admitted.client() }
    }

    fn bounds(&self) -> JsonBounds {
        JsonBounds { max_depth: self.contract_config.max_depth }
    }

    fn checks<'c>(&'c self, account: &'c BodyAccount<'_>, deadline: Instant) -> CallChecks<'c> {
        let owner = CheckOwner {
            agent: &self.admitted.agent_route().suspended_checks,
            client: self.admitted.client(),
            config: &self.contract_config.suspended_checks,
            deadline,
        };
        CallChecks::new(&self.gateway.check_scheduler, owner, account)
    }

    /// Reads and validates a complete reply, at most as large as an input may be. A reply that is not a success but
    /// passes (JSON-RPC) is returned like any other.
    pub(in crate::gateway) async fn read_complete(&self, reply: &mut UpstreamReply) -> Result<Bytes> {
        self.read_and_judge(reply).await.map(|(bytes, _)| bytes)
    }

    /// Reads a reply as [`ReplyValidator::read_complete`] does, and judges it as [`ReplyValidator::judge`] does, or by its
    /// events.
    pub(in crate::gateway) async fn read_and_judge(&self, reply: &mut UpstreamReply) -> Result<(Bytes, Option<Fault>)> {
        let body = self.read(reply).await?;
        self.judge_body(reply, body).await
    }

    /// Reads as much of a reply as is judged.
    pub(in crate::gateway) async fn read(&self, reply: &mut UpstreamReply) -> Result<BodyPrefix> {
        reply.body.peek(self.contract_config.max_body_size.get()).await
    }

    /// Judges a body that was read, as [`ReplyValidator::read_and_judge`] does.
    pub(in crate::gateway) async fn judge_body(
        &self,
        reply: &UpstreamReply,
        BodyPrefix { bytes, complete }: BodyPrefix,
    ) -> Result<(Bytes, Option<Fault>)> {
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
    pub(in crate::gateway) async fn check_output_of_success(&self, reply: &UpstreamReply, body: &Bytes) -> Result<()> {
        let enforces_output = self.admitted.operation().contract.enforces_output();
        if self.admitted.operation().is_other_output(reply.headers.get(header::CONTENT_TYPE)) {
            return Ok(());
        }
        let is_validated = !body.is_empty() || (enforces_output && reply.status != StatusCode::NO_CONTENT);
        if reply.status.is_success() && is_validated { self.check_output(body).await } else { Ok(()) }
    }
}
