//! What the tasks and the calls of the shared store have in common.

use super::{
    claim_table::{ClaimTable, PENDING_OVERHEAD, PendingBounds},
    release_queue::{PendingRelease, ReleaseQueue},
    shard_history::{LEASE, ShardHistory},
};
use crate::{
    idempotency::{config::IdempotencyConfig, idempotency_store::ClaimedKey},
    store::{IdempotencyRecords, KeyClaim, SharedState},
    telemetry::Metrics,
};
use arc_swap::ArcSwap;
use parking_lot::Mutex;
use std::{sync::Arc, time::Duration};
use tokio::{sync::Semaphore, time::Instant};

/// Maximum size of the outcomes that wait to be stored, in bytes.
const MAX_PENDING_SIZE: usize = 64 << 20;
/// Outcomes that are written at once after a failure.
const MAX_RETRIES_AT_ONCE: usize = 16;
/// Deadline of a trip for which no caller waits.
pub(super) const BACKGROUND_DEADLINE: Duration = Duration::from_secs(5);
/// How much a gateway may err about the end of a claim's validity.
const VALIDITY_MARGIN: Duration = Duration::from_millis(500);

/// The keys of this gateway in the shared state.
#[derive(Debug)]
pub(super) struct SharedKeys {
    pub(super) records: IdempotencyRecords,
    pub(super) config: ArcSwap<IdempotencyConfig>,
    pub(super) history: ShardHistory,
    pub(super) claims: Mutex<ClaimTable>,
    pub(super) releases: ReleaseQueue,
    pub(super) retries: Semaphore,
}

impl SharedKeys {
    pub(super) fn new(config: &IdempotencyConfig, state: &Arc<SharedState>, metrics: &Arc<Metrics>) -> Self {
        Self {
            records: IdempotencyRecords::new(state),
            config: ArcSwap::from_pointee(config.clone()),
            history: ShardHistory::new(state.shards(), metrics),
            claims: Mutex::default(),
            releases: ReleaseQueue::default(),
            retries: Semaphore::new(MAX_RETRIES_AT_ONCE),
        }
    }

    /// Returns the shard of a client.
    pub(super) fn shard_of(&self, client: u64) -> u8 {
        self.records.state().shard_of(client)
    }

    /// Releases a claim in the background. `not_after` is the time of the server's clock after which it cannot be made any
    /// more; zero for a confirmed claim.
    pub(super) fn release_later(&self, claim: KeyClaim, not_after: Duration) {
        let lifetime = self.config.load().ttl.get() + LEASE;
        let give_up_at = Instant::now() + lifetime;
        self.releases.add(PendingRelease { claim, shard: self.shard_of(claim.client), not_after, give_up_at });
    }

    /// Returns whether the key still belongs to the claim: a claim keeps its key for a lease and the lifetime after it.
    pub(super) fn is_valid(&self, claimed: ClaimedKey) -> bool {
        let validity = (LEASE + self.config.load().ttl.get()).saturating_sub(VALIDITY_MARGIN);
        self.claims.lock().is_valid(claimed, validity)
    }

    /// Returns the bounds of outcomes that wait to be stored.
    pub(super) fn pending_bounds(&self, config: &IdempotencyConfig) -> PendingBounds {
        let largest = config.max_response_size.get() + PENDING_OVERHEAD;
        let max_client_size = config.max_share.of(MAX_PENDING_SIZE).max(largest);
        PendingBounds { max_size: MAX_PENDING_SIZE, max_client_size }
    }

    /// Returns whether no claim is in progress and nothing waits to be stored or released.
    pub(super) fn is_settled(&self) -> bool {
        self.claims.lock().is_empty() && self.releases.is_empty()
    }
}
