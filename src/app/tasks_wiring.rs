//! Wiring of tasks and of idempotency.

use super::problem_paths::prefix_problems;
use crate::{
    config::{AgentRule, GatewayConfig},
    gateway::ConfigSnapshot,
    idempotency::{IdempotencyConfig, IdempotencyKeys},
    net::AddressPolicy,
    registry,
    store::SharedState,
    task::{self, TaskManager},
    telemetry::Metrics,
    trace::Tracer,
};
use std::sync::Arc;

/// The metrics and traces of tasks.
#[derive(Clone, Copy)]
pub(super) struct TaskTelemetry<'a> {
    pub(super) metrics: &'a Arc<Metrics>,
    pub(super) tracer: &'a Option<Arc<Tracer>>,
}

/// Returns the problems of both sections, by their paths in the file. Opens no store.
pub(super) fn check_tasks_and_idempotency(file: &GatewayConfig) -> Vec<String> {
    let without_tasks = |rule: &AgentRule| rule.always_async == Some(true) && file.tasks.is_none();
    let idempotency = prefix_problems("idempotency", file.idempotency.problems());
    let tasks = prefix_problems("tasks", file.tasks.iter().flat_map(task::TaskConfig::problems).collect());
    let async_rules = file.agents.rules.iter().enumerate().filter(|(_, rule)| without_tasks(rule));
    let async_rules = async_rules.map(|(at, _)| format!("agents.rules[{at}].async: requires the section tasks"));
    idempotency.into_iter().chain(tasks).chain(async_rules).collect()
}

/// The task manager, if tasks are configured, and the idempotency store.
pub(super) struct TasksAndIdempotency {
    pub(super) tasks: Option<Arc<TaskManager>>,
    pub(super) idempotency: Arc<IdempotencyKeys>,
}

/// Opens the task manager and the idempotency store, which is in the shared state if there is one.
///
/// # Errors
/// Every problem, by its path in the file.
pub(super) async fn open(
    file: &GatewayConfig,
    policy: &Arc<AddressPolicy>,
    telemetry: TaskTelemetry<'_>,
    shared_state: Option<&Arc<SharedState>>,
) -> Result<TasksAndIdempotency, Vec<String>> {
    let services = task::TaskServices { shared_state: shared_state.cloned(), ..task_services(file, policy, telemetry) };
    let tasks = open_tasks(file, &services).await.map_err(|problems| prefix_problems("tasks", problems))?;
    let config = idempotency_config(file);
    let idempotency = match shared_state {
        Some(state) => IdempotencyKeys::shared(&config, state, telemetry.metrics),
        None => IdempotencyKeys::new(&config),
    };
    Ok(TasksAndIdempotency { tasks, idempotency: Arc::new(idempotency) })
}

/// Applies a changed configuration. The task manager and the idempotency store keep their state.
///
/// # Errors
/// As [`open`]; in that case nothing has changed.
pub(super) fn reconfigure(
    file: &GatewayConfig,
    previous: &ConfigSnapshot,
    policy: &Arc<AddressPolicy>,
    telemetry: TaskTelemetry<'_>,
) -> Result<TasksAndIdempotency, Vec<String>> {
    if let (Some(tasks), Some(config)) = (&previous.tasks, &file.tasks) {
        tasks
            .reconfigure(&config.clone().with_max_share(file.limits.max_share), &task_services(file, policy, telemetry))
            .map_err(|problems| prefix_problems("tasks", problems))?;
    }
    previous.idempotency.reconfigure(&idempotency_config(file));
    Ok(TasksAndIdempotency { tasks: previous.tasks.clone(), idempotency: Arc::clone(&previous.idempotency) })
}

/// Opens the task manager, if tasks are configured; with `check_only` validates its settings only.
async fn open_tasks(
    file: &GatewayConfig,
    services: &task::TaskServices<'_>,
) -> Result<Option<Arc<TaskManager>>, Vec<String>> {
    let Some(config) = &file.tasks else { return Ok(None) };
    let registry_store = file.registry.as_ref().map(registry::PublishConfig::store_location);
    if file.agents.check_only {
        let problems = config.check(registry_store);
        return if problems.is_empty() { Ok(None) } else { Err(problems) };
    }
    let config = config.clone().with_max_share(file.limits.max_share);
    TaskManager::open(&config, registry_store, services).await.map(Some)
}

fn idempotency_config(file: &GatewayConfig) -> IdempotencyConfig {
    file.idempotency.clone().with_max_share(file.limits.max_share)
}

fn task_services<'a>(
    file: &'a GatewayConfig,
    policy: &Arc<AddressPolicy>,
    telemetry: TaskTelemetry<'_>,
) -> task::TaskServices<'a> {
    task::TaskServices {
        network: &file.network,
        policy: Arc::clone(policy),
        metrics: Arc::clone(telemetry.metrics),
        tracer: telemetry.tracer.clone(),
        shared_state: None,
    }
}
