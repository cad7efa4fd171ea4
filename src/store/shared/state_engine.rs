//! What a server that holds shared state can do. Redis and PostgreSQL implement it.

use super::{
    idempotency_engine::IdempotencyEngine,
    lease_engine::LeaseEngine,
    log_engine::LogEngine,
    state_error::StateError,
    token_exchange::{TokenBatch, TokenReply},
    value_engine::ValueEngine,
};
use std::{fmt::Debug, time::Duration};

/// Result of a trip.
pub(in crate::store) type StateResult<T> = Result<T, StateError>;

/// What a heartbeat reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store) struct HeartbeatReply {
    /// Gateways whose heartbeat arrived within their lifetime, this one included.
    pub(in crate::store) gateways: u32,
    /// The clock of the server: time since the Unix epoch.
    pub(in crate::store) server_time: Duration,
}

/// A server that holds shared state. Each method is one trip without a deadline of its own; dropping its future leaves
/// open whether the server applies it.
#[async_trait::async_trait]
pub(in crate::store) trait StateEngine:
    IdempotencyEngine + LeaseEngine + LogEngine + ValueEngine + Debug + Send + Sync
{
    /// Number of shards: a batch has entries of one.
    fn shards(&self) -> u8;

    /// Reports that the gateway is alive for `lifetime`, and counts the gateways that are.
    async fn heartbeat(&self, gateway: &str, lifetime: Duration) -> StateResult<HeartbeatReply>;

    /// Ends the heartbeat of a gateway that stops.
    async fn leave(&self, gateway: &str) -> StateResult<()>;

    /// Exchanges tokens, batch by batch and in order within a shard. The replies are in the order of the batches and
    /// their entries.
    async fn exchange_tokens(&self, gateway: &str, batches: &[TokenBatch]) -> StateResult<Vec<Vec<TokenReply>>>;

    /// Reads the secrets again and finds out whether the server has moved; connects again if one has changed. The connection
    /// in use stays until the new one is open. Called about once a second, and may take longer than a trip.
    async fn refresh_connection(&self);

    /// Closes a connection over which no reply arrives. The next heartbeat connects again.
    fn reset_connection(&self);
}
