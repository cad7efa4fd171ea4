//! One bit for each position of a text.

/// A bit for each byte offset of a text, its end included.
#[derive(Debug, Default)]
pub(super) struct PositionBits {
    words: Vec<u64>,
}

impl PositionBits {
    /// Creates the bits of a text of `length` bytes. All are clear.
    pub(super) fn new(length: usize) -> Self {
        Self { words: vec![0; length / 64 + 1] }
    }

    /// Bytes that the bits of a text of `length` bytes take.
    pub(super) fn memory_for(length: usize) -> usize {
        (length / 64 + 1) * 8
    }

    /// Sets the bit of `position`.
    #[inline]
    pub(super) fn set(&mut self, position: usize) {
        if let Some(word) = self.words.get_mut(position / 64) {
            *word |= 1 << (position % 64);
        }
    }

    /// Returns whether the bit of `position` is set.
    #[inline]
    pub(super) fn is_set(&self, position: usize) -> bool {
        self.words.get(position / 64).is_some_and(|word| word >> (position % 64) & 1 == 1)
    }
}
