//! A circuit breaker, so that calls do not wait for a server that is down or too slow for them.

use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

/// Failures in a row after which the breaker opens.
const MAX_FAILURES: u32 = 3;

/// The circuit breaker of one kind of trips. A probe closes it.
#[derive(Debug, Default)]
pub(super) struct TripBreaker {
    failures: AtomicU32,
    is_open: AtomicBool,
    /// How often the breaker has opened.
    openings: AtomicU32,
    last_error: Mutex<String>,
}

impl TripBreaker {
    /// Returns whether the breaker is open: only probes are sent.
    pub(super) fn is_open(&self) -> bool {
        self.is_open.load(Relaxed)
    }

    /// Records that the server answered in time.
    pub(super) fn record_success(&self) {
        // Read first, because every trip comes here.
        if self.failures.load(Relaxed) > 0 {
            self.failures.store(0, Relaxed);
        }
    }

    /// Records a failure, and returns whether it has opened the breaker.
    pub(super) fn record_failure(&self, why: &str) -> bool {
        self.failures.fetch_add(1, Relaxed) + 1 >= MAX_FAILURES && self.open(why)
    }

    /// Opens the breaker at once, and returns whether it was closed.
    pub(super) fn open(&self, why: &str) -> bool {
        if self.is_open.swap(true, Relaxed) {
            return false;
        }
        self.openings.fetch_add(1, Relaxed);
        why.clone_into(&mut self.last_error.lock());
        true
    }

    /// Returns how often the breaker has opened.
    pub(super) fn openings(&self) -> u32 {
        self.openings.load(Relaxed)
    }

    /// Closes the breaker after a successful probe, unless it has opened since the probe began: the answer is older than the
    /// failure then. Returns whether it was open.
    pub(super) fn close(&self, openings_at_start: u32) -> bool {
        if self.openings() != openings_at_start {
            return false;
        }
        self.failures.store(0, Relaxed);
        self.is_open.swap(false, Relaxed)
    }

    /// Returns why the breaker is open.
    pub(super) fn last_error(&self) -> Option<String> {
        self.is_open().then(|| self.last_error.lock().clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_failures_in_a_row_open_the_breaker_and_a_probe_closes_it() {
        let breaker = TripBreaker::default();
        for _ in 0..5 {
            breaker.record_failure("timed out");
            breaker.record_failure("timed out");
            breaker.record_success();
        }
        assert!(!breaker.is_open(), "a success between failures starts the count again");
        for _ in 0..MAX_FAILURES {
            breaker.record_failure("timed out");
        }
        assert!(breaker.is_open());
        assert_eq!(breaker.last_error().as_deref(), Some("timed out"));
        breaker.record_success();
        assert!(breaker.is_open(), "a late answer closes nothing");
        assert!(breaker.close(breaker.openings()));
        assert!(!breaker.is_open() && breaker.last_error().is_none());
        let before = breaker.openings();
        assert!(breaker.open("refused"));
        assert!(!breaker.close(before), "the probe began before the failure");
        assert!(breaker.is_open());
    }
}
