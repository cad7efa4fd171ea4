//! Who waits for an agent that has as many calls as it answers in good time. A queue is for moments: where one has stood
//! for as long as a call may wait, everybody in it waits for nothing but the queue, so later ones wait a little only.

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

/// A queue in which nobody was for so long has ended.
const BREAK: Duration = Duration::from_millis(100);

/// Who waits.
#[derive(Debug, Default)]
pub(super) struct Line {
    next: Notify,
    waiting: AtomicU32,
    /// When the queue that is there began, and when somebody left it, in microseconds.
    since: AtomicU64,
    left: AtomicU64,
}

/// A place in the line.
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

    /// Wakes whoever waits for the longest.
    pub(super) fn call_next(&self) {
        self.next.notify_one();
    }

    /// A place at the end, unless there are too many already.
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
    /// Waits until `take` takes what is free; whether it did in time.
    pub(super) async fn wait(&mut self, take: impl Fn() -> bool) -> bool {
        let turn = async {
            loop {
                let mut called = pin!(self.line.next.notified());
                called.as_mut().enable();
                // The others were there before, and are called first.
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
