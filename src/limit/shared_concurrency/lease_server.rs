//! What leases slots to gateways: the shared state, or a model of it in tests.

use crate::store::{LeaseBatch, LeaseReply, SharedState, StateError, TripKind};
use std::{fmt::Debug, time::Duration};

/// A server that leases slots.
#[async_trait::async_trait]
pub(in crate::limit) trait LeaseServer: Debug + Send + Sync {
    /// Exchanges slots in one short trip.
    ///
    /// # Errors
    /// Why there is no reply; the batches may have been applied.
    async fn exchange_leases(&self, batches: &[LeaseBatch]) -> Result<Vec<Vec<LeaseReply>>, StateError>;

    /// Returns whether the server answers, as far as is known.
    fn is_available(&self) -> bool;

    /// Returns how many gateways were alive last; at least 1.
    fn gateway_count(&self) -> u32;

    /// Returns the shard of a key.
    fn shard_of(&self, key: u64) -> u8;

    /// Returns how long slots are leased after an exchange.
    fn lease_lifetime(&self) -> Duration;

    /// Returns how long a call waits for its draw.
    fn draw_timeout(&self) -> Duration;
}

#[async_trait::async_trait]
impl LeaseServer for SharedState {
    async fn exchange_leases(&self, batches: &[LeaseBatch]) -> Result<Vec<Vec<LeaseReply>>, StateError> {
        self.exchange_leases(batches).await
    }

    fn is_available(&self) -> bool {
        self.is_available_for(TripKind::Leases)
    }

    fn gateway_count(&self) -> u32 {
        self.gateway_count()
    }

    fn shard_of(&self, key: u64) -> u8 {
        self.shard_of(key)
    }

    fn lease_lifetime(&self) -> Duration {
        self.lease_lifetime()
    }

    fn draw_timeout(&self) -> Duration {
        self.limit_timeout()
    }
}
