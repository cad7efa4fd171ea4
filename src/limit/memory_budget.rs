//! Memory for callers' bodies that are read before they pass, and for complete answers until their callers have read them:
//! a budget for each, of which one client has its share. A body counts with what has arrived, in steps. A body that
//! arrives in one piece with its head is not counted: such bodies are short, and the agents' concurrency limits and wait
//! queues bound their number.

use super::{config::LimitConfig, limit_refusal::setting_of};
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

/// What a budget is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BudgetKind {
    Bodies,
    /// A client that holds none may hold one of any length: an answer longer than the share would never be given.
    Answers,
}

impl BudgetKind {
    fn noun(self) -> &'static str {
        match self {
            Self::Bodies => "bodies",
            Self::Answers => "unread answers",
        }
    }

    fn limit(self) -> LimitKind {
        match self {
            Self::Bodies => LimitKind::BufferedBodies,
            Self::Answers => LimitKind::BufferedAnswers,
        }
    }
}

/// The step in which memory is counted, in bytes.
const STEP: usize = 16 << 10;

/// When a caller may try again that was refused because of the budget.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The memory in use.
#[derive(Debug, Default)]
pub(super) struct MemoryBudget {
    used: AtomicUsize,
    of_clients: Arc<KeyedCounts<ClientKey>>,
}

/// The bounds in force.
#[derive(Clone, Copy, Debug)]
pub(super) struct MemoryBudgetLimits {
    pub(super) kind: BudgetKind,
    pub(super) max_bytes: usize,
    pub(super) max_share: MaxShare,
}

impl MemoryBudgetLimits {
    /// Returns the bounds of a budget that the configuration has.
    pub(super) fn of(kind: BudgetKind, config: &LimitConfig) -> Self {
        let max_bytes = match kind {
            BudgetKind::Bodies => config.max_buffered_bodies,
            BudgetKind::Answers => config.max_buffered_answers,
        };
        Self { kind, max_bytes: max_bytes.get(), max_share: config.max_share }
    }
}

/// Memory that one body or answer uses, which is returned when this is dropped.
#[derive(Debug)]
pub struct MemoryReservation {
    budget: Arc<MemoryBudget>,
    metrics: Arc<Metrics>,
    limits: MemoryBudgetLimits,
    client: ClientKey,
    of_client: Option<CountedHold<ClientKey>>,
    bytes: usize,
}

impl MemoryReservation {
    /// Creates a reservation of nothing.
    pub(super) fn new(
        budget: &Arc<MemoryBudget>,
        limits: MemoryBudgetLimits,
        client: ClientKey,
        metrics: &Arc<Metrics>,
    ) -> Self {
        let (budget, metrics) = (Arc::clone(budget), Arc::clone(metrics));
        Self { budget, metrics, limits, client, of_client: None, bytes: 0 }
    }

    /// Grows the reservation to at least `bytes`.
    ///
    /// # Errors
    /// 429 when the client has its share, 503 when all clients have the whole budget.
    pub fn grow_to(&mut self, bytes: usize) -> Result<(), Fault> {
        if bytes <= self.bytes {
            return Ok(());
        }
        let growth = bytes.next_multiple_of(STEP) - self.bytes;
        let MemoryBudgetLimits { kind, max_bytes, max_share } = self.limits;
        let max_of_client = max_share.of(max_bytes);
        // What is lent beyond the share has to be the client's first: it holds nothing else.
        let lent = if kind == BudgetKind::Answers { growth } else { 0 };
        let is_within_share = match &mut self.of_client {
            Some(hold) => hold.try_grow(growth, max_of_client),
            none => {
                *none = self.budget.of_clients.try_hold(self.client, growth, max_of_client.max(lent));
                none.is_some()
            }
        };
        if !is_within_share {
            let text = format!(
                "The caller's {0} take its share of the memory for {0}, {1} MiB (limits.max_share)",
                kind.noun(),
                max_of_client >> 20
            );
            return Err(self.refuse(FaultCode::RateLimited, text).with_setting("limits.max_share"));
        }
        // What is added to the client and not to the whole is returned with the refused body.
        let used = self.budget.used.fetch_update(Relaxed, Relaxed, |used| {
            used.checked_add(growth).filter(|used| *used <= max_bytes.max(lent))
        });
        if used.is_err() {
            let text = format!(
                "The {0} of all callers take the whole memory for {0}, {1} MiB ({2})",
                kind.noun(),
                max_bytes >> 20,
                setting_of(kind.limit())
            );
            return Err(self.refuse(FaultCode::Overloaded, text).with_setting(setting_of(kind.limit())));
        }
        self.bytes += growth;
        Ok(())
    }

    fn refuse(&self, code: FaultCode, text: String) -> Fault {
        self.metrics.record_limited_request(self.limits.kind.limit());
        Fault::new(code, text).with_retry_after(RETRY_AFTER)
    }
}

impl Drop for MemoryReservation {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.budget.used.fetch_sub(self.bytes, Relaxed);
        }
    }
}
