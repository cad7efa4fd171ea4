//! The tasks of this gateway: those that run in this process, and the store of all tasks. The task manager starts and
//! ends tasks here; maintenance repairs what a dead gateway or an unreachable store left behind.

use super::{
    callback::CallbackSender,
    callback_hosts::CallbackHosts,
    config::TaskConfig,
    event_log::SharedEvents,
    running_task::RunningTask,
    task_builder::final_event_data,
    task_record::{Task, TaskOutcome, TaskState},
};
use crate::{
    fault::Result,
    store::TaskStore,
    telemetry::{Event, Metrics, TaskEnd},
};
use arc_swap::{ArcSwap, ArcSwapOption};
use futures_util::{StreamExt, TryStreamExt, stream};
use parking_lot::{Mutex, MutexGuard};
use std::{collections::HashMap, sync::Arc, time::Duration};
use time::OffsetDateTime;
use tokio::sync::Notify;

/// Maximum number of concurrent writes of ended tasks.
const MAX_CONCURRENT_SAVES: usize = 64;

/// The running tasks, the store, and what both need.
pub(super) struct TaskRegistry {
    pub(super) config: ArcSwap<TaskConfig>,
    pub(super) store: Arc<dyn TaskStore>,
    /// Id of this process among those that share the store.
    pub(super) gateway_id: Arc<str>,
    pub(super) running: Mutex<HashMap<Arc<str>, Arc<RunningTask>>>,
    pub(super) callback_sender: ArcSwapOption<CallbackSender>,
    pub(super) metrics: Arc<Metrics>,
    /// What the hosts of callbacks got.
    pub(super) callback_hosts: Arc<CallbackHosts>,
    /// Notified when a callback may be due.
    pub(super) callback_due: Arc<Notify>,
    /// The events that other gateways read, where gateways share a state.
    pub(super) shared_events: Option<Arc<SharedEvents>>,
}

impl TaskRegistry {
    /// Returns the configuration in force.
    pub(super) fn config(&self) -> Arc<TaskConfig> {
        self.config.load_full()
    }

    /// Ends a task without saving its end: maintenance does that. Later calls for an ended task have no effect.
    pub(super) fn record_end(&self, running: &RunningTask, outcome: &TaskOutcome) -> Option<Task> {
        let config = self.config();
        let has_callback = running.record().callback.is_some();
        let poll_interval = config.poll_interval.get();
        let task = running.end(outcome, self.retention(&config, has_callback), |task| {
            Some(("status", final_event_data(task, poll_interval)))
        })?;
        let (event, end) = match task.state {
            TaskState::Completed => (Event::TaskCompleted, TaskEnd::Completed),
            TaskState::Canceled => (Event::TaskCanceled, TaskEnd::Canceled),
            _ => (Event::TaskFailed, TaskEnd::Failed),
        };
        self.metrics.record_event(event);
        self.metrics.tasks().record_end(end, task.age());
        Some(task)
    }

    /// Saves how a task ended; maintenance retries if that fails.
    pub(super) async fn save_end(&self, running: &RunningTask, task: &Task) -> Result<()> {
        let due = task.callback.as_ref().map(|_| OffsetDateTime::now_utc());
        self.store.record_end(&task.to_stored(&running.owner, &self.gateway_id, due)).await?;
        running.set_saved();
        if due.is_some() {
            self.callback_due.notify_one();
        }
        Ok(())
    }

    /// Saves the ends that could not be saved before. Stops at the first error, because the others would fail as well.
    pub(super) async fn save_unsaved(&self) -> Result<()> {
        let unsaved: Vec<_> = self.lock_running().values().filter(|task| task.is_unsaved()).cloned().collect();
        let saves = unsaved.into_iter().map(|task| async move { self.save_end(&task, &task.record()).await });
        stream::iter(saves).buffer_unordered(MAX_CONCURRENT_SAVES).try_collect().await
    }

    /// Returns how long a task is kept after its end.
    pub(super) fn retention(&self, config: &TaskConfig, has_callback: bool) -> Duration {
        let delivery_timeout =
            config.callbacks.as_ref().filter(|_| has_callback).map(|callbacks| callbacks.delivery_timeout.get());
        config.result_ttl.get().max(delivery_timeout.unwrap_or_default())
    }

    pub(super) fn lock_running(&self) -> MutexGuard<'_, HashMap<Arc<str>, Arc<RunningTask>>> {
        self.running.lock()
    }
}
