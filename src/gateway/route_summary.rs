//! What the record of a call says of its agent.

use super::route::Route;
use std::sync::Arc;

/// The agent of a call, and the index of the operation, or the route of the agent's API, that is called.
#[derive(Clone)]
pub(super) struct RouteSummary {
    pub(super) route: Arc<Route>,
    pub(super) operation: Option<usize>,
    pub(super) api_route: Option<Arc<str>>,
}

impl RouteSummary {
    /// Returns the name of the operation, or the pattern of the API's route; empty if neither is known.
    pub(super) fn operation_name(&self) -> &str {
        let operation = self.operation.and_then(|index| self.route.operations.get(index));
        operation.map(|operation| &*operation.name).or(self.api_route.as_deref()).unwrap_or_default()
    }
}
