//! Checks of a configuration that need no running part.

use super::later;
use crate::{
    config::File,
    gateway::Cors,
    transport::{LocalConfig, Transport},
};

/// Returns the problems that the modules find in their own sections without running anything.
pub(super) fn form(file: &File) -> Vec<String> {
    let mut problems = within("connections", file.connections.problems());
    if file.agents.sources.is_empty() && file.registry.is_none() {
        let cure = "name a file, a folder or a registry, or add the section registry";
        problems.push(format!("agents.from: is empty ({cure})"));
    }
    for (at, listener) in file.listeners.iter().enumerate() {
        problems.extend(within(&format!("listen[{at}]"), listener.problems()));
    }
    problems.extend(within("contract", file.contract.problems()));
    problems.extend(within("websocket", file.websocket.problems()));
    problems.extend(within("cors", file.cors.as_ref().and_then(|cors| Cors::build(cors).err()).unwrap_or_default()));
    problems.extend(within("local", file.local_runtimes.as_ref().map(LocalConfig::problems).unwrap_or_default()));
    problems.extend(later::problems(file));
    problems
}

/// Checks the secrets and files that the agents' settings refer to.
pub(super) fn settings(file: &File, transport: &Transport) -> Vec<String> {
    let mut problems = within("agents.defaults", transport.check(&file.agents.defaults));
    if file.agents.defaults.additional_endpoints.is_some() {
        problems.push("agents.defaults.endpoints: is not allowed in the defaults (set it in a rule)".to_owned());
    }
    for (at, rule) in file.agents.rules.iter().enumerate() {
        let settings = rule.settings.over(&file.agents.defaults);
        problems.extend(within(&format!("agents.rules[{at}].settings"), transport.check(&settings)));
    }
    problems
}

/// Prefixes the paths of `problems` with `section`.
pub(super) fn within(section: &str, problems: Vec<String>) -> Vec<String> {
    match section {
        "" => problems,
        section => problems.into_iter().map(|problem| format!("{section}.{problem}")).collect(),
    }
}
