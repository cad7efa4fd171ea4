//! Task manager: starts, finds, cancels and ends tasks. The store outlives the process; running tasks are in memory.

use super::{
    config::TaskConfig,
    event_buffer::EventLimits,
    event_log::{EventLogWriter, NewEventLog, RemoteEventReader, SharedEvents},
    found_task::{FoundTask, TaskPlace},
    maintenance,
    remote_tasks::{RemoteFollow, RemoteTasks},
    running_task::{RunPermit, RunningTask},
    task_builder::{
        NewTask, TaskServices, build_callback_sender, event_limits, final_event_data, new_record, no_such_task,
    },
    task_listing::{TaskDetails, TaskRow},
    task_record::{Task, TaskOutcome, TaskState},
    task_registry::TaskRegistry,
};
use crate::{
    fault::{Fault, FaultCode, Result},
    store::{
        StoreLocation, StoredTask, TaskCounts, TaskLimits, TaskPage, TaskRefusal, TaskStateCount, measure_tasks,
        open_tasks,
    },
    telemetry::{Event, LimitKind, TaskEnd},
    values::{ClientKey, KeyedCounts},
};
use arc_swap::{ArcSwap, ArcSwapOption};
use parking_lot::Mutex;
use serde_json::Value;
use std::{fmt, sync::Arc, time::Duration};
use time::OffsetDateTime;
use tokio::{sync::Semaphore, task::JoinSet, time::timeout};

/// How long beyond its deadline a task may run before it expires.
const DEADLINE_GRACE: Duration = Duration::from_secs(10);
/// How long a gateway that stops waits for the task store.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a gateway that stops waits until the last events are in their logs.
const LOG_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum number of times that ended tasks are deleted to make room for one.
const MAX_DELETIONS: u32 = 8;
/// Length of a task id.
const ID_LENGTH: usize = 32;

/// Manages all tasks of this gateway.
pub struct TaskManager {
    pub(super) registry: Arc<TaskRegistry>,
    running_permits: Arc<Semaphore>,
    streams: Arc<Semaphore>,
    running_of_clients: Arc<KeyedCounts<ClientKey>>,
    streams_of_clients: Arc<KeyedCounts<ClientKey>>,
    /// The tasks and streams of other gateways, where gateways share a state.
    remote_tasks: Option<RemoteTasks>,
    /// Ends with the manager.
    maintenance: Mutex<JoinSet<()>>,
}

impl fmt::Debug for TaskManager {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("TaskManager").field("store", &self.registry.store).finish_non_exhaustive()
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
        let store = measure_tasks(store, &services.metrics);
        let semaphore = |max: u32| Arc::new(Semaphore::new(max as usize));
        let shared_events = services.shared_state.as_ref();
        let shared_events = shared_events.map(|state| Arc::new(SharedEvents::start(state, &services.metrics)));
        let remote_tasks = shared_events.as_ref().map(|events| RemoteTasks::new(events, config, &services.metrics));
        let registry = Arc::new(TaskRegistry {
            config: ArcSwap::from_pointee(config.clone()),
            store,
            gateway_id: uuid::Uuid::new_v4().simple().to_string().into(),
            running: Mutex::default(),
            callback_sender: ArcSwapOption::from(callback_sender),
            metrics: Arc::clone(&services.metrics),
            callback_hosts: Arc::default(),
            callback_due: Arc::default(),
            shared_events,
        });
        Ok(Arc::new(Self {
            maintenance: Mutex::new(maintenance::spawn_maintenance(&registry)),
            registry,
            running_permits: semaphore(config.max_running),
            streams: semaphore(config.resume.as_ref().map_or(0, |resume| resume.max_streams)),
            running_of_clients: Arc::default(),
            streams_of_clients: Arc::default(),
            remote_tasks,
        }))
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
        self.registry.callback_sender.store(callback_sender);
        self.registry.config.store(Arc::new(config.clone()));
        Ok(())
    }

    /// Returns the configuration in force.
    pub fn config(&self) -> Arc<TaskConfig> {
        self.registry.config()
    }

    /// Starts a task and stores it.
    ///
    /// # Errors
    /// `InvalidInput` for a callback URL that is not allowed, `RateLimited` when the caller has too many tasks or its
    /// share of those that run, `Overloaded` when there are too many tasks in total or the store is unavailable.
    pub async fn start_task(&self, new: NewTask<'_>) -> Result<Arc<RunningTask>> {
        let config = self.config();
        if let Some(url) = new.callback_url {
            self.check_callback_url(url)?;
        }
        let retry_after = config.poll_interval.get();
        let refuse = |code, message: String| {
            match new.metrics {
                Some(agent) => agent.record_limited_request(LimitKind::Tasks),
                None => self.registry.metrics.record_limited_request(LimitKind::Tasks),
            }
            Fault::new(code, message).with_retry_after(retry_after)
        };
        let max_running = config.max_share.of(config.max_running as usize);
        let of_client = self.running_of_clients.try_hold(new.client, 1, max_running).ok_or_else(|| {
            let text = format!(
                "The caller has {max_running} running tasks, its share of {} (limits.max_share)",
                config.max_running
            );
            refuse(FaultCode::RateLimited, text)
        })?;
        let of_all = Arc::clone(&self.running_permits).try_acquire_owned();
        let of_all = of_all.map_err(|_| refuse(FaultCode::Overloaded, "Too many tasks are running".to_owned()))?;
        let permit = RunPermit { _of_all: of_all, _of_client: of_client };
        let now = OffsetDateTime::now_utc();
        let mut task = new_record(&new, now);
        task.expires =
            now + new.time_limit + DEADLINE_GRACE + self.registry.retention(&config, task.callback.is_some());
        let stored = task.to_stored(&new.owner, &self.registry.gateway_id, None);
        let share = |max: u32| config.max_share.of_count(max);
        let limits = TaskLimits {
            per_owner: config.max_tasks_per_caller,
            per_client: share(config.max_tasks),
            total: config.max_tasks,
            reserved_size: config.max_result_size.get(),
            size_per_client: config.max_share.of(config.max_size.get()),
            total_size: config.max_size.get(),
        };
        match self.insert(&stored, new.client, limits).await? {
            None => {}
            Some(TaskRefusal::OwnerLimit) => {
                let text = "The caller has too many tasks (tasks.max_tasks_per_caller)";
                return Err(refuse(FaultCode::RateLimited, text.to_owned()));
            }
            Some(TaskRefusal::ClientLimit) => {
                let text = "The caller has its share of all tasks, or of their size (limits.max_share)";
                return Err(refuse(FaultCode::RateLimited, text.to_owned()));
            }
            Some(TaskRefusal::TotalLimit) => {
                let text = "The gateway has too many tasks, or too large ones";
                return Err(refuse(FaultCode::Overloaded, text.to_owned()));
            }
        }
        let limits = event_limits(&config, false);
        let log = self.start_log(&task, &new.owner, limits);
        let running = Arc::new(RunningTask::new(task, new.owner, limits, permit).with_log(log));
        running.push_gateway_event("status", &running.record().to_json(config.poll_interval.get()));
        self.registry.lock_running().insert(running.id(), Arc::clone(&running));
        Ok(running)
    }

    /// Inserts a task. Deletes the oldest ended tasks of its owner for it, unless other users of the client hold what the
    /// task needs. Returns why the task was refused.
    async fn insert(&self, task: &StoredTask, client: ClientKey, limits: TaskLimits) -> Result<Option<TaskRefusal>> {
        let store = &self.registry.store;
        let deletions = limits.per_owner / 64 + 1;
        for round in 0..MAX_DELETIONS {
            let refusal = store.insert(task, client, limits).await?;
            let may_help = match refusal {
                Some(TaskRefusal::OwnerLimit) => true,
                Some(TaskRefusal::ClientLimit) => {
                    store.can_make_room(&task.owner, client, limits, deletions * (MAX_DELETIONS - round)).await?
                }
                None | Some(TaskRefusal::TotalLimit) => false,
            };
            if !may_help || !store.delete_ended(&task.owner, client, deletions).await? {
                return Ok(refusal);
            }
        }
        store.insert(task, client, limits).await
    }

    /// Starts a stream that its caller reads at once and can resume by its id. `None` if resumable streams are turned
    /// off, or there are too many of the client or in all. A stream does not survive the process.
    pub fn start_stream(&self, new: &NewTask<'_>) -> Option<Arc<RunningTask>> {
        let config = self.config();
        let max_streams = config.resume.as_ref()?.max_streams as usize;
        let of_client = self.streams_of_clients.try_hold(new.client, 1, config.max_share.of(max_streams))?;
        let of_all = Arc::clone(&self.streams).try_acquire_owned().ok()?;
        let permit = RunPermit { _of_all: of_all, _of_client: of_client };
        let task = new_record(new, OffsetDateTime::now_utc());
        let limits = event_limits(&config, true);
        let log = self.start_log(&task, &new.owner, limits);
        let running = Arc::new(RunningTask::new(task, Arc::clone(&new.owner), limits, permit).with_log(log));
        // A stream is not stored.
        running.set_saved();
        self.registry.lock_running().insert(running.id(), Arc::clone(&running));
        Some(running)
    }

    /// Ends a stream. If it responds to the JSON-RPC request `rpc_id`, a failure is sent as a JSON-RPC error (R94).
    pub fn end_stream(&self, running: &RunningTask, outcome: &TaskOutcome, rpc_id: Option<&Value>) {
        let poll_interval = self.config().poll_interval.get();
        running.end(outcome, self.config().result_ttl.get(), |task| match (outcome, rpc_id) {
            (TaskOutcome::Completed(_) | TaskOutcome::FailedWithReply { .. }, _) => None,
            (TaskOutcome::Failed(fault), Some(rpc_id)) => {
                Some(("", fault.to_json_rpc_response(rpc_id, &task.request).to_string()))
            }
            (TaskOutcome::Failed(_), None) => Some(("error", task.end.to_string())),
            (TaskOutcome::Canceled, _) => Some(("status", final_event_data(task, poll_interval))),
        });
    }

    /// Ends a task and saves its end; later calls for an ended task have no effect.
    pub async fn end_and_save(&self, running: &RunningTask, outcome: &TaskOutcome) {
        let Some(task) = self.registry.record_end(running, outcome) else { return };
        if let Err(error) = self.registry.save_end(running, &task).await {
            tracing::warn!(%error, "cannot save the end of a task yet; trying again");
        }
    }

    /// Begins the log of a task that other gateways read, if gateways share a state.
    fn start_log(&self, task: &Task, owner: &str, limits: EventLimits) -> Option<Arc<EventLogWriter>> {
        let window = self.config().resume.clone().unwrap_or_default().window.get();
        let events = self.registry.shared_events.as_ref()?;
        Some(events.start_log(owner, NewEventLog { task, limits, window }))
    }

    /// Finds the task with this id, if it belongs to `owner`; also a stream that runs at another gateway.
    ///
    /// # Errors
    /// `NotFound`, also for another caller's task and for an invalid id; `Overloaded`.
    pub async fn find(&self, owner: &str, id: &str) -> Result<FoundTask> {
        if !is_task_id(id) {
            return Err(no_such_task());
        }
        let running = self.registry.lock_running().get(id).cloned();
        if let Some(running) = running.filter(|running| *running.owner == *owner) {
            return Ok(FoundTask { task: running.record(), place: TaskPlace::Here(running) });
        }
        let stored = self
            .registry
            .store
            .get(id)
            .await?
            .filter(|stored| *stored.owner == *owner && stored.expires > OffsetDateTime::now_utc());
        if let Some(task) = stored.as_ref().and_then(Task::from_stored) {
            return Ok(FoundTask { task, place: TaskPlace::Stored });
        }
        // For every id that is not the caller's, so that the answer is the same.
        match &self.remote_tasks {
            Some(remote_tasks) => remote_tasks.find_stream(owner, id).await,
            None => Err(no_such_task()),
        }
    }

    /// Follows the events of a task or stream that runs at another gateway, or ran there a short time ago. `None` for a
    /// task whose state in the task store says as much as can be known.
    ///
    /// # Errors
    /// `Gone` if the events after the caller's are not known any more, `RateLimited` or `Overloaded` if there are too many
    /// readers, `Overloaded` if the shared state is away and the task is a stream.
    pub async fn follow_elsewhere(&self, follow: RemoteFollow<'_>) -> Result<Option<RemoteEventReader>> {
        match &self.remote_tasks {
            Some(remote_tasks) => remote_tasks.follow(follow, &self.config()).await,
            None => Ok(None),
        }
    }

    /// Cancels the task with this id; an ended task stays unchanged.
    ///
    /// # Errors
    /// As [`TaskManager::find`]; `Overloaded` if the gateway that runs a stream does not end it.
    pub async fn cancel(&self, owner: &Arc<str>, id: &str) -> Result<Task> {
        let FoundTask { task, place } = self.find(owner, id).await?;
        if task.state != TaskState::Working {
            return Ok(task);
        }
        match (place, &self.remote_tasks) {
            (TaskPlace::Here(running), _) => {
                running.cancel();
                running.wait_until_ended().await;
                Ok(running.record())
            }
            (TaskPlace::Stream { gateway }, Some(remote_tasks)) => {
                remote_tasks.cancel_stream(owner, id, &gateway).await
            }
            (TaskPlace::Stream { .. }, None) => Err(no_such_task()),
            (TaskPlace::Stored, _) => self.cancel_stored(owner, task).await,
        }
    }

    /// Cancels a task that another gateway runs, which finds the end in the store.
    async fn cancel_stored(&self, owner: &Arc<str>, mut task: Task) -> Result<Task> {
        let retention = self.registry.retention(&self.config(), task.callback.is_some());
        task.record_outcome(&TaskOutcome::Canceled, retention);
        let due = task.callback.as_ref().map(|_| OffsetDateTime::now_utc());
        let stored = task.to_stored(owner, &self.registry.gateway_id, due);
        if !self.registry.store.record_end(&stored).await? {
            return Ok(self.find(owner, &task.id).await?.task);
        }
        self.registry.metrics.record_event(Event::TaskCanceled);
        self.registry.metrics.tasks().record_end(TaskEnd::Canceled, task.age());
        Ok(task)
    }

    /// Returns tasks of all owners, the newest first, for operators.
    ///
    /// # Errors
    /// `Overloaded`.
    pub async fn list(&self, page: &TaskPage) -> Result<Vec<TaskRow>> {
        Ok(self.registry.store.list(page).await?.into_iter().map(TaskRow::from).collect())
    }

    /// Returns how many tasks there are, in all and in each state.
    ///
    /// # Errors
    /// `Overloaded`.
    pub async fn count(&self) -> Result<(TaskCounts, Vec<TaskStateCount>)> {
        Ok((self.registry.store.count().await?, self.registry.store.count_states().await?))
    }

    /// Returns the task with this id, whoever owns it, for operators.
    ///
    /// # Errors
    /// `NotFound`, `Overloaded`.
    pub async fn inspect(&self, id: &str) -> Result<TaskDetails> {
        let running = self.registry.lock_running().get(id).filter(|running| !running.is_stream()).cloned();
        let stored = self.stored(id).await?;
        let task = match &running {
            Some(running) => running.record(),
            None => Task::from_stored(&stored).ok_or_else(no_such_task)?,
        };
        let StoredTask { id, owner, callback_due, .. } = stored;
        let row = TaskRow { id, owner, callback_due, overview: Some(task.overview()) };
        Ok(TaskDetails::of(&task, row, running.map(|running| running.last_event())))
    }

    /// Cancels the task with this id, whoever owns it, for operators; an ended task stays unchanged.
    ///
    /// # Errors
    /// As [`TaskManager::inspect`].
    pub async fn cancel_for_operator(&self, id: &str) -> Result<Task> {
        let owner = self.stored(id).await?.owner;
        self.cancel(&owner, id).await
    }

    async fn stored(&self, id: &str) -> Result<StoredTask> {
        if !is_task_id(id) {
            return Err(no_such_task());
        }
        self.registry.store.get(id).await?.ok_or_else(no_such_task)
    }

    /// Checks a callback URL.
    fn check_callback_url(&self, url: &str) -> Result<()> {
        match &*self.registry.callback_sender.load() {
            Some(sender) => sender.check_url(url),
            None => Err(Fault::new(FaultCode::InvalidInput, "Callbacks are not offered here (poll the task instead)")),
        }
    }

    /// Shuts down: waits up to `drain_timeout` for running tasks, then marks the others as failed.
    pub async fn drain(&self, drain_timeout: Duration) {
        let running: Vec<_> = self
            .registry
            .lock_running()
            .values()
            .filter(|task| task.is_working() && !task.is_stream())
            .cloned()
            .collect();
        let all_ended = async {
            for task in &running {
                task.wait_until_ended().await;
            }
        };
        if timeout(drain_timeout, all_ended).await.is_err() {
            for task in running.iter().filter(|task| task.is_working()) {
                let fault = Fault::new(FaultCode::Overloaded, "The gateway was stopped before the agent finished");
                self.registry.record_end(task, &TaskOutcome::Failed(fault));
                task.cancel();
            }
        }
        let shutdown = async {
            self.registry.save_unsaved().await?;
            self.registry.store.end_lease(&self.registry.gateway_id).await
        };
        if let Some(events) = &self.registry.shared_events {
            events.finish(LOG_TIMEOUT).await;
        }
        // Another gateway ends the tasks whose ends are not saved now, as tasks of a dead gateway.
        match timeout(SHUTDOWN_TIMEOUT, shutdown).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "cannot end the lease in the task store on shutdown"),
            Err(_) => tracing::warn!("cannot end the lease in the task store on shutdown: timed out"),
        }
        self.maintenance.lock().abort_all();
    }
}

fn is_task_id(id: &str) -> bool {
    id.len() == ID_LENGTH && id.bytes().all(|byte| byte.is_ascii_hexdigit() && !byte.is_ascii_uppercase())
}
