//! How many tries a call takes.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// The number of tries to reach an endpoint of the agent in one call.
#[derive(Debug, Default)]
pub struct AttemptCount(AtomicU32);

impl AttemptCount {
    /// Counts a try that begins.
    pub fn increment(&self) {
        self.0.fetch_add(1, Relaxed);
    }

    /// Returns the number of tries that have begun.
    pub fn get(&self) -> u32 {
        self.0.load(Relaxed)
    }
}
