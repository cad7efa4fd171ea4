//! Idempotency store in this process. Every answer is ready.

use super::key_table::KeyTable;
use crate::{
    idempotency::{
        config::IdempotencyConfig,
        first_outcome::FirstOutcome,
        idempotency_store::{ClaimedKey, IdempotencyStore, KeyRefusal, NewKey, StoredKey},
    },
    values::StoreAnswer,
};
use arc_swap::ArcSwap;
use parking_lot::Mutex;
use std::{sync::Arc, time::Instant};

/// The idempotency keys of one process and the state of their first calls.
#[derive(Debug)]
pub(in crate::idempotency) struct InProcessIdempotencyStore {
    config: ArcSwap<IdempotencyConfig>,
    table: Mutex<KeyTable>,
}

impl InProcessIdempotencyStore {
    /// Creates an empty store.
    pub(in crate::idempotency) fn new(config: &IdempotencyConfig) -> Self {
        Self { config: ArcSwap::from_pointee(config.clone()), table: Mutex::default() }
    }

    #[cfg(test)]
    pub(in crate::idempotency) fn entry_count_and_size(&self) -> (usize, usize) {
        self.table.lock().entry_count_and_size()
    }
}

impl IdempotencyStore for InProcessIdempotencyStore {
    fn look_up_or_claim(&self, key: NewKey) -> StoreAnswer<'_, Result<StoredKey, KeyRefusal>> {
        let config = self.config.load();
        let mut table = self.table.lock();
        table.remove_expired(Instant::now(), config.ttl.get());
        StoreAnswer::Ready(table.look_up_or_claim(key, &config))
    }

    fn complete(&self, claimed: ClaimedKey, outcome: FirstOutcome) -> StoreAnswer<'static, ()> {
        let config = self.config.load();
        self.table.lock().complete(claimed, outcome, &config);
        StoreAnswer::Ready(())
    }

    fn release(&self, claimed: ClaimedKey) {
        self.table.lock().release(claimed);
    }

    fn reconfigure(&self, config: &IdempotencyConfig) {
        self.config.store(Arc::new(config.clone()));
    }
}
