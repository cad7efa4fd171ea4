//! What lets a request to an agent's API pass: a route of the operator or of a preset, or an operation of its OpenAPI
//! document.

use super::{
    openapi::{ApiOperation, BodyCheck, ContractCheck, OperationRequest, PathMatch},
    route_table::ApiRoute,
};
use crate::{
    auth::Caller,
    fault::{Result, Violation},
};
use bytes::Bytes;
use http::{HeaderMap, request};
use std::sync::Arc;

/// What lets a request pass.
pub(in crate::gateway) enum MatchedRoute<'a, 'p> {
    /// A route, behind which nothing is checked.
    Listed(&'a ApiRoute),
    /// An operation, whose parameters and body are checked.
    Operation(MatchedOperation<'p>),
}

/// An operation that a request has.
pub(in crate::gateway) struct MatchedOperation<'p> {
    pub(super) path: PathMatch<'p>,
    pub(super) operation: Arc<ApiOperation>,
}

impl<'p> MatchedRoute<'_, 'p> {
    /// Returns the name of the route in logs.
    pub(in crate::gateway) fn label(&self) -> &Arc<str> {
        match self {
            Self::Listed(route) => route.label(),
            Self::Operation(matched) => matched.path.template(),
        }
    }

    /// Refuses callers for whom the route is not.
    ///
    /// # Errors
    /// 403.
    pub(in crate::gateway) fn check_caller(&self, caller: &Caller) -> Result<()> {
        match self {
            Self::Listed(route) => route.check_caller(caller),
            Self::Operation(_) => Ok(()),
        }
    }

    /// Returns what a parameter of the path stands for.
    pub(super) fn parameter(&self, name: &str, path: &'p str) -> Option<&'p str> {
        match self {
            Self::Listed(route) => route.pattern.parameter(name, path),
            Self::Operation(matched) => matched.path.parameter(name),
        }
    }

    /// Returns the operation, if the request has one.
    pub(in crate::gateway) fn into_operation(self) -> Option<MatchedOperation<'p>> {
        match self {
            Self::Listed(_) => None,
            Self::Operation(matched) => Some(matched),
        }
    }
}

impl MatchedOperation<'_> {
    /// Checks the parameters of the request. Returns the violations of a contract that is not enforced.
    ///
    /// # Errors
    /// 400 with the violations.
    pub(in crate::gateway) async fn check_parameters(
        &self,
        check: ContractCheck<'_>,
        head: &request::Parts,
    ) -> Result<Vec<Violation>> {
        let request = OperationRequest {
            operation: &self.operation,
            captures: self.path.captures(),
            query: head.uri.query(),
            headers: &head.headers,
        };
        check.check_parameters(request).await
    }

    /// Returns how a body with these header fields is checked.
    ///
    /// # Errors
    /// 415 for a body that the operation does not take.
    pub(super) fn body_check(&self, headers: &HeaderMap) -> Result<&BodyCheck> {
        self.operation.body_check(headers)
    }

    /// Checks a request without a body.
    ///
    /// # Errors
    /// 400 if the operation requires one.
    pub(super) fn check_empty_body(&self) -> Result<()> {
        self.operation.check_empty_body()
    }

    /// Checks a complete body. Returns the violations of a contract that is not enforced.
    ///
    /// # Errors
    /// 400 with the violations, 415 for a body that the operation does not take.
    pub(in crate::gateway) async fn check_body(
        &self,
        check: ContractCheck<'_>,
        headers: &HeaderMap,
        body: &Bytes,
    ) -> Result<Vec<Violation>> {
        if body.is_empty() {
            return self.check_empty_body().map(|()| Vec::new());
        }
        match self.body_check(headers)? {
            BodyCheck::Unread => Ok(Vec::new()),
            BodyCheck::Json(contract) => check.check_json(contract, body.clone()).await,
        }
    }
}
