//! Wiring of the state that gateways share.

use super::problem_paths::prefix_problems;
use crate::{config::GatewayConfig, store::SharedState, telemetry::Metrics};
use std::sync::Arc;

/// Returns the problems of the section, by their paths in the file. Opens no connection.
pub(super) fn check_shared_state(file: &GatewayConfig) -> Vec<String> {
    let Some(state) = &file.state else { return settings_without_state(file) };
    let mut problems = prefix_problems("state", state.problems());
    if file.limits.quota_state_file.is_some() {
        problems.push("limits.quota_state_file: cannot be used together with state, which keeps the quotas".to_owned());
    }
    problems
}

/// Returns the limits that gateways would have to share, of a gateway that shares no state.
fn settings_without_state(file: &GatewayConfig) -> Vec<String> {
    let general =
        file.limits.concurrency.shared_max_per_agent.map(|_| "limits.concurrency.shared_max_per_agent".into());
    let rules = file.agents.rules.iter().enumerate().filter(|(_, rule)| rule.shared_max_concurrency.is_some());
    let rules = rules.map(|(at, _)| format!("agents.rules[{at}].shared_max_concurrency"));
    general.into_iter().chain(rules).map(|path: String| format!("{path}: requires the section state")).collect()
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

/// Opens the state for a command, if it is configured. Requires a tokio runtime.
///
/// # Errors
/// A value cannot be used, by its path in the file, or the server cannot be reached.
pub async fn open_shared_state_of_command(file: &GatewayConfig) -> Result<Option<Arc<SharedState>>, Vec<String>> {
    let Some(config) = &file.state else { return Ok(None) };
    let problems = prefix_problems("state", config.problems());
    if !problems.is_empty() {
        return Err(problems);
    }
    let metrics = Metrics::new().map_err(|why| vec![why.to_string()])?;
    let state = SharedState::open(config, &metrics).await.map_err(|why| prefix_problems("state", vec![why]))?;
    match state.last_error() {
        Some(why) => Err(prefix_problems("state", vec![why])),
        None => Ok(Some(state)),
    }
}
