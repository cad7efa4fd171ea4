//! Prometheus collector of the per-agent metrics. Exposes only series that have been counted.

use super::{
    agent_series::{ABORTED_INDEX, AgentSeries, CallSeries, INACTIVE_INDEX},
    exemplars::ExemplarTable,
    metric_labels::{AttemptResult, CallBlame, LimitKind, ShadowRule, StatusClass, UpstreamConnection},
    metric_registration::describe,
    metric_table::{
        ADAPTIVE_LIMIT, ATTEMPTS, BREAKER_OPENS, CALL_DURATION, CALLS, CONNECT_DURATION, GATEWAY_DURATION, LIMITED,
        MetricRow, OPEN_BREAKERS, QUEUE_WAIT, QUEUED, REQUEST_BYTES, RESPONSE_BYTES, RETRIES, SHADOW,
        UPSTREAM_CONNECTIONS, UPSTREAM_DURATION,
    },
    series_families::SeriesFamily,
};
use crate::fault::FaultCode;
use prometheus::{
    core::{Collector, Desc},
    proto,
};
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

const ROWS: [MetricRow; 17] = [
    CALLS,
    CALL_DURATION,
    UPSTREAM_DURATION,
    GATEWAY_DURATION,
    REQUEST_BYTES,
    RESPONSE_BYTES,
    LIMITED,
    SHADOW,
    QUEUE_WAIT,
    QUEUED,
    OPEN_BREAKERS,
    BREAKER_OPENS,
    ADAPTIVE_LIMIT,
    ATTEMPTS,
    RETRIES,
    UPSTREAM_CONNECTIONS,
    CONNECT_DURATION,
];

/// Exposes the per-agent metrics to the Prometheus registry.
pub(super) struct AgentMetricsCollector {
    calls: Arc<CallSeries>,
    descriptions: Vec<Desc>,
}

impl AgentMetricsCollector {
    pub(super) fn new(calls: Arc<CallSeries>) -> Result<Self, prometheus::Error> {
        let descriptions = ROWS.iter().map(describe).collect::<Result<_, _>>()?;
        Ok(Self { calls, descriptions })
    }
}

impl Collector for AgentMetricsCollector {
    fn desc(&self) -> Vec<&Desc> {
        self.descriptions.iter().collect()
    }

    fn collect(&self) -> Vec<proto::MetricFamily> {
        let mut families = ROWS.map(SeriesFamily::new);
        let [
            calls,
            call_duration,
            upstream_duration,
            gateway_duration,
            request_bytes,
            response_bytes,
            limited,
            shadow,
            queue_wait,
            queued,
            open_breakers,
            breaker_opens,
            adaptive_limit,
            attempts,
            retries,
            connections,
            connect_duration,
        ] = &mut families;
        for series in &self.calls.all_series() {
            let agent = &*series.label;
            collect_calls(&self.calls, series, calls);
            for (blame, classes) in CallBlame::NAMES.iter().zip(&series.call_durations) {
                for (class, durations) in StatusClass::NAMES.iter().zip(classes) {
                    call_duration.push_histogram(&[agent, blame, class], durations.durations.collect());
                }
            }
            upstream_duration.push_histogram(&[agent], series.upstream_duration.collect());
            gateway_duration.push_histogram(&[agent], series.gateway_duration.collect());
            connect_duration.push_histogram(&[agent], series.connect_duration.collect());
            queue_wait.push_histogram(&[agent], series.queue_wait.collect());
            request_bytes.push_nonzero(&[agent], series.request_bytes.load(Relaxed));
            response_bytes.push_nonzero(&[agent], series.response_bytes.load(Relaxed));
            let queued_calls = series.queued_calls.load(Relaxed);
            // The series of an agent whose calls have waited stays.
            if queued_calls > 0 || series.queue_wait.collect().is_some() {
                queued.push(&[agent], queued_calls as f64);
            }
            for (rule, count) in ShadowRule::NAMES.iter().zip(series.shadow_denials.counts()) {
                shadow.push_nonzero(&[rule, agent], count);
            }
            collect_limited(series, Arc::ptr_eq(series, &self.calls.unknown), limited);
            // Agents whose circuit breakers never opened have no such series.
            let opens = series.circuit_breaker_opens.load(Relaxed);
            if opens > 0 {
                open_breakers.push(&[agent], series.open_circuit_breakers.load(Relaxed) as f64);
                breaker_opens.push(&[agent], opens as f64);
            }
            adaptive_limit.push_nonzero(&[agent], series.adaptive_limit.load(Relaxed));
            push_counters(attempts, agent, AttemptResult::NAMES, &series.attempts);
            retries.push_nonzero(&[agent], series.retries.load(Relaxed));
            push_counters(connections, agent, UpstreamConnection::NAMES, &series.connections);
        }
        families.into_iter().filter_map(SeriesFamily::into_family).collect()
    }
}

/// Returns the exemplars of the durations of calls.
pub(super) fn collect_exemplars(calls: &CallSeries) -> ExemplarTable {
    let mut table = ExemplarTable::new();
    for series in &calls.all_series() {
        for (blame, classes) in CallBlame::NAMES.iter().zip(&series.call_durations) {
            for (class, durations) in StatusClass::NAMES.iter().zip(classes) {
                if let Some(exemplars) = durations.exemplars() {
                    table.insert(vec![series.label.to_string(), (*blame).into(), (*class).into()], exemplars);
                }
            }
        }
    }
    table
}

fn push_counters(family: &mut SeriesFamily, agent: &str, names: &[&str], counters: &[AtomicU64]) {
    for (name, counter) in names.iter().zip(counters) {
        family.push_nonzero(&[agent, name], counter.load(Relaxed));
    }
}

/// Adds the refused requests of an agent. Requests without an agent have a series of every limit from the start.
fn collect_limited(series: &AgentSeries, is_unknown: bool, family: &mut SeriesFamily) {
    let counts = series.limited_requests.counts().chain(std::iter::repeat(0));
    for (limit, count) in LimitKind::NAMES.iter().zip(counts) {
        if count > 0 || is_unknown {
            family.push(&[limit, &series.label], count as f64);
        }
    }
}

/// Adds the counters of an agent's calls to `family`.
fn collect_calls(calls: &CallSeries, series: &AgentSeries, family: &mut SeriesFamily) {
    for (name, operation) in &*series.operations.lock() {
        for (class, by_code) in operation.0.iter().enumerate() {
            for (code, count) in by_code.counts().enumerate() {
                let (code, blame) = code_labels(code);
                let labels = [&*series.label, code, calls.tiers.label(class), name, blame.name()];
                family.push_nonzero(&labels, count);
            }
        }
    }
}

/// Returns the code with this index, and its blame.
fn code_labels(index: usize) -> (&'static str, CallBlame) {
    match (index.checked_sub(1).and_then(|at| FaultCode::ALL.get(at)), index) {
        (Some(code), _) => (code.row().name, CallBlame::of(code.row().blame)),
        (None, INACTIVE_INDEX) => (FaultCode::AgentUnavailable.row().name, CallBlame::Caller),
        (None, ABORTED_INDEX) => ("aborted", CallBlame::Aborted),
        (None, _) => ("ok", CallBlame::None),
    }
}
