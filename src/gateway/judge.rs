//! What is found out about an agent's answer before anyone relies on it: whether it is a failure in disguise, and
//! whether it keeps the operation's contract.

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

/// Judges the answers to one call.
pub(super) struct Judge<'a> {
    pub(super) gateway: &'a Gateway,
    pub(super) rules: &'a contract::Config,
    pub(super) admitted: &'a Admitted,
}

impl Judge<'_> {
    /// Whether what was read of the answer is a failure.
    pub(super) fn verdict(&self, reply: &Reply, body: &[u8], complete: bool) -> Result<()> {
        let declares_error = self.admitted.operation().declares_error;
        match verdict(&Answer { status: reply.status, headers: &reply.headers, body, complete, declares_error }) {
            Verdict::Pass => Ok(()),
            Verdict::Fault(fault) => Err(fault),
        }
    }

    /// The agent's own contract (R33): what breaks it is logged or, where it is enforced, a fault of the agent.
    pub(super) fn contract(&self, body: &[u8]) -> Result<()> {
        let contract = &self.admitted.operation().contract;
        if contract.output.is_none() {
            return Ok(());
        }
        let bounds = contract::Bounds { depth: self.rules.max_depth };
        let broken = match contract::parse(body, &bounds) {
            Ok(value) => contract.admit_output(&value)?,
            Err(why) if contract.enforces_output() => {
                return Err(Fault::new(Code::AgentError, "the agent's answer is not valid JSON").detail(why));
            }
            Err(why) => vec![Violation { pointer: String::new(), message: why.message().to_owned() }],
        };
        self.gateway.reported(&self.admitted.agent().agent, "output", &broken);
        Ok(())
    }

    /// The whole of an answer, at most as large as an input may be, judged. An answer that is not a success and that
    /// passes all the same (JSON-RPC) comes back like any other.
    pub(super) async fn whole(&self, reply: &mut Reply) -> Result<Bytes> {
        let Beginning { bytes, complete } = reply.body.beginning(self.rules.max_body.get()).await?;
        self.verdict(reply, &bytes, complete)?;
        if !complete {
            return Err(Fault::new(Code::AgentError, "the agent's answer is too large"));
        }
        self.kept(reply, &bytes)?;
        Ok(bytes)
    }

    /// Whether a whole answer keeps the contract, where it is one that can: nothing at all breaks one that is enforced,
    /// unless the agent says that there is nothing.
    pub(super) fn kept(&self, reply: &Reply, body: &[u8]) -> Result<()> {
        let enforced = self.admitted.operation().contract.enforces_output();
        let counts = !body.is_empty() || (enforced && reply.status != StatusCode::NO_CONTENT);
        if reply.status.is_success() && counts { self.contract(body) } else { Ok(()) }
    }
}
