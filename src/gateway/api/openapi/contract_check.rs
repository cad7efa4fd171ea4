//! Checks requests by the schemas of their operation; what takes long runs apart from the threads that serve calls.

use super::{openapi_operation::ApiOperation, parameter_values::ParameterSources};
use crate::{
    contract::{self, CheckWork, HeavyCheckPool, HeavyCheckRequest, JsonBounds, OperationContract},
    fault::{FaultCode, Result, Violation},
    telemetry::{AgentMetrics, LimitKind},
};
use http::HeaderMap;
use serde_json::Value;

/// The check of one request.
#[derive(Clone, Copy)]
pub(in crate::gateway) struct ContractCheck<'a> {
    /// The threads of checks that take long, and what decides whether this one may use them.
    pub(in crate::gateway) pool: &'a HeavyCheckPool,
    pub(in crate::gateway) heavy: HeavyCheckRequest<'a>,
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
            Some((contract, value)) => {
                let length = query.map_or(0, str::len) + captures.iter().map(|text| text.len()).sum::<usize>();
                let fields = headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum::<usize>();
                self.check(contract, value, length + fields).await
            }
        }
    }

    /// Checks a JSON body. Returns the violations of a contract that is not enforced.
    ///
    /// # Errors
    /// 400 for what is no JSON, and with the violations; 413 if the check would take too long.
    pub(in crate::gateway) async fn check_json(
        &self,
        contract: &OperationContract,
        body: &[u8],
    ) -> Result<Vec<Violation>> {
        let value = contract::parse_json(body, &JsonBounds { max_depth: self.max_depth })?;
        self.check(contract, value, body.len()).await
    }

    async fn check(&self, contract: &OperationContract, value: Value, bytes: usize) -> Result<Vec<Violation>> {
        let work = contract.input_work(&value, bytes);
        if !CheckWork::are_heavy(std::slice::from_ref(&work)) {
            return contract.check_input(&value, &work);
        }
        let contract = contract.clone();
        let checked = self.pool.run(self.heavy, move || contract.check_input(&value, &work)).await;
        checked.inspect_err(|fault| {
            if fault.code() == FaultCode::RateLimited {
                self.metrics.record_limited_request(LimitKind::ConcurrencyShare);
            }
        })?
    }
}
