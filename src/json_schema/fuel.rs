//! Fuel: what work costs, and how much of it one slice may do.
//!
//! One unit is about ten nanoseconds. Work is charged before it is done, and what a check takes is the same however it
//! is cut into slices.

/// The fuel of one slice. Code that works charges it, and returns [`std::task::Poll::Pending`] with its state kept as
/// soon as [`Fuel::is_spent`] says so.
#[derive(Clone, Copy, Debug)]
pub struct Fuel {
    limit: i64,
    left: i64,
}

impl Fuel {
    /// Creates the fuel of a slice of `units`.
    pub fn new(units: u64) -> Self {
        let limit = i64::try_from(units).unwrap_or(i64::MAX);
        Self { limit, left: limit }
    }

    /// Charges `units` for work that follows.
    #[inline]
    pub fn charge(&mut self, units: u64) {
        self.left = self.left.saturating_sub_unsigned(units);
    }

    /// Charges for reading `bytes` bytes, `per_unit` of them for a unit.
    #[inline]
    pub fn charge_bytes(&mut self, bytes: usize, per_unit: u64) {
        self.charge((bytes as u64).div_ceil(per_unit));
    }

    /// Returns whether the slice must end.
    #[inline]
    pub fn is_spent(&self) -> bool {
        self.left <= 0
    }

    /// Returns the units that were charged so far.
    pub fn used(&self) -> u64 {
        self.limit.abs_diff(self.left)
    }
}
