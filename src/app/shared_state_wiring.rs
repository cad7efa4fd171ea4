//! Wiring of the state that gateways share.

use super::problem_paths::prefix_problems;
use crate::{config::GatewayConfig, store::SharedState, telemetry::Metrics};
use std::sync::Arc;

/// Returns the problems of the section, by their paths in the file. Opens no connection.
pub(super) fn check_shared_state(file: &GatewayConfig) -> Vec<String> {
    let Some(state) = &file.state else { return Vec::new() };
    let mut problems = prefix_problems("state", state.problems());
    if file.limits.quota_state_file.is_some() {
        problems.push("limits.quota_state_file: cannot be used together with state, which keeps the quotas".to_owned());
    }
    problems
}

/// Opens the state, if it is configured. A configuration that is only checked opens none, and [`check_shared_state`]
/// reports the problems of the section.
///
/// # Errors
/// A value cannot be used.
pub(super) async fn open_shared_state(
    file: &GatewayConfig,
    metrics: &Arc<Metrics>,
) -> Result<Option<Arc<SharedState>>, Vec<String>> {
    let Some(config) = file.state.as_ref().filter(|config| !file.agents.check_only && config.problems().is_empty())
    else {
        return Ok(None);
    };
    SharedState::open(config, metrics).await.map(Some).map_err(|why| vec![why])
}
