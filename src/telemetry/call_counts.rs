//! Counts of calls at one moment, for those who read them again and again: what happened between two readings is their
//! difference.

use super::{
    latency_histogram::{BUCKET_BOUNDS_MICROS, BUCKET_COUNT, LazyHistogram},
    metric_labels::CallBlame,
};
use std::time::Duration;

/// How many durations each bucket of a histogram has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DurationCounts([u64; BUCKET_COUNT]);

impl DurationCounts {
    /// Adds the durations of a histogram, and returns how many they are.
    pub(super) fn add_histogram(&mut self, histogram: &LazyHistogram) -> u64 {
        let mut sum = 0;
        for (total, count) in self.0.iter_mut().zip(histogram.bucket_counts()) {
            *total += count;
            sum += count;
        }
        sum
    }

    /// Adds other durations.
    pub fn add(&mut self, other: &Self) {
        self.0.iter_mut().zip(other.0).for_each(|(total, count)| *total += count);
    }

    /// Returns the durations that were observed since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut difference = *self;
        difference.0.iter_mut().zip(earlier.0).for_each(|(count, before)| *count = count_since(*count, before));
        difference
    }

    /// Returns an estimate of the duration that this share of all durations, such as 0.99, does not exceed: durations
    /// count as spread evenly over their bucket, as `histogram_quantile` of Prometheus assumes. `None` without a
    /// duration.
    pub fn quantile(&self, share: f64) -> Option<Duration> {
        let all: u64 = self.0.iter().sum();
        let rank = all as f64 * share.clamp(0.0, 1.0);
        let (mut below, mut lower) = (0.0, 0.0);
        for (at, count) in self.0.iter().enumerate() {
            let count = *count as f64;
            // Of durations beyond the last bound, only that is known.
            let upper = BUCKET_BOUNDS_MICROS.get(at).map_or(lower, |bound| *bound as f64);
            if count > 0.0 && below + count >= rank {
                let micros = lower + (upper - lower) * ((rank - below) / count);
                return Some(Duration::from_micros(micros as u64));
            }
            (below, lower) = (below + count, upper);
        }
        None
    }
}

/// The calls of one agent, or of all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallCounts {
    /// The calls by blame.
    pub by_blame: [u64; CallBlame::ALL.len()],
    /// How long the calls took that succeeded, or that the agent failed. Quick refusals would hide slow calls.
    pub durations: DurationCounts,
    /// The gateway's own time.
    pub gateway_durations: DurationCounts,
}

impl CallCounts {
    /// Returns the number of calls with this blame.
    pub fn of(&self, blame: CallBlame) -> u64 {
        self.by_blame.get(blame as usize).copied().unwrap_or_default()
    }

    /// Returns the number of all calls.
    pub fn calls(&self) -> u64 {
        self.by_blame.iter().sum()
    }

    /// Adds other calls.
    pub fn add(&mut self, other: &Self) {
        self.by_blame.iter_mut().zip(other.by_blame).for_each(|(total, count)| *total += count);
        self.durations.add(&other.durations);
        self.gateway_durations.add(&other.gateway_durations);
    }

    /// Returns the calls since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut by_blame = self.by_blame;
        by_blame.iter_mut().zip(earlier.by_blame).for_each(|(count, before)| *count = count_since(*count, before));
        Self {
            by_blame,
            durations: self.durations.since(&earlier.durations),
            gateway_durations: self.gateway_durations.since(&earlier.gateway_durations),
        }
    }
}

/// Returns how much a counter grew. One that is lower than before began again at zero.
pub fn count_since(now: u64, before: u64) -> u64 {
    now.checked_sub(before).unwrap_or(now)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(durations: &[u64]) -> DurationCounts {
        let histogram = LazyHistogram::default();
        for micros in durations {
            histogram.observe(Duration::from_micros(*micros));
        }
        let mut counts = DurationCounts::default();
        assert_eq!(counts.add_histogram(&histogram), durations.len() as u64);
        counts
    }

    fn quantile_micros(counts: &DurationCounts, share: f64) -> Option<u128> {
        counts.quantile(share).map(|duration| duration.as_micros())
    }

    #[test]
    fn a_quantile_is_estimated_within_its_bucket() {
        assert_eq!(quantile_micros(&counts(&[]), 0.5), None);
        // All in the bucket from 2.5 to 5 ms.
        let same = counts(&[3_000; 100]);
        assert_eq!(quantile_micros(&same, 0.5), Some(3_750));
        assert_eq!(quantile_micros(&same, 1.0), Some(5_000));
        // 98 in the first bucket, and two from 50 to 100 ms.
        let mixed = counts(&[vec![50; 98], vec![60_000; 2]].concat());
        assert_eq!(quantile_micros(&mixed, 0.5), Some(51));
        assert_eq!(quantile_micros(&mixed, 0.99), Some(75_000));
        assert_eq!(quantile_micros(&mixed, 7.0), Some(100_000), "a share is at most 1");
        let beyond = counts(&[u64::MAX]);
        assert_eq!(quantile_micros(&beyond, 0.5), Some(3_600_000_000), "only the last bound is known");
    }

    #[test]
    fn a_counter_that_began_again_counts_from_zero() {
        assert_eq!([count_since(7, 5), count_since(5, 5), count_since(2, 5)], [2, 0, 2]);
        let (before, now) = (counts(&[50, 50, 700]), counts(&[50, 700, 700]));
        let difference = now.since(&before);
        assert_eq!(difference, counts(&[50, 700]), "the first bucket began again");
    }
}
