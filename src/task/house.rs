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
use futures_util::{StreamExt, stream};
use std::{
    sync::{Arc, PoisonError, Weak},
    time::Duration,
};
use time::OffsetDateTime;
use tokio::{
    sync::Notify,
    time::{MissedTickBehavior, interval, timeout},
};

/// How often is looked for what is due.
const OFTEN: Duration = Duration::from_millis(500);
/// Ends that are told at once.
const TOLD_AT_ONCE: usize = 16;
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
    async fn live_on(&self) -> Result<()> {
        let config = self.config();
        for orphan in self.store.beat(&self.keeper, config.lease.get()).await? {
            self.adopt(&orphan).await?;
        }
        let running: Vec<_> = {
            let live = self.lock();
            live.values().filter(|live| !live.is_unsaved() && live.is_working() && !live.is_stream()).cloned().collect()
        };
        if running.is_empty() {
            return Ok(());
        }
        let open = self.store.open_of(&self.keeper).await?;
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
        let unsaved: Vec<_> = self.lock().values().filter(|live| live.is_unsaved()).cloned().collect();
        for live in unsaved {
            self.save(&live, &live.task()).await;
        }
        self.lock().retain(|_, live| !live.is_done(window));
        while self.store.sweep(OffsetDateTime::now_utc()).await? {}
        Ok(())
    }

    async fn tell_due(&self) -> Result<()> {
        let Some(teller) = self.teller.load_full() else { return Ok(()) };
        let now = OffsetDateTime::now_utc();
        let until = now + teller.config.timeout.get() + SLACK;
        let due = self.store.claim(now, until, TOLD_AT_ONCE).await?;
        let all = due.into_iter().map(|kept| self.tell_one(&teller, kept));
        stream::iter(all).buffer_unordered(TOLD_AT_ONCE).for_each(|told| async { drop(told) }).await;
        Ok(())
    }

    async fn tell_one(&self, teller: &Teller, kept: KeptTask) -> Result<()> {
        let task = Task::read(&kept);
        let Some((mut task, (url, tries))) = task.and_then(|task| Some((task.clone(), task.callback?))) else {
            return self.store.told(&KeptTask { due: None, ..kept }).await;
        };
        let body = serde_json::json!({
            "type": format!("task.{}", task.state.as_str()),
            "timestamp": task.updated.unix_timestamp(),
            "data": task.view(self.config().poll.get()),
        });
        let body = body.to_string().into_bytes();
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
                self.end(live, &Outcome::Failed(fault)).await;
                live.cancel();
            }
        }
        let unsaved: Vec<_> = self.lock().values().filter(|live| live.is_unsaved()).cloned().collect();
        for live in unsaved {
            self.save(&live, &live.task()).await;
        }
        if let Err(why) = self.store.leave(&self.keeper).await {
            tracing::warn!(%why, "the store of tasks could not be told that this gateway ends");
        }
        self.house.lock().unwrap_or_else(PoisonError::into_inner).abort_all();
    }
}

async fn beat(desk: Weak<Desk>) {
    let mut tick = interval(OFTEN);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut last: Option<tokio::time::Instant> = None;
    loop {
        tick.tick().await;
        let Some(desk) = desk.upgrade() else { return };
        let lease = desk.config().lease.get();
        if last.is_none_or(|last| last.elapsed() >= lease / 5) {
            last = Some(tokio::time::Instant::now());
            tried(desk.live_on().await);
        }
        tried(desk.tidy().await);
    }
}

async fn tell(desk: Weak<Desk>, due: Arc<Notify>) {
    while let Some(desk) = desk.upgrade() {
        tried(desk.tell_due().await);
        // Not held while nothing is to be done, so that it can go.
        drop(desk);
        let _ = timeout(OFTEN, due.notified()).await;
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
