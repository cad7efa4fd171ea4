//! Validation of an agent's reply before it is used: detection of errors embedded in successful replies, and the
//! operation's output contract.

use super::response_normalization::{AgentResponse, ResponseVerdict, classify_response};
use crate::{
    contract,
    fault::{Fault, FaultCode, Result, Violation},
    gateway::{admission::Admitted, gateway_state::Gateway},
    transport::{BodyPrefix, UpstreamReply},
};
use bytes::Bytes;
use http::StatusCode;

/// Validates the replies to one call.
pub(in crate::gateway) struct ReplyValidator<'a> {
    pub(in crate::gateway) gateway: &'a Gateway,
    pub(in crate::gateway) contract_config: &'a contract::ContractConfig,
    pub(in crate::gateway) admitted: &'a Admitted,
}

impl ReplyValidator<'_> {
    /// Returns the fault if the reply is a failure, judged by its head and the part of its body that was read.
    pub(in crate::gateway) fn reject_failure(&self, reply: &UpstreamReply, body: &[u8], complete: bool) -> Result<()> {
        let declares_error = self.admitted.operation().declares_error;
        match classify_response(&AgentResponse {
            status: reply.status,
            headers: &reply.headers,
            body,
            complete,
            declares_error,
        }) {
            ResponseVerdict::Pass => Ok(()),
            ResponseVerdict::Fault(fault) => Err(fault),
        }
    }

    /// Validates a body against the agent's output contract (R33). A violation is logged or, if the contract is
    /// enforced, a fault of the agent.
    pub(in crate::gateway) fn check_output(&self, body: &[u8]) -> Result<()> {
        let contract = &self.admitted.operation().contract;
        if contract.output.is_none() {
            return Ok(());
        }
        let bounds = contract::JsonBounds { max_depth: self.contract_config.max_depth };
        let violations = match contract::parse_json(body, &bounds) {
            Ok(value) => contract.check_output(&value)?,
            Err(why) if contract.enforces_output() => {
                return Err(Fault::new(FaultCode::AgentError, "The agent's answer is not valid JSON").with_detail(why));
            }
            Err(why) => vec![Violation { pointer: String::new(), message: why.message().to_owned() }],
        };
        self.gateway.report_contract_violations(&self.admitted.agent_route().agent, "output", &violations);
        Ok(())
    }

    /// Reads and validates a complete reply, at most as large as an input may be. A reply that is not a success but
    /// passes (JSON-RPC) is returned like any other.
    pub(in crate::gateway) async fn read_complete(&self, reply: &mut UpstreamReply) -> Result<Bytes> {
        let BodyPrefix { bytes, complete } = reply.body.peek(self.contract_config.max_body_size.get()).await?;
        self.reject_failure(reply, &bytes, complete)?;
        if !complete {
            return Err(Fault::new(FaultCode::AgentError, "The agent's answer is too large"));
        }
        self.check_output_of_success(reply, &bytes)?;
        Ok(bytes)
    }

    /// Validates a complete reply against the output contract, if the reply is a success. An empty body violates an
    /// enforced contract unless the status is 204.
    pub(in crate::gateway) fn check_output_of_success(&self, reply: &UpstreamReply, body: &[u8]) -> Result<()> {
        let enforces_output = self.admitted.operation().contract.enforces_output();
        let is_validated = !body.is_empty() || (enforces_output && reply.status != StatusCode::NO_CONTENT);
        if reply.status.is_success() && is_validated { self.check_output(body) } else { Ok(()) }
    }
}
