//! The accounts that the exchanger has to visit.

use parking_lot::Mutex;
use std::sync::mpsc::SyncSender;
use tokio::sync::Notify;

/// The accounts with calls that wait, and those with tokens to settle.
#[derive(Debug)]
pub(super) struct ExchangeQueue<A> {
    drawing: Mutex<Vec<A>>,
    settling: Mutex<Vec<A>>,
    /// Threads that wait until everything is settled.
    flushes: Mutex<Vec<SyncSender<()>>>,
    wake: Notify,
}

impl<A> Default for ExchangeQueue<A> {
    fn default() -> Self {
        Self { drawing: Mutex::default(), settling: Mutex::default(), flushes: Mutex::default(), wake: Notify::new() }
    }
}

impl<A> ExchangeQueue<A> {
    /// Adds an account that calls wait for, and wakes the exchanger.
    pub(super) fn push_drawing(&self, account: A) {
        self.drawing.lock().push(account);
        self.wake.notify_one();
    }

    /// Adds an account for the next periodic exchange.
    pub(super) fn push_settling(&self, account: A) {
        self.settling.lock().push(account);
    }

    /// Takes at most `max` accounts; those with tokens to settle only if `with_settling`.
    pub(super) fn take(&self, max: usize, with_settling: bool) -> Vec<A> {
        let mut taken = take_up_to(&mut self.drawing.lock(), max);
        if with_settling && taken.len() < max {
            let more = take_up_to(&mut self.settling.lock(), max - taken.len());
            taken.extend(more);
        }
        taken
    }

    /// Returns whether no account is queued.
    pub(super) fn is_empty(&self) -> bool {
        self.drawing.lock().is_empty() && self.settling.lock().is_empty()
    }

    /// Returns whether calls wait, or at least `full` accounts have tokens to settle.
    pub(super) fn has_calls_or(&self, full: usize) -> bool {
        !self.drawing.lock().is_empty() || self.settling.lock().len() >= full
    }

    /// Asks the exchanger to settle everything and to send `()` then.
    pub(super) fn request_flush(&self, done: SyncSender<()>) {
        self.flushes.lock().push(done);
        self.wake.notify_one();
    }

    /// Returns the threads that wait for a flush.
    pub(super) fn take_flushes(&self) -> Vec<SyncSender<()>> {
        std::mem::take(&mut self.flushes.lock())
    }

    /// Resolves when a call waits, or a flush was requested.
    pub(super) async fn woken(&self) {
        self.wake.notified().await;
    }
}

fn take_up_to<A>(from: &mut Vec<A>, max: usize) -> Vec<A> {
    if from.len() <= max {
        return std::mem::take(from);
    }
    from.drain(..max).collect()
}
