//! All tasks of one gateway: begun, found, cancelled, ended. What is kept outlives the process; what runs is here.

use super::{
    callback::Teller,
    config::Config,
    live::Live,
    make::{brief, fresh, nothing, prepare, room},
    record::{Outcome, State, Task},
};
use crate::{
    fault::{Code, Fault, Result},
    net::{self, AddressPolicy},
    store::{Place, Refused, Tasks, open_tasks},
    telemetry::{Event, Metrics},
};
use arc_swap::{ArcSwap, ArcSwapOption};
use serde_json::Value;
use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use time::OffsetDateTime;
use tokio::{
    sync::{Notify, Semaphore},
    task::JoinSet,
};

/// How much longer than its time a task may run before it ends.
const OVERTIME: Duration = Duration::from_secs(10);
/// The longest id that is looked for.
const ID: usize = 32;

/// What tasks need from other rooms.
#[derive(Clone, Debug)]
pub struct Services<'a> {
    /// Whom the gateway believes when it tells of tasks' ends.
    pub network: &'a net::Config,
    /// Which addresses may be reached.
    pub policy: Arc<AddressPolicy>,
    /// Counts what happens.
    pub metrics: Arc<Metrics>,
}

/// A task that is to begin.
#[derive(Debug)]
pub struct New<'a> {
    /// Whose it is.
    pub owner: Arc<str>,
    /// The agent.
    pub agent: &'a str,
    /// The operation; empty for the implied one.
    pub operation: &'a str,
    /// The id of the call.
    pub request: &'a str,
    /// How long the agent may take.
    pub time: Duration,
    /// Where its end is to be told.
    pub callback: Option<&'a str>,
}

/// The tasks.
pub struct Desk {
    pub(super) config: ArcSwap<Config>,
    pub(super) store: Arc<dyn Tasks>,
    /// The name of this process among those that share the store.
    pub(super) keeper: Arc<str>,
    pub(super) live: Mutex<HashMap<Arc<str>, Arc<Live>>>,
    pub(super) teller: ArcSwapOption<Teller>,
    pub(super) metrics: Arc<Metrics>,
    /// There may be somebody to tell.
    pub(super) due: Arc<Notify>,
    running: Arc<Semaphore>,
    streams: Arc<Semaphore>,
    pub(super) house: Mutex<JoinSet<()>>,
}

impl fmt::Debug for Desk {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("Desk").field("store", &self.store).finish_non_exhaustive()
    }
}

impl Desk {
    /// Opens the store, and keeps house until this is dropped. Needs a tokio runtime.
    ///
    /// # Errors
    /// Every value of `config` that cannot be used, by its path in that section.
    pub async fn open(
        config: &Config,
        published: Option<Place>,
        services: &Services<'_>,
    ) -> std::result::Result<Arc<Self>, Vec<String>> {
        let teller = prepare(config, services)?;
        let store = open_tasks(&config.place(published)).await.map_err(|why| vec![format!("store: {why}")])?;
        let places = |most: u32| Arc::new(Semaphore::new(most as usize));
        let desk = Arc::new(Self {
            config: ArcSwap::from_pointee(config.clone()),
            store,
            keeper: uuid::Uuid::new_v4().simple().to_string().into(),
            live: Mutex::default(),
            teller: ArcSwapOption::from(teller),
            metrics: Arc::clone(&services.metrics),
            due: Arc::default(),
            running: places(config.most_running),
            streams: places(config.resume.as_ref().map_or(0, |resume| resume.most)),
            house: Mutex::default(),
        });
        desk.keep_house();
        Ok(desk)
    }

    /// Puts a changed configuration in force. The store, and how many tasks and streams there may be at once, stay as
    /// they were at the start.
    ///
    /// # Errors
    /// As [`Desk::open`]; then nothing has changed.
    pub fn reconfigure(&self, config: &Config, services: &Services<'_>) -> std::result::Result<(), Vec<String>> {
        let teller = prepare(config, services)?;
        self.teller.store(teller);
        self.config.store(Arc::new(config.clone()));
        Ok(())
    }

    /// The configuration in force.
    pub fn config(&self) -> Arc<Config> {
        self.config.load_full()
    }

    /// Begins a task, which is kept when this returns.
    ///
    /// # Errors
    /// `InvalidInput` for an address that may not be told, `RateLimited` where the caller has too many tasks,
    /// `Overloaded` where there are too many, or the store cannot be reached.
    pub async fn begin(&self, new: New<'_>) -> Result<Arc<Live>> {
        let config = self.config();
        if let Some(url) = new.callback {
            self.admit(url)?;
        }
        let later = |code, text: &'static str| Fault::new(code, text).retry_after(config.poll.get());
        let place = Arc::clone(&self.running).try_acquire_owned();
        let place = place.map_err(|_| later(Code::Overloaded, "too many tasks run at once"))?;
        let now = OffsetDateTime::now_utc();
        let mut task = fresh(&new, now);
        task.expires = now + new.time + OVERTIME + self.keep(&config, task.callback.is_some());
        let kept = task.kept(&new.owner, &self.keeper, None);
        let most = (config.most_own, config.most_in_all);
        let mut begun = self.store.begin(&kept, most).await?;
        if begun == Err(Refused::OwnFull) && self.store.make_room(&new.owner, config.most_own / 64 + 1).await? {
            begun = self.store.begin(&kept, most).await?;
        }
        match begun {
            Ok(()) => {}
            Err(Refused::OwnFull) => {
                return Err(later(Code::RateLimited, "the caller has as many tasks as it may have"));
            }
            Err(_) => return Err(later(Code::Overloaded, "there are as many tasks as there may be")),
        }
        let live = Arc::new(Live::new(task, new.owner, room(&config, false), place));
        live.say("status", &live.task().view(config.poll.get()));
        self.lock().insert(live.id(), Arc::clone(&live));
        Ok(live)
    }

    /// Something that runs while its caller listens, and that can be taken up again by its id; none where there are too
    /// many, or where that is not wanted. It is not kept over the process's end.
    pub fn stream(&self, new: &New<'_>) -> Option<Arc<Live>> {
        let config = self.config();
        config.resume.as_ref()?;
        let place = Arc::clone(&self.streams).try_acquire_owned().ok()?;
        let task = fresh(new, OffsetDateTime::now_utc());
        let live = Arc::new(Live::new(task, Arc::clone(&new.owner), room(&config, true), place));
        // There is nothing to be kept.
        live.saved();
        self.lock().insert(live.id(), Arc::clone(&live));
        Some(live)
    }

    /// A stream has ended. Where it answered the JSON-RPC request `rpc`, a failure is told in that form (R94).
    pub fn close(&self, live: &Live, outcome: &Outcome, rpc: Option<&Value>) {
        let poll = self.config().poll.get();
        live.end(outcome, self.config().keep.get(), |task| match (outcome, rpc) {
            (Outcome::Answered(_), _) => None,
            (Outcome::Failed(fault), Some(id)) => Some(("", fault.rpc(id, &task.request).to_string())),
            (Outcome::Failed(_), None) => Some(("error", task.end.to_string())),
            (Outcome::Canceled, _) => Some(("status", brief(task, poll))),
        });
    }

    /// A task has ended, one way or the other; the first way counts.
    pub async fn end(&self, live: &Live, outcome: &Outcome) {
        let Some(task) = self.over(live, outcome) else { return };
        if let Err(why) = self.save(live, &task).await {
            tracing::warn!(%why, "how a task ended could not be kept yet");
        }
    }

    /// As [`Desk::end`], without keeping it; that is left to whoever tidies up.
    pub(super) fn over(&self, live: &Live, outcome: &Outcome) -> Option<Task> {
        let config = self.config();
        let told = live.task().callback.is_some();
        let poll = config.poll.get();
        let task = live.end(outcome, self.keep(&config, told), |task| Some(("status", brief(task, poll))))?;
        self.metrics.count(match task.state {
            State::Completed => Event::TaskCompleted,
            State::Canceled => Event::TaskCanceled,
            _ => Event::TaskFailed,
        });
        Some(task)
    }

    /// Keeps how a task ended; where that fails, it is tried again later.
    pub(super) async fn save(&self, live: &Live, task: &Task) -> Result<()> {
        let due = task.callback.as_ref().map(|_| OffsetDateTime::now_utc());
        self.store.finish(&task.kept(&live.owner, &self.keeper, due)).await?;
        live.saved();
        if due.is_some() {
            self.due.notify_one();
        }
        Ok(())
    }

    /// The task called `id`, where it is `owner`'s.
    ///
    /// # Errors
    /// `NotFound`, the same for what is another's and for what is no id; `Overloaded`.
    pub async fn find(&self, owner: &str, id: &str) -> Result<(Task, Option<Arc<Live>>)> {
        if id.len() != ID || !id.bytes().all(|byte| byte.is_ascii_hexdigit() && !byte.is_ascii_uppercase()) {
            return Err(nothing());
        }
        if let Some(live) = self.lock().get(id).cloned() {
            return if *live.owner == *owner { Ok((live.task(), Some(live))) } else { Err(nothing()) };
        }
        let kept =
            self.store.get(id).await?.filter(|kept| *kept.owner == *owner && kept.expires > OffsetDateTime::now_utc());
        let task = kept.as_ref().and_then(Task::read).ok_or_else(nothing)?;
        Ok((task, None))
    }

    /// Cancels the task called `id`; one that has ended stays as it is.
    ///
    /// # Errors
    /// As [`Desk::find`].
    pub async fn cancel(&self, owner: &Arc<str>, id: &str) -> Result<Task> {
        let (mut task, live) = self.find(owner, id).await?;
        if task.state != State::Working {
            return Ok(task);
        }
        let Some(live) = live else {
            // It runs elsewhere, where its end is noticed.
            task.ends(&Outcome::Canceled, self.keep(&self.config(), task.callback.is_some()));
            let due = task.callback.as_ref().map(|_| OffsetDateTime::now_utc());
            return match self.store.finish(&task.kept(owner, &self.keeper, due)).await? {
                true => {
                    self.metrics.count(Event::TaskCanceled);
                    Ok(task)
                }
                false => Ok(self.find(owner, id).await?.0),
            };
        };
        live.cancel();
        live.ended().await;
        Ok(live.task())
    }

    /// Whether an address may be told of a task's end.
    fn admit(&self, url: &str) -> Result<()> {
        match &*self.teller.load() {
            Some(teller) => teller.admit(url),
            None => Err(Fault::new(Code::InvalidInput, "callbacks are not offered here (look at the task instead)")),
        }
    }

    /// How long a task is kept after its end.
    pub(super) fn keep(&self, config: &Config, told: bool) -> Duration {
        let told = config.callbacks.as_ref().filter(|_| told).map(|callbacks| callbacks.give_up.get());
        config.keep.get().max(told.unwrap_or_default())
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, Arc<Live>>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
