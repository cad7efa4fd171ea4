//! Wait queue for the adaptive concurrency limit of an agent. A queue absorbs short bursts. After it has been occupied
//! for `queue_timeout`, it only adds latency, and later calls wait only for the baseline latency.

use super::{
    clock::{LimitClock, as_micros},
    config::ConcurrencyConfig,
};
use std::{
    pin::pin,
    sync::atomic::{
        AtomicU32, AtomicU64,
        Ordering::{Relaxed, SeqCst},
    },
    time::Duration,
};
use tokio::sync::Notify;

/// A queue that was empty for this long counts as new.
const IDLE_RESET: Duration = Duration::from_millis(100);

/// Calls that wait for the adaptive limit.
#[derive(Debug, Default)]
pub(super) struct WaitQueue {
    wake: Notify,
    waiting: AtomicU32,
    /// When the queue became occupied, and when a call last left it, in microseconds.
    occupied_since: AtomicU64,
    last_departure: AtomicU64,
}

/// A call in the wait queue.
pub(super) struct QueuedCall<'a> {
    queue: &'a WaitQueue,
    clock: &'a LimitClock,
    timeout: Duration,
    is_first: bool,
}

impl WaitQueue {
    pub(super) fn has_queued_calls(&self) -> bool {
        self.waiting.load(SeqCst) > 0
    }

    /// Wakes the call that has waited for the longest time.
    pub(super) fn wake_next(&self) {
        self.wake.notify_one();
    }

    /// Adds a call to the end of the queue, unless the queue is full.
    pub(super) fn try_join<'a>(
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
