//! The values of the metrics that have the label `agent`, for each of its values. The vectors of the prometheus crate
//! are not used here: they look up a child by a hash of the concatenated label values, so that agent `a` with operation
//! `bc` and agent `ab` with operation `c` would share a counter.

use super::{
    call_counts::{CallCounts, DurationCounts},
    caller_class::{MAX_CALLER_CLASSES, TierClasses},
    exemplars::TracedHistogram,
    latency_histogram::LazyHistogram,
    metric_labels::{AttemptResult, CallBlame, LimitKind, ShadowRule, StatusClass, UpstreamConnection},
};
use crate::{agent::AgentId, fault::FaultCode};
use parking_lot::Mutex;
use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
};

/// `ok`, the codes of the fault table, calls of an agent that was made inactive, and `aborted`.
pub(super) const CODE_COUNT: usize = 3 + FaultCode::ALL.len();
pub(super) const OK_INDEX: usize = 0;
pub(super) const ABORTED_INDEX: usize = CODE_COUNT - 1;
/// Their code is `AgentUnavailable`, and the caller is to blame.
pub(super) const INACTIVE_INDEX: usize = CODE_COUNT - 2;
/// Maximum number of operations per agent with their own counters; further operations share `-`.
const MAX_OPERATIONS_PER_AGENT: usize = 64;
pub(super) const UNKNOWN_LABEL: &str = "-";
const OTHER_LABEL: &str = "other";

/// Counters that are allocated by the first count.
#[derive(Debug, Default)]
pub(super) struct LazyCounters<const N: usize>(OnceLock<Box<[AtomicU64; N]>>);

impl<const N: usize> LazyCounters<N> {
    /// Increments the counter with index `at`.
    pub(super) fn increment(&self, at: usize) {
        let counters = self.0.get_or_init(|| Box::new([const { AtomicU64::new(0) }; N]));
        count_at(&**counters, at, 1);
    }

    /// Returns the counts; none before the first count.
    pub(super) fn counts(&self) -> impl Iterator<Item = u64> {
        self.0.get().into_iter().flat_map(|counters| counters.iter().map(|counter| counter.load(Relaxed)))
    }
}

/// The counters of one operation, by the class of the caller and the code.
#[derive(Debug, Default)]
pub(super) struct OperationCounters(pub(super) [LazyCounters<CODE_COUNT>; MAX_CALLER_CLASSES]);

/// The durations of calls, by blame and class of status: quick refusals would hide slow calls in one histogram. Each is
/// allocated by its first call.
pub(super) type CallDurations = [[TracedHistogram; StatusClass::ALL.len()]; CallBlame::ALL.len()];

/// The values of one value of the label `agent`.
#[derive(Debug, Default)]
pub(super) struct AgentSeries {
    pub(super) label: Arc<str>,
    pub(super) call_durations: CallDurations,
    pub(super) upstream_duration: LazyHistogram,
    pub(super) gateway_duration: LazyHistogram,
    pub(super) connect_duration: LazyHistogram,
    pub(super) queue_wait: LazyHistogram,
    pub(super) request_bytes: AtomicU64,
    pub(super) response_bytes: AtomicU64,
    pub(super) queued_calls: AtomicU64,
    pub(super) attempts: [AtomicU64; AttemptResult::ALL.len()],
    pub(super) retries: AtomicU64,
    pub(super) connections: [AtomicU64; UpstreamConnection::ALL.len()],
    pub(super) operations: Mutex<BTreeMap<Arc<str>, Arc<OperationCounters>>>,
    /// Number of open circuit breakers.
    pub(super) open_circuit_breakers: AtomicU64,
    /// How often a circuit breaker opened.
    pub(super) circuit_breaker_opens: AtomicU64,
    /// The adaptive concurrency limit; 0 if none is in effect.
    pub(super) adaptive_limit: AtomicU64,
    /// Calls that a limit refused.
    pub(super) limited_requests: LazyCounters<{ LimitKind::ALL.len() }>,
    /// Calls that a rule in shadow mode would have refused.
    pub(super) shadow_denials: LazyCounters<{ ShadowRule::ALL.len() }>,
}

impl AgentSeries {
    fn new(label: Arc<str>) -> Arc<Self> {
        Arc::new(Self { label, ..Self::default() })
    }

    /// Returns the calls so far.
    fn counts(&self) -> CallCounts {
        let mut counts = CallCounts::default();
        for (blame, (classes, count)) in CallBlame::ALL.iter().zip(self.call_durations.iter().zip(&mut counts.by_blame))
        {
            let mut durations = DurationCounts::default();
            *count = classes.iter().map(|class| durations.add_histogram(&class.durations)).sum();
            if matches!(blame, CallBlame::None | CallBlame::Agent) {
                counts.durations.add(&durations);
            }
        }
        counts.gateway_durations.add_histogram(&self.gateway_duration);
        counts
    }

    pub(super) fn operation(&self, name: &str) -> Arc<OperationCounters> {
        let mut operations = self.operations.lock();
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

/// Adds `count` to the counter with index `at`.
pub(super) fn count_at(counters: &[AtomicU64], at: usize, count: u64) {
    if let Some(counter) = counters.get(at) {
        counter.fetch_add(count, Relaxed);
    }
}

/// The series of all agents, and the limit on how many agents have their own.
#[derive(Debug)]
pub(super) struct CallSeries {
    max_agents: AtomicUsize,
    pub(super) agents: Mutex<HashMap<AgentId, Arc<AgentSeries>>>,
    pub(super) unknown: Arc<AgentSeries>,
    pub(super) other: Arc<AgentSeries>,
    /// The calls of agents whose series were removed, so that totals never fall.
    removed: Mutex<CallCounts>,
    pub(super) tiers: TierClasses,
}

impl CallSeries {
    pub(super) fn new(max_agents: usize) -> Arc<Self> {
        Arc::new(Self {
            max_agents: AtomicUsize::new(max_agents),
            agents: Mutex::default(),
            unknown: AgentSeries::new(UNKNOWN_LABEL.into()),
            other: AgentSeries::new(OTHER_LABEL.into()),
            removed: Mutex::default(),
            tiers: TierClasses::default(),
        })
    }

    pub(super) fn set_max_agents(&self, max_agents: usize) {
        self.max_agents.store(max_agents, Relaxed);
    }

    /// Returns the series of an agent. It is created at the first call, so that the agents that are called first have
    /// their own label, and not the agents that are loaded first. An agent named `-` or `other` shares the series of
    /// that label.
    pub(super) fn series(&self, id: Option<&AgentId>) -> Arc<AgentSeries> {
        let Some(id) = id.filter(|id| id.as_str() != UNKNOWN_LABEL) else {
            return Arc::clone(&self.unknown);
        };
        let mut agents = self.agents.lock();
        match agents.get(id) {
            Some(series) => Arc::clone(series),
            None if id.as_str() == OTHER_LABEL || agents.len() >= self.max_agents.load(Relaxed) => {
                Arc::clone(&self.other)
            }
            None => Arc::clone(agents.entry(id.clone()).or_insert_with(|| AgentSeries::new(id.to_shared_str()))),
        }
    }

    /// Returns the series of an agent that was called.
    pub(super) fn existing_series(&self, id: &AgentId) -> Option<Arc<AgentSeries>> {
        self.agents.lock().get(id).cloned()
    }

    pub(super) fn retain(&self, is_served: &dyn Fn(&AgentId) -> bool) {
        let mut agents = self.agents.lock();
        let mut removed = self.removed.lock();
        agents.retain(|id, series| {
            let is_served = is_served(id);
            if !is_served {
                removed.add(&series.counts());
            }
            is_served
        });
    }

    /// Calls `visit` with the calls so far of each agent that has its own label, and returns those of all.
    pub(super) fn read_counts(&self, mut visit: impl FnMut(&Arc<str>, &CallCounts)) -> CallCounts {
        let (agents, mut total) = {
            let agents = self.agents.lock();
            // Before the lock ends, so that a series that is removed now is counted once.
            (agents.values().cloned().collect::<Vec<_>>(), *self.removed.lock())
        };
        for series in agents {
            let counts = series.counts();
            visit(&series.label, &counts);
            total.add(&counts);
        }
        [&self.unknown, &self.other].into_iter().for_each(|series| total.add(&series.counts()));
        total
    }

    /// Returns the series of all values of the label.
    pub(super) fn all_series(&self) -> Vec<Arc<AgentSeries>> {
        let mut all: Vec<Arc<AgentSeries>> = self.agents.lock().values().cloned().collect();
        all.extend([Arc::clone(&self.unknown), Arc::clone(&self.other)]);
        all
    }
}
