//! What each client holds of one agent's concurrency, so that no client takes more than its share. A client that holds
//! its share waits for its own calls, in a queue of its own, and no other client waits for it.

use crate::values::ClientKey;
use foldhash::fast::RandomState;
use parking_lot::RwLock;
use std::{
    collections::HashMap,
    pin::pin,
    sync::{
        Arc,
        atomic::{
            AtomicU32, AtomicUsize,
            Ordering::{Relaxed, SeqCst},
        },
    },
    time::Duration,
};
use tokio::{sync::Notify, time::timeout};

/// Clients in the table before those that hold nothing are removed.
const MIN_SWEEP_SIZE: usize = 64;

/// The clients of one agent. A client that holds nothing stays until the table is swept, so that its next call creates
/// nothing.
#[derive(Debug, Default)]
pub(super) struct ClientShares {
    clients: RwLock<HashMap<ClientKey, Arc<ClientUsage>, RandomState>>,
    /// The size at which the table is swept.
    sweep_at: AtomicUsize,
}

/// What one client holds of an agent's concurrency.
#[derive(Debug, Default)]
pub(super) struct ClientUsage {
    slots: AtomicU32,
    /// Calls that wait for the first byte of a response.
    awaiting_response: AtomicU32,
    /// Calls in the agent's wait queues, which all clients share.
    queued: AtomicU32,
    /// Calls that wait for the client's own share.
    waiting_for_share: AtomicU32,
    slot_freed: Notify,
}

/// One call's slot in its client's share.
#[derive(Debug)]
pub(super) struct ClientSlot(Arc<ClientUsage>);

/// A number that is counted down when this is dropped.
pub(super) struct CountGuard<'a>(&'a AtomicU32);

impl Drop for CountGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// Counts one more, unless there are `max` already.
pub(super) fn count_up_to(count: &AtomicU32, max: u32) -> Option<CountGuard<'_>> {
    let guard = CountGuard(count);
    (count.fetch_add(1, Relaxed) < max).then_some(guard)
}

impl ClientShares {
    /// Returns what `client` holds.
    pub(super) fn usage(&self, client: ClientKey) -> Arc<ClientUsage> {
        if let Some(usage) = self.clients.read().get(&client) {
            return Arc::clone(usage);
        }
        let mut clients = self.clients.write();
        if clients.len() >= self.sweep_at.load(Relaxed).max(MIN_SWEEP_SIZE) {
            // Every call and every waiting call holds its client.
            clients.retain(|_, usage| Arc::strong_count(usage) > 1);
            self.sweep_at.store(2 * clients.len(), Relaxed);
        }
        Arc::clone(clients.entry(client).or_default())
    }

    /// Returns how many calls wait for a response if each client counts with at most `max` calls. Visits every client.
    pub(super) fn capped_awaiting_response(&self, max: u32) -> u32 {
        let clients = self.clients.read();
        clients.values().map(|usage| usage.awaiting_response.load(SeqCst).min(max)).fold(0, u32::saturating_add)
    }

    #[cfg(test)]
    pub(super) fn client_count(&self) -> usize {
        self.clients.read().len()
    }
}

impl ClientUsage {
    /// Takes one of the `max` slots of the client, if one is free and no call of the client waits for it.
    pub(super) fn try_acquire(self: &Arc<Self>, max: u32) -> Option<ClientSlot> {
        if self.waiting_for_share.load(Relaxed) > 0 { None } else { self.take_slot(max) }
    }

    /// Waits for one of the `max` slots of the client, in order of arrival, if fewer than `max_waiting` calls wait.
    pub(super) async fn acquire(
        self: &Arc<Self>,
        max: u32,
        max_waiting: u32,
        max_wait: Duration,
    ) -> Option<ClientSlot> {
        let is_first = self.waiting_for_share.load(Relaxed) == 0;
        let _waiting = count_up_to(&self.waiting_for_share, max_waiting)?;
        let acquired = async {
            let mut may_take = is_first;
            loop {
                let mut freed = pin!(self.slot_freed.notified());
                freed.as_mut().enable();
                if let Some(slot) = may_take.then(|| self.take_slot(max)).flatten() {
                    return slot;
                }
                may_take = true;
                freed.await;
            }
        };
        timeout(max_wait, acquired).await.ok()
    }

    /// Counts a call in a wait queue that all clients share, of which the client may have `max` places.
    pub(super) fn join_queue(&self, max: u32) -> Option<CountGuard<'_>> {
        count_up_to(&self.queued, max)
    }

    fn take_slot(self: &Arc<Self>, max: u32) -> Option<ClientSlot> {
        let taken = self.slots.fetch_update(SeqCst, SeqCst, |slots| (slots < max).then_some(slots + 1));
        taken.ok().map(|_| ClientSlot(Arc::clone(self)))
    }
}

impl ClientSlot {
    /// Returns what the client holds.
    pub(super) fn usage(&self) -> &ClientUsage {
        &self.0
    }

    /// Counts the call as waiting for a response; returns how many calls of the client now wait.
    pub(super) fn start_awaiting_response(&self) -> u32 {
        self.0.awaiting_response.fetch_add(1, SeqCst) + 1
    }

    /// Stops counting the call as waiting for a response.
    pub(super) fn stop_awaiting_response(&self) {
        self.0.awaiting_response.fetch_sub(1, SeqCst);
    }
}

impl Drop for ClientSlot {
    fn drop(&mut self) {
        self.0.slots.fetch_sub(1, SeqCst);
        if self.0.waiting_for_share.load(SeqCst) > 0 {
            self.0.slot_freed.notify_one();
        }
    }
}
