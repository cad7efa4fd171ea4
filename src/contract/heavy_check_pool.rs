//! Threads for heavy checks: checks that may take longer than 10 ms would stop the calls that share a worker thread
//! with them. The threads have a low priority, so that the operating system prefers the workers. No client takes all
//! checks of an agent, the whole queue, or all threads while others wait.

use super::config::HeavyCheckConfig;
use crate::{
    fault::{Fault, FaultCode, Result},
    values::{ClientKey, CountedHold, KeyedCounts, MaxShare},
};
use parking_lot::{Condvar, Mutex};
use std::{
    collections::VecDeque,
    sync::{
        Arc, LazyLock,
        atomic::{AtomicU16, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::sync::oneshot;

/// Priority of the threads, as `nice` has it.
const NICENESS: i32 = 10;

/// `Retry-After` of a check beyond the share of its client: checks take up to some seconds.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// Maximum number of threads: one for each core. The system's answer takes the reading of files.
static MAX_THREADS: LazyLock<usize> = LazyLock::new(|| std::thread::available_parallelism().map_or(1, usize::from));

/// The heavy checks of one agent that run or wait.
#[derive(Clone, Debug, Default)]
pub struct AgentHeavyChecks(Arc<AtomicU16>);

/// One of the heavy checks of an agent, until it is dropped.
struct AgentSlot(AgentHeavyChecks);

impl AgentHeavyChecks {
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

/// What decides whether and when a heavy check runs.
#[derive(Clone, Copy)]
pub struct HeavyCheckRequest<'a> {
    /// The agent whose schema is checked.
    pub agent: &'a AgentHeavyChecks,
    /// The client whose share the check counts against.
    pub client: ClientKey,
    /// The bounds.
    pub config: &'a HeavyCheckConfig,
    /// The share of each bound that one client may take.
    pub max_share: MaxShare,
    /// When the check must have ended.
    pub deadline: Instant,
}

/// The checks that each client has running or waiting.
#[derive(Default)]
struct ClientCounts {
    of_agents: Arc<KeyedCounts<(usize, ClientKey)>>,
    of_clients: Arc<KeyedCounts<ClientKey>>,
}

/// What a check holds until it ends, also when its caller has left.
struct HeldPermits {
    _of_agent: CountedHold<(usize, ClientKey)>,
    _of_client: CountedHold<ClientKey>,
    // Last, because the other counts use its address as a key.
    _agent: AgentSlot,
}

impl ClientCounts {
    fn hold(&self, request: &HeavyCheckRequest<'_>) -> Result<HeldPermits> {
        let HeavyCheckRequest { agent, client, config, max_share, .. } = *request;
        let (max_of_agent, max_queued) = (usize::from(config.max_per_agent), usize::from(config.max_queued));
        let share_used_up = |what: &str| {
            let text = format!("The caller has its share of the expensive checks that {what} (limits.max_share)");
            Fault::new(FaultCode::RateLimited, text).with_retry_after(RETRY_DELAY).with_setting("limits.max_share")
        };
        let agent = agent.acquire(config.max_per_agent).ok_or_else(|| {
            let text = "Too many expensive checks of this agent's inputs and outputs are running";
            Fault::new(FaultCode::Overloaded, text).with_setting("contract.heavy_checks.max_per_agent")
        })?;
        let share_of = |max: usize| if max_share.is_unlimited() { usize::MAX } else { max_share.of(max) };
        let of_agent = self.of_agents.try_hold((agent.0.id(), client), 1, share_of(max_of_agent));
        let of_agent = of_agent.ok_or_else(|| share_used_up("one agent may have in progress"))?;
        let of_client = self.of_clients.try_hold(client, 1, share_of(max_queued + *MAX_THREADS));
        let of_client = of_client.ok_or_else(|| share_used_up("may run and wait"))?;
        Ok(HeldPermits { _of_agent: of_agent, _of_client: of_client, _agent: agent })
    }
}

impl Drop for AgentSlot {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::AcqRel);
    }
}

struct Job {
    client: ClientKey,
    run: Box<dyn FnOnce() + Send>,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    /// The clients whose checks run now.
    running: Vec<ClientKey>,
    idle_threads: usize,
    threads: usize,
}

impl Queue {
    /// Takes the next check: the oldest of a client that has none running, or else the oldest.
    fn take_next(&mut self) -> Option<Job> {
        let is_next = |job: &Job| !self.running.contains(&job.client);
        let job = self.jobs.remove(self.jobs.iter().position(is_next).unwrap_or(0))?;
        self.running.push(job.client);
        Some(job)
    }

    fn record_end(&mut self, client: ClientKey) {
        if let Some(index) = self.running.iter().position(|running| *running == client) {
            self.running.swap_remove(index);
        }
    }
}

#[derive(Default)]
struct PoolState {
    queue: Mutex<Queue>,
    wakeup: Condvar,
    clients: ClientCounts,
}

/// The threads, which start with the first heavy check.
#[derive(Clone, Default)]
pub struct HeavyCheckPool(Arc<PoolState>);

impl std::fmt::Debug for HeavyCheckPool {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("HeavyCheckPool").finish_non_exhaustive()
    }
}

impl HeavyCheckPool {
    /// Runs `check` on one of the threads. A check whose caller no longer waits when its turn comes does not run.
    ///
    /// # Errors
    /// `RateLimited` if the client has its share; `Overloaded` if the agent has too many heavy checks, or too many checks
    /// wait; `Timeout` at the deadline.
    pub async fn run<T: Send + 'static>(
        &self,
        request: HeavyCheckRequest<'_>,
        check: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T> {
        let permits = self.0.clients.hold(&request)?;
        let (sender, receiver) = oneshot::channel();
        let job = Box::new(move || {
            // The check keeps its permits until it ends, even if its caller has left.
            let permits = permits;
            if !sender.is_closed() {
                // The caller may leave meanwhile.
                let _ = sender.send(check());
            }
            drop(permits);
        });
        self.push(Job { client: request.client, run: job }, usize::from(request.config.max_queued))?;
        let failed = |_| Fault::new(FaultCode::Internal, "The check failed");
        match tokio::time::timeout_at(request.deadline.into(), receiver).await {
            Ok(result) => result.map_err(failed),
            Err(_) => {
                let text = "The check against the agent's schema did not end in time";
                Err(Fault::new(FaultCode::Timeout, text).with_deadline())
            }
        }
    }

    fn push(&self, job: Job, max_queued: usize) -> Result<()> {
        let PoolState { queue, wakeup, .. } = &*self.0;
        let mut queue = queue.lock();
        if queue.jobs.len() >= max_queued.saturating_add(queue.idle_threads) {
            let fault = Fault::new(FaultCode::Overloaded, "Too many expensive checks are waiting");
            return Err(fault.with_setting("contract.heavy_checks.max_queued"));
        }
        queue.jobs.push_back(job);
        let needs_thread = queue.jobs.len() > queue.idle_threads;
        if needs_thread && queue.threads < *MAX_THREADS {
            let pool = self.clone();
            let spawned = std::thread::Builder::new().name("heavy-check".to_owned()).spawn(move || pool.work());
            match spawned {
                Ok(_) => queue.threads += 1,
                Err(why) if queue.threads == 0 => {
                    queue.jobs.pop_back();
                    let fault = Fault::new(FaultCode::Overloaded, "No thread is available for an expensive check");
                    return Err(fault.with_detail(why));
                }
                // The threads that run take the job.
                Err(_) => {}
            }
        }
        wakeup.notify_one();
        Ok(())
    }

    /// Takes jobs for as long as the process lives.
    fn work(&self) {
        // On Linux, the priority is that of the calling thread. Without the right to lower it, it stays.
        let _ = rustix::process::setpriority_process(None, NICENESS);
        let PoolState { queue, wakeup, .. } = &*self.0;
        loop {
            let job = {
                let mut queue = queue.lock();
                queue.idle_threads += 1;
                while queue.jobs.is_empty() {
                    wakeup.wait(&mut queue);
                }
                queue.idle_threads -= 1;
                queue.take_next()
            };
            if let Some(Job { client, run }) = job {
                // A panic drops the sender: the caller gets a fault.
                let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run));
                queue.lock().record_end(client);
            }
        }
    }
}
