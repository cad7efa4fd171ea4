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
pub(super) struct CountGuard<'a> {
    count: &'a AtomicU32,
    /// Whether the number was 0 before.
    is_first: bool,
}

impl Drop for CountGuard<'_> {
    fn drop(&mut self) {
        self.count.fetch_sub(1, SeqCst);
    }
}

/// Counts one more, unless there are `max` already.
pub(super) fn count_up_to(count: &AtomicU32, max: u32) -> Option<CountGuard<'_>> {
    let count_before = count.fetch_add(1, SeqCst);
    let guard = CountGuard { count, is_first: count_before == 0 };
    (count_before < max).then_some(guard)
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

    /// Returns what `client` holds, if it is in the table.
    pub(super) fn known_usage(&self, client: ClientKey) -> Option<Arc<ClientUsage>> {
        self.clients.read().get(&client).map(Arc::clone)
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

    /// Waits for one of the `max` slots of the client, in order of arrival, if fewer than `max_waiting` calls wait. Holds
    /// what `track` returns while it waits.
    pub(super) async fn acquire<T>(
        self: &Arc<Self>,
        max: u32,
        max_waiting: u32,
        max_wait: Duration,
        track: impl FnOnce() -> T,
    ) -> Option<ClientSlot> {
        let waiting = count_up_to(&self.waiting_for_share, max_waiting)?;
        let tracked = track();
        let acquired = async {
            let mut may_take = waiting.is_first;
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
        let slot = timeout(max_wait, acquired).await.ok();
        drop((waiting, tracked));
        // Several slots may have become free with one notification.
        if slot.is_some() && self.slots.load(SeqCst) < max {
            self.wake_next();
        }
        slot
    }

    /// Wakes the call that has waited for the client's share for the longest time.
    fn wake_next(&self) {
        if self.waiting_for_share.load(SeqCst) > 0 {
            self.slot_freed.notify_one();
        }
    }

    /// Returns whether the client has a free slot of `max`, which no call of the client waits for.
    pub(super) fn has_free_slot(&self, max: u32) -> bool {
        self.waiting_for_share.load(Relaxed) == 0 && self.slots.load(SeqCst) < max
    }

    /// Returns how many calls wait for the client's own share.
    pub(super) fn waiting_for_share(&self) -> u32 {
        self.waiting_for_share.load(SeqCst)
    }

    /// Returns how many calls of the client are in a wait queue that all clients share.
    pub(super) fn queued(&self) -> u32 {
        self.queued.load(SeqCst)
    }

    /// Returns how many calls of the client wait for a response.
    pub(super) fn awaiting_response(&self) -> u32 {
        self.awaiting_response.load(SeqCst)
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
        self.0.wake_next();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::{FutureExt, poll};
    use std::task::Poll;

    const MAX_WAIT: Duration = Duration::from_secs(3_600);

    #[tokio::test]
    async fn a_call_does_not_wait_for_its_share_beside_a_free_slot() {
        let usage = Arc::new(ClientUsage::default());
        let held: Vec<_> = (0..3).map(|_| usage.try_acquire(3).unwrap()).collect();
        let wait = || Box::pin(usage.acquire(3, 8, MAX_WAIT, || ()));
        let mut first = wait();
        assert!(poll!(&mut first).is_pending());
        // The first call is notified of one slot and has not run yet. One notification stands for the two others.
        drop(held);
        let (mut second, mut third) = (wait(), wait());
        let Poll::Ready(Some(_of_second)) = poll!(&mut second) else { panic!("two slots are free") };
        let third_before = poll!(&mut third);
        let Poll::Ready(Some(_of_first)) = poll!(&mut first) else { panic!("the call was notified") };
        let third = match third_before {
            Poll::Ready(slot) => Some(slot),
            Poll::Pending => third.now_or_never(),
        };
        assert!(matches!(third, Some(Some(_))), "a slot is free");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn of_many_calls_that_wait_for_a_share_none_is_forgotten() {
        let usage = Arc::new(ClientUsage::default());
        let calls = (0..64).map(|_| {
            let usage = Arc::clone(&usage);
            tokio::spawn(async move {
                for _ in 0..200 {
                    let slot = match usage.try_acquire(3) {
                        Some(slot) => slot,
                        None => {
                            usage.acquire(3, 64, Duration::from_secs(20), || ()).await.expect("a slot becomes free")
                        }
                    };
                    tokio::task::yield_now().await;
                    drop(slot);
                }
            })
        });
        for call in calls.collect::<Vec<_>>() {
            call.await.unwrap();
        }
        assert_eq!((usage.slots.load(SeqCst), usage.waiting_for_share.load(SeqCst)), (0, 0));
    }
}
