//! What a server of the shared state does for concurrent calls.

use super::{
    lease_exchange::{LeaseBatch, LeaseReply},
    state_error::StateError,
};
use std::time::Duration;

/// A server that leases slots of agents to gateways.
#[async_trait::async_trait]
pub(in crate::store) trait LeaseEngine {
    /// Replaces the leases of a gateway for these agents by what it keeps, and adds what it wants, as far as the slots of
    /// all gateways stay below the maximum. Leases end after `lifetime` by the clock of the server. While calls of other
    /// gateways wait, a gateway gets at most its equal share; what equal shares leave over, slot by slot. The replies are
    /// in the order of the batches and their entries.
    async fn exchange_leases(
        &self,
        gateway: &str,
        lifetime: Duration,
        batches: &[LeaseBatch],
    ) -> Result<Vec<Vec<LeaseReply>>, StateError>;
}
