//! Memo of verdicts: for pairs of a value and a block. Its memory is bounded; an entry that is evicted costs fuel when it
//! is needed again, and never changes a verdict.

use crate::{program::BlockId, tape::Node};
use std::hash::BuildHasher;

/// Number of slots at first.
const MIN_SLOTS: usize = 1 << 10;
/// Maximum number of slots: 1 MiB.
const MAX_SLOTS: usize = 1 << 17;
/// Slots that an entry may have.
const WINDOW: usize = 8;

/// Verdicts. A slot is 0, or has the number of the value plus 1, the block and the verdict.
#[derive(Debug, Default)]
pub(super) struct Memo {
    slots: Vec<u64>,
    used: usize,
    evictions: usize,
    hasher: foldhash::fast::RandomState,
}

impl Memo {
    fn key(node: Node, block: BlockId) -> u64 {
        (u64::from(node.index()) + 1) << 32 | u64::from(block.0) << 1
    }

    fn first_slot(&self, key: u64) -> usize {
        usize::try_from(self.hasher.hash_one(key)).unwrap_or_default()
    }

    /// Returns the verdict of a pair.
    pub(super) fn get(&self, node: Node, block: BlockId) -> Option<bool> {
        let mask = self.slots.len().checked_sub(1)?;
        let key = Self::key(node, block);
        let first = self.first_slot(key);
        for offset in 0..WINDOW {
            match self.slots.get(first.wrapping_add(offset) & mask) {
                Some(0) | None => return None,
                Some(slot) if slot & !1 == key => return Some(slot & 1 == 1),
                _ => {}
            }
        }
        None
    }

    /// Records the verdict of a pair.
    pub(super) fn insert(&mut self, node: Node, block: BlockId, verdict: bool) {
        if self.used * 2 >= self.slots.len() && self.slots.len() < MAX_SLOTS {
            self.grow();
        }
        self.put(Self::key(node, block) | u64::from(verdict));
    }

    fn put(&mut self, entry: u64) {
        let Some(mask) = self.slots.len().checked_sub(1) else { return };
        let first = self.first_slot(entry & !1);
        for offset in 0..WINDOW {
            if let Some(slot) = self.slots.get_mut(first.wrapping_add(offset) & mask) {
                if *slot == 0 {
                    self.used += 1;
                    *slot = entry;
                    return;
                }
                if *slot & !1 == entry & !1 {
                    *slot = entry;
                    return;
                }
            }
        }
        self.evictions = self.evictions.wrapping_add(1);
        if let Some(slot) = self.slots.get_mut(first.wrapping_add(self.evictions % WINDOW) & mask) {
            *slot = entry;
        }
    }

    fn grow(&mut self) {
        let size = if self.slots.is_empty() { MIN_SLOTS } else { self.slots.len() * 4 };
        let old = std::mem::replace(&mut self.slots, vec![0; size.min(MAX_SLOTS)]);
        self.used = 0;
        old.into_iter().filter(|entry| *entry != 0).for_each(|entry| self.put(entry));
    }

    /// Returns the memory in bytes.
    pub(super) fn memory(&self) -> usize {
        self.slots.capacity() * size_of::<u64>()
    }
}
