//! Wiring of tasks and of idempotency.

use super::config_checks::prefix_problems;
use crate::{
    config::GatewayConfig,
    gateway::ConfigSnapshot,
    idempotency::IdempotencyStore,
    net::AddressPolicy,
    registry,
    task::{self, TaskManager},
    telemetry::Metrics,
};
use std::sync::Arc;

/// Returns the problems of both sections, by their paths in the whole file, without running anything.
pub(super) fn check_tasks_and_idempotency(file: &GatewayConfig) -> Vec<String> {
    let once = prefix_problems("idempotency", file.idempotency.problems());
    let tasks = prefix_problems("tasks", file.tasks.iter().flat_map(task::TaskConfig::problems).collect());
    let slow = file.agents.rules.iter().enumerate().filter(|(_, rule)| rule.slow == Some(true) && file.tasks.is_none());
    let slow = slow.map(|(at, _)| format!("agents.rules[{at}].async: requires the section tasks"));
    once.into_iter().chain(tasks).chain(slow).collect()
}

/// The task manager, if tasks are configured, and the idempotency store.
pub(super) type TasksAndIdempotency = (Option<Arc<TaskManager>>, Arc<IdempotencyStore>);

/// Opens both.
///
/// # Errors
/// Every problem, by its path in the whole file.
pub(super) async fn open(
    file: &GatewayConfig,
    policy: &Arc<AddressPolicy>,
    metrics: &Arc<Metrics>,
) -> Result<TasksAndIdempotency, Vec<String>> {
    let tasks = open_tasks(file, policy, metrics).await.map_err(|whys| prefix_problems("tasks", whys))?;
    Ok((tasks, IdempotencyStore::new(&file.idempotency)))
}

/// Applies a changed configuration; both keep their state.
///
/// # Errors
/// As [`open`]; in that case nothing has changed.
pub(super) fn reconfigure(
    file: &GatewayConfig,
    before: &ConfigSnapshot,
    (policy, metrics): (&Arc<AddressPolicy>, &Arc<Metrics>),
) -> Result<TasksAndIdempotency, Vec<String>> {
    if let (Some(desk), Some(config)) = (&before.tasks, &file.tasks) {
        desk.reconfigure(config, &task_services(file, policy, metrics))
            .map_err(|whys| prefix_problems("tasks", whys))?;
    }
    before.idempotency.reconfigure(&file.idempotency);
    Ok((before.tasks.clone(), Arc::clone(&before.idempotency)))
}

/// Opens the task manager, if tasks are configured; a rehearsal only validates the settings.
async fn open_tasks(
    file: &GatewayConfig,
    policy: &Arc<AddressPolicy>,
    metrics: &Arc<Metrics>,
) -> Result<Option<Arc<TaskManager>>, Vec<String>> {
    let Some(config) = &file.tasks else { return Ok(None) };
    let published = file.registry.as_ref().map(registry::PublishConfig::store_location);
    if file.agents.rehearsal {
        let problems = config.check(published);
        return if problems.is_empty() { Ok(None) } else { Err(problems) };
    }
    TaskManager::open(config, published, &task_services(file, policy, metrics)).await.map(Some)
}

fn task_services<'a>(
    file: &'a GatewayConfig,
    policy: &Arc<AddressPolicy>,
    metrics: &Arc<Metrics>,
) -> task::TaskServices<'a> {
    task::TaskServices { network: &file.network, policy: Arc::clone(policy), metrics: Arc::clone(metrics) }
}
