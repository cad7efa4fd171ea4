//! Call counters by agent, operation, caller class and code. The vectors of the prometheus crate are not used here:
//! they look up a child by a hash of the concatenated label values, so that agent `a` with operation `bc` and agent
//! `ab` with operation `c` would share a counter. The latency histogram consists of atomics: an observation is two
//! relaxed additions and takes no lock.

use crate::{
    agent::{Agent, AgentId, AuthenticationMethod},
    fault::FaultCode,
};
use parking_lot::{Mutex, MutexGuard};
use prometheus::proto;
use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

const MAX_CALLER_CLASSES: usize = 16;
/// Apart from [`CREDENTIAL_CLASSES`], because an optimised build cannot evaluate a length that calls functions (a cycle
/// in the compiler).
const CREDENTIAL_CLASS_COUNT: usize = 1 + AuthenticationMethod::ALL.len();
/// `none`, and the labels of the authentication methods.
#[expect(clippy::indexing_slicing, reason = "evaluated at compile time")]
const CREDENTIAL_CLASSES: [&str; CREDENTIAL_CLASS_COUNT] = {
    let mut classes = ["none"; CREDENTIAL_CLASS_COUNT];
    let mut index = 0;
    while index < AuthenticationMethod::ALL.len() {
        classes[index + 1] = AuthenticationMethod::ALL[index].label();
        index += 1;
    }
    classes
};
/// `ok`, the codes of the fault table, and `aborted`.
const CODE_COUNT: usize = 2 + FaultCode::ALL.len();
/// Maximum number of operations per agent with their own counters; further operations share `-`.
const MAX_OPERATIONS_PER_AGENT: usize = 64;
const UNKNOWN_LABEL: &str = "-";
/// The operation under which requests to the directory are counted; they belong to no agent.
const DIRECTORY_OPERATION: &str = "directory";
const OTHER_LABEL: &str = "other";
/// The label of the implied operation (R14). A document cannot give an operation this name.
const IMPLIED_OPERATION: &str = "invoke";

/// The class of a caller, as a label: a credential type or a configured tier, never a name that the caller chose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallerClass(u8);

impl CallerClass {
    /// Not authenticated.
    pub const NONE: Self = Self(0);

    /// Returns the class of callers that authenticated by `method`.
    pub const fn of_method(method: AuthenticationMethod) -> Self {
        // The order of `CREDENTIAL_CLASSES`.
        Self(1 + method as u8)
    }
}

/// The outcome of one call.
#[derive(Clone, Copy, Debug)]
pub struct CallOutcome {
    /// The operation's index in the agent's list, if the operation was found.
    pub operation: Option<usize>,
    /// The caller's class.
    pub caller_class: CallerClass,
    /// The code of the fault; `None` for a successful call.
    pub code: Option<FaultCode>,
    /// Time from the first byte received to the last byte sent.
    pub duration: Duration,
    /// Time that the upstream took, if the call reached it.
    pub upstream_duration: Option<Duration>,
}

type CodeCounters = [AtomicU64; CODE_COUNT];

/// The counters of one operation. The row of a caller class is allocated at its first call.
#[derive(Debug, Default)]
pub(super) struct OperationCounters(pub(super) [OnceLock<Box<CodeCounters>>; MAX_CALLER_CLASSES]);

/// The counters of one value of the label `agent`.
#[derive(Debug)]
pub(super) struct AgentSeries {
    pub(super) label: Arc<str>,
    pub(super) call_duration: LatencyHistogram,
    pub(super) upstream_duration: LatencyHistogram,
    pub(super) operations: Mutex<BTreeMap<Arc<str>, Arc<OperationCounters>>>,
    /// Number of open circuit breakers.
    pub(super) open_circuit_breakers: AtomicU64,
    /// How often a circuit breaker opened.
    pub(super) circuit_breaker_opens: AtomicU64,
    /// The adaptive concurrency limit; 0 if none is in effect.
    pub(super) adaptive_limit: AtomicU64,
}

impl AgentSeries {
    fn new(label: Arc<str>) -> Arc<Self> {
        Arc::new(Self {
            label,
            call_duration: LatencyHistogram::default(),
            upstream_duration: LatencyHistogram::default(),
            operations: Mutex::default(),
            open_circuit_breakers: AtomicU64::new(0),
            circuit_breaker_opens: AtomicU64::new(0),
            adaptive_limit: AtomicU64::new(0),
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

/// The counters of one agent, which its route holds. An idle agent needs a few words of memory, and a call is counted
/// without a lookup.
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
    pub fn record(&self, outcome: &CallOutcome) {
        self.record_with_code(outcome, outcome.code.map_or(0, |code| 1 + code as usize));
    }

    /// Counts a call that ended without a complete response, because the caller disconnected or the call was cancelled.
    /// The code is that of the fault, or `aborted` without a fault.
    pub fn record_aborted(&self, outcome: &CallOutcome) {
        self.record_with_code(outcome, outcome.code.map_or(CODE_COUNT - 1, |code| 1 + code as usize));
    }

    /// Sets the number of the agent's open circuit breakers.
    pub fn set_open_breakers(&self, open: usize) {
        self.series().open_circuit_breakers.store(open as u64, Relaxed);
    }

    /// Sets the number of the agent's open circuit breakers after its route was rebuilt. Creates no series.
    pub fn restore_open_breakers(&self, open: usize) {
        let existing = self.id.as_ref().and_then(|id| lock(&self.calls.agents).get(id).cloned());
        if let Some(series) = existing {
            series.open_circuit_breakers.store(open as u64, Relaxed);
        }
    }

    /// Counts a circuit breaker that opens.
    pub fn record_breaker_opened(&self) {
        self.series().circuit_breaker_opens.fetch_add(1, Relaxed);
    }

    /// Sets the agent's adaptive concurrency limit.
    pub fn set_adaptive_limit(&self, limit: u32) {
        self.series().adaptive_limit.store(limit.into(), Relaxed);
    }

    fn series(&self) -> &Arc<AgentSeries> {
        self.series.get_or_init(|| self.calls.series(self.id.as_ref()))
    }

    fn record_with_code(&self, outcome: &CallOutcome, code_index: usize) {
        let series = self.series();
        // Agents that share a label do not have separate operations.
        let operation_index = outcome.operation.filter(|_| !Arc::ptr_eq(series, &self.calls.other));
        let operation = match operation_index.and_then(|at| self.operations.get(at)) {
            Some((name, counters)) => {
                counters.get_or_init(|| series.operation(if name.is_empty() { IMPLIED_OPERATION } else { name }))
            }
            _ => self.unknown_operation.get_or_init(|| series.operation(UNKNOWN_LABEL)),
        };
        let row = operation.0.get(usize::from(outcome.caller_class.0));
        let row = row.map(|row| row.get_or_init(|| Box::new([const { AtomicU64::new(0) }; CODE_COUNT])));
        if let Some(count) = row.and_then(|row| row.get(code_index)) {
            count.fetch_add(1, Relaxed);
        }
        series.call_duration.observe(outcome.duration);
        if let Some(duration) = outcome.upstream_duration {
            series.upstream_duration.observe(duration);
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
    pub(super) tiers: [OnceLock<Box<str>>; MAX_CALLER_CLASSES - CREDENTIAL_CLASS_COUNT],
}

impl CallSeries {
    pub(super) fn new(max_agents: usize) -> Arc<Self> {
        Arc::new(Self {
            max_agents: AtomicUsize::new(max_agents),
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

    /// Returns the series of an agent. It is created at the first call, so that the agents that are called first have
    /// their own label, and not the agents that are loaded first. An agent named `-` or `other` shares the series of
    /// that label.
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

    pub(super) fn retain(&self, is_served: &dyn Fn(&AgentId) -> bool) {
        lock(&self.agents).retain(|id, _| is_served(id));
    }

    /// Assigns a caller class to each new tier while classes are free. An assigned class never changes.
    pub(super) fn register_tiers<'a>(&self, tiers: impl Iterator<Item = &'a str>) {
        let assigned: HashSet<&str> = self.tiers.iter().filter_map(|tier| tier.get().map(|name| &**name)).collect();
        let mut free = self.tiers.iter().filter(|tier| tier.get().is_none());
        for tier in tiers.filter(|tier| !assigned.contains(tier) && !CREDENTIAL_CLASSES.contains(tier)) {
            let Some(class) = free.next() else { return };
            class.get_or_init(|| tier.into());
        }
    }

    /// Returns the label of the caller class with the index `class`.
    pub(super) fn caller_class_label(&self, class: usize) -> &str {
        let tier = || self.tiers.get(class - CREDENTIAL_CLASS_COUNT).and_then(OnceLock::get).map(|name| &**name);
        CREDENTIAL_CLASSES.get(class).copied().or_else(tier).unwrap_or(OTHER_LABEL)
    }

    pub(super) fn tier_class(&self, tier: &str) -> Option<CallerClass> {
        let index = self.tiers.iter().map_while(OnceLock::get).position(|name| **name == *tier)?;
        u8::try_from(CREDENTIAL_CLASS_COUNT + index).ok().map(CallerClass)
    }
}

fn uncounted_operation(name: Arc<str>) -> NamedOperation {
    (name, OnceLock::new())
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}

/// Upper bounds of the buckets in microseconds, up to the two minutes of a slow model.
const BUCKET_BOUNDS_MICROS: [u64; 15] = [
    1_000,
    5_000,
    10_000,
    25_000,
    50_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    30_000_000,
    60_000_000,
    120_000_000,
];

/// A distribution of durations.
#[derive(Debug, Default)]
pub(super) struct LatencyHistogram {
    bucket_counts: [AtomicU64; BUCKET_BOUNDS_MICROS.len()],
    overflow_count: AtomicU64,
    sum_micros: AtomicU64,
}

impl LatencyHistogram {
    /// Adds one duration.
    pub(super) fn observe(&self, duration: Duration) {
        let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        let bucket = self.bucket_counts.get(BUCKET_BOUNDS_MICROS.partition_point(|bound| *bound < micros));
        bucket.unwrap_or(&self.overflow_count).fetch_add(1, Relaxed);
        self.sum_micros.fetch_add(micros, Relaxed);
    }

    /// Returns the Prometheus histogram; `None` if nothing was observed.
    pub(super) fn collect(&self) -> Option<proto::Histogram> {
        let mut count_so_far = 0;
        let mut buckets = Vec::with_capacity(BUCKET_BOUNDS_MICROS.len());
        for (bound, count) in BUCKET_BOUNDS_MICROS.iter().zip(&self.bucket_counts) {
            count_so_far += count.load(Relaxed);
            let mut bucket = proto::Bucket::default();
            bucket.set_upper_bound(*bound as f64 / 1e6);
            bucket.set_cumulative_count(count_so_far);
            buckets.push(bucket);
        }
        count_so_far += self.overflow_count.load(Relaxed);
        let mut histogram = proto::Histogram::default();
        histogram.set_bucket(buckets);
        histogram.set_sample_count(count_so_far);
        histogram.set_sample_sum(self.sum_micros.load(Relaxed) as f64 / 1e6);
        (count_so_far > 0).then_some(histogram)
    }
}
