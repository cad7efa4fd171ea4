//! Validation of an agent's reply before it is used: detection of errors embedded in successful replies, and the
//! operation's output contract.

use super::{
    Gateway,
    admit::Admitted,
    normalise::{Answer, Verdict, verdict},
};
use crate::{
    contract,
    fault::{Code, Fault, Result, Violation},
    transport::{Beginning, Reply},
};
use bytes::Bytes;
use http::StatusCode;

/// Validates the replies to one call.
pub(super) struct Judge<'a> {
    pub(super) gateway: &'a Gateway,
    pub(super) rules: &'a contract::Config,
    pub(super) admitted: &'a Admitted,
}

impl Judge<'_> {
    /// Checks whether the part of the reply that was read is a failure.
    pub(super) fn verdict(&self, reply: &Reply, body: &[u8], complete: bool) -> Result<()> {
        let declares_error = self.admitted.operation().declares_error;
        match verdict(&Answer { status: reply.status, headers: &reply.headers, body, complete, declares_error }) {
            Verdict::Pass => Ok(()),
            Verdict::Fault(fault) => Err(fault),
        }
    }

    /// Validates a body against the agent's output contract (R33). A violation is logged or, if the contract is
    /// enforced, a fault of the agent.
    pub(super) fn contract(&self, body: &[u8]) -> Result<()> {
        let contract = &self.admitted.operation().contract;
        if contract.output.is_none() {
            return Ok(());
        }
        let bounds = contract::Bounds { depth: self.rules.max_depth };
        let broken = match contract::parse(body, &bounds) {
            Ok(value) => contract.admit_output(&value)?,
            Err(why) if contract.enforces_output() => {
                return Err(Fault::new(Code::AgentError, "The agent's answer is not valid JSON").detail(why));
            }
            Err(why) => vec![Violation { pointer: String::new(), message: why.message().to_owned() }],
        };
        self.gateway.reported(&self.admitted.agent().agent, "output", &broken);
        Ok(())
    }

    /// Reads and validates a complete reply, at most as large as an input may be. A reply that is not a success but
    /// passes (JSON-RPC) is returned like any other.
    pub(super) async fn whole(&self, reply: &mut Reply) -> Result<Bytes> {
        let Beginning { bytes, complete } = reply.body.beginning(self.rules.max_body.get()).await?;
        self.verdict(reply, &bytes, complete)?;
        if !complete {
            return Err(Fault::new(Code::AgentError, "The agent's answer is too large"));
        }
        self.kept(reply, &bytes)?;
        Ok(bytes)
    }

    /// Validates a complete reply against the output contract, if the reply is a success. An empty body violates an
    /// enforced contract unless the status is 204.
    pub(super) fn kept(&self, reply: &Reply, body: &[u8]) -> Result<()> {
        let enforced = self.admitted.operation().contract.enforces_output();
        let counts = !body.is_empty() || (enforced && reply.status != StatusCode::NO_CONTENT);
        if reply.status.is_success() && counts { self.contract(body) } else { Ok(()) }
    }
}
