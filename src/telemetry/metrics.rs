//! The metrics of a gateway. They are created once and held as handles, so that a call needs no lookup.

use super::{
    agent_series::CallSeries,
    broker_metrics::BrokerTable,
    call_counts::CallCounts,
    call_metrics::AgentMetrics,
    caller_class::CallerClass,
    certificate_metrics::CertificateMetrics,
    endpoint_metrics::{EndpointCounts, EndpointMetrics},
    exposition::{self, ExpositionFormat},
    key_metrics::KeyMetrics,
    listener_metrics::{ListenerMetrics, ListenerTable},
    memory_limit::read_memory_limit,
    metric_labels::{AgentDocumentState, AuditEntryResult, LimitKind, SpanResult, label},
    metric_registration::{GaugeGuard, MetricBuilder, increment},
    metric_table::{self, PRIORITIES},
    outage::Outage,
    scrape_collector::{AgentMetricsCollector, collect_exemplars},
    source_metrics::SourceMetrics,
    store_metrics::StoreMetrics,
    task_metrics::TaskMetrics,
};
use crate::agent::{Agent, AgentId, AuthenticationMethod};
use parking_lot::Mutex;
use prometheus::{Counter, Gauge, IntCounter, IntGauge, Registry, process_collector::ProcessCollector};
use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

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

/// Reads values that change by themselves, such as the state of a connection pool, before the metrics are written.
type Sampler = Box<dyn Fn(&Metrics) + Send + Sync>;

/// All metrics of one gateway. Each gateway has its own registry, so several can run in one process.
pub struct Metrics {
    registry: Registry,
    events: Box<[IntCounter]>,
    calls: Arc<CallSeries>,
    unknown: Arc<AgentMetrics>,
    in_flight: IntGauge,
    listeners: ListenerTable,
    agents: Box<[IntGauge]>,
    partly_checked_agents: IntGauge,
    endpoints: EndpointMetrics,
    ready: IntGauge,
    draining: IntGauge,
    config_reload_successful: IntGauge,
    config_reload_timestamp: IntGauge,
    load_shed_requests: Box<[IntCounter]>,
    load_shed_level: Gauge,
    run_queue_delay: Gauge,
    memory_limit: IntGauge,
    runtime_threads: IntGauge,
    runtime_busy: Counter,
    dropped_log_entries: IntCounter,
    audit_entries: Box<[IntCounter]>,
    waiting_audit_entries: IntGauge,
    spans: Box<[IntCounter]>,
    sources: SourceMetrics,
    certificates: CertificateMetrics,
    keys: KeyMetrics,
    tasks: TaskMetrics,
    stores: StoreMetrics,
    brokers: BrokerTable,
    samplers: Mutex<BTreeMap<&'static str, Sampler>>,
}

impl fmt::Debug for Metrics {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("Metrics").finish_non_exhaustive()
    }
}

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
    EventLogGap "event_log_gap" "Events of a task were dropped that other gateways read, because the shared state did not take them in time.";
    ResponseReplayed "response_replayed" "A call got the stored response of its idempotency key.";
    IdempotencyKeysLost "idempotency_keys_lost" "The state that gateways share was found to have lost idempotency keys.";
    LimitDecidedLocally "limit_decided_locally" "A limit of a call was decided without the shared state, which did not answer.";
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
            unknown: AgentMetrics::new(&calls, None),
            calls,
            events: builder.int_counters(metric_table::EVENTS, Event::NAMES)?,
            in_flight: builder.int_gauge(metric_table::IN_FLIGHT)?,
            listeners: ListenerTable::register(&registry)?,
            agents: builder.int_gauges(metric_table::AGENTS, AgentDocumentState::NAMES)?,
            partly_checked_agents: builder.int_gauge(metric_table::PARTLY_CHECKED)?,
            endpoints: EndpointMetrics::register(&registry)?,
            ready: builder.int_gauge(metric_table::READY)?,
            draining: builder.int_gauge(metric_table::DRAINING)?,
            config_reload_successful: builder.int_gauge(metric_table::CONFIG_OK)?,
            config_reload_timestamp: builder.int_gauge(metric_table::CONFIG_LOADED)?,
            load_shed_requests: builder.int_counters(metric_table::SHED, PRIORITIES)?,
            load_shed_level: builder.float_gauge(metric_table::SHEDDING)?,
            run_queue_delay: builder.float_gauge(metric_table::WAITS)?,
            memory_limit: builder.int_gauge(metric_table::MEMORY_LIMIT)?,
            runtime_threads: builder.int_gauge(metric_table::RUNTIME_THREADS)?,
            runtime_busy: builder.float_counter(metric_table::RUNTIME_BUSY)?,
            dropped_log_entries: builder.int_counter(metric_table::DROPPED)?,
            audit_entries: builder.int_counters(metric_table::AUDIT_ENTRIES, AuditEntryResult::NAMES)?,
            waiting_audit_entries: builder.int_gauge(metric_table::AUDIT_WAITING)?,
            spans: builder.int_counters(metric_table::SPANS, SpanResult::NAMES)?,
            sources: SourceMetrics::register(&registry)?,
            certificates: CertificateMetrics::register(&registry)?,
            keys: KeyMetrics::register(&registry)?,
            tasks: TaskMetrics::register(&registry)?,
            stores: StoreMetrics::register(&registry)?,
            brokers: BrokerTable::register(&registry)?,
            samplers: Mutex::default(),
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
        AgentMetrics::new(&self.calls, Some(agent))
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
        self.calls.tiers.register(tiers);
    }

    /// Returns the class of a caller: its tier if the tier has a class, otherwise its authentication method.
    pub fn caller_class(&self, method: AuthenticationMethod, tier: Option<&str>) -> CallerClass {
        tier.and_then(|tier| self.calls.tiers.class_of(tier)).unwrap_or(CallerClass::of_method(method))
    }

    /// Counts a call as in flight until the returned guard is dropped.
    pub fn track_call(&self) -> GaugeGuard {
        GaugeGuard::new(&self.in_flight)
    }

    /// Returns the metrics of the listener with this configured address.
    pub fn listener(&self, listener: &str) -> Arc<ListenerMetrics> {
        self.listeners.listener(listener)
    }

    /// Counts a request without an agent that a limit refused.
    pub fn record_limited_request(&self, limit: LimitKind) {
        self.unknown.record_limited_request(limit);
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

    /// Sets the number of agents that are served without keywords of their schemas.
    pub fn set_partly_checked_agents(&self, count: usize) {
        self.partly_checked_agents.set(i64::try_from(count).unwrap_or(i64::MAX));
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

    /// Returns the metrics of API keys and of issuers' keys.
    pub fn keys(&self) -> &KeyMetrics {
        &self.keys
    }

    /// Returns the metrics of tasks.
    pub fn tasks(&self) -> &TaskMetrics {
        &self.tasks
    }

    /// Returns the metrics of the stores.
    pub fn stores(&self) -> &StoreMetrics {
        &self.stores
    }

    /// Returns the metrics of the MQTT brokers.
    pub fn brokers(&self) -> &BrokerTable {
        &self.brokers
    }

    /// Sets whether the gateway is stopping and lets its calls finish.
    pub fn set_draining(&self, is_draining: bool) {
        self.draining.set(is_draining.into());
    }

    /// Sets the number of threads that serve calls, and the total time in which they were busy.
    pub fn set_runtime(&self, threads: usize, busy: Duration) {
        self.runtime_threads.set(i64::try_from(threads).unwrap_or(i64::MAX));
        let growth = busy.as_secs_f64() - self.runtime_busy.get();
        if growth > 0.0 {
            self.runtime_busy.inc_by(growth);
        }
    }

    /// Replaces the endpoints of agents by state.
    pub fn set_endpoints<'a>(&self, agents: impl Iterator<Item = (&'a AgentMetrics, EndpointCounts)>) {
        self.endpoints.replace(agents);
    }

    /// Calls `sampler` whenever the metrics are read, instead of the previous one of this name.
    pub fn set_sampler(&self, name: &'static str, sampler: impl Fn(&Self) + Send + Sync + 'static) {
        self.samplers.lock().insert(name, Box::new(sampler));
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

    /// Counts entries of the audit log.
    pub fn record_audit_entries(&self, result: AuditEntryResult, count: u64) {
        if let Some(counter) = self.audit_entries.get(result as usize) {
            counter.inc_by(count);
        }
    }

    /// Sets the number of entries that wait because the audit log cannot be written.
    pub fn set_waiting_audit_entries(&self, count: usize) {
        self.waiting_audit_entries.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// Counts spans of recorded traces.
    pub fn record_spans(&self, result: SpanResult, count: u64) {
        if let Some(counter) = self.spans.get(result as usize) {
            counter.inc_by(count);
        }
    }

    /// Counts access-log entries that were dropped.
    pub(super) fn record_dropped_log_entries(&self, count: u64) {
        self.dropped_log_entries.inc_by(count);
    }

    /// Returns the number of calls in flight.
    pub fn calls_in_flight(&self) -> usize {
        usize::try_from(self.in_flight.get()).unwrap_or_default()
    }

    /// Calls `visit` with the label and the calls so far of each agent that has its own label, and returns the calls of
    /// all agents, with the requests that concern no agent. The total never falls.
    pub fn read_call_counts(&self, visit: impl FnMut(&Arc<str>, &CallCounts)) -> CallCounts {
        self.calls.read_counts(visit)
    }

    /// Returns the number of access-log entries that were dropped.
    pub fn dropped_log_entries(&self) -> u64 {
        self.dropped_log_entries.get()
    }

    /// Returns the number of entries of the audit log with this result.
    pub fn audit_entries(&self, result: AuditEntryResult) -> u64 {
        self.audit_entries.get(result as usize).map_or(0, IntCounter::get)
    }

    /// Returns the number of entries that wait because the audit log cannot be written.
    pub fn waiting_audit_entries(&self) -> usize {
        usize::try_from(self.waiting_audit_entries.get()).unwrap_or_default()
    }

    /// Returns the services that cannot be used now.
    pub fn outages(&self) -> Vec<Outage> {
        [self.stores.outages(), self.keys.outages()].concat()
    }

    /// Returns all metrics in a format.
    pub fn render(&self, format: ExpositionFormat) -> String {
        for sampler in self.samplers.lock().values() {
            sampler(self);
        }
        // The limit of a container that runs can be changed.
        let limit = read_memory_limit().unwrap_or_default();
        self.memory_limit.set(i64::try_from(limit).unwrap_or(i64::MAX));
        exposition::write_page(&self.registry.gather(), &collect_exemplars(&self.calls), format)
    }
}
