//! The slots of all agents, and the task that leases them.

use super::{
    lease_context::{LeaseContext, LeaseWake},
    lease_exchanger::{LeaseExchanger, LimiterTable},
    lease_server::LeaseServer,
    shared_concurrency_limiter::SharedConcurrencyLimiter,
};
use crate::{agent::AgentId, limit::on_error::OnError, values::sha256};
use std::{
    fmt,
    num::NonZeroU32,
    sync::{Arc, Weak, mpsc},
    time::Duration,
};
use tokio::task::JoinSet;

/// How long a process that stops waits until its slots are given back.
const RETURN_TIMEOUT: Duration = Duration::from_secs(1);

/// The slots of all agents in this gateway.
pub(in crate::limit) struct SharedSlots {
    context: Arc<LeaseContext>,
    limiters: LimiterTable,
    /// The exchanger. It ends with this.
    _exchanger: JoinSet<()>,
}

impl fmt::Debug for SharedSlots {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("SharedSlots").field("context", &self.context).finish_non_exhaustive()
    }
}

impl SharedSlots {
    /// Starts the exchanger. Requires a tokio runtime.
    pub(in crate::limit) fn start(server: Arc<dyn LeaseServer>, on_error: OnError) -> Self {
        let (wakes, received) = tokio::sync::mpsc::unbounded_channel();
        let context = Arc::new(LeaseContext::new(server, wakes));
        context.set_on_error(on_error);
        let limiters = LimiterTable::default();
        let mut exchanger = JoinSet::new();
        exchanger.spawn(LeaseExchanger::new(&context, &limiters, received).run());
        Self { context, limiters, _exchanger: exchanger }
    }

    /// Sets what decides while the server cannot be reached.
    pub(in crate::limit) fn set_on_error(&self, on_error: OnError) {
        self.context.set_on_error(on_error);
    }

    /// Returns the limiter of an agent, with this maximum. There is one for each agent, whose slots stay when the maximum
    /// changes.
    pub(in crate::limit) fn open(&self, agent: &AgentId, max: NonZeroU32) -> Arc<SharedConcurrencyLimiter> {
        let id = slot_id(agent);
        let mut limiters = self.limiters.lock();
        if let Some(limiter) = limiters.get(&id).and_then(Weak::upgrade) {
            limiter.account().lock().set_max(max.get());
            return limiter;
        }
        // Agents come and go with the sources: what is gone is removed when others come.
        limiters.retain(|_, limiter| limiter.strong_count() > 0);
        let limiter = SharedConcurrencyLimiter::new(id, max, &self.context);
        limiters.insert(id, Arc::downgrade(&limiter));
        limiter
    }

    /// Gives back every slot that no call uses, and keeps none from now on. Blocks for a short time.
    pub(in crate::limit) fn return_all(&self) {
        let (done, is_done) = mpsc::sync_channel(1);
        self.context.wake(LeaseWake::ReturnAll(done));
        // Without it, the slots are free after the lifetime of the lease.
        let _ = is_done.recv_timeout(RETURN_TIMEOUT);
    }
}

/// Returns what names an agent's slots in the server, equal in every gateway.
fn slot_id(agent: &AgentId) -> u128 {
    let hash = sha256(agent.as_str().as_bytes());
    let (half, _) = hash.split_first_chunk::<16>().unwrap_or((&[0; 16], &[]));
    u128::from_be_bytes(*half)
}
