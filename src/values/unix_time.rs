//! The time since 1970.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Returns the current Unix time; zero if the clock is before 1970.
pub fn unix_time() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}
