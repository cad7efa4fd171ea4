//! The accounts that the exchanger has to visit.

use super::token_accounts::{AccountKey, TokenAccounts};
use parking_lot::Mutex;
use std::sync::{Arc, mpsc::SyncSender};
use tokio::sync::Notify;

/// An account in the queue.
pub(super) type QueuedAccount = (Arc<TokenAccounts>, AccountKey);

/// The accounts with calls that wait, and those with tokens to settle.
#[derive(Debug, Default)]
pub(super) struct ExchangeQueue {
    drawing: Mutex<Vec<QueuedAccount>>,
    settling: Mutex<Vec<QueuedAccount>>,
    /// Threads that wait until everything is settled.
    flushes: Mutex<Vec<SyncSender<()>>>,
    wake: Notify,
}

impl ExchangeQueue {
    /// Adds an account that calls wait for, and wakes the exchanger.
    pub(super) fn push_drawing(&self, account: QueuedAccount) {
        self.drawing.lock().push(account);
        self.wake.notify_one();
    }

    /// Adds an account for the next periodic exchange.
    pub(super) fn push_settling(&self, account: QueuedAccount) {
        self.settling.lock().push(account);
    }

    /// Takes at most `max` accounts; those with tokens to settle only if `with_settling`.
    pub(super) fn take(&self, max: usize, with_settling: bool) -> Vec<QueuedAccount> {
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

fn take_up_to(from: &mut Vec<QueuedAccount>, max: usize) -> Vec<QueuedAccount> {
    if from.len() <= max {
        return std::mem::take(from);
    }
    from.drain(..max).collect()
}
