//! Checks requests by the schemas of their operation; what takes long runs apart from the threads that serve calls.

use super::{openapi_operation::ApiOperation, parameter_values::ParameterSources};
use crate::{
    contract::{CallChecks, CheckOwner, CheckScheduler, JsonBounds, OperationContract, Tape},
    fault::{FaultCode, Result, Violation},
    gateway::admission::BodyAccount,
    telemetry::{AgentMetrics, LimitKind},
};
use bytes::Bytes;
use http::HeaderMap;

/// The check of one request.
#[derive(Clone, Copy)]
pub(in crate::gateway) struct ContractCheck<'a> {
    /// The threads of checks that take long, and what decides whether this one may use them.
    pub(in crate::gateway) scheduler: &'a CheckScheduler,
    pub(in crate::gateway) owner: CheckOwner<'a>,
    /// Whose share of the memory for bodies the check uses.
    pub(in crate::gateway) account: BodyAccount<'a>,
    /// The deepest nesting of a body.
    pub(in crate::gateway) max_depth: u16,
    /// Those of the agent.
    pub(in crate::gateway) metrics: &'a AgentMetrics,
}

/// A request whose parameters are checked.
#[derive(Clone, Copy)]
pub(in crate::gateway) struct OperationRequest<'a> {
    pub(in crate::gateway) operation: &'a ApiOperation,
    /// What the parameters of the path stand for.
    pub(in crate::gateway) captures: &'a [&'a str],
    pub(in crate::gateway) query: Option<&'a str>,
    pub(in crate::gateway) headers: &'a HeaderMap,
}

impl ContractCheck<'_> {
    /// Checks the parameters. Returns the violations of a contract that is not enforced.
    ///
    /// # Errors
    /// 400 with the violations.
    pub(in crate::gateway) async fn check_parameters(&self, request: OperationRequest<'_>) -> Result<Vec<Violation>> {
        let OperationRequest { operation, captures, query, headers } = request;
        match operation.parameters_of(ParameterSources { captures, query, headers })? {
            None => Ok(Vec::new()),
            Some((contract, value)) => self.check_json(contract, Bytes::from(value.to_string())).await,
        }
    }

    /// Checks a JSON body. Returns the violations of a contract that is not enforced.
    ///
    /// # Errors
    /// 400 for what is no JSON, and with the violations; 413 if the check would take too long.
    pub(in crate::gateway) async fn check_json(
        &self,
        contract: &OperationContract,
        body: Bytes,
    ) -> Result<Vec<Violation>> {
        let mut checks = CallChecks::new(self.scheduler, self.owner, &self.account);
        let checked = async {
            let body = checks.parse(body, JsonBounds { max_depth: self.max_depth }).await?;
            checks.check_input(contract, body, Tape::ROOT).await
        };
        checked.await.inspect_err(|fault| {
            if fault.code() == FaultCode::RateLimited {
                self.metrics.record_limited_request(LimitKind::ConcurrencyShare);
            }
        })
    }
}
