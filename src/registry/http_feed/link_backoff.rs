//! When a link that failed is fetched again.

use std::time::{Duration, Instant};

/// Maximum number of polls in which a link that failed is not fetched.
const MAX_SKIPPED_POLLS: u32 = 15;

/// When a link that failed is fetched again: in the next poll after one failure, after a number of polls that doubles with
/// each further failure, and not before the time that its server asks for.
#[derive(Debug, Default)]
pub(super) struct LinkBackoff {
    failures: u32,
    polls_to_skip: u32,
    not_before: Option<Instant>,
}

impl LinkBackoff {
    /// Records a failure, and how long the server asks clients to wait.
    pub(super) fn record_failure(&mut self, retry_after: Option<Duration>) {
        self.polls_to_skip = ((1 << self.failures.min(16)) - 1).min(MAX_SKIPPED_POLLS);
        self.failures = self.failures.saturating_add(1);
        self.not_before = retry_after.map(|delay| Instant::now() + delay);
    }

    /// Counts a poll; returns whether the link is fetched in it.
    pub(super) fn count_poll(&mut self) -> bool {
        if self.polls_to_skip > 0 {
            self.polls_to_skip -= 1;
            return false;
        }
        self.not_before.is_none_or(|time| time <= Instant::now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_that_fails_again_and_again_is_fetched_in_fewer_polls() {
        let mut backoff = LinkBackoff::default();
        let mut fetched = Vec::new();
        for poll in 0..64 {
            if backoff.count_poll() {
                fetched.push(poll);
                backoff.record_failure(None);
            }
        }
        assert_eq!(fetched, [0, 1, 3, 7, 15, 31, 47, 63]);
        backoff = LinkBackoff::default();
        backoff.record_failure(Some(Duration::from_secs(60)));
        assert!((0..100).all(|_| !backoff.count_poll()));
    }
}
