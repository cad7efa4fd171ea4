//! Bounds of the adaptive concurrency limit.

use std::num::NonZeroU32;

/// Bounds of the adaptive limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ConcurrencyRange {
    pub(super) min: u32,
    pub(super) max: u32,
}

impl ConcurrencyRange {
    /// Returns the range, or `None` if its bounds leave nothing to adapt.
    pub(super) fn new(min: u32, max: NonZeroU32) -> Option<Self> {
        (min < max.get()).then(|| Self { min: min.max(1), max: max.get() })
    }

    pub(super) fn clamp(self, limit: u32) -> u32 {
        limit.clamp(self.min, self.max)
    }
}
