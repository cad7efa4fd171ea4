//! The formats in which the metrics are written: the text format of Prometheus (version 0.0.4) and OpenMetrics 1.0.0,
//! which has units and exemplars. Every metric of the table has its type and meaning on the page, also
//! before it has a series.

use super::{
    exemplars::{BucketExemplars, Exemplar, ExemplarTable},
    metric_table::{CALL_DURATION, MetricKind, MetricRow, SECTIONS},
};
use crate::values::AcceptHeader;
use http::HeaderMap;
use prometheus::proto;
use std::{collections::BTreeMap, fmt::Write as _};

/// A format of the metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ExpositionFormat {
    /// The text format of Prometheus.
    #[default]
    Text,
    /// OpenMetrics.
    OpenMetrics,
}

impl ExpositionFormat {
    /// Returns the format for a client with these headers: OpenMetrics if the client names it and prefers nothing to it.
    pub fn negotiate(headers: &HeaderMap) -> Self {
        let accept = AcceptHeader::from_headers(headers);
        let open_metrics = accept.exact_quality_of("application/openmetrics-text;version=1.0.0").unwrap_or(0);
        let text = accept.quality_of("text/plain;version=0.0.4").unwrap_or(0);
        if open_metrics > 0 && open_metrics >= text { Self::OpenMetrics } else { Self::Text }
    }

    /// Returns the media type of the page.
    pub const fn media_type(self) -> &'static str {
        match self {
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// Units of OpenMetrics that names of metrics end with.
const UNITS: [&str; 2] = ["seconds", "bytes"];

/// Writes the families of the registry. Exemplars, which are those of the durations of calls, have a place in OpenMetrics
/// only.
pub(super) fn write_page(
    gathered: &[proto::MetricFamily],
    exemplars: &ExemplarTable,
    format: ExpositionFormat,
) -> String {
    let series: BTreeMap<&str, &[proto::Metric]> =
        gathered.iter().map(|family| (family.name(), family.get_metric())).collect();
    let mut rows: Vec<&MetricRow> = SECTIONS.iter().flat_map(|(_, rows)| *rows).collect();
    rows.sort_unstable_by_key(|row| row.name);
    let mut writer = PageWriter { page: String::with_capacity(64 << 10), exemplars, format };
    for row in rows {
        writer.write_family(row, series.get(row.name).copied().unwrap_or_default());
    }
    if format == ExpositionFormat::OpenMetrics {
        writer.page.push_str("# EOF\n");
    }
    writer.page
}

struct PageWriter<'a> {
    page: String,
    exemplars: &'a ExemplarTable,
    format: ExpositionFormat,
}

impl<'a> PageWriter<'a> {
    fn write_family(&mut self, row: &MetricRow, series: &[proto::Metric]) {
        let is_open_metrics = self.format == ExpositionFormat::OpenMetrics;
        let (mut family, mut kind) = (row.name, row.kind.name());
        if is_open_metrics {
            // The names of families have no suffix of the type.
            if row.kind == MetricKind::Counter {
                family = row.name.strip_suffix("_total").unwrap_or(row.name);
            } else if let Some(name) = row.name.strip_suffix("_info") {
                (family, kind) = (name, "info");
            }
        }
        // A write to a string does not fail.
        let _ = writeln!(self.page, "# HELP {family} {}", escape(row.help, is_open_metrics));
        let _ = writeln!(self.page, "# TYPE {family} {kind}");
        let unit = UNITS.iter().find(|unit| family.strip_suffix(*unit).is_some_and(|name| name.ends_with('_')));
        if let (Some(unit), true) = (unit, is_open_metrics) {
            let _ = writeln!(self.page, "# UNIT {family} {unit}");
        }
        for metric in series {
            match row.kind {
                MetricKind::Counter => self.write_sample(row.name, metric, metric.get_counter().get_value()),
                MetricKind::Gauge => self.write_sample(row.name, metric, metric.get_gauge().get_value()),
                MetricKind::Histogram => self.write_histogram(row, metric),
            }
        }
    }

    /// Writes a histogram.
    fn write_histogram(&mut self, row: &MetricRow, metric: &proto::Metric) {
        let (histogram, name) = (metric.get_histogram(), row.name);
        let exemplars = self.exemplars_of(row, metric);
        let count = histogram.get_sample_count() as f64;
        let bounds = histogram.get_bucket().iter().map(|bucket| (self.number(bucket.upper_bound()), bucket));
        let mut buckets: Vec<(String, f64)> =
            bounds.map(|(bound, bucket)| (bound, bucket.cumulative_count() as f64)).collect();
        buckets.push(("+Inf".into(), count));
        for (at, (bound, count)) in buckets.into_iter().enumerate() {
            let _ = write!(self.page, "{name}_bucket");
            self.write_labels(metric, Some(&bound));
            let exemplar = exemplars.and_then(|exemplars| exemplars.get(at)?.map(Exemplar::to_suffix));
            let _ = writeln!(self.page, " {count}{}", exemplar.unwrap_or_default());
        }
        self.write_sample(&format!("{name}_sum"), metric, histogram.get_sample_sum());
        self.write_sample(&format!("{name}_count"), metric, count);
    }

    fn exemplars_of(&self, row: &MetricRow, metric: &proto::Metric) -> Option<&'a BucketExemplars> {
        if self.format != ExpositionFormat::OpenMetrics || row.name != CALL_DURATION.name {
            return None;
        }
        let labels: Vec<String> = metric.get_label().iter().map(|label| label.value().to_owned()).collect();
        self.exemplars.get(&labels)
    }

    fn write_sample(&mut self, name: &str, metric: &proto::Metric, value: f64) {
        self.page.push_str(name);
        self.write_labels(metric, None);
        let _ = writeln!(self.page, " {value}");
    }

    fn write_labels(&mut self, metric: &proto::Metric, bucket_bound: Option<&str>) {
        let labels = metric.get_label().iter().map(|label| (label.name(), label.value()));
        let mut separator = '{';
        for (name, value) in labels.chain(bucket_bound.map(|bound| ("le", bound))) {
            self.page.push(separator);
            separator = ',';
            let _ = write!(self.page, "{name}=\"{}\"", escape(value, true));
        }
        if separator == ',' {
            self.page.push('}');
        }
    }

    /// Returns a bound of a bucket: OpenMetrics wants a decimal point in every one.
    fn number(&self, number: f64) -> String {
        match self.format {
            ExpositionFormat::Text => number.to_string(),
            ExpositionFormat::OpenMetrics => format!("{number:?}"),
        }
    }
}

fn escape(text: &str, with_quotes: bool) -> String {
    let mut escaped = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '\\' => escaped.push_str("\\\\"),
            '\n' => escaped.push_str("\\n"),
            '"' if with_quotes => escaped.push_str("\\\""),
            _ => escaped.push(char),
        }
    }
    escaped
}
