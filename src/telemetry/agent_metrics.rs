//! Call counters by agent, operation, caller class and code. The prometheus crate's vectors are not used here: they
//! look up a child by a hash of the concatenated label values, so agent `a` with operation `bc` and agent `ab` with
//! operation `c` would share a counter, and they need every child before its first use.

use super::latency_histogram::LatencyHistogram;
use crate::{
    agent::{Agent, AgentId},
    fault::FaultCode,
};
use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

const MAX_CALLER_CLASSES: usize = 16;
pub(super) const CREDENTIAL_CLASSES: [&str; 5] = ["none", "key", "bearer", "certificate", "anonymous"];
/// `ok`, the codes of the fault table, and `aborted`.
const CODE_COUNT: usize = 2 + FaultCode::ALL.len();
/// Maximum number of operations per agent with their own counters; further ones share `-`.
const MAX_OPERATIONS_PER_AGENT: usize = 64;
const UNKNOWN_LABEL: &str = "-";
/// The operation under which requests to the directory are counted; they belong to no agent.
const DIRECTORY_OPERATION: &str = "directory";
pub(super) const OTHER_LABEL: &str = "other";
/// The label of the implied operation (R14). A document cannot give an operation this name.
const IMPLIED_OPERATION: &str = "invoke";

/// The class of a caller, as a label: a credential type or a configured tier, never a name that the caller chose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallerClass(u8);

impl CallerClass {
    /// Not authenticated, or not yet.
    pub const NONE: Self = Self(0);
    /// An API key.
    pub const KEY: Self = Self(1);
    /// A bearer token.
    pub const BEARER: Self = Self(2);
    /// A client certificate.
    pub const CERTIFICATE: Self = Self(3);
    /// Admitted without a credential.
    pub const ANONYMOUS: Self = Self(4);
}

/// The outcome of one call.
#[derive(Clone, Copy, Debug)]
pub struct CallOutcome {
    /// The operation's index in the agent's list, if the operation was found.
    pub operation: Option<usize>,
    /// The caller's class.
    pub caller_class: CallerClass,
    /// The fault's code; `None` for a served call.
    pub code: Option<FaultCode>,
    /// Time from the first byte received to the last byte sent.
    pub duration: Duration,
    /// Time that the upstream took, if the call reached it.
    pub upstream_duration: Option<Duration>,
}

pub(super) type CodeCounters = [AtomicU64; CODE_COUNT];

/// The counters of one operation; the row of a caller class is allocated at its first call.
#[derive(Debug, Default)]
pub(super) struct OperationCounters(pub(super) [OnceLock<Box<CodeCounters>>; MAX_CALLER_CLASSES]);

/// The counters behind one value of the label `agent`.
#[derive(Debug)]
pub(super) struct AgentSeries {
    pub(super) label: Arc<str>,
    pub(super) call_duration: LatencyHistogram,
    pub(super) upstream_duration: LatencyHistogram,
    pub(super) operations: Mutex<BTreeMap<Arc<str>, Arc<OperationCounters>>>,
    /// The number of open circuit breakers, and how often one opened.
    pub(super) circuit_breakers: (AtomicU64, AtomicU64),
    /// The adaptive concurrency limit; 0 if none is in effect.
    pub(super) adaptive_limit: AtomicU64,
}

impl AgentSeries {
    fn new(label: Arc<str>) -> Arc<Self> {
        let (call, agent, breakers, learnt) = Default::default();
        Arc::new(Self {
            label,
            call_duration: call,
            upstream_duration: agent,
            operations: Mutex::default(),
            circuit_breakers: breakers,
            adaptive_limit: learnt,
        })
    }

    fn operation(&self, name: &str) -> Arc<OperationCounters> {
        let mut operations = lock(&self.operations);
        let name = if operations.len() < MAX_OPERATIONS_PER_AGENT || operations.contains_key(name) {
            name
        } else {
            UNKNOWN_LABEL
        };
        match operations.get(name) {
            Some(operation) => Arc::clone(operation),
            None => Arc::clone(operations.entry(name.into()).or_default()),
        }
    }
}

/// The counters of one agent, held by its route: an idle agent costs a few words, a call costs an index and some
/// additions.
#[derive(Debug)]
pub struct AgentMetrics {
    calls: Arc<CallSeries>,
    id: Option<AgentId>,
    series: OnceLock<Arc<AgentSeries>>,
    unknown_operation: OnceLock<Arc<OperationCounters>>,
    operations: Box<[NamedOperation]>,
}

/// An operation's name, and its counters after its first call.
type NamedOperation = (Arc<str>, OnceLock<Arc<OperationCounters>>);

impl AgentMetrics {
    /// Counts one call.
    pub fn record(&self, ended: &CallOutcome) {
        self.record_with_code(ended, ended.code.map_or(0, |code| 1 + code as usize));
    }

    /// Counts a call that ended without a complete response: the caller disconnected, or the call was cancelled. The
    /// code is the fault's if there is one, else `aborted`.
    pub fn record_aborted(&self, ended: &CallOutcome) {
        self.record_with_code(ended, ended.code.map_or(CODE_COUNT - 1, |code| 1 + code as usize));
    }

    /// Sets the number of the agent's open circuit breakers.
    pub fn set_open_breakers(&self, open: usize) {
        self.series().circuit_breakers.0.store(open as u64, Relaxed);
    }

    /// As [`AgentMetrics::set_open_breakers`], after the agent's route was rebuilt; never creates a series.
    pub fn restore_open_breakers(&self, open: usize) {
        let known = self.id.as_ref().and_then(|id| lock(&self.calls.agents).get(id).cloned());
        if let Some(series) = known {
            series.circuit_breakers.0.store(open as u64, Relaxed);
        }
    }

    /// Counts a circuit breaker that opens.
    pub fn record_breaker_opened(&self) {
        self.series().circuit_breakers.1.fetch_add(1, Relaxed);
    }

    /// Sets the agent's adaptive concurrency limit.
    pub fn set_adaptive_limit(&self, bound: u32) {
        self.series().adaptive_limit.store(bound.into(), Relaxed);
    }

    fn series(&self) -> &Arc<AgentSeries> {
        self.series.get_or_init(|| self.calls.series(self.id.as_ref()))
    }

    fn record_with_code(&self, ended: &CallOutcome, code_index: usize) {
        let series = self.series();
        // Agents that share a label do not have separate operations.
        let named = ended.operation.filter(|_| !Arc::ptr_eq(series, &self.calls.other));
        let operation = match named.and_then(|at| self.operations.get(at)) {
            Some((name, cell)) => {
                cell.get_or_init(|| series.operation(if name.is_empty() { IMPLIED_OPERATION } else { name }))
            }
            _ => self.unknown_operation.get_or_init(|| series.operation(UNKNOWN_LABEL)),
        };
        let row = operation.0.get(usize::from(ended.caller_class.0));
        let row = row.map(|row| row.get_or_init(|| Box::new([const { AtomicU64::new(0) }; CODE_COUNT])));
        if let Some(count) = row.and_then(|row| row.get(code_index)) {
            count.fetch_add(1, Relaxed);
        }
        series.call_duration.observe(ended.duration);
        if let Some(took) = ended.upstream_duration {
            series.upstream_duration.observe(took);
        }
    }
}

/// The series of all agents, and the limit on how many agents have their own.
#[derive(Debug)]
pub(super) struct CallSeries {
    max_agents: AtomicUsize,
    pub(super) agents: Mutex<HashMap<AgentId, Arc<AgentSeries>>>,
    pub(super) unknown: Arc<AgentSeries>,
    pub(super) other: Arc<AgentSeries>,
    pub(super) tiers: [OnceLock<Box<str>>; MAX_CALLER_CLASSES - CREDENTIAL_CLASSES.len()],
}

impl CallSeries {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            max_agents: AtomicUsize::new(super::MetricsConfig::default().max_agent_labels),
            agents: Mutex::default(),
            unknown: AgentSeries::new(UNKNOWN_LABEL.into()),
            other: AgentSeries::new(OTHER_LABEL.into()),
            tiers: Default::default(),
        })
    }

    pub(super) fn set_max_agents(&self, max_agents: usize) {
        self.max_agents.store(max_agents, Relaxed);
    }

    pub(super) fn agent_metrics(self: &Arc<Self>, agent: Option<&Agent>) -> Arc<AgentMetrics> {
        Arc::new(AgentMetrics {
            calls: Arc::clone(self),
            id: agent.map(|agent| agent.id.clone()),
            series: OnceLock::new(),
            unknown_operation: OnceLock::new(),
            operations: match agent {
                Some(agent) => {
                    agent.operations.iter().map(|operation| uncounted_operation(Arc::clone(&operation.name))).collect()
                }
                None => [uncounted_operation(DIRECTORY_OPERATION.into())].into(),
            },
        })
    }

    /// Returns the series of an agent; created at its first call, so that the agents called first have their own label,
    /// not the agents loaded first. An agent named `-` or `other` shares the series of that label.
    fn series(&self, id: Option<&AgentId>) -> Arc<AgentSeries> {
        let Some(id) = id.filter(|id| id.as_str() != UNKNOWN_LABEL) else {
            return Arc::clone(&self.unknown);
        };
        let mut agents = lock(&self.agents);
        match agents.get(id) {
            Some(series) => Arc::clone(series),
            None if id.as_str() == OTHER_LABEL || agents.len() >= self.max_agents.load(Relaxed) => {
                Arc::clone(&self.other)
            }
            None => Arc::clone(agents.entry(id.clone()).or_insert_with(|| AgentSeries::new(id.to_shared_str()))),
        }
    }

    pub(super) fn retain(&self, known: &dyn Fn(&AgentId) -> bool) {
        lock(&self.agents).retain(|id, _| known(id));
    }

    /// Assigns each new tier a caller class while there are free ones; assigned names never change.
    pub(super) fn register_tiers<'a>(&self, tiers: impl Iterator<Item = &'a str>) {
        let known: HashSet<&str> = self.tiers.iter().filter_map(|tier| tier.get().map(|name| &**name)).collect();
        let mut free = self.tiers.iter().filter(|tier| tier.get().is_none());
        for tier in tiers.filter(|tier| !known.contains(tier) && !CREDENTIAL_CLASSES.contains(tier)) {
            let Some(place) = free.next() else { return };
            place.get_or_init(|| tier.into());
        }
    }

    pub(super) fn tier_class(&self, tier: &str) -> Option<CallerClass> {
        let at = self.tiers.iter().map_while(OnceLock::get).position(|name| **name == *tier)?;
        u8::try_from(CREDENTIAL_CLASSES.len() + at).ok().map(CallerClass)
    }
}

fn uncounted_operation(name: Arc<str>) -> NamedOperation {
    (name, OnceLock::new())
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
