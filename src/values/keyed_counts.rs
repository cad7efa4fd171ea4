//! Counts of what each client or address holds. Only keys that hold something take memory, so that what is counted
//! bounds the map.

use foldhash::fast::RandomState;
use parking_lot::Mutex;
use std::{
    collections::HashMap,
    fmt::Debug,
    hash::{BuildHasher as _, Hash},
    sync::Arc,
};

const SHARDS: usize = 16;

/// Counts by key, in shards with a lock each.
#[derive(Debug)]
pub struct KeyedCounts<K> {
    shards: [Mutex<HashMap<K, usize, RandomState>>; SHARDS],
    /// Seeded, so that no caller can choose keys that meet in one shard.
    shard_hasher: RandomState,
}

/// An amount that a key holds, which is returned when this is dropped.
#[derive(Debug)]
pub struct CountedHold<K: Copy + Debug + Eq + Hash> {
    counts: Arc<KeyedCounts<K>>,
    key: K,
    amount: usize,
}

impl<K> Default for KeyedCounts<K> {
    fn default() -> Self {
        Self { shards: std::array::from_fn(|_| Mutex::default()), shard_hasher: RandomState::default() }
    }
}

impl<K: Copy + Debug + Eq + Hash> KeyedCounts<K> {
    /// Adds `amount` to what `key` holds; `None` if it would hold more than `max`.
    pub fn try_hold(self: &Arc<Self>, key: K, amount: usize, max: usize) -> Option<CountedHold<K>> {
        self.try_add(key, amount, max).then(|| CountedHold { counts: Arc::clone(self), key, amount })
    }

    /// Returns what `key` holds.
    pub fn held(&self, key: K) -> usize {
        self.shard(key).and_then(|shard| shard.lock().get(&key).copied()).unwrap_or_default()
    }

    /// Returns how many keys hold something.
    #[cfg(test)]
    pub(super) fn key_count(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
    }

    fn shard(&self, key: K) -> Option<&Mutex<HashMap<K, usize, RandomState>>> {
        self.shards.get(self.shard_hasher.hash_one(key) as usize % SHARDS)
    }

    fn try_add(&self, key: K, amount: usize, max: usize) -> bool {
        let Some(shard) = self.shard(key) else { return false };
        let mut counts = shard.lock();
        let held = counts.get(&key).copied().unwrap_or_default().checked_add(amount).filter(|held| *held <= max);
        held.map(|held| counts.insert(key, held)).is_some()
    }

    fn subtract(&self, key: K, amount: usize) {
        let Some(shard) = self.shard(key) else { return };
        let mut counts = shard.lock();
        match counts.get_mut(&key) {
            Some(held) if *held > amount => *held -= amount,
            Some(_) => {
                counts.remove(&key);
                if counts.capacity() > 4 * counts.len() + 64 {
                    let kept = 2 * counts.len();
                    counts.shrink_to(kept);
                }
            }
            None => {}
        }
    }
}

impl<K: Copy + Debug + Eq + Hash> CountedHold<K> {
    /// Adds `amount` to what the key holds; returns false, and adds nothing, if it would hold more than `max`.
    pub fn try_grow(&mut self, amount: usize, max: usize) -> bool {
        let is_within = self.counts.try_add(self.key, amount, max);
        if is_within {
            self.amount += amount;
        }
        is_within
    }
}

impl<K: Copy + Debug + Eq + Hash> Drop for CountedHold<K> {
    fn drop(&mut self) {
        self.counts.subtract(self.key, self.amount);
    }
}
