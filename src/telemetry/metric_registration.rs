//! Registration of metrics from their rows in the table.

use super::{
    latency_histogram::bucket_bounds,
    metric_table::{self, BUILD_PROFILES, MetricRow},
};
use prometheus::{
    Counter, Error, Gauge, GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge,
    IntGaugeVec, Opts, Registry,
    core::{Collector, Desc},
};
use std::collections::HashMap;

/// Creates and registers metrics.
pub(super) struct MetricBuilder<'a>(pub(super) &'a Registry);

impl MetricBuilder<'_> {
    pub(super) fn register<C: Collector + Clone + 'static>(&self, collector: C) -> Result<C, Error> {
        self.0.register(Box::new(collector.clone()))?;
        Ok(collector)
    }

    pub(super) fn register_build_info(&self) -> Result<(), Error> {
        let profile = BUILD_PROFILES.get(usize::from(!cfg!(debug_assertions))).copied().unwrap_or_default();
        let values = [env!("CARGO_PKG_VERSION"), env!("GATEPOST_RUST_VERSION"), profile];
        self.int_gauge_vec(metric_table::BUILD)?.get_metric_with_label_values(&values)?.set(1);
        Ok(())
    }

    pub(super) fn int_counter(&self, row: MetricRow) -> Result<IntCounter, Error> {
        self.register(IntCounter::new(row.name, row.help)?)
    }

    pub(super) fn float_counter(&self, row: MetricRow) -> Result<Counter, Error> {
        self.register(Counter::new(row.name, row.help)?)
    }

    pub(super) fn float_gauge(&self, row: MetricRow) -> Result<Gauge, Error> {
        self.register(Gauge::new(row.name, row.help)?)
    }

    pub(super) fn int_gauge(&self, row: MetricRow) -> Result<IntGauge, Error> {
        self.register(IntGauge::new(row.name, row.help)?)
    }

    /// Creates one counter for each value of the only label, so that counting is an array index.
    pub(super) fn int_counters(&self, row: MetricRow, values: &[&str]) -> Result<Box<[IntCounter]>, Error> {
        let family = self.int_counter_vec(row)?;
        values.iter().map(|value| family.get_metric_with_label_values(&[value])).collect()
    }

    /// Creates one gauge for each value of the only label.
    pub(super) fn int_gauges(&self, row: MetricRow, values: &[&str]) -> Result<Box<[IntGauge]>, Error> {
        let family = self.int_gauge_vec(row)?;
        values.iter().map(|value| family.get_metric_with_label_values(&[value])).collect()
    }

    /// Creates one histogram of durations for each value of the only label.
    pub(super) fn histograms(&self, row: MetricRow, values: &[&str]) -> Result<Box<[Histogram]>, Error> {
        let family = self.histogram_vec(row)?;
        values.iter().map(|value| family.get_metric_with_label_values(&[value])).collect()
    }

    pub(super) fn histogram_vec(&self, row: MetricRow) -> Result<HistogramVec, Error> {
        self.register(HistogramVec::new(histogram_opts(row), &row.label_names())?)
    }

    pub(super) fn histogram(&self, row: MetricRow) -> Result<Histogram, Error> {
        self.register(Histogram::with_opts(histogram_opts(row))?)
    }

    pub(super) fn int_counter_vec(&self, row: MetricRow) -> Result<IntCounterVec, Error> {
        self.register(IntCounterVec::new(Opts::new(row.name, row.help), &row.label_names())?)
    }

    pub(super) fn int_gauge_vec(&self, row: MetricRow) -> Result<IntGaugeVec, Error> {
        self.register(IntGaugeVec::new(Opts::new(row.name, row.help), &row.label_names())?)
    }

    pub(super) fn float_gauge_vec(&self, row: MetricRow) -> Result<GaugeVec, Error> {
        self.register(GaugeVec::new(Opts::new(row.name, row.help), &row.label_names())?)
    }
}

fn histogram_opts(row: MetricRow) -> HistogramOpts {
    HistogramOpts::new(row.name, row.help).buckets(bucket_bounds())
}

/// Describes a metric whose values a collector of the gateway has.
pub(super) fn describe(row: &MetricRow) -> Result<Desc, Error> {
    let labels = row.label_names().into_iter().map(str::to_owned).collect();
    Desc::new(row.name.to_owned(), row.help.to_owned(), labels, HashMap::new())
}

/// Increments the counter with index `at`.
pub(super) fn increment(counters: &[IntCounter], at: usize) {
    if let Some(counter) = counters.get(at) {
        counter.inc();
    }
}

/// Counts one item in a gauge until it is dropped.
#[derive(Debug)]
pub struct GaugeGuard(IntGauge);

impl GaugeGuard {
    pub(super) fn new(gauge: &IntGauge) -> Self {
        gauge.inc();
        Self(gauge.clone())
    }
}

impl Drop for GaugeGuard {
    fn drop(&mut self) {
        self.0.dec();
    }
}
