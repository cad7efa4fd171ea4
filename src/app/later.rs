//! Wiring of what is answered later, and of what is made once.

use crate::{
    config::File,
    net::AddressPolicy,
    registry,
    task::{self, Desk},
    telemetry::Metrics,
};
use std::sync::Arc;

/// What can be told of the settings without running anything, by its path in the whole file.
pub(super) fn problems(file: &File) -> Vec<String> {
    let once = file.idempotency.problems().into_iter().map(|problem| format!("idempotency.{problem}"));
    let tasks = file.tasks.iter().flat_map(task::Config::problems).map(|problem| format!("tasks.{problem}"));
    let slow = file.agents.rules.iter().enumerate().filter(|(_, rule)| rule.slow == Some(true) && file.tasks.is_none());
    let slow = slow.map(|(at, _)| format!("agents.rules[{at}].async: needs the section tasks"));
    once.chain(tasks).chain(slow).collect()
}

/// The tasks, where there are any; a rehearsal looks at their settings only.
pub(super) async fn tasks(
    file: &File,
    policy: &Arc<AddressPolicy>,
    metrics: &Arc<Metrics>,
) -> Result<Option<Arc<Desk>>, Vec<String>> {
    let Some(config) = &file.tasks else { return Ok(None) };
    let published = file.registry.as_ref().map(registry::PublishConfig::place);
    if file.agents.rehearsal {
        let problems = config.check(published);
        return if problems.is_empty() { Ok(None) } else { Err(problems) };
    }
    Desk::open(config, published, &services(file, policy, metrics)).await.map(Some)
}

/// What tasks need from other rooms.
pub(super) fn services<'a>(file: &'a File, policy: &Arc<AddressPolicy>, metrics: &Arc<Metrics>) -> task::Services<'a> {
    task::Services { network: &file.network, policy: Arc::clone(policy), metrics: Arc::clone(metrics) }
}
