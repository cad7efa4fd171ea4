//! What the limits of one agent report to its metrics: refused calls, calls that wait, and the adaptive limit.

use crate::{
    agent::AgentId,
    telemetry::{AgentMetrics, LimitKind, Metrics, QueuedCallGuard},
};
use arc_swap::ArcSwapOption;
use std::sync::Arc;

/// An agent, and its metrics once its route has set them.
#[derive(Debug)]
pub(super) struct AgentLimitMetrics {
    id: AgentId,
    metrics: ArcSwapOption<AgentMetrics>,
}

impl AgentLimitMetrics {
    pub(super) fn new(id: AgentId) -> Self {
        Self { id, metrics: ArcSwapOption::empty() }
    }

    pub(super) fn id(&self) -> &AgentId {
        &self.id
    }

    pub(super) fn set(&self, metrics: &Arc<AgentMetrics>) {
        self.metrics.store(Some(Arc::clone(metrics)));
    }

    /// Counts a call that a limit refused, without an agent while the agent has no metrics.
    #[cold]
    pub(super) fn record_limited_request(&self, limit: LimitKind, all_metrics: &Metrics) {
        match &*self.metrics.load() {
            Some(metrics) => metrics.record_limited_request(limit),
            None => all_metrics.record_limited_request(limit),
        }
    }

    /// Counts a call as waiting until the guard is dropped.
    pub(super) fn track_queued_call(&self) -> Option<QueuedCallGuard> {
        self.metrics.load().as_ref().map(|metrics| metrics.track_queued_call())
    }

    pub(super) fn set_adaptive_limit(&self, limit: u32) {
        if let Some(metrics) = &*self.metrics.load() {
            metrics.set_adaptive_limit(limit);
        }
    }
}
