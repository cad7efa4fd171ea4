//! The end of a drain: calls that are still in flight are told to end, so that each gets a response and an access-log
//! entry of its own. A call registers when it first waits, and a signal reaches all of them; while nothing ends, a call
//! pays for two short locks that few others share.

use parking_lot::Mutex;
use std::{
    future::poll_fn,
    pin::Pin,
    sync::atomic::{AtomicBool, Ordering},
    task::{Poll, Waker},
};

/// Number of lists of waiting calls; the address of a connection selects one.
const SHARDS: usize = 16;

/// Tells the calls in flight that the drain has ended.
#[derive(Debug, Default)]
pub(super) struct CutOffSignal {
    is_cut_off: AtomicBool,
    shards: [Mutex<WaitingCalls>; SHARDS],
}

/// Calls that wait, by their slot.
#[derive(Debug, Default)]
struct WaitingCalls {
    wakers: Vec<Option<Waker>>,
    free: Vec<usize>,
}

impl CutOffSignal {
    /// Ends the wait of all calls, and of those that begin later.
    pub(super) fn trigger(&self) {
        self.is_cut_off.store(true, Ordering::Release);
        for shard in &self.shards {
            // A call that registers after this lock is released sees the flag.
            shard.lock().wakers.iter().flatten().for_each(Waker::wake_by_ref);
        }
    }

    /// Returns the output of `work`, or `None` if the drain ends first. `connection` is any address of the connection.
    pub(super) async fn run<F: Future + ?Sized>(&self, connection: usize, mut work: Pin<&mut F>) -> Option<F::Output> {
        let mut registration = Registration { signal: self, shard: (connection >> 6) % SHARDS, slot: None };
        poll_fn(|context| match work.as_mut().poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if registration.check_or_register(context.waker()) => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        })
        .await
    }
}

/// A call that waits. The task of a call seldom changes, so that the first waker is nearly always the right one.
struct Registration<'a> {
    signal: &'a CutOffSignal,
    shard: usize,
    slot: Option<(usize, Waker)>,
}

impl Registration<'_> {
    /// Returns whether the drain has ended; otherwise the waker is called when it does.
    fn check_or_register(&mut self, waker: &Waker) -> bool {
        if !self.slot.as_ref().is_some_and(|(_, registered)| registered.will_wake(waker)) {
            self.register(waker);
        }
        self.signal.is_cut_off.load(Ordering::Acquire)
    }

    fn register(&mut self, waker: &Waker) {
        let Some(shard) = self.signal.shards.get(self.shard) else { return };
        let mut waiting = shard.lock();
        let slot = match self.slot.take() {
            Some((slot, _)) => slot,
            None => waiting.free.pop().unwrap_or_else(|| {
                waiting.wakers.push(None);
                waiting.wakers.len() - 1
            }),
        };
        if let Some(entry) = waiting.wakers.get_mut(slot) {
            *entry = Some(waker.clone());
        }
        drop(waiting);
        self.slot = Some((slot, waker.clone()));
    }
}

impl Drop for Registration<'_> {
    fn drop(&mut self) {
        let (Some((slot, _)), Some(shard)) = (self.slot.take(), self.signal.shards.get(self.shard)) else { return };
        let mut waiting = shard.lock();
        if let Some(entry) = waiting.wakers.get_mut(slot) {
            *entry = None;
        }
        waiting.free.push(slot);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{pin::pin, sync::Arc, time::Duration};

    #[tokio::test]
    async fn a_signal_ends_all_waits_and_later_ones_but_no_work_that_is_done() {
        let signal = Arc::new(CutOffSignal::default());
        let waits: Vec<_> = (0..40)
            .map(|at| {
                let signal = Arc::clone(&signal);
                tokio::spawn(async move { signal.run(at << 6, pin!(std::future::pending::<()>())).await })
            })
            .collect();
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert!(waits.iter().all(|wait| !wait.is_finished()));
        signal.trigger();
        for wait in waits {
            assert_eq!(wait.await.unwrap(), None);
        }
        assert_eq!(signal.run(0, pin!(std::future::pending::<()>())).await, None);
        assert_eq!(signal.run(0, pin!(async { 7 })).await, Some(7));
    }

    #[tokio::test]
    async fn slots_of_calls_that_end_are_used_again() {
        let signal = CutOffSignal::default();
        for _ in 0..100 {
            let work = pin!(tokio::task::yield_now());
            assert_eq!(signal.run(0, work).await, Some(()));
        }
        let waiting = signal.shards[0].lock();
        assert_eq!((waiting.wakers.len(), waiting.free.len()), (1, 1));
    }
}
