//! An operation of an OpenAPI document, compiled.

use super::{
    parameter_values::{MAX_PARAMETERS, OperationParameters, ParameterSources},
    request_body::{BodyCheck, RequestBody},
    schema_bundle::SchemaSource,
};
use crate::{
    contract::{ContractConfig, DocumentBudget, OperationContract},
    fault::{Fault, FaultCode, Result},
};
use http::{HeaderMap, HeaderName, Method};
use serde_json::Value;

/// An operation.
#[derive(Debug)]
pub(in crate::gateway) struct ApiOperation {
    pub(super) method: Method,
    parameters: Option<OperationParameters>,
    body: Option<RequestBody>,
}

/// An operation before it is compiled.
#[derive(Clone, Copy)]
pub(super) struct OperationDefinition<'a> {
    pub(super) operation: &'a Value,
    /// The path of the document that has the operation.
    pub(super) path: &'a Value,
    /// The parameters of the path's template.
    pub(super) path_names: &'a [Box<str>],
}

impl ApiOperation {
    /// Compiles an operation.
    ///
    /// # Errors
    /// Why it cannot be checked.
    pub(super) fn compile<'a>(
        method: Method,
        definition: OperationDefinition<'a>,
        source: &SchemaSource<'a>,
        config: &ContractConfig,
        budget: &DocumentBudget<'_>,
    ) -> std::result::Result<Self, String> {
        let OperationDefinition { operation, path, path_names } = definition;
        let mut parameters: Vec<&Value> = Vec::new();
        // Those of the operation replace those of its path.
        for owner in [path, operation] {
            let own = owner.get("parameters").and_then(Value::as_array);
            if own.is_some_and(|own| own.len() > MAX_PARAMETERS) {
                return Err(format!("parameters: has more than {MAX_PARAMETERS} parameters"));
            }
            for parameter in own.into_iter().flatten() {
                let parameter = source.resolve(parameter).map_err(|why| format!("parameters: {why}"))?;
                let is_same = |known: &&Value| ["name", "in"].iter().all(|part| known.get(part) == parameter.get(part));
                parameters.retain(|known| !is_same(known));
                parameters.push(parameter);
            }
        }
        let parameters = OperationParameters::compile(&parameters, path_names, source, config, budget);
        let parameters = parameters.map_err(|why| format!("parameters: {why}"))?;
        let body = operation.get("requestBody");
        let body = body.map(|body| RequestBody::compile(body, source, config, budget)).transpose();
        let body = body.map_err(|why| format!("requestBody: {why}"))?;
        Ok(Self { method, parameters, body })
    }

    /// Returns what is not in force of the schemas.
    pub(super) fn unsupported(&self) -> impl Iterator<Item = &String> {
        let parameters = self.parameters.iter().flat_map(|parameters| parameters.contract.unsupported());
        parameters.chain(self.body.iter().flat_map(RequestBody::unsupported))
    }

    /// Returns the parameters of a request as an object, and their contract; `None` if none is checked.
    ///
    /// # Errors
    /// 400 for a path or query that cannot be decoded.
    pub(super) fn parameters_of(&self, sources: ParameterSources<'_>) -> Result<Option<(&OperationContract, Value)>> {
        let Some(parameters) = self.parameters.as_ref().filter(|parameters| parameters.contract.input.is_some()) else {
            return Ok(None);
        };
        Ok(Some((&parameters.contract, parameters.value_of(sources)?)))
    }

    /// Returns the header fields that are parameters, and that agents may receive from callers.
    pub(in crate::gateway::api) fn forwarded_headers(&self) -> &[HeaderName] {
        self.parameters.as_ref().map_or(&[], |parameters| &parameters.headers)
    }

    /// Returns how a request's body is checked.
    ///
    /// # Errors
    /// 415 for a body that the operation does not take.
    pub(in crate::gateway::api) fn body_check(&self, headers: &HeaderMap) -> Result<&BodyCheck> {
        match &self.body {
            Some(body) => body.check_for(headers),
            None => {
                let fault = Fault::new(FaultCode::UnsupportedMediaType, "This path of the agent's API takes no body");
                Err(fault.with_setting("agents.rules[].api.openapi"))
            }
        }
    }

    /// Checks a request without a body.
    ///
    /// # Errors
    /// 400 if the operation requires one.
    pub(in crate::gateway::api) fn check_empty_body(&self) -> Result<()> {
        match &self.body {
            Some(body) if body.is_required => {
                let fault = Fault::new(FaultCode::InvalidInput, "This path of the agent's API requires a body");
                Err(fault.with_setting("agents.rules[].api.openapi"))
            }
            _ => Ok(()),
        }
    }
}
