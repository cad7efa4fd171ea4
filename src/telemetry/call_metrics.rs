//! The metrics of one agent: its calls by operation, caller class and code, and the tries to reach it. The route of an
//! agent holds them, so that a call is counted without a lookup.

use super::{
    agent_series::{
        ABORTED_INDEX, AgentSeries, CallSeries, INACTIVE_INDEX, OK_INDEX, OperationCounters, UNKNOWN_LABEL, count_at,
    },
    caller_class::CallerClass,
    exemplars::TraceIdHex,
    metric_labels::{AttemptResult, CallBlame, LimitKind, ShadowRule, StatusClass, UpstreamConnection},
};
use crate::{
    agent::{Agent, AgentId},
    fault::{Blame, FaultCode},
};
use std::{
    sync::{Arc, OnceLock, atomic::Ordering::Relaxed},
    time::{Duration, Instant},
};

/// The operation under which requests to the directory are counted; they belong to no agent.
const DIRECTORY_OPERATION: &str = "directory";
/// The label of the implied operation (R14). A document cannot give an operation this name.
const IMPLIED_OPERATION: &str = "invoke";

/// The outcome of one call.
#[derive(Clone, Copy, Debug)]
pub struct CallOutcome {
    /// The operation's index in the agent's list, if the operation was found.
    pub operation: Option<usize>,
    /// The caller's class.
    pub caller_class: CallerClass,
    /// The code of the fault; `None` for a successful call.
    pub code: Option<FaultCode>,
    /// Who has to change something; `None` for a successful call.
    pub blame: Option<Blame>,
    /// The HTTP status; 0 if the caller left before the response.
    pub status: u16,
    /// Time from the first byte received to the last byte sent.
    pub duration: Duration,
    /// Time that the upstream took, if the call reached it.
    pub upstream_duration: Option<Duration>,
    /// Time up to the head of the response in which the agent was not waited for, if the call reached it.
    pub gateway_duration: Option<Duration>,
    /// Length of the request body.
    pub bytes_in: u64,
    /// Length of the response body.
    pub bytes_out: u64,
    /// The trace of the call, if it is recorded.
    pub trace_id: Option<TraceIdHex>,
}

/// The metrics of one agent. An idle agent needs a few words of memory.
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
    /// Creates the metrics of an agent, or of requests without one. New metrics for the same id continue the counters.
    pub(super) fn new(calls: &Arc<CallSeries>, agent: Option<&Agent>) -> Arc<Self> {
        Arc::new(Self {
            calls: Arc::clone(calls),
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

    /// Counts one call.
    pub fn record(&self, outcome: &CallOutcome) {
        self.record_with_code(outcome, code_index(outcome, OK_INDEX), CallBlame::None);
    }

    /// Counts a call that ended without a complete response, because the caller disconnected or the call was cancelled.
    /// The code is that of the fault, or `aborted` without a fault.
    pub fn record_aborted(&self, outcome: &CallOutcome) {
        self.record_with_code(outcome, code_index(outcome, ABORTED_INDEX), CallBlame::Aborted);
    }

    /// Sets the number of the agent's open circuit breakers.
    pub fn set_open_breakers(&self, open: usize) {
        self.series().open_circuit_breakers.store(open as u64, Relaxed);
    }

    /// Sets the number of the agent's open circuit breakers after its route was rebuilt. Creates no series.
    pub fn restore_open_breakers(&self, open: usize) {
        if let Some(series) = self.id.as_ref().and_then(|id| self.calls.existing_series(id)) {
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

    /// Counts a call that a limit refused.
    pub fn record_limited_request(&self, limit: LimitKind) {
        self.series().limited_requests.increment(limit as usize);
    }

    /// Counts a call that a rule in shadow mode would have refused.
    pub fn record_shadow_denial(&self, rule: ShadowRule) {
        self.series().shadow_denials.increment(rule as usize);
    }

    /// Counts a call as waiting for a concurrency permit until the returned guard is dropped, which records how long it
    /// waited.
    pub fn track_queued_call(&self) -> QueuedCallGuard {
        let series = Arc::clone(self.series());
        series.queued_calls.fetch_add(1, Relaxed);
        QueuedCallGuard { series, since: Instant::now() }
    }

    /// Counts a try to call the agent that ended.
    pub fn record_attempt(&self, result: AttemptResult) {
        count_at(&self.series().attempts, result as usize, 1);
    }

    /// Counts a try that follows another one of the same call.
    pub fn record_retry(&self) {
        self.series().retries.fetch_add(1, Relaxed);
    }

    /// Counts a call that has its connection to the agent, or gets none.
    pub fn record_connection(&self, connection: UpstreamConnection) {
        count_at(&self.series().connections, connection as usize, 1);
    }

    /// Counts a connection that was opened, with the time that it took.
    pub fn record_opened_connection(&self, duration: Duration) {
        self.record_connection(UpstreamConnection::Opened);
        self.series().connect_duration.observe(duration);
    }

    /// Returns the label under which calls of this agent have been counted; `None` if there were none. Agents beyond
    /// `metrics.max_agent_labels` share one.
    pub fn counted_label(&self) -> Option<Arc<str>> {
        let counted = || self.id.as_ref().and_then(|id| self.calls.existing_series(id));
        self.series.get().cloned().or_else(counted).map(|series| Arc::clone(&series.label))
    }

    fn series(&self) -> &Arc<AgentSeries> {
        self.series.get_or_init(|| self.calls.series(self.id.as_ref()))
    }

    fn record_with_code(&self, outcome: &CallOutcome, code_index: usize, without_fault: CallBlame) {
        let series = self.series();
        // Agents that share a label do not have separate operations.
        let operation_index = outcome.operation.filter(|_| !Arc::ptr_eq(series, &self.calls.other));
        let operation = match operation_index.and_then(|at| self.operations.get(at)) {
            Some((name, counters)) => {
                counters.get_or_init(|| series.operation(if name.is_empty() { IMPLIED_OPERATION } else { name }))
            }
            _ => self.unknown_operation.get_or_init(|| series.operation(UNKNOWN_LABEL)),
        };
        if let Some(by_code) = operation.0.get(usize::from(outcome.caller_class.0)) {
            by_code.increment(code_index);
        }
        let blame = outcome.blame.map_or(without_fault, CallBlame::of);
        let of_blame = series.call_durations.get(blame as usize);
        if let Some(durations) = of_blame.and_then(|classes| classes.get(StatusClass::of(outcome.status) as usize)) {
            durations.observe(outcome.duration, outcome.trace_id.as_ref());
        }
        if let Some(duration) = outcome.upstream_duration {
            series.upstream_duration.observe(duration);
        }
        if let Some(duration) = outcome.gateway_duration {
            series.gateway_duration.observe(duration);
        }
        series.request_bytes.fetch_add(outcome.bytes_in, Relaxed);
        series.response_bytes.fetch_add(outcome.bytes_out, Relaxed);
    }
}

/// Returns the index of the counter of a call; `without_fault` for a call without a fault.
fn code_index(outcome: &CallOutcome, without_fault: usize) -> usize {
    match (outcome.code, outcome.blame) {
        (Some(FaultCode::AgentUnavailable), Some(Blame::Caller)) => INACTIVE_INDEX,
        (code, _) => code.map_or(without_fault, |code| 1 + code as usize),
    }
}

fn uncounted_operation(name: Arc<str>) -> NamedOperation {
    (name, OnceLock::new())
}

/// A call that waits for a concurrency permit.
#[derive(Debug)]
pub struct QueuedCallGuard {
    series: Arc<AgentSeries>,
    since: Instant,
}

impl Drop for QueuedCallGuard {
    fn drop(&mut self) {
        self.series.queued_calls.fetch_sub(1, Relaxed);
        self.series.queue_wait.observe(self.since.elapsed());
    }
}
