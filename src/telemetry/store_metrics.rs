//! Metrics of the stores of documents and tasks, and of the shared state. A store that the configuration does not have has no series.

use super::{
    metric_labels::{StoreConnectionState, StoreKind},
    metric_registration::MetricBuilder,
    metric_table::{STATE_GATEWAYS, STORE_CONNECTIONS, STORE_DURATION, STORE_FAILURES, STORE_UP},
    outage::{Outage, OutageTimes},
};
use prometheus::{Error, HistogramVec, IntCounterVec, IntGauge, IntGaugeVec, Registry};
use std::time::Duration;

/// The metrics of the stores.
#[derive(Debug)]
pub struct StoreMetrics {
    durations: HistogramVec,
    failures: IntCounterVec,
    up: IntGaugeVec,
    connections: IntGaugeVec,
    gateways: IntGauge,
    outages: OutageTimes,
}

impl StoreMetrics {
    pub(super) fn register(registry: &Registry) -> Result<Self, Error> {
        let builder = MetricBuilder(registry);
        Ok(Self {
            durations: builder.histogram_vec(STORE_DURATION)?,
            failures: builder.int_counter_vec(STORE_FAILURES)?,
            up: builder.int_gauge_vec(STORE_UP)?,
            connections: builder.int_gauge_vec(STORE_CONNECTIONS)?,
            gateways: builder.int_gauge(STATE_GATEWAYS)?,
            outages: OutageTimes::default(),
        })
    }

    /// Records an operation of a store that ended after `duration`.
    pub fn record_operation(&self, store: StoreKind, duration: Duration, succeeded: bool) {
        self.durations.with_label_values(&[store.name()]).observe(duration.as_secs_f64());
        let failures = self.failures.with_label_values(&[store.name()]);
        if !succeeded {
            failures.inc();
        }
        self.set_up(store, succeeded);
    }

    /// Sets whether a store can be used, where that becomes known without an operation.
    pub fn set_up(&self, store: StoreKind, is_up: bool) {
        self.up.with_label_values(&[store.name()]).set(is_up.into());
        self.outages.record_store(store, is_up);
    }

    /// Returns the stores that cannot be used now.
    pub fn outages(&self) -> Vec<Outage> {
        self.outages.stores()
    }

    /// Sets the number of gateways that share the state.
    pub fn set_gateways(&self, count: u32) {
        self.gateways.set(count.into());
    }

    /// Sets the number of connections to the database of a store.
    pub fn set_connections(&self, store: StoreKind, state: StoreConnectionState, count: usize) {
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        self.connections.with_label_values(&[store.name(), state.name()]).set(count);
    }
}
