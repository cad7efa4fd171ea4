//! What is looked after over and over: that this gateway lives, what others left behind, what has expired, who is to be
//! told. Every part fails for itself and is tried again.

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

/// How often is looked for what is due.
const OFTEN: Duration = Duration::from_millis(500);
/// Ends that are told at once; one that is slow to hear of it holds up nobody else.
const TOLD_AT_ONCE: usize = 64;
/// Ends that are kept at once.
const KEPT_AT_ONCE: usize = 64;
/// Pages of what has expired that are forgotten before something else is looked after.
const SWEPT_AT_ONCE: usize = 10;
/// How long a gateway that stops waits for its store.
const FAREWELL: Duration = Duration::from_secs(10);
/// How long others get at least to be heard again; a question that they wait for may hold them up that long.
const SETTLING: Duration = Duration::from_secs(10);
/// Longer than any gateway is silent.
const NEVER: Duration = Duration::from_secs(10 * 365 * 86_400);
/// How much longer than an attempt nobody else makes another. Where a gateway died in between, the end is told twice:
/// its id is the same then.
const SLACK: Duration = Duration::from_secs(3);

impl Desk {
    pub(super) fn keep_house(self: &Arc<Self>) {
        let mut house = self.house.lock().unwrap_or_else(PoisonError::into_inner);
        house.spawn(beat(Arc::downgrade(self)));
        house.spawn(tell(Arc::downgrade(self), Arc::clone(&self.due)));
    }

    /// Says that this gateway lives; ends what others left behind, and what was cancelled elsewhere.
    async fn live_on(&self, pulse: &mut Pulse) -> Result<()> {
        let lease = self.config().lease.get();
        let beaten = self.store.beat(&self.keeper, pulse.patience(lease)).await;
        pulse.felt(beaten.is_ok(), lease);
        for orphan in beaten? {
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
        // Asked before the look: a task that began meanwhile is not among those asked for.
        for live in running {
            if !open.contains(&live.id()) && live.is_working() {
                live.cancel();
            }
        }
        Ok(())
    }

    /// Ends a task whose gateway is gone. It is never run again: the agent may have done its work.
    async fn adopt(&self, orphan: &KeptTask) -> Result<()> {
        let told = Task::read(orphan).is_some_and(|task| task.callback.is_some());
        let Some(task) = lost(orphan, self.keep(&self.config(), told)) else { return Ok(()) };
        let due = task.callback.as_ref().map(|_| OffsetDateTime::now_utc());
        if self.store.finish(&task.kept(&orphan.owner, &self.keeper, due)).await? {
            self.metrics.count(Event::TaskLost);
            tracing::warn!(task = %task.id, agent = %task.agent, "a task's gateway is gone; it is marked as failed");
            self.due.notify_one();
        }
        Ok(())
    }

    /// Keeps what could not be kept before, and forgets what nobody needs.
    async fn tidy(&self) -> Result<()> {
        let window = self.config().resume.as_ref().map_or(Duration::ZERO, |resume| resume.window.get());
        let saved = self.save_all().await;
        // Streams need no store.
        self.lock().retain(|_, live| !live.is_done(window));
        saved?;
        for _ in 0..SWEPT_AT_ONCE {
            if !self.store.sweep(OffsetDateTime::now_utc()).await? {
                break;
            }
        }
        Ok(())
    }

    /// Keeps what could not be kept before. The first that fails again ends it: so would the others.
    async fn save_all(&self) -> Result<()> {
        let unsaved: Vec<_> = self.lock().values().filter(|live| live.is_unsaved()).cloned().collect();
        let saves = unsaved.into_iter().map(|live| async move { self.save(&live, &live.task()).await });
        stream::iter(saves).buffer_unordered(KEPT_AT_ONCE).try_collect().await
    }

    /// Begins to tell of ends, as many as there is room for beside those that are being told.
    async fn tell_due(self: &Arc<Self>, telling: &mut JoinSet<()>) -> Result<()> {
        let Some(teller) = self.teller.load_full() else { return Ok(()) };
        let room = TOLD_AT_ONCE.saturating_sub(telling.len());
        if room == 0 {
            return Ok(());
        }
        let now = OffsetDateTime::now_utc();
        let until = now + teller.config.timeout.get() + SLACK;
        for kept in self.store.claim(now, until, room).await? {
            let (desk, teller) = (Arc::clone(self), Arc::clone(&teller));
            telling.spawn(async move { tried(desk.tell_one(&teller, kept).await) });
        }
        Ok(())
    }

    async fn tell_one(&self, teller: &Teller, kept: KeptTask) -> Result<()> {
        let task = Task::read(&kept);
        let Some((mut task, (url, tries))) = task.and_then(|task| Some((task.clone(), task.callback?))) else {
            return self.store.told(&KeptTask { due: None, ..kept }).await;
        };
        let (state, at) = (task.state.as_str(), task.updated.unix_timestamp());
        let view = task.view(self.config().poll.get());
        let body = format!("{{\"type\":\"task.{state}\",\"timestamp\":{at},\"data\":{view}}}").into_bytes();
        let told = match teller.admit(&url) {
            Ok(()) => teller.tell(&url, &format!("msg_{}", task.id), body).await,
            Err(why) => Err(why.to_string()),
        };
        let due = match told {
            Ok(()) => {
                self.metrics.count(Event::CallbackDelivered);
                None
            }
            Err(why) => {
                let next = teller.next(tries, task.updated);
                self.metrics.count(if next.is_some() { Event::CallbackFailed } else { Event::CallbackGivenUp });
                let why = crate::telemetry::redact(&why);
                tracing::info!(task = %task.id, tries = tries + 1, last = next.is_none(), "a callback failed: {why}");
                next
            }
        };
        task.callback = Some((url, tries + 1));
        self.store.told(&task.kept(&kept.owner, &kept.keeper, due)).await
    }

    /// The process ends: tasks that run have `longest` to do so too, then they are marked as failed.
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
                let fault = Fault::new(Code::AgentUnavailable, "the gateway was stopped before the agent had finished");
                self.over(live, &Outcome::Failed(fault));
                live.cancel();
            }
        }
        let told = async {
            self.save_all().await?;
            self.store.leave(&self.keeper).await
        };
        // What is not kept now is found by whoever comes next, as left behind.
        match timeout(FAREWELL, told).await {
            Ok(Ok(())) => {}
            Ok(Err(why)) => tracing::warn!(%why, "the store of tasks could not be told that this gateway ends"),
            Err(_) => tracing::warn!("the store of tasks could not be told in time that this gateway ends"),
        }
        self.house.lock().unwrap_or_else(PoisonError::into_inner).abort_all();
    }
}

async fn beat(desk: Weak<Desk>) {
    let mut tick = interval(OFTEN);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut last, mut pulse) = (None::<Instant>, Pulse::default());
    loop {
        tick.tick().await;
        let Some(desk) = desk.upgrade() else { return };
        let lease = desk.config().lease.get();
        if last.is_none_or(|last| last.elapsed() >= lease / 5) {
            last = Some(Instant::now());
            tried(desk.live_on(&mut pulse).await);
        }
        tried(desk.tidy().await);
    }
}

/// Whether this gateway is in a state to say of others that they are dead. After a time in which the store could not be
/// asked, they have been as silent as this one: first they get as long to be heard again.
#[derive(Debug, Default)]
pub(super) struct Pulse {
    last: Option<Instant>,
    settled: Option<Instant>,
}

impl Pulse {
    /// After which silence another counts as dead now.
    pub(super) fn patience(&mut self, lease: Duration) -> Duration {
        let now = Instant::now();
        if self.last.take().is_some_and(|last| now - last >= 2 * lease) {
            self.settled = self.settled.max(Some(now + lease));
        }
        if self.settled.is_some_and(|settled| now < settled) { NEVER } else { lease }
    }

    /// Whether the store was told that this gateway lives.
    pub(super) fn felt(&mut self, told: bool, lease: Duration) {
        let now = Instant::now();
        match told {
            true => self.last = Some(now),
            false => self.settled = Some(now + lease.max(SETTLING)),
        }
    }
}

async fn tell(desk: Weak<Desk>, due: Arc<Notify>) {
    let mut telling = JoinSet::new();
    while let Some(desk) = desk.upgrade() {
        while telling.try_join_next().is_some() {}
        tried(desk.tell_due(&mut telling).await);
        // Not held while nothing is to be done, so that it can go.
        drop(desk);
        let full = telling.len() >= TOLD_AT_ONCE;
        tokio::select! {
            () = due.notified() => {}
            Some(_) = telling.join_next(), if full => {}
            () = sleep(OFTEN) => {}
        }
    }
}

fn tried(done: Result<()>) {
    if let Err(why) = done {
        tracing::debug!(%why, "the store of tasks cannot be asked; it is tried again");
    }
}

impl Task {
    /// Whether it ended.
    pub fn has_ended(&self) -> bool {
        self.state != State::Working
    }
}
