//! The records of idempotency keys in the shared state, as the module of idempotency keys sees them.

use super::{
    idempotency_engine::{
        ClaimRelease, ClaimReply, ClaimRequest, KeyReply, KeyShard, OutcomeReply, OutcomeRequest, ShardReply,
        UpkeepReply, UpkeepRequest,
    },
    shared_state::SharedState,
    state_error::StateError,
    trip_kind::TripKind,
};
use std::{sync::Arc, time::Duration};

/// The records of idempotency keys. Each method is one trip within a deadline. After an error, the server may have applied
/// the request, unless the error is [`StateError::Unavailable`].
#[derive(Clone, Debug)]
pub struct IdempotencyRecords(Arc<SharedState>);

impl IdempotencyRecords {
    /// Returns the records in a state.
    pub fn new(state: &Arc<SharedState>) -> Self {
        Self(Arc::clone(state))
    }

    /// Returns the state.
    pub fn state(&self) -> &SharedState {
        &self.0
    }

    /// Looks up a key, and claims it if it is new.
    ///
    /// # Errors
    /// Why there is no reply.
    pub async fn claim(
        &self,
        shard: KeyShard,
        request: &ClaimRequest,
        deadline: Duration,
    ) -> Result<ShardReply<ClaimReply>, StateError> {
        let trip = self.0.engine().claim_key(self.0.gateway_id(), shard, request);
        self.0.guard(TripKind::Keys.of_shard(shard.shard), deadline, trip).await
    }

    /// Looks up a key without claiming it.
    ///
    /// # Errors
    /// Why there is no reply.
    pub async fn look_up(
        &self,
        shard: u8,
        key: &[u8; 32],
        digest: &[u8; 32],
        deadline: Duration,
    ) -> Result<KeyReply, StateError> {
        let trip = self.0.engine().look_up_key(shard, key, digest);
        self.0.guard(TripKind::Keys.of_shard(shard), deadline, trip).await
    }

    /// Completes a claim.
    ///
    /// # Errors
    /// Why there is no reply.
    pub async fn complete(
        &self,
        shard: KeyShard,
        request: &OutcomeRequest,
        deadline: Duration,
    ) -> Result<ShardReply<OutcomeReply>, StateError> {
        let trip = self.0.engine().complete_key(self.0.gateway_id(), shard, request);
        self.0.guard(TripKind::Keys.of_shard(shard.shard), deadline, trip).await
    }

    /// Releases claims of a shard that are not complete. Returns for each whether it is settled: there is no such claim,
    /// and none can be made any more.
    ///
    /// # Errors
    /// Why there is no reply.
    pub async fn release(
        &self,
        shard: u8,
        releases: &[ClaimRelease],
        deadline: Duration,
    ) -> Result<Vec<bool>, StateError> {
        let trip = self.0.engine().release_keys(self.0.gateway_id(), shard, releases);
        self.0.guard(TripKind::Keys.of_shard(shard), deadline, trip).await
    }

    /// Looks after a shard: extends claims, and removes expired records.
    ///
    /// # Errors
    /// Why there is no reply.
    pub async fn maintain(
        &self,
        shard: KeyShard,
        request: &UpkeepRequest,
        deadline: Duration,
    ) -> Result<ShardReply<UpkeepReply>, StateError> {
        let trip = self.0.engine().maintain_keys(self.0.gateway_id(), shard, request);
        self.0.guard(TripKind::Keys.of_shard(shard.shard), deadline, trip).await
    }
}
