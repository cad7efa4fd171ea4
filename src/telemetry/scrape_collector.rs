//! Prometheus collector of the per-agent metrics. Exposes only series that have been counted.

use super::call_metrics::{AgentSeries, CallSeries, lock};
use crate::fault::FaultCode;
use prometheus::{
    core::{Collector, Desc},
    proto,
};
use std::{
    collections::HashMap,
    sync::{Arc, atomic::Ordering::Relaxed},
};

/// Exposes the per-agent metrics to the Prometheus registry.
pub(super) struct AgentMetricsCollector {
    pub(super) calls: Arc<CallSeries>,
    descriptions: [Desc; METRIC_COUNT],
}

/// The number of per-agent metrics.
const METRIC_COUNT: usize = 6;

const METRIC_DESCRIPTIONS: [(&str, &str, &[&str]); METRIC_COUNT] = [
    ("gatepost_calls_total", "Total number of calls, by outcome.", &["agent", "code", "caller_class", "operation"]),
    ("gatepost_call_duration_seconds", "Time from the first byte received to the last byte sent.", &["agent"]),
    ("gatepost_upstream_duration_seconds", "Time that the upstream took for a call.", &["agent"]),
    ("gatepost_circuit_breakers_open", "Endpoints of an agent whose circuit breaker is open.", &["agent"]),
    ("gatepost_circuit_breaker_opens_total", "Total number of times a circuit breaker of an agent opened.", &["agent"]),
    ("gatepost_adaptive_concurrency_limit", "Current adaptive concurrency limit of an agent.", &["agent"]),
];

impl AgentMetricsCollector {
    pub(super) fn new(calls: Arc<CallSeries>) -> Result<Self, prometheus::Error> {
        let describe = |(name, help, labels): (&str, &str, &[&str])| {
            let labels = labels.iter().map(|label| (*label).to_owned()).collect();
            Desc::new(name.to_owned(), help.to_owned(), labels, HashMap::new())
        };
        let [total, call_duration, upstream_duration, open_breakers, breaker_opens, adaptive_limit] =
            METRIC_DESCRIPTIONS.map(describe);
        Ok(Self {
            calls,
            descriptions: [total?, call_duration?, upstream_duration?, open_breakers?, breaker_opens?, adaptive_limit?],
        })
    }
}

impl Collector for AgentMetricsCollector {
    fn desc(&self) -> Vec<&Desc> {
        self.descriptions.iter().collect()
    }

    fn collect(&self) -> Vec<proto::MetricFamily> {
        let mut all_series: Vec<Arc<AgentSeries>> = lock(&self.calls.agents).values().cloned().collect();
        all_series.extend([Arc::clone(&self.calls.unknown), Arc::clone(&self.calls.other)]);
        let mut collected: [Vec<proto::Metric>; METRIC_COUNT] = Default::default();
        let [total, call_duration, upstream_duration, open_breakers, breaker_opens, adaptive_limit] = &mut collected;
        for series in &all_series {
            collect_calls(&self.calls, series, total);
            call_duration.extend(series.call_duration.collect().map(|histogram| histogram_metric(series, histogram)));
            upstream_duration
                .extend(series.upstream_duration.collect().map(|histogram| histogram_metric(series, histogram)));
            // Agents whose circuit breakers never opened have no such series.
            let opens = series.circuit_breaker_opens.load(Relaxed);
            if opens > 0 {
                open_breakers.push(gauge_metric(series, series.open_circuit_breakers.load(Relaxed)));
                breaker_opens.push(counter_metric(series, opens));
            }
            let limit = series.adaptive_limit.load(Relaxed);
            if limit > 0 {
                adaptive_limit.push(gauge_metric(series, limit));
            }
        }
        let types = [
            proto::MetricType::COUNTER,
            proto::MetricType::HISTOGRAM,
            proto::MetricType::HISTOGRAM,
            proto::MetricType::GAUGE,
            proto::MetricType::COUNTER,
            proto::MetricType::GAUGE,
        ];
        let families = METRIC_DESCRIPTIONS.iter().zip(types).zip(collected).filter(|(_, metrics)| !metrics.is_empty());
        families
            .map(|(((name, help, _), metric_type), metrics)| {
                let mut family = proto::MetricFamily::default();
                family.set_name((*name).to_owned());
                family.set_help((*help).to_owned());
                family.set_field_type(metric_type);
                family.set_metric(metrics);
                family
            })
            .collect()
    }
}

fn histogram_metric(series: &AgentSeries, histogram: proto::Histogram) -> proto::Metric {
    let mut metric = proto::Metric::from_label(label_pairs(&[("agent", &series.label)]));
    metric.set_histogram(histogram);
    metric
}

fn gauge_metric(series: &AgentSeries, value: u64) -> proto::Metric {
    let mut gauge = proto::Gauge::default();
    gauge.set_value(value as f64);
    let mut metric = proto::Metric::from_label(label_pairs(&[("agent", &series.label)]));
    metric.set_gauge(gauge);
    metric
}

fn counter_metric(series: &AgentSeries, value: u64) -> proto::Metric {
    let mut counter = proto::Counter::default();
    counter.set_value(value as f64);
    let mut metric = proto::Metric::from_label(label_pairs(&[("agent", &series.label)]));
    metric.set_counter(counter);
    metric
}

fn label_pairs(labels: &[(&str, &str)]) -> Vec<proto::LabelPair> {
    let pair = |(name, value): &(&str, &str)| {
        let mut pair = proto::LabelPair::default();
        pair.set_name((*name).to_owned());
        pair.set_value((*value).to_owned());
        pair
    };
    labels.iter().map(pair).collect()
}

/// Adds the counters of an agent's calls to `metrics`.
fn collect_calls(calls: &CallSeries, series: &AgentSeries, metrics: &mut Vec<proto::Metric>) {
    for (name, operation) in &*lock(&series.operations) {
        for (class, row) in operation.0.iter().enumerate() {
            for (code, count) in row.get().into_iter().flat_map(|row| row.iter().enumerate()) {
                let count = count.load(Relaxed);
                if count == 0 {
                    continue;
                }
                let code = match code.checked_sub(1) {
                    None => "ok",
                    Some(at) => FaultCode::ALL.get(at).map_or("aborted", |code| code.row().name),
                };
                let labels = [
                    ("agent", &*series.label),
                    ("code", code),
                    ("caller_class", calls.caller_class_label(class)),
                    ("operation", name),
                ];
                let mut counter = proto::Counter::default();
                counter.set_value(count as f64);
                let mut metric = proto::Metric::from_label(label_pairs(&labels));
                metric.set_counter(counter);
                metrics.push(metric);
            }
        }
    }
}
