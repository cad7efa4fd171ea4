//! Reachability checks: whether an upstream accepts connections, tested without a call.
//! The result affects no call; the outcomes of calls are recorded in the circuit breaker.

use super::{Lead, Route, Transport};

impl Transport {
    /// Whether any endpoint of the upstream accepts connections now. Transports that cannot tell count as reachable.
    pub async fn reaches(&self, route: &Route) -> bool {
        for lead in route.leads() {
            if self.reaches_along(lead).await {
                return true;
            }
        }
        false
    }

    pub(super) async fn reaches_along(&self, lead: &Lead) -> bool {
        match lead {
            Lead::Http(target) => self.http.reaches(target).await,
            Lead::Other(way) => way.reaches().await,
        }
    }
}
