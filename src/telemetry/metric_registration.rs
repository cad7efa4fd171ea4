//! Registration of metrics, the names and help texts of those that are neither per agent nor per source, and the labels
//! with a fixed set of values: one enum per label, so that counting is an array index.

use prometheus::{Error, Gauge, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry, core::Collector};

/// A metric's name and help text.
#[derive(Clone, Copy)]
pub(super) struct MetricName {
    name: &'static str,
    help: &'static str,
}

/// The metrics that are not per agent.
pub(super) mod names {
    use super::MetricName;

    pub(in crate::telemetry) const BUILD: MetricName =
        MetricName { name: "gatepost_build_info", help: "The version of the gateway; always 1." };
    pub(in crate::telemetry) const EVENTS: MetricName =
        MetricName { name: "gatepost_events_total", help: "Total number of non-call events." };
    pub(in crate::telemetry) const IN_FLIGHT: MetricName =
        MetricName { name: "gatepost_calls_in_flight", help: "Calls in flight." };
    pub(in crate::telemetry) const OPEN: MetricName =
        MetricName { name: "gatepost_connections_open", help: "Open connections of callers." };
    pub(in crate::telemetry) const TASKS: MetricName =
        MetricName { name: "gatepost_tasks_running", help: "Tasks running on this gateway." };
    pub(in crate::telemetry) const CONNECTIONS: MetricName =
        MetricName { name: "gatepost_connections_total", help: "Total number of connections of callers, by result." };
    pub(in crate::telemetry) const AGENTS: MetricName =
        MetricName { name: "gatepost_agents", help: "Agents, by state." };
    pub(in crate::telemetry) const READY: MetricName =
        MetricName { name: "gatepost_ready", help: "Whether the gateway is ready for calls (1 or 0), as /readyz." };
    pub(in crate::telemetry) const CONFIG_OK: MetricName = MetricName {
        name: "gatepost_config_last_reload_successful",
        help: "Whether the last load of the configuration succeeded (1 or 0).",
    };
    pub(in crate::telemetry) const CONFIG_LOADED: MetricName = MetricName {
        name: "gatepost_config_last_reload_success_timestamp_seconds",
        help: "Time of the last successful configuration load.",
    };
    pub(in crate::telemetry) const LIMITED: MetricName = MetricName {
        name: "gatepost_limited_requests_total",
        help: "Total number of requests refused by a rate, quota or concurrency limit.",
    };
    pub(in crate::telemetry) const SHED: MetricName = MetricName {
        name: "gatepost_load_shed_requests_total",
        help: "Total number of requests refused by load shedding, by priority.",
    };
    pub(in crate::telemetry) const SHEDDING: MetricName = MetricName {
        name: "gatepost_load_shed_level",
        help: "Number of lowest priorities that are refused entirely, plus the refused fraction of the next.",
    };
    pub(in crate::telemetry) const WAITS: MetricName = MetricName {
        name: "gatepost_run_queue_delay_seconds",
        help: "How long the gateway's own work waits for a CPU core under load.",
    };
    pub(in crate::telemetry) const DROPPED: MetricName = MetricName {
        name: "gatepost_access_log_dropped_entries_total",
        help: "Total number of access-log entries that were not written.",
    };
}

/// Creates and registers metrics, one handle per label value, so that counting is an array index.
pub(super) struct MetricBuilder<'a>(pub(super) &'a Registry);

impl MetricBuilder<'_> {
    fn register<C: Collector + Clone + 'static>(&self, collector: C) -> Result<C, Error> {
        self.0.register(Box::new(collector.clone()))?;
        Ok(collector)
    }

    pub(super) fn register_build_info(&self) -> Result<(), Error> {
        let version = env!("CARGO_PKG_VERSION");
        for gauge in &self.int_gauges(names::BUILD, "version", &[version])? {
            gauge.set(1);
        }
        Ok(())
    }

    pub(super) fn int_counter(&self, metric: MetricName) -> Result<IntCounter, Error> {
        self.register(IntCounter::new(metric.name, metric.help)?)
    }

    pub(super) fn float_gauge(&self, metric: MetricName) -> Result<Gauge, Error> {
        self.register(Gauge::new(metric.name, metric.help)?)
    }

    pub(super) fn int_gauge(&self, metric: MetricName) -> Result<IntGauge, Error> {
        self.register(IntGauge::new(metric.name, metric.help)?)
    }

    pub(super) fn int_counters(
        &self,
        metric: MetricName,
        label: &str,
        values: &[&str],
    ) -> Result<Box<[IntCounter]>, Error> {
        let family = self.register(IntCounterVec::new(Opts::new(metric.name, metric.help), &[label])?)?;
        values.iter().map(|value| family.get_metric_with_label_values(&[value])).collect()
    }

    pub(super) fn int_gauges(
        &self,
        metric: MetricName,
        label: &str,
        values: &[&str],
    ) -> Result<Box<[IntGauge]>, Error> {
        let family = self.register(IntGaugeVec::new(Opts::new(metric.name, metric.help), &[label])?)?;
        values.iter().map(|value| family.get_metric_with_label_values(&[value])).collect()
    }
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

/// Defines an enum whose variants are the values of one label.
macro_rules! label {
    ($(#[$about:meta])* $type:ident { $($value:ident $name:literal $doc:literal;)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $type { $(#[doc = $doc] $value,)* }

        impl $type {
            /// All values, in declaration order.
            pub const ALL: &'static [Self] = &[$(Self::$value),*];

            /// Returns the label value.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$value => $name,)* }
            }

            /// All label values, in declaration order.
            pub(super) const NAMES: &'static [&'static str] = &[$($name),*];
        }
    };
}
pub(super) use label;

label! {
    /// The outcome of accepting a connection.
    ConnectionOutcome {
        Accepted "accepted" "The connection was accepted.";
        Refused "refused" "The connection was closed at once, because too many were open.";
        RefusedByAddress "refused_address" "The connection was closed at once, because its address had too many open.";
        RefusedHandshake "refused_handshake" "The connection was closed at once, because its address had too many TLS handshakes in progress.";
        HandshakeFailed "handshake_failed" "The TLS handshake failed or timed out.";
        ProxyHeaderInvalid "proxy_header_invalid" "A trusted proxy sent no valid PROXY protocol header in time.";
    }
}

label! {
    /// The state of an agent's document.
    AgentDocumentState {
        Served "served" "The agent is served.";
        Inactive "inactive" "The agent is listed but not served.";
        Deprecated "deprecated" "The agent is served but deprecated.";
        Rejected "rejected" "The document was rejected.";
    }
}

label! {
    /// The limit that refused a call.
    LimitKind {
        Address "address" "The rate limit of a client address, before authentication.";
        Caller "caller" "The rate limit of a caller.";
        CallerAgent "caller-agent" "The rate limit of a caller at one agent.";
        Search "search" "The rate limit of a caller's searches.";
        Agent "agent" "The rate limit of an agent, as configured or as its document declares.";
        DailyQuota "day" "The daily quota of a caller.";
        MonthlyQuota "month" "The monthly quota of a caller.";
        Concurrency "concurrency" "The configured concurrency limit of an agent.";
        AdaptiveConcurrency "adaptive" "The adaptive concurrency limit of an agent.";
        ConcurrencyShare "share" "The share of one caller of an agent's concurrency.";
        CallerConcurrency "caller-concurrency" "The concurrent calls of a caller.";
        BufferedBodies "bodies" "The memory for callers' bodies, in all or of one caller.";
        WebSockets "websockets" "The open WebSockets, in all or of one caller.";
        Tasks "tasks" "The running and stored tasks, in all or of one caller.";
        IdempotencyKeys "idempotency-keys" "The share of one caller of the idempotency keys.";
        LoadShedding "gateway" "Load shedding: the gateway is overloaded.";
    }
}
