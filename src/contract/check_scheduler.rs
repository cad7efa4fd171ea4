//! The suspended checks: what has not ended within the slice of a thread that serves calls goes on here, on threads of a
//! low priority, so that the operating system prefers the threads of calls. Each check gets a slice in turn, in rounds
//! over the clients, so that no check waits for the end of another one. A check ends at the deadline of its call, and as
//! soon as its caller has left.

use super::config::SuspendedCheckConfig;
use crate::{
    fault::{Fault, FaultCode, Result},
    values::{ClientKey, CountedHold, KeyedCounts, MaxShare, lower_thread_priority},
};
use parking_lot::{Condvar, Mutex};
use std::{
    collections::VecDeque,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, LazyLock,
        atomic::{AtomicBool, AtomicU16, Ordering},
    },
    task::Poll,
    time::{Duration, Instant},
};
use tokio::sync::oneshot;

/// Units of fuel of one slice: 0.6 ms, and at most 2 ms for what is most expensive for its price.
pub(super) const SLICE: u64 = 60_000;

/// `Retry-After` of a check beyond the share of its client: checks take up to some seconds.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// Maximum number of threads: one for each core. The system's answer takes the reading of files.
static MAX_THREADS: LazyLock<usize> = LazyLock::new(|| std::thread::available_parallelism().map_or(1, usize::from));

/// Work that goes on in slices.
pub trait SuspendedWork: Send + 'static {
    /// The result.
    type Output: Send + 'static;

    /// Goes on for `slice` units of fuel; returns the result once there is one.
    fn resume(&mut self, slice: u64) -> Poll<Self::Output>;
}

/// The suspended checks of one agent.
#[derive(Clone, Debug, Default)]
pub struct AgentSuspendedChecks(Arc<AtomicU16>);

/// One of the suspended checks of an agent, until it is dropped.
struct AgentSlot(AgentSuspendedChecks);

impl AgentSuspendedChecks {
    fn acquire(&self, max: u16) -> Option<AgentSlot> {
        let increment = |count: u16| (count < max).then_some(count + 1);
        self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, increment).ok()?;
        Some(AgentSlot(self.clone()))
    }

    /// Returns a number that no other agent has as long as this one has checks.
    fn id(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }
}

impl Drop for AgentSlot {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// What decides whether a check may be suspended, and when it must have ended.
#[derive(Clone, Copy)]
pub struct SuspendRequest<'a> {
    /// The agent whose schema is checked.
    pub agent: &'a AgentSuspendedChecks,
    /// The client whose share the check counts against.
    pub client: ClientKey,
    /// The bounds.
    pub config: &'a SuspendedCheckConfig,
    /// The share of each bound that one client may take.
    pub max_share: MaxShare,
    /// When the check must have ended.
    pub deadline: Instant,
}

/// The suspended checks of each client.
#[derive(Default)]
struct ClientCounts {
    of_agents: Arc<KeyedCounts<(usize, ClientKey)>>,
    of_clients: Arc<KeyedCounts<ClientKey>>,
}

/// What a check holds until it ends.
struct HeldPermits {
    _of_agent: CountedHold<(usize, ClientKey)>,
    _of_client: CountedHold<ClientKey>,
    // Last, because the other counts use its address as a key.
    _agent: AgentSlot,
}

impl ClientCounts {
    fn hold(&self, request: &SuspendRequest<'_>) -> Result<HeldPermits> {
        let SuspendRequest { agent, client, config, max_share, .. } = *request;
        let (max_of_agent, max_total) = (usize::from(config.max_per_agent), usize::from(config.max_total));
        let share_used_up = |what: &str| {
            let text = format!("The caller has its share of the long checks {what} (limits.max_share)");
            Fault::new(FaultCode::RateLimited, text).with_retry_after(RETRY_DELAY).with_setting("limits.max_share")
        };
        let agent = agent.acquire(config.max_per_agent).ok_or_else(|| {
            let text = "Too many long checks of this agent's inputs and outputs are in progress";
            Fault::new(FaultCode::Overloaded, text).with_setting("contract.suspended_checks.max_per_agent")
        })?;
        let share_of = |max: usize| if max_share.is_unlimited() { usize::MAX } else { max_share.of(max) };
        let of_agent = self.of_agents.try_hold((agent.0.id(), client), 1, share_of(max_of_agent));
        let of_agent = of_agent.ok_or_else(|| share_used_up("of one agent"))?;
        let of_client = self.of_clients.try_hold(client, 1, share_of(max_total));
        let of_client = of_client.ok_or_else(|| share_used_up("of all agents"))?;
        Ok(HeldPermits { _of_agent: of_agent, _of_client: of_client, _agent: agent })
    }
}

/// Gives the result to the caller.
type Delivery = Box<dyn FnOnce() + Send>;

/// A suspended check.
struct Task {
    client: ClientKey,
    is_cancelled: Arc<AtomicBool>,
    // Before the sender in `step`, so that the caller of a check that panicked finds its place free.
    _permits: HeldPermits,
    step: Box<dyn FnMut(u64) -> Option<Delivery> + Send>,
}

/// The checks of one client.
struct ClientTasks {
    client: ClientKey,
    waiting: VecDeque<Task>,
    running: usize,
}

/// The checks, in rounds over the clients: the client that was served longest ago is the first.
#[derive(Default)]
struct Rounds {
    clients: VecDeque<ClientTasks>,
    tasks: usize,
    idle_threads: usize,
    threads: usize,
}

impl Rounds {
    fn entry(&mut self, client: ClientKey) -> Option<&mut ClientTasks> {
        self.clients.iter_mut().find(|tasks| tasks.client == client)
    }

    fn push(&mut self, task: Task) {
        self.tasks += 1;
        match self.entry(task.client) {
            Some(tasks) => tasks.waiting.push_back(task),
            None => {
                let (client, waiting) = (task.client, VecDeque::from([task]));
                self.clients.push_back(ClientTasks { client, waiting, running: 0 });
            }
        }
    }

    /// Takes the next check: of the client that has the fewest running, and of these the one served longest ago.
    fn take_next(&mut self) -> Option<Task> {
        let waiting = self.clients.iter().enumerate().filter(|(_, tasks)| !tasks.waiting.is_empty());
        let (at, _) = waiting.min_by_key(|(_, tasks)| tasks.running)?;
        let mut tasks = self.clients.remove(at)?;
        let task = tasks.waiting.pop_front();
        tasks.running += usize::from(task.is_some());
        self.clients.push_back(tasks);
        task
    }

    /// Puts a check back behind the others of its client.
    fn put_back(&mut self, task: Task) {
        if let Some(tasks) = self.entry(task.client) {
            tasks.running = tasks.running.saturating_sub(1);
            tasks.waiting.push_back(task);
        }
    }

    /// Records the end of a check that ran.
    fn record_end(&mut self, client: ClientKey) {
        if let Some(tasks) = self.entry(client) {
            tasks.running = tasks.running.saturating_sub(1);
        }
        self.tasks = self.tasks.saturating_sub(1);
        self.remove_idle(client);
    }

    /// Removes the check of a caller that has left, if it does not run right now.
    fn remove(&mut self, client: ClientKey, is_cancelled: &Arc<AtomicBool>) -> Option<Task> {
        let tasks = self.entry(client)?;
        let at = tasks.waiting.iter().position(|task| Arc::ptr_eq(&task.is_cancelled, is_cancelled))?;
        let task = tasks.waiting.remove(at);
        self.tasks = self.tasks.saturating_sub(1);
        self.remove_idle(client);
        task
    }

    fn remove_idle(&mut self, client: ClientKey) {
        self.clients.retain(|tasks| tasks.client != client || tasks.running > 0 || !tasks.waiting.is_empty());
    }
}

#[derive(Default)]
struct SchedulerState {
    rounds: Mutex<Rounds>,
    wakeup: Condvar,
    counts: ClientCounts,
    without_agent: AgentSuspendedChecks,
}

/// The threads of suspended checks, which start with the first one.
#[derive(Clone, Default)]
pub struct CheckScheduler(Arc<SchedulerState>);

/// Ends a check whose caller no longer waits.
struct CancelOnDrop<'a> {
    state: &'a SchedulerState,
    client: ClientKey,
    is_cancelled: Arc<AtomicBool>,
}

impl Drop for CancelOnDrop<'_> {
    fn drop(&mut self) {
        self.is_cancelled.store(true, Ordering::Release);
        // Its memory is freed outside the lock.
        let removed = self.state.rounds.lock().remove(self.client, &self.is_cancelled);
        drop(removed);
    }
}

impl std::fmt::Debug for CheckScheduler {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("CheckScheduler").finish_non_exhaustive()
    }
}

impl CheckScheduler {
    /// Returns the checks that belong to no agent, such as those of bodies for the gateway itself.
    pub fn without_agent(&self) -> &AgentSuspendedChecks {
        &self.0.without_agent
    }

    /// Goes on with `work` until it ends.
    ///
    /// # Errors
    /// `RateLimited` if the client has its share; `Overloaded` if the agent has, or all agents have, too many suspended
    /// checks; `Timeout` at the deadline.
    pub async fn run<W: SuspendedWork>(&self, request: SuspendRequest<'_>, work: W) -> Result<W::Output> {
        let permits = self.0.counts.hold(&request)?;
        let (sender, receiver) = oneshot::channel();
        let (mut work, mut sender) = (work, Some(sender));
        let step = move |slice: u64| match work.resume(slice) {
            Poll::Pending => None,
            Poll::Ready(output) => {
                let sender = sender.take();
                // The caller may leave meanwhile.
                let deliver = move || drop(sender.map(|sender| sender.send(output)));
                Some(Box::new(deliver) as Delivery)
            }
        };
        let (client, is_cancelled) = (request.client, Arc::new(AtomicBool::new(false)));
        let task = Task { client, is_cancelled: Arc::clone(&is_cancelled), step: Box::new(step), _permits: permits };
        self.push(task, usize::from(request.config.max_total))?;
        let _cancel = CancelOnDrop { state: &self.0, client, is_cancelled };
        let failed = |_| Fault::new(FaultCode::Internal, "The check failed");
        match tokio::time::timeout_at(request.deadline.into(), receiver).await {
            Ok(result) => result.map_err(failed),
            Err(_) => {
                let text = "The check against the agent's schema did not end in time";
                Err(Fault::new(FaultCode::Timeout, text).with_deadline())
            }
        }
    }

    fn push(&self, task: Task, max_total: usize) -> Result<()> {
        let SchedulerState { rounds, wakeup, .. } = &*self.0;
        let mut rounds = rounds.lock();
        if rounds.tasks >= max_total {
            let fault = Fault::new(FaultCode::Overloaded, "Too many long checks are in progress");
            return Err(fault.with_setting("contract.suspended_checks.max_total"));
        }
        if rounds.idle_threads == 0 && rounds.threads < *MAX_THREADS {
            let scheduler = self.clone();
            match std::thread::Builder::new().name("check".to_owned()).spawn(move || scheduler.work()) {
                Ok(_) => rounds.threads += 1,
                Err(why) if rounds.threads == 0 => {
                    let fault = Fault::new(FaultCode::Overloaded, "No thread is available for a long check");
                    return Err(fault.with_detail(why));
                }
                // The threads that run take the check.
                Err(_) => {}
            }
        }
        rounds.push(task);
        wakeup.notify_one();
        Ok(())
    }

    /// Runs slices for as long as the process lives.
    fn work(&self) {
        lower_thread_priority();
        let SchedulerState { rounds, wakeup, .. } = &*self.0;
        loop {
            let task = {
                let mut rounds = rounds.lock();
                loop {
                    if let Some(task) = rounds.take_next() {
                        break task;
                    }
                    rounds.idle_threads += 1;
                    wakeup.wait(&mut rounds);
                    rounds.idle_threads -= 1;
                }
            };
            self.run_slice(task);
        }
    }

    fn run_slice(&self, task: Task) {
        let (mut task, rounds) = (task, &self.0.rounds);
        let client = task.client;
        // A panic drops the sender: the caller gets a fault.
        let result = catch_unwind(AssertUnwindSafe(|| (task.step)(SLICE)));
        if let Ok(None) = result {
            // Under the lock, so that a caller that leaves now finds its check, or is found.
            let mut rounds = rounds.lock();
            if !task.is_cancelled.load(Ordering::Acquire) {
                rounds.put_back(task);
                return;
            }
        }
        rounds.lock().record_end(client);
        drop(task);
        if let Ok(Some(deliver)) = result {
            deliver();
        }
    }
}
