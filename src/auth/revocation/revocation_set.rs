//! The revocations that this gateway knows: a hash table in shards, so that a call that looks its credential up waits for no
//! other.

use super::{
    new_revocation::{NewRevocation, Revocation},
    revocation_key::RevocationKey,
};
use crate::store::StoredValue;
use parking_lot::{Mutex, RwLock};
use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    time::{Duration, Instant},
};
use tokio::sync::{Notify, watch};

/// Number of shards; a power of two.
const SHARDS: usize = 16;

/// A revocation in force, and until when.
#[derive(Clone, Copy, Debug)]
struct ListedRevocation {
    revocation: Revocation,
    expires: Instant,
    lifetime: Duration,
    /// When `lifetime` began.
    listed: Instant,
}

/// The revocations that this gateway knows.
#[derive(Debug, Default)]
pub(super) struct RevocationSet {
    shards: [RwLock<HashMap<RevocationKey, ListedRevocation>>; SHARDS],
    len: AtomicUsize,
    /// Those that are not in the shared state, as far as is known. It is locked before a shard, never while one is.
    unpublished: Mutex<BTreeSet<RevocationKey>>,
    /// Notified when there is something to publish.
    pub(super) added: Notify,
    /// Counts the exchanges with the shared state.
    pub(super) exchanges: watch::Sender<u64>,
}

impl RevocationSet {
    fn shard(&self, key: &RevocationKey) -> Option<&RwLock<HashMap<RevocationKey, ListedRevocation>>> {
        self.shards.get(usize::from(key.0[0]) % SHARDS)
    }

    pub(super) fn len(&self) -> usize {
        self.len.load(Relaxed)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(super) fn get(&self, key: &RevocationKey) -> Option<Revocation> {
        self.shard(key)?.read().get(key).map(|listed| listed.revocation)
    }

    /// Puts a revocation of this gateway in force. It is to be published.
    pub(super) fn insert(&self, new: &NewRevocation) {
        self.merge(new);
        self.unpublished.lock().insert(new.key);
    }

    /// Puts a revocation of the shared state in force. If this gateway knows one that revokes more, that is to be
    /// published.
    pub(super) fn insert_stored(&self, stored: &StoredValue) {
        let key = RevocationKey(stored.key);
        let revocation = Revocation::decode(&stored.value);
        let merged = self.merge(&NewRevocation { key, revocation, lifetime: stored.lifetime });
        let mut unpublished = self.unpublished.lock();
        if merged == revocation {
            unpublished.remove(&key);
        } else {
            unpublished.insert(key);
        }
    }

    /// Merges a revocation with the one that is known, and returns the result. No revocation becomes weaker.
    fn merge(&self, new: &NewRevocation) -> Revocation {
        let now = Instant::now();
        let Some(shard) = self.shard(&new.key) else { return new.revocation };
        let mut listed = ListedRevocation {
            revocation: new.revocation,
            expires: now + new.lifetime,
            lifetime: new.lifetime,
            listed: now,
        };
        let mut shard = shard.write();
        match shard.get(&new.key) {
            Some(known) => {
                listed.revocation = known.revocation.merge(new.revocation);
                if known.expires > listed.expires {
                    listed = ListedRevocation { revocation: listed.revocation, ..*known };
                }
            }
            None => drop(self.len.fetch_add(1, Relaxed)),
        }
        shard.insert(new.key, listed);
        listed.revocation
    }

    /// Forgets the revocations whose lifetime is over.
    pub(super) fn remove_expired(&self) {
        let now = Instant::now();
        for shard in &self.shards {
            // Read first, because most of the time none has expired.
            if shard.read().values().all(|listed| now < listed.expires) {
                continue;
            }
            let mut shard = shard.write();
            let expired: HashSet<RevocationKey> =
                shard.extract_if(|_, listed| listed.expires <= now).map(|(key, _)| key).collect();
            drop(shard);
            self.len.fetch_sub(expired.len(), Relaxed);
            let mut unpublished = self.unpublished.lock();
            unpublished.retain(|key| !expired.contains(key));
        }
    }

    /// Returns the number of revocations that are not in the shared state.
    pub(super) fn unpublished_count(&self) -> usize {
        self.unpublished.lock().len()
    }

    /// Returns whether a revocation is in the shared state.
    pub(super) fn is_published(&self, key: &RevocationKey) -> bool {
        !self.unpublished.lock().contains(key)
    }

    /// Returns up to `max` revocations that are to be published, each with the rest of its lifetime.
    pub(super) fn unpublished(&self, max: usize) -> Vec<NewRevocation> {
        let keys: Vec<RevocationKey> = self.unpublished.lock().iter().take(max).copied().collect();
        let revocation = |key: RevocationKey| {
            let listed = *self.shard(&key)?.read().get(&key)?;
            let lifetime = listed.lifetime.saturating_sub(listed.listed.elapsed());
            Some(NewRevocation { key, revocation: listed.revocation, lifetime })
        };
        keys.into_iter().filter_map(revocation).collect()
    }

    /// Records that a revocation is in the shared state, unless it has changed meanwhile.
    pub(super) fn set_published(&self, published: &NewRevocation) {
        let mut unpublished = self.unpublished.lock();
        if self.get(&published.key).is_none_or(|current| current == published.revocation) {
            unpublished.remove(&published.key);
        }
    }

    /// Marks the revocations that the shared state has lost as to be published. `present` are those that it has.
    pub(super) fn set_lost_except(&self, present: &HashSet<RevocationKey>) {
        let mut unpublished = self.unpublished.lock();
        for shard in &self.shards {
            unpublished.extend(shard.read().keys().filter(|key| !present.contains(key)));
        }
    }
}
