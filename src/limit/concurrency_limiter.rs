//! Concurrency limiter of one agent: a fixed maximum with a wait queue, and below the maximum an adaptive limit on
//! calls that wait for the first byte of a response (see `adaptive_concurrency`), with a wait queue of its own. A
//! streaming response counts against the maximum only. A cancelled call leaves the queue.
//!
//! One client takes at most its share of the maximum and of the wait queues. The adaptive limit is not divided: a client
//! may use all of it, but what the client holds beyond its share delays no other client, which is admitted above the
//! limit instead. So a single client keeps an agent busy, and learns its limit, as before.

use super::{
    adaptive_concurrency::AdaptiveLimit,
    client_shares::{ClientShares, ClientSlot, ClientUsage, count_up_to},
    clock::{LimitClock, as_micros},
    concurrency_range::ConcurrencyRange,
    concurrency_refusal::{ConcurrencyRefusal, QUEUE_TIMEOUT_ELAPSED},
    config::ConcurrencyConfig,
    slot_request::SlotRequest,
};
use crate::{fault::Fault, telemetry::LimitKind, values::MaxShare};
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

/// Maximum `Retry-After` for calls beyond the adaptive limit; below it, the agent's baseline latency.
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
    clients: ClientShares,
    clock: LimitClock,
}

/// The adaptive limit, and the calls that wait for it.
#[derive(Debug)]
struct AdaptiveState {
    limit: AdaptiveLimit,
    wait_queue: WaitQueue,
}

impl AdaptiveState {
    /// Returns the refusal of a call beyond the adaptive limit.
    fn refusal<'w>(&self, why: &'w str) -> ConcurrencyRefusal<'w> {
        let retry_after = self.limit.baseline_latency().unwrap_or(Duration::ZERO).min(MAX_RETRY_AFTER);
        ConcurrencyRefusal::Adaptive { limit: self.limit.current(), retry_after, why }
    }
}

/// One call's slot below the fixed maximum, before the adaptive limit.
#[derive(Debug)]
pub(super) struct FixedSlot {
    permit: OwnedSemaphorePermit,
    /// `None` if clients have no shares.
    client_slot: Option<ClientSlot>,
}

impl FixedSlot {
    /// Returns the client's slot, if clients have shares.
    pub(super) fn client_slot(&self) -> Option<&ClientSlot> {
        self.client_slot.as_ref()
    }
}

/// One call's slot in the agent's concurrency.
#[derive(Debug)]
pub(super) struct ConcurrencySlot {
    limiter: Arc<ConcurrencyLimiter>,
    /// Whether the call waits for the first byte of its response.
    awaits_response: AtomicBool,
    _permit: OwnedSemaphorePermit,
    /// `None` if clients have no shares. Dropped after the permit, so that the next call of the client finds one.
    client_slot: Option<ClientSlot>,
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
            clients: ClientShares::default(),
            clock,
        }
    }

    /// Returns the adaptive limit, if one is in effect.
    pub(super) fn adaptive_limit(&self) -> Option<u32> {
        self.adaptive.get().map(|adaptive| adaptive.limit.current())
    }

    /// Acquires a slot if one is free and no call is queued.
    pub(super) fn try_acquire(self: &Arc<Self>, request: &SlotRequest<'_>) -> Option<ConcurrencySlot> {
        let max_share = request.max_share;
        let client_slot = if max_share.is_unlimited() {
            None
        } else {
            Some(self.clients.usage(request.client).try_acquire(self.max_slots(request))?)
        };
        let permit = Arc::clone(&self.slots).try_acquire_owned().ok()?;
        self.try_acquire_adaptive(client_slot.as_ref(), max_share, true).then(|| self.new_slot(permit, client_slot))
    }

    /// Acquires a slot below the fixed maximum, or waits for one in the queue, in order of arrival.
    pub(super) async fn acquire_fixed(&self, request: &SlotRequest<'_>) -> Result<FixedSlot, Fault> {
        let client_slot = if request.max_share.is_unlimited() {
            None
        } else {
            let usage = self.clients.usage(request.client);
            Some(match usage.try_acquire(self.max_slots(request)) {
                Some(slot) => slot,
                None => self.wait_for_share(request, &usage).await?,
            })
        };
        let permit = match Arc::clone(&self.slots).try_acquire_owned() {
            Ok(permit) => permit,
            Err(_) => self.wait_for_fixed_limit(request, client_slot.as_ref()).await?,
        };
        Ok(FixedSlot { permit, client_slot })
    }

    /// Counts a call with a slot below the adaptive limit, or waits until it is, in order of arrival.
    pub(super) async fn acquire_adaptive(
        self: &Arc<Self>,
        request: &SlotRequest<'_>,
        slot: FixedSlot,
    ) -> Result<ConcurrencySlot, Fault> {
        let FixedSlot { permit, client_slot } = slot;
        if !self.try_acquire_adaptive(client_slot.as_ref(), request.max_share, true) {
            self.wait_for_adaptive_limit(request, client_slot.as_ref()).await?;
        }
        Ok(self.new_slot(permit, client_slot))
    }

    /// Decides as both would now, and takes nothing. Returns the limit for which the call would
    /// wait, if it would.
    ///
    /// # Errors
    /// The refusal of a call for which no place in a wait queue is free.
    pub(super) fn inspect(&self, request: &SlotRequest<'_>) -> Result<Option<LimitKind>, ConcurrencyRefusal<'static>> {
        let SlotRequest { client, max_share, config, .. } = *request;
        let usage = if max_share.is_unlimited() { None } else { self.clients.known_usage(client) };
        let share_of_queue = max_share.of_count(config.max_queued);
        if let Some(usage) = usage.as_ref().filter(|usage| !usage.has_free_slot(self.max_slots(request))) {
            let has_place = usage.waiting_for_share() < share_of_queue;
            let share = Some(LimitKind::ConcurrencyShare);
            return if has_place { Ok(share) } else { Err(self.share_refusal(request)) };
        }
        let waiting = usage.as_ref().map_or(0, |usage| usage.awaiting_response()).saturating_add(1);
        let adaptive = self.adaptive.get().filter(|adaptive| {
            let limit = adaptive.limit.current();
            let is_free = self.awaiting_response.load(SeqCst) < limit && !adaptive.wait_queue.has_queued_calls();
            !is_free && (max_share.is_unlimited() || !self.is_held_up_by_others(waiting, limit, max_share))
        });
        let is_full = self.slots.available_permits() == 0;
        if !is_full && adaptive.is_none() {
            return Ok(None);
        }
        if config.max_queued > 0 && usage.is_some_and(|usage| usage.queued() >= share_of_queue) {
            let retry_after = config.queue_timeout.get();
            return Err(ConcurrencyRefusal::QueueShare { max_queued: share_of_queue, retry_after });
        }
        match adaptive.filter(|_| !is_full) {
            None if self.queued.load(SeqCst) < config.max_queued => Ok(Some(LimitKind::Concurrency)),
            None => Err(self.fixed_limit_refusal(request, "wait queue full")),
            Some(adaptive) if adaptive.wait_queue.waiting.load(SeqCst) < config.max_queued => {
                Ok(Some(LimitKind::AdaptiveConcurrency))
            }
            Some(adaptive) => Err(adaptive.refusal("wait queue full")),
        }
    }

    fn new_slot(self: &Arc<Self>, permit: OwnedSemaphorePermit, client_slot: Option<ClientSlot>) -> ConcurrencySlot {
        let awaits_response = AtomicBool::new(true);
        ConcurrencySlot { limiter: Arc::clone(self), awaits_response, _permit: permit, client_slot }
    }

    /// Returns how many slots one client may have.
    fn max_slots(&self, request: &SlotRequest<'_>) -> u32 {
        request.max_slots(self.max_concurrency.get())
    }

    /// Waits until a call of the same client ends.
    async fn wait_for_share(&self, request: &SlotRequest<'_>, usage: &Arc<ClientUsage>) -> Result<ClientSlot, Fault> {
        let SlotRequest { max_share, config, agent, .. } = *request;
        let (max_slots, max_wait) = (self.max_slots(request), config.queue_timeout.get());
        let max_waiting = max_share.of_count(config.max_queued);
        let slot = usage.acquire(max_slots, max_waiting, max_wait, || agent.track_queued_call()).await;
        slot.ok_or_else(|| request.refuse(&self.share_refusal(request)))
    }

    /// Returns the refusal of a call whose client has its share of the slots.
    fn share_refusal(&self, request: &SlotRequest<'_>) -> ConcurrencyRefusal<'static> {
        let (max_slots, retry_after) = (self.max_slots(request), request.config.queue_timeout.get());
        let max_concurrency = request.max_of_agent(self.max_concurrency.get());
        // At least one slot is the client's: of an agent with one, its share is the whole.
        let why = "queue_timeout elapsed or wait queue full";
        if max_slots < max_concurrency {
            ConcurrencyRefusal::Share { max_slots, max_concurrency, retry_after }
        } else if max_concurrency < self.max_concurrency.get() {
            ConcurrencyRefusal::Shared { max_concurrency, retry_after, why }
        } else {
            self.fixed_limit_refusal(request, why)
        }
    }

    /// Returns the refusal of a call beyond the fixed maximum.
    fn fixed_limit_refusal<'w>(&self, request: &SlotRequest<'_>, why: &'w str) -> ConcurrencyRefusal<'w> {
        let retry_after = request.config.queue_timeout.get();
        ConcurrencyRefusal::Fixed { max_concurrency: self.max_concurrency, retry_after, why }
    }

    /// Waits until a call ends and frees its slot below the fixed maximum.
    async fn wait_for_fixed_limit(
        &self,
        request: &SlotRequest<'_>,
        client_slot: Option<&ClientSlot>,
    ) -> Result<OwnedSemaphorePermit, Fault> {
        let config = request.config;
        let refusal = |why: &str| request.refuse(&self.fixed_limit_refusal(request, why));
        let _queued = request.join_queue(client_slot)?;
        let Some(guard) = count_up_to(&self.queued, config.max_queued) else {
            return Err(refusal("wait queue full"));
        };
        let tracked = request.agent.track_queued_call();
        let permit = tokio::time::timeout(config.queue_timeout.get(), Arc::clone(&self.slots).acquire_owned()).await;
        drop((guard, tracked));
        match permit {
            Ok(Ok(permit)) => Ok(permit),
            // The semaphore is never closed.
            Ok(Err(_)) | Err(_) => Err(refusal(QUEUE_TIMEOUT_ELAPSED)),
        }
    }

    /// Waits until a response frees the adaptive limit. Then wakes the next queued call if the limit allows more calls.
    async fn wait_for_adaptive_limit(
        &self,
        request: &SlotRequest<'_>,
        client_slot: Option<&ClientSlot>,
    ) -> Result<(), Fault> {
        let SlotRequest { max_share, config, agent, .. } = *request;
        let Some(adaptive) = self.adaptive.get() else { return Ok(()) };
        let baseline = || adaptive.limit.baseline_latency().unwrap_or(Duration::ZERO);
        let refusal = |why: &str| request.refuse(&adaptive.refusal(why));
        let _queued = request.join_queue(client_slot)?;
        let Some(mut entry) = adaptive.wait_queue.try_join(config, &self.clock, baseline) else {
            return Err(refusal("wait queue full"));
        };
        let _tracked = agent.track_queued_call();
        if entry.wait(|| self.try_acquire_adaptive(client_slot, max_share, false)).await {
            drop(entry);
            if self.awaiting_response.load(SeqCst) < adaptive.limit.current() {
                adaptive.wait_queue.wake_next();
            }
            return Ok(());
        }
        Err(refusal(QUEUE_TIMEOUT_ELAPSED))
    }

    /// Counts the call as waiting for a response if the adaptive limit allows one more. With `after_queued`, only if no
    /// call is queued.
    fn try_acquire_adaptive(&self, client_slot: Option<&ClientSlot>, max_share: MaxShare, after_queued: bool) -> bool {
        let waiting_before = self.awaiting_response.fetch_add(1, SeqCst);
        let waiting_of_client = client_slot.map_or(0, ClientSlot::start_awaiting_response);
        let Some(adaptive) = self.adaptive.get() else { return true };
        let limit = adaptive.limit.current();
        if waiting_before < limit && !(after_queued && adaptive.wait_queue.has_queued_calls()) {
            return true;
        }
        if client_slot.is_some() && self.is_held_up_by_others(waiting_of_client, limit, max_share) {
            return true;
        }
        if let Some(client_slot) = client_slot {
            client_slot.stop_awaiting_response();
        }
        self.awaiting_response.fetch_sub(1, SeqCst);
        false
    }

    /// Whether a client with `waiting` calls is within its share of the adaptive limit, and the limit is reached only
    /// because another client holds more than its own.
    fn is_held_up_by_others(&self, waiting: u32, limit: u32, max_share: MaxShare) -> bool {
        let share = max_share.of_count(limit);
        if waiting > share {
            return false;
        }
        let capped = self.clients.capped_awaiting_response(share);
        capped <= limit && capped < self.awaiting_response.load(SeqCst)
    }

    fn release_adaptive(&self) {
        self.awaiting_response.fetch_sub(1, SeqCst);
        if let Some(adaptive) = self.adaptive.get()
            && adaptive.wait_queue.has_queued_calls()
        {
            adaptive.wait_queue.wake_next();
        }
    }

    #[cfg(test)]
    pub(super) fn client_count(&self) -> usize {
        self.clients.client_count()
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
            if let Some(client_slot) = &self.client_slot {
                client_slot.stop_awaiting_response();
            }
            self.limiter.release_adaptive();
        }
    }
}

impl Drop for ConcurrencySlot {
    fn drop(&mut self) {
        self.stop_awaiting_response();
    }
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

#[cfg(test)]
mod tests;
