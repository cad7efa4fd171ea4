//! Checks of a configuration that need no running gateway.

use super::{problem_paths::prefix_problems, tasks_wiring};
use crate::{
    config::GatewayConfig,
    gateway::CorsPolicy,
    transport::{LocalRuntimeConfig, UpstreamClient},
};

/// Returns the problems that the modules find in their own sections. Opens no file and no connection.
pub(super) fn check_sections(file: &GatewayConfig) -> Vec<String> {
    let mut problems = prefix_problems("connections", file.connections.problems());
    if file.agents.sources.is_empty() && file.registry.is_none() {
        let hint = "name a file, a folder or a registry, or add the section registry";
        problems.push(format!("agents.sources: is empty ({hint})"));
    }
    for (at, listener) in file.listeners.iter().enumerate() {
        problems.extend(prefix_problems(&format!("listeners[{at}]"), listener.problems()));
    }
    problems.extend(prefix_problems("contract", file.contract.problems()));
    problems.extend(prefix_problems("websocket", file.websocket.problems()));
    problems.extend(prefix_problems(
        "cors",
        file.cors.as_ref().and_then(|cors| CorsPolicy::build(cors).err()).unwrap_or_default(),
    ));
    problems.extend(prefix_problems(
        "local_runtimes",
        file.local_runtimes.as_ref().map(LocalRuntimeConfig::problems).unwrap_or_default(),
    ));
    problems.extend(tasks_wiring::check_tasks_and_idempotency(file));
    problems
}

/// Checks the secrets and files that the agents' settings refer to.
pub(super) fn check_agent_settings(file: &GatewayConfig, transport: &UpstreamClient) -> Vec<String> {
    let mut problems = prefix_problems("agents.defaults", transport.config_problems(&file.agents.defaults));
    if file.agents.defaults.additional_endpoints.is_some() {
        problems
            .push("agents.defaults.additional_endpoints: is not allowed in the defaults (set it in a rule)".to_owned());
    }
    for (at, rule) in file.agents.rules.iter().enumerate() {
        let settings = rule.settings.with_fallback(&file.agents.defaults);
        problems.extend(prefix_problems(&format!("agents.rules[{at}].settings"), transport.config_problems(&settings)));
    }
    problems
}
