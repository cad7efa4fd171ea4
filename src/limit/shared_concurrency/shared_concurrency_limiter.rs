//! Limits the concurrent calls to one agent of all gateways together.

use super::{
    lease_account::{LeaseAccount, SlotAttempt, SlotOutcome},
    lease_context::{LeaseContext, LeaseWake},
};
use crate::{
    fault::Fault,
    limit::{
        client_shares::{ClientSlot, count_up_to},
        concurrency_refusal::{ConcurrencyRefusal, QUEUE_TIMEOUT_ELAPSED},
        config::ConcurrencyConfig,
        slot_request::SlotRequest,
    },
};
use parking_lot::Mutex;
use std::{
    num::NonZeroU32,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
    time::Duration,
};
use tokio::{sync::oneshot, time::timeout};

/// Limits the concurrent calls to one agent of all gateways together.
#[derive(Debug)]
pub(in crate::limit) struct SharedConcurrencyLimiter {
    id: u128,
    context: Arc<LeaseContext>,
    account: Mutex<LeaseAccount>,
    queued: AtomicU32,
}

/// One call's slot. It is free again when it is dropped.
#[derive(Debug)]
pub(in crate::limit) struct SharedSlot(Arc<SharedConcurrencyLimiter>);

impl Drop for SharedSlot {
    fn drop(&mut self) {
        self.0.release();
    }
}

/// A call that waits. A slot that is granted after the call has left is released.
struct WaitingCall<'a> {
    limiter: &'a Arc<SharedConcurrencyLimiter>,
    outcome: oneshot::Receiver<SlotOutcome>,
}

impl WaitingCall<'_> {
    async fn outcome(mut self) -> Result<SharedSlot, SlotOutcome> {
        match (&mut self.outcome).await {
            Ok(SlotOutcome::Granted) => Ok(SharedSlot(Arc::clone(self.limiter))),
            Ok(outcome) => Err(outcome),
            // The exchanger has ended with the gateway.
            Err(_) => Err(SlotOutcome::Unavailable),
        }
    }
}

impl Drop for WaitingCall<'_> {
    fn drop(&mut self) {
        self.outcome.close();
        if let Ok(SlotOutcome::Granted) = self.outcome.try_recv() {
            self.limiter.release();
        }
    }
}

impl SharedConcurrencyLimiter {
    pub(super) fn new(id: u128, max: NonZeroU32, context: &Arc<LeaseContext>) -> Arc<Self> {
        let account = Mutex::new(LeaseAccount::new(max.get()));
        Arc::new(Self { id, context: Arc::clone(context), account, queued: AtomicU32::new(0) })
    }

    pub(super) fn id(&self) -> u128 {
        self.id
    }

    pub(super) fn account(&self) -> &Mutex<LeaseAccount> {
        &self.account
    }

    /// Returns the maximum of concurrent calls.
    pub(in crate::limit) fn max(&self) -> u32 {
        self.account.lock().max()
    }

    /// Acquires a slot without waiting, if the gateway has one and no call waits. If not, draws one for a later call.
    pub(in crate::limit) fn try_acquire(self: &Arc<Self>) -> Option<SharedSlot> {
        let mut account = self.account.lock();
        match self.try_take(&mut account) {
            SlotAttempt::Granted => Some(SharedSlot(Arc::clone(self))),
            SlotAttempt::MustDraw => {
                account.hint();
                self.wake(&mut account, Duration::ZERO);
                None
            }
            SlotAttempt::MustQueue | SlotAttempt::Unavailable => None,
        }
    }

    /// Acquires a slot: one that the gateway has, or one from the server; or waits for one in the queue, in order of
    /// arrival. `client_slot` is the client's slot in the agent's concurrency, if clients have shares.
    ///
    /// # Errors
    /// 503 when the queue is full or the wait times out, or when the server cannot be reached and calls are refused then;
    /// 429 when the client has its share of the queue.
    pub(in crate::limit) async fn acquire(
        self: &Arc<Self>,
        request: &SlotRequest<'_>,
        client_slot: Option<&ClientSlot>,
    ) -> Result<SharedSlot, Fault> {
        let refusal = |why| request.refuse(&self.refusal(request.config, why));
        let drawn = {
            let mut account = self.account.lock();
            match self.try_take(&mut account) {
                SlotAttempt::Granted => return Ok(SharedSlot(Arc::clone(self))),
                SlotAttempt::Unavailable => return Err(request.refuse(&ConcurrencyRefusal::Unavailable)),
                SlotAttempt::MustQueue => None,
                SlotAttempt::MustDraw => {
                    let outcome = account.draw();
                    self.wake(&mut account, Duration::ZERO);
                    Some(WaitingCall { limiter: self, outcome })
                }
            }
        };
        if let Some(drawn) = drawn {
            let outcome = timeout(self.context.server.draw_timeout(), drawn.outcome()).await;
            match outcome.unwrap_or_else(|_| self.take_without_server()) {
                Ok(slot) => return Ok(slot),
                Err(SlotOutcome::Unavailable) => return Err(request.refuse(&ConcurrencyRefusal::Unavailable)),
                Err(SlotOutcome::Refused | SlotOutcome::Granted) => {}
            }
        }
        let _of_client = request.join_queue(client_slot)?;
        let Some(_queued) = count_up_to(&self.queued, request.config.max_queued) else {
            return Err(refusal("wait queue full"));
        };
        let _tracked = request.agent.track_queued_call();
        match timeout(request.config.queue_timeout.get(), self.enqueue().outcome()).await {
            Ok(Ok(slot)) => Ok(slot),
            Ok(Err(_)) => Err(request.refuse(&ConcurrencyRefusal::Unavailable)),
            Err(_) => Err(refusal(QUEUE_TIMEOUT_ELAPSED)),
        }
    }

    /// Decides as [`SharedConcurrencyLimiter::acquire`] would now, as far as this gateway knows, and takes nothing. Returns
    /// whether the call would wait.
    ///
    /// # Errors
    /// The refusal of a call for which no place in the queue is free.
    pub(in crate::limit) fn inspect(&self, config: &ConcurrencyConfig) -> Result<bool, ConcurrencyRefusal<'static>> {
        let (account, times) = (self.account.lock(), self.context.times());
        if account.is_free(times) {
            return Ok(false);
        }
        if account.is_closed(times) {
            return Err(ConcurrencyRefusal::Unavailable);
        }
        drop(account);
        let has_place = self.queued.load(SeqCst) < config.max_queued;
        if has_place { Ok(true) } else { Err(self.refusal(config, "wait queue full")) }
    }

    fn try_take(&self, account: &mut LeaseAccount) -> SlotAttempt {
        let times = self.context.times();
        let attempt = account.try_take(times);
        if let Some(delay) = account.report_delay(times) {
            self.wake(account, delay);
        }
        attempt
    }

    /// Decides a call for which the server has not answered in time.
    fn take_without_server(self: &Arc<Self>) -> Result<SharedSlot, SlotOutcome> {
        let (mut account, times) = (self.account.lock(), self.context.times());
        let outcome = account.take_without_server(times);
        if let Some(delay) = account.report_delay(times) {
            self.wake(&mut account, delay);
        }
        match outcome {
            SlotOutcome::Granted => Ok(SharedSlot(Arc::clone(self))),
            outcome => Err(outcome),
        }
    }

    fn enqueue(self: &Arc<Self>) -> WaitingCall<'_> {
        let mut account = self.account.lock();
        let outcome = account.enqueue(self.context.times());
        self.wake(&mut account, Duration::ZERO);
        drop(account);
        WaitingCall { limiter: self, outcome }
    }

    fn release(&self) {
        let (mut account, times) = (self.account.lock(), self.context.times());
        account.release(times);
        if let Some(delay) = account.return_delay(times) {
            self.wake(&mut account, delay);
        }
    }

    /// Asks the exchanger to visit the account after `delay`, unless it was asked to come earlier.
    fn wake(&self, account: &mut LeaseAccount, delay: Duration) {
        if let Some(at) = account.needed_wake(delay, self.context.now()) {
            self.context.wake(LeaseWake::Visit { id: self.id, at });
        }
    }

    fn refusal<'w>(&self, config: &ConcurrencyConfig, why: &'w str) -> ConcurrencyRefusal<'w> {
        let retry_after = config.queue_timeout.get();
        ConcurrencyRefusal::Shared { max_concurrency: self.max(), retry_after, why }
    }
}
