//! Concurrency limiter of one agent: a fixed maximum with a wait queue, and below the maximum an adaptive limit on
//! calls that wait for the first byte of a response (see `adaptive_concurrency`), with a wait queue of its own. A
//! streaming response counts against the maximum only. A cancelled call leaves the queue.

use super::{
    adaptive_concurrency::AdaptiveLimit,
    clock::{LimitClock, as_micros},
    concurrency_range::ConcurrencyRange,
    config::ConcurrencyConfig,
};
use crate::{
    agent::AgentId,
    fault::{Fault, FaultCode},
    telemetry::{LimitKind, Metrics},
};
use std::{
    num::NonZeroU32,
    pin::pin,
    sync::{
        Arc, OnceLock,
        atomic::{
            AtomicBool, AtomicU32, AtomicU64,
            Ordering::{Relaxed, SeqCst},
        },
    },
    time::Duration,
};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// Bounds of `Retry-After` for refused calls; between them it is the agent's baseline latency.
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
    /// Created by the first call, because most agents are idle.
    adaptive: OnceLock<Box<AdaptiveState>>,
    clock: LimitClock,
}

/// The adaptive limit, and the calls that wait for it.
#[derive(Debug)]
struct AdaptiveState {
    limit: AdaptiveLimit,
    wait_queue: WaitQueue,
}

/// One call's slot in the agent's concurrency.
#[derive(Debug)]
pub(super) struct ConcurrencySlot {
    limiter: Arc<ConcurrencyLimiter>,
    /// Whether the call waits for the first byte of its response.
    awaits_response: AtomicBool,
    _permit: OwnedSemaphorePermit,
}

/// Counts a queued call until it is dropped.
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

    /// Acquires a slot if one is free and no call is queued.
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
        config: &ConcurrencyConfig,
        agent: &AgentId,
        metrics: &Metrics,
    ) -> Result<ConcurrencySlot, Fault> {
        let permit = match Arc::clone(&self.slots).try_acquire_owned() {
            Ok(permit) => permit,
            Err(_) => self.wait_for_fixed_limit(config, agent, metrics).await?,
        };
        if !self.try_acquire_adaptive(true) {
            self.wait_for_adaptive_limit(config, agent, metrics).await?;
        }
        Ok(ConcurrencySlot { limiter: Arc::clone(self), awaits_response: AtomicBool::new(true), _permit: permit })
    }

    /// Waits until a call ends and frees its slot below the fixed maximum.
    async fn wait_for_fixed_limit(
        &self,
        config: &ConcurrencyConfig,
        agent: &AgentId,
        metrics: &Metrics,
    ) -> Result<OwnedSemaphorePermit, Fault> {
        let refusal = |why: &str| {
            metrics.record_limited_request(LimitKind::Concurrency);
            agent_overloaded_fault(
                "The agent is at its concurrency limit, which all callers share",
                config.queue_timeout.get(),
            )
            .with_detail(format_args!("agent {agent}: concurrency limit {} reached, {why}", self.max_concurrency))
        };
        let queued_before = self.queued.fetch_add(1, Relaxed);
        let guard = QueuedGuard(&self.queued);
        if queued_before >= config.max_queued {
            return Err(refusal("wait queue full"));
        }
        let permit = tokio::time::timeout(config.queue_timeout.get(), Arc::clone(&self.slots).acquire_owned()).await;
        drop(guard);
        match permit {
            Ok(Ok(permit)) => Ok(permit),
            // The semaphore is never closed.
            Ok(Err(_)) | Err(_) => Err(refusal("queue_timeout elapsed")),
        }
    }

    /// Waits until a response frees the adaptive limit. Then wakes the next queued call if the limit allows more calls.
    async fn wait_for_adaptive_limit(
        &self,
        config: &ConcurrencyConfig,
        agent: &AgentId,
        metrics: &Metrics,
    ) -> Result<(), Fault> {
        let Some(adaptive) = self.adaptive.get() else { return Ok(()) };
        let baseline = || adaptive.limit.baseline_latency().unwrap_or(Duration::ZERO);
        let refusal = |why: &str| {
            metrics.record_limited_request(LimitKind::AdaptiveConcurrency);
            let text = "The agent is at its adaptive concurrency limit, which all callers share";
            let limit = adaptive.limit.current();
            agent_overloaded_fault(text, baseline().min(MAX_RETRY_AFTER))
                .with_detail(format_args!("agent {agent}: adaptive concurrency limit {limit} reached, {why}"))
        };
        let Some(mut entry) = adaptive.wait_queue.try_join(config, &self.clock, baseline) else {
            return Err(refusal("wait queue full"));
        };
        if entry.wait(|| self.try_acquire_adaptive(false)).await {
            drop(entry);
            if self.awaiting_response.load(SeqCst) < adaptive.limit.current() {
                adaptive.wait_queue.wake_next();
            }
            return Ok(());
        }
        Err(refusal("wait timed out"))
    }

    /// Counts the call as waiting for a response if the adaptive limit allows one more. With `after_queued`, only if no
    /// call is queued.
    fn try_acquire_adaptive(&self, after_queued: bool) -> bool {
        let waiting_before = self.awaiting_response.fetch_add(1, SeqCst);
        let Some(adaptive) = self.adaptive.get() else { return true };
        if waiting_before < adaptive.limit.current() && !(after_queued && adaptive.wait_queue.has_queued_calls()) {
            return true;
        }
        self.awaiting_response.fetch_sub(1, SeqCst);
        false
    }

    fn release_adaptive(&self) {
        self.awaiting_response.fetch_sub(1, SeqCst);
        if let Some(adaptive) = self.adaptive.get()
            && adaptive.wait_queue.has_queued_calls()
        {
            adaptive.wait_queue.wake_next();
        }
    }

    fn adaptive_state(&self) -> Option<&AdaptiveState> {
        let range = self.adaptive_range?;
        let create = || {
            Box::new(AdaptiveState {
                limit: AdaptiveLimit::new(range, self.clock.elapsed()),
                wait_queue: WaitQueue::default(),
            })
        };
        Some(self.adaptive.get_or_init(create))
    }
}

impl ConcurrencySlot {
    /// Returns when the latency sample starts, or `None` if the call is not sampled.
    pub(super) fn start_latency_sample(&self) -> Option<Duration> {
        let adaptive = self.limiter.adaptive_state()?;
        adaptive
            .limit
            .select_for_sampling(self.limiter.awaiting_response.load(Relaxed))
            .then(|| self.limiter.clock.elapsed())
    }

    /// Returns the time since `started_at`.
    pub(super) fn elapsed_since(&self, started_at: Duration) -> Duration {
        self.limiter.clock.elapsed().saturating_sub(started_at)
    }

    /// Records a response, or an overload of the agent, in the adaptive limit. Returns the limit if it changed.
    pub(super) fn record_sample(&self, started_at: Duration, success: bool) -> Option<u32> {
        let adaptive = self.limiter.adaptive_state()?;
        let (now, waiting) = (self.limiter.clock.elapsed(), self.limiter.awaiting_response.load(Relaxed));
        let changed_limit = if success {
            adaptive.limit.record_response(started_at, now, waiting)
        } else {
            adaptive.limit.record_overload(now, waiting)
        };
        if changed_limit.is_some() && adaptive.wait_queue.has_queued_calls() {
            adaptive.wait_queue.wake_next();
        }
        changed_limit
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

/// Returns the 503 for a call beyond the agent's concurrency. The fault names the agent as the cause, so that callers
/// do not look for a limit of their own.
fn agent_overloaded_fault(text: &'static str, retry_after: Duration) -> Fault {
    Fault::new(FaultCode::Overloaded, text)
        .with_member("overloaded", "agent".into())
        .with_retry_after(retry_after.max(MIN_RETRY_AFTER))
}

/// A queue that was empty for this long counts as new.
const IDLE_RESET: Duration = Duration::from_millis(100);

/// Calls that wait for the adaptive limit.
#[derive(Debug, Default)]
struct WaitQueue {
    wake: Notify,
    waiting: AtomicU32,
    /// When the queue became occupied, and when a call last left it, in microseconds.
    occupied_since: AtomicU64,
    last_departure: AtomicU64,
}

/// A call in the wait queue.
struct QueuedCall<'a> {
    queue: &'a WaitQueue,
    clock: &'a LimitClock,
    timeout: Duration,
    is_first: bool,
}

impl WaitQueue {
    fn has_queued_calls(&self) -> bool {
        self.waiting.load(SeqCst) > 0
    }

    /// Wakes the call that has waited for the longest time.
    fn wake_next(&self) {
        self.wake.notify_one();
    }

    /// Adds a call to the end of the queue, unless the queue is full.
    fn try_join<'a>(
        &'a self,
        config: &ConcurrencyConfig,
        clock: &'a LimitClock,
        baseline: impl FnOnce() -> Duration,
    ) -> Option<QueuedCall<'a>> {
        let now = as_micros(clock.elapsed());
        let waiting_before = self.waiting.fetch_add(1, SeqCst);
        if waiting_before >= config.max_queued {
            self.waiting.fetch_sub(1, SeqCst);
            return None;
        }
        if waiting_before == 0 && now.saturating_sub(self.last_departure.load(Relaxed)) >= as_micros(IDLE_RESET) {
            self.occupied_since.store(now, Relaxed);
        }
        let max_wait = config.queue_timeout.get();
        let is_congested = now.saturating_sub(self.occupied_since.load(Relaxed)) >= as_micros(max_wait);
        let timeout = if is_congested { baseline().min(max_wait) } else { max_wait };
        Some(QueuedCall { queue: self, clock, timeout, is_first: waiting_before == 0 })
    }
}

impl QueuedCall<'_> {
    /// Waits until `try_acquire` succeeds. Returns false after the timeout.
    pub(super) async fn wait(&mut self, try_acquire: impl Fn() -> bool) -> bool {
        let acquired = async {
            loop {
                let mut notified = pin!(self.queue.wake.notified());
                notified.as_mut().enable();
                // A call that was not first in the queue waits until it is woken.
                if self.is_first && try_acquire() {
                    return;
                }
                self.is_first = true;
                notified.await;
            }
        };
        tokio::time::timeout(self.timeout, acquired).await.is_ok()
    }
}

impl Drop for QueuedCall<'_> {
    fn drop(&mut self) {
        self.queue.last_departure.store(as_micros(self.clock.elapsed()), Relaxed);
        self.queue.waiting.fetch_sub(1, SeqCst);
    }
}
