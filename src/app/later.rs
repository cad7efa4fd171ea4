//! Wiring of tasks and of idempotency.

use super::form::within;
use crate::{
    config::File,
    gateway::World,
    net::AddressPolicy,
    once::Once,
    registry,
    task::{self, Desk},
    telemetry::Metrics,
};
use std::sync::Arc;

/// Returns the problems of both sections, by their paths in the whole file, without running anything.
pub(super) fn problems(file: &File) -> Vec<String> {
    let once = within("idempotency", file.idempotency.problems());
    let tasks = within("tasks", file.tasks.iter().flat_map(task::Config::problems).collect());
    let slow = file.agents.rules.iter().enumerate().filter(|(_, rule)| rule.slow == Some(true) && file.tasks.is_none());
    let slow = slow.map(|(at, _)| format!("agents.rules[{at}].async: requires the section tasks"));
    once.into_iter().chain(tasks).chain(slow).collect()
}

/// The task manager, if tasks are configured, and the idempotency store.
pub(super) type Later = (Option<Arc<Desk>>, Arc<Once>);

/// Opens both.
///
/// # Errors
/// Every problem, by its path in the whole file.
pub(super) async fn open(
    file: &File,
    policy: &Arc<AddressPolicy>,
    metrics: &Arc<Metrics>,
) -> Result<Later, Vec<String>> {
    let tasks = tasks(file, policy, metrics).await.map_err(|whys| within("tasks", whys))?;
    Ok((tasks, Once::new(&file.idempotency)))
}

/// Applies a changed configuration; both keep their state.
///
/// # Errors
/// As [`open`]; in that case nothing has changed.
pub(super) fn reconfigure(
    file: &File,
    before: &World,
    (policy, metrics): (&Arc<AddressPolicy>, &Arc<Metrics>),
) -> Result<Later, Vec<String>> {
    if let (Some(desk), Some(config)) = (&before.tasks, &file.tasks) {
        desk.reconfigure(config, &services(file, policy, metrics)).map_err(|whys| within("tasks", whys))?;
    }
    before.once.reconfigure(&file.idempotency);
    Ok((before.tasks.clone(), Arc::clone(&before.once)))
}

/// Opens the task manager, if tasks are configured; a rehearsal only validates the settings.
async fn tasks(
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

fn services<'a>(file: &'a File, policy: &Arc<AddressPolicy>, metrics: &Arc<Metrics>) -> task::Services<'a> {
    task::Services { network: &file.network, policy: Arc::clone(policy), metrics: Arc::clone(metrics) }
}
