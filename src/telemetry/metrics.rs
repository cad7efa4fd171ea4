//! The metrics, made once and held as handles: counting on the path of a call looks nothing up.

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

/// What is measured, and how finely.
#[derive(Clone, Debug, PartialEq, Eq, serde::Deserialize, serde::Serialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct MetricsConfig {
    /// Agents that have a value of the label `agent` of their own; those called later share `other`.
    /// 0 to 100000; 1000 unless written.
    #[schemars(range(min = 0, max = 100_000))]
    pub most_agents: usize,
}

impl Default for MetricsConfig {
    fn default() -> Self {
        Self { most_agents: 1_000 }
    }
}

/// All metrics of one gateway; each gateway has its own registry, so several can live in one process.
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
            /// What happened besides calls; one label value each in `gatepost_events_total`.
            Event { $($rows)* }
        }
    };
}

events! {
    ConfigLoaded "config_loaded" "A configuration was put in force.";
    ContractBroken "contract_broken" "An input or an answer broke a contract that is only reported on.";
    ItemFailed "item_failed" "An item of a batch failed; the batch itself was answered.";
    ConfigRefused "config_refused" "A changed configuration was refused; the last good one stays.";
    AgentRefused "agent_refused" "An agent's document was refused.";
    CatalogueSwapped "catalogue_swapped" "A new snapshot of agents was put in force.";
    JwksFetched "jwks_fetched" "An issuer's keys were fetched.";
    JwksFailed "jwks_failed" "An issuer's keys could not be fetched.";
    IntrospectionFailed "introspection_failed" "A token could not be introspected.";
    KeysLoaded "keys_loaded" "The API keys were read.";
    KeysRefused "keys_refused" "A changed file of API keys was refused; the last good ones stay.";
    AcceptFailed "accept_failed" "Accepting failed for want of descriptors or memory.";
    CertificatesLoaded "certificates_loaded" "A listener's changed certificates were put in force.";
    CertificatesRefused "certificates_refused" "A listener's changed certificates were refused; the last good ones stay.";
    TaskCompleted "task_completed" "A task ended with an answer.";
    TaskFailed "task_failed" "A task ended with a failure.";
    TaskCanceled "task_canceled" "A task was cancelled by its caller.";
    TaskLost "task_lost" "A task was found whose gateway is gone; it was marked as failed.";
    CallbackDelivered "callback_delivered" "The end of a task was told to its caller.";
    CallbackFailed "callback_failed" "Telling the end of a task failed; it is tried again.";
    CallbackGivenUp "callback_given_up" "Telling the end of a task failed for the last time.";
    StreamResumed "stream_resumed" "A caller that had lost a stream took it up again.";
    Replayed "replayed" "A call was answered with the first answer to its idempotency key.";
    LimitOverflow "limit_overflow" "A limiter held its most keys; a new one shared the overflow bucket.";
}

impl Metrics {
    /// A registry with every metric at zero.
    ///
    /// # Errors
    /// A name that the registry does not take, which is a defect.
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

    /// Puts a changed configuration in force; agents that have a label of their own keep it.
    pub fn configure(&self, config: &MetricsConfig) {
        self.calls.bound(config.most_agents);
    }

    /// Counts one event.
    pub fn count(&self, event: Event) {
        bump(&self.events, event as usize);
    }

    /// The handle with which calls of this agent are counted; part of its route. Counts of an agent with the
    /// same id go on.
    pub fn agent(&self, agent: &Agent) -> Arc<AgentMetrics> {
        self.calls.handle(Some(agent))
    }

    /// Where calls are counted that reached no agent: their label is `-`, so that callers cannot make labels. Its
    /// operation 0 is the directory.
    pub fn unknown(&self) -> &Arc<AgentMetrics> {
        &self.unknown
    }

    /// Forgets the series of agents that are gone.
    pub fn retain(&self, known: impl Fn(&AgentId) -> bool) {
        self.calls.retain(&known);
    }

    /// Gives the configured tiers groups of their own: the first eleven, in this order, for the process's life.
    pub fn name_tiers<'a>(&self, tiers: impl Iterator<Item = &'a str>) {
        self.calls.name_tiers(tiers);
    }

    /// The group of a caller: its tier where that one is configured, else the kind of its credential.
    pub fn group(&self, kind: Group, tier: Option<&str>) -> Group {
        tier.and_then(|tier| self.calls.tier(tier)).unwrap_or(kind)
    }

    /// Counts a call in flight until the tally is dropped.
    pub fn call_begins(&self) -> Tally {
        Tally::of(&self.in_flight)
    }

    /// Counts an open connection until the tally is dropped.
    pub fn connection_opens(&self) -> Tally {
        Tally::of(&self.open)
    }

    /// Counts a task that runs until the tally is dropped.
    pub fn task_begins(&self) -> Tally {
        Tally::of(&self.tasks)
    }

    /// Counts what became of a connection.
    pub fn connection(&self, became: Connection) {
        bump(&self.connections, became as usize);
    }

    /// Counts a call that a limit refused.
    pub fn limited(&self, limit: Limit) {
        bump(&self.limited, limit as usize);
    }

    /// Counts a call that was refused because the gateway has too much to do; priorities are 0 to 9.
    pub fn shed(&self, priority: u8) {
        bump(&self.shed, priority.into());
    }

    /// How long the gateway's work waits for a core, and how much is refused because of that.
    pub fn load(&self, waits: Duration, level: f64) {
        self.waits.set(waits.as_secs_f64());
        self.shedding.set(level);
    }

    /// Says how many agents are in a state.
    pub fn agents(&self, state: AgentState, count: usize) {
        if let Some(gauge) = self.agents.get(state as usize) {
            gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
        }
    }

    /// What is measured of each source of agents.
    pub fn feeds(&self) -> &FeedMetrics {
        &self.feeds
    }

    /// A configuration was put in force at `unix` seconds after 1970.
    pub fn config_loaded(&self, unix: i64) {
        self.config_ok.set(1);
        self.config_loaded.set(unix);
        self.count(Event::ConfigLoaded);
    }

    /// A configuration was refused; the last good one stays.
    pub fn config_refused(&self) {
        self.config_ok.set(0);
        self.count(Event::ConfigRefused);
    }

    /// Counts lines of the access log that were not written.
    pub(super) fn access_dropped(&self, lines: u64) {
        self.dropped.inc_by(lines);
    }

    /// Calls that have begun and not ended.
    pub fn in_flight(&self) -> usize {
        usize::try_from(self.in_flight.get()).unwrap_or_default()
    }

    /// The page that Prometheus scrapes, in its text format.
    ///
    /// # Errors
    /// What cannot be written in that format, which is a defect.
    pub fn exposition(&self) -> Result<String, prometheus::Error> {
        TextEncoder::new().encode_to_string(&self.registry.gather())
    }
}
