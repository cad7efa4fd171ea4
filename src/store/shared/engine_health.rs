//! Whether the server of the shared state answers: a circuit breaker, so that calls do not wait for a server that is down.

use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use tokio::sync::Notify;

/// Failures in a row after which the breaker opens.
const MAX_FAILURES: u32 = 3;

/// The circuit breaker of the server. The heartbeat is the probe that closes it.
#[derive(Debug, Default)]
pub(super) struct EngineHealth {
    failures: AtomicU32,
    is_open: AtomicBool,
    /// How often the breaker has opened.
    openings: AtomicU32,
    last_error: Mutex<String>,
    changed: Notify,
}

impl EngineHealth {
    /// Returns whether the breaker is open: nothing but the heartbeat is sent.
    pub(super) fn is_open(&self) -> bool {
        self.is_open.load(Relaxed)
    }

    /// Records that the server answered.
    pub(super) fn record_success(&self) {
        // Read first, because every trip comes here.
        if self.failures.load(Relaxed) > 0 {
            self.failures.store(0, Relaxed);
        }
    }

    /// Records a failure. `is_certain` opens the breaker at once: there is no connection.
    pub(super) fn record_failure(&self, why: &str, is_certain: bool) {
        let failures = self.failures.fetch_add(1, Relaxed) + 1;
        if (is_certain || failures >= MAX_FAILURES) && !self.is_open.swap(true, Relaxed) {
            self.openings.fetch_add(1, Relaxed);
            why.clone_into(&mut self.last_error.lock());
            tracing::warn!(
                error = why,
                "the shared state is unavailable: limits are decided by limits.on_error, and calls with an \
                 Idempotency-Key are refused"
            );
            self.changed.notify_one();
        }
    }

    /// Returns how often the breaker has opened.
    pub(super) fn openings(&self) -> u32 {
        self.openings.load(Relaxed)
    }

    /// Closes the breaker after a successful heartbeat, unless it has opened since the heartbeat began: the answer is older
    /// than the failure then.
    pub(super) fn close(&self, openings_at_start: u32) {
        if self.openings() != openings_at_start {
            return;
        }
        self.failures.store(0, Relaxed);
        if self.is_open.swap(false, Relaxed) {
            tracing::info!("the shared state is available again");
        }
    }

    /// Returns why the breaker is open.
    pub(super) fn last_error(&self) -> Option<String> {
        self.is_open().then(|| self.last_error.lock().clone())
    }

    /// Resolves when the breaker has opened.
    pub(super) async fn wait_until_opened(&self) {
        self.changed.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_failures_in_a_row_open_the_breaker_and_a_heartbeat_closes_it() {
        let health = EngineHealth::default();
        for _ in 0..5 {
            health.record_failure("timed out", false);
            health.record_failure("timed out", false);
            health.record_success();
        }
        assert!(!health.is_open(), "a success between failures starts the count again");
        (0..MAX_FAILURES).for_each(|_| health.record_failure("timed out", false));
        assert!(health.is_open());
        assert_eq!(health.last_error().as_deref(), Some("timed out"));
        health.record_success();
        assert!(health.is_open(), "a late answer closes nothing");
        health.close(health.openings());
        assert!(!health.is_open() && health.last_error().is_none());
        let before = health.openings();
        health.record_failure("refused", true);
        health.close(before);
        assert!(health.is_open(), "the heartbeat began before the failure");
    }
}
