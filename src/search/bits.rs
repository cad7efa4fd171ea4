//! A set of slots, one bit each.

/// A set of slots.
#[derive(Clone, Debug, Default)]
pub(super) struct Bits {
    words: Vec<u64>,
}

impl Bits {
    /// A set without members that has room for slots below `size`.
    pub(super) fn empty(size: usize) -> Self {
        Self { words: vec![0; size.div_ceil(64)] }
    }

    /// Takes `slot` in; one beyond the room is left out.
    pub(super) fn insert(&mut self, slot: u32) {
        if let Some(word) = self.words.get_mut(slot as usize / 64) {
            *word |= 1 << (slot % 64);
        }
    }

    /// Keeps what is in `other` too.
    pub(super) fn keep(&mut self, other: &Self) {
        for (word, other) in self.words.iter_mut().zip(&other.words) {
            *word &= other;
        }
    }

    /// Takes in what is in `other`.
    pub(super) fn join(&mut self, other: &Self) {
        for (word, other) in self.words.iter_mut().zip(&other.words) {
            *word |= other;
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.words.iter().all(|word| *word == 0)
    }

    /// The members in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = u32> {
        (0u32..).zip(&self.words).flat_map(|(at, word)| Members(*word).map(move |bit| at * 64 + bit))
    }
}

/// The places of the bits that are set, the lowest first.
struct Members(u64);

impl Iterator for Members {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        let bit = (self.0 != 0).then(|| self.0.trailing_zeros())?;
        self.0 &= self.0 - 1;
        Some(bit)
    }
}
