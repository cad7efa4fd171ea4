//! Background maintenance of tasks: the gateway's lease and heartbeat, tasks of gateways that died, expired tasks,
//! unsaved ends and due callbacks. Each part fails on its own and is retried.

use super::{
    callback::Teller,
    desk::Desk,
    make::lost,
    record::{Outcome, State, Task},
};
use crate::{
    fault::{Code, Fault, Result},
    store::KeptTask,
    telemetry::Event,
};
use futures_util::{StreamExt, TryStreamExt, stream};
use std::{
    collections::HashSet,
    sync::{Arc, PoisonError, Weak},
    time::Duration,
};
use time::OffsetDateTime;
use tokio::{
    sync::Notify,
    task::JoinSet,
    time::{Instant, MissedTickBehavior, interval, sleep, timeout},
};

/// Interval of maintenance.
const OFTEN: Duration = Duration::from_millis(500);
/// Maximum number of concurrent callbacks; a slow receiver delays no other.
const TOLD_AT_ONCE: usize = 64;
/// Maximum number of concurrent writes of ended tasks.
const KEPT_AT_ONCE: usize = 64;
/// Maximum number of pages of expired tasks that are deleted in one round.
const SWEPT_AT_ONCE: usize = 10;
/// How long a gateway that stops waits for the task store.
const FAREWELL: Duration = Duration::from_secs(10);
/// Minimum time that other gateways get for a heartbeat after the store was unreachable; theirs may be delayed so long.
const SETTLING: Duration = Duration::from_secs(10);
/// Practically infinite lease.
const NEVER: Duration = Duration::from_secs(10 * 365 * 86_400);
/// How long beyond its timeout an attempt keeps other gateways from delivering the same callback. If the gateway dies
/// meanwhile, the callback is delivered twice, with the same id.
const SLACK: Duration = Duration::from_secs(3);

impl Desk {
    pub(super) fn keep_house(self: &Arc<Self>) {
        let mut house = self.house.lock().unwrap_or_else(PoisonError::into_inner);
        house.spawn(beat(Arc::downgrade(self)));
        house.spawn(tell(Arc::downgrade(self), Arc::clone(&self.due)));
    }

    /// Sends this gateway's heartbeat, ends the tasks of dead gateways, and cancels tasks that were ended elsewhere.
    async fn live_on(&self, monitor: &mut Pulse) -> Result<()> {
        let lease = self.config().lease.get();
        let orphans = self.store.beat(&self.keeper, monitor.patience(lease)).await;
        monitor.felt(orphans.is_ok(), lease);
        for orphan in orphans? {
            self.adopt(&orphan).await?;
        }
        let running: Vec<_> = {
            let live = self.lock();
            live.values().filter(|live| live.is_working() && !live.is_stream()).cloned().collect()
        };
        if running.is_empty() {
            return Ok(());
        }
        let open: HashSet<Arc<str>> = self.store.open_of(&self.keeper).await?.into_iter().collect();
        // Read after the list of running tasks: a task that started since is not in that list.
        for live in running {
            if !open.contains(&live.id()) && live.is_working() {
                live.cancel();
            }
        }
        Ok(())
    }

    /// Marks a task of a dead gateway as failed. It is not run again, because the agent may have done its work.
    async fn adopt(&self, orphan: &KeptTask) -> Result<()> {
        let has_callback = Task::read(orphan).is_some_and(|task| task.callback.is_some());
        let Some(task) = lost(orphan, self.keep(&self.config(), has_callback)) else { return Ok(()) };
        let due = task.callback.as_ref().map(|_| OffsetDateTime::now_utc());
        if self.store.finish(&task.kept(&orphan.owner, &self.keeper, due)).await? {
            self.metrics.count(Event::TaskLost);
            tracing::warn!(task = %task.id, agent = %task.agent, "task marked as failed: its gateway is gone");
            self.due.notify_one();
        }
        Ok(())
    }

    /// Saves unsaved ends, and deletes expired tasks and streams.
    async fn tidy(&self) -> Result<()> {
        let window = self.config().resume.as_ref().map_or(Duration::ZERO, |resume| resume.window.get());
        let saved = self.save_all().await;
        // Deleting streams needs no store.
        self.lock().retain(|_, live| !live.is_done(window));
        saved?;
        for _ in 0..SWEPT_AT_ONCE {
            if !self.store.sweep(OffsetDateTime::now_utc()).await? {
                break;
            }
        }
        Ok(())
    }

    /// Saves the ends that could not be saved before. Stops at the first error, because the others would fail as well.
    async fn save_all(&self) -> Result<()> {
        let unsaved: Vec<_> = self.lock().values().filter(|live| live.is_unsaved()).cloned().collect();
        let saves = unsaved.into_iter().map(|live| async move { self.save(&live, &live.task()).await });
        stream::iter(saves).buffer_unordered(KEPT_AT_ONCE).try_collect().await
    }

    /// Starts to deliver due callbacks, up to the limit of concurrent ones.
    async fn tell_due(self: &Arc<Self>, deliveries: &mut JoinSet<()>) -> Result<()> {
        let Some(sender) = self.teller.load_full() else { return Ok(()) };
        let free = TOLD_AT_ONCE.saturating_sub(deliveries.len());
        if free == 0 {
            return Ok(());
        }
        let now = OffsetDateTime::now_utc();
        let until = now + sender.config.timeout.get() + SLACK;
        for stored in self.store.claim(now, until, free).await? {
            let (manager, sender) = (Arc::clone(self), Arc::clone(&sender));
            deliveries.spawn(async move { tried(manager.tell_one(&sender, stored).await) });
        }
        Ok(())
    }

    async fn tell_one(&self, sender: &Teller, stored: KeptTask) -> Result<()> {
        let task = Task::read(&stored);
        let Some((mut task, (url, tries))) = task.and_then(|task| Some((task.clone(), task.callback?))) else {
            return self.store.told(&KeptTask { due: None, ..stored }).await;
        };
        let (state, at) = (task.state.as_str(), task.updated.unix_timestamp());
        let view = task.view(self.config().poll.get());
        let body = format!("{{\"type\":\"task.{state}\",\"timestamp\":{at},\"data\":{view}}}").into_bytes();
        let delivered = match sender.admit(&url) {
            Ok(()) => sender.tell(&url, &format!("msg_{}", task.id), body).await,
            Err(why) => Err(why.to_string()),
        };
        let due = match delivered {
            Ok(()) => {
                self.metrics.count(Event::CallbackDelivered);
                None
            }
            Err(why) => {
                let next = sender.next(tries, task.updated);
                self.metrics.count(if next.is_some() { Event::CallbackFailed } else { Event::CallbackGivenUp });
                let why = crate::telemetry::redact(&why);
                tracing::info!(task = %task.id, tries = tries + 1, last = next.is_none(), "callback failed: {why}");
                next
            }
        };
        task.callback = Some((url, tries + 1));
        self.store.told(&task.kept(&stored.owner, &stored.keeper, due)).await
    }

    /// Shuts down: waits `longest` for running tasks, then marks them as failed.
    pub async fn drain(&self, longest: Duration) {
        let running: Vec<_> =
            self.lock().values().filter(|live| live.is_working() && !live.is_stream()).cloned().collect();
        let all = async {
            for live in &running {
                live.ended().await;
            }
        };
        if timeout(longest, all).await.is_err() {
            for live in running.iter().filter(|live| live.is_working()) {
                let fault = Fault::new(Code::AgentUnavailable, "The gateway was stopped before the agent finished");
                self.over(live, &Outcome::Failed(fault));
                live.cancel();
            }
        }
        let shutdown = async {
            self.save_all().await?;
            self.store.leave(&self.keeper).await
        };
        // Ends that are not saved now are found by another gateway as tasks of a dead one.
        match timeout(FAREWELL, shutdown).await {
            Ok(Ok(())) => {}
            Ok(Err(why)) => tracing::warn!(%why, "cannot end the lease in the task store on shutdown"),
            Err(_) => tracing::warn!("cannot end the lease in the task store on shutdown: timed out"),
        }
        self.house.lock().unwrap_or_else(PoisonError::into_inner).abort_all();
    }
}

async fn beat(manager: Weak<Desk>) {
    let mut tick = interval(OFTEN);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut last, mut monitor) = (None::<Instant>, Pulse::default());
    loop {
        tick.tick().await;
        let Some(manager) = manager.upgrade() else { return };
        let lease = manager.config().lease.get();
        if last.is_none_or(|last| last.elapsed() >= lease / 5) {
            last = Some(Instant::now());
            tried(manager.live_on(&mut monitor).await);
        }
        tried(manager.tidy().await);
    }
}

/// Decides whether this gateway may declare others dead. While the store is unreachable, other gateways cannot send
/// heartbeats either, so after that they first get the length of a lease to send one.
#[derive(Debug, Default)]
pub(super) struct Pulse {
    last: Option<Instant>,
    settled: Option<Instant>,
}

impl Pulse {
    /// Returns the lease by which other gateways are judged now.
    pub(super) fn patience(&mut self, lease: Duration) -> Duration {
        let now = Instant::now();
        if self.last.take().is_some_and(|last| now - last >= 2 * lease) {
            self.settled = self.settled.max(Some(now + lease));
        }
        if self.settled.is_some_and(|settled| now < settled) { NEVER } else { lease }
    }

    /// Records whether the heartbeat reached the store.
    pub(super) fn felt(&mut self, reached_store: bool, lease: Duration) {
        let now = Instant::now();
        match reached_store {
            true => self.last = Some(now),
            false => self.settled = Some(now + lease.max(SETTLING)),
        }
    }
}

async fn tell(manager: Weak<Desk>, due: Arc<Notify>) {
    let mut deliveries = JoinSet::new();
    while let Some(manager) = manager.upgrade() {
        while deliveries.try_join_next().is_some() {}
        tried(manager.tell_due(&mut deliveries).await);
        // Released while idle, so that the manager can be dropped.
        drop(manager);
        let full = deliveries.len() >= TOLD_AT_ONCE;
        tokio::select! {
            () = due.notified() => {}
            Some(_) = deliveries.join_next(), if full => {}
            () = sleep(OFTEN) => {}
        }
    }
}

fn tried(done: Result<()>) {
    if let Err(why) = done {
        tracing::debug!(%why, "task store failed during maintenance; trying again");
    }
}

impl Task {
    /// Whether the task ended.
    pub fn has_ended(&self) -> bool {
        self.state != State::Working
    }
}
