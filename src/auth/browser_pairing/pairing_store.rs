//! The shared state, as pairings need it: one code for all gateways, and the keys of paired pages.

use crate::store::{NewValue, Redemption, RedemptionAttempt, SharedState, StateError, ValueKey, ValueKind};
use std::time::Duration;

/// Where gateways keep the code and the pages.
#[async_trait::async_trait]
pub(super) trait PairingStore: Send + Sync {
    /// Replaces the code.
    async fn put_code(&self, code: &[u8], lifetime: Duration) -> Result<(), StateError>;

    /// Returns the code, if there is one.
    async fn code(&self) -> Result<Option<Vec<u8>>, StateError>;

    /// Takes the code if it is equal; deletes it at the `max_mismatches`th mismatch, over all gateways.
    async fn redeem_code(&self, code: &[u8], max_mismatches: u32) -> Result<Redemption, StateError>;

    /// Adds a page by the hash of its key. The page that ends first may be forgotten.
    async fn put_page(&self, page: NewValue) -> Result<(), StateError>;

    /// Returns the hash of the origin of the page whose key has this hash.
    async fn page(&self, key: &ValueKey) -> Result<Option<Vec<u8>>, StateError>;
}

/// The name of the code: there is one.
const CODE: ValueKey = [0; 32];

#[async_trait::async_trait]
impl PairingStore for SharedState {
    async fn put_code(&self, code: &[u8], lifetime: Duration) -> Result<(), StateError> {
        let value = NewValue { key: CODE, value: code.to_vec(), lifetime };
        self.put_values(ValueKind::PairingCode, &[value]).await.map(drop)
    }

    async fn code(&self) -> Result<Option<Vec<u8>>, StateError> {
        self.get_value(ValueKind::PairingCode, &CODE).await
    }

    async fn redeem_code(&self, code: &[u8], max_mismatches: u32) -> Result<Redemption, StateError> {
        let attempt = RedemptionAttempt { presented: code, max_mismatches };
        self.redeem_value(ValueKind::PairingCode, &CODE, attempt).await
    }

    async fn put_page(&self, page: NewValue) -> Result<(), StateError> {
        self.put_values(ValueKind::PairedPage, &[page]).await.map(drop)
    }

    async fn page(&self, key: &ValueKey) -> Result<Option<Vec<u8>>, StateError> {
        self.get_value(ValueKind::PairedPage, key).await
    }
}
