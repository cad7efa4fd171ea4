//! Metrics of tasks and their callbacks.

use super::{
    metric_labels::{CallbackResult, StoredTaskState, TaskEnd},
    metric_registration::{GaugeGuard, MetricBuilder, increment},
    metric_table::{CALLBACK_DURATION, CALLBACKS, CALLBACKS_PENDING, TASK_DURATION, TASKS, TASKS_ENDED, TASKS_STORED},
};
use prometheus::{Error, Histogram, IntCounter, IntGauge, Registry};
use std::time::Duration;

/// The metrics of tasks and callbacks.
#[derive(Debug)]
pub struct TaskMetrics {
    running: IntGauge,
    stored: Box<[IntGauge]>,
    ended: Box<[IntCounter]>,
    durations: Box<[Histogram]>,
    callbacks: Box<[IntCounter]>,
    pending_callbacks: IntGauge,
    callback_duration: Histogram,
}

impl TaskMetrics {
    pub(super) fn register(registry: &Registry) -> Result<Self, Error> {
        let builder = MetricBuilder(registry);
        Ok(Self {
            running: builder.int_gauge(TASKS)?,
            stored: builder.int_gauges(TASKS_STORED, StoredTaskState::NAMES)?,
            ended: builder.int_counters(TASKS_ENDED, TaskEnd::NAMES)?,
            durations: builder.histograms(TASK_DURATION, TaskEnd::NAMES)?,
            callbacks: builder.int_counters(CALLBACKS, CallbackResult::NAMES)?,
            pending_callbacks: builder.int_gauge(CALLBACKS_PENDING)?,
            callback_duration: builder.histogram(CALLBACK_DURATION)?,
        })
    }

    /// Counts a task as running until the returned guard is dropped.
    pub fn track_running(&self) -> GaugeGuard {
        GaugeGuard::new(&self.running)
    }

    /// Counts a task that ended after `duration`.
    pub fn record_end(&self, end: TaskEnd, duration: Duration) {
        increment(&self.ended, end as usize);
        if let Some(durations) = self.durations.get(end as usize) {
            durations.observe(duration.as_secs_f64());
        }
    }

    /// Sets the number of stored tasks in a state.
    pub fn set_stored(&self, state: StoredTaskState, count: u64) {
        if let Some(gauge) = self.stored.get(state as usize) {
            gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
        }
    }

    /// Counts an attempt to deliver a callback, which took `duration`.
    pub fn record_callback(&self, result: CallbackResult, duration: Duration) {
        increment(&self.callbacks, result as usize);
        self.callback_duration.observe(duration.as_secs_f64());
    }

    /// Sets the number of callbacks that are not delivered yet.
    pub fn set_pending_callbacks(&self, count: u64) {
        self.pending_callbacks.set(i64::try_from(count).unwrap_or(i64::MAX));
    }
}
