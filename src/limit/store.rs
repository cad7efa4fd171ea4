//! Where buckets keep how full they are: a sharded map of bounded size, swept a part at a time, and a single
//! cell. The crate's own stores never say that a key is new, so they can be neither bounded nor given back to.

use crate::telemetry::{Event, Metrics};
use governor::{
    nanos::Nanos,
    state::{StateStore, keyed::ShrinkableKeyedStateStore},
};
use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
    num::NonZeroU64,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{
            AtomicU64, AtomicUsize,
            Ordering::{AcqRel, Acquire, Relaxed},
        },
    },
};

const SHARDS: usize = 64;
/// Shards that one sweep goes through: a round takes sixteen sweeps.
const SWEPT: usize = 4;

/// Keys are hashes already, by a seed that callers do not know.
#[derive(Default)]
pub(super) struct Same(u64);

impl Hasher for Same {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.0 = self.0.rotate_left(8) ^ u64::from(*byte));
    }

    fn write_u64(&mut self, key: u64) {
        self.0 = key;
    }
}

pub(super) type ByKey<T> = HashMap<u64, T, BuildHasherDefault<Same>>;

/// Finds the cell of a key.
pub(super) trait Cells {
    /// Calls `with` with the key's cell, which is made if `make` says so.
    fn cell<T>(&self, key: u64, make: bool, with: impl FnOnce(&AtomicU64) -> T) -> Option<T>;
    /// Drops some of the cells that are as good as new.
    fn sweep(&self, drop_below: u64);
    /// How many cells there are.
    fn held(&self) -> usize;
}

/// One cell, whatever the key.
#[derive(Debug, Default)]
pub(super) struct Single(AtomicU64);

impl Cells for Single {
    fn cell<T>(&self, _: u64, _: bool, with: impl FnOnce(&AtomicU64) -> T) -> Option<T> {
        Some(with(&self.0))
    }

    fn sweep(&self, _: u64) {}

    fn held(&self) -> usize {
        1
    }
}

/// A cell for each key, up to a bound; beyond it new keys share one.
#[derive(Debug)]
pub(super) struct Keyed {
    shards: Box<[RwLock<ByKey<AtomicU64>>]>,
    held: AtomicUsize,
    most: AtomicUsize,
    shared: AtomicU64,
    next: AtomicUsize,
    metrics: Arc<Metrics>,
}

impl Keyed {
    pub(super) fn new(most: usize, metrics: Arc<Metrics>) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| RwLock::default()).collect(),
            held: AtomicUsize::new(0),
            most: AtomicUsize::new(most),
            shared: AtomicU64::new(0),
            next: AtomicUsize::new(0),
            metrics,
        }
    }

    pub(super) fn bound(&self, most: usize) {
        self.most.store(most, Relaxed);
    }

    /// The map's own choice of a place uses the lowest and highest bits; the shard is told by some between.
    fn shard(&self, key: u64) -> Option<&RwLock<ByKey<AtomicU64>>> {
        self.shards.get(usize::try_from(key >> 40).unwrap_or_default() % SHARDS)
    }

    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.shards.iter().map(|shard| shard.read().unwrap().capacity()).sum()
    }
}

impl Cells for Keyed {
    fn cell<T>(&self, key: u64, make: bool, with: impl FnOnce(&AtomicU64) -> T) -> Option<T> {
        let shard = self.shard(key)?;
        if let Some(cell) = shard.read().unwrap_or_else(PoisonError::into_inner).get(&key) {
            return Some(with(cell));
        }
        if !make {
            return None;
        }
        let mut cells = shard.write().unwrap_or_else(PoisonError::into_inner);
        if !cells.contains_key(&key) {
            if self.held.load(Relaxed) >= self.most.load(Relaxed) {
                drop(cells);
                self.metrics.count(Event::LimitOverflow);
                return Some(with(&self.shared));
            }
            self.held.fetch_add(1, Relaxed);
        }
        Some(with(cells.entry(key).or_default()))
    }

    fn sweep(&self, drop_below: u64) {
        let first = self.next.fetch_add(SWEPT, Relaxed);
        for at in first..first + SWEPT {
            let Some(shard) = self.shards.get(at % SHARDS) else {
                continue;
            };
            let mut cells = shard.write().unwrap_or_else(PoisonError::into_inner);
            let before = cells.len();
            cells.retain(|_, full| *full.get_mut() > drop_below);
            let after = cells.len();
            if cells.capacity() > 4 * after + 16 {
                cells.shrink_to(2 * after);
            }
            self.held.fetch_sub(before - after, Relaxed);
        }
    }

    fn held(&self) -> usize {
        self.held.load(Relaxed)
    }
}

/// Cells as the crate wants them; ours stay in reach.
#[derive(Debug)]
pub(super) struct Shared<C>(pub(super) Arc<C>);

impl<C: Cells> StateStore for Shared<C> {
    type Key = u64;

    fn measure_and_replace<T, F, E>(&self, key: &u64, decide: F) -> Result<T, E>
    where
        F: Fn(Option<Nanos>) -> Result<(T, Nanos), E>,
    {
        let measure = |cell: &AtomicU64| {
            let mut before = cell.load(Acquire);
            loop {
                let (result, after) = decide(NonZeroU64::new(before).map(|full| full.get().into()))?;
                match cell.compare_exchange_weak(before, after.into(), AcqRel, Acquire) {
                    Ok(_) => return Ok(result),
                    Err(changed) => before = changed,
                }
            }
        };
        match self.0.cell(*key, true, measure) {
            Some(decided) => decided,
            // No shard: cannot be, and is decided as for a new key.
            None => decide(None).map(|(result, _)| result),
        }
    }
}

impl<C: Cells> ShrinkableKeyedStateStore<u64> for Shared<C> {
    fn retain_recent(&self, drop_below: Nanos) {
        self.0.sweep(drop_below.into());
    }

    fn len(&self) -> usize {
        self.0.held()
    }

    fn is_empty(&self) -> bool {
        self.0.held() == 0
    }
}
