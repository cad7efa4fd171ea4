//! Call counters by agent, operation, caller class and code. The prometheus crate's vectors are not used here: they
//! look up a child by a hash of the concatenated label values, so agent `a` with operation `bc` and agent `ab` with
//! operation `c` would share a counter, and they need every child before its first use.

use super::histogram::Histogram;
use crate::{
    agent::{Agent, AgentId},
    fault::Code,
};
use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

const GROUPS: usize = 16;
pub(super) const KINDS: [&str; 5] = ["none", "key", "bearer", "certificate", "anonymous"];
/// `ok`, the codes of the fault table, and `aborted`.
const CODES: usize = 2 + Code::ALL.len();
/// Maximum number of operations per agent with their own counters; further ones share `-`.
const OPERATIONS: usize = 64;
const UNKNOWN: &str = "-";
/// The operation under which requests to the directory are counted; they belong to no agent.
const DIRECTORY: &str = "directory";
pub(super) const OTHER: &str = "other";
/// The label of the implied operation (R14). A document cannot give an operation this name.
const IMPLIED: &str = "invoke";

/// The class of a caller, as a label: a credential type or a configured tier, never a name that the caller chose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group(u8);

impl Group {
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
pub struct Ended {
    /// The operation's index in the agent's list, if the operation was found.
    pub operation: Option<usize>,
    /// The caller's class.
    pub group: Group,
    /// The fault's code; `None` for a served call.
    pub code: Option<Code>,
    /// Time from the first byte received to the last byte sent.
    pub total: Duration,
    /// Time that the upstream took, if the call reached it.
    pub agent: Option<Duration>,
}

pub(super) type Codes = [AtomicU64; CODES];

/// The counters of one operation; the row of a caller class is allocated at its first call.
#[derive(Debug, Default)]
pub(super) struct Operation(pub(super) [OnceLock<Box<Codes>>; GROUPS]);

/// The counters behind one value of the label `agent`.
#[derive(Debug)]
pub(super) struct Series {
    pub(super) label: Arc<str>,
    pub(super) call: Histogram,
    pub(super) agent: Histogram,
    pub(super) operations: Mutex<BTreeMap<Arc<str>, Arc<Operation>>>,
    /// The number of open circuit breakers, and how often one opened.
    pub(super) breakers: (AtomicU64, AtomicU64),
    /// The adaptive concurrency limit; 0 if none is in effect.
    pub(super) learnt: AtomicU64,
}

impl Series {
    fn new(label: Arc<str>) -> Arc<Self> {
        let (call, agent, breakers, learnt) = Default::default();
        Arc::new(Self { label, call, agent, operations: Mutex::default(), breakers, learnt })
    }

    fn operation(&self, name: &str) -> Arc<Operation> {
        let mut operations = lock(&self.operations);
        let name = if operations.len() < OPERATIONS || operations.contains_key(name) { name } else { UNKNOWN };
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
    calls: Arc<Calls>,
    id: Option<AgentId>,
    series: OnceLock<Arc<Series>>,
    unnamed: OnceLock<Arc<Operation>>,
    operations: Box<[Named]>,
}

/// An operation's name, and its counters after its first call.
type Named = (Arc<str>, OnceLock<Arc<Operation>>);

impl AgentMetrics {
    /// Counts one call.
    pub fn record(&self, ended: &Ended) {
        self.count(ended, ended.code.map_or(0, |code| 1 + code as usize));
    }

    /// Counts a call that ended without a complete response: the caller disconnected, or the call was cancelled. The
    /// code is the fault's if there is one, else `aborted`.
    pub fn record_aborted(&self, ended: &Ended) {
        self.count(ended, ended.code.map_or(CODES - 1, |code| 1 + code as usize));
    }

    /// Sets the number of the agent's open circuit breakers.
    pub fn breakers(&self, open: usize) {
        self.series().breakers.0.store(open as u64, Relaxed);
    }

    /// As [`AgentMetrics::set_open_breakers`], after the agent's route was rebuilt; never creates a series.
    pub fn breakers_are(&self, open: usize) {
        let known = self.id.as_ref().and_then(|id| lock(&self.calls.agents).get(id).cloned());
        if let Some(series) = known {
            series.breakers.0.store(open as u64, Relaxed);
        }
    }

    /// Counts a circuit breaker that opens.
    pub fn breaker_opened(&self) {
        self.series().breakers.1.fetch_add(1, Relaxed);
    }

    /// Sets the agent's adaptive concurrency limit.
    pub fn learnt(&self, bound: u32) {
        self.series().learnt.store(bound.into(), Relaxed);
    }

    fn series(&self) -> &Arc<Series> {
        self.series.get_or_init(|| self.calls.series(self.id.as_ref()))
    }

    fn count(&self, ended: &Ended, at: usize) {
        let series = self.series();
        // Agents that share a label do not have separate operations.
        let named = ended.operation.filter(|_| !Arc::ptr_eq(series, &self.calls.other));
        let operation = match named.and_then(|at| self.operations.get(at)) {
            Some((name, cell)) => cell.get_or_init(|| series.operation(if name.is_empty() { IMPLIED } else { name })),
            _ => self.unnamed.get_or_init(|| series.operation(UNKNOWN)),
        };
        let row = operation.0.get(usize::from(ended.group.0));
        let row = row.map(|row| row.get_or_init(|| Box::new([const { AtomicU64::new(0) }; CODES])));
        if let Some(count) = row.and_then(|row| row.get(at)) {
            count.fetch_add(1, Relaxed);
        }
        series.call.observe(ended.total);
        if let Some(took) = ended.agent {
            series.agent.observe(took);
        }
    }
}

/// The series of all agents, and the limit on how many agents have their own.
#[derive(Debug)]
pub(super) struct Calls {
    most: AtomicUsize,
    pub(super) agents: Mutex<HashMap<AgentId, Arc<Series>>>,
    pub(super) unknown: Arc<Series>,
    pub(super) other: Arc<Series>,
    pub(super) tiers: [OnceLock<Box<str>>; GROUPS - KINDS.len()],
}

impl Calls {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            most: AtomicUsize::new(super::MetricsConfig::default().most_agents),
            agents: Mutex::default(),
            unknown: Series::new(UNKNOWN.into()),
            other: Series::new(OTHER.into()),
            tiers: Default::default(),
        })
    }

    pub(super) fn bound(&self, most_agents: usize) {
        self.most.store(most_agents, Relaxed);
    }

    pub(super) fn handle(self: &Arc<Self>, agent: Option<&Agent>) -> Arc<AgentMetrics> {
        Arc::new(AgentMetrics {
            calls: Arc::clone(self),
            id: agent.map(|agent| agent.id.clone()),
            series: OnceLock::new(),
            unnamed: OnceLock::new(),
            operations: match agent {
                Some(agent) => agent.operations.iter().map(|operation| named(Arc::clone(&operation.name))).collect(),
                None => [named(DIRECTORY.into())].into(),
            },
        })
    }

    /// Returns the series of an agent; created at its first call, so that the agents called first have their own label,
    /// not the agents loaded first. An agent named `-` or `other` shares the series of that label.
    fn series(&self, id: Option<&AgentId>) -> Arc<Series> {
        let Some(id) = id.filter(|id| id.as_str() != UNKNOWN) else {
            return Arc::clone(&self.unknown);
        };
        let mut agents = lock(&self.agents);
        match agents.get(id) {
            Some(series) => Arc::clone(series),
            None if id.as_str() == OTHER || agents.len() >= self.most.load(Relaxed) => Arc::clone(&self.other),
            None => Arc::clone(agents.entry(id.clone()).or_insert_with(|| Series::new(id.shared()))),
        }
    }

    pub(super) fn retain(&self, known: &dyn Fn(&AgentId) -> bool) {
        lock(&self.agents).retain(|id, _| known(id));
    }

    /// Assigns each new tier a caller class while there are free ones; assigned names never change.
    pub(super) fn name_tiers<'a>(&self, tiers: impl Iterator<Item = &'a str>) {
        let known: HashSet<&str> = self.tiers.iter().filter_map(|tier| tier.get().map(|name| &**name)).collect();
        let mut free = self.tiers.iter().filter(|tier| tier.get().is_none());
        for tier in tiers.filter(|tier| !known.contains(tier) && !KINDS.contains(tier)) {
            let Some(place) = free.next() else { return };
            place.get_or_init(|| tier.into());
        }
    }

    pub(super) fn tier(&self, tier: &str) -> Option<Group> {
        let at = self.tiers.iter().map_while(OnceLock::get).position(|name| **name == *tier)?;
        u8::try_from(KINDS.len() + at).ok().map(Group)
    }
}

fn named(name: Arc<str>) -> Named {
    (name, OnceLock::new())
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
