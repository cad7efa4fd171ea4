//! How many gateways share the state, as far as heartbeats tell.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// The number of gateways that were alive last. It divides limits while the server is away.
#[derive(Debug)]
pub(super) struct GatewayCount(AtomicU32);

impl GatewayCount {
    pub(super) fn new() -> Self {
        Self(AtomicU32::new(1))
    }

    /// Returns the number; at least 1.
    pub(super) fn get(&self) -> u32 {
        self.0.load(Relaxed).max(1)
    }

    /// Records what a heartbeat counted.
    pub(super) fn record(&self, counted: u32) {
        self.0.store(counted.max(1), Relaxed);
    }
}
