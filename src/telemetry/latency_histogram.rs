//! The histogram of durations. It consists of atomics: an observation is two relaxed additions and takes no lock.

use prometheus::proto;
use std::{
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

/// Upper bounds of the buckets in microseconds: from the gateway's own time to an hour, the longest deadline.
pub(super) const BUCKET_BOUNDS_MICROS: [u64; 23] = [
    100,
    250,
    500,
    1_000,
    2_500,
    5_000,
    10_000,
    25_000,
    50_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    30_000_000,
    60_000_000,
    120_000_000,
    300_000_000,
    600_000_000,
    1_800_000_000,
    3_600_000_000,
];

/// Returns the upper bounds of the buckets in seconds.
pub(super) fn bucket_bounds() -> Vec<f64> {
    BUCKET_BOUNDS_MICROS.iter().map(|bound| *bound as f64 / 1e6).collect()
}

/// Number of buckets, with the one that has no upper bound.
pub(super) const BUCKET_COUNT: usize = BUCKET_BOUNDS_MICROS.len() + 1;

/// A distribution of durations.
#[derive(Debug, Default)]
pub(super) struct LatencyHistogram {
    bucket_counts: [AtomicU64; BUCKET_BOUNDS_MICROS.len()],
    overflow_count: AtomicU64,
    sum_micros: AtomicU64,
}

impl LatencyHistogram {
    /// Adds one duration, and returns the index of its bucket.
    fn observe(&self, duration: Duration) -> usize {
        let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        let bucket = BUCKET_BOUNDS_MICROS.partition_point(|bound| *bound < micros);
        self.bucket_counts.get(bucket).unwrap_or(&self.overflow_count).fetch_add(1, Relaxed);
        self.sum_micros.fetch_add(micros, Relaxed);
        bucket
    }

    fn bucket_counts(&self) -> impl Iterator<Item = u64> {
        self.bucket_counts.iter().chain([&self.overflow_count]).map(|count| count.load(Relaxed))
    }

    /// Returns the Prometheus histogram; `None` if nothing was observed.
    pub(super) fn collect(&self) -> Option<proto::Histogram> {
        let mut count_so_far = 0;
        let mut buckets = Vec::with_capacity(BUCKET_BOUNDS_MICROS.len());
        for (bound, count) in BUCKET_BOUNDS_MICROS.iter().zip(&self.bucket_counts) {
            count_so_far += count.load(Relaxed);
            let mut bucket = proto::Bucket::default();
            bucket.set_upper_bound(*bound as f64 / 1e6);
            bucket.set_cumulative_count(count_so_far);
            buckets.push(bucket);
        }
        count_so_far += self.overflow_count.load(Relaxed);
        let mut histogram = proto::Histogram::default();
        histogram.set_bucket(buckets);
        histogram.set_sample_count(count_so_far);
        histogram.set_sample_sum(self.sum_micros.load(Relaxed) as f64 / 1e6);
        (count_so_far > 0).then_some(histogram)
    }
}

/// A histogram that is allocated by its first observation.
#[derive(Debug, Default)]
pub(super) struct LazyHistogram(OnceLock<Box<LatencyHistogram>>);

impl LazyHistogram {
    /// Adds one duration, and returns the index of its bucket.
    pub(super) fn observe(&self, duration: Duration) -> usize {
        self.0.get_or_init(Box::default).observe(duration)
    }

    /// Returns the number of durations in each bucket; nothing before the first observation.
    pub(super) fn bucket_counts(&self) -> impl Iterator<Item = u64> {
        self.0.get().into_iter().flat_map(|histogram| histogram.bucket_counts())
    }

    /// Returns the Prometheus histogram; `None` if nothing was observed.
    pub(super) fn collect(&self) -> Option<proto::Histogram> {
        self.0.get()?.collect()
    }
}
