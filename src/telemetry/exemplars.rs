//! Exemplars of OpenMetrics: for each bucket of the durations of calls the last call whose trace is recorded, so that a
//! slow bucket leads to a trace.

use parking_lot::Mutex;
use std::{
    array,
    collections::BTreeMap,
    sync::OnceLock,
    time::{Duration, SystemTime},
};

use super::latency_histogram::{BUCKET_COUNT, LazyHistogram};

/// The id of a recorded trace, as hexadecimal digits.
pub type TraceIdHex = [u8; 32];

/// A call in a bucket.
#[derive(Clone, Copy, Debug)]
pub(super) struct Exemplar {
    trace_id: TraceIdHex,
    seconds: f64,
    unix_seconds: f64,
}

impl Exemplar {
    /// Returns the exemplar as it ends the line of its bucket.
    pub(super) fn to_suffix(self) -> String {
        let Self { trace_id, seconds, unix_seconds } = self;
        let trace_id = String::from_utf8_lossy(&trace_id);
        format!(" # {{trace_id=\"{trace_id}\"}} {seconds} {unix_seconds:.3}")
    }
}

/// The exemplars of a histogram, one for each bucket; the last bucket has no upper bound.
pub(super) type BucketExemplars = [Option<Exemplar>; BUCKET_COUNT];

/// The exemplars of the series of one metric, by the values of their labels.
pub(super) type ExemplarTable = BTreeMap<Vec<String>, BucketExemplars>;

/// A histogram with exemplars. Calls whose traces are not recorded need no more than a histogram does.
#[derive(Debug, Default)]
pub(super) struct TracedHistogram {
    pub(super) durations: LazyHistogram,
    exemplars: OnceLock<Box<[Mutex<Option<Exemplar>>; BUCKET_COUNT]>>,
}

impl TracedHistogram {
    /// Adds the duration of a call, with its trace if that is recorded.
    pub(super) fn observe(&self, duration: Duration, trace_id: Option<&TraceIdHex>) {
        let bucket = self.durations.observe(duration);
        if let Some(trace_id) = trace_id {
            self.set_exemplar(bucket, duration, *trace_id);
        }
    }

    #[cold]
    fn set_exemplar(&self, bucket: usize, duration: Duration, trace_id: TraceIdHex) {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let exemplar = Exemplar { trace_id, seconds: duration.as_secs_f64(), unix_seconds: now.as_secs_f64() };
        let exemplars = self.exemplars.get_or_init(|| Box::new(array::from_fn(|_| Mutex::default())));
        if let Some(slot) = exemplars.get(bucket) {
            *slot.lock() = Some(exemplar);
        }
    }

    /// Returns the exemplars; `None` if no recorded trace was observed.
    pub(super) fn exemplars(&self) -> Option<BucketExemplars> {
        self.exemplars.get().map(|slots| array::from_fn(|at| slots.get(at).and_then(|slot| *slot.lock())))
    }
}
