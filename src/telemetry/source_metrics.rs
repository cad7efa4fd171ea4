//! Metrics of the sources of agents. The label is the configured name of a source, so that the configuration bounds the
//! number of series.

use super::{
    metric_labels::PollOutcome,
    metric_registration::MetricBuilder,
    metric_table::{SOURCE_AGE, SOURCE_AGENTS, SOURCE_PENDING, SOURCE_POLLS, SOURCE_READ},
};
use parking_lot::Mutex;
use prometheus::{Error, GaugeVec, IntCounterVec, IntGaugeVec, Registry};
use std::collections::BTreeSet;

/// The metrics of all sources.
#[derive(Debug)]
pub struct SourceMetrics {
    age: GaugeVec,
    agents: IntGaugeVec,
    read: IntGaugeVec,
    pending_removals: IntGaugeVec,
    polls: IntCounterVec,
    names: Mutex<BTreeSet<Box<str>>>,
}

impl SourceMetrics {
    pub(super) fn register(registry: &Registry) -> Result<Self, Error> {
        let builder = MetricBuilder(registry);
        Ok(Self {
            age: builder.float_gauge_vec(SOURCE_AGE)?,
            agents: builder.int_gauge_vec(SOURCE_AGENTS)?,
            read: builder.int_gauge_vec(SOURCE_READ)?,
            pending_removals: builder.int_gauge_vec(SOURCE_PENDING)?,
            polls: builder.int_counter_vec(SOURCE_POLLS)?,
            names: Mutex::default(),
        })
    }

    /// Sets the names of the configured sources and removes the series of all others.
    pub fn set_sources(&self, names: impl Iterator<Item = Box<str>>) {
        let mut current = self.names.lock();
        let configured: BTreeSet<Box<str>> = names.collect();
        for removed in current.difference(&configured) {
            // An error means that there is no such series.
            drop(self.age.remove_label_values(&[removed]));
            drop(self.agents.remove_label_values(&[removed]));
            drop(self.read.remove_label_values(&[removed]));
            drop(self.pending_removals.remove_label_values(&[removed]));
            for outcome in PollOutcome::NAMES {
                drop(self.polls.remove_label_values(&[&**removed, *outcome]));
            }
        }
        for name in &configured {
            for outcome in PollOutcome::NAMES {
                self.polls.with_label_values(&[&**name, *outcome]);
            }
        }
        *current = configured;
    }

    /// Sets the gauges of a source; a source that was never polled successfully has no age.
    pub fn record_state(&self, name: &str, age: Option<f64>, agents: usize, pending_removals: usize) {
        if !self.is_configured(name) {
            return;
        }
        if let Some(age) = age {
            self.age.with_label_values(&[name]).set(age);
        }
        let to_i64 = |count| i64::try_from(count).unwrap_or(i64::MAX);
        self.agents.with_label_values(&[name]).set(to_i64(agents));
        self.pending_removals.with_label_values(&[name]).set(to_i64(pending_removals));
    }

    /// Sets whether a source was read once.
    pub fn record_read(&self, name: &str, is_read: bool) {
        if self.is_configured(name) {
            self.read.with_label_values(&[name]).set(is_read.into());
        }
    }

    /// Counts a poll.
    pub fn record_poll(&self, name: &str, outcome: PollOutcome) {
        if self.is_configured(name) {
            self.polls.with_label_values(&[name, outcome.name()]).inc();
        }
    }

    fn is_configured(&self, name: &str) -> bool {
        self.names.lock().contains(name)
    }
}
