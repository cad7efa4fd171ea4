//! Names, help texts and registration of metrics. Every name is defined here, in the collector of the per-agent metrics
//! or with the metrics of the sources.

use prometheus::{Error, Gauge, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry, core::Collector};

/// A metric's name and help text.
type Named = (&'static str, &'static str);

/// The metrics that are not per agent.
pub(super) mod names {
    use super::Named;

    pub(in crate::telemetry) const BUILD: Named = ("gatepost_build_info", "The version of the gateway; always 1.");
    pub(in crate::telemetry) const EVENTS: Named = ("gatepost_events_total", "Total number of non-call events.");
    pub(in crate::telemetry) const IN_FLIGHT: Named = ("gatepost_calls_in_flight", "Calls in flight.");
    pub(in crate::telemetry) const OPEN: Named = ("gatepost_connections_open", "Open connections of callers.");
    pub(in crate::telemetry) const TASKS: Named = ("gatepost_tasks_running", "Tasks running on this gateway.");
    pub(in crate::telemetry) const CONNECTIONS: Named =
        ("gatepost_connections_total", "Total number of connections of callers, by result.");
    pub(in crate::telemetry) const AGENTS: Named = ("gatepost_agents", "Agents, by state.");
    pub(in crate::telemetry) const CONFIG_OK: Named =
        ("gatepost_config_last_reload_successful", "Whether the last load of the configuration succeeded (1 or 0).");
    pub(in crate::telemetry) const CONFIG_LOADED: Named =
        ("gatepost_config_last_reload_success_timestamp_seconds", "Time of the last successful configuration load.");
    pub(in crate::telemetry) const LIMITED: Named =
        ("gatepost_limited_requests_total", "Total number of requests refused by a rate, quota or concurrency limit.");
    pub(in crate::telemetry) const SHED: Named =
        ("gatepost_load_shed_requests_total", "Total number of requests refused by load shedding, by priority.");
    pub(in crate::telemetry) const SHEDDING: Named = (
        "gatepost_load_shed_level",
        "Number of lowest priorities that are refused entirely, plus the refused fraction of the next.",
    );
    pub(in crate::telemetry) const WAITS: Named =
        ("gatepost_run_queue_delay_seconds", "How long the gateway's own work waits for a CPU core under load.");
    pub(in crate::telemetry) const DROPPED: Named =
        ("gatepost_access_log_dropped_entries_total", "Total number of access-log entries that were not written.");
}

/// Creates and registers metrics, one handle per label value, so that counting is an array index.
pub(super) struct Register<'a>(pub(super) &'a Registry);

impl Register<'_> {
    fn add<C: Collector + Clone + 'static>(&self, made: C) -> Result<C, Error> {
        self.0.register(Box::new(made.clone()))?;
        Ok(made)
    }

    pub(super) fn build(&self) -> Result<(), Error> {
        let version = env!("CARGO_PKG_VERSION");
        for gauge in &self.gauges(names::BUILD, "version", &[version])? {
            gauge.set(1);
        }
        Ok(())
    }

    pub(super) fn counter(&self, (name, help): Named) -> Result<IntCounter, Error> {
        self.add(IntCounter::new(name, help)?)
    }

    pub(super) fn measure(&self, (name, help): Named) -> Result<Gauge, Error> {
        self.add(Gauge::new(name, help)?)
    }

    pub(super) fn gauge(&self, (name, help): Named) -> Result<IntGauge, Error> {
        self.add(IntGauge::new(name, help)?)
    }

    pub(super) fn counters(
        &self,
        (name, help): Named,
        label: &str,
        values: &[&str],
    ) -> Result<Box<[IntCounter]>, Error> {
        let family = self.add(IntCounterVec::new(Opts::new(name, help), &[label])?)?;
        values.iter().map(|value| family.get_metric_with_label_values(&[value])).collect()
    }

    pub(super) fn gauges(&self, (name, help): Named, label: &str, values: &[&str]) -> Result<Box<[IntGauge]>, Error> {
        let family = self.add(IntGaugeVec::new(Opts::new(name, help), &[label])?)?;
        values.iter().map(|value| family.get_metric_with_label_values(&[value])).collect()
    }
}

/// Increments the counter with index `at`.
pub(super) fn bump(counters: &[IntCounter], at: usize) {
    if let Some(counter) = counters.get(at) {
        counter.inc();
    }
}

/// Counts one item in a gauge until it is dropped.
#[derive(Debug)]
pub struct Tally(IntGauge);

impl Tally {
    pub(super) fn of(gauge: &IntGauge) -> Self {
        gauge.inc();
        Self(gauge.clone())
    }
}

impl Drop for Tally {
    fn drop(&mut self) {
        self.0.dec();
    }
}
