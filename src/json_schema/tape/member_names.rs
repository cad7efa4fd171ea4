//! Finds names that appear twice in one object, in constant time for each name whatever the names are.
//!
//! A name becomes a key of 64 bits: short names as they are, longer ones as a hash with a random key of the process. Two
//! different names of one object have equal keys with a probability of about 2^-63; the text is refused then. The keys of
//! small objects stand in one list; an object of more names has a hash table, whose slots depend on the random key.

use super::head_of;
use foldhash::{SharedSeed, quality::SeedableRandomState};
use siphasher::sip::SipHasher13;
use std::hash::{BuildHasher as _, Hasher};

/// Names of an object beyond which it has a hash table.
const MAX_LISTED: usize = 16;
/// Slots of the first table of an object.
const FIRST_SLOTS: usize = 64;
/// Slots that are moved into a larger table at once.
pub(super) const SLOTS_PER_STEP: usize = 128;
/// Slots of a larger table that are cleared at once.
const CLEARED_SLOTS: usize = 2048;
/// Maximum length of a name that is its own key.
const MAX_PACKED: usize = 7;
/// Maximum length of a name whose key is a fast hash. Two names with the same key refuse only the text that has both.
const MAX_FOLDED: usize = 64;

/// Whether a name is new in its object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NameInsert {
    New,
    Duplicate,
    /// The table is full: it must grow before the name can be inserted.
    Full,
}

/// The names of the objects that are open.
#[derive(Debug)]
pub(super) struct OpenNames {
    keys: SlotKeys,
    folded: SeedableRandomState,
    listed: Vec<u64>,
    tables: Vec<NameTable>,
}

/// Which of the names belong to an object.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct NameScope {
    first_listed: u32,
    has_table: bool,
}

impl NameScope {
    /// Returns whether the object has a table.
    pub(super) fn has_table(self) -> bool {
        self.has_table
    }
}

#[derive(Debug, Default)]
struct NameTable {
    slots: Vec<u64>,
    used: usize,
    /// The table that replaces the slots once all are moved.
    larger: Vec<u64>,
    moved: usize,
}

impl OpenNames {
    pub(super) fn new() -> Self {
        let (first, second) = crate::value_hash::process_key();
        let folded = SeedableRandomState::with_seed(first, SharedSeed::global_random());
        Self { keys: SlotKeys(first, second), folded, listed: Vec::new(), tables: Vec::new() }
    }

    pub(super) fn hasher(&self) -> SipHasher13 {
        SipHasher13::new_with_keys(self.keys.0, self.keys.1)
    }

    /// Returns the key of a decoded name.
    #[inline]
    pub(super) fn key(&self, name: &[u8]) -> u64 {
        match name.len() {
            length @ 0..=MAX_PACKED => head_of(name) | ((length as u64 + 1) << 56),
            ..=MAX_FOLDED => {
                let mut hasher = self.folded.build_hasher();
                hasher.write(name);
                hasher.finish() | 1 << 63
            }
            _ => {
                let mut hasher = self.hasher();
                hasher.write(name);
                Self::hashed_key(&hasher)
            }
        }
    }

    /// Returns the key of a name of more than [`MAX_FOLDED`] bytes that was written into a hasher.
    pub(super) fn hashed_key(hasher: &SipHasher13) -> u64 {
        hasher.finish() | (1 << 63)
    }

    pub(super) fn open(&self) -> NameScope {
        NameScope { first_listed: self.listed.len() as u32, has_table: false }
    }

    pub(super) fn close(&mut self, scope: NameScope) {
        self.listed.truncate(scope.first_listed as usize);
        if scope.has_table {
            self.tables.pop();
        }
    }

    /// Adds a name to the innermost object.
    #[inline]
    pub(super) fn insert(&mut self, scope: &mut NameScope, key: u64) -> NameInsert {
        if scope.has_table {
            let slot = self.slot_hash(key);
            return self.tables.last_mut().map_or(NameInsert::Duplicate, |table| table.insert(slot, key));
        }
        let listed = self.listed.get(scope.first_listed as usize..).unwrap_or_default();
        if listed.contains(&key) {
            return NameInsert::Duplicate;
        }
        if listed.len() < MAX_LISTED {
            if self.listed.capacity() == 0 {
                self.listed.reserve(MAX_LISTED);
            }
            self.listed.push(key);
            return NameInsert::New;
        }
        let mut table = NameTable { slots: vec![0; FIRST_SLOTS], ..NameTable::default() };
        for listed in self.listed.drain(scope.first_listed as usize..).chain([key]) {
            table.insert(slot_hash(self.keys, listed), listed);
        }
        self.tables.push(table);
        scope.has_table = true;
        NameInsert::New
    }

    /// Moves some slots of the innermost object's table into a larger one; returns whether it has finished.
    pub(super) fn grow(&mut self) -> bool {
        let keys = self.keys;
        self.tables.last_mut().is_none_or(|table| table.grow(keys))
    }

    fn slot_hash(&self, key: u64) -> u64 {
        slot_hash(self.keys, key)
    }

    /// Returns the bytes of memory of all lists and tables.
    pub(super) fn memory(&self) -> usize {
        let tables = self.tables.iter().map(|table| table.slots.capacity() + table.larger.capacity());
        8 * (self.listed.capacity() + tables.sum::<usize>())
    }
}

/// The key of the hash that chooses slots.
#[derive(Clone, Copy, Debug)]
struct SlotKeys(u64, u64);

fn slot_hash(keys: SlotKeys, key: u64) -> u64 {
    let mut hasher = SipHasher13::new_with_keys(keys.1, keys.0);
    hasher.write_u64(key);
    hasher.finish()
}

impl NameTable {
    fn insert(&mut self, hash: u64, key: u64) -> NameInsert {
        let mask = self.slots.len() - 1;
        let mut at = hash as usize & mask;
        // A table has free slots, so that the loop ends.
        loop {
            match self.slots.get_mut(at) {
                Some(slot) if *slot == key => return NameInsert::Duplicate,
                Some(slot) if *slot == 0 => {
                    if (self.used + 1) * 4 > (mask + 1) * 3 {
                        return NameInsert::Full;
                    }
                    *slot = key;
                    self.used += 1;
                    return NameInsert::New;
                }
                Some(_) => at = (at + 1) & mask,
                None => return NameInsert::Full,
            }
        }
    }

    fn grow(&mut self, keys: SlotKeys) -> bool {
        let slots = self.slots.len() * 2;
        if self.larger.capacity() == 0 {
            self.larger.reserve_exact(slots);
        }
        if self.larger.len() < slots {
            self.larger.resize(slots.min(self.larger.len() + CLEARED_SLOTS), 0);
            return false;
        }
        let end = self.slots.len().min(self.moved + SLOTS_PER_STEP);
        for key in self.slots.get(self.moved..end).unwrap_or_default() {
            if *key != 0 {
                insert_moved(&mut self.larger, slot_hash(keys, *key), *key);
            }
        }
        self.moved = end;
        let is_complete = end == self.slots.len();
        if is_complete {
            self.slots = std::mem::take(&mut self.larger);
            self.moved = 0;
        }
        is_complete
    }
}

/// Puts a key into the first free slot from its place on.
fn insert_moved(slots: &mut [u64], hash: u64, key: u64) {
    let mask = slots.len() - 1;
    let mut at = hash as usize & mask;
    for _ in 0..slots.len() {
        match slots.get_mut(at) {
            Some(slot) if *slot == 0 => {
                *slot = key;
                return;
            }
            _ => at = (at + 1) & mask,
        }
    }
}
