//! The accounts of one rule, or of the quotas of one kind of period: one for each key, up to a maximum.

use super::{
    exchange_queue::ExchangeQueue,
    token_account::{AccountLimit, DrawOutcome, QueueState, TokenAccount, WaitingDraw},
};
use crate::telemetry::{Event, Metrics};
use foldhash::fast::RandomState;
use parking_lot::Mutex;
use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};
use tokio::sync::oneshot;

const SHARDS: usize = 64;
/// Shards that one sweep visits: a full round takes sixteen sweeps.
const SHARDS_PER_SWEEP: usize = 4;

/// Names an account: in the map of this gateway, and in the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AccountKey {
    /// Hash in the map.
    pub(super) hash: u64,
    /// Id in the server.
    pub(super) id: u128,
}

/// An account in the queue of the exchanger.
pub(super) type QueuedAccount = (Arc<TokenAccounts>, AccountKey);

/// The queue of the exchanger.
pub(super) type AccountQueue = ExchangeQueue<QueuedAccount>;

type AccountMap = HashMap<u64, TokenAccount, RandomState>;

/// Accounts by key.
#[derive(Debug)]
pub(super) struct TokenAccounts {
    shards: Box<[Mutex<AccountMap>]>,
    key_count: AtomicUsize,
    max_keys: AtomicUsize,
    next_shard: AtomicUsize,
    queue: Arc<AccountQueue>,
    metrics: Arc<Metrics>,
}

impl TokenAccounts {
    /// Creates accounts for at most `max_keys` keys.
    pub(super) fn new(max_keys: usize, queue: &Arc<AccountQueue>, metrics: &Arc<Metrics>) -> Arc<Self> {
        let shards = if max_keys == 1 { 1 } else { SHARDS };
        Arc::new(Self {
            shards: (0..shards).map(|_| Mutex::default()).collect(),
            key_count: AtomicUsize::new(0),
            max_keys: AtomicUsize::new(max_keys),
            next_shard: AtomicUsize::new(0),
            queue: Arc::clone(queue),
            metrics: Arc::clone(metrics),
        })
    }

    fn shard(&self, hash: u64) -> Option<&Mutex<AccountMap>> {
        let at = usize::try_from(hash >> 40).unwrap_or_default() % self.shards.len();
        self.shards.get(at)
    }

    /// Calls `visit` with the account of a key, which is created if there is room. Otherwise it is the account that the
    /// further keys share. Queues the account if it has something to send.
    pub(super) fn visit<T>(
        self: &Arc<Self>,
        key: AccountKey,
        limit: AccountLimit,
        visit: impl FnOnce(&mut TokenAccount) -> T,
    ) -> Option<T> {
        let mut accounts = self.shard(key.hash)?.lock();
        let account = match accounts.entry(key.hash) {
            std::collections::hash_map::Entry::Occupied(entry) => entry.into_mut(),
            std::collections::hash_map::Entry::Vacant(entry) => {
                let overflow = key.overflow();
                if key != overflow && self.key_count.load(Relaxed) >= self.max_keys.load(Relaxed) {
                    drop(accounts);
                    self.metrics.record_event(Event::LimiterOverflow);
                    return self.visit(overflow, limit, visit);
                }
                self.key_count.fetch_add(1, Relaxed);
                entry.insert(TokenAccount::new(key.id, limit))
            }
        };
        account.set_limit(limit);
        let result = visit(account);
        let raised = account.raise_queue_state();
        drop(accounts);
        self.enqueue(key, raised);
        Some(result)
    }

    /// Calls `visit` with the account of a key, if there is one, and queues it if it has something to send.
    pub(super) fn revisit(self: &Arc<Self>, key: AccountKey, visit: impl FnOnce(&mut TokenAccount)) {
        let raise = |account: &mut TokenAccount| {
            visit(account);
            account.raise_queue_state()
        };
        self.enqueue(key, self.visit_existing(key, raise).flatten());
    }

    /// Calls `visit` with the account of a key, if there is one. Does not queue it.
    pub(super) fn visit_existing<T>(&self, key: AccountKey, visit: impl FnOnce(&mut TokenAccount) -> T) -> Option<T> {
        self.shard(key.hash)?.lock().get_mut(&key.hash).map(visit)
    }

    fn enqueue(self: &Arc<Self>, key: AccountKey, raised: Option<QueueState>) {
        match raised {
            Some(QueueState::Drawing) => self.queue.push_drawing((Arc::clone(self), key)),
            Some(QueueState::Settling) => self.queue.push_settling((Arc::clone(self), key)),
            Some(QueueState::Idle) | None => {}
        }
    }

    /// Draws `count` tokens from the server; 0 only reads the level. The sender is dropped if the server does not answer.
    pub(super) fn draw(
        self: &Arc<Self>,
        key: AccountKey,
        limit: AccountLimit,
        count: u32,
    ) -> oneshot::Receiver<DrawOutcome> {
        let (outcome, receiver) = oneshot::channel();
        self.visit(key, limit, |account| account.wait(WaitingDraw { count, outcome }));
        receiver
    }

    /// Drops some of the accounts that nothing is known of, or whose period is over.
    pub(super) fn evict_idle(&self, now: u64) {
        let first_shard = self.next_shard.fetch_add(SHARDS_PER_SWEEP, Relaxed);
        for at in first_shard..first_shard + SHARDS_PER_SWEEP.min(self.shards.len()) {
            let Some(shard) = self.shards.get(at % self.shards.len()) else { continue };
            let mut accounts = shard.lock();
            let count_before = accounts.len();
            accounts.retain(|_, account| !account.is_idle(now));
            let count_after = accounts.len();
            if accounts.capacity() > 4 * count_after + 16 {
                accounts.shrink_to(2 * count_after);
            }
            self.key_count.fetch_sub(count_before - count_after, Relaxed);
        }
    }

    /// Returns whether every account is idle.
    pub(super) fn is_idle(&self, now: u64) -> bool {
        self.shards.iter().all(|shard| shard.lock().values().all(|account| account.is_idle(now)))
    }

    pub(super) fn record_event(&self, event: Event) {
        self.metrics.record_event(event);
    }

    pub(super) fn set_max_keys(&self, max_keys: usize) {
        self.max_keys.store(max_keys, Relaxed);
    }

    pub(super) fn key_count(&self) -> usize {
        self.key_count.load(Relaxed)
    }

    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().capacity()).sum()
    }
}

impl AccountKey {
    /// The key of the account that the keys beyond the maximum share: that of the same rule or period, without a key.
    fn overflow(self) -> Self {
        let of_rule = self.id >> 64;
        Self { hash: u64::try_from(of_rule).unwrap_or_default(), id: of_rule << 64 }
    }
}
