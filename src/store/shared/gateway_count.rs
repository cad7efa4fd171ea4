//! How many gateways share the state, as far as heartbeats tell.

use parking_lot::Mutex;
use std::{
    sync::atomic::{AtomicU32, Ordering::Relaxed},
    time::Duration,
};
use tokio::time::Instant;

/// The number of gateways that were alive last. It divides limits while the server is away.
#[derive(Debug)]
pub(super) struct GatewayCount {
    count: AtomicU32,
    /// Since when every heartbeat of this gateway was answered.
    answered_since: Mutex<Option<Instant>>,
}

impl GatewayCount {
    pub(super) fn new() -> Self {
        Self { count: AtomicU32::new(1), answered_since: Mutex::default() }
    }

    /// Returns the number; at least 1.
    pub(super) fn get(&self) -> u32 {
        self.count.load(Relaxed).max(1)
    }

    /// Records what a heartbeat counted. The number rises at once. It falls only after the server has answered for one
    /// `lifetime` of a heartbeat: after an outage the heartbeats of the other gateways have expired although they are alive.
    pub(super) fn record(&self, counted: u32, lifetime: Duration) {
        let answered_since = *self.answered_since.lock().get_or_insert_with(Instant::now);
        if counted >= self.get() || answered_since.elapsed() >= lifetime {
            self.count.store(counted.max(1), Relaxed);
        }
    }

    /// Records a heartbeat without an answer.
    pub(super) fn record_failure(&self) {
        *self.answered_since.lock() = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIFETIME: Duration = Duration::from_secs(5);

    #[tokio::test(start_paused = true)]
    async fn the_number_rises_at_once_and_falls_after_a_lifetime_of_answers() {
        let count = GatewayCount::new();
        count.record(3, LIFETIME);
        assert_eq!(count.get(), 3);
        tokio::time::advance(LIFETIME).await;
        count.record_failure();
        tokio::time::advance(LIFETIME).await;
        count.record(1, LIFETIME);
        assert_eq!(count.get(), 3, "the others have not reached the server yet");
        tokio::time::advance(LIFETIME / 2).await;
        count.record_failure();
        count.record(1, LIFETIME);
        tokio::time::advance(LIFETIME - Duration::from_millis(1)).await;
        count.record(2, LIFETIME);
        assert_eq!(count.get(), 3, "a short return of the server is too short for the others");
        count.record(4, LIFETIME);
        assert_eq!(count.get(), 4);
        tokio::time::advance(Duration::from_millis(1)).await;
        count.record(2, LIFETIME);
        assert_eq!(count.get(), 2);
    }
}
