//! The metrics of a gateway. They are created once and held as handles, so that a call needs no lookup.

use super::{
    call_metrics::{AgentMetrics, CallSeries, CallerClass},
    certificate_metrics::CertificateMetrics,
    metric_registration::{
        AgentDocumentState, ConnectionOutcome, GaugeGuard, LimitKind, MetricBuilder, increment, label, names,
    },
    scrape_collector::AgentMetricsCollector,
    source_metrics::SourceMetrics,
};
use crate::agent::{Agent, AgentId, AuthenticationMethod};
use prometheus::{Gauge, IntCounter, IntGauge, Registry, TextEncoder, process_collector::ProcessCollector};
use std::{sync::Arc, time::Duration};

/// Configuration of the metrics.
#[derive(Clone, Debug, PartialEq, Eq, serde::Deserialize, serde::Serialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct MetricsConfig {
    /// Maximum number of agents with a label of their own; agents that are called later share the label `other`. 0 to
    /// 100000. Default 1000.
    #[schemars(range(min = 0, max = 100_000))]
    pub max_agent_labels: usize,
}

impl Default for MetricsConfig {
    fn default() -> Self {
        Self { max_agent_labels: 1_000 }
    }
}

/// All metrics of one gateway. Each gateway has its own registry, so several can run in one process.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    events: Box<[IntCounter]>,
    calls: Arc<CallSeries>,
    unknown: Arc<AgentMetrics>,
    in_flight: IntGauge,
    open_connections: IntGauge,
    running_tasks: IntGauge,
    connections: Box<[IntCounter]>,
    agents: Box<[IntGauge]>,
    ready: IntGauge,
    config_reload_successful: IntGauge,
    config_reload_timestamp: IntGauge,
    limited_requests: Box<[IntCounter]>,
    load_shed_requests: Box<[IntCounter]>,
    load_shed_level: Gauge,
    run_queue_delay: Gauge,
    dropped_log_entries: IntCounter,
    sources: SourceMetrics,
    certificates: CertificateMetrics,
}

/// The values of the label `priority`.
const PRIORITIES: &[&str] = &["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"];

macro_rules! events {
    ($($rows:tt)*) => {
        label! {
            /// An event other than a call; each has a label value in `gatepost_events_total`.
            Event { $($rows)* }
        }
    };
}

events! {
    ConfigLoaded "config_loaded" "A configuration was applied.";
    ContractViolated "contract_violated" "An input or output violated a contract that is only reported.";
    BatchItemFailed "batch_item_failed" "An item of a batch failed; the batch itself got a response.";
    ConfigRejected "config_rejected" "A changed configuration was rejected; the previous one stays in effect.";
    AgentRejected "agent_rejected" "An agent's document was rejected.";
    SnapshotPublished "snapshot_published" "A new snapshot of the agents was published.";
    JwksFetched "jwks_fetched" "The keys of an issuer were fetched.";
    JwksFetchFailed "jwks_fetch_failed" "The keys of an issuer could not be fetched.";
    IntrospectionFailed "introspection_failed" "A token could not be introspected.";
    ApiKeysLoaded "api_keys_loaded" "The API keys were loaded.";
    ApiKeysRejected "api_keys_rejected" "A changed file of API keys was rejected; the previous keys stay in effect.";
    AcceptFailed "accept_failed" "Accepting a connection failed for lack of descriptors or memory.";
    CertificatesLoaded "certificates_loaded" "The changed certificates of a listener were applied.";
    CertificatesRejected "certificates_rejected" "Changed certificates of a listener were rejected; the previous ones stay.";
    CallCutOff "call_cut_off" "A call or WebSocket was cut off, because it lasted longer than the drain.";
    TaskCompleted "task_completed" "A task completed.";
    TaskFailed "task_failed" "A task failed.";
    TaskCanceled "task_canceled" "A task was cancelled by its caller.";
    TaskLost "task_lost" "A task whose gateway is gone was found and marked as failed.";
    CallbackDelivered "callback_delivered" "A callback about the end of a task was delivered.";
    CallbackFailed "callback_failed" "The delivery of a callback failed and is retried.";
    CallbackAbandoned "callback_abandoned" "The delivery of a callback failed for the last time.";
    StreamResumed "stream_resumed" "A caller resumed a stream after a disconnect.";
    ResponseReplayed "response_replayed" "A call got the stored response of its idempotency key.";
    LimiterOverflow "limiter_overflow" "A rate limiter was full; a new key shared the overflow bucket.";
}

impl Metrics {
    /// Creates a registry with every metric at zero.
    ///
    /// # Errors
    /// The registry rejects a metric, which is a defect.
    pub fn new() -> Result<Arc<Self>, prometheus::Error> {
        let registry = Registry::new();
        let calls = CallSeries::new(MetricsConfig::default().max_agent_labels);
        registry.register(Box::new(AgentMetricsCollector::new(Arc::clone(&calls))?))?;
        registry.register(Box::new(ProcessCollector::for_self()))?;
        let builder = MetricBuilder(&registry);
        builder.register_build_info()?;
        Ok(Arc::new(Self {
            unknown: calls.agent_metrics(None),
            calls,
            events: builder.int_counters(names::EVENTS, "event", Event::NAMES)?,
            in_flight: builder.int_gauge(names::IN_FLIGHT)?,
            open_connections: builder.int_gauge(names::OPEN)?,
            running_tasks: builder.int_gauge(names::TASKS)?,
            connections: builder.int_counters(names::CONNECTIONS, "result", ConnectionOutcome::NAMES)?,
            agents: builder.int_gauges(names::AGENTS, "state", AgentDocumentState::NAMES)?,
            ready: builder.int_gauge(names::READY)?,
            config_reload_successful: builder.int_gauge(names::CONFIG_OK)?,
            config_reload_timestamp: builder.int_gauge(names::CONFIG_LOADED)?,
            limited_requests: builder.int_counters(names::LIMITED, "limit", LimitKind::NAMES)?,
            load_shed_requests: builder.int_counters(names::SHED, "priority", PRIORITIES)?,
            load_shed_level: builder.float_gauge(names::SHEDDING)?,
            run_queue_delay: builder.float_gauge(names::WAITS)?,
            dropped_log_entries: builder.int_counter(names::DROPPED)?,
            sources: SourceMetrics::register(&registry)?,
            certificates: CertificateMetrics::register(&registry)?,
            registry,
        }))
    }

    /// Applies a changed configuration; agents that have their own label keep it.
    pub fn configure(&self, config: &MetricsConfig) {
        self.calls.set_max_agents(config.max_agent_labels);
    }

    /// Counts one event.
    pub fn record_event(&self, event: Event) {
        increment(&self.events, event as usize);
    }

    /// Returns the handle that counts the calls of an agent, which its route holds. A new handle for the same id
    /// continues the counters.
    pub fn for_agent(&self, agent: &Agent) -> Arc<AgentMetrics> {
        self.calls.agent_metrics(Some(agent))
    }

    /// Returns the handle for calls without an agent. Their label is `-`, so that callers cannot create series.
    /// Operation 0 of the handle is the directory.
    pub fn for_unknown_agent(&self) -> &Arc<AgentMetrics> {
        &self.unknown
    }

    /// Removes the series of agents for which `is_served` returns false.
    pub fn retain_agents(&self, is_served: impl Fn(&AgentId) -> bool) {
        self.calls.retain(&is_served);
    }

    /// Assigns caller classes to the first eleven configured tiers, in this order, for the lifetime of the process.
    pub fn register_tiers<'a>(&self, tiers: impl Iterator<Item = &'a str>) {
        self.calls.register_tiers(tiers);
    }

    /// Returns the class of a caller: its tier if the tier has a class, otherwise its authentication method.
    pub fn caller_class(&self, method: AuthenticationMethod, tier: Option<&str>) -> CallerClass {
        tier.and_then(|tier| self.calls.tier_class(tier)).unwrap_or(CallerClass::of_method(method))
    }

    /// Counts a call as in flight until the returned guard is dropped.
    pub fn track_call(&self) -> GaugeGuard {
        GaugeGuard::new(&self.in_flight)
    }

    /// Counts a connection as open until the returned guard is dropped.
    pub fn track_connection(&self) -> GaugeGuard {
        GaugeGuard::new(&self.open_connections)
    }

    /// Counts a task as running until the returned guard is dropped.
    pub fn track_task(&self) -> GaugeGuard {
        GaugeGuard::new(&self.running_tasks)
    }

    /// Counts the outcome of accepting a connection.
    pub fn record_connection(&self, outcome: ConnectionOutcome) {
        increment(&self.connections, outcome as usize);
    }

    /// Counts a call that a limit refused.
    pub fn record_limited_request(&self, limit: LimitKind) {
        increment(&self.limited_requests, limit as usize);
    }

    /// Counts a call that load shedding refused; priorities are 0 to 9.
    pub fn record_load_shed_request(&self, priority: u8) {
        increment(&self.load_shed_requests, priority.into());
    }

    /// Sets the run-queue delay and the load-shedding level.
    pub fn set_load(&self, run_queue_delay: Duration, load_shed_level: f64) {
        self.run_queue_delay.set(run_queue_delay.as_secs_f64());
        self.load_shed_level.set(load_shed_level);
    }

    /// Sets the number of agents in a state.
    pub fn set_agent_count(&self, state: AgentDocumentState, count: usize) {
        if let Some(gauge) = self.agents.get(state as usize) {
            gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
        }
    }

    /// Sets whether the gateway is ready for calls.
    pub fn set_ready(&self, is_ready: bool) {
        self.ready.set(is_ready.into());
    }

    /// Returns the metrics of the agent sources.
    pub fn sources(&self) -> &SourceMetrics {
        &self.sources
    }

    /// Returns the metrics of the listeners' certificates.
    pub fn certificates(&self) -> &CertificateMetrics {
        &self.certificates
    }

    /// Records that a configuration was applied at the time `unix_seconds`.
    pub fn record_config_loaded(&self, unix_seconds: i64) {
        self.config_reload_successful.set(1);
        self.config_reload_timestamp.set(unix_seconds);
        self.record_event(Event::ConfigLoaded);
    }

    /// Records that a configuration was rejected; the previous one stays in effect.
    pub fn record_config_rejected(&self) {
        self.config_reload_successful.set(0);
        self.record_event(Event::ConfigRejected);
    }

    /// Counts access-log entries that were dropped.
    pub(super) fn record_dropped_log_entries(&self, count: u64) {
        self.dropped_log_entries.inc_by(count);
    }

    /// Returns the number of calls in flight.
    pub fn calls_in_flight(&self) -> usize {
        usize::try_from(self.in_flight.get()).unwrap_or_default()
    }

    /// Returns all metrics in the Prometheus text format.
    ///
    /// # Errors
    /// A metric cannot be encoded, which is a defect.
    pub fn render(&self) -> Result<String, prometheus::Error> {
        TextEncoder::new().encode_to_string(&self.registry.gather())
    }
}
