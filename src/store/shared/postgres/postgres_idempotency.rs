//! Idempotency keys in PostgreSQL.

use super::postgres_engine::PostgresEngine;
use crate::store::shared::{
    idempotency_engine::{
        ClaimRelease, ClaimReply, ClaimRequest, IdempotencyEngine, KeyReply, KeyShard, OutcomeReply, OutcomeRequest,
        ShardReply, UpkeepReply, UpkeepRequest,
    },
    state_error::StateError,
};

#[async_trait::async_trait]
impl IdempotencyEngine for PostgresEngine {
    async fn claim_key(
        &self,
        _gateway: &str,
        _shard: KeyShard,
        _request: &ClaimRequest,
    ) -> Result<ShardReply<ClaimReply>, StateError> {
        Err(StateError::Unavailable)
    }

    async fn look_up_key(&self, _shard: u8, _key: &[u8; 32], _digest: &[u8; 32]) -> Result<KeyReply, StateError> {
        Err(StateError::Unavailable)
    }

    async fn complete_key(
        &self,
        _gateway: &str,
        _shard: KeyShard,
        _request: &OutcomeRequest,
    ) -> Result<ShardReply<OutcomeReply>, StateError> {
        Err(StateError::Unavailable)
    }

    async fn release_keys(
        &self,
        _gateway: &str,
        _shard: u8,
        _releases: &[ClaimRelease],
    ) -> Result<Vec<bool>, StateError> {
        Err(StateError::Unavailable)
    }

    async fn maintain_keys(
        &self,
        _gateway: &str,
        _shard: KeyShard,
        _request: &UpkeepRequest,
    ) -> Result<ShardReply<UpkeepReply>, StateError> {
        Err(StateError::Unavailable)
    }
}
