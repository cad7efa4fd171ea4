//! How metrics are made, and what they are called: every name that is scraped stands here or beside the collector
//! of calls.

use prometheus::{Error, Gauge, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry, core::Collector};

/// A name and what it says.
type Named = (&'static str, &'static str);

/// The metrics besides those of calls.
pub(super) mod names {
    use super::Named;

    pub(in crate::telemetry) const BUILD: Named = ("gatepost_build_info", "Which build this is; always 1.");
    pub(in crate::telemetry) const EVENTS: Named = ("gatepost_events_total", "Things that happened besides calls.");
    pub(in crate::telemetry) const IN_FLIGHT: Named =
        ("gatepost_calls_in_flight", "Calls that have begun and not ended.");
    pub(in crate::telemetry) const OPEN: Named = ("gatepost_connections_open", "Connections of callers that are open.");
    pub(in crate::telemetry) const TASKS: Named =
        ("gatepost_tasks_running", "Tasks that have begun here and not ended.");
    pub(in crate::telemetry) const CONNECTIONS: Named =
        ("gatepost_connections_total", "Connections of callers, by what became of them.");
    pub(in crate::telemetry) const AGENTS: Named = ("gatepost_agents", "Agents, by their state.");
    pub(in crate::telemetry) const CONFIG_OK: Named =
        ("gatepost_config_ok", "Whether the configuration in force is the newest: 0 after one was refused.");
    pub(in crate::telemetry) const CONFIG_LOADED: Named =
        ("gatepost_config_loaded_timestamp_seconds", "When the configuration in force was loaded.");
    pub(in crate::telemetry) const LIMITED: Named =
        ("gatepost_limited_total", "Calls refused by a rate, a quota or a concurrency bound.");
    pub(in crate::telemetry) const SHED: Named =
        ("gatepost_shed_total", "Calls refused because the gateway had too much to do, by priority.");
    pub(in crate::telemetry) const SHEDDING: Named = (
        "gatepost_shed_level",
        "Priorities of which all calls are refused now, from the lowest, and a part of the next.",
    );
    pub(in crate::telemetry) const WAITS: Named =
        ("gatepost_run_queue_seconds", "How long the gateway's own work waits for a core, where there are many calls.");
    pub(in crate::telemetry) const DROPPED: Named =
        ("gatepost_access_log_dropped_total", "Lines of the access log that were not written.");
}

/// Makes metrics and registers them, one handle for each label value, so that counting is an index.
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

/// Counts one thing at its place.
pub(super) fn bump(counters: &[IntCounter], at: usize) {
    if let Some(counter) = counters.get(at) {
        counter.inc();
    }
}

/// Counts one thing in a gauge for as long as it is held.
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
