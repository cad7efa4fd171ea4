//! Threads for heavy checks: checks that may take longer than 10 ms would stop the calls that share a worker thread
//! with them. The threads have a low priority, so that the operating system prefers the workers.

use super::config::HeavyCheckConfig;
use crate::fault::{Fault, FaultCode, Result};
use parking_lot::{Condvar, Mutex};
use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicU16, Ordering},
    },
    time::Instant,
};
use tokio::sync::oneshot;

/// Priority of the threads, as `nice` has it.
const NICENESS: i32 = 10;

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
}

impl Drop for AgentSlot {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::AcqRel);
    }
}

type Job = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    idle_threads: usize,
    threads: usize,
}

/// The threads, which start with the first heavy check.
#[derive(Clone, Default)]
pub struct HeavyCheckPool(Arc<(Mutex<Queue>, Condvar)>);

impl std::fmt::Debug for HeavyCheckPool {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("HeavyCheckPool").finish_non_exhaustive()
    }
}

impl HeavyCheckPool {
    /// Runs `check` on one of the threads. A check whose caller no longer waits when its turn comes does not run.
    ///
    /// # Errors
    /// `Overloaded` if the agent has too many heavy checks, or too many checks wait; `Timeout` at `deadline`.
    pub async fn run<T: Send + 'static>(
        &self,
        agent: &AgentHeavyChecks,
        config: &HeavyCheckConfig,
        deadline: Instant,
        check: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T> {
        let slot = agent.acquire(config.max_per_agent).ok_or_else(|| {
            Fault::new(
                FaultCode::Overloaded,
                "Too many expensive checks of this agent's inputs and outputs are running",
            )
        })?;
        let (sender, receiver) = oneshot::channel();
        let job = Box::new(move || {
            // The check keeps its slot until it ends, even if its caller has left.
            let slot = slot;
            if !sender.is_closed() {
                // The caller may leave meanwhile.
                let _ = sender.send(check());
            }
            drop(slot);
        });
        self.push(job, usize::from(config.max_queued))?;
        let failed = |_| Fault::new(FaultCode::Internal, "The check failed");
        match tokio::time::timeout_at(deadline.into(), receiver).await {
            Ok(result) => result.map_err(failed),
            Err(_) => Err(Fault::new(FaultCode::Timeout, "The check against the agent's schema did not end in time")),
        }
    }

    fn push(&self, job: Job, max_queued: usize) -> Result<()> {
        let (queue, wakeup) = &*self.0;
        let mut queue = queue.lock();
        if queue.jobs.len() >= max_queued.saturating_add(queue.idle_threads) {
            return Err(Fault::new(FaultCode::Overloaded, "Too many expensive checks are waiting"));
        }
        queue.jobs.push_back(job);
        let needs_thread = queue.jobs.len() > queue.idle_threads;
        if needs_thread && queue.threads < max_threads() {
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
        let (queue, wakeup) = &*self.0;
        loop {
            let job = {
                let mut queue = queue.lock();
                queue.idle_threads += 1;
                while queue.jobs.is_empty() {
                    wakeup.wait(&mut queue);
                }
                queue.idle_threads -= 1;
                queue.jobs.pop_front()
            };
            if let Some(job) = job {
                // A panic drops the sender: the caller gets a fault.
                let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(job));
            }
        }
    }
}

/// Returns the maximum number of threads: one for each core.
fn max_threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
