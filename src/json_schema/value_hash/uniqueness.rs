//! `uniqueItems`: whether all items of an array are different, in slices of fuel and of bounded memory.

use super::{NodeHasher, hash_scalar};
use crate::{
    fuel::Fuel,
    number,
    tape::{Node, NodeKind, Tape},
};
use std::{fmt, task::Poll};

/// Scalars that are compared with each other, without a table.
const MAX_COMPARED: usize = 8;
/// Length of a scalar that may be compared so.
const MAX_COMPARED_BYTES: usize = 64;
/// Units of fuel for a pair of compared scalars, and for an item in the table.
const PAIR_UNITS: u64 = 3;
const SLOT_UNITS: u64 = 6;
/// Units of fuel for a slot that is moved.
const MOVE_UNITS: u64 = 2;
const FIRST_SLOTS: usize = 64;
/// Slots that are moved into a larger table at once.
const SLOTS_PER_STEP: usize = 128;
/// Slots of a larger table that are cleared at once.
const CLEARED_SLOTS: usize = 2048;
const GROWTH: usize = 4;

/// The check needs more memory than allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfMemory;

impl fmt::Display for OutOfMemory {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("the check needs more memory than allowed")
    }
}

impl std::error::Error for OutOfMemory {}

/// An item of the table; node 0 is the root, which is no item: an empty slot.
#[derive(Clone, Copy, Debug, Default)]
struct ItemSlot {
    node: u32,
    /// The highest bits of the hash.
    tag: u32,
}

#[derive(Debug)]
enum UniquenessPhase {
    Start,
    /// The item `next` is being hashed.
    Hash,
    /// The hash of the item is compared with that of a candidate of the same tag, which is in the slot.
    Verify {
        hash: u128,
        at: usize,
    },
    /// The table must be larger before the item of this hash is inserted.
    Grow {
        hash: u128,
        moved: usize,
    },
    Complete(Result<bool, OutOfMemory>),
}

/// Checks whether all items of an array are different. It stops at the first pair that is equal.
#[derive(Debug)]
pub struct UniquenessCheck {
    array: Node,
    next: Node,
    hasher: NodeHasher,
    slots: Vec<ItemSlot>,
    larger: Vec<ItemSlot>,
    used: usize,
    max_memory: usize,
    phase: UniquenessPhase,
}

impl UniquenessCheck {
    /// Begins with an array; its table may have at most `max_memory` bytes.
    pub fn start(array: Node, max_memory: usize) -> Self {
        Self {
            array,
            next: array,
            hasher: NodeHasher::start(array),
            slots: Vec::new(),
            larger: Vec::new(),
            used: 0,
            max_memory,
            phase: UniquenessPhase::Start,
        }
    }

    /// Returns the bytes of memory.
    pub fn memory(&self) -> usize {
        (self.slots.capacity() + self.larger.capacity()) * size_of::<ItemSlot>() + self.hasher.memory()
    }

    /// Goes on as far as the fuel goes; returns whether all items are different. A value that is no array has no items.
    ///
    /// # Errors
    /// The table needs more than the maximum.
    pub fn resume(&mut self, tape: &Tape, fuel: &mut Fuel) -> Poll<Result<bool, OutOfMemory>> {
        loop {
            if let UniquenessPhase::Complete(result) = self.phase {
                return Poll::Ready(result);
            }
            if fuel.is_spent() {
                return Poll::Pending;
            }
            match self.phase {
                UniquenessPhase::Start => self.begin(tape, fuel),
                UniquenessPhase::Hash => match self.hasher.resume(tape, fuel) {
                    Poll::Ready(hash) => {
                        fuel.charge(SLOT_UNITS);
                        self.probe(tape, hash, first_slot(tag_of(hash), self.slots.len()));
                    }
                    Poll::Pending => return Poll::Pending,
                },
                UniquenessPhase::Verify { hash, at } => match self.hasher.resume(tape, fuel) {
                    Poll::Ready(other) if other == hash => self.phase = UniquenessPhase::Complete(Ok(false)),
                    Poll::Ready(_) => self.probe(tape, hash, self.after(at)),
                    Poll::Pending => return Poll::Pending,
                },
                UniquenessPhase::Grow { hash, moved } => self.grow(tape, hash, moved, fuel),
                UniquenessPhase::Complete(_) => {}
            }
        }
    }

    fn begin(&mut self, tape: &Tape, fuel: &mut Fuel) {
        let mut few = [self.array; MAX_COMPARED];
        let (mut count, mut is_comparable) = (0, true);
        for item in tape.items(self.array).take(MAX_COMPARED + 1) {
            is_comparable &= !tape.kind(item).is_container() && tape.raw_length(item) <= MAX_COMPARED_BYTES;
            if let Some(place) = few.get_mut(count) {
                *place = item;
            }
            count += 1;
        }
        fuel.charge(1 + count as u64);
        if count < 2 {
            self.phase = UniquenessPhase::Complete(Ok(true));
            return;
        }
        if is_comparable && count <= MAX_COMPARED {
            let items = few.get(..count).unwrap_or_default();
            fuel.charge((count * (count - 1) / 2) as u64 * PAIR_UNITS);
            let equals_earlier = |(at, item): (usize, &Node)| {
                items.iter().take(at).any(|earlier| is_equal_scalar(tape, *earlier, *item))
            };
            self.phase = UniquenessPhase::Complete(Ok(!items.iter().enumerate().any(equals_earlier)));
            return;
        }
        self.next = tape.first_child(self.array);
        self.hasher.restart(self.next);
        if FIRST_SLOTS * size_of::<ItemSlot>() > self.max_memory {
            self.phase = UniquenessPhase::Complete(Err(OutOfMemory));
            return;
        }
        self.slots = vec![ItemSlot::default(); FIRST_SLOTS];
        self.phase = UniquenessPhase::Hash;
    }

    /// Looks for an item of the same tag, or for the slot of this one, from a slot on.
    fn probe(&mut self, tape: &Tape, hash: u128, mut at: usize) {
        let tag = tag_of(hash);
        // A table has free slots, so that the loop ends.
        let slots = self.slots.len();
        while let Some(slot) = self.slots.get_mut(at) {
            if slot.node == 0 {
                if (self.used + 1) * 4 > slots * 3 {
                    self.phase = UniquenessPhase::Grow { hash, moved: 0 };
                    return;
                }
                *slot = ItemSlot { node: self.next.index(), tag };
                self.used += 1;
                self.advance(tape);
                return;
            }
            if slot.tag == tag {
                self.hasher.restart(Node::from_index(slot.node));
                self.phase = UniquenessPhase::Verify { hash, at };
                return;
            }
            at = self.after(at);
        }
    }

    fn after(&self, at: usize) -> usize {
        if at + 1 < self.slots.len() { at + 1 } else { 0 }
    }

    /// Goes to the next item, after one was inserted.
    fn advance(&mut self, tape: &Tape) {
        self.next = tape.next_sibling(self.next);
        if self.next < tape.end(self.array) {
            self.hasher.restart(self.next);
            self.phase = UniquenessPhase::Hash;
        } else {
            self.phase = UniquenessPhase::Complete(Ok(true));
        }
    }

    /// Moves some slots into a larger table. Their order stays: the place of an item depends on the top bits of its tag.
    fn grow(&mut self, tape: &Tape, hash: u128, moved: usize, fuel: &mut Fuel) {
        let slots = self.slots.len() * GROWTH;
        if self.larger.capacity() == 0 {
            if (slots + self.slots.len()) * size_of::<ItemSlot>() > self.max_memory {
                self.phase = UniquenessPhase::Complete(Err(OutOfMemory));
                return;
            }
            self.larger = Vec::with_capacity(slots);
        }
        fuel.charge(SLOTS_PER_STEP as u64 * MOVE_UNITS);
        if self.larger.len() < slots {
            self.larger.resize(slots.min(self.larger.len() + CLEARED_SLOTS), ItemSlot::default());
            return;
        }
        let end = self.slots.len().min(moved + SLOTS_PER_STEP);
        for slot in self.slots.get(moved..end).unwrap_or_default() {
            if slot.node != 0 {
                insert_moved(&mut self.larger, *slot);
            }
        }
        self.phase = UniquenessPhase::Grow { hash, moved: end };
        if end == self.slots.len() {
            self.slots = std::mem::take(&mut self.larger);
            // No item of the table has this hash: it was looked for before.
            self.insert_after_growth(tape, hash);
        }
    }

    /// Inserts the item into a table that has grown.
    fn insert_after_growth(&mut self, tape: &Tape, hash: u128) {
        let tag = tag_of(hash);
        insert_moved(&mut self.slots, ItemSlot { node: self.next.index(), tag });
        self.used += 1;
        self.advance(tape);
    }
}

/// Puts an item into the first free slot from its place on.
fn insert_moved(slots: &mut [ItemSlot], item: ItemSlot) {
    let mut at = first_slot(item.tag, slots.len());
    for _ in 0..slots.len() {
        match slots.get_mut(at) {
            Some(slot) if slot.node == 0 => {
                *slot = item;
                return;
            }
            Some(_) => at += 1,
            None => at = 0,
        }
    }
}

fn tag_of(hash: u128) -> u32 {
    (hash >> 96) as u32
}

/// Returns the place of a tag: the same fraction of the table as the tag is of all tags.
fn first_slot(tag: u32, slots: usize) -> usize {
    ((u64::from(tag) * slots as u64) >> 32) as usize
}

/// Compares two short scalars by value.
fn is_equal_scalar(tape: &Tape, first: Node, second: Node) -> bool {
    let (kind, other) = (tape.kind(first), tape.kind(second));
    match (kind, other) {
        (NodeKind::String, NodeKind::String) => tape.raw_bytes(first) == tape.raw_bytes(second),
        _ if kind.is_string() && other.is_string() => hash_scalar(tape, first) == hash_scalar(tape, second),
        _ if kind.is_number() && other.is_number() => number::compare(tape.raw(first), tape.raw(second)).is_eq(),
        _ => kind == other,
    }
}
