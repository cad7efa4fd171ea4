//! The shared state, as revocations need it.

use crate::store::{NewValue, SharedState, StateError, ValueChanges, ValueKind};
use std::time::Duration;

/// Where gateways exchange revocations.
#[async_trait::async_trait]
pub(super) trait RevocationStore: Send + Sync {
    /// Returns whether the store answers, as far as is known.
    fn is_available(&self) -> bool;

    /// Returns the time since the Unix epoch by the clock that all gateways share.
    fn time(&self) -> Duration;

    /// Stores revocations, and returns for each whether it is stored: a full store refuses it.
    async fn publish(&self, revocations: &[NewValue]) -> Result<Vec<bool>, StateError>;

    /// Returns a page of the revocations that were stored after a position.
    async fn read_after(&self, position: u64, limit: u32) -> Result<ValueChanges, StateError>;
}

#[async_trait::async_trait]
impl RevocationStore for SharedState {
    fn is_available(&self) -> bool {
        self.is_available()
    }

    fn time(&self) -> Duration {
        self.server_time()
    }

    async fn publish(&self, revocations: &[NewValue]) -> Result<Vec<bool>, StateError> {
        self.put_values(ValueKind::Revocation, revocations).await
    }

    async fn read_after(&self, position: u64, limit: u32) -> Result<ValueChanges, StateError> {
        self.changed_values(ValueKind::Revocation, position, limit).await
    }
}
