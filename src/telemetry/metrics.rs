//! The metrics of a gateway, created once and held as handles: counting during a call needs no lookup.

use super::{
    calls::{AgentMetrics, Calls, Group},
    collect::CallsCollector,
    feeds::FeedMetrics,
    labels::{AgentState, Connection, Limit, label},
    register::{Register, Tally, bump, names},
};
use crate::agent::{Agent, AgentId};
use prometheus::{Gauge, IntCounter, IntGauge, Registry, TextEncoder, process_collector::ProcessCollector};
use std::{sync::Arc, time::Duration};

/// Configuration of the metrics.
#[derive(Clone, Debug, PartialEq, Eq, serde::Deserialize, serde::Serialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct MetricsConfig {
    /// Maximum number of agents with their own value of the label `agent`; agents called later share `other`.
    /// 0 to 100000. Default 1000.
    #[schemars(range(min = 0, max = 100_000))]
    pub most_agents: usize,
}

impl Default for MetricsConfig {
    fn default() -> Self {
        Self { most_agents: 1_000 }
    }
}

/// All metrics of one gateway. Each gateway has its own registry, so several can run in one process.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    events: Box<[IntCounter]>,
    calls: Arc<Calls>,
    unknown: Arc<AgentMetrics>,
    in_flight: IntGauge,
    open: IntGauge,
    tasks: IntGauge,
    connections: Box<[IntCounter]>,
    agents: Box<[IntGauge]>,
    config_ok: IntGauge,
    config_loaded: IntGauge,
    limited: Box<[IntCounter]>,
    shed: Box<[IntCounter]>,
    shedding: Gauge,
    waits: Gauge,
    dropped: IntCounter,
    feeds: FeedMetrics,
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
    ContractBroken "contract_violated" "An input or output violated a contract that is only reported.";
    ItemFailed "batch_item_failed" "An item of a batch failed; the batch itself was answered.";
    ConfigRefused "config_rejected" "A changed configuration was rejected; the last good one stays in effect.";
    AgentRefused "agent_rejected" "An agent's document was rejected.";
    CatalogueSwapped "snapshot_published" "A new snapshot of the agents was published.";
    JwksFetched "jwks_fetched" "The keys of an issuer were fetched.";
    JwksFailed "jwks_fetch_failed" "The keys of an issuer could not be fetched.";
    IntrospectionFailed "introspection_failed" "A token could not be introspected.";
    KeysLoaded "api_keys_loaded" "The API keys were loaded.";
    KeysRefused "api_keys_rejected" "A changed file of API keys was rejected; the last good keys stay in effect.";
    AcceptFailed "accept_failed" "Accepting a connection failed for lack of descriptors or memory.";
    CertificatesLoaded "certificates_loaded" "The changed certificates of a listener were applied.";
    CertificatesRefused "certificates_rejected" "The changed certificates of a listener were rejected; the old stay.";
    TaskCompleted "task_completed" "A task completed.";
    TaskFailed "task_failed" "A task failed.";
    TaskCanceled "task_canceled" "A task was cancelled by its caller.";
    TaskLost "task_lost" "A task whose gateway is gone was found and marked as failed.";
    CallbackDelivered "callback_delivered" "A callback about the end of a task was delivered.";
    CallbackFailed "callback_failed" "The delivery of a callback failed and is retried.";
    CallbackGivenUp "callback_abandoned" "The delivery of a callback failed for the last time.";
    StreamResumed "stream_resumed" "A caller resumed a stream after a disconnect.";
    Replayed "response_replayed" "A call was answered with the stored response to its idempotency key.";
    LimitOverflow "limiter_overflow" "A rate limiter was full; a new key shared the overflow bucket.";
}

impl Metrics {
    /// Creates a registry with every metric at zero.
    ///
    /// # Errors
    /// The registry rejects a metric, which is a defect.
    pub fn new() -> Result<Arc<Self>, prometheus::Error> {
        let registry = Registry::new();
        let calls = Calls::new();
        registry.register(Box::new(CallsCollector::new(Arc::clone(&calls))?))?;
        registry.register(Box::new(ProcessCollector::for_self()))?;
        let with = Register(&registry);
        with.build()?;
        Ok(Arc::new(Self {
            unknown: calls.handle(None),
            calls,
            events: with.counters(names::EVENTS, "event", Event::NAMES)?,
            in_flight: with.gauge(names::IN_FLIGHT)?,
            open: with.gauge(names::OPEN)?,
            tasks: with.gauge(names::TASKS)?,
            connections: with.counters(names::CONNECTIONS, "result", Connection::NAMES)?,
            agents: with.gauges(names::AGENTS, "state", AgentState::NAMES)?,
            config_ok: with.gauge(names::CONFIG_OK)?,
            config_loaded: with.gauge(names::CONFIG_LOADED)?,
            limited: with.counters(names::LIMITED, "limit", Limit::NAMES)?,
            shed: with.counters(names::SHED, "priority", PRIORITIES)?,
            shedding: with.measure(names::SHEDDING)?,
            waits: with.measure(names::WAITS)?,
            dropped: with.counter(names::DROPPED)?,
            feeds: FeedMetrics::register(&registry)?,
            registry,
        }))
    }

    /// Applies a changed configuration; agents that have their own label keep it.
    pub fn configure(&self, config: &MetricsConfig) {
        self.calls.bound(config.most_agents);
    }

    /// Counts one event.
    pub fn count(&self, event: Event) {
        bump(&self.events, event as usize);
    }

    /// Returns the handle that counts the calls of this agent; its route holds it. A new handle for the same id
    /// continues the counters.
    pub fn agent(&self, agent: &Agent) -> Arc<AgentMetrics> {
        self.calls.handle(Some(agent))
    }

    /// Returns the handle for calls that reached no agent. Their label is `-`, so that callers cannot create series.
    /// The handle's operation 0 is the directory.
    pub fn unknown(&self) -> &Arc<AgentMetrics> {
        &self.unknown
    }

    /// Removes the series of agents for which `known` is false.
    pub fn retain(&self, known: impl Fn(&AgentId) -> bool) {
        self.calls.retain(&known);
    }

    /// Assigns the configured tiers caller classes: the first eleven, in this order, for the lifetime of the process.
    pub fn name_tiers<'a>(&self, tiers: impl Iterator<Item = &'a str>) {
        self.calls.name_tiers(tiers);
    }

    /// Returns the class of a caller: its tier if that is configured, else its type of credential.
    pub fn group(&self, kind: Group, tier: Option<&str>) -> Group {
        tier.and_then(|tier| self.calls.tier(tier)).unwrap_or(kind)
    }

    /// Counts a call as in flight until the returned guard is dropped.
    pub fn call_begins(&self) -> Tally {
        Tally::of(&self.in_flight)
    }

    /// Counts a connection as open until the returned guard is dropped.
    pub fn connection_opens(&self) -> Tally {
        Tally::of(&self.open)
    }

    /// Counts a task as running until the returned guard is dropped.
    pub fn task_begins(&self) -> Tally {
        Tally::of(&self.tasks)
    }

    /// Counts the outcome of accepting a connection.
    pub fn connection(&self, became: Connection) {
        bump(&self.connections, became as usize);
    }

    /// Counts a call that a limit refused.
    pub fn limited(&self, limit: Limit) {
        bump(&self.limited, limit as usize);
    }

    /// Counts a call that load shedding refused; priorities are 0 to 9.
    pub fn shed(&self, priority: u8) {
        bump(&self.shed, priority.into());
    }

    /// Sets the run-queue delay and the load-shedding level.
    pub fn load(&self, waits: Duration, level: f64) {
        self.waits.set(waits.as_secs_f64());
        self.shedding.set(level);
    }

    /// Sets the number of agents in a state.
    pub fn agents(&self, state: AgentState, count: usize) {
        if let Some(gauge) = self.agents.get(state as usize) {
            gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
        }
    }

    /// Returns the metrics of the agent sources.
    pub fn feeds(&self) -> &FeedMetrics {
        &self.feeds
    }

    /// Records that a configuration was applied at `unix`, in Unix seconds.
    pub fn config_loaded(&self, unix: i64) {
        self.config_ok.set(1);
        self.config_loaded.set(unix);
        self.count(Event::ConfigLoaded);
    }

    /// Records that a configuration was rejected; the last good one stays in effect.
    pub fn config_refused(&self) {
        self.config_ok.set(0);
        self.count(Event::ConfigRefused);
    }

    /// Counts access-log entries that were dropped.
    pub(super) fn access_dropped(&self, lines: u64) {
        self.dropped.inc_by(lines);
    }

    /// Returns the number of calls in flight.
    pub fn in_flight(&self) -> usize {
        usize::try_from(self.in_flight.get()).unwrap_or_default()
    }

    /// Returns all metrics in the Prometheus text format.
    ///
    /// # Errors
    /// A metric cannot be encoded, which is a defect.
    pub fn exposition(&self) -> Result<String, prometheus::Error> {
        TextEncoder::new().encode_to_string(&self.registry.gather())
    }
}
