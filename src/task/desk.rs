//! Task manager: starts, finds, cancels and ends tasks. The store outlives the process; running tasks are in memory.

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

/// How long beyond its deadline a task may run before it expires.
const OVERTIME: Duration = Duration::from_secs(10);
/// Length of a task id.
const ID: usize = 32;

/// Dependencies of the task manager.
#[derive(Clone, Debug)]
pub struct Services<'a> {
    /// Network configuration, for callbacks.
    pub network: &'a net::Config,
    /// Addresses that callbacks may reach.
    pub policy: Arc<AddressPolicy>,
    /// Metrics.
    pub metrics: Arc<Metrics>,
}

/// Parameters of a new task.
#[derive(Debug)]
pub struct New<'a> {
    /// The caller that owns it.
    pub owner: Arc<str>,
    /// Id of the agent.
    pub agent: &'a str,
    /// Operation; empty for the implied one.
    pub operation: &'a str,
    /// Id of the call.
    pub request: &'a str,
    /// Time limit of the agent.
    pub time: Duration,
    /// URL of the callback.
    pub callback: Option<&'a str>,
}

/// Manages all tasks of this gateway.
pub struct Desk {
    pub(super) config: ArcSwap<Config>,
    pub(super) store: Arc<dyn Tasks>,
    /// Id of this process among those that share the store.
    pub(super) keeper: Arc<str>,
    pub(super) live: Mutex<HashMap<Arc<str>, Arc<Live>>>,
    pub(super) teller: ArcSwapOption<Teller>,
    pub(super) metrics: Arc<Metrics>,
    /// Notified when a callback may be due.
    pub(super) due: Arc<Notify>,
    running: Arc<Semaphore>,
    streams: Arc<Semaphore>,
    pub(super) house: Mutex<JoinSet<()>>,
}

impl fmt::Debug for Desk {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("TaskManager").field("store", &self.store).finish_non_exhaustive()
    }
}

impl Desk {
    /// Opens the store and starts maintenance, which runs until the manager is dropped. Requires a tokio runtime.
    ///
    /// # Errors
    /// Returns every unusable value of `config`, by its path in that section.
    pub async fn open(
        config: &Config,
        published: Option<Place>,
        services: &Services<'_>,
    ) -> std::result::Result<Arc<Self>, Vec<String>> {
        let teller = prepare(config, services)?;
        let store = open_tasks(&config.place(published)).await.map_err(|why| vec![format!("store: {why}")])?;
        let semaphore = |max: u32| Arc::new(Semaphore::new(max as usize));
        let desk = Arc::new(Self {
            config: ArcSwap::from_pointee(config.clone()),
            store,
            keeper: uuid::Uuid::new_v4().simple().to_string().into(),
            live: Mutex::default(),
            teller: ArcSwapOption::from(teller),
            metrics: Arc::clone(&services.metrics),
            due: Arc::default(),
            running: semaphore(config.most_running),
            streams: semaphore(config.resume.as_ref().map_or(0, |resume| resume.most)),
            house: Mutex::default(),
        });
        desk.keep_house();
        Ok(desk)
    }

    /// Applies a changed configuration. The store and the limits of running tasks and streams keep their values of the
    /// start.
    ///
    /// # Errors
    /// As [`TaskManager::open`]; nothing changes then.
    pub fn reconfigure(&self, config: &Config, services: &Services<'_>) -> std::result::Result<(), Vec<String>> {
        let teller = prepare(config, services)?;
        self.teller.store(teller);
        self.config.store(Arc::new(config.clone()));
        Ok(())
    }

    /// Returns the configuration in force.
    pub fn config(&self) -> Arc<Config> {
        self.config.load_full()
    }

    /// Starts a task and stores it.
    ///
    /// # Errors
    /// `InvalidInput` for a callback URL that is not allowed, `RateLimited` when the caller has too many tasks,
    /// `Overloaded` when there are too many tasks in total or the store is unavailable.
    pub async fn begin(&self, new: New<'_>) -> Result<Arc<Live>> {
        let config = self.config();
        if let Some(url) = new.callback {
            self.admit(url)?;
        }
        let refuse = |code, text: &'static str| Fault::new(code, text).retry_after(config.poll.get());
        let permit = Arc::clone(&self.running).try_acquire_owned();
        let permit = permit.map_err(|_| refuse(Code::Overloaded, "Too many tasks are running"))?;
        let now = OffsetDateTime::now_utc();
        let mut task = fresh(&new, now);
        task.expires = now + new.time + OVERTIME + self.keep(&config, task.callback.is_some());
        let kept = task.kept(&new.owner, &self.keeper, None);
        let most = (config.most_own, config.most_in_all);
        let mut inserted = self.store.begin(&kept, most).await?;
        if inserted == Err(Refused::OwnFull) && self.store.make_room(&new.owner, config.most_own / 64 + 1).await? {
            inserted = self.store.begin(&kept, most).await?;
        }
        match inserted {
            Ok(()) => {}
            Err(Refused::OwnFull) => {
                return Err(refuse(Code::RateLimited, "The caller has too many tasks"));
            }
            Err(_) => return Err(refuse(Code::Overloaded, "The gateway has too many tasks")),
        }
        let live = Arc::new(Live::new(task, new.owner, room(&config, false), permit));
        live.say("status", &live.task().view(config.poll.get()));
        self.lock().insert(live.id(), Arc::clone(&live));
        Ok(live)
    }

    /// Starts a stream that its caller reads at once and can resume by its id. `None` if resumable streams are turned
    /// off or there are too many. A stream does not survive the process.
    pub fn stream(&self, new: &New<'_>) -> Option<Arc<Live>> {
        let config = self.config();
        config.resume.as_ref()?;
        let permit = Arc::clone(&self.streams).try_acquire_owned().ok()?;
        let task = fresh(new, OffsetDateTime::now_utc());
        let live = Arc::new(Live::new(task, Arc::clone(&new.owner), room(&config, true), permit));
        // A stream is not stored.
        live.saved();
        self.lock().insert(live.id(), Arc::clone(&live));
        Some(live)
    }

    /// Ends a stream. If it responded to the JSON-RPC request `rpc`, a failure is sent as a JSON-RPC error (R94).
    pub fn close(&self, live: &Live, outcome: &Outcome, rpc: Option<&Value>) {
        let poll = self.config().poll.get();
        live.end(outcome, self.config().keep.get(), |task| match (outcome, rpc) {
            (Outcome::Answered(_), _) => None,
            (Outcome::Failed(fault), Some(id)) => Some(("", fault.rpc(id, &task.request).to_string())),
            (Outcome::Failed(_), None) => Some(("error", task.end.to_string())),
            (Outcome::Canceled, _) => Some(("status", brief(task, poll))),
        });
    }

    /// Ends a task and saves its end; later calls for an ended task have no effect.
    pub async fn end(&self, live: &Live, outcome: &Outcome) {
        let Some(task) = self.over(live, outcome) else { return };
        if let Err(why) = self.save(live, &task).await {
            tracing::warn!(%why, "cannot save the end of a task yet; trying again");
        }
    }

    /// As [`TaskManager::end_and_save`], without saving: maintenance does that.
    pub(super) fn over(&self, live: &Live, outcome: &Outcome) -> Option<Task> {
        let config = self.config();
        let has_callback = live.task().callback.is_some();
        let poll = config.poll.get();
        let task = live.end(outcome, self.keep(&config, has_callback), |task| Some(("status", brief(task, poll))))?;
        self.metrics.count(match task.state {
            State::Completed => Event::TaskCompleted,
            State::Canceled => Event::TaskCanceled,
            _ => Event::TaskFailed,
        });
        Some(task)
    }

    /// Saves how a task ended; maintenance retries if that fails.
    pub(super) async fn save(&self, live: &Live, task: &Task) -> Result<()> {
        let due = task.callback.as_ref().map(|_| OffsetDateTime::now_utc());
        self.store.finish(&task.kept(&live.owner, &self.keeper, due)).await?;
        live.saved();
        if due.is_some() {
            self.due.notify_one();
        }
        Ok(())
    }

    /// Finds the task with this id, if it belongs to `owner`.
    ///
    /// # Errors
    /// `NotFound`, also for another caller's task and for an invalid id; `Overloaded`.
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

    /// Cancels the task with this id; an ended task stays unchanged.
    ///
    /// # Errors
    /// As [`TaskManager::find`].
    pub async fn cancel(&self, owner: &Arc<str>, id: &str) -> Result<Task> {
        let (mut task, live) = self.find(owner, id).await?;
        if task.state != State::Working {
            return Ok(task);
        }
        let Some(live) = live else {
            // Another gateway runs it, and notices the end in the store.
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

    /// Checks a callback URL.
    fn admit(&self, url: &str) -> Result<()> {
        match &*self.teller.load() {
            Some(teller) => teller.admit(url),
            None => Err(Fault::new(Code::InvalidInput, "Callbacks are not offered here (poll the task instead)")),
        }
    }

    /// Returns how long a task is kept after its end.
    pub(super) fn keep(&self, config: &Config, has_callback: bool) -> Duration {
        let retried = config.callbacks.as_ref().filter(|_| has_callback).map(|callbacks| callbacks.give_up.get());
        config.keep.get().max(retried.unwrap_or_default())
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, Arc<Live>>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
