//! What compiling one pattern may cost.

use crate::fuel::Fuel;

use super::PatternError;

/// Units that compiling one pattern may take whatever fuel there is: 40 ms.
pub(super) const MAX_COMPILE_UNITS: u64 = 4_000_000;

/// The fuel and the memory that compiling one pattern may take.
pub(super) struct CompileBudget<'f> {
    fuel: &'f mut Fuel,
    units_left: u64,
    memory_left: usize,
}

impl<'f> CompileBudget<'f> {
    /// Creates the budget of one pattern.
    pub(super) fn new(fuel: &'f mut Fuel, max_memory: usize) -> Self {
        Self { fuel, units_left: MAX_COMPILE_UNITS, memory_left: max_memory }
    }

    /// Charges `units`, and fails when compiling takes too long.
    #[inline]
    pub(super) fn charge(&mut self, units: u64) -> Result<(), PatternError> {
        if self.fuel.is_spent() || self.units_left < units {
            return Err(PatternError::Unsupported("compiling the pattern takes too long".into()));
        }
        self.units_left -= units;
        self.fuel.charge(units);
        Ok(())
    }

    /// Takes `bytes` of the memory, and fails when the pattern is too large.
    pub(super) fn hold(&mut self, bytes: usize) -> Result<(), PatternError> {
        self.memory_left = self.memory_left.checked_sub(bytes).ok_or_else(|| {
            PatternError::Unsupported("the pattern is too large: its repeats and classes need too much memory".into())
        })?;
        Ok(())
    }

    /// Gives back memory that was taken for something that is dropped again.
    pub(super) fn release(&mut self, bytes: usize) {
        self.memory_left = self.memory_left.saturating_add(bytes);
    }

    /// Units that compiling may still take.
    pub(super) fn units_left(&self) -> u64 {
        self.units_left
    }

    /// Bytes that may still be taken.
    pub(super) fn memory_left(&self) -> usize {
        self.memory_left
    }
}
