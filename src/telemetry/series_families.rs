//! Builds the families of metrics whose values the gateway holds itself, for the registry.

use super::metric_table::{MetricKind, MetricLabel, MetricRow};
use prometheus::proto;

/// The series of one metric that were collected.
pub(super) struct SeriesFamily {
    row: MetricRow,
    metrics: Vec<proto::Metric>,
}

impl SeriesFamily {
    pub(super) fn new(row: MetricRow) -> Self {
        Self { row, metrics: Vec::new() }
    }

    /// Adds a series of a counter or a gauge; `labels` are the values of the row's labels.
    pub(super) fn push(&mut self, labels: &[&str], value: f64) {
        let mut metric = self.labeled(labels);
        if self.row.kind == MetricKind::Counter {
            let mut counter = proto::Counter::default();
            counter.set_value(value);
            metric.set_counter(counter);
        } else {
            let mut gauge = proto::Gauge::default();
            gauge.set_value(value);
            metric.set_gauge(gauge);
        }
        self.metrics.push(metric);
    }

    /// Adds a series of a counter or a gauge, unless it is zero.
    pub(super) fn push_nonzero(&mut self, labels: &[&str], value: u64) {
        if value > 0 {
            self.push(labels, value as f64);
        }
    }

    /// Adds a series of a histogram, if anything was observed.
    pub(super) fn push_histogram(&mut self, labels: &[&str], histogram: Option<proto::Histogram>) {
        let Some(histogram) = histogram else { return };
        let mut metric = self.labeled(labels);
        metric.set_histogram(histogram);
        self.metrics.push(metric);
    }

    fn labeled(&self, values: &[&str]) -> proto::Metric {
        let pair = |(label, value): (&MetricLabel, &&str)| {
            let mut pair = proto::LabelPair::default();
            pair.set_name(label.name.to_owned());
            pair.set_value((*value).to_owned());
            pair
        };
        proto::Metric::from_label(self.row.labels.iter().zip(values).map(pair).collect())
    }

    /// Returns the family; `None` without series.
    pub(super) fn into_family(self) -> Option<proto::MetricFamily> {
        let mut family = proto::MetricFamily::default();
        family.set_name(self.row.name.to_owned());
        family.set_help(self.row.help.to_owned());
        family.set_field_type(match self.row.kind {
            MetricKind::Counter => proto::MetricType::COUNTER,
            MetricKind::Gauge => proto::MetricType::GAUGE,
            MetricKind::Histogram => proto::MetricType::HISTOGRAM,
        });
        let has_series = !self.metrics.is_empty();
        family.set_metric(self.metrics);
        has_series.then_some(family)
    }
}
