//! A call that needs slots of an agent's concurrency: those of this gateway, and those of all gateways.

use super::{
    agent_limit_metrics::AgentLimitMetrics,
    client_shares::{ClientSlot, CountGuard},
    concurrency_refusal::ConcurrencyRefusal,
    config::ConcurrencyConfig,
};
use crate::{
    fault::Fault,
    telemetry::Metrics,
    values::{ClientKey, MaxShare},
};

/// A call that needs a slot.
#[derive(Clone, Copy)]
pub(super) struct SlotRequest<'a> {
    pub(super) client: ClientKey,
    pub(super) max_share: MaxShare,
    /// Maximum of concurrent calls of all gateways, if there is one.
    pub(super) shared_max: Option<u32>,
    pub(super) config: &'a ConcurrencyConfig,
    pub(super) agent: &'a AgentLimitMetrics,
    pub(super) metrics: &'a Metrics,
}

impl SlotRequest<'_> {
    /// Counts a refused call, and returns its fault.
    #[cold]
    pub(super) fn refuse(&self, refusal: &ConcurrencyRefusal<'_>) -> Fault {
        self.agent.record_limited_request(refusal.limit(), self.metrics);
        refusal.fault(self.agent.id())
    }

    /// Returns how many slots the client may have of an agent with `max` slots in this gateway.
    pub(super) fn max_slots(&self, max: u32) -> u32 {
        self.max_share.of_count(self.max_of_agent(max))
    }

    /// Returns the least maximum of the agent: `max` in this gateway, or that of all gateways.
    pub(super) fn max_of_agent(&self, max: u32) -> u32 {
        self.shared_max.map_or(max, |shared_max| max.min(shared_max))
    }

    /// Counts the call as one of its client in the wait queues, of which the client may have its share.
    pub(super) fn join_queue<'a>(&self, client_slot: Option<&'a ClientSlot>) -> Result<Option<CountGuard<'a>>, Fault> {
        let Some(client_slot) = client_slot.filter(|_| self.config.max_queued > 0) else { return Ok(None) };
        let max_queued = self.max_share.of_count(self.config.max_queued);
        client_slot.usage().join_queue(max_queued).map(Some).ok_or_else(|| {
            let retry_after = self.config.queue_timeout.get();
            self.refuse(&ConcurrencyRefusal::QueueShare { max_queued, retry_after })
        })
    }
}
