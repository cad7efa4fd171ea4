//! Delays between attempts: exponential backoff and jitter, so that gateways that lost the same server at the same time
//! do not all return to it at the same time.

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use std::time::Duration;

/// Delays that double from a minimum to a maximum, without jitter.
#[derive(Debug)]
pub struct Backoff {
    builder: ExponentialBuilder,
    delays: ExponentialBackoff,
    failures: u32,
}

impl Backoff {
    /// Starts with `min`. If `min` is longer than `max`, every delay is `max`.
    pub fn new(min: Duration, max: Duration) -> Self {
        let builder = ExponentialBuilder::new().with_min_delay(min.min(max)).with_max_delay(max).without_max_times();
        Self { builder, delays: builder.build(), failures: 0 }
    }

    /// Counts a failure, and returns the delay before the next attempt.
    pub fn next_delay(&mut self) -> Duration {
        self.failures = self.failures.saturating_add(1);
        self.delays.next().unwrap_or_default()
    }

    /// Starts again with the minimum, after a success.
    pub fn reset(&mut self) {
        self.delays = self.builder.build();
        self.failures = 0;
    }

    /// Returns whether there was no failure since the start or the last reset.
    pub fn is_reset(&self) -> bool {
        self.failures == 0
    }
}

/// Varies `delay` randomly by up to `share` of it in either direction; `share` is from 0 to 1.
pub fn jittered(delay: Duration, share: f64) -> Duration {
    delay.mul_f64(1.0 - share) + random_duration(delay.mul_f64(2.0 * share))
}

/// Returns a random duration below `max`.
pub fn random_duration(max: Duration) -> Duration {
    max.mul_f64(fastrand::f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn delays_double_up_to_the_maximum_and_start_again_after_a_reset() {
        let mut backoff = Backoff::new(SECOND, 5 * SECOND);
        for _ in 0..2 {
            assert!(backoff.is_reset());
            let delays: Vec<u64> = (0..5).map(|_| backoff.next_delay().as_secs()).collect();
            assert_eq!(delays, [1, 2, 4, 5, 5]);
            assert!(!backoff.is_reset());
            backoff.reset();
        }
    }

    #[test]
    fn a_backoff_has_no_end() {
        let mut backoff = Backoff::new(SECOND, 2 * SECOND);
        assert_eq!((0..10_000).map(|_| backoff.next_delay()).last(), Some(2 * SECOND));
    }

    #[test]
    fn a_minimum_above_the_maximum_is_the_maximum() {
        let mut backoff = Backoff::new(9 * SECOND, SECOND);
        assert_eq!([backoff.next_delay(), backoff.next_delay()], [SECOND; 2]);
    }

    #[test]
    fn jittered_delays_differ_and_stay_within_their_share() {
        let delays: Vec<Duration> = (0..200).map(|_| jittered(SECOND, 0.5)).collect();
        assert!(delays.iter().all(|delay| (SECOND / 2..=SECOND * 3 / 2).contains(delay)), "{delays:?}");
        assert!(delays.iter().any(|delay| *delay < SECOND) && delays.iter().any(|delay| *delay > SECOND));
        assert!((0..200).all(|_| (SECOND.mul_f64(0.9)..=SECOND.mul_f64(1.1)).contains(&jittered(SECOND, 0.1))));
        assert_eq!(jittered(SECOND, 0.0), SECOND);
    }

    #[test]
    fn random_durations_differ_and_stay_below_their_bound() {
        let durations: Vec<Duration> = (0..200).map(|_| random_duration(SECOND)).collect();
        assert!(durations.iter().all(|duration| *duration <= SECOND), "{durations:?}");
        assert!(durations.iter().any(|duration| *duration != durations[0]));
        assert_eq!(random_duration(Duration::ZERO), Duration::ZERO);
    }
}
