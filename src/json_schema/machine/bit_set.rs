//! Sets of small numbers.

/// A set of numbers, one bit for each.
#[derive(Clone, Debug, Default)]
pub(super) struct BitSet(Vec<u64>);

impl BitSet {
    /// Creates an empty set of numbers below `length`.
    pub(super) fn with_length(length: usize) -> Self {
        Self(vec![0; length.div_ceil(64)])
    }

    /// Adds a number, and returns whether it is new.
    pub(super) fn insert(&mut self, number: usize) -> bool {
        let bit = 1 << (number % 64);
        match self.0.get_mut(number / 64) {
            Some(word) => {
                let is_new = *word & bit == 0;
                *word |= bit;
                is_new
            }
            None => false,
        }
    }

    /// Returns whether a number is in the set.
    pub(super) fn contains(&self, number: usize) -> bool {
        self.0.get(number / 64).is_some_and(|word| word & 1 << (number % 64) != 0)
    }

    /// Returns the memory in bytes.
    pub(super) fn memory(&self) -> usize {
        self.0.capacity() * size_of::<u64>()
    }
}
