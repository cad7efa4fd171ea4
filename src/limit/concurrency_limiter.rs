//! Concurrency limiter of one agent: a fixed maximum, a wait queue, and below the maximum an adaptive limit on calls
//! that wait for the first byte of a response (see `adaptive_concurrency`). A response that is streaming counts only
//! against the maximum. A call that is cancelled leaves the queue.

use super::{
    AgentLimits, CallLimiter, Permit,
    adaptive_concurrency::{AdaptiveLimit, ConcurrencyRange},
    clock::LimitClock,
    config::ConcurrencyConfig,
    wait_queue::WaitQueue,
};
use crate::{
    agent::AgentId,
    fault::{Fault, FaultCode},
    telemetry::{LimitKind, Metrics},
};
use std::{
    num::NonZeroU32,
    sync::{
        Arc, OnceLock,
        atomic::{
            AtomicBool, AtomicU32,
            Ordering::{Relaxed, SeqCst},
        },
    },
    time::Duration,
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bounds of `Retry-After` for refused calls; the agent's usual latency is used in between.
const MIN_RETRY_AFTER: Duration = Duration::from_secs(1);
const MAX_RETRY_AFTER: Duration = Duration::from_secs(30);

/// Limits the concurrent calls to one agent.
#[derive(Debug)]
pub(super) struct ConcurrencyLimiter {
    pub(super) max_concurrency: NonZeroU32,
    /// Bounds of the adaptive limit; `None` if the limit is fixed.
    pub(super) adaptive_range: Option<ConcurrencyRange>,
    slots: Arc<Semaphore>,
    queued: AtomicU32,
    /// Calls that wait for the first byte of a response.
    awaiting_response: AtomicU32,
    /// Created by the first call: most agents are idle.
    adaptive: OnceLock<Box<AdaptiveState>>,
    clock: LimitClock,
}

/// The adaptive limit, and the calls that wait for it.
#[derive(Debug)]
struct AdaptiveState {
    limit: AdaptiveLimit,
    wait_queue: WaitQueue,
}

/// One call's share of the agent's concurrency.
#[derive(Debug)]
pub(super) struct ConcurrencySlot {
    limiter: Arc<ConcurrencyLimiter>,
    /// Whether the call waits for the first byte of its response.
    awaits_response: AtomicBool,
    _permit: OwnedSemaphorePermit,
}

struct QueuedGuard<'a>(&'a AtomicU32);

impl Drop for QueuedGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

impl ConcurrencyLimiter {
    pub(super) fn new(
        max_concurrency: NonZeroU32,
        adaptive_range: Option<ConcurrencyRange>,
        clock: LimitClock,
    ) -> Self {
        let slots = usize::try_from(max_concurrency.get()).unwrap_or(usize::MAX).min(Semaphore::MAX_PERMITS);
        Self {
            max_concurrency,
            adaptive_range,
            slots: Arc::new(Semaphore::new(slots)),
            queued: AtomicU32::new(0),
            awaiting_response: AtomicU32::new(0),
            adaptive: OnceLock::new(),
            clock,
        }
    }

    /// Acquires a slot if one is free. Queued calls go first: the semaphore is fair.
    pub(super) fn try_acquire(self: &Arc<Self>) -> Option<ConcurrencySlot> {
        let permit = Arc::clone(&self.slots).try_acquire_owned().ok()?;
        self.try_acquire_adaptive(true).then(|| ConcurrencySlot {
            limiter: Arc::clone(self),
            awaits_response: AtomicBool::new(true),
            _permit: permit,
        })
    }

    /// Acquires a slot, or waits for one in the queue, in order of arrival.
    pub(super) async fn acquire(
        self: &Arc<Self>,
        queue: &ConcurrencyConfig,
        observers: (&AgentId, &Metrics),
    ) -> Result<ConcurrencySlot, Fault> {
        let permit = self.acquire_fixed(queue, observers).await?;
        if !self.try_acquire_adaptive(true) {
            self.wait_for_adaptive_limit(queue, observers).await?;
        }
        Ok(ConcurrencySlot { limiter: Arc::clone(self), awaits_response: AtomicBool::new(true), _permit: permit })
    }

    async fn acquire_fixed(
        &self,
        queue: &ConcurrencyConfig,
        (agent, metrics): (&AgentId, &Metrics),
    ) -> Result<OwnedSemaphorePermit, Fault> {
        if let Ok(place) = Arc::clone(&self.slots).try_acquire_owned() {
            return Ok(place);
        }
        let refuse = |why: &str| {
            metrics.record_limited_request(LimitKind::Concurrency);
            agent_overloaded_fault(
                "The agent is at its concurrency limit, which all callers share",
                queue.queue_timeout.get(),
            )
            .with_detail(format_args!("agent {agent}: concurrency limit {} reached, {why}", self.max_concurrency))
        };
        let before = self.queued.fetch_add(1, Relaxed);
        let waiting = QueuedGuard(&self.queued);
        if before >= queue.max_queued {
            return Err(refuse("wait queue full"));
        }
        let place = tokio::time::timeout(queue.queue_timeout.get(), Arc::clone(&self.slots).acquire_owned()).await;
        drop(waiting);
        match place {
            Ok(Ok(place)) => Ok(place),
            // The semaphore is never closed.
            Ok(Err(_)) | Err(_) => Err(refuse("queue_timeout elapsed")),
        }
    }

    /// Waits until a pending response frees the adaptive limit. A call that gets in wakes the next one if more is free.
    async fn wait_for_adaptive_limit(
        &self,
        queue: &ConcurrencyConfig,
        (agent, metrics): (&AgentId, &Metrics),
    ) -> Result<(), Fault> {
        let Some(adaptive) = self.adaptive.get() else { return Ok(()) };
        let baseline = || adaptive.limit.baseline_latency().unwrap_or(Duration::ZERO);
        let refuse = |why: &str| {
            metrics.record_limited_request(LimitKind::AdaptiveConcurrency);
            let text = "The agent is at its adaptive concurrency limit, which all callers share";
            let bound = adaptive.limit.current();
            agent_overloaded_fault(text, baseline().min(MAX_RETRY_AFTER))
                .with_detail(format_args!("agent {agent}: adaptive concurrency limit {bound} reached, {why}"))
        };
        let Some(mut entry) = adaptive.wait_queue.try_join(queue, &self.clock, baseline) else {
            return Err(refuse("wait queue full"));
        };
        if entry.wait(|| self.try_acquire_adaptive(false)).await {
            drop(entry);
            if self.awaiting_response.load(SeqCst) < adaptive.limit.current() {
                adaptive.wait_queue.wake_next();
            }
            return Ok(());
        }
        Err(refuse("wait timed out"))
    }

    /// Counts a call that waits for a response if the adaptive limit allows; with `behind`, only if no call is queued.
    fn try_acquire_adaptive(&self, queued_first: bool) -> bool {
        let before = self.awaiting_response.fetch_add(1, SeqCst);
        let Some(adaptive) = self.adaptive.get() else { return true };
        if before < adaptive.limit.current() && !(queued_first && adaptive.wait_queue.has_queued_calls()) {
            return true;
        }
        self.awaiting_response.fetch_sub(1, SeqCst);
        false
    }

    fn release_adaptive(&self) {
        self.awaiting_response.fetch_sub(1, SeqCst);
        if let Some(learnt) = self.adaptive.get()
            && learnt.wait_queue.has_queued_calls()
        {
            learnt.wait_queue.wake_next();
        }
    }

    fn adaptive_state(&self) -> Option<&AdaptiveState> {
        let range = self.adaptive_range?;
        let make = || {
            Box::new(AdaptiveState {
                limit: AdaptiveLimit::new(range, self.clock.elapsed()),
                wait_queue: WaitQueue::default(),
            })
        };
        Some(self.adaptive.get_or_init(make))
    }
}

impl ConcurrencySlot {
    /// Returns when the latency sample starts, or `None` if the call is not sampled.
    pub(super) fn start_latency_sample(&self) -> Option<Duration> {
        let adaptive = self.limiter.adaptive_state()?;
        adaptive.limit.should_sample(self.limiter.awaiting_response.load(Relaxed)).then(|| self.limiter.clock.elapsed())
    }

    /// Returns the time since `began`.
    pub(super) fn elapsed_since(&self, started: Duration) -> Duration {
        self.limiter.clock.elapsed().saturating_sub(started)
    }

    /// Feeds a response or an overload signal to the adaptive limit; returns the limit if it changed.
    pub(super) fn record_sample(&self, started: Duration, success: bool) -> Option<u32> {
        let adaptive = self.limiter.adaptive_state()?;
        let (now, waiting) = (self.limiter.clock.elapsed(), self.limiter.awaiting_response.load(Relaxed));
        let changed = match success {
            true => adaptive.limit.record_response((started, now), waiting),
            false => adaptive.limit.record_overload(now, waiting),
        };
        if changed.is_some() && adaptive.wait_queue.has_queued_calls() {
            adaptive.wait_queue.wake_next();
        }
        changed
    }

    /// Stops counting the call as waiting for a response.
    pub(super) fn stop_awaiting_response(&self) {
        if self.awaits_response.load(Relaxed) && self.awaits_response.swap(false, Relaxed) {
            self.limiter.release_adaptive();
        }
    }
}

impl Drop for ConcurrencySlot {
    fn drop(&mut self) {
        self.stop_awaiting_response();
    }
}

impl CallLimiter {
    /// Acquires a concurrency permit for a call to the agent; waits in the queue if none is free.
    ///
    /// # Errors
    /// 503 when the queue is full or the wait times out.
    pub async fn acquire_permit(&self, agent: &Arc<AgentLimits>) -> Result<Permit, Fault> {
        let limiter = agent.active.load().concurrency.clone();
        let Some(gate) = limiter else {
            return Ok(agent.issue_permit(None));
        };
        let policy = self.policy.load_full();
        let slot = gate.acquire(&policy.config().concurrency, (&agent.id, &self.metrics)).await?;
        Ok(agent.issue_permit(Some(slot)))
    }

    /// Acquires a concurrency permit if one is free and no call is queued for it.
    pub fn try_acquire_permit(&self, agent: &Arc<AgentLimits>) -> Option<Permit> {
        match &agent.active.load().concurrency {
            None => Some(agent.issue_permit(None)),
            Some(gate) => gate.try_acquire().map(|place| agent.issue_permit(Some(place))),
        }
    }
}

/// Builds the 503 for a call that exceeds the agent's concurrency. It names the agent's limit, so that callers do not
/// search for a limit of their own.
fn agent_overloaded_fault(text: &'static str, retry_after: Duration) -> Fault {
    Fault::new(FaultCode::Overloaded, text)
        .with_member("overloaded", "agent".into())
        .with_retry_after(retry_after.max(MIN_RETRY_AFTER))
}
