//! Reachability checks: whether an upstream accepts connections, tested without a call.
//! The result affects no call; the outcomes of calls are recorded in the circuit breaker.

use super::{EndpointTransport, UpstreamClient, UpstreamSet};

impl UpstreamClient {
    /// Whether any endpoint of the upstream accepts connections now. Transports that cannot tell count as reachable.
    pub async fn is_reachable(&self, upstream: &UpstreamSet) -> bool {
        for transport in upstream.transports() {
            if self.is_transport_reachable(transport).await {
                return true;
            }
        }
        false
    }

    pub(super) async fn is_transport_reachable(&self, transport: &EndpointTransport) -> bool {
        match transport {
            EndpointTransport::Http(target) => self.http.is_reachable(target).await,
            EndpointTransport::Other(transport) => transport.is_reachable().await,
        }
    }
}
