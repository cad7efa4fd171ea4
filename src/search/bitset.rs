//! Bitset of slots.

/// A set of slots.
#[derive(Clone, Debug, Default)]
pub(super) struct Bitset {
    words: Vec<u64>,
}

impl Bitset {
    /// Creates an empty set with capacity for the slots below `size`.
    pub(super) fn with_capacity(size: usize) -> Self {
        Self { words: vec![0; size.div_ceil(64)] }
    }

    /// Inserts `slot`; a slot beyond the capacity is ignored.
    pub(super) fn insert(&mut self, slot: u32) {
        if let Some(word) = self.words.get_mut(slot as usize / 64) {
            *word |= 1 << (slot % 64);
        }
    }

    /// Returns whether `slot` is a member.
    pub(super) fn contains(&self, slot: u32) -> bool {
        self.words.get(slot as usize / 64).is_some_and(|word| word >> (slot % 64) & 1 == 1)
    }

    /// Intersects this set with `other`.
    pub(super) fn intersect(&mut self, other: &Self) {
        for (word, other) in self.words.iter_mut().zip(&other.words) {
            *word &= other;
        }
    }

    /// Adds the members of `other`.
    pub(super) fn union(&mut self, other: &Self) {
        for (word, other) in self.words.iter_mut().zip(&other.words) {
            *word |= other;
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.words.iter().all(|word| *word == 0)
    }

    /// Iterates over the members in ascending order.
    pub(super) fn iter(&self) -> impl Iterator<Item = u32> {
        (0u32..).zip(&self.words).flat_map(|(at, word)| SetBits(*word).map(move |bit| at * 64 + bit))
    }
}

/// Iterator over the set bits of a word, the lowest first.
struct SetBits(u64);

impl Iterator for SetBits {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        let bit = (self.0 != 0).then(|| self.0.trailing_zeros())?;
        self.0 &= self.0 - 1;
        Some(bit)
    }
}
