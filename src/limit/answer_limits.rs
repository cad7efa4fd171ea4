//! The limits of answers: the memory for those that are not read yet, and the turns of those that take long to make.

use super::{
    answer_work::{AnswerTurn, AnswerWork},
    config::LimitConfig,
    memory_budget::{BudgetKind, MemoryBudget, MemoryBudgetLimits, MemoryReservation},
};
use crate::{
    fault::{Fault, FaultCode},
    telemetry::{LimitKind, Metrics},
    values::ClientKey,
};
use std::{sync::Arc, time::Duration};

/// Complete answers of at most this many bytes are not counted.
const MAX_UNCOUNTED_ANSWER: usize = 16 << 10;

/// How long a client may take to read a short answer that is not counted, because it has its share, or because all clients
/// together have the whole memory. Its head arrives meanwhile.
const MAX_WAIT_WITH_SHARE: Duration = Duration::from_millis(100);
const MAX_WAIT_WITHOUT_SHARE: Duration = Duration::from_secs(1);

/// What unread answers hold, and those that are made.
#[derive(Debug, Default)]
pub(super) struct AnswerUsage {
    budget: Arc<MemoryBudget>,
    /// Of short answers, so that clients without a credential, which get refusals, take nothing from the others.
    short: Arc<MemoryBudget>,
    work: AnswerWork,
}

/// The limits of answers that are in force.
#[derive(Debug)]
pub struct AnswerLimits<'a> {
    usage: &'a AnswerUsage,
    bounds: MemoryBudgetLimits,
    metrics: &'a Arc<Metrics>,
}

impl AnswerUsage {
    /// Returns the limits under this configuration.
    pub(super) fn limits<'a>(&'a self, config: &LimitConfig, metrics: &'a Arc<Metrics>) -> AnswerLimits<'a> {
        AnswerLimits { usage: self, bounds: MemoryBudgetLimits::of(BudgetKind::Answers, config), metrics }
    }
}

impl<'a> AnswerLimits<'a> {
    /// Returns whether an answer of `length` bytes is counted.
    pub(super) fn are_for(length: usize) -> bool {
        length > MAX_UNCOUNTED_ANSWER
    }

    /// Reserves memory for a complete answer of `length` bytes until `client` has read it.
    ///
    /// # Errors
    /// 429 when the client has its share, 503 when all clients have the whole memory.
    pub fn reserve(&self, client: ClientKey, length: usize) -> Result<MemoryReservation, Fault> {
        self.reserve_of(&self.usage.budget, client, length)
    }

    fn reserve_of(
        &self,
        budget: &Arc<MemoryBudget>,
        client: ClientKey,
        length: usize,
    ) -> Result<MemoryReservation, Fault> {
        let mut reservation = MemoryReservation::new(budget, self.bounds, client, self.metrics);
        reservation.grow_to(length)?;
        Ok(reservation)
    }

    /// Reserves memory for a short answer that its client does not read at once, and for the request that it holds open.
    ///
    /// # Errors
    /// How long the client may take without it.
    pub fn hold_unread(&self, client: ClientKey, length: usize) -> Result<MemoryReservation, Duration> {
        self.reserve_of(&self.usage.short, client, length).map_err(|fault| match fault.code() {
            FaultCode::Overloaded => MAX_WAIT_WITHOUT_SHARE,
            _ => MAX_WAIT_WITH_SHARE,
        })
    }

    /// Waits for a turn to make an answer of about `length` bytes that takes longer than a call may hold a thread: each
    /// client makes one at a time.
    ///
    /// # Errors
    /// 429 when too many answers wait for the client, or unread ones take its share; 503 when those of all clients take
    /// the whole memory.
    pub async fn await_turn(&self, client: ClientKey, length: usize) -> Result<AnswerTurn<'a>, Fault> {
        let turn = self.usage.work.await_turn(client).await.inspect_err(|_| {
            self.metrics.record_limited_request(LimitKind::AnswerWork);
        })?;
        // Nothing is made for a client that may not hold it.
        self.reserve(client, length)?;
        Ok(turn)
    }
}
