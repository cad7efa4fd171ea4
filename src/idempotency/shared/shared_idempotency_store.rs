//! The idempotency store in the shared state.

use super::{
    claim_attempt::look_up_or_claim,
    outcome_poll::OutcomePolls,
    outcome_writer::write_outcome,
    shared_keys::SharedKeys,
    upkeep::{keep_claims, release_claims},
};
use crate::{
    idempotency::{
        config::IdempotencyConfig,
        first_outcome::FirstOutcome,
        idempotency_store::{ClaimedKey, IdempotencyStore, KeyRefusal, NewKey, StoredKey},
    },
    store::SharedState,
    telemetry::Metrics,
    values::StoreAnswer,
};
use std::{sync::Arc, time::Duration};
use tokio::{runtime::Handle, sync::oneshot, task::JoinSet, time::timeout};

/// How often a store that is to be settled is looked at.
const SETTLE_INTERVAL: Duration = Duration::from_millis(20);

/// The idempotency keys of all gateways that share the state, as this gateway sees them.
#[derive(Debug)]
pub(in crate::idempotency) struct SharedIdempotencyStore {
    keys: Arc<SharedKeys>,
    polls: Arc<OutcomePolls>,
    /// Claims may be completed when they are dropped outside the runtime.
    runtime: Handle,
    /// The upkeep. It ends with the store.
    _tasks: JoinSet<()>,
}

impl SharedIdempotencyStore {
    /// Creates the store, and starts its upkeep. Requires a tokio runtime.
    pub(in crate::idempotency) fn new(
        config: &IdempotencyConfig,
        state: &Arc<SharedState>,
        metrics: &Arc<Metrics>,
    ) -> Self {
        let keys = Arc::new(SharedKeys::new(config, state, metrics));
        let mut tasks = JoinSet::new();
        tasks.spawn(keep_claims(Arc::clone(&keys)));
        tasks.spawn(release_claims(Arc::clone(&keys)));
        Self { keys, polls: Arc::default(), runtime: Handle::current(), _tasks: tasks }
    }
}

impl IdempotencyStore for SharedIdempotencyStore {
    fn look_up_or_claim(&self, key: NewKey) -> StoreAnswer<'_, Result<StoredKey, KeyRefusal>> {
        StoreAnswer::Pending(Box::pin(look_up_or_claim(&self.keys, &self.polls, key)))
    }

    fn complete(&self, claimed: ClaimedKey, outcome: FirstOutcome) -> StoreAnswer<'static, ()> {
        let config = self.keys.config.load();
        let bounds = self.keys.pending_bounds(&config);
        let Some(pending) = self.keys.claims.lock().complete(claimed, outcome, bounds) else {
            return StoreAnswer::Ready(());
        };
        let (written, is_written) = oneshot::channel();
        let keys = Arc::clone(&self.keys);
        self.runtime.spawn(async move {
            write_outcome(keys, pending).await;
            // The caller may not wait any more.
            let _ = written.send(());
        });
        let max_wait = config.store_timeout.get();
        StoreAnswer::Pending(Box::pin(async move { drop(timeout(max_wait, is_written).await) }))
    }

    fn may_begin(&self, claimed: ClaimedKey) -> bool {
        self.keys.is_valid(claimed)
    }

    fn release(&self, claimed: ClaimedKey) {
        let released = self.keys.claims.lock().release(claimed);
        if let Some(claim) = released {
            self.keys.release_later(claim, Duration::ZERO);
        }
    }

    fn reconfigure(&self, config: &IdempotencyConfig) {
        self.keys.config.store(Arc::new(config.clone()));
    }

    fn settle(&self) -> StoreAnswer<'static, ()> {
        let keys = Arc::clone(&self.keys);
        StoreAnswer::Pending(Box::pin(async move {
            while !keys.is_settled() {
                tokio::time::sleep(SETTLE_INTERVAL).await;
            }
        }))
    }
}
