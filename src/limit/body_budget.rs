//! Memory for callers' bodies that are read before they pass: one budget for all of them, of which one client has its
//! share. A body counts with what has arrived, in steps. A body that arrives in one piece with its head is not counted:
//! such bodies are short, and the agents' concurrency limits and wait queues bound their number.

use crate::{
    fault::{Fault, FaultCode},
    telemetry::{LimitKind, Metrics},
    values::{ClientKey, CountedHold, KeyedCounts, MaxShare},
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

/// The step in which bodies are counted, in bytes.
const STEP: usize = 16 << 10;

/// When a caller may try again that was refused because of the budget.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The memory in use.
#[derive(Debug, Default)]
pub(super) struct BodyBudget {
    used: AtomicUsize,
    of_clients: Arc<KeyedCounts<ClientKey>>,
}

/// The bounds in force.
#[derive(Clone, Copy, Debug)]
pub(super) struct BodyBudgetLimits {
    pub(super) max_bytes: usize,
    pub(super) max_share: MaxShare,
}

/// Memory that one body uses, which is returned when this is dropped.
#[derive(Debug)]
pub struct BodyReservation {
    budget: Arc<BodyBudget>,
    metrics: Arc<Metrics>,
    limits: BodyBudgetLimits,
    client: ClientKey,
    of_client: Option<CountedHold<ClientKey>>,
    bytes: usize,
}

impl BodyReservation {
    /// Creates a reservation of nothing.
    pub(super) fn new(
        budget: &Arc<BodyBudget>,
        limits: BodyBudgetLimits,
        client: ClientKey,
        metrics: &Arc<Metrics>,
    ) -> Self {
        let (budget, metrics) = (Arc::clone(budget), Arc::clone(metrics));
        Self { budget, metrics, limits, client, of_client: None, bytes: 0 }
    }

    /// Grows the reservation to at least `bytes`.
    ///
    /// # Errors
    /// 429 when the client's bodies take its share, 503 when all bodies take the whole budget.
    pub fn grow_to(&mut self, bytes: usize) -> Result<(), Fault> {
        if bytes <= self.bytes {
            return Ok(());
        }
        let growth = bytes.next_multiple_of(STEP) - self.bytes;
        let BodyBudgetLimits { max_bytes, max_share } = self.limits;
        let max_of_client = max_share.of(max_bytes);
        let is_within_share = match &mut self.of_client {
            Some(hold) => hold.try_grow(growth, max_of_client),
            none => {
                *none = self.budget.of_clients.try_hold(self.client, growth, max_of_client);
                none.is_some()
            }
        };
        if !is_within_share {
            let text = format!(
                "The caller's bodies take its share of the memory for bodies, {} MiB (limits.max_share)",
                max_of_client >> 20
            );
            return Err(self.refuse(FaultCode::RateLimited, text).with_setting("limits.max_share"));
        }
        // What is added to the client and not to the whole is returned with the refused body.
        let used = self
            .budget
            .used
            .fetch_update(Relaxed, Relaxed, |used| used.checked_add(growth).filter(|used| *used <= max_bytes));
        if used.is_err() {
            let text = format!(
                "The bodies of all callers take the whole memory for bodies, {} MiB (limits.max_buffered_bodies)",
                max_bytes >> 20
            );
            return Err(self.refuse(FaultCode::Overloaded, text).with_setting("limits.max_buffered_bodies"));
        }
        self.bytes += growth;
        Ok(())
    }

    fn refuse(&self, code: FaultCode, text: String) -> Fault {
        self.metrics.record_limited_request(LimitKind::BufferedBodies);
        Fault::new(code, text).with_retry_after(RETRY_AFTER)
    }
}

impl Drop for BodyReservation {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.budget.used.fetch_sub(self.bytes, Relaxed);
        }
    }
}
