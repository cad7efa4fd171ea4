//! Wait queue for the adaptive concurrency limit of an agent. A queue absorbs short bursts: once it has been occupied
//! for
//! `queue_wait`, queueing only adds latency, so later calls wait only for the baseline latency.

use super::{clock::Clock, config::Concurrency, learn::micros};
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
const BREAK: Duration = Duration::from_millis(100);

/// Calls that wait for the adaptive limit.
#[derive(Debug, Default)]
pub(super) struct Line {
    next: Notify,
    waiting: AtomicU32,
    /// When the queue became occupied, and when a call last left it, in microseconds.
    since: AtomicU64,
    left: AtomicU64,
}

/// A call in the wait queue.
pub(super) struct Turn<'a> {
    line: &'a Line,
    clock: &'a Clock,
    patience: Duration,
    first: bool,
}

impl Line {
    pub(super) fn is_waiting(&self) -> bool {
        self.waiting.load(SeqCst) > 0
    }

    /// Wakes the call that has waited longest.
    pub(super) fn call_next(&self) {
        self.next.notify_one();
    }

    /// Adds a call to the end of the queue, unless the queue is full.
    pub(super) fn join<'a>(
        &'a self,
        queue: &Concurrency,
        clock: &'a Clock,
        usual: impl FnOnce() -> Duration,
    ) -> Option<Turn<'a>> {
        let now = micros(clock.elapsed());
        let before = self.waiting.fetch_add(1, SeqCst);
        if before >= queue.queue {
            self.waiting.fetch_sub(1, SeqCst);
            return None;
        }
        if before == 0 && now.saturating_sub(self.left.load(Relaxed)) >= micros(BREAK) {
            self.since.store(now, Relaxed);
        }
        let long = queue.queue_wait.get();
        let stands = now.saturating_sub(self.since.load(Relaxed)) >= micros(long);
        let patience = if stands { usual().min(long) } else { long };
        Some(Turn { line: self, clock, patience, first: before == 0 })
    }
}

impl Turn<'_> {
    /// Waits until `take` succeeds; returns whether it did before the timeout.
    pub(super) async fn wait(&mut self, take: impl Fn() -> bool) -> bool {
        let turn = async {
            loop {
                let mut called = pin!(self.line.next.notified());
                called.as_mut().enable();
                // Calls that queued earlier are woken first.
                if self.first && take() {
                    return;
                }
                self.first = true;
                called.await;
            }
        };
        tokio::time::timeout(self.patience, turn).await.is_ok()
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.line.left.store(micros(self.clock.elapsed()), Relaxed);
        self.line.waiting.fetch_sub(1, SeqCst);
    }
}
