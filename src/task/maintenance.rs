//! Background maintenance of tasks: the gateway's lease and heartbeat, tasks of gateways that died, expired tasks,
//! unsaved ends and due callbacks. Each part fails on its own and is retried.

use super::{
    callback::{Callback, CallbackSender},
    callback_hosts::{self, HostRefusal},
    callback_queue::CallbackQueue,
    stream_commands::apply_stream_commands,
    task_builder::fail_orphaned_record,
    task_record::Task,
    task_registry::TaskRegistry,
};
use crate::{
    fault::Result,
    store::StoredTask,
    telemetry::{CallbackResult, Event, StoredTaskState, TaskEnd},
};
use std::{
    collections::HashSet,
    sync::{Arc, Weak},
    time::Duration,
};
use time::OffsetDateTime;
use tokio::{
    sync::Notify,
    task::JoinSet,
    time::{Instant, MissedTickBehavior, interval, sleep_until},
};

/// Interval of maintenance.
const INTERVAL: Duration = Duration::from_millis(500);
/// Maximum number of concurrent callbacks, of which one client has `limits.max_share`.
const MAX_CONCURRENT_CALLBACKS: usize = 64;
/// Maximum number of due callbacks that are listed at once, and of one client.
const MAX_LISTED_CALLBACKS: usize = 4_096;
const MAX_LISTED_PER_CLIENT: usize = 256;
/// Delay of a callback whose host is busy, or has had too many failed attempts.
const BUSY_HOST_DELAY: Duration = Duration::from_secs(5);
/// How many times longer than a list takes the next one is not read.
const LIST_PAUSE_FACTOR: u32 = 10;
/// Maximum number of pages of expired tasks that are deleted in one round.
const MAX_EXPIRED_PAGES: usize = 10;
/// Minimum time that other gateways get for a heartbeat after the store was unreachable: it may have been unreachable
/// for them as well.
const MIN_GRACE: Duration = Duration::from_secs(10);
/// Practically infinite lease.
const INFINITE_LEASE: Duration = Duration::from_secs(10 * 365 * 86_400);
/// How long beyond its timeout an attempt keeps other gateways from delivering the same callback. If the gateway dies
/// meanwhile, the callback is delivered twice, with the same id.
const CLAIM_MARGIN: Duration = Duration::from_secs(3);

/// Starts the maintenance of the tasks of `registry`. Dropping the returned set ends it.
pub(super) fn spawn_maintenance(registry: &Arc<TaskRegistry>) -> JoinSet<()> {
    let mut background_tasks = JoinSet::new();
    background_tasks.spawn(run_heartbeat(Arc::downgrade(registry)));
    background_tasks.spawn(run_callbacks(Arc::downgrade(registry), Arc::clone(&registry.callback_due)));
    if registry.shared_events.is_some() {
        background_tasks.spawn(apply_stream_commands(Arc::downgrade(registry)));
    }
    background_tasks
}

/// One round of maintenance.
#[derive(Clone)]
struct TaskMaintenance(Arc<TaskRegistry>);

impl TaskMaintenance {
    /// Sends this gateway's heartbeat, ends the tasks of dead gateways, and cancels tasks that another gateway ended.
    async fn heartbeat(&self, monitor: &mut LeaseMonitor) -> Result<()> {
        let lease = self.0.config().lease_ttl.get();
        let orphans = self.0.store.heartbeat(&self.0.gateway_id, monitor.lease_of_others(lease)).await;
        monitor.record_heartbeat(orphans.is_ok(), lease);
        for orphan in orphans? {
            self.fail_orphan(&orphan).await?;
        }
        let running: Vec<_> = {
            let tasks = self.0.lock_running();
            tasks.values().filter(|task| task.is_working() && !task.is_stream()).cloned().collect()
        };
        if running.is_empty() {
            return Ok(());
        }
        let open: HashSet<Arc<str>> = self.0.store.running_on(&self.0.gateway_id).await?.into_iter().collect();
        // Read after the list of running tasks: a task that started since is not in that list.
        for task in running {
            if !open.contains(&task.id()) && task.is_working() {
                task.cancel();
            }
        }
        Ok(())
    }

    /// Marks a task of a dead gateway as failed. The task is not repeated, because the agent may have executed it.
    async fn fail_orphan(&self, orphan: &StoredTask) -> Result<()> {
        let has_callback = Task::from_stored(orphan).is_some_and(|task| task.callback.is_some());
        let Some(task) = fail_orphaned_record(orphan, self.0.retention(&self.0.config(), has_callback)) else {
            return Ok(());
        };
        let due = task.callback.as_ref().map(|_| OffsetDateTime::now_utc());
        if self.0.store.record_end(&task.to_stored(&orphan.owner, &self.0.gateway_id, due)).await? {
            self.0.metrics.record_event(Event::TaskLost);
            self.0.metrics.tasks().record_end(TaskEnd::Lost, task.age());
            tracing::warn!(task = %task.id, agent = %task.agent, "task marked as failed: its gateway is gone");
            self.0.callback_due.notify_one();
        }
        Ok(())
    }

    /// Counts the stored tasks for the metrics.
    async fn count_tasks(&self) -> Result<()> {
        let counts = self.0.store.count().await?;
        let metrics = self.0.metrics.tasks();
        metrics.set_stored(StoredTaskState::Running, counts.running);
        metrics.set_stored(StoredTaskState::Ended, counts.ended);
        metrics.set_pending_callbacks(counts.pending_callbacks);
        Ok(())
    }

    /// Saves unsaved ends, and deletes expired tasks and streams.
    async fn save_and_expire(&self) -> Result<()> {
        let window = self.0.config().resume.as_ref().map_or(Duration::ZERO, |resume| resume.window.get());
        let saved = self.0.save_unsaved().await;
        self.0.lock_running().values().for_each(|task| task.renew_log());
        // Deleting streams needs no store.
        self.0.lock_running().retain(|_, task| !task.can_be_dropped(window));
        saved?;
        for _ in 0..MAX_EXPIRED_PAGES {
            if !self.0.store.delete_expired(OffsetDateTime::now_utc()).await? {
                break;
            }
        }
        Ok(())
    }

    /// Starts to deliver due callbacks, up to the limits of concurrent ones.
    fn start_due_callbacks(&self, queue: &mut CallbackQueue, deliveries: &mut JoinSet<()>) {
        let Some(sender) = self.0.callback_sender.load_full() else { return };
        let max_per_client = self.0.config().max_share.of(MAX_CONCURRENT_CALLBACKS);
        while deliveries.len() < MAX_CONCURRENT_CALLBACKS {
            let Some((task, place)) = queue.take_next(max_per_client) else { return };
            let (maintenance, sender) = (self.clone(), Arc::clone(&sender));
            deliveries.spawn(async move {
                log_store_error(maintenance.claim_and_deliver(&sender, &task).await);
                drop(place);
            });
        }
    }

    async fn claim_and_deliver(&self, sender: &CallbackSender, task: &Arc<str>) -> Result<()> {
        let now = OffsetDateTime::now_utc();
        let until = now + callback_hosts::MAX_WAIT + sender.config.attempt_timeout.get() + CLAIM_MARGIN;
        match self.0.store.claim_callback(task, now, until).await? {
            Some(stored) => self.deliver_callback(sender, stored).await,
            None => Ok(()),
        }
    }

    async fn deliver_callback(&self, sender: &CallbackSender, stored: StoredTask) -> Result<()> {
        let task = Task::from_stored(&stored);
        let Some((mut task, (url, attempts))) = task.and_then(|task| Some((task.clone(), task.callback?))) else {
            return self.0.store.record_callback_attempt(&StoredTask { callback_due: None, ..stored }).await;
        };
        let (state, timestamp) = (task.state.as_str(), task.updated.unix_timestamp());
        let task_json = task.to_json(self.0.config().poll_interval.get());
        let body = format!("{{\"type\":\"task.{state}\",\"timestamp\":{timestamp},\"data\":{task_json}}}").into_bytes();
        let attempt = match self.0.callback_hosts.begin(&url, body.len()).await {
            Ok(attempt) => Ok(attempt),
            // No attempt was made, unless the time for the callback is over.
            Err(refusal) => match sender.postponed_attempt(BUSY_HOST_DELAY, task.updated) {
                Some(due) => {
                    let postponed = StoredTask { callback_due: Some(due), ..stored };
                    return self.0.store.record_callback_attempt(&postponed).await;
                }
                None => Err(refusal),
            },
        };
        let started = Instant::now();
        let delivered = match (attempt, sender.check_url(&url)) {
            (Ok(attempt), Ok(())) => {
                let id = format!("msg_{}", task.id);
                let callback = Callback { url: &url, id: &id, traceparent: task.traceparent.as_deref() };
                sender.deliver(callback, body).await.map(|()| attempt.accept())
            }
            (_, Err(error)) => Err(error.to_string()),
            (Err(HostRefusal::Busy | HostRefusal::Hanging), _) => {
                Err("too many attempts to the receiver's host are running".to_owned())
            }
            (Err(HostRefusal::Exhausted), _) => Err("too many attempts to the receiver's host failed".to_owned()),
        };
        let next_attempt = match delivered {
            Ok(()) => {
                self.0.metrics.record_event(Event::CallbackDelivered);
                self.0.metrics.tasks().record_callback(CallbackResult::Delivered, started.elapsed());
                None
            }
            Err(error) => {
                let next_attempt = sender.next_attempt(attempts, task.updated);
                let (event, result) = match next_attempt {
                    Some(_) => (Event::CallbackFailed, CallbackResult::Retried),
                    None => (Event::CallbackAbandoned, CallbackResult::Abandoned),
                };
                self.0.metrics.record_event(event);
                self.0.metrics.tasks().record_callback(result, started.elapsed());
                let error = crate::telemetry::redact(&error);
                tracing::info!(
                    task = %task.id,
                    attempts = attempts + 1,
                    last = next_attempt.is_none(),
                    "callback failed: {error}"
                );
                next_attempt
            }
        };
        task.callback = Some((url, attempts + 1));
        self.0.store.record_callback_attempt(&task.to_stored(&stored.owner, &stored.gateway_id, next_attempt)).await
    }
}

async fn run_heartbeat(registry: Weak<TaskRegistry>) {
    let mut tick = interval(INTERVAL);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut last, mut monitor) = (None::<Instant>, LeaseMonitor::default());
    loop {
        tick.tick().await;
        let Some(maintenance) = registry.upgrade().map(TaskMaintenance) else { return };
        let lease = maintenance.0.config().lease_ttl.get();
        if last.is_none_or(|last| last.elapsed() >= lease / 5) {
            last = Some(Instant::now());
            log_store_error(maintenance.heartbeat(&mut monitor).await);
            log_store_error(maintenance.count_tasks().await);
        }
        log_store_error(maintenance.save_and_expire().await);
    }
}

/// Decides whether this gateway may declare others dead. While the store is unreachable, other gateways cannot send
/// heartbeats either, so afterwards they first get a grace period of one lease.
#[derive(Debug, Default)]
pub(super) struct LeaseMonitor {
    last_heartbeat: Option<Instant>,
    grace_until: Option<Instant>,
}

impl LeaseMonitor {
    /// Returns the lease that applies to other gateways now.
    pub(super) fn lease_of_others(&mut self, lease: Duration) -> Duration {
        let now = Instant::now();
        if self.last_heartbeat.take().is_some_and(|last| now - last >= 2 * lease) {
            self.grace_until = self.grace_until.max(Some(now + lease));
        }
        if self.grace_until.is_some_and(|until| now < until) { INFINITE_LEASE } else { lease }
    }

    /// Records whether the heartbeat reached the store.
    pub(super) fn record_heartbeat(&mut self, reached_store: bool, lease: Duration) {
        let now = Instant::now();
        if reached_store {
            self.last_heartbeat = Some(now);
        } else {
            self.grace_until = Some(now + lease.max(MIN_GRACE));
        }
    }
}

async fn run_callbacks(registry: Weak<TaskRegistry>, due: Arc<Notify>) {
    let (mut deliveries, mut queue) = (JoinSet::new(), CallbackQueue::default());
    let (mut must_list, mut next_list) = (true, Instant::now());
    while let Some(maintenance) = registry.upgrade().map(TaskMaintenance) {
        while deliveries.try_join_next().is_some() {}
        let has_callbacks = maintenance.0.callback_sender.load().is_some();
        if must_list && has_callbacks && Instant::now() >= next_list {
            let started = Instant::now();
            let now = OffsetDateTime::now_utc();
            let store = &maintenance.0.store;
            let listed = store.due_callbacks(now, MAX_LISTED_PER_CLIENT, MAX_LISTED_CALLBACKS).await;
            log_store_error(listed.map(|due| queue.set_due(due)));
            next_list = Instant::now() + started.elapsed() * LIST_PAUSE_FACTOR;
            must_list = false;
        }
        maintenance.start_due_callbacks(&mut queue, &mut deliveries);
        // Released while idle, so that the registry can be dropped.
        drop(maintenance);
        let is_delivering = !deliveries.is_empty();
        let until = if must_list && has_callbacks { next_list } else { Instant::now() + INTERVAL };
        tokio::select! {
            () = due.notified() => must_list = true,
            Some(_) = deliveries.join_next(), if is_delivering => {}
            () = sleep_until(until) => must_list = true,
        }
    }
}

fn log_store_error(result: Result<()>) {
    if let Err(error) = result {
        tracing::debug!(%error, "task store failed during maintenance; trying again");
    }
}
