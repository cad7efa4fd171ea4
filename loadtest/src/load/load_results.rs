//! The results of a load, over either protocol.

use std::time::Duration;

/// The number of calls over one connection, or over one of its streams.
#[derive(Default)]
pub(super) struct CallCounts {
    pub(super) calls: u64,
    pub(super) failed: u64,
}

/// The result of a saturating load.
pub(crate) struct SaturationResult {
    pub(crate) calls: u64,
    pub(crate) failed: u64,
    pub(crate) elapsed: Duration,
    /// CPU time that the measured process used meanwhile, without connecting.
    pub(crate) cpu: Option<Duration>,
}

impl SaturationResult {
    pub(crate) fn per_second(&self) -> f64 {
        self.calls as f64 / self.elapsed.as_secs_f64()
    }

    /// Microseconds of CPU time per call.
    pub(crate) fn cpu_per_call(&self) -> Option<f64> {
        self.cpu.map(|cpu| cpu.as_secs_f64() * 1e6 / self.calls as f64)
    }
}

/// The result of a load at a constant rate: times in nanoseconds, sorted.
#[derive(Default)]
pub(crate) struct PacedResult {
    pub(crate) latencies: Vec<u64>,
    /// How late the load itself began calls although their connection was free: the load's own part of the latencies.
    pub(crate) lateness: Vec<u64>,
    pub(crate) failed: u64,
}
