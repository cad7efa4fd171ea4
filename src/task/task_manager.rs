//! Task manager: starts, finds, cancels and ends tasks. The store outlives the process; running tasks are in memory.

use super::{
    callback::CallbackSender,
    config::TaskConfig,
    running_task::RunningTask,
    task_builder::{build_callback_sender, event_limits, final_event_data, new_record, no_such_task},
    task_record::{Task, TaskOutcome, TaskState},
};
use crate::{
    fault::{Fault, FaultCode, Result},
    net::{self, AddressPolicy},
    store::{StoreLocation, TaskStore, WriteRefusal, open_tasks},
    telemetry::{Event, Metrics},
};
use arc_swap::{ArcSwap, ArcSwapOption};
use parking_lot::{Mutex, MutexGuard};
use serde_json::Value;
use std::{collections::HashMap, fmt, sync::Arc, time::Duration};
use time::OffsetDateTime;
use tokio::{
    sync::{Notify, Semaphore},
    task::JoinSet,
};

/// How long beyond its deadline a task may run before it expires.
const DEADLINE_GRACE: Duration = Duration::from_secs(10);
/// Length of a task id.
const ID_LENGTH: usize = 32;

/// Dependencies of the task manager.
#[derive(Clone, Debug)]
pub struct TaskServices<'a> {
    /// Network configuration, for callbacks.
    pub network: &'a net::NetworkConfig,
    /// Addresses that callbacks may reach.
    pub policy: Arc<AddressPolicy>,
    /// Metrics.
    pub metrics: Arc<Metrics>,
}

/// Parameters of a new task.
#[derive(Debug)]
pub struct NewTask<'a> {
    /// The caller that owns it.
    pub owner: Arc<str>,
    /// Id of the agent.
    pub agent: &'a str,
    /// Operation; empty for the agent's default operation.
    pub operation: &'a str,
    /// Id of the call.
    pub request_id: &'a str,
    /// Total timeout of the agent.
    pub time_limit: Duration,
    /// URL of the callback.
    pub callback_url: Option<&'a str>,
}

/// Manages all tasks of this gateway.
pub struct TaskManager {
    pub(super) config: ArcSwap<TaskConfig>,
    pub(super) store: Arc<dyn TaskStore>,
    /// Id of this process among those that share the store.
    pub(super) gateway_id: Arc<str>,
    pub(super) running: Mutex<HashMap<Arc<str>, Arc<RunningTask>>>,
    pub(super) callback_sender: ArcSwapOption<CallbackSender>,
    pub(super) metrics: Arc<Metrics>,
    /// Notified when a callback may be due.
    pub(super) callback_due: Arc<Notify>,
    running_permits: Arc<Semaphore>,
    streams: Arc<Semaphore>,
    pub(super) maintenance: Mutex<JoinSet<()>>,
}

impl fmt::Debug for TaskManager {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("TaskManager").field("store", &self.store).finish_non_exhaustive()
    }
}

impl TaskManager {
    /// Opens the store and starts maintenance, which runs until the manager is dropped. Requires a tokio runtime.
    ///
    /// # Errors
    /// Returns every unusable value of `config`, by its path in that section.
    pub async fn open(
        config: &TaskConfig,
        document_store: Option<StoreLocation>,
        services: &TaskServices<'_>,
    ) -> std::result::Result<Arc<Self>, Vec<String>> {
        let callback_sender = build_callback_sender(config, services)?;
        let store = open_tasks(&config.store_location(document_store))
            .await
            .map_err(|problem| vec![format!("sqlite_file: {problem}")])?;
        let semaphore = |max: u32| Arc::new(Semaphore::new(max as usize));
        let manager = Arc::new(Self {
            config: ArcSwap::from_pointee(config.clone()),
            store,
            gateway_id: uuid::Uuid::new_v4().simple().to_string().into(),
            running: Mutex::default(),
            callback_sender: ArcSwapOption::from(callback_sender),
            metrics: Arc::clone(&services.metrics),
            callback_due: Arc::default(),
            running_permits: semaphore(config.max_running),
            streams: semaphore(config.resume.as_ref().map_or(0, |resume| resume.max_streams)),
            maintenance: Mutex::default(),
        });
        manager.spawn_maintenance();
        Ok(manager)
    }

    /// Applies a changed configuration. The store, and the limits on running tasks and streams, do not change.
    ///
    /// # Errors
    /// As [`TaskManager::open`]; nothing changes then.
    pub fn reconfigure(
        &self,
        config: &TaskConfig,
        services: &TaskServices<'_>,
    ) -> std::result::Result<(), Vec<String>> {
        let callback_sender = build_callback_sender(config, services)?;
        self.callback_sender.store(callback_sender);
        self.config.store(Arc::new(config.clone()));
        Ok(())
    }

    /// Returns the configuration in force.
    pub fn config(&self) -> Arc<TaskConfig> {
        self.config.load_full()
    }

    /// Starts a task and stores it.
    ///
    /// # Errors
    /// `InvalidInput` for a callback URL that is not allowed, `RateLimited` when the caller has too many tasks,
    /// `Overloaded` when there are too many tasks in total or the store is unavailable.
    pub async fn start_task(&self, new: NewTask<'_>) -> Result<Arc<RunningTask>> {
        let config = self.config();
        if let Some(url) = new.callback_url {
            self.check_callback_url(url)?;
        }
        let retry_after = config.poll_interval.get();
        let refuse = |code, message: &'static str| Fault::new(code, message).with_retry_after(retry_after);
        let permit = Arc::clone(&self.running_permits).try_acquire_owned();
        let permit = permit.map_err(|_| refuse(FaultCode::Overloaded, "Too many tasks are running"))?;
        let now = OffsetDateTime::now_utc();
        let mut task = new_record(&new, now);
        task.expires = now + new.time_limit + DEADLINE_GRACE + self.retention(&config, task.callback.is_some());
        let stored = task.to_stored(&new.owner, &self.gateway_id, None);
        let limits = (config.max_tasks_per_caller, config.max_tasks);
        let mut inserted = self.store.insert(&stored, limits).await?;
        if inserted == Err(WriteRefusal::OwnerLimit)
            && self.store.delete_ended(&new.owner, config.max_tasks_per_caller / 64 + 1).await?
        {
            inserted = self.store.insert(&stored, limits).await?;
        }
        match inserted {
            Ok(()) => {}
            Err(WriteRefusal::OwnerLimit) => {
                return Err(refuse(FaultCode::RateLimited, "The caller has too many tasks"));
            }
            Err(_) => return Err(refuse(FaultCode::Overloaded, "The gateway has too many tasks")),
        }
        let running = Arc::new(RunningTask::new(task, new.owner, event_limits(&config, false), permit));
        running.push_gateway_event("status", &running.record().to_json(config.poll_interval.get()));
        self.lock_running().insert(running.id(), Arc::clone(&running));
        Ok(running)
    }

    /// Starts a stream that its caller reads at once and can resume by its id. `None` if resumable streams are turned
    /// off or there are too many. A stream does not survive the process.
    pub fn start_stream(&self, new: &NewTask<'_>) -> Option<Arc<RunningTask>> {
        let config = self.config();
        config.resume.as_ref()?;
        let permit = Arc::clone(&self.streams).try_acquire_owned().ok()?;
        let task = new_record(new, OffsetDateTime::now_utc());
        let running = Arc::new(RunningTask::new(task, Arc::clone(&new.owner), event_limits(&config, true), permit));
        // A stream is not stored.
        running.set_saved();
        self.lock_running().insert(running.id(), Arc::clone(&running));
        Some(running)
    }

    /// Ends a stream. If it responds to the JSON-RPC request `rpc_id`, a failure is sent as a JSON-RPC error (R94).
    pub fn end_stream(&self, running: &RunningTask, outcome: &TaskOutcome, rpc_id: Option<&Value>) {
        let poll_interval = self.config().poll_interval.get();
        running.end(outcome, self.config().result_ttl.get(), |task| match (outcome, rpc_id) {
            (TaskOutcome::Completed(_), _) => None,
            (TaskOutcome::Failed(fault), Some(rpc_id)) => {
                Some(("", fault.to_json_rpc_response(rpc_id, &task.request).to_string()))
            }
            (TaskOutcome::Failed(_), None) => Some(("error", task.end.to_string())),
            (TaskOutcome::Canceled, _) => Some(("status", final_event_data(task, poll_interval))),
        });
    }

    /// Ends a task and saves its end; later calls for an ended task have no effect.
    pub async fn end_and_save(&self, running: &RunningTask, outcome: &TaskOutcome) {
        let Some(task) = self.record_end(running, outcome) else { return };
        if let Err(error) = self.save_end(running, &task).await {
            tracing::warn!(%error, "cannot save the end of a task yet; trying again");
        }
    }

    /// As [`TaskManager::end_and_save`], without saving: maintenance does that.
    pub(super) fn record_end(&self, running: &RunningTask, outcome: &TaskOutcome) -> Option<Task> {
        let config = self.config();
        let has_callback = running.record().callback.is_some();
        let poll_interval = config.poll_interval.get();
        let task = running.end(outcome, self.retention(&config, has_callback), |task| {
            Some(("status", final_event_data(task, poll_interval)))
        })?;
        self.metrics.record_event(match task.state {
            TaskState::Completed => Event::TaskCompleted,
            TaskState::Canceled => Event::TaskCanceled,
            _ => Event::TaskFailed,
        });
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

    /// Finds the task with this id, if it belongs to `owner`.
    ///
    /// # Errors
    /// `NotFound`, also for another caller's task and for an invalid id; `Overloaded`.
    pub async fn find(&self, owner: &str, id: &str) -> Result<(Task, Option<Arc<RunningTask>>)> {
        if id.len() != ID_LENGTH || !id.bytes().all(|byte| byte.is_ascii_hexdigit() && !byte.is_ascii_uppercase()) {
            return Err(no_such_task());
        }
        if let Some(running) = self.lock_running().get(id).cloned() {
            return if *running.owner == *owner { Ok((running.record(), Some(running))) } else { Err(no_such_task()) };
        }
        let stored = self
            .store
            .get(id)
            .await?
            .filter(|stored| *stored.owner == *owner && stored.expires > OffsetDateTime::now_utc());
        let task = stored.as_ref().and_then(Task::from_stored).ok_or_else(no_such_task)?;
        Ok((task, None))
    }

    /// Cancels the task with this id; an ended task stays unchanged.
    ///
    /// # Errors
    /// As [`TaskManager::find`].
    pub async fn cancel(&self, owner: &Arc<str>, id: &str) -> Result<Task> {
        let (mut task, running) = self.find(owner, id).await?;
        if task.state != TaskState::Working {
            return Ok(task);
        }
        let Some(running) = running else {
            // Another gateway runs the task, and will find the end in the store.
            task.record_outcome(&TaskOutcome::Canceled, self.retention(&self.config(), task.callback.is_some()));
            let due = task.callback.as_ref().map(|_| OffsetDateTime::now_utc());
            return match self.store.record_end(&task.to_stored(owner, &self.gateway_id, due)).await? {
                true => {
                    self.metrics.record_event(Event::TaskCanceled);
                    Ok(task)
                }
                false => Ok(self.find(owner, id).await?.0),
            };
        };
        running.cancel();
        running.wait_until_ended().await;
        Ok(running.record())
    }

    /// Checks a callback URL.
    fn check_callback_url(&self, url: &str) -> Result<()> {
        match &*self.callback_sender.load() {
            Some(sender) => sender.check_url(url),
            None => Err(Fault::new(FaultCode::InvalidInput, "Callbacks are not offered here (poll the task instead)")),
        }
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
